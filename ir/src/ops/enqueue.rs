//! Putting an element into a queue.

use super::queue;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use tfc_abi::plan::QueueAction;

pub const DEF: OpDef = OpDef {
    name: "enqueue",
    summary: "Puts one element, a tensor for each part, into a queue; waits while it is full. \
              Fails if the queue is closed.",
    operands: &[Operand::many("parts", ElementKind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| {
        let info = queue::queue(cx)?;
        queue::check_parts(cx, info, None)
    },
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Queue(QueueAction::Enqueue)),
    eval: Eval::Interpreter,
};
