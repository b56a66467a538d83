//! What the operands of a node are, seen through the nodes that make them.

use super::fuse::is_splat;
use tfc_abi::plan::QueueAction;
use tfc_ir::{Func, Node, Op, ValueId};

/// The operands a contraction really reads: a matrix repeated over the batches
/// is read in place, and the flag says so.
pub(crate) fn contract_operands(func: &Func, node: &Node) -> ((ValueId, bool), (ValueId, bool)) {
    let peel = |value: ValueId| -> (ValueId, bool) {
        if node.op != Op::MatMul {
            return (value, false);
        }
        let Some(def) = func.def(value).map(|d| &func.nodes[d]) else { return (value, false) };
        if def.op != Op::Broadcast {
            return (value, false);
        }
        let (from, to) = (func.ty(def.operands[0]), func.ty(value));
        let r = to.rank();
        let axes = def.attrs.ints("axes");
        let matrix = from.rank() == 2
            && r > 2
            && axes == [r as i64 - 2, r as i64 - 1]
            && from.shape[..] == to.shape[r - 2..];
        if matrix { (def.operands[0], true) } else { (value, false) }
    };
    (peel(node.operands[0]), peel(node.operands[1]))
}

/// Whether a value is all zero bits.
pub(crate) fn zeros(func: &Func, value: ValueId) -> bool {
    let Some(node) = func.def(value).map(|d| &func.nodes[d]) else { return false };
    match node.op {
        Op::Const => {
            is_splat(node)
                && node.attrs.tensor("value").is_some_and(|t| t.bytes().iter().all(|b| *b == 0))
        }
        Op::Broadcast | Op::Reshape => zeros(func, node.operands[0]),
        _ => false,
    }
}

/// What an op on a queue does to it.
pub(crate) fn queue_action(op: &str) -> Option<QueueAction> {
    Some(match op {
        "enqueue" => QueueAction::Enqueue,
        "enqueue_many" => QueueAction::EnqueueMany,
        "dequeue" => QueueAction::Dequeue,
        "dequeue_many" => QueueAction::DequeueMany,
        "close" => QueueAction::Close,
        "queue_size" => QueueAction::Size,
        _ => return None,
    })
}
