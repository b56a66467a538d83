//! How an op's gradient and expansion emit nodes without knowing where to.
//!
//! The same function serves the direct differentiation of a graph and the
//! expansion of `vjp` nodes inside the e-graph: values are opaque, and building
//! goes through [`Emit`]. Methods take `&self` so that expressions nest:
//! `e.mul(ct, e.neg(x))`. An ill-typed request is recorded by the emitter,
//! which returns a poisoned value; the driver reports it.

use crate::{Attr, Attrs, DType, Dim, Op, TensorType};

/// An opaque value: a graph's `ValueId` or an e-graph's class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct V(pub u32);

/// Contribution of one use to the gradient of operand `i`; `None` where no
/// gradient flows (integer operands, conditions).
pub type VjpFn = fn(e: &dyn Emit, n: &VjpArgs<'_>, i: usize) -> Option<V>;

/// Rewrites an op into simpler ones.
pub type ExpandFn = fn(e: &dyn Emit, operands: &[V], attrs: &Attrs) -> V;

pub struct VjpArgs<'a> {
    pub operands: &'a [V],
    pub out: V,
    /// Gradient flowing into `out`; same type as `out`.
    pub ct: V,
    pub attrs: &'a Attrs,
}

/// Attributes of the `vjp` node for operand `wrt` of an op with these attributes.
pub fn term_attrs(of: Op, wrt: usize, attrs: &Attrs) -> Attrs {
    attrs.clone().with("of", Attr::Str(of.name().to_string())).with("wrt", Attr::Int(wrt as i64))
}

/// The op, operand and attributes a `vjp` node speaks of.
pub fn term_of(attrs: &Attrs) -> Option<(Op, usize, Attrs)> {
    let of = Op::from_name(attrs.str("of"))?;
    let wrt = usize::try_from(attrs.int("wrt")).ok()?;
    let mut own = Attrs::none();
    for (name, value) in attrs.iter().filter(|(name, _)| !matches!(*name, "of" | "wrt")) {
        own.set(name, value.clone());
    }
    Some((of, wrt, own))
}

/// Builds pure single-result nodes.
pub trait Emit {
    fn emit(&self, op: Op, operands: &[V], attrs: Attrs) -> V;
    fn ty(&self, v: V) -> TensorType;
}

// Shorthands, so that a gradient reads as its formula. Binary ones expect equal
// shapes: broadcasting is explicit here.
impl dyn Emit + '_ {
    pub fn unary(&self, op: Op, x: V) -> V {
        self.emit(op, &[x], Attrs::none())
    }

    pub fn binary(&self, op: Op, a: V, b: V) -> V {
        self.emit(op, &[a, b], Attrs::none())
    }

    pub fn add(&self, a: V, b: V) -> V {
        self.binary(Op::Add, a, b)
    }

    pub fn sub(&self, a: V, b: V) -> V {
        self.binary(Op::Sub, a, b)
    }

    pub fn mul(&self, a: V, b: V) -> V {
        self.binary(Op::Mul, a, b)
    }

    pub fn div(&self, a: V, b: V) -> V {
        self.binary(Op::Div, a, b)
    }

    pub fn neg(&self, x: V) -> V {
        self.unary(Op::Neg, x)
    }

    pub fn select(&self, cond: V, a: V, b: V) -> V {
        self.emit(Op::Select, &[cond, a, b], Attrs::none())
    }

    /// A tensor of the type of `like`, every element `value`.
    pub fn splat_like(&self, value: f64, like: V) -> V {
        let ty = self.ty(like);
        self.splat(value, ty.dtype, &ty.shape)
    }

    pub fn splat(&self, value: f64, dtype: DType, shape: &[Dim]) -> V {
        let tensor = crate::Tensor::splat(dtype, vec![], value);
        let scalar =
            self.emit(Op::Const, &[], Attrs::none().with("value", Attr::Tensor(tensor.into())));
        self.broadcast(scalar, shape, &[])
    }

    /// Operand axis `i` becomes result axis `axes[i]`; sizes are equal or one.
    pub fn broadcast(&self, x: V, shape: &[Dim], axes: &[i64]) -> V {
        let ty = self.ty(x);
        if ty.shape == shape && axes.iter().enumerate().all(|(i, a)| i as i64 == *a) {
            return x;
        }
        let attrs = Attrs::none()
            .with("shape", Attr::Shape(shape.to_vec()))
            .with("axes", Attr::Ints(axes.to_vec()));
        self.emit(Op::Broadcast, &[x], attrs)
    }

    /// Puts back axes a reduction removed: the inverse of `sum(axes)`'s shape.
    pub fn unreduce(&self, x: V, shape: &[Dim], axes: &[i64]) -> V {
        let kept: Vec<i64> = (0..shape.len() as i64).filter(|a| !axes.contains(a)).collect();
        self.broadcast(x, shape, &kept)
    }

    pub fn sum(&self, x: V, axes: &[i64]) -> V {
        if axes.is_empty() {
            return x;
        }
        let attrs =
            Attrs::none().with("axes", Attr::Ints(axes.to_vec())).with("keep", Attr::Bool(false));
        self.emit(Op::Sum, &[x], attrs)
    }

    pub fn reshape(&self, x: V, shape: &[Dim]) -> V {
        if self.ty(x).shape == shape {
            return x;
        }
        self.emit(Op::Reshape, &[x], Attrs::none().with("shape", Attr::Shape(shape.to_vec())))
    }

    pub fn transpose(&self, x: V, perm: &[i64]) -> V {
        if perm.iter().enumerate().all(|(i, p)| i as i64 == *p) {
            return x;
        }
        self.emit(Op::Transpose, &[x], Attrs::none().with("perm", Attr::Ints(perm.to_vec())))
    }

    pub fn cast(&self, x: V, dtype: DType) -> V {
        if self.ty(x).dtype == dtype {
            return x;
        }
        self.emit(Op::Cast, &[x], Attrs::none().with("to", Attr::DType(dtype)))
    }
}
