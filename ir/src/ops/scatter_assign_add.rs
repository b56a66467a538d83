//! Adding to rows of a variable.

use super::bounds;
use super::{scatter_assign, state};
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "scatter_assign_add",
    summary: "Adds `updates[i]` to row `ids[i]` of a variable, for every i in order; repeated \
              indices add up. Costs by the rows touched. An index out of range fails at run time.",
    operands: &[Operand::one("ids", ElementKind::Index), Operand::one("updates", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| scatter_assign::check(cx, state::variable(cx)?),
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::Checked(bounds::rows_of_variable),
    needs: crate::require::nothing,
    cost: |cx| crate::cost::rows_written(cx, true),
    lower: Lower::Step(StepKind::ScatterRows { add: true }),
    eval: Eval::Interpreter,
};
