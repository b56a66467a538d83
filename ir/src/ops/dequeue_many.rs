//! Taking a batch of elements out of a queue.

use super::queue;
use crate::OpDef;
use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use tfc_abi::plan::QueueAction;

pub const DEF: OpDef = OpDef {
    name: "dequeue_many",
    summary: "Takes `count` elements out of a queue or a reader at once, stacked along a new first \
              axis; waits until there are as many. When fewer are left than that, the input has \
              ended and with it the run.",
    operands: &[],
    attrs: &[AttrSpec {
        name: "count",
        kind: AttrKind::Shape,
        default: None,
        doc: "how many elements: a number or a dim",
    }],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| {
        let info = queue::source(cx)?;
        let [count] = cx.attrs.shape("count") else {
            return Err(InferError::new("E0446", "`dequeue_many` takes one number of elements")
                .at(Blame::Attr("count"), "not one number"));
        };
        queue::check_count(info, count)?;
        Ok(info.parts.iter().map(|p| queue::part_type(p, Some(count))).collect())
    },
    grad: Grad::Zero("what waits in a queue does not depend on this call's values"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Queue(QueueAction::DequeueMany)),
    eval: Eval::Interpreter,
};
