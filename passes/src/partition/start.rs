//! What a task initialises: its own variables, and those their first values are
//! computed from.

use crate::util::{Stop, rewrite};
use std::collections::BTreeSet;
use tfc_ir::op::Effect;
use tfc_ir::text::device;
use tfc_ir::{Func, Graph, NodeId, ValueId, VarId};

/// The initialiser of one task.
pub(crate) fn initialiser(graph: &Graph, task: &str) -> Result<Func, Stop> {
    let here = |v: &VarId| graph.vars[*v].device.as_deref().and_then(device::task) == Some(task);
    let mut wanted: BTreeSet<VarId> = graph.vars.keys().filter(here).collect();
    let init = &graph.init;
    let kept = loop {
        let (mut kept, mut used): (BTreeSet<NodeId>, BTreeSet<ValueId>) = Default::default();
        let before = wanted.len();
        for &id in init.regions[init.body].nodes.iter().rev() {
            let node = &init.nodes[id];
            let mut acts = false;
            each(init, id, &mut |effect, var| {
                let wanted = var.is_none_or(|v| wanted.contains(&v));
                acts |= effect == Effect::Write && wanted || effect == Effect::Io;
            });
            if !acts && node.results.iter().all(|v| !used.contains(v)) {
                continue;
            }
            kept.insert(id);
            used.extend(crate::place::uses(init, node));
            each(init, id, &mut |_, var| wanted.extend(var));
        }
        if wanted.len() == before {
            break kept;
        }
    };
    let top: BTreeSet<NodeId> = init.regions[init.body].nodes.iter().copied().collect();
    rewrite(graph, init, &mut |_, id| Ok((top.contains(&id) && !kept.contains(&id)).then(Vec::new)))
}

/// The effects of a node and all that is in it.
fn each(func: &Func, id: NodeId, visit: &mut dyn FnMut(Effect, Option<VarId>)) {
    let node = &func.nodes[id];
    visit(node.op.def().effect, node.var);
    for region in &node.regions {
        for inner in &func.regions[*region].nodes {
            each(func, *inner, visit);
        }
    }
}
