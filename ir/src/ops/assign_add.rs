//! Adding to a variable.

use super::state;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "assign_add",
    summary: "Adds a value to a variable.",
    operands: &[Operand::one("value", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: state::accumulable,
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: |cx| crate::cost::written(cx, cx.elements(0), true),
    lower: Lower::Step(StepKind::Update(Op::Add)),
    eval: Eval::Interpreter,
};
