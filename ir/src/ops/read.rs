//! The value of a variable.

use super::state;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "read",
    summary: "The value a variable has at this point of the program text.",
    operands: &[],
    attrs: &[],
    regions: &[],
    effect: Effect::Read,
    stage: Stage::Core,
    infer: |cx| Ok(vec![state::variable(cx)?.clone()]),
    grad: Grad::Structural,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Read),
    eval: Eval::Interpreter,
};
