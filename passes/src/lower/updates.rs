//! Which units make up updates of variables.
//!
//! An update is what should run as a whole as soon as it can: plain assignments
//! and results, what only they need, back to the contractions and reductions it
//! starts from. [`super::order`] puts it in its place.

use super::fuse::{GroupKind, deep_operands};
use super::hazards::is_plain_assign;
use super::order::{Unit, Units, in_memory};
use std::collections::BTreeSet;
use tfc_ir::ValueId;
use tfc_ir::lower::Lower;

/// By unit, the number of its update: of plain assignments that are not `deferred`, and
/// results, what only they need, back to the contractions and reductions that start
/// it. Further back is the work of the step itself, which keeps its order. Assignments
/// that share some of that are one update: an optimizer's slots and the variable it
/// moves. So are those of which one has to wait for the other, by the pairs in `soft`.
pub(crate) fn updates(
    units: &Units<'_>,
    results: &[ValueId],
    soft: &[(u32, u32)],
    deferred: &BTreeSet<u32>,
) -> Vec<Option<u32>> {
    let count = units.list.len();
    let mut update: Vec<Option<u32>> = vec![None; count];
    // What the contractions and reductions that start an update sum up.
    let mut summed: Vec<BTreeSet<ValueId>> = vec![BTreeSet::new(); count];
    let mut same = Same::default();
    // Users are settled before what they use.
    for i in users_first(units) {
        let at = i as usize;
        if let Some(node) = units.step(i) {
            if is_plain_assign(node) {
                update[at] = (!deferred.contains(&i)).then(|| same.new_number());
                continue;
            }
            if !matches!(node.op.def().lower, Lower::Call(..) | Lower::AddRows) {
                continue;
            }
        }
        let uses = units.users_of(i);
        let further_back =
            |u: &u32| units.outputs[at].iter().any(|v| summed[*u as usize].contains(v));
        if uses.iter().any(|u| update[*u as usize].is_none() || further_back(u)) {
            continue;
        }
        let mut own = uses.iter().filter_map(|u| update[*u as usize]);
        update[at] = match own.next() {
            Some(first) => {
                own.for_each(|u| same.unite(first, u));
                Some(first)
            }
            None if units.outputs[at].iter().any(|v| results.contains(v)) => {
                Some(same.new_number())
            }
            None => continue,
        };
        summed[at] = summed_up(units, i);
    }
    for (from, to) in soft {
        if let (Some(a), Some(b)) = (update[*from as usize], update[*to as usize]) {
            same.unite(a, b);
        }
    }
    update.into_iter().map(|u| u.map(|u| same.find(u))).collect()
}

/// All units, each after those that read what it leaves.
fn users_first(units: &Units<'_>) -> Vec<u32> {
    let count = units.list.len();
    let mut missing: Vec<usize> = vec![0; count];
    let mut from: Vec<Vec<u32>> = vec![vec![]; count];
    for i in 0..count as u32 {
        for user in units.users_of(i) {
            missing[i as usize] += 1;
            from[user as usize].push(i);
        }
    }
    let mut ready: Vec<u32> = (0..count as u32).filter(|i| missing[*i as usize] == 0).collect();
    let mut out = Vec::with_capacity(count);
    while let Some(i) = ready.pop() {
        out.push(i);
        for &earlier in &from[i as usize] {
            missing[earlier as usize] -= 1;
            if missing[earlier as usize] == 0 {
                ready.push(earlier);
            }
        }
    }
    out
}

/// The values in memory that a unit sums up: of a contraction or scan its operands, of
/// a kernel what its reductions are computed of. None if it sums up nothing. What is
/// only needed behind the sum is not among them.
fn summed_up(units: &Units<'_>, i: u32) -> BTreeSet<ValueId> {
    let (func, Unit::Group(g)) = (units.func, units.list[i as usize]) else {
        return BTreeSet::new();
    };
    let group = &units.groups[g];
    let mut stack: Vec<ValueId> = match group.kind {
        GroupKind::Contract(id) => deep_operands(func, &func.nodes[id]),
        GroupKind::Scan(id) => func.nodes[id].operands.clone(),
        GroupKind::Step(id) if matches!(func.nodes[id].op.def().lower, Lower::AddRows) => {
            func.nodes[id].operands.clone()
        }
        GroupKind::Kernel => {
            let members = group.members.iter().map(|id| &func.nodes[*id]);
            let reductions = members.filter(|n| matches!(n.op.def().lower, Lower::Reduce(_)));
            reductions.flat_map(|n| n.operands.clone()).collect()
        }
        GroupKind::Update(_) | GroupKind::Step(_) => vec![],
    };
    let mut seen = BTreeSet::new();
    let mut out = BTreeSet::new();
    while let Some(v) = stack.pop() {
        match func.def(v).filter(|d| group.members.contains(d)) {
            Some(def) => {
                if seen.insert(def) {
                    stack.extend(&func.nodes[def].operands);
                }
            }
            None => {
                out.insert(in_memory(func, v));
            }
        }
    }
    out
}

/// Numbers of which some are found to be one: each leads to a smaller one.
#[derive(Default)]
struct Same(Vec<u32>);

impl Same {
    fn new_number(&mut self) -> u32 {
        self.0.push(self.0.len() as u32);
        self.0.len() as u32 - 1
    }

    fn find(&self, mut u: u32) -> u32 {
        while self.0[u as usize] != u {
            u = self.0[u as usize];
        }
        u
    }

    fn unite(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}
