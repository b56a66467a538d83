//! Doing something again.

use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "while",
    summary: "Runs the region `body` as long as the region `cond` yields true. Both get the \
              carried values; `body` yields those of the next iteration.",
    operands: &[Operand::many("carried", ElementKind::Any)],
    attrs: &[],
    regions: &["cond", "body"],
    effect: Effect::Regions,
    stage: Stage::Core,
    infer: |cx| {
        let [cond, body] = cx.regions else {
            return Err(InferError::new("E0434", "`while` needs a condition and a body"));
        };
        if *cond != [TensorType::scalar(DType::Bool)] {
            let given: Vec<String> = cond.iter().map(TensorType::to_string).collect();
            return Err(InferError::new(
                "E0434",
                format!(
                    "the condition of `while` must yield one bool[], but yields ({})",
                    given.join(", ")
                ),
            )
            .at(Blame::Op, "in this `while`")
            .help("`all(..)` or `any(..)` make one truth value of many"));
        }
        if body.len() != cx.operands.len() {
            return Err(InferError::new(
                "E0435",
                format!(
                    "the body of `while` must yield its {} carried values, but yields {}",
                    cx.operands.len(),
                    body.len()
                ),
            )
            .at(Blame::Op, "in this `while`"));
        }
        for (i, (before, after)) in cx.operands.iter().zip(body).enumerate() {
            if before != after {
                return Err(InferError::new(
                    "E0435",
                    format!(
                        "carried value {i} of `while` changes its type from {before} to {after}"
                    ),
                )
                .at(Blame::Operand(i), format!("this is {before}"))
                .help("a carried value keeps its type and shape in every iteration"));
            }
        }
        Ok(cx.operands.to_vec())
    },
    grad: Grad::Structural,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Loop),
    eval: Eval::Interpreter,
};
