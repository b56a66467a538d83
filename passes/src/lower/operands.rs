//! What the operands of a node are, seen through the nodes that make them.

use tfc_ir::lower::{Contraction, Lower};
use tfc_ir::op::Moves;
use tfc_ir::{Func, Node, ValueId};

/// Whether a node is a product of matrices.
pub(crate) fn is_matmul(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Contract(Contraction::MatMul))
}

/// The operands a contraction really reads: a matrix repeated over the batches
/// is read in place, and the flag says so.
pub(crate) fn contract_operands(func: &Func, node: &Node) -> ((ValueId, bool), (ValueId, bool)) {
    let peel = |value: ValueId| -> (ValueId, bool) {
        if !is_matmul(node) {
            return (value, false);
        }
        let Some(def) = func.def(value).map(|d| &func.nodes[d]) else { return (value, false) };
        if def.op.def().facts.moves != Moves::Repeated {
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
