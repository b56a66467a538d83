//! The graph in memory.
//!
//! Nodes, values and regions live in arenas of their [`Func`] and are named by
//! typed ids. A region lists its nodes in an order that is both topological and
//! the order of effects; passes build new functions rather than patch old ones
//! (see [`crate::build`]).
//!
//! Invariants (checked by [`crate::verify`])
//! - A value is defined before it is used, in its region or an enclosing one.
//! - Result types are what the op's `infer` says.
//! - `after` edges start and end on effectful nodes of the same region.
//! - Broadcasting is explicit: elementwise operands have equal shapes.

use crate::diag::{SourceMap, Span};
use crate::require::Requirement;
use crate::{Attrs, Op, TensorType};
use cranelift_entity::{PrimaryMap, entity_impl};
use std::sync::Arc;
use tfc_abi::plan::{QueueInfo, QueueKind};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);
entity_impl!(NodeId, "n");

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(u32);
entity_impl!(ValueId, "v");

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(u32);
entity_impl!(RegionId, "r");

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarId(u32);
entity_impl!(VarId, "var");

/// A whole program: state and the entries that share it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub name: String,
    pub doc: String,
    /// Declared run-time dims, in source order.
    pub dims: Vec<DimDecl>,
    pub vars: PrimaryMap<VarId, Var>,
    /// Assigns every variable its first value; runs once, has no parameters.
    pub init: Func,
    pub entries: Vec<Func>,
    /// The texts that spans point into, for messages; empty if there are none.
    pub sources: Arc<SourceMap>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DimDecl {
    pub name: Arc<str>,
    pub min: i64,
    /// Inclusive; `i64::MAX` when unbounded.
    pub max: i64,
    pub span: Span,
}

/// What a symbol stands for. What queues and readers hold is described as in the plan:
/// element types and rules of order are defined once, in `abi`.
#[derive(Clone, Debug, PartialEq)]
pub enum Symbol {
    /// A tensor that outlives calls.
    Variable,
    Queue(Arc<QueueInfo>),
    /// Gives the records of files as a queue gives its elements.
    Reader(Arc<QueueInfo>),
}

impl Symbol {
    /// The queue or the reader that is described.
    pub fn holding(info: QueueInfo) -> Symbol {
        match info.kind {
            QueueKind::Reader(_) => Symbol::Reader(Arc::new(info)),
            QueueKind::Fifo { .. } | QueueKind::Shuffle { .. } | QueueKind::Priority { .. } => {
                Symbol::Queue(Arc::new(info))
            }
        }
    }

    pub fn is_variable(&self) -> bool {
        matches!(self, Symbol::Variable)
    }

    /// What a queue or a reader holds.
    pub fn elements(&self) -> Option<&Arc<QueueInfo>> {
        match self {
            Symbol::Variable => None,
            Symbol::Queue(info) | Symbol::Reader(info) => Some(info),
        }
    }

    pub fn elements_mut(&mut self) -> Option<&mut QueueInfo> {
        match self {
            Symbol::Variable => None,
            Symbol::Queue(info) | Symbol::Reader(info) => Some(Arc::make_mut(info)),
        }
    }
}

/// A declared piece of mutable state.
#[derive(Clone, Debug)]
pub struct Var {
    pub name: String,
    /// Shape is static: a variable outlives any one call's dims. A queue's is
    /// the type of its size.
    pub ty: TensorType,
    pub symbol: Symbol,
    /// Part of the program itself (a weight, a counter), rather than a slot that an
    /// optimizer keeps for one.
    pub user: bool,
    pub device: Option<Arc<str>>,
    pub span: Span,
}

/// An entry (or the initialiser) after all calls are inlined.
#[derive(Clone, Debug)]
pub struct Func {
    pub name: String,
    pub doc: String,
    pub nodes: PrimaryMap<NodeId, Node>,
    pub values: PrimaryMap<ValueId, Value>,
    pub regions: PrimaryMap<RegionId, Region>,
    /// Its params are the entry's params, its results the entry's results.
    pub body: RegionId,
    pub result_names: Vec<String>,
    /// Called again and again on a thread of its own, rather than by the user.
    pub runner: bool,
    /// The version of the entry of this name that several processes run together.
    pub replica: bool,
    /// What calls need of run-time dims for the sake of nodes that passes have since
    /// simplified away; see [`crate::require::keep`].
    pub needs: Vec<Requirement>,
    /// The task of a cluster whose part of the entry of this name it is.
    pub task: Option<Arc<str>>,
    pub span: Span,
}

impl Default for Func {
    fn default() -> Func {
        Func::new("")
    }
}

impl Func {
    pub fn new(name: &str) -> Func {
        let mut regions = PrimaryMap::new();
        let body = regions.push(Region::default());
        Func {
            name: name.to_string(),
            doc: String::new(),
            nodes: PrimaryMap::new(),
            values: PrimaryMap::new(),
            regions,
            body,
            result_names: vec![],
            runner: false,
            replica: false,
            needs: vec![],
            task: None,
            span: Span::NONE,
        }
    }

    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.values[value].ty
    }

    /// The node that defines `value`, unless it is a region parameter.
    pub fn def(&self, value: ValueId) -> Option<NodeId> {
        match self.values[value].def {
            Def::Node(node, _) => Some(node),
            Def::Param(..) => None,
        }
    }

    pub fn params(&self) -> &[ValueId] {
        &self.regions[self.body].params
    }

    pub fn results(&self) -> &[ValueId] {
        &self.regions[self.body].results
    }

    /// All nodes in execution order, regions entered where they stand.
    pub fn walk(&self, visit: &mut dyn FnMut(NodeId, &Node)) {
        self.walk_region(self.body, visit);
    }

    fn walk_region(&self, region: RegionId, visit: &mut dyn FnMut(NodeId, &Node)) {
        for &id in &self.regions[region].nodes {
            let node = &self.nodes[id];
            visit(id, node);
            for &inner in &node.regions {
                self.walk_region(inner, visit);
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct Value {
    pub ty: TensorType,
    pub def: Def,
    /// The name in the source, for printing, fetching and feeding.
    pub name: Option<Arc<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Def {
    Node(NodeId, u32),
    Param(RegionId, u32),
}

#[derive(Clone, Debug, Default)]
pub struct Region {
    pub params: Vec<ValueId>,
    pub nodes: Vec<NodeId>,
    pub results: Vec<ValueId>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub op: Op,
    pub operands: Vec<ValueId>,
    pub attrs: Attrs,
    /// The variable the op reads or writes.
    pub var: Option<VarId>,
    pub regions: Vec<RegionId>,
    /// Effectful nodes this one must follow, besides those text order implies.
    pub after: Vec<NodeId>,
    /// Partial device name from `on "..."`.
    pub device: Option<Arc<str>>,
    pub results: Vec<ValueId>,
    pub span: Span,
    /// Of a place in a library that comes with the compiler: the call in the user's own text
    /// that led there.
    pub site: Span,
}
