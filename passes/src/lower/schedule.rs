//! The order steps run in.
//!
//! Nodes keep the order of the graph, with three moves.
//! - What uses a variable's old value goes before the node that computes its new
//!   one, so that a kernel can store that straight into the variable. So does
//!   what uses a carried value before the node that stores over part of it.
//! - An update runs as a whole as soon as it can: the last contraction or
//!   reduction on the way to an assignment, what is computed of it, and the
//!   assignment. What it reads is then free early, instead of living to the end
//!   of the step.
//! - Deferred writes come last: [`super::arrange`] defers the writes of a variable
//!   when an early one would make it copy the old value.
//!
//! Invariants
//! - Operands come before users; effects on one variable, prints and asserts
//!   keep their order; `after` edges hold.
//! - A print, assert or queue effect before a write in the text stays before it:
//!   an assertion that fails has kept the writes after it from happening.
//! - Reads and writes of variables do not cross a wait for a queue: others may
//!   have the variables meanwhile.

use cranelift_entity::SecondaryMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use tfc_abi::plan::QueueKind;
use tfc_ir::lower::{Contraction, Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::ops::queue;
use tfc_ir::{Func, Graph, Node, NodeId, RegionId, ValueId, VarId};

use super::fuse::{deep_operands, stored_over};
use super::updates::{computed_with, is_leaf, updates};

/// What a node does to the world, its regions included.
#[derive(Default)]
pub(crate) struct Effects {
    pub reads: BTreeSet<VarId>,
    pub writes: BTreeSet<VarId>,
    pub io: bool,
    /// Puts into or takes from a queue, for which the call may have to wait.
    pub waits: bool,
}

pub(crate) fn effects(graph: &Graph, func: &Func, node: &Node) -> Effects {
    let mut out = Effects::default();
    add_effects(graph, func, node, &mut out);
    out
}

/// Whether a call may give its variables back at this node, to wait for a queue.
/// Readers never make it wait for others.
pub(crate) fn waits(graph: &Graph, node: &Node) -> bool {
    let queue = node.var.and_then(|v| graph.vars[v].queue.as_deref());
    queue.is_some_and(|q| !matches!(q.kind, QueueKind::Reader(_)))
        && queue::action(node.op).is_some_and(|a| a.takes() || a.gives())
}

fn add_effects(graph: &Graph, func: &Func, node: &Node, out: &mut Effects) {
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
            add_effects(graph, func, &func.nodes[id], out);
        }
    }
}

/// An assignment of a whole value: nothing but the variable depends on it.
pub(crate) fn is_plain_assign(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Step(StepKind::Assign)) && node.after.is_empty()
}

pub(crate) fn order(
    graph: &Graph,
    func: &Func,
    region: RegionId,
    deferred: &BTreeSet<VarId>,
) -> Vec<NodeId> {
    let nodes = &func.regions[region].nodes;
    let mut position: SecondaryMap<NodeId, u32> = SecondaryMap::with_default(u32::MAX);
    for (i, &id) in nodes.iter().enumerate() {
        position[id] = i as u32;
    }
    let mut edges: Vec<Vec<u32>> = vec![vec![]; nodes.len()];
    let mut waits = vec![0u32; nodes.len()];
    let mut users: BTreeMap<ValueId, Vec<u32>> = BTreeMap::new();
    let mut edge = |from: u32, to: u32| {
        if from != to {
            edges[from as usize].push(to);
            waits[to as usize] += 1;
        }
    };
    let mut last_write: BTreeMap<VarId, u32> = BTreeMap::new();
    let mut reads_since: BTreeMap<VarId, Vec<u32>> = BTreeMap::new();
    let mut last_io: Option<u32> = None;
    let mut last_wait: Option<u32> = None;
    let mut since_wait: Vec<u32> = vec![];
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
        let e = effects(graph, func, node);
        if !e.reads.is_empty() || !e.writes.is_empty() {
            if let Some(wait) = last_wait {
                edge(wait, i);
            }
            since_wait.push(i);
        }
        if e.waits {
            since_wait.drain(..).for_each(|before| edge(before, i));
            last_wait = Some(i);
        }
        for &v in e.reads.iter().chain(&e.writes) {
            if let Some(w) = last_write.get(&v) {
                edge(*w, i);
            }
        }
        if let Some(io) = last_io.filter(|_| !e.writes.is_empty()) {
            edge(io, i);
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
    // Wishes of early updates: (before, after).
    let mut wishes: Vec<(u32, u32)> = vec![];
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
            let mut stack: Vec<ValueId> = read.results.clone();
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
                    if matches!(node.op.def().lower, Lower::Reshape) {
                        stack.extend(&node.results);
                    }
                    let to = source.unwrap_or(writer);
                    let with = computed_with(func, nodes, &users, user);
                    wishes.extend(with.into_iter().filter(|w| *w != to).map(|w| (w, to)));
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
    // What a loop carries is no result: its place is taken in every round.
    let results = if region == func.body { func.results() } else { &[] };
    let updates = updates(func, nodes, results, &users, &wishes, deferred);
    let late = |i: u32| {
        let writes = func.nodes[nodes[i as usize]].op.def().effect == Effect::Write;
        writes || changes.contains(&i)
    };
    let leaf: Vec<bool> = nodes.iter().map(|id| is_leaf(func, &func.nodes[*id])).collect();
    let rank = |i: u32, updates: &[Option<u32>]| match updates[i as usize] {
        _ if leaf[i as usize] => Rank::Leaf,
        Some(_) if late(i) => Rank::UpdateWrite,
        Some(_) => Rank::Update,
        None if late(i) => Rank::Late,
        None => Rank::Plain,
    };
    let (mut more_edges, mut more_waits) = (edges.clone(), waits.clone());
    for (from, to) in wishes {
        if updates[to as usize].is_some() && updates[from as usize] != updates[to as usize] {
            more_edges[from as usize].push(to);
            more_waits[to as usize] += 1;
        }
    }
    let none = vec![None; nodes.len()];
    // An old value needed after its successor exists makes a cycle of the
    // wishes above; the graph's own order is always possible.
    let tries = [(&more_edges, &more_waits, &updates), (&edges, &waits, &none)];
    let found = tries.into_iter().find_map(|(edges, waits, updates)| {
        topological(edges, waits, updates, &|i| rank(i, updates))
    });
    match found {
        Some(order) => order.iter().map(|i| nodes[*i as usize]).collect(),
        None => nodes.clone(),
    }
}

/// Of the nodes that can run, those of the least rank do, in text order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// No step of its own: nothing should wait for it.
    Leaf,
    Update,
    /// After all the update computes, which is then one kernel.
    UpdateWrite,
    Plain,
    Late,
}

/// An order along the edges. The nodes of an update run once all it needs from
/// elsewhere is there. `None` if the edges make that impossible.
fn topological(
    edges: &[Vec<u32>],
    waits: &[u32],
    updates: &[Option<u32>],
    rank: &dyn Fn(u32) -> Rank,
) -> Option<Vec<u32>> {
    let mut waits = waits.to_vec();
    let count = updates.iter().flatten().max().map_or(0, |most| *most as usize + 1);
    let mut members: Vec<Vec<u32>> = vec![vec![]; count];
    let mut missing = vec![0u32; count];
    for (i, update) in updates.iter().enumerate() {
        if let Some(u) = update {
            members[*u as usize].push(i as u32);
        }
        for &to in &edges[i] {
            if let Some(u) = updates[to as usize].filter(|u| *update != Some(*u)) {
                missing[u as usize] += 1;
            }
        }
    }
    let key = |i: u32| Reverse((rank(i), i));
    let open =
        |i: u32, missing: &[u32]| updates[i as usize].is_none_or(|u| missing[u as usize] == 0);
    let mut ready: BinaryHeap<_> = (0..waits.len() as u32)
        .filter(|i| waits[*i as usize] == 0 && open(*i, &missing))
        .map(key)
        .collect();
    let mut out = Vec::with_capacity(waits.len());
    while let Some(Reverse((_, i))) = ready.pop() {
        out.push(i);
        for &to in &edges[i as usize] {
            waits[to as usize] -= 1;
            if waits[to as usize] == 0 && open(to, &missing) {
                ready.push(key(to));
            }
            let Some(u) = updates[to as usize].filter(|u| updates[i as usize] != Some(*u)) else {
                continue;
            };
            missing[u as usize] -= 1;
            if missing[u as usize] == 0 {
                let free = members[u as usize].iter().filter(|m| waits[**m as usize] == 0);
                ready.extend(free.map(|m| key(*m)));
            }
        }
    }
    (out.len() == waits.len()).then_some(out)
}

/// The carried value that a node changes a part of.
fn overwritten(func: &Func, region: RegionId, node: &Node) -> Option<ValueId> {
    let scatters = matches!(node.op.def().lower, Lower::Contract(Contraction::ScatterAdd));
    let mut base = *node.operands.first().filter(|_| scatters || stored_over(func, node))?;
    while let Some(def) = func.def(base).map(|d| &func.nodes[d])
        && matches!(def.op.def().lower, Lower::Reshape)
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
