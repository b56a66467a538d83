//! The record every op fills in.
//!
//! A record has no defaults: an op that forgets a facet does not compile. What
//! an op does not have, it says and why.

use crate::attr::AttrKind;
use crate::cost::CostFn;
use crate::eval::Array;
use crate::graph::Var;
use crate::lower::Lower;
use crate::require::NeedsFn;
use crate::rule::Rule;
use crate::vjp::VjpFn;
use crate::{Attr, Attrs, DType, TensorType};

pub use crate::facts::{Facts, Moves, Range};
pub use crate::ops::bounds::Indices;

pub struct OpDef {
    pub name: &'static str,
    /// One sentence for the reference, in the indicative: "Adds two tensors."
    pub summary: &'static str,
    pub operands: &'static [Operand],
    pub attrs: &'static [AttrSpec],
    /// Names of the regions (`then`, `else`; `cond`, `body`); most ops have none.
    pub regions: &'static [&'static str],
    pub effect: Effect,
    pub stage: Stage,
    /// Result types from operand types: also the verifier. Arity, operand kinds
    /// and attribute kinds are already checked against the record.
    pub infer: fn(&InferCx<'_>) -> Result<Vec<TensorType>, InferError>,
    pub grad: Grad,
    /// Rewrites that start at this op.
    pub rules: &'static [Rule],
    /// What passes may rely on. A fact that is left out costs an optimisation.
    pub facts: Facts,
    /// Which operands are indices that must be in range.
    pub indices: Indices,
    /// What must hold for run-time dims so that every index is in range; checked when
    /// an entry is called. `require::nothing` if inference sees to it all.
    pub needs: NeedsFn,
    /// What a node costs by itself; `cost::as_lowered` where that follows from how it
    /// is lowered.
    pub cost: CostFn,
    pub lower: Lower,
    pub eval: Eval,
}

impl OpDef {
    /// Whether it draws random numbers: a function of a key, not to be computed while
    /// a graph is compiled.
    pub fn is_random(&self) -> bool {
        self.operands.iter().any(|o| o.kind == ElementKind::Key)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    pub name: &'static str,
    pub kind: ElementKind,
    /// Zero or more operands; only the last may be variadic.
    pub variadic: bool,
}

impl Operand {
    pub const fn one(name: &'static str, kind: ElementKind) -> Operand {
        Operand { name, kind, variadic: false }
    }

    pub const fn many(name: &'static str, kind: ElementKind) -> Operand {
        Operand { name, kind, variadic: true }
    }
}

/// Which element types an operand takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementKind {
    Any,
    /// Not `bool`.
    Num,
    Float,
    Int,
    Bool,
    /// `bool` or an integer.
    Bits,
    /// `i32` or `i64`.
    Index,
    /// `i64`: the key of random numbers.
    Key,
}

impl ElementKind {
    pub fn admits(self, dtype: DType) -> bool {
        match self {
            ElementKind::Any => true,
            ElementKind::Num => dtype != DType::Bool,
            ElementKind::Float => dtype.is_float(),
            ElementKind::Int => dtype.is_int(),
            ElementKind::Bool => dtype == DType::Bool,
            ElementKind::Bits => dtype == DType::Bool || dtype.is_int(),
            ElementKind::Index => matches!(dtype, DType::I32 | DType::I64),
            ElementKind::Key => dtype == DType::I64,
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            ElementKind::Any => "any element type",
            ElementKind::Num => "a number type",
            ElementKind::Float => "a float type (f32, f64, f16, bf16)",
            ElementKind::Int => "an integer type (i8, u8, i32, i64)",
            ElementKind::Bool => "bool",
            ElementKind::Bits => "bool or an integer type (i8, u8, i32, i64)",
            ElementKind::Index => "i32 or i64",
            ElementKind::Key => "i64",
        }
    }

    /// An element type of this kind, to show how an operand is converted.
    pub fn example(self) -> &'static str {
        match self {
            ElementKind::Any | ElementKind::Num | ElementKind::Float => "f32",
            ElementKind::Int | ElementKind::Index => "i32",
            ElementKind::Bool | ElementKind::Bits => "bool",
            ElementKind::Key => "i64",
        }
    }
}

pub struct AttrSpec {
    pub name: &'static str,
    pub kind: AttrKind,
    /// Value when absent; `None` for a required attribute. Attributes equal to
    /// their default are stored all the same, so that nodes compare equal.
    pub default: Option<fn() -> Attr>,
    pub doc: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A function of operands and attributes. Only these are moved, merged,
    /// folded or rewritten.
    Pure,
    /// Reads a variable.
    Read,
    /// Writes a variable (and may read it).
    Write,
    /// Puts a value on a stack of the call, or takes one off.
    Stack,
    /// Anything else the world can see: print, assert.
    Io,
    /// What its regions do, and no more: `if`, `while`.
    Regions,
}

/// Until which stage the op may appear.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Gone after differentiation (`grad`, `vjp`).
    Source,
    /// Legal to the end.
    Core,
}

pub enum Grad {
    /// Contribution to operand `i`, or none where no gradient flows.
    Vjp(VjpFn),
    /// The derivative is zero wherever it exists (or operands are not
    /// differentiable): gradients stop here, silently and correctly.
    Zero(&'static str),
    /// Not defined: reaching this on the only path is an error that says why.
    Undefined(&'static str),
    /// Handled by the differentiation pass itself (`if`, `while`, `read`).
    Structural,
}

pub enum Eval {
    /// Reference semantics. Operand types and attributes are as inferred.
    Pure(fn(&EvalCx<'_>) -> Result<Vec<Array>, String>),
    /// Done by the interpreter, because it needs state or regions.
    Interpreter,
    /// Gone before anything runs.
    Never,
}

pub struct InferCx<'a> {
    pub op: &'static str,
    pub operands: &'a [TensorType],
    pub attrs: &'a Attrs,
    /// The variable or queue, for ops with one.
    pub var: Option<&'a Var>,
    /// Result types of each region, for ops with regions.
    pub regions: &'a [Vec<TensorType>],
}

pub struct EvalCx<'a> {
    pub operands: &'a [Array],
    pub attrs: &'a Attrs,
    /// Result types with every dim replaced by its value.
    pub results: &'a [TensorType],
    /// Values of named dims, for shape attributes.
    pub dims: &'a dyn Fn(&str) -> Option<i64>,
}

/// Why an op cannot be applied, in the user's words.
#[derive(Clone, Debug, PartialEq)]
pub struct InferError {
    pub code: &'static str,
    pub message: String,
    /// What to say under which part of the expression.
    pub labels: Vec<(Blame, String)>,
    pub help: Option<String>,
}

/// What part of an expression an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    Operand(usize),
    Attr(&'static str),
    Op,
}

impl InferError {
    pub fn new(code: &'static str, message: impl Into<String>) -> InferError {
        InferError { code, message: message.into(), labels: vec![], help: None }
    }

    pub fn at(mut self, place: Blame, text: impl Into<String>) -> InferError {
        self.labels.push((place, text.into()));
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> InferError {
        self.help = Some(text.into());
        self
    }
}
