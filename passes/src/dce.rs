//! Drops what nothing needs: nodes without effect whose results nobody uses,
//! reads of variables included; assignments that another replaces before anybody
//! could see them; stacks from which nothing that is used is taken.

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use cranelift_entity::EntitySet;
use std::collections::BTreeSet;
use tfc_ir::diag::Diag;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::{Func, Graph, Node, NodeId, RegionId, ValueId, VarId, stacks};

pub fn dce(graph: Graph, _: &PassOptions) -> Result<Passed, Vec<Diag>> {
    each_func(graph, run)
}

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    // A stack is in use if what is taken off it is; that may keep another one.
    let mut wanted = BTreeSet::new();
    let live = loop {
        let (live, used) = mark(func, &wanted);
        let before = wanted.len();
        func.walk(&mut |_, node| {
            if node.results.iter().any(|v| used.contains(*v)) {
                wanted.extend(stacks::name(node).map(str::to_string));
            }
        });
        if wanted.len() == before {
            break live;
        }
    };
    let mut dropped = false;
    func.walk(&mut |id, _| dropped |= !live.contains(id));
    if !dropped {
        return Ok((func.clone(), false));
    }
    Ok((keep(graph, func, &live)?, true))
}

/// Nodes that must stay and values they use, with these stacks in use.
fn mark(func: &Func, stacks: &BTreeSet<String>) -> (EntitySet<NodeId>, EntitySet<ValueId>) {
    let mut m = Marks { func, stacks, live: EntitySet::new(), used: EntitySet::new() };
    for &v in func.results() {
        m.used.insert(v);
    }
    m.region(func.body);
    (m.live, m.used)
}

struct Marks<'a> {
    func: &'a Func,
    stacks: &'a BTreeSet<String>,
    live: EntitySet<NodeId>,
    used: EntitySet<ValueId>,
}

impl Marks<'_> {
    /// Backwards over a region: what is used keeps what it uses.
    fn region(&mut self, region: RegionId) {
        let func = self.func;
        // Variables that are assigned before anything reads them, stops or waits.
        let mut replaced: BTreeSet<VarId> = BTreeSet::new();
        let mut named: BTreeSet<NodeId> = BTreeSet::new();
        for &id in func.regions[region].nodes.iter().rev() {
            let node = &func.nodes[id];
            let assigned = node.var.filter(|_| is_assign(node));
            if assigned.is_some_and(|v| replaced.contains(&v)) && !named.contains(&id) {
                continue;
            }
            let needed = self.acts(id) || node.results.iter().any(|v| self.used.contains(*v));
            if !needed {
                continue;
            }
            self.live.insert(id);
            named.extend(&node.after);
            match (node.op.def().effect, assigned, node.var) {
                (_, Some(v), _) => {
                    replaced.insert(v);
                }
                (Effect::Read, _, Some(v)) => {
                    replaced.remove(&v);
                }
                (Effect::Pure, ..) if node.regions.is_empty() => {}
                _ => replaced.clear(),
            }
            for &r in &node.regions {
                for &v in &func.regions[r].results {
                    self.used.insert(v);
                }
                self.region(r);
            }
            for &v in &node.operands {
                self.used.insert(v);
            }
        }
    }

    /// Whether the world, or the rest of the call, could tell that the node did
    /// not run.
    fn acts(&self, id: NodeId) -> bool {
        let node = &self.func.nodes[id];
        let inner = |r: &RegionId| self.func.regions[*r].nodes.iter().any(|n| self.acts(*n));
        match node.op.def().effect {
            Effect::Write | Effect::Io => true,
            Effect::Stack => stacks::name(node).is_some_and(|s| self.stacks.contains(s)),
            _ => node.regions.iter().any(inner),
        }
    }
}

fn is_assign(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Step(StepKind::Assign))
}

/// A copy of the function with the live nodes only.
fn keep(graph: &Graph, func: &Func, live: &EntitySet<NodeId>) -> Result<Func, Stop> {
    rewrite(graph, func, &mut |_, id| Ok((!live.contains(id)).then(Vec::new)))
}
