//! Negation.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "neg",
    summary: "Negates every element.",
    operands: &[Operand::one("x", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.neg(n.ct))),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Neg, a)),
    eval: Eval::Pure(|cx| eval_num(cx, |x| -x, i64::wrapping_neg)),
};
