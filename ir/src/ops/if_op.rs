//! Doing one of two things.

use super::sizes;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "if",
    summary: "Runs the region `then` if the condition is true and `else` if not; the results are \
              those of the region that ran.",
    operands: &[Operand::one("cond", ElementKind::Bool)],
    attrs: &[],
    regions: &["then", "else"],
    effect: Effect::Regions,
    stage: Stage::Core,
    infer: |cx| {
        sizes::scalar(cx, 0, "the condition").map_err(|err| {
            err.help(
                "`all(..)` or `any(..)` make one truth value of many; `select` chooses elementwise",
            )
        })?;
        let [then, otherwise] = cx.regions else {
            return Err(InferError::new("E0433", "`if` needs two branches"));
        };
        if then.len() != otherwise.len() {
            return Err(InferError::new(
                "E0433",
                format!(
                    "the branches of `if` must yield the same number of values, but yield {} and {}",
                    then.len(),
                    otherwise.len()
                ),
            )
            .at(Blame::Op, "in this `if`"));
        }
        for (i, (a, b)) in then.iter().zip(otherwise).enumerate() {
            if a != b {
                return Err(InferError::new(
                    "E0433",
                    format!("the branches of `if` must yield the same types, but value {i} is {a} in one and {b} in the other"),
                )
                .at(Blame::Op, "in this `if`"));
            }
        }
        Ok(then.clone())
    },
    grad: Grad::Structural,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Branch),
    eval: Eval::Interpreter,
};
