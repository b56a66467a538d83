//! Rounding down.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "floor",
    summary: "Rounds every element down to a whole number.",
    operands: &[Operand::one("x", Kind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Zero("a step function is constant wherever it has a derivative"),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Floor, a)),
    eval: Eval::Pure(|cx| eval_float(cx, f64::floor)),
};
