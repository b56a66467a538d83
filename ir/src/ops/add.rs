//! Adds two tensors elementwise.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "add",
    summary: "Adds two tensors elementwise.",
    operands: &[Operand::one("a", Kind::Num), Operand::one("b", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|_, n, _| Some(n.ct)),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Add, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, |a, b| a + b, i64::wrapping_add)),
};
