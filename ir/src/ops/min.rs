//! The smallest element over axes.

use super::util::*;
use crate::OpDef;
use crate::facts::NONNEG;
use crate::lower::{Lower, Reduction};
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "min",
    summary: "Takes the smallest element over the given axes; NaN if there is one. Over no elements it \
              is +inf for floats and the largest integer otherwise. Equal smallest elements \
              share the gradient evenly.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(vjp_extreme),
    rules: RULES,
    facts: Facts { range: |cx| Range::new(cx.facts(0) & NONNEG, cx.size(0)), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Reduce(Reduction::Min),
    eval: Eval::Pure(|cx| {
        let least = min_start(cx.operands[0].dtype);
        eval_reduce(cx, (f64::INFINITY, float_min), (least, i64::min))
    }),
};

const RULES: &[Rule] =
    &[Rule::exact("min.neg", "(min:s (neg x))", "(neg (max:s x))", "fewer elements to negate")
        .when(|m| m.root_ty().dtype.is_float())];
