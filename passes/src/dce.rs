//! Drops what nothing needs: nodes without effect whose results nobody uses,
//! reads of variables included.

use crate::pipeline::{Options, Passed};
use crate::util::{Stop, each_func, rewrite};
use cranelift_entity::EntitySet;
use tfc_ir::diag::Diag;
use tfc_ir::op::Effect;
use tfc_ir::{Func, Graph, NodeId, RegionId, ValueId};

pub fn dce(graph: Graph, _: &Options) -> Result<Passed, Vec<Diag>> {
    each_func(graph, run)
}

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut live = EntitySet::new();
    let mut used = EntitySet::new();
    for &v in func.results() {
        used.insert(v);
    }
    mark(func, func.body, &mut live, &mut used);
    let mut dropped = false;
    func.walk(&mut |id, _| dropped |= !live.contains(id));
    if !dropped {
        return Ok((func.clone(), false));
    }
    Ok((keep(graph, func, &live)?, true))
}

/// Backwards over a region: what is used keeps what it uses.
fn mark(
    func: &Func,
    region: RegionId,
    live: &mut EntitySet<NodeId>,
    used: &mut EntitySet<ValueId>,
) {
    for &id in func.regions[region].nodes.iter().rev() {
        let node = &func.nodes[id];
        let needed = acts(func, id) || node.results.iter().any(|v| used.contains(*v));
        if !needed {
            continue;
        }
        live.insert(id);
        for &r in &node.regions {
            for &v in &func.regions[r].results {
                used.insert(v);
            }
            mark(func, r, live, used);
        }
        for &v in &node.operands {
            used.insert(v);
        }
    }
}

/// Whether the world could tell that the node did not run.
fn acts(func: &Func, id: NodeId) -> bool {
    let node = &func.nodes[id];
    matches!(node.op.def().effect, Effect::Write | Effect::Io)
        || node.regions.iter().any(|r| func.regions[*r].nodes.iter().any(|n| acts(func, *n)))
}

/// A copy of the function with the live nodes only.
fn keep(graph: &Graph, func: &Func, live: &EntitySet<NodeId>) -> Result<Func, Stop> {
    rewrite(graph, func, &mut |_, id| Ok((!live.contains(id)).then(Vec::new)))
}
