//! What nodes do to variables and the world outside, their regions included.

use std::collections::BTreeSet;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::ops::queue;
use tfc_ir::{Func, Graph, Node, Symbol, VarId};

#[derive(Default)]
pub(crate) struct Hazards {
    pub reads: BTreeSet<VarId>,
    pub writes: BTreeSet<VarId>,
    /// Seen from outside: a print, a check, a file.
    pub io: bool,
    /// Puts into or takes from a queue, for which the call may have to wait.
    pub waits: bool,
}

pub(crate) fn hazards(graph: &Graph, func: &Func, node: &Node) -> Hazards {
    let mut out = Hazards::default();
    add(graph, func, node, &mut out);
    out
}

/// Whether a call may give its variables back at this node, to wait for a queue.
/// Readers never make it wait for others.
pub(crate) fn waits(graph: &Graph, node: &Node) -> bool {
    let queue = node.var.is_some_and(|v| matches!(graph.vars[v].symbol, Symbol::Queue(_)));
    queue && queue::action(node.op).is_some_and(|a| a.takes() || a.gives())
}

/// An assignment of a whole value: nothing but the variable depends on it.
pub(crate) fn is_plain_assign(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Step(StepKind::Assign)) && node.after.is_empty()
}

fn add(graph: &Graph, func: &Func, node: &Node, out: &mut Hazards) {
    out.waits |= waits(graph, node);
    match (node.op.def().effect, node.var) {
        (Effect::Pure | Effect::Regions, _) => {}
        (Effect::Read, Some(v)) => {
            out.reads.insert(v);
        }
        (Effect::Write, Some(v)) => {
            out.writes.insert(v);
        }
        _ => out.io = true,
    }
    for &r in &node.regions {
        for &id in &func.regions[r].nodes {
            add(graph, func, &func.nodes[id], out);
        }
    }
}
