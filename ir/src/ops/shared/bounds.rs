//! What ops that take indices do with one that is out of range.
//!
//! By default it is an error (`bounds: "check"`). An op that can do something else
//! names it in the same attribute: `"clamp"` takes the nearest index, `"drop"`
//! leaves the index out. The pass `checks` turns the first kind into a
//! `check_index` and the second, so that later passes see plain functions; an op
//! whose indices were checked, or need no check, never has `"check"` again.
//!
//! Where fast math relies on indices being in range, those that somebody wants left
//! out must not look like those that were checked: the latter become `"trust"`.

use crate::attr::AttrKind;
use crate::op::{AttrSpec, Blame, InferCx, InferError};
use crate::{Attr, Attrs, Dim, Op, TensorType};
use ndarray::ArrayD;

pub const CHECK: &str = "check";
pub const CLAMP: &str = "clamp";
pub const DROP: &str = "drop";
/// As [`DROP`], but there is no index out of range.
pub const TRUST: &str = "trust";

pub const fn attr(doc: &'static str) -> AttrSpec {
    AttrSpec {
        name: "bounds",
        kind: AttrKind::Str,
        default: Some(|| Attr::Str(CHECK.to_string())),
        doc,
    }
}

/// The attribute is `"check"` or what else the op can do.
pub fn valid(cx: &InferCx<'_>) -> Result<(), InferError> {
    let given = cx.attrs.str("bounds");
    let other = Op::from_name(cx.op).and_then(otherwise).unwrap_or(CHECK);
    if given == CHECK || given == other || (other == DROP && given == TRUST) {
        return Ok(());
    }
    Err(InferError::new("E0532", format!("`bounds` of `{}` cannot be {given:?}", cx.op))
        .at(Blame::Attr("bounds"), format!("expected \"check\" or {other:?}")))
}

/// Which operands of an op are indices, and what happens to one that is out of range.
pub enum Indices {
    /// None is.
    None,
    /// They must be in range.
    Checked(IndicesFn),
    /// As the attribute [`attr`] says: they must be in range, or the op does this.
    Or(&'static str, IndicesFn),
}

pub type IndicesFn = fn(&IndicesCx<'_>) -> Vec<IndexUse>;

/// What an op may look at.
pub struct IndicesCx<'a> {
    pub attrs: &'a Attrs,
    pub operands: &'a [&'a TensorType],
    /// The type of the variable it writes.
    pub var: Option<&'a TensorType>,
}

/// What an op can do about an index that is out of range, other than fail. None
/// for ops that have no such attribute.
pub fn otherwise(op: Op) -> Option<&'static str> {
    match op.def().indices {
        Indices::Or(other, _) => Some(other),
        Indices::None | Indices::Checked(_) => None,
    }
}

/// Whether indices out of range are errors.
pub fn is_checked(attrs: &Attrs) -> bool {
    attrs.str("bounds") == CHECK
}

/// Whether indices out of range are left out.
pub fn drops(attrs: &Attrs) -> bool {
    attrs.str("bounds") == DROP
}

/// Attributes of an op whose indices are known to be in range, or meant not to be.
pub fn unchecked(op: Op, mut attrs: Attrs) -> Attrs {
    if let Some(mut other) = otherwise(op) {
        if other == DROP && is_checked(&attrs) {
            other = TRUST;
        }
        attrs.set("bounds", Attr::Str(other.to_string()));
    }
    attrs
}

/// Indices that one operand of an op holds. Each of them, and the `width - 1` after
/// it, must be among the `size` entries of the axis.
pub struct IndexUse {
    pub operand: usize,
    pub axis: usize,
    pub size: Dim,
    pub width: Dim,
}

impl IndexUse {
    pub fn one(operand: usize, axis: usize, size: Dim) -> IndexUse {
        IndexUse { operand, axis, size, width: 1i64.into() }
    }
}

/// The operands of an op that hold indices, if it must not be given any that are
/// out of range.
pub fn indices(op: Op, cx: &IndicesCx<'_>) -> Vec<IndexUse> {
    match op.def().indices {
        Indices::None => vec![],
        Indices::Or(..) if !is_checked(cx.attrs) => vec![],
        Indices::Checked(find) | Indices::Or(_, find) => find(cx),
    }
}

/// The starts of a box, one operand for each axis from `first` on.
pub fn boxed(x: &TensorType, widths: &[Dim], first: usize) -> Vec<IndexUse> {
    let each = x.shape.iter().zip(widths).enumerate();
    each.map(|(axis, (size, width))| IndexUse {
        operand: first + axis,
        axis,
        size: size.clone(),
        width: width.clone(),
    })
    .collect()
}

/// The first operand names rows of the variable.
pub fn rows_of_variable(cx: &IndicesCx<'_>) -> Vec<IndexUse> {
    cx.var.map(|v| IndexUse::one(0, 0, v.shape[0].clone())).into_iter().collect()
}

/// What evaluation says of the first index that is out of range.
pub fn verify(ids: &ArrayD<i64>, axis: usize, size: i64, width: i64) -> Result<(), String> {
    match ids.iter().find(|id| **id < 0 || **id > size - width) {
        None => Ok(()),
        Some(id) if width == 1 => {
            Err(format!("index {id} is out of range: axis {axis} has size {size}"))
        }
        Some(id) => {
            Err(format!("a box of {width} cannot begin at {id}: axis {axis} has size {size}"))
        }
    }
}
