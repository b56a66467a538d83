//! What ops that take indices do with one that is out of range.
//!
//! By default it is an error (`bounds: "check"`). An op that can do something else
//! names it in the same attribute: `"clamp"` takes the nearest index, `"drop"`
//! leaves the index out. The pass `checks` turns the first kind into a
//! `check_index` and the second, so that later passes see plain functions; an op
//! whose indices were checked, or need no check, never has `"check"` again.

use crate::attr::AttrKind;
use crate::op::{AttrSpec, InferCx, InferError, Place};
use crate::{Attr, Attrs, Dim, Op, TensorType};
use ndarray::ArrayD;

pub const CHECK: &str = "check";
pub const CLAMP: &str = "clamp";
pub const DROP: &str = "drop";

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
    if given == CHECK || given == other {
        return Ok(());
    }
    Err(InferError::new("E0532", format!("`bounds` of `{}` cannot be {given:?}", cx.op))
        .at(Place::Attr("bounds"), format!("expected \"check\" or {other:?}")))
}

/// What an op can do about an index that is out of range, other than fail. None
/// for ops that have no such attribute.
pub fn otherwise(op: Op) -> Option<&'static str> {
    match op {
        Op::Gather | Op::DynamicSlice | Op::DynamicUpdateSlice => Some(CLAMP),
        Op::OneHot => Some(DROP),
        _ => None,
    }
}

/// Whether indices out of range are errors.
pub fn is_checked(attrs: &Attrs) -> bool {
    attrs.str("bounds") == CHECK
}

/// Attributes of an op whose indices are known to be in range, or meant not to be.
pub fn unchecked(op: Op, mut attrs: Attrs) -> Attrs {
    if let Some(other) = otherwise(op) {
        attrs.set("bounds", Attr::Str(other.to_string()));
    }
    attrs
}

/// Indices that one operand of an op holds. Each of them, and the `width - 1` after
/// it, must be among the `size` entries of the axis.
pub struct Indices {
    pub operand: usize,
    pub axis: usize,
    pub size: Dim,
    pub width: Dim,
}

/// The operands of an op that hold indices, if it must not be given any that are
/// out of range.
pub fn indices(
    op: Op,
    attrs: &Attrs,
    operands: &[&TensorType],
    var: Option<&TensorType>,
) -> Vec<Indices> {
    let one = |operand, axis: usize, size: Dim| Indices { operand, axis, size, width: 1i64.into() };
    if otherwise(op).is_some() && !is_checked(attrs) {
        return vec![];
    }
    match op {
        Op::Gather => {
            let axis = attrs.int("axis") as usize;
            vec![one(1, axis, operands[0].shape[axis].clone())]
        }
        Op::OneHot => vec![one(0, operands[0].rank(), attrs.int("depth").into())],
        Op::DynamicSlice => boxed(operands[0], attrs.shape("sizes"), 1),
        Op::DynamicUpdateSlice => boxed(operands[0], &operands[1].shape, 2),
        Op::ScatterAdd => vec![one(1, 0, operands[0].shape[0].clone())],
        Op::ScatterAssign | Op::ScatterAssignAdd => {
            var.map(|v| one(0, 0, v.shape[0].clone())).into_iter().collect()
        }
        _ => vec![],
    }
}

fn boxed(x: &TensorType, widths: &[Dim], first: usize) -> Vec<Indices> {
    let each = x.shape.iter().zip(widths).enumerate();
    each.map(|(axis, (size, width))| Indices {
        operand: first + axis,
        axis,
        size: size.clone(),
        width: width.clone(),
    })
    .collect()
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
