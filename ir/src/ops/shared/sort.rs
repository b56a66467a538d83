//! What `argsort` and the ops made of it share.

use super::util::check_axis;
use crate::attr::AttrKind;
use crate::op::{AttrSpec, Blame, Eval, EvalCx, InferCx, InferError};
use crate::ops::take_along;
use crate::require::NeedsCx;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, TensorType};
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

pub const TOP_ATTRS: &[AttrSpec] =
    &[AttrSpec { name: "k", kind: AttrKind::Int, default: None, doc: "how many to take" }, AXIS];

/// The operand's type: of sorted elements.
pub fn infer(cx: &InferCx<'_>) -> Result<TensorType, InferError> {
    check_axis(cx, "axis", cx.attrs.int("axis"), cx.operands[0].rank())?;
    Ok(cx.operands[0].clone())
}

/// The type of the first `k` along the axis.
pub fn infer_top(cx: &InferCx<'_>) -> Result<TensorType, InferError> {
    let mut ty = infer(cx)?;
    let (axis, k) = (cx.attrs.int("axis") as usize, cx.attrs.int("k"));
    let size = &ty.shape[axis];
    if k < 0 || (size.clone() - k.into()).is_always_negative() {
        return Err(InferError::new("E0244", format!("`{}` cannot take {k} of {size}", cx.op))
            .at(Blame::Attr("k"), format!("this is {k}"))
            .at(Blame::Operand(0), format!("axis {axis} of {} has size {size}", cx.operands[0])));
    }
    ty.shape[axis] = k.into();
    Ok(ty)
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

/// As [`needs`], and the axis has `k` elements.
pub fn needs_top(cx: &NeedsCx<'_>, need: &mut dyn FnMut(Dim, String)) {
    needs(cx, need);
    let (axis, k) = (cx.attrs.int("axis") as usize, cx.attrs.int("k"));
    let size = cx.operands[0].shape[axis].clone();
    let op = cx.op.name();
    need(
        size.clone() - k.into(),
        format!("`{op}` takes {k} elements of axis {axis}, which has {size}"),
    );
}

pub fn argsort(e: &dyn Emit, x: V, axis: i64, descending: bool) -> V {
    let attrs =
        Attrs::none().with("axis", Attr::Int(axis)).with("descending", Attr::Bool(descending));
    e.emit(Op::ArgSort, &[x], attrs)
}

/// The places of the `k` largest along the axis, the largest first.
pub fn top_places(e: &dyn Emit, x: V, attrs: &Attrs) -> V {
    let axis = attrs.int("axis");
    let order = argsort(e, x, axis, true);
    let shape = e.ty(order).shape;
    let mut ends = shape.to_vec();
    ends[axis as usize] = attrs.int("k").into();
    let part = Attrs::none()
        .with("starts", Attr::Shape(vec![Dim::constant(0); shape.len()]))
        .with("ends", Attr::Shape(ends))
        .with("strides", Attr::Ints(vec![1; shape.len()]));
    e.emit(Op::Slice, &[order], part)
}

/// The gradient of elements taken by these places.
pub fn back(e: &dyn Emit, x: V, places: V, axis: i64, ct: V) -> V {
    take_along::spread(e, &e.ty(x), places, axis as usize, ct)
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

/// Sorts each lane along the axis.
pub fn sort<T: Clone>(a: &mut ArrayD<T>, axis: usize, compare: impl Fn(&T, &T) -> Ordering) {
    for mut lane in a.lanes_mut(Axis(axis)) {
        let mut elements = lane.to_vec();
        elements.sort_by(&compare);
        lane.iter_mut().zip(elements).for_each(|(to, element)| *to = element);
    }
}

/// The first `k` along the axis.
pub fn first(a: &crate::eval::Array, axis: usize, k: usize) -> crate::eval::Array {
    use super::util::map_data;
    map_data!(a, a => a.slice_axis(Axis(axis), ndarray::Slice::from(0..k)).to_owned())
}

/// The operand of `top_k` sorted, the largest first.
pub fn descending(cx: &EvalCx<'_>) -> Result<crate::eval::Array, String> {
    let attrs = cx.attrs.clone().with("descending", Attr::Bool(true));
    let Eval::Pure(sort) = Op::Sort.def().eval else { return Err("no order".into()) };
    Ok(sort(&EvalCx { attrs: &attrs, ..*cx })?.remove(0))
}
