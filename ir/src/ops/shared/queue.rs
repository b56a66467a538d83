//! What ops on queues share.
//!
//! | op | waits for | gives |
//! |---|---|---|
//! | `enqueue`, `enqueue_many` | room | - |
//! | `dequeue`, `dequeue_many` | elements | one tensor for each part |
//! | `close` | - | - |
//! | `queue_size` | - | how many elements wait |
//!
//! They are writes of the queue's symbol, so they keep text order among
//! themselves. Readers can only be taken from.

use crate::lower::{Lower, StepKind};
use crate::op::{Blame, InferCx, InferError};
use crate::{Dim, Op, TensorType};
use tfc_abi::plan::{Part, QueueAction, QueueInfo, QueueKind};

/// What an op does to a queue; nothing for ops on anything else.
pub fn action(op: Op) -> Option<QueueAction> {
    match op.def().lower {
        Lower::Step(StepKind::Queue(action)) => Some(action),
        _ => None,
    }
}

/// Whether the op works on queues.
pub fn is_queue_op(op: Op) -> bool {
    action(op).is_some()
}

/// Whether the op puts elements into a queue.
pub fn fills(op: Op) -> bool {
    action(op).is_some_and(QueueAction::gives)
}

/// The queue or reader the op is about.
pub fn source<'a>(cx: &InferCx<'a>) -> Result<&'a QueueInfo, InferError> {
    cx.var.and_then(|v| v.symbol.elements()).map(|info| &**info).ok_or_else(|| {
        InferError::new("E0440", format!("`{}` needs a queue", cx.op))
            .at(Blame::Op, "this does not name a queue")
            .help("declare one at the top level: `queue q: fifo(f32[2], capacity: 64)`")
    })
}

/// As [`source`], but not a reader.
pub fn queue<'a>(cx: &InferCx<'a>) -> Result<&'a QueueInfo, InferError> {
    let info = source(cx)?;
    if let QueueKind::Reader(_) = info.kind {
        return Err(InferError::new(
            "E0447",
            format!("`{}` works on queues, but `{}` is a reader", cx.op, info.name),
        )
        .at(Blame::Op, "a reader's records come from its files alone")
        .help(format!("take records out of it: `dequeue({})`", info.name)));
    }
    Ok(info)
}

/// The type of a part, with `many` elements along a new first axis.
pub fn part_type(part: &Part, many: Option<&Dim>) -> TensorType {
    let sizes = part.shape.iter().map(|d| Dim::constant(*d));
    TensorType::new(part.dtype, many.cloned().into_iter().chain(sizes).collect::<Vec<_>>())
}

/// How many elements the operands of `enqueue_many` hold.
pub fn rows(operands: &[TensorType]) -> Option<&Dim> {
    operands.first().and_then(|ty| ty.shape.first())
}

/// The operands are the parts of one element, or of `many`.
pub fn check_parts(
    cx: &InferCx<'_>,
    info: &QueueInfo,
    many: Option<&Dim>,
) -> Result<Vec<TensorType>, InferError> {
    let wanted: Vec<TensorType> = info.parts.iter().map(|p| part_type(p, many)).collect();
    let list = |types: &[TensorType]| {
        types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
    };
    if wanted.len() != cx.operands.len() {
        return Err(InferError::new(
            "E0445",
            format!(
                "an element of `{}` has {} part{}, but {} {} given",
                info.name,
                wanted.len(),
                if wanted.len() == 1 { "" } else { "s" },
                cx.operands.len(),
                if cx.operands.len() == 1 { "is" } else { "are" },
            ),
        )
        .at(Blame::Op, format!("the parts are ({})", list(&wanted))));
    }
    for (i, (have, want)) in cx.operands.iter().zip(&wanted).enumerate() {
        if have != want {
            return Err(InferError::new(
                "E0445",
                format!("part {i} of `{}` is {want}, but {have} is given", info.name),
            )
            .at(Blame::Operand(i), format!("this is {have}"))
            .at(Blame::Op, format!("the parts are ({})", list(&wanted))));
        }
    }
    Ok(vec![])
}

/// A number of elements that can be waited for: the queue can hold as many.
pub fn check_count(info: &QueueInfo, count: &Dim) -> Result<(), InferError> {
    let Some(n) = count.as_const() else { return Ok(()) };
    if n < 1 {
        return Err(InferError::new("E0446", "at least one element must be taken")
            .at(Blame::Attr("count"), format!("this is {n}")));
    }
    let (room, needed) = match info.kind {
        QueueKind::Fifo { capacity } | QueueKind::Priority { capacity } => (capacity, n as u64),
        QueueKind::Shuffle { capacity, min, .. } => (capacity, min.saturating_add(n as u64 - 1)),
        QueueKind::Reader(_) => return Ok(()),
    };
    if needed <= room {
        return Ok(());
    }
    let draws = match info.kind {
        QueueKind::Shuffle { min, .. } => {
            format!(": each of them is drawn among {min}, so {needed} must be there")
        }
        _ => String::new(),
    };
    Err(InferError::new("E0446", format!("`{}` can never hold {n} elements to take", info.name))
        .at(Blame::Attr("count"), format!("its capacity is {room}{draws}"))
        .help(format!("declare it with `capacity: {needed}` or more")))
}
