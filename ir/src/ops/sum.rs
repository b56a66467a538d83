//! Summation over axes.

use super::util::*;
use crate::OpDef;
use crate::lower::{Lower, Reduction};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "sum",
    summary: "Sums over the given axes; over no elements it is 0.",
    operands: &[Operand::one("x", Kind::Num)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(|e, n, _| {
        let shape = e.ty(n.operands[0]).shape;
        Some(unreduced(e, n.ct, &shape, n.attrs.ints("axes"), n.attrs.bool("keep")))
    }),
    rules: &[],
    lower: Lower::Reduce(Reduction::Sum),
    eval: Eval::Pure(|cx| eval_reduce(cx, (0.0, |a, b| a + b), (0, i64::wrapping_add))),
};
