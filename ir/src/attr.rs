//! Attributes: what a node is told besides its operands.
//!
//! Attributes are a small list of typed values sorted by name, so printing,
//! hashing, comparing and rewriting need no code per op.

use crate::{DType, Dim, Tensor};
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Attr {
    Int(i64),
    Ints(Vec<i64>),
    /// A float by its bits, so that attributes can be compared and hashed.
    Float(u64),
    Bool(bool),
    Str(String),
    DType(DType),
    Shape(Vec<Dim>),
    Tensor(Arc<Tensor>),
}

impl Attr {
    pub fn float(value: f64) -> Attr {
        Attr::Float(value.to_bits())
    }

    pub fn kind(&self) -> AttrKind {
        match self {
            Attr::Int(_) => AttrKind::Int,
            Attr::Ints(_) => AttrKind::Ints,
            Attr::Float(_) => AttrKind::Float,
            Attr::Bool(_) => AttrKind::Bool,
            Attr::Str(_) => AttrKind::Str,
            Attr::DType(_) => AttrKind::DType,
            Attr::Shape(_) => AttrKind::Shape,
            Attr::Tensor(_) => AttrKind::Tensor,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttrKind {
    Int,
    Ints,
    Float,
    Bool,
    Str,
    DType,
    Shape,
    /// As [`AttrKind::Shape`], but entries may be negative: indices and amounts
    /// rather than sizes.
    Offsets,
    Tensor,
}

impl AttrKind {
    pub fn holds(self, value: &Attr) -> bool {
        match self {
            AttrKind::Offsets => value.kind() == AttrKind::Shape,
            kind => value.kind() == kind,
        }
    }
}

/// A sorted list of named attributes. Names are those of the op's schema.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attrs(Vec<(&'static str, Attr)>);

impl Attrs {
    pub const fn none() -> Attrs {
        Attrs(Vec::new())
    }

    pub fn with(mut self, name: &'static str, value: Attr) -> Attrs {
        self.set(name, value);
        self
    }

    pub fn set(&mut self, name: &'static str, value: Attr) {
        match self.0.binary_search_by_key(&name, |(n, _)| n) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.0.binary_search_by(|(n, _)| (*n).cmp(name)).ok().map(|at| &self.0[at].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Attr)> {
        self.0.iter().map(|(n, a)| (*n, a))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    // Typed views. The op's schema is checked before `infer`, `eval` or `lower`
    // run, so a required attribute is there and has its kind; the neutral value
    // is returned otherwise rather than a panic.

    pub fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(Attr::Int(v)) => *v,
            _ => 0,
        }
    }

    pub fn ints(&self, name: &str) -> &[i64] {
        match self.get(name) {
            Some(Attr::Ints(v)) => v,
            _ => &[],
        }
    }

    pub fn float(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Attr::Float(bits)) => f64::from_bits(*bits),
            _ => 0.0,
        }
    }

    pub fn bool(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Attr::Bool(true)))
    }

    pub fn str(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Attr::Str(v)) => v,
            _ => "",
        }
    }

    pub fn dtype(&self, name: &str) -> Option<DType> {
        match self.get(name) {
            Some(Attr::DType(v)) => Some(*v),
            _ => None,
        }
    }

    pub fn shape(&self, name: &str) -> &[Dim] {
        match self.get(name) {
            Some(Attr::Shape(v)) => v,
            _ => &[],
        }
    }

    pub fn tensor(&self, name: &str) -> Option<&Arc<Tensor>> {
        match self.get(name) {
            Some(Attr::Tensor(v)) => Some(v),
            _ => None,
        }
    }
}
