//! Putting the rows of tensors into a queue.

use super::queue;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use tfc_abi::plan::QueueAction;

pub const DEF: OpDef = OpDef {
    name: "enqueue_many",
    summary: "Puts an element into a queue for each row of the operands, in order; waits whenever \
              it is full. Fails if the queue is closed.",
    operands: &[Operand::many("parts", ElementKind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| {
        let info = queue::queue(cx)?;
        let Some(rows) = queue::rows(cx.operands) else {
            return Err(InferError::new("E0445", "`enqueue_many` takes rows of elements")
                .at(Blame::Op, "the first operand has no axis to go along")
                .help("`enqueue` puts one element into a queue"));
        };
        queue::check_parts(cx, info, Some(rows))
    },
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Queue(QueueAction::EnqueueMany)),
    eval: Eval::Interpreter,
};
