//! Averages over axes.

use super::util::*;
use crate::eval::{Array, Data};
use crate::facts::NONNEG;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "mean",
    summary: "Averages over the given axes; over no elements it is NaN.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(|e, n, _| {
        let x = e.ty(n.operands[0]);
        let axes = n.attrs.ints("axes");
        let count = Dim::product(axes.iter().map(|a| &x.shape[*a as usize]));
        let share = divided(e, n.ct, &count);
        Some(unreduced(e, share, &x.shape, axes, n.attrs.bool("keep")))
    }),
    rules: RULES,
    facts: Facts {
        range: |cx| Range::new(cx.facts(0) & NONNEG, Magnitude::at_most(cx.size(0).hi)),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    // Narrow floats are summed in f32: their own sum may overflow where the
    // average does not.
    lower: Lower::Expand(|e, operands, attrs| {
        let x = e.ty(operands[0]);
        let axes = attrs.ints("axes");
        let count = Dim::product(axes.iter().map(|a| &x.shape[*a as usize]));
        let wide = e.cast(operands[0], widened(x.dtype));
        let sum = e.emit(Op::Sum, &[wide], attrs.clone());
        e.cast(divided(e, sum, &count), x.dtype)
    }),
    eval: Eval::Pure(|cx| {
        let x = &cx.operands[0];
        let Data::Float(a) = &x.data else { return Err("expected floats".into()) };
        let count: usize = cx.attrs.ints("axes").iter().map(|i| a.shape()[*i as usize]).product();
        let sum = reduce_axes(a, cx.attrs.ints("axes"), &result_shape(cx, 0)?, 0.0, |s, x| s + x);
        // As the expansion rounds.
        let sum = Array::float(widened(x.dtype), sum);
        Ok(vec![map_floats(x.dtype, &sum, |s| s / count as f64)])
    }),
};

const RULES: &[Rule] = &[
    Rule::computed(
        "mean.scaled",
        "(mean:s (mul x #c))",
        |m| {
            let c = m.splat("c")?;
            let y = m.again("s", &[m.var("x")])?;
            Some(m.emit().mul(y, m.emit().splat_like(c, y)))
        },
        "fewer elements to scale",
    )
    .within(|m| m.splat("c").is_some_and(|c| c.abs() <= 1.0) && super::sum::bounded_sum(m))
    .round(),
    Rule::exact("mean.neg", "(mean:s (neg x))", "(neg (mean:s x))", "fewer elements to negate")
        .round(),
];

/// `x / count`, in a type that can hold the count.
fn divided(e: &dyn Emit, x: V, count: &Dim) -> V {
    let ty = e.ty(x);
    let wide = widened(ty.dtype);
    let size = match count.as_const() {
        Some(c) => e.splat(c as f64, wide, &ty.shape),
        None => {
            let attrs = Attrs::none()
                .with("size", Attr::Shape(vec![count.clone()]))
                .with("dtype", Attr::DType(wide));
            e.broadcast(e.emit(Op::DimSize, &[], attrs), &ty.shape, &[])
        }
    };
    e.cast(e.div(e.cast(x, wide), size), ty.dtype)
}
