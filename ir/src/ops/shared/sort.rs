//! What `argsort` and the ops made of it share.

use super::util::check_axis;
use crate::attr::AttrKind;
use crate::op::{AttrSpec, InferCx, InferError};
use crate::require::NeedsCx;
use crate::{Attr, Dim, TensorType};
use ndarray::{ArrayD, Axis};
use std::cmp::Ordering;

const AXIS: AttrSpec =
    AttrSpec { name: "axis", kind: AttrKind::Int, default: None, doc: "the axis to sort along" };

pub const SORT_ATTRS: &[AttrSpec] = &[
    AXIS,
    AttrSpec {
        name: "descending",
        kind: AttrKind::Bool,
        default: Some(|| Attr::Bool(false)),
        doc: "whether the largest comes first",
    },
];

/// The operand's type: of sorted elements.
pub fn infer(cx: &InferCx<'_>) -> Result<TensorType, InferError> {
    check_axis(cx, "axis", cx.attrs.int("axis"), cx.operands[0].rank())?;
    Ok(cx.operands[0].clone())
}

/// Places along the axis are `i32`.
pub fn needs(cx: &NeedsCx<'_>, need: &mut dyn FnMut(Dim, String)) {
    let axis = cx.attrs.int("axis") as usize;
    let size = cx.operands[0].shape[axis].clone();
    let op = cx.op.name();
    need(
        Dim::constant(i64::from(i32::MAX)) - size,
        format!("`{op}` along axis {axis}: it has more elements than an i32 counts"),
    );
}

/// NaN last, zeros equal.
pub fn floats(a: f64, b: f64, descending: bool) -> Ordering {
    let order = if descending { b.partial_cmp(&a) } else { a.partial_cmp(&b) };
    order.unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// By lane along the axis, the places of its elements in order.
pub fn places<T>(a: &ArrayD<T>, axis: usize, compare: impl Fn(&T, &T) -> Ordering) -> Vec<i64> {
    let mut out = ArrayD::<i64>::zeros(a.raw_dim());
    for (lane, mut to) in a.lanes(Axis(axis)).into_iter().zip(out.lanes_mut(Axis(axis))) {
        let mut order: Vec<i64> = (0..lane.len() as i64).collect();
        order.sort_by(|i, j| compare(&lane[*i as usize], &lane[*j as usize]));
        to.iter_mut().zip(order).for_each(|(to, place)| *to = place);
    }
    out.iter().copied().collect()
}
