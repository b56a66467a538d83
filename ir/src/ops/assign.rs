//! Replacing the value of a variable.

use super::state;
use crate::OpDef;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "assign",
    summary: "Gives a variable a new value of its own type.",
    operands: &[Operand::one("value", Kind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: state::assignable,
    grad: Grad::Zero("it has no result"),
    rules: &[],
    lower: Lower::Effect,
    eval: Eval::Interpreter,
};
