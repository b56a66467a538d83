//! The exponential.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "exp",
    summary: "Raises e to every element.",
    operands: &[Operand::one("x", Kind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.mul(n.ct, n.out))),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Exp, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::exp)),
};
