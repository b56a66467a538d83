//! The natural logarithm.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "log",
    summary: "Takes the natural logarithm of every element; of 0 it is -inf, of a negative number NaN.",
    operands: &[Operand::one("x", Kind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.div(n.ct, n.operands[0]))),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Log, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::log)),
};
