//! Adding to a variable.

use super::state;
use crate::OpDef;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "assign_add",
    summary: "Adds a value to a variable.",
    operands: &[Operand::one("value", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: state::accumulable,
    grad: Grad::Zero("it has no result"),
    rules: &[],
    needs: crate::require::nothing,
    cost: |cx| crate::cost::written(cx, cx.elements(0), true),
    lower: Lower::Effect,
    eval: Eval::Interpreter,
};
