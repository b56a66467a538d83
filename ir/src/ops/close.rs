//! Saying that no more elements come.

use super::queue;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use tfc_abi::plan::QueueAction;

pub const DEF: OpDef = OpDef {
    name: "close",
    summary: "Says that nothing more is put into a queue: what waits in it can still be taken, \
              then its input has ended. Closing twice is no mistake.",
    operands: &[],
    attrs: &[],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| queue::queue(cx).map(|_| vec![]),
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Queue(QueueAction::Close)),
    eval: Eval::Interpreter,
};
