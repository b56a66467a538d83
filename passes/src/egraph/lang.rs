//! E-nodes: the pure ops of a graph, open to every op in the table.
//!
//! Attributes are interned, so a node is a few words and compares fast. A
//! [`Node::Vjp`] carries the operand *values* of the op it differentiates: the
//! derivative with respect to "operand 0" is a property of an expression, not of
//! the value it computes, and only so stays sound when operands are commuted.

use egg::{Id, Language};
use std::collections::BTreeMap;
use tfc_ir::{Attrs, Op};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// A value from outside the region, by number.
    Input(u32),
    Op {
        op: Op,
        attrs: AttrId,
        args: Box<[Id]>,
    },
    /// Gradient term of operand `wrt`: `args` are the operands, the result and
    /// its cotangent.
    Vjp {
        op: Op,
        wrt: u8,
        attrs: AttrId,
        args: Box<[Id]>,
    },
}

/// What egg indexes classes by. `Ord` of [`Node`] sorts by this first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeKind {
    Input,
    Op(Op),
    Vjp(Op, u8),
}

impl Node {
    pub fn kind(&self) -> NodeKind {
        match self {
            Node::Input(_) => NodeKind::Input,
            Node::Op { op, .. } => NodeKind::Op(*op),
            Node::Vjp { op, wrt, .. } => NodeKind::Vjp(*op, *wrt),
        }
    }

    pub fn is_vjp(&self) -> bool {
        matches!(self, Node::Vjp { .. })
    }
}

impl Language for Node {
    type Discriminant = NodeKind;

    fn discriminant(&self) -> NodeKind {
        self.kind()
    }

    fn matches(&self, other: &Node) -> bool {
        self.kind() == other.kind() && self.children().len() == other.children().len()
    }

    fn children(&self) -> &[Id] {
        match self {
            Node::Input(_) => &[],
            Node::Op { args, .. } | Node::Vjp { args, .. } => args,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Node::Input(_) => &mut [],
            Node::Op { args, .. } | Node::Vjp { args, .. } => args,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttrId(u32);

impl AttrId {
    pub const NONE: AttrId = AttrId(0);
}

/// Attribute lists by number; the empty list is number zero.
#[derive(Debug)]
pub struct Interner {
    lists: Vec<Attrs>,
    ids: BTreeMap<Attrs, AttrId>,
}

impl Default for Interner {
    fn default() -> Interner {
        Interner {
            lists: vec![Attrs::none()],
            ids: BTreeMap::from([(Attrs::none(), AttrId::NONE)]),
        }
    }
}

impl Interner {
    pub fn intern(&mut self, attrs: Attrs) -> AttrId {
        if attrs.is_empty() {
            return AttrId::NONE;
        }
        if let Some(id) = self.ids.get(&attrs) {
            return *id;
        }
        let id = AttrId(self.lists.len() as u32);
        self.lists.push(attrs.clone());
        self.ids.insert(attrs, id);
        id
    }

    pub fn get(&self, id: AttrId) -> &Attrs {
        &self.lists[id.0 as usize]
    }
}
