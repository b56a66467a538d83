//! How full a queue is.

use super::queue;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{DType, OpDef, TensorType};
use tfc_abi::plan::QueueAction;

pub const DEF: OpDef = OpDef {
    name: "queue_size",
    summary: "How many elements wait in a queue at this moment.",
    operands: &[],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| queue::queue(cx).map(|_| vec![TensorType::scalar(DType::I64)]),
    grad: Grad::Zero("a number of elements does not depend on values"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Queue(QueueAction::Size)),
    eval: Eval::Interpreter,
};
