//! The largest element over axes.

use super::util::*;
use crate::OpDef;
use crate::lower::{Lower, Reduction};
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "max",
    summary: "Takes the largest element over the given axes; NaN if there is one. Over no elements it \
              is -inf for floats and the smallest integer otherwise. Equal largest elements \
              share the gradient evenly.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(vjp_extreme),
    rules: RULES,
    facts: Facts { range: |cx| Range::new(0, cx.size(0)), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Reduce(Reduction::Max),
    eval: Eval::Pure(|cx| {
        let least = max_start(cx.operands[0].dtype);
        eval_reduce(cx, (f64::NEG_INFINITY, float_max), (least, i64::max))
    }),
};

const RULES: &[Rule] = &[
    Rule::exact("max.neg", "(max:s (neg x))", "(neg (min:s x))", "fewer elements to negate")
        .when(|m| m.root_ty().dtype.is_float()),
    Rule::exact("max.relu", "(max:s (relu x))", "(relu (max:s x))", "fewer elements to clip")
        .round(),
];
