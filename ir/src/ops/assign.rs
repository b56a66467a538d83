//! Replacing the value of a variable.

use super::state;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "assign",
    summary: "Gives a variable a new value of its own type.",
    operands: &[Operand::one("value", ElementKind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: state::assignable,
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: |cx| crate::cost::written(cx, crate::cost::none(), false),
    lower: Lower::Step(StepKind::Assign),
    eval: Eval::Interpreter,
};
