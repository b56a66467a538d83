//! The absolute value.

use super::util::*;
use crate::{Op, OpDef};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "abs",
    summary: "Takes the absolute value of every element. The derivative at 0 is taken to be 0.",
    operands: &[Operand::one("x", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.mul(n.ct, e.unary(Op::Sign, n.operands[0])))),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Abs, a)),
    eval: Eval::Pure(|cx| eval_num(cx, f64::abs, i64::wrapping_abs)),
};
