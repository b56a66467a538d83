//! A box of a tensor, with strides.

use super::util::*;
use super::{pad, pull, sizes};
use crate::attr::AttrKind;
use crate::lower::Lower;
use crate::op::*;
use crate::require::NeedsCx;
use crate::rule::{Match, Rule};
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "slice",
    summary: "Takes elements `starts` (inclusive) to `ends` (exclusive) of every axis, each \
              `strides`-th one.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[
        AttrSpec {
            name: "starts",
            kind: AttrKind::Offsets,
            default: None,
            doc: "for each axis, the first index; may use run-time dims",
        },
        AttrSpec {
            name: "ends",
            kind: AttrKind::Offsets,
            default: None,
            doc: "for each axis, the index after the last; may use run-time dims",
        },
        AttrSpec {
            name: "strides",
            kind: AttrKind::Ints,
            default: None,
            doc: "for each axis, the distance between elements, at least 1",
        },
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let x = &cx.operands[0];
        for name in ["starts", "ends", "strides"] {
            sizes::entries(cx, name, x.rank())?;
        }
        let mut shape = vec![];
        for axis in 0..x.rank() {
            let start = &cx.attrs.shape("starts")[axis];
            let end = &cx.attrs.shape("ends")[axis];
            let stride = cx.attrs.ints("strides")[axis];
            if stride < 1 {
                return Err(InferError::new(
                    "E0233",
                    format!("the stride of axis {axis} is {stride}, but must be at least 1"),
                )
                .at(Blame::Attr("strides"), "strides count forward")
                .help("to walk backwards, apply `reverse` to the result"));
            }
            let len = end.clone() - start.clone();
            let size = &x.shape[axis];
            let beyond = (size.clone() - end.clone()).is_always_negative();
            if start.is_always_negative() || beyond || len.is_always_negative() {
                let (place, why) = match (start.is_always_negative(), beyond) {
                    (true, _) => ("starts", "starts before the first element"),
                    (_, true) => ("ends", "ends behind the last element"),
                    _ => ("ends", "ends before it starts"),
                };
                let err = InferError::new(
                    "E0234",
                    format!("slice {start}..{end} does not fit axis {axis} of size {size}"),
                )
                .at(Blame::Attr(place), why)
                .at(Blame::Operand(0), format!("this is {x}"));
                return Err(if start.is_always_negative() || end.is_always_negative() {
                    err.help("to count from the end, use brackets: `x[-2:]`")
                } else {
                    err
                });
            }
            shape.push(len.ceil_div(stride));
        }
        Ok(vec![TensorType::new(x.dtype, shape)])
    },
    // The elements go back where they came from, zeros elsewhere. The trailing
    // padding is chosen so that the sizes add up to the operand's.
    grad: Grad::Vjp(|e, n, _| {
        let (x, out) = (e.ty(n.operands[0]).shape, e.ty(n.out).shape);
        let low = n.attrs.shape("starts");
        let interior: Vec<i64> = n.attrs.ints("strides").iter().map(|s| s - 1).collect();
        let high: Vec<Dim> = (0..x.len())
            .map(|i| x[i].clone() - low[i].clone() - pad::spread(&out[i], interior[i]))
            .collect();
        Some(pad::emit(e, n.ct, low.to_vec(), high, interior, 0.0))
    }),
    rules: RULES,
    facts: Facts { moves: Moves::Part, ..Facts::NONE },
    indices: Indices::None,
    needs,
    cost: crate::cost::picked,
    lower: Lower::Index(|k, at| {
        let starts = k.attrs().shape("starts").to_vec();
        let strides = k.attrs().ints("strides").to_vec();
        let from: Vec<_> = (0..at.len())
            .map(|i| at[i].scale(&Dim::constant(strides[i])).plus(&pull::ix(&starts[i])))
            .collect();
        k.operand(0, &from)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let starts = sizes::values(cx, "starts")?;
        let strides = cx.attrs.ints("strides");
        for (i, size) in cx.operands[0].shape().iter().enumerate() {
            let last = starts[i].saturating_add((shape[i] as i64 - 1).saturating_mul(strides[i]));
            if starts[i] < 0 || (shape[i] > 0 && last >= *size as i64) {
                return Err(format!(
                    "a slice from {} of {} elements does not fit axis {i} of size {size}",
                    starts[i], shape[i]
                ));
            }
        }
        Ok(vec![map_data!(&cx.operands[0], a => sizes::build(&shape, |at| {
            let from: Vec<usize> = at
                .iter()
                .enumerate()
                .map(|(i, p)| (starts[i] + *p as i64 * strides[i]) as usize)
                .collect();
            a[&from[..]]
        }))])
    }),
};

/// Where sizes are known only at run time, the slice must fit all the same.
fn needs(cx: &NeedsCx<'_>, need: &mut dyn FnMut(Dim, String)) {
    for (axis, size) in cx.operands[0].shape.iter().enumerate() {
        let (start, end) = (&cx.attrs.shape("starts")[axis], &cx.attrs.shape("ends")[axis]);
        let stride = cx.attrs.ints("strides")[axis];
        let what = format!("slice {start}..{end} of axis {axis}, which has size {size}");
        need(start.clone(), format!("{what}, starts before the first element"));
        // The index after the last element taken: `end`, or less with strides.
        let count = (end.clone() - start.clone()).ceil_div(stride);
        let last = start.clone() + (count - Dim::constant(1)) * Dim::constant(stride);
        let room = size.clone() - last - Dim::constant(1);
        // Where `end` itself fits there is nothing to ask, and rounding may
        // hide that.
        if !(size.clone() - end.clone()).is_never_negative() {
            need(room, format!("{what}, ends behind the last element"));
        }
    }
}

const RULES: &[Rule] = &[
    Rule::computed(
        "slice.same",
        "(slice:s x)",
        |m| {
            (m.shape("x") == m.root_ty().shape && m.ints("s", "strides").iter().all(|s| *s == 1))
                .then(|| m.var("x"))
        },
        "all of it",
    ),
    Rule::exact(
        "slice.unary",
        "(slice:s (@unary:f x))",
        "(@unary:f (slice:s x))",
        "computed only where it is needed",
    ),
    Rule::computed("slice.slice", "(slice:s (slice:t x))", composed, "cut once instead of twice"),
];

fn composed(m: &Match<'_>) -> Option<V> {
    let (inner, outer) = (m.ints("t", "strides"), m.ints("s", "strides"));
    let mut starts = vec![];
    let mut ends = vec![];
    let mut strides = vec![];
    for i in 0..inner.len() {
        let by = Dim::constant(inner[i]);
        let start =
            m.dims("t", "starts")[i].clone() + m.dims("s", "starts")[i].clone() * by.clone();
        let last =
            (m.root_ty().shape[i].clone() - Dim::constant(1)) * Dim::constant(inner[i] * outer[i]);
        // An empty result has no last element to end after.
        if m.root_ty().shape[i].as_const().is_none_or(|n| n < 1) {
            return None;
        }
        ends.push(start.clone() + last + Dim::constant(1));
        starts.push(start);
        strides.push(inner[i] * outer[i]);
    }
    let attrs = Attrs::none()
        .with("starts", Attr::Shape(starts))
        .with("ends", Attr::Shape(ends))
        .with("strides", Attr::Ints(strides));
    Some(m.e.emit(Op::Slice, &[m.var("x")], attrs))
}

pub fn emit(e: &dyn Emit, x: V, starts: Vec<Dim>, ends: Vec<Dim>, strides: Vec<i64>) -> V {
    let whole =
        e.ty(x).shape == ends && starts.iter().all(Dim::is_zero) && strides.iter().all(|s| *s == 1);
    if whole {
        return x;
    }
    let attrs = Attrs::none()
        .with("starts", Attr::Shape(starts))
        .with("ends", Attr::Shape(ends))
        .with("strides", Attr::Ints(strides));
    e.emit(Op::Slice, &[x], attrs)
}
