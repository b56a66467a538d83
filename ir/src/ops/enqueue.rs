//! Putting an element into a queue.

use super::queue;
use crate::OpDef;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "enqueue",
    summary: "Puts one element, a tensor for each part, into a queue; waits while it is full. \
              Fails if the queue is closed.",
    operands: &[Operand::many("parts", Kind::Any)],
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
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Effect,
    eval: Eval::Interpreter,
};
