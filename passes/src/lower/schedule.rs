//! The order steps run in.
//!
//! Nodes keep the order of the graph, with two moves: assignments wait as long
//! as nothing needs them, so that the kernel that computes a new value can
//! store it straight into the variable; and what uses a variable's old value
//! goes before the node that computes its new one. So does what uses a carried
//! value before the node that stores over part of it.
//!
//! Invariants
//! - Operands come before users; effects on one variable, prints and asserts
//!   keep their order; `after` edges hold.

use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use tfc_ir::op::Effect;
use tfc_ir::{Func, Node, NodeId, RegionId, VarId};

use super::fuse::{deep_operands, stored_over};

/// What a node does to the world, its regions included.
#[derive(Default)]
pub(crate) struct Effects {
    pub reads: BTreeSet<VarId>,
    pub writes: BTreeSet<VarId>,
    pub io: bool,
}

pub(crate) fn effects(func: &Func, node: &Node) -> Effects {
    let mut out = Effects::default();
    add_effects(func, node, &mut out);
    out
}

fn add_effects(func: &Func, node: &Node, out: &mut Effects) {
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
            add_effects(func, &func.nodes[id], out);
        }
    }
}

/// An assignment of a whole value: nothing but the variable depends on it.
pub(crate) fn is_plain_assign(node: &Node) -> bool {
    node.op.name() == "assign" && node.operands.len() == 1 && node.after.is_empty()
}

pub(crate) fn order(func: &Func, region: RegionId) -> Vec<NodeId> {
    let nodes = &func.regions[region].nodes;
    let mut position: SecondaryMap<NodeId, u32> = SecondaryMap::with_default(u32::MAX);
    for (i, &id) in nodes.iter().enumerate() {
        position[id] = i as u32;
    }
    let mut edges: Vec<Vec<u32>> = vec![vec![]; nodes.len()];
    let mut waits = vec![0u32; nodes.len()];
    let mut users: BTreeMap<tfc_ir::ValueId, Vec<u32>> = BTreeMap::new();
    let mut edge = |from: u32, to: u32| {
        if from != to {
            edges[from as usize].push(to);
            waits[to as usize] += 1;
        }
    };
    let mut last_write: BTreeMap<VarId, u32> = BTreeMap::new();
    let mut reads_since: BTreeMap<VarId, Vec<u32>> = BTreeMap::new();
    let mut last_io: Option<u32> = None;
    // (variable's writer, nodes that read the old value)
    let mut versions: Vec<(u32, Vec<u32>)> = vec![];
    for (i, &id) in nodes.iter().enumerate() {
        let (i, node) = (i as u32, &func.nodes[id]);
        for value in deep_operands(func, node) {
            if let Some(def) = func.def(value)
                && position[def] != u32::MAX
            {
                edge(position[def], i);
                users.entry(value).or_default().push(i);
            }
        }
        for &before in &node.after {
            if position[before] != u32::MAX {
                edge(position[before], i);
            }
        }
        let e = effects(func, node);
        for &v in e.reads.iter().chain(&e.writes) {
            if let Some(w) = last_write.get(&v) {
                edge(*w, i);
            }
        }
        for &v in &e.writes {
            let readers = reads_since.remove(&v).unwrap_or_default();
            for &r in &readers {
                edge(r, i);
            }
            versions.push((i, readers));
            last_write.insert(v, i);
        }
        for &v in &e.reads {
            reads_since.entry(v).or_default().push(i);
        }
        if e.io {
            if let Some(w) = last_io {
                edge(w, i);
            }
            last_io = Some(i);
        }
    }
    for (writer, readers) in versions {
        let node = &func.nodes[nodes[writer as usize]];
        // The node that computes the new value, when only the write uses it.
        let source = node
            .operands
            .first()
            .filter(|o| users.get(o).is_some_and(|u| u.iter().all(|x| *x == writer)))
            .and_then(|o| func.def(*o))
            .map(|d| position[d])
            .filter(|p| *p != u32::MAX && is_plain_assign(node));
        for reader in readers {
            let read = &func.nodes[nodes[reader as usize]];
            if read.op.def().effect != Effect::Read {
                continue;
            }
            let mut stack: Vec<tfc_ir::ValueId> = read.results.clone();
            while let Some(value) = stack.pop() {
                for &user in users.get(&value).into_iter().flatten() {
                    if user >= writer {
                        continue;
                    }
                    edge(user, writer);
                    if let Some(source) = source
                        && user != source
                    {
                        edge(user, source);
                    }
                    let node = &func.nodes[nodes[user as usize]];
                    if matches!(node.op.def().lower, tfc_ir::lower::Lower::Reshape) {
                        stack.extend(&node.results);
                    }
                }
            }
        }
    }
    // They wait too: what uses the value may be computed where it is used itself.
    let mut changes = BTreeSet::new();
    for (i, &id) in nodes.iter().enumerate() {
        let Some(base) = overwritten(func, region, &func.nodes[id]) else { continue };
        changes.insert(i as u32);
        for (j, &other) in nodes.iter().enumerate() {
            if i != j
                && deep_operands(func, &func.nodes[other]).contains(&base)
                && !leads(&edges, i as u32, j as u32)
            {
                edges[j].push(i as u32);
                waits[i] += 1;
            }
        }
    }
    let key = |i: u32| {
        // Writes last: what a kernel computes of an old value, again or at last,
        // comes before the variable changes, and the value need not be copied.
        let writes = func.nodes[nodes[i as usize]].op.def().effect == Effect::Write;
        let late = writes || changes.contains(&i);
        std::cmp::Reverse((late, i))
    };
    let mut ready: BinaryHeap<_> =
        (0..nodes.len() as u32).filter(|i| waits[*i as usize] == 0).map(key).collect();
    let mut out = Vec::with_capacity(nodes.len());
    while let Some(std::cmp::Reverse((_, i))) = ready.pop() {
        out.push(nodes[i as usize]);
        for &to in &edges[i as usize] {
            waits[to as usize] -= 1;
            if waits[to as usize] == 0 {
                ready.push(key(to));
            }
        }
    }
    // An old value needed after its successor exists makes a cycle of the
    // wishes above; the graph's own order is always possible.
    if out.len() == nodes.len() { out } else { nodes.clone() }
}

/// The carried value that a node changes a part of.
fn overwritten(func: &Func, region: RegionId, node: &Node) -> Option<tfc_ir::ValueId> {
    let scatters = matches!(
        node.op.def().lower,
        tfc_ir::lower::Lower::Contract(tfc_ir::lower::Contraction::ScatterAdd)
    );
    let mut base = *node.operands.first().filter(|_| scatters || stored_over(func, node))?;
    while let Some(def) = func.def(base).map(|d| &func.nodes[d])
        && matches!(def.op.def().lower, tfc_ir::lower::Lower::Reshape)
    {
        base = def.operands[0];
    }
    (region != func.body && func.regions[region].params.contains(&base)).then_some(base)
}

/// Whether `to` must come after `from`.
fn leads(edges: &[Vec<u32>], from: u32, to: u32) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut stack = vec![from];
    while let Some(at) = stack.pop() {
        if at == to {
            return true;
        }
        stack.extend(edges[at as usize].iter().copied().filter(|n| seen.insert(*n)));
    }
    false
}
