//! Multiplies two tensors elementwise.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "mul",
    summary: "Multiplies two tensors elementwise.",
    operands: &[Operand::one("a", Kind::Num), Operand::one("b", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        Some(e.mul(n.ct, n.operands[1 - i]))
    }),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Mul, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, |a, b| a * b, i64::wrapping_mul)),
};
