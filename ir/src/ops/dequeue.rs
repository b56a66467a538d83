//! Taking an element out of a queue.

use super::queue;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use tfc_abi::plan::QueueAction;

pub const DEF: OpDef = OpDef {
    name: "dequeue",
    summary: "Takes the next element out of a queue, or the next record from a reader, as one \
              tensor for each part; waits while there is none. When the queue is closed and \
              empty, or the records are used up, the input has ended and with it the run.",
    operands: &[],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| {
        let info = queue::source(cx)?;
        Ok(info.parts.iter().map(|p| queue::part_type(p, None)).collect())
    },
    grad: Grad::Zero("what waits in a queue does not depend on this call's values"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Queue(QueueAction::Dequeue)),
    eval: Eval::Interpreter,
};
