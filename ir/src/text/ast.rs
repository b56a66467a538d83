//! The tree the parser makes: what was written, with spans, nothing resolved.

use crate::diag::Span;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct File {
    pub name: Option<Name>,
    pub doc: String,
    pub items: Vec<Item>,
}

/// A name, possibly dotted (`nn.softmax`).
#[derive(Clone, Debug)]
pub struct Name {
    pub text: Arc<str>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum Item {
    Use(Use),
    Dim(DimItem),
    Var(VarItem),
    Queue(QueueItem),
    Let(LetItem),
    Func(FuncItem),
    Entry(EntryItem),
    Init(Block),
}

#[derive(Clone, Debug)]
pub struct Use {
    pub name: Name,
    /// `use "layers.graph" as layers`.
    pub path: Option<(String, Span)>,
}

#[derive(Clone, Debug)]
pub struct DimItem {
    pub name: Name,
    pub range: Option<(i64, i64, Span)>,
}

#[derive(Clone, Debug)]
pub struct VarItem {
    pub name: Name,
    /// `slot` rather than `var`: state of an optimizer, in printed graphs.
    pub slot: bool,
    pub ty: TypeExpr,
    pub init: Option<Expr>,
    pub device: Option<(String, Span)>,
    pub span: Span,
}

/// `queue q: fifo(f32[2], capacity: 8)`, `reader r: csv("a.csv", f32[2])`.
#[derive(Clone, Debug)]
pub struct QueueItem {
    pub name: Name,
    pub reader: bool,
    /// The kind, with its types and options.
    pub kind: Call,
    pub device: Option<(String, Span)>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct LetItem {
    pub name: Name,
    pub ty: Option<TypeExpr>,
    pub value: Expr,
}

/// Who owns the variables a function declares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FuncKind {
    /// Nobody: it has none. (One that takes a variable may have slots for it.)
    Func,
    /// The call: each has new ones.
    Layer,
    /// The function: all calls share one set.
    Model,
}

impl FuncKind {
    pub fn word(self) -> &'static str {
        match self {
            FuncKind::Func => "func",
            FuncKind::Layer => "layer",
            FuncKind::Model => "model",
        }
    }
}

#[derive(Clone, Debug)]
pub struct FuncItem {
    pub kind: FuncKind,
    /// The word `func`, `layer` or `model`.
    pub word: Span,
    /// `model q = critic(units: 64)`: the layer, and what is given to it for good.
    /// Such a model has neither parameters nor a body of its own.
    pub of: Option<Call>,
    pub name: Name,
    pub doc: String,
    pub params: Vec<Param>,
    pub results: Results,
    pub body: Block,
    pub grad: Option<GradClause>,
}

/// `grad(x, out, ct) { return dx }` after a function's body.
#[derive(Clone, Debug)]
pub struct GradClause {
    pub params: Vec<Name>,
    pub body: Block,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Param {
    pub name: Name,
    /// `var p`: takes a variable, not its value.
    pub var: bool,
    /// `var ..p`: takes a list of variables.
    pub many: bool,
    pub ty: Option<TypeExpr>,
    pub default: Option<Expr>,
}

#[derive(Clone, Debug)]
pub struct EntryItem {
    pub name: Name,
    pub doc: String,
    pub params: Vec<Param>,
    pub results: Results,
    pub body: Block,
    /// `runner` rather than `entry`.
    pub runner: bool,
    /// `replica` rather than `entry`.
    pub replica: bool,
    /// `on "/job:a/task:0"`: the part of one task.
    pub task: Option<(String, Span)>,
}

#[derive(Clone, Debug, Default)]
pub struct Results {
    pub items: Vec<ResultItem>,
    pub span: Span,
    /// `->` was written.
    pub given: bool,
}

#[derive(Clone, Debug)]
pub struct ResultItem {
    pub name: Option<Name>,
    pub ty: Option<TypeExpr>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct TypeExpr {
    /// `f32`, `_`, or the name of a type parameter.
    pub dtype: Name,
    /// Expressions over dims; `_`, `..` and `..S` in functions' types.
    pub dims: Vec<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug, Default)]
pub struct Block {
    pub stmts: Vec<Stmt>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Stmt {
    pub kind: StmtKind,
    pub after: Vec<Name>,
    pub device: Option<(String, Span)>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum StmtKind {
    Bind {
        targets: Vec<Target>,
        tuple: bool,
        value: Expr,
    },
    Expr(Expr),
    Update {
        name: Name,
        op: Binary,
        op_span: Span,
        value: Expr,
    },
    Return(Vec<Expr>),
    Yield(Vec<Expr>),
    Minimize {
        loss: Expr,
        /// Variables, and functions that declare some; without a list, all that
        /// the loss depends on.
        over: Option<Vec<Name>>,
        /// Functions the gradients go through on their way to the optimizer.
        through: Vec<Expr>,
        with: Expr,
    },
    /// `for x in list { ... }`: the body once for each item, when compiled.
    For {
        each: Vec<Each>,
        body: Block,
    },
    Var(VarItem),
    /// `on "..." { ... }`
    On(Block),
}

/// `x in list`, `i in 0..n` or `i in 0..`.
#[derive(Clone, Debug)]
pub struct Each {
    pub name: Name,
    /// The list, or where the range starts.
    pub list: Expr,
    pub range: bool,
    /// The end of a range, not included; open if there is none.
    pub end: Option<Expr>,
}

#[derive(Clone, Debug)]
pub struct Target {
    pub name: Name,
    pub ty: Option<TypeExpr>,
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    Int(i128),
    Float(f64),
    Bool(bool),
    Str(String),
    Name(Arc<str>),
    List(Vec<Expr>),
    /// `[f(x) for x in list]`
    Every(Box<Expr>, Vec<Each>),
    Tuple(Vec<Expr>),
    /// `f32`, `f32[2]`.
    Type(TypeExpr, bool),
    /// `f32[2](1, 2)`, `f32[9](bytes "...")`.
    Literal(TypeExpr, Vec<Expr>),
    /// `bytes "..."` inside a literal: base64.
    Bytes(String),
    Call(Box<Call>),
    Unary(Unary, Box<Expr>),
    /// Operators of one precedence, left to right: long sums stay flat.
    Chain(Box<Expr>, Vec<(Binary, Span, Expr)>),
    Index(Box<Expr>, Vec<IndexItem>),
    If(Box<IfExpr>),
    While(Box<WhileExpr>),
    /// `_`
    Hole,
    /// `..` or `..S`
    Rest(Option<Name>),
    /// Reported already.
    Error,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub callee: Name,
    pub args: Vec<Arg>,
    pub regions: Vec<RegionArg>,
    /// `.. as name`: what the variables of the call are called by.
    pub label: Option<Name>,
}

#[derive(Clone, Debug)]
pub struct Arg {
    pub name: Option<Name>,
    pub value: Expr,
}

/// `forward(x: f32[B]) { ... yield y }` after a call.
#[derive(Clone, Debug)]
pub struct RegionArg {
    pub name: Name,
    pub params: Vec<Param>,
    pub body: Block,
}

#[derive(Clone, Debug)]
pub enum IndexItem {
    At(Expr),
    Range {
        lo: Option<Expr>,
        hi: Option<Expr>,
        step: Option<Box<Expr>>,
        span: Span,
    },
    /// `..`: all axes not named.
    Rest(Span),
}

#[derive(Clone, Debug)]
pub struct IfExpr {
    pub cond: Expr,
    pub then: Block,
    pub els: Option<Block>,
}

#[derive(Clone, Debug)]
pub struct WhileExpr {
    pub carried: Vec<Param>,
    pub cond: Block,
    pub body: Block,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unary {
    Neg,
    Not,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Pow,
    MatMul,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
}

impl Binary {
    pub fn op_name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Rem => "rem",
            Binary::Pow => "pow",
            Binary::MatMul => "matmul",
            Binary::Eq => "eq",
            Binary::Ne => "ne",
            Binary::Lt => "lt",
            Binary::Le => "le",
            Binary::Gt => "gt",
            Binary::Ge => "ge",
            Binary::And => "and",
            Binary::Or => "or",
        }
    }
}

impl Default for Expr {
    fn default() -> Expr {
        Expr { kind: ExprKind::Error, span: Span::NONE }
    }
}
