//! Which nodes make up updates of variables.
//!
//! An update is what should run as a whole as soon as it can: plain assignments
//! and results, what only they need, back to the contractions and reductions it
//! starts from. [`super::schedule`] puts it in its place.

use super::fuse::deep_operands;
use super::schedule::is_plain_assign;
use crate::util::is_literal;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::lower::Lower;
use tfc_ir::op::Effect;
use tfc_ir::{Func, Node, NodeId, ValueId, VarId};

/// The nodes of a function's body that make up updates. What they compute does
/// not live long, wherever they stand in the text.
pub(crate) fn update_nodes(func: &Func) -> BTreeSet<NodeId> {
    let nodes = &func.regions[func.body].nodes;
    let mut users: BTreeMap<ValueId, Vec<u32>> = BTreeMap::new();
    for (i, &id) in nodes.iter().enumerate() {
        for value in deep_operands(func, &func.nodes[id]) {
            users.entry(value).or_default().push(i as u32);
        }
    }
    let updates = updates(func, nodes, func.results(), &users, &[], &BTreeSet::new());
    nodes.iter().zip(updates).filter(|(_, u)| u.is_some()).map(|(id, _)| *id).collect()
}

/// Which nodes make up updates, and the number of the update: plain assignments
/// of variables whose writes are not deferred, and results, what only they need, back to
/// the contractions and reductions that start it. Further back is the work of the
/// step itself, which keeps its order. Assignments that share some of that are
/// one update: an optimizer's slots and the variable it moves. So are those of
/// which one would have to wait for the other's kernel.
pub(crate) fn updates(
    func: &Func,
    nodes: &[NodeId],
    results: &[ValueId],
    users: &BTreeMap<ValueId, Vec<u32>>,
    wishes: &[(u32, u32)],
    deferred: &BTreeSet<VarId>,
) -> Vec<Option<u32>> {
    let mut update: Vec<Option<u32>> = vec![None; nodes.len()];
    let mut starts = vec![false; nodes.len()];
    // Numbers of updates found to be one: each leads to a smaller one.
    let mut same: Vec<u32> = vec![];
    fn find(same: &[u32], mut u: u32) -> u32 {
        while same[u as usize] != u {
            u = same[u as usize];
        }
        u
    }
    fn unite(same: &mut [u32], a: u32, b: u32) {
        let (a, b) = (find(same, a), find(same, b));
        same[a.max(b) as usize] = a.min(b);
    }
    for (i, &id) in nodes.iter().enumerate().rev() {
        let node = &func.nodes[id];
        if is_plain_assign(node) {
            if node.var.is_some_and(|v| !deferred.contains(&v)) {
                update[i] = Some(same.len() as u32);
                same.push(same.len() as u32);
            }
            continue;
        }
        // An optimizer may read what it has just written.
        let reads = node.op.def().effect == Effect::Read;
        let pure = node.op.def().effect == Effect::Pure && node.regions.is_empty();
        if !reads && (!pure || is_leaf(func, node)) {
            continue;
        }
        let uses: Vec<u32> =
            node.results.iter().flat_map(|v| users.get(v)).flatten().copied().collect();
        if uses.iter().any(|u| update[*u as usize].is_none() || starts[*u as usize]) {
            continue;
        }
        let mut own = uses.iter().filter_map(|u| update[*u as usize]);
        update[i] = match own.next() {
            Some(first) => {
                own.for_each(|u| unite(&mut same, first, u));
                Some(first)
            }
            None if node.results.iter().any(|v| results.contains(v)) => {
                same.push(same.len() as u32);
                Some(same.len() as u32 - 1)
            }
            None => continue,
        };
        starts[i] =
            matches!(node.op.def().lower, Lower::Contract(_) | Lower::Reduce(_) | Lower::Scan(_));
    }
    for (from, to) in wishes {
        if let (Some(a), Some(b)) = (update[*from as usize], update[*to as usize]) {
            unite(&mut same, a, b);
        }
    }
    update.into_iter().map(|u| u.map(|u| find(&same, u))).collect()
}

/// What is likely to be in one kernel with a node that reads a variable, and to
/// run as late: what is computed of it element by element, and for a contraction
/// what may be its epilogue.
pub(crate) fn computed_with(
    func: &Func,
    nodes: &[NodeId],
    users: &BTreeMap<ValueId, Vec<u32>>,
    reader: u32,
) -> BTreeSet<u32> {
    let mut out = BTreeSet::new();
    let mut stack = vec![(reader, false)];
    while let Some((at, epilogue)) = stack.pop() {
        let node = &func.nodes[nodes[at as usize]];
        let uses: BTreeSet<u32> =
            node.results.iter().flat_map(|v| users.get(v)).flatten().copied().collect();
        let lower = |i: u32| &func.nodes[nodes[i as usize]].op.def().lower;
        // What follows a contraction ends where the value has several users.
        let epilogue = epilogue || matches!(lower(at), Lower::Contract(_));
        if epilogue && uses.len() > 1 {
            continue;
        }
        for user in uses {
            let joins = match lower(user) {
                Lower::Map(_) => true,
                Lower::Index(_) | Lower::Reshape | Lower::Reduce(_) => !epilogue,
                _ => false,
            };
            let ends = matches!(lower(user), Lower::Reduce(_));
            if joins && out.insert(user) && !ends {
                stack.push((user, epilogue));
            }
        }
    }
    out
}

/// Literals and reads, which are where they are.
pub(crate) fn is_leaf(func: &Func, node: &Node) -> bool {
    is_literal(func, node) || node.op.def().effect == Effect::Read
}
