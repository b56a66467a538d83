//! Subtracts the second tensor from the first.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "sub",
    summary: "Subtracts the second tensor from the first.",
    operands: &[Operand::one("a", Kind::Num), Operand::one("b", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        Some(if i == 0 { n.ct } else { e.neg(n.ct) })
    }),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Sub, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, |a, b| a - b, i64::wrapping_sub)),
};
