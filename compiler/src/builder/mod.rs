//! Graphs built in Rust.
//!
//! The builder writes the graph language: each call on a [`Node`] becomes one
//! statement, and the front end that reads files reads these, so a graph means
//! the same whichever way it was made (broadcasting, literals, library functions
//! and all). Every statement is checked the moment it is made, on its own, with
//! its operands' types; what is wrong is remembered with the Rust line that did
//! it and reported by [`GraphBuilder::compile`] or [`GraphBuilder::finish`].
//! Nothing panics: after a mistake the node has no type, and whatever is built on
//! it stays quiet.
//!
//! ```
//! use tfc::{DType::F32, GraphBuilder};
//!
//! let g = GraphBuilder::new("line");
//! let x = g.input("x", F32, "B");
//! let w = g.var("w", F32, (), 3.0);
//! let y = &x * &w + 1.0;
//! g.entry("predict", &[&x], &[("y", &y)]);
//!
//! let module = g.compile()?;
//! let y = module.call("predict", (&ndarray::array![1.0f32, 2.0],))?;
//! assert_eq!(y.array::<f32>("y")?, ndarray::array![4.0, 7.0].into_dyn());
//! # Ok::<(), tfc::Error>(())
//! ```
//!
//! Invariants
//! - Items are in the order of the Rust calls; an entry keeps that order for the
//!   items it needs, so effects happen in program order.
//! - A name is used for one thing only in the text of an entry.

mod check;
mod control;
mod methods;
mod overload;
mod queue;
mod shape;
mod site;
mod write;

pub use queue::QueueNode;
pub use shape::{Arg, Init, Operand, Shape, Size};

use crate::error::Result;
use crate::value::Feed;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::rc::Rc;
use tfc_ir::diag::Diag;
use tfc_ir::{DType, Graph, Tensor, TensorType};

/// A graph under construction. Clones are the same graph.
#[derive(Clone)]
pub struct GraphBuilder {
    state: Rc<RefCell<State>>,
}

/// A value of the graph: what an op produces, an input or a variable.
#[derive(Clone)]
pub struct Node {
    graph: GraphBuilder,
    item: usize,
}

/// Something an entry does besides computing results: an assignment, a training
/// step. It happens in the entries it is given to.
#[derive(Clone)]
pub struct Update {
    graph: GraphBuilder,
    item: usize,
}

/// An entry, to say more about it.
pub struct EntryBuilder {
    graph: GraphBuilder,
    index: usize,
}

type Site = &'static Location<'static>;

#[derive(Default)]
struct State {
    name: String,
    doc: String,
    /// Declared or first used, in that order, with their ranges.
    dims: Vec<(String, Option<(i64, i64)>)>,
    items: Vec<Item>,
    /// Indices of the items that are variables.
    vars: Vec<usize>,
    entries: Vec<EntryDecl>,
    /// Tensors given from Rust, by the name `file("...")` uses for them.
    data: BTreeMap<String, Tensor>,
    names: BTreeSet<String>,
    functions: Vec<Function>,
    /// Effects that are statements of a block.
    inside: BTreeSet<usize>,
    errors: Vec<(Diag, site::Sites)>,
    /// Types of calls checked before.
    checked: BTreeMap<String, std::result::Result<Vec<TensorType>, Vec<Diag>>>,
}

/// Functions of the graph's own.
struct Function {
    text: Vec<Piece>,
    /// Variables it uses.
    vars: BTreeSet<usize>,
    site: Site,
}

struct Item {
    kind: ItemKind,
    /// What it is called in the text.
    name: String,
    /// The name is the user's choice.
    named: bool,
    /// `None` after a mistake.
    ty: Option<TensorType>,
    site: Site,
}

enum ItemKind {
    Input,
    Var {
        init: String,
    },
    /// `queue name: decl`.
    Queue {
        decl: String,
    },
    /// `name = text`, where the text has holes for operands.
    Call {
        text: Vec<Piece>,
    },
    /// One of the several results of a call, which is item `of`.
    Part {
        of: usize,
    },
    /// A call of several results: `(parts..) = text`.
    Many {
        text: Vec<Piece>,
        parts: Vec<usize>,
    },
    /// A value that a block is given: what a loop carries, a parameter.
    Carried,
    /// A statement without a value.
    Effect {
        text: Vec<Piece>,
    },
}

#[derive(Clone)]
enum Piece {
    Text(String),
    /// An argument by name whose value is written out: `units: 64`.
    Fixed(String),
    Item(usize),
    /// The model that a layer's call, which is this item, is.
    Model(usize),
    /// A node of another graph, which has no item here.
    Foreign,
}

struct EntryDecl {
    name: String,
    doc: String,
    inputs: Vec<usize>,
    outputs: Vec<(String, usize)>,
    updates: Vec<usize>,
    /// Nobody calls it: it fills queues.
    runner: bool,
    site: Site,
}

impl GraphBuilder {
    /// An empty graph of this name.
    #[track_caller]
    pub fn new(name: &str) -> GraphBuilder {
        let state = State { name: name.to_string(), ..State::default() };
        let graph = GraphBuilder { state: Rc::new(RefCell::new(state)) };
        graph.expect_name(name, Location::caller());
        graph
    }

    /// A sentence about the graph, shown by the program's `--help`.
    pub fn doc(&self, text: &str) -> &GraphBuilder {
        self.state.borrow_mut().doc = text.to_string();
        self
    }

    /// Declares a run-time dim with its range. A dim without a range need not be
    /// declared: naming it in a shape is enough.
    #[track_caller]
    pub fn dim(&self, name: &str, range: std::ops::RangeInclusive<i64>) -> Size {
        let (lo, hi) = (*range.start(), *range.end());
        let site = Location::caller();
        if !self.expect_name(name, site) {
            return Size::from(name);
        }
        if lo < 0 || lo > hi {
            let diag = Diag::error("E0114", format!("no size is in the range {lo}..={hi}"))
                .help("the smallest size comes first, and is not negative");
            self.fail(diag, site);
        }
        let mut state = self.state.borrow_mut();
        let range = Some((lo, hi));
        match state.dims.iter_mut().find(|(n, _)| n == name) {
            Some((_, r)) => *r = range,
            None => state.dims.push((name.to_string(), range)),
        }
        Size::from(name)
    }

    /// An input of entries.
    ///
    /// The shape is a size, a tuple of sizes or an array of them; a size is a
    /// number or the name of a run-time dim: `("B", 784)`, `[3, 3]`, `"N"`, `()`.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Node {
        let site = Location::caller();
        let ty = self.type_of(dtype, shape.into(), site);
        self.named_item(ItemKind::Input, name, ty, site)
    }

    /// A variable: state that outlives a call. Its initial value is a number, a
    /// tensor or array, or an [`Init`] such as `Init::expr("init.glorot(seed: 1)")`.
    #[track_caller]
    pub fn var(
        &self,
        name: &str,
        dtype: DType,
        shape: impl Into<Shape>,
        init: impl Into<Init>,
    ) -> Node {
        let site = Location::caller();
        let ty = self.type_of(dtype, shape.into(), site);
        let init = match init.into() {
            Init::Expr(text) => text,
            Init::Number(value) => shape::literal(dtype, value),
            Init::Int(value) if dtype.is_float() => shape::literal(dtype, value as f64),
            Init::Int(value) if dtype == DType::Bool => (value != 0).to_string(),
            Init::Int(value) => value.to_string(),
            Init::Data(tensor) => format!("file({:?})", self.add_data(tensor)),
        };
        let node = self.named_item(ItemKind::Var { init }, name, ty, site);
        self.state.borrow_mut().vars.push(node.item);
        node
    }

    /// A constant tensor.
    #[track_caller]
    pub fn constant<'a>(&self, value: impl Into<Feed<'a>>) -> Node {
        let site = Location::caller();
        let tensor = value.into().to_tensor();
        let shape = tensor.shape().iter().map(|d| (*d).into()).collect::<Vec<tfc_ir::Dim>>();
        let ty = TensorType::new(tensor.dtype(), shape);
        let text = format!("file({:?})", self.add_data(tensor));
        let name = self.fresh();
        self.push(ItemKind::Call { text: vec![Piece::Text(text)] }, name, Some(ty), site)
    }

    /// Applies an op or a library function by name: `g.op("conv2d", &[&x, &w],
    /// &[("stride", [2, 2].into())])`, `g.op("nn.softmax", &[&z], &[])`.
    #[track_caller]
    pub fn op(&self, name: &str, operands: &[&Node], attrs: &[(&str, Arg)]) -> Node {
        let operands: Vec<Operand> = operands.iter().map(|n| Operand::from(*n)).collect();
        self.call(name, &operands, attrs, Location::caller())
    }

    /// Applies a function of several results, such as `split`.
    #[track_caller]
    pub fn op_many(
        &self,
        name: &str,
        operands: &[&Node],
        attrs: &[(&str, Arg)],
        results: usize,
    ) -> Vec<Node> {
        let site = Location::caller();
        let operands: Vec<Operand> = operands.iter().map(|n| Operand::from(*n)).collect();
        let text = self.call_text(name, &operands, attrs);
        let types = self.check(&text, results, site);
        self.many(text, types, results, site)
    }

    /// Defines an entry: what callers feed, and the named results they get.
    #[track_caller]
    pub fn entry(&self, name: &str, inputs: &[&Node], outputs: &[(&str, &Node)]) -> EntryBuilder {
        let site = Location::caller();
        self.expect_name(name, site);
        for (name, _) in outputs {
            self.expect_name(name, site);
        }
        let mut foreign = inputs.iter().any(|n| !self.owns(n));
        foreign |= outputs.iter().any(|(_, n)| !self.owns(n));
        if foreign {
            self.fail(foreign_node(), site);
        }
        self.check_inputs(name, inputs, site);
        let mut state = self.state.borrow_mut();
        let own = |n: &&Node| Rc::ptr_eq(&n.graph.state, &self.state);
        let decl = EntryDecl {
            name: name.to_string(),
            doc: String::new(),
            inputs: inputs.iter().filter(|n| own(n)).map(|n| n.item).collect(),
            outputs: outputs
                .iter()
                .filter(|(_, n)| own(n))
                .map(|(name, n)| (name.to_string(), n.item))
                .collect(),
            updates: vec![],
            runner: false,
            site,
        };
        state.entries.push(decl);
        EntryBuilder { graph: self.clone(), index: state.entries.len() - 1 }
    }

    /// One training step: `minimize loss over [..] with optimizer`, where the
    /// optimizer is a library function such as `optim.adam` and its settings. An
    /// empty list stands for every variable the loss depends on.
    #[track_caller]
    pub fn minimize(
        &self,
        loss: &Node,
        over: &[&Node],
        optimizer: &str,
        settings: &[(&str, Arg)],
    ) -> Update {
        self.minimize_through(loss, over, &[], optimizer, settings)
    }

    /// [`GraphBuilder::minimize`] with functions the gradients go through on their
    /// way to the optimizer, such as `optim.clip_global_norm`, each with its settings.
    ///
    /// ```
    /// use tfc::{DType::F32, GraphBuilder};
    /// let g = GraphBuilder::new("clipped");
    /// let w = g.var("w", F32, 2, 3.0);
    /// let loss = (&w * &w).sum();
    /// let clip = ("optim.clip_global_norm", &[("limit", 1.0.into())][..]);
    /// let step = g.minimize_through(&loss, &[&w], &[clip], "optim.sgd", &[("lr", 1.0.into())]);
    /// g.entry("train", &[], &[]).with(&[&step]);
    /// let module = g.compile()?;
    /// module.call("train", ())?;
    /// assert!((module.var::<f32>("w")?[[0]] - (3.0 - 0.5f32.sqrt())).abs() < 1e-6);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[track_caller]
    pub fn minimize_through(
        &self,
        loss: &Node,
        over: &[&Node],
        through: &[(&str, &[(&str, Arg)])],
        optimizer: &str,
        settings: &[(&str, Arg)],
    ) -> Update {
        let site = Location::caller();
        let mut text = vec![Piece::Text("minimize ".into()), self.piece(loss)];
        if !over.is_empty() {
            text.push(Piece::Text(" over [".into()));
            self.list(&mut text, over);
            text.push(Piece::Text("]".into()));
        }
        for (function, settings) in through {
            text.push(Piece::Text(format!(" through {function}(")));
            self.named_args(&mut text, settings);
            text.push(Piece::Text(")".into()));
        }
        text.push(Piece::Text(format!(" with {optimizer}(")));
        self.named_args(&mut text, settings);
        text.push(Piece::Text(")".into()));
        if let Some(bad) = over.iter().find(|n| !n.is_var() && n.ty().is_some()) {
            let diag = Diag::error("E0402", "only variables can be trained")
                .note(format!("`{}` is not a variable", bad.name()))
                .help("pass what `GraphBuilder::var` returned");
            self.fail(diag, site);
        }
        self.scalar_loss(loss, site);
        self.effect(text, site)
    }

    /// Everything wrong so far, if anything is.
    pub fn check_so_far(&self) -> Result<()> {
        let state = self.state.borrow();
        if state.errors.is_empty() { Ok(()) } else { Err(site::error(&state.errors)) }
    }

    /// The graph as text in the graph language. Tensors given from Rust appear as
    /// `file("...")` and are known to this builder only.
    pub fn to_text(&self) -> String {
        write::text(&self.state.borrow()).0
    }

    /// The finished graph.
    pub fn finish(&self) -> Result<Graph> {
        self.check_so_far()?;
        let state = self.state.borrow();
        let missing = write::missing_inputs(&state);
        if !missing.is_empty() {
            return Err(site::error(&missing));
        }
        let (text, lines) = write::text(&state);
        check::whole(&state, &text, &lines)
    }

    /// Compiles in memory.
    pub fn compile(&self) -> Result<crate::Module> {
        self.compile_with(&crate::Options::default())
    }

    /// Compiles in memory, with options.
    pub fn compile_with(&self, options: &crate::Options) -> Result<crate::Module> {
        crate::Module::from_graph(&self.finish()?, options)
    }

    // What the pieces above share.

    fn owns(&self, node: &Node) -> bool {
        Rc::ptr_eq(&self.state, &node.graph.state)
    }

    /// What stands for a node in the text of this graph.
    fn piece(&self, node: &Node) -> Piece {
        if self.owns(node) { Piece::Item(node.item) } else { Piece::Foreign }
    }

    /// Reports a node of another graph: its item would be some other node here.
    fn expect_own(&self, text: &[Piece], site: Site) {
        if text.iter().any(|p| matches!(p, Piece::Foreign)) {
            self.fail(foreign_node(), site);
        }
    }

    /// An entry is fed what was made to be fed.
    fn check_inputs(&self, entry: &str, inputs: &[&Node], site: Site) {
        let computed = |n: &&&Node| {
            self.owns(n) && !matches!(self.state.borrow().items[n.item].kind, ItemKind::Input)
        };
        if let Some(node) = inputs.iter().find(computed) {
            let message = format!("`{}` cannot be an input of `{entry}`", node.name());
            let diag = Diag::error("E0140", message)
                .note("it is computed, or a variable")
                .help("pass what `GraphBuilder::input` returned");
            self.fail(diag, site);
        }
    }

    fn fail(&self, diag: Diag, site: Site) {
        self.state.borrow_mut().errors.push((diag, site::Sites::one(site)));
    }

    fn type_of(&self, dtype: DType, shape: Shape, site: Site) -> Option<TensorType> {
        match shape.dims() {
            Ok(dims) => {
                let mut state = self.state.borrow_mut();
                for sym in dims.iter().flat_map(|d| d.syms()) {
                    if !state.dims.iter().any(|(n, _)| **n == *sym) {
                        state.dims.push((sym.to_string(), None));
                    }
                }
                Some(TensorType::new(dtype, dims))
            }
            Err(message) => {
                self.fail(Diag::error("E0104", message), site);
                None
            }
        }
    }

    fn add_data(&self, tensor: Tensor) -> String {
        let mut state = self.state.borrow_mut();
        let key = format!("rust:{}", state.data.len());
        state.data.insert(key.clone(), tensor);
        key
    }

    /// A name nothing else has.
    fn fresh(&self) -> String {
        let mut state = self.state.borrow_mut();
        let mut n = state.items.len();
        loop {
            let name = format!("t{n}");
            if state.names.insert(name.clone()) {
                return name;
            }
            n += 1;
        }
    }

    fn named_item(&self, kind: ItemKind, name: &str, ty: Option<TensorType>, site: Site) -> Node {
        let clash = self.claim(name, site);
        let name = if clash { self.fresh() } else { name.to_string() };
        self.push(kind, name, ty, site)
    }

    /// Takes a name; reports it if it is taken or no name, and returns whether.
    fn claim(&self, name: &str, site: Site) -> bool {
        if !self.expect_name(name, site) {
            return true;
        }
        let mut state = self.state.borrow_mut();
        if state.names.insert(name.to_string()) {
            return false;
        }
        let mut sites = site::Sites::one(site);
        if let Some(first) = state.items.iter().find(|i| i.name == name) {
            sites.also.push((first.site, format!("`{name}` is first used here")));
        }
        let diag = Diag::error("E0118", format!("the name `{name}` is used twice"));
        state.errors.push((diag, sites));
        true
    }

    /// Whether the language takes this as a name; reports it if not.
    fn expect_name(&self, name: &str, site: Site) -> bool {
        let diag = if !shape::is_name(name) {
            Diag::error("E0104", format!("{name:?} is not a name"))
                .help("names start with a letter or `_` and go on with letters, digits and `_`")
        } else if tfc_ir::text::parse::is_reserved(name) {
            Diag::error("E0107", format!("`{name}` cannot be a name"))
                .note("it is a word of the graph language")
                .help(format!("choose another, such as `{name}_`"))
        } else {
            return true;
        };
        self.fail(diag, site);
        false
    }

    fn push(&self, kind: ItemKind, name: String, ty: Option<TensorType>, site: Site) -> Node {
        let mut state = self.state.borrow_mut();
        state.items.push(Item { kind, name, named: false, ty, site });
        Node { graph: self.clone(), item: state.items.len() - 1 }
    }

    fn call(&self, name: &str, operands: &[Operand], attrs: &[(&str, Arg)], site: Site) -> Node {
        self.expression(self.call_text(name, operands, attrs), site)
    }

    /// A node for an expression, checked.
    fn expression(&self, text: Vec<Piece>, site: Site) -> Node {
        self.expect_own(&text, site);
        let ty = self.check(&text, 1, site).and_then(|mut types| types.pop());
        let name = self.fresh();
        self.push(ItemKind::Call { text }, name, ty, site)
    }

    fn many(
        &self,
        text: Vec<Piece>,
        types: Option<Vec<TensorType>>,
        results: usize,
        site: Site,
    ) -> Vec<Node> {
        self.expect_own(&text, site);
        let name = self.fresh();
        let call = self.push(ItemKind::Many { text, parts: vec![] }, name, None, site);
        let nodes: Vec<Node> = (0..results)
            .map(|i| {
                let ty = types.as_ref().and_then(|t| t.get(i).cloned());
                let name = self.fresh();
                self.push(ItemKind::Part { of: call.item }, name, ty, site)
            })
            .collect();
        if let ItemKind::Many { parts, .. } = &mut self.state.borrow_mut().items[call.item].kind {
            *parts = nodes.iter().map(|n| n.item).collect();
        }
        nodes
    }

    fn effect(&self, text: Vec<Piece>, site: Site) -> Update {
        self.expect_own(&text, site);
        let name = self.fresh();
        let node = self.push(ItemKind::Effect { text }, name, None, site);
        Update { graph: self.clone(), item: node.item }
    }

    fn call_text(&self, name: &str, operands: &[Operand], attrs: &[(&str, Arg)]) -> Vec<Piece> {
        let mut text = vec![Piece::Text(format!("{name}("))];
        for (i, operand) in operands.iter().enumerate() {
            if i > 0 {
                text.push(Piece::Text(", ".into()));
            }
            text.push(operand.piece(self));
        }
        if !operands.is_empty() && !attrs.is_empty() {
            text.push(Piece::Text(", ".into()));
        }
        self.named_args(&mut text, attrs);
        text.push(Piece::Text(")".into()));
        text
    }

    /// `name: value, ..`.
    fn named_args(&self, text: &mut Vec<Piece>, args: &[(&str, Arg)]) {
        for (i, (name, value)) in args.iter().enumerate() {
            if i > 0 {
                text.push(Piece::Text(", ".into()));
            }
            match value {
                Arg::Node(node) => {
                    text.push(Piece::Text(format!("{name}: ")));
                    text.push(self.piece(node));
                }
                Arg::Nodes(nodes) => {
                    text.push(Piece::Text(format!("{name}: [")));
                    self.list(text, &nodes.iter().collect::<Vec<_>>());
                    text.push(Piece::Text("]".into()));
                }
                value => text.push(Piece::Fixed(format!("{name}: {value}"))),
            }
        }
    }

    fn list(&self, text: &mut Vec<Piece>, nodes: &[&Node]) {
        for (i, node) in nodes.iter().enumerate() {
            if i > 0 {
                text.push(Piece::Text(", ".into()));
            }
            text.push(self.piece(node));
        }
    }

    /// Gradients start at one number.
    fn scalar_loss(&self, loss: &Node, site: Site) {
        let Some(ty) = loss.ty() else { return };
        if ty.rank() != 0 || !ty.dtype.is_float() {
            let diag = Diag::error("E0330", "a gradient starts at one float, such as a loss")
                .note(format!("this is {ty}"))
                .help("reduce it first: `.mean()` or `.sum()`");
            self.fail(diag, site);
        }
    }
}

fn foreign_node() -> Diag {
    Diag::error("E0123", "a node of another graph is used here")
        .help("nodes belong to the `GraphBuilder` that made them")
}

impl Node {
    /// Its type, unless something went wrong on the way to it.
    pub fn ty(&self) -> Option<TensorType> {
        self.graph.state.borrow().items[self.item].ty.clone()
    }

    /// What it is called in the graph.
    pub fn name(&self) -> String {
        self.graph.state.borrow().items[self.item].name.clone()
    }

    /// Gives it a name to fetch, feed and read it by. The result of a layer gives its
    /// name to the layer's variables as well: after
    /// `x.apply("layer.dense", &[]).named("head")` they are `head.w` and `head.b`.
    /// Those of a layer without a name are called by the layer, and numbered:
    /// `dense.w`, `dense_2.w`.
    #[track_caller]
    pub fn named(self, name: &str) -> Node {
        let fixed = {
            let state = self.graph.state.borrow();
            matches!(state.items[self.item].kind, ItemKind::Input | ItemKind::Var { .. })
        };
        let site = Location::caller();
        if fixed {
            let diag = Diag::error("E0118", format!("`{}` has a name already", self.name()));
            self.graph.fail(diag, site);
        } else if !self.graph.claim(name, site) {
            let item = &mut self.graph.state.borrow_mut().items[self.item];
            item.name = name.to_string();
            item.named = true;
        }
        self
    }

    /// Whether it is a variable.
    pub fn is_var(&self) -> bool {
        matches!(self.graph.state.borrow().items[self.item].kind, ItemKind::Var { .. })
    }

    /// The gradients of this (one float) with respect to each of `wrt`.
    #[track_caller]
    pub fn grad(&self, wrt: &[&Node]) -> Vec<Node> {
        let site = Location::caller();
        self.graph.scalar_loss(self, site);
        let mut text = vec![Piece::Text("grad(".into()), Piece::Item(self.item)];
        text.push(Piece::Text(", wrt: [".into()));
        self.graph.list(&mut text, wrt);
        text.push(Piece::Text("])".into()));
        let types: Option<Vec<TensorType>> = wrt.iter().map(|n| n.ty()).collect();
        self.graph.many(text, types, wrt.len(), site)
    }

    /// Sets a variable.
    #[track_caller]
    pub fn assign(&self, value: impl Into<Operand>) -> Update {
        self.update("assign", value.into(), Location::caller())
    }

    /// Adds to a variable.
    #[track_caller]
    pub fn assign_add(&self, value: impl Into<Operand>) -> Update {
        self.update("assign_add", value.into(), Location::caller())
    }

    /// Subtracts from a variable.
    #[track_caller]
    pub fn assign_sub(&self, value: impl Into<Operand>) -> Update {
        self.update("assign_sub", value.into(), Location::caller())
    }

    /// Overwrites rows of a variable.
    #[track_caller]
    pub fn scatter_assign(&self, ids: &Node, rows: &Node) -> Update {
        self.scatter("scatter_assign", ids, rows, Location::caller())
    }

    /// Adds to rows of a variable.
    #[track_caller]
    pub fn scatter_assign_add(&self, ids: &Node, rows: &Node) -> Update {
        self.scatter("scatter_assign_add", ids, rows, Location::caller())
    }

    /// Writes the value to standard error when the entry runs.
    #[track_caller]
    pub fn print(&self, label: &str) -> Update {
        let text = self.graph.call_text("print", &[self.into()], &[("label", label.into())]);
        self.graph.effect(text, Location::caller())
    }

    /// Fails the call with `message` unless every element is true.
    #[track_caller]
    pub fn assert(&self, message: &str) -> Update {
        let text = self.graph.call_text("assert", &[self.into()], &[("message", message.into())]);
        self.graph.effect(text, Location::caller())
    }

    fn update(&self, op: &str, value: Operand, site: Site) -> Update {
        let text = self.graph.call_text(op, &[self.into(), value], &[]);
        self.variable_only(op, site);
        self.graph.check(&text, 0, site);
        self.graph.effect(text, site)
    }

    fn scatter(&self, op: &str, ids: &Node, rows: &Node, site: Site) -> Update {
        let text = self.graph.call_text(op, &[self.into(), ids.into(), rows.into()], &[]);
        self.variable_only(op, site);
        self.graph.check(&text, 0, site);
        self.graph.effect(text, site)
    }

    fn variable_only(&self, op: &str, site: Site) {
        if !self.is_var() {
            let diag = Diag::error("E0402", format!("`{op}` changes a variable"))
                .note(format!("`{}` is not one", self.name()))
                .help("only what `GraphBuilder::var` returned can be assigned");
            self.graph.fail(diag, site);
        }
    }
}

impl Update {
    /// Names the state an optimizer keeps, as `with optim.adam() as name` does: for
    /// two steps of one entry that train the same variables with the same optimizer.
    #[track_caller]
    pub fn named(self, name: &str) -> Update {
        let site = Location::caller();
        let mut minimizes = false;
        if let ItemKind::Effect { text } = &mut self.graph.state.borrow_mut().items[self.item].kind
        {
            minimizes = matches!(text.first(), Some(Piece::Text(t)) if t.starts_with("minimize"));
            if minimizes {
                text.push(Piece::Text(format!(" as {name}")));
            }
        }
        self.graph.expect_name(name, site);
        if !minimizes {
            let diag = Diag::error("E0455", format!("`{name}` names nothing here"))
                .help("only what `GraphBuilder::minimize` returned keeps state to be named");
            self.graph.fail(diag, site);
        }
        self
    }
}

impl EntryBuilder {
    /// Makes the entry perform updates, in the order they were created.
    #[track_caller]
    pub fn with(self, updates: &[&Update]) -> EntryBuilder {
        let site = Location::caller();
        for update in updates {
            if Rc::ptr_eq(&update.graph.state, &self.graph.state) {
                let mut state = self.graph.state.borrow_mut();
                state.entries[self.index].updates.push(update.item);
            } else {
                let diag = Diag::error("E0123", "an update of another graph is used here");
                self.graph.fail(diag, site);
            }
        }
        self
    }

    /// A sentence about the entry, shown by the program's `--help`.
    pub fn doc(self, text: &str) -> EntryBuilder {
        self.graph.state.borrow_mut().entries[self.index].doc = text.to_string();
        self
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ty() {
            Some(ty) => write!(f, "{}: {ty}", self.name()),
            None => write!(f, "{}: (wrong)", self.name()),
        }
    }
}

impl std::fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_text())
    }
}
