//! The largest element over axes.

use super::util::*;
use crate::OpDef;
use crate::lower::{Lower, Reduction};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "max",
    summary: "Takes the largest element over the given axes; NaN if there is one. Over no elements it \
              is -inf for floats and the smallest integer otherwise. Equal largest elements \
              share the gradient evenly.",
    operands: &[Operand::one("x", Kind::Num)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(vjp_extreme),
    rules: &[],
    lower: Lower::Reduce(Reduction::Max),
    eval: Eval::Pure(|cx| {
        let least = max_start(cx.operands[0].dtype);
        eval_reduce(cx, (f64::NEG_INFINITY, float_max), (least, i64::max))
    }),
};
