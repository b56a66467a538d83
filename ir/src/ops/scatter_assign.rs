//! Replacing rows of a variable.

use super::bounds;
use super::{scatter_add, state};
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "scatter_assign",
    summary: "Replaces row `ids[i]` of a variable by `updates[i]`, for every i in order: the last \
              one wins. Costs by the rows touched. An index out of range fails at run time.",
    operands: &[Operand::one("ids", ElementKind::Index), Operand::one("updates", ElementKind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| check(cx, state::variable(cx)?),
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::Checked(bounds::rows_of_variable),
    needs: crate::require::nothing,
    cost: |cx| crate::cost::rows_written(cx, false),
    lower: Lower::Step(StepKind::ScatterRows { add: false }),
    eval: Eval::Interpreter,
};

/// The operands are indices and rows of the variable.
pub fn check(cx: &InferCx<'_>, var: &TensorType) -> Result<Vec<TensorType>, InferError> {
    let (ids, updates) = (&cx.operands[0], &cx.operands[1]);
    if updates.dtype != var.dtype {
        return Err(InferError::new(
            "E0431",
            format!("`{}` cannot put {} into a variable of type {var}", cx.op, updates.dtype),
        )
        .at(Blame::Operand(1), format!("this is {updates}"))
        .help(format!("convert the updates: `cast(.., to: {})`", var.dtype)));
    }
    scatter_add::rows(cx.op, var, ids, updates, 0)
        .map_err(|err| err.at(Blame::Op, format!("the variable is {var}")))?;
    Ok(vec![])
}
