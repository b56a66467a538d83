//! The cosine.

use super::util::*;
use crate::{Op, OpDef};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "cos",
    summary: "Takes the cosine of every element, in radians.",
    operands: &[Operand::one("x", Kind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.neg(e.mul(n.ct, e.unary(Op::Sin, n.operands[0]))))),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Cos, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::cos)),
};
