//! Less memory for more work: the forward pass is computed again, piece by piece, while
//! the backward pass needs it. Only on request (`--recompute`).
//!
//! [`mincut`](crate::mincut) repeats what costs next to nothing; this pass repeats
//! contractions and reductions too. The forward pass is cut into segments where little
//! is alive. Of each, only what another segment reads is kept, and the rest is computed
//! a second time when the backward pass first asks for it. With `n` segments about `1/n`
//! of the values is there at a time, besides what is kept, so there is a best `n`: a few
//! numbers are tried, and the one with the least memory is taken. A step then takes at
//! most one more forward pass.
//!
//! Invariants
//! - Only pure nodes are repeated; results keep their bits.
//! - Nothing is repeated that would need a copy of a variable that is written meanwhile.
//! - Runs after the last merging of equal nodes, which would undo it.
//! - An entry that writes no variables is left as it is, but for a worker's part of one
//!   whose variables parameter servers write.

use crate::mincut::{Liveness, Saved, bytes, cheap, free, overwritten, repeat, sum};
use crate::pipeline::{Details, PassOptions, Passed};
use std::collections::{BTreeMap, BTreeSet};
use tfc_abi::parts::Part;
use tfc_ir::diag::Diag;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::{Func, Graph, Node, ValueId};

/// [`PassOptions::recompute`] of those who want the least memory.
pub const ALL: u8 = 8;

/// Numbers of segments that are tried.
const SEGMENTS: [usize; 12] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96];

/// What takes less than this part of all that is kept stays: means and other small results
/// of long sums.
const SMALL: i64 = 1024;

/// Memory must become smaller by one part of so many, or nothing is done.
const WORTH: i64 = 16;

pub fn recompute(mut graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    if options.recompute == 0 {
        return Ok(Passed::new(graph, false));
    }
    let mut saved = vec![];
    for func in std::mem::take(&mut graph.entries) {
        let (func, s) = entry(&graph, func, options.recompute.min(ALL));
        graph.entries.push(func);
        saved.push(s);
    }
    let changed = saved.iter().any(|s| s.repeated > 0);
    Ok(Passed { graph, changed, details: Details::Saved(saved) })
}

fn entry(graph: &Graph, func: Func, share: u8) -> (Func, Saved) {
    let name = func.name.clone();
    let mut live = stored(&func, BTreeSet::new());
    let Some(turn) = turn(&live).filter(|_| trains(&func)) else {
        return (func, Saved { entry: name, ..Saved::default() });
    };
    let crossing = crossing(&func, &live, turn);
    live = stored(&func, crossing.clone());
    let forward = Forward::new(&func, &live, turn, crossing);
    let before = live.most().0;
    let mut best = Saved { entry: name, before, after: before, repeated: 0 };
    let mut least = None;
    for segments in SEGMENTS {
        let keep = forward.keep(segments, share);
        let again = |v: ValueId| forward.repeatable(v) && !keep.contains(&v);
        let (out, made) = repeat(graph, &func, turn, &forward.crossing, &again);
        let copies = forward.crossing.iter().filter_map(|v| made.get(v));
        let after = stored(&out, copies.chain(&keep).copied().collect()).most().0;
        if after < best.after {
            (best.after, best.repeated) = (after, made.len());
            least = Some(out);
        }
    }
    match least.filter(|_| best.after <= before - before / WORTH) {
        Some(out) => (out, best),
        None => (func, Saved { after: before, repeated: 0, ..best }),
    }
}

/// Whether an entry is a training step, or a worker's part of one: there servers have taken
/// over the writes, and what the backward pass needs is here.
fn trains(func: &Func) -> bool {
    if func.replica && matches!(Part::of(&func.name), Some((_, Part::Gradients))) {
        return true;
    }
    let mut nodes = func.regions[func.body].nodes.iter().map(|id| &func.nodes[*id]);
    nodes.any(|n| matches!(n.op.def().lower, Lower::Step(StepKind::Assign)))
}

/// Whether a node may be computed twice, whatever that costs.
fn pure(node: &Node) -> bool {
    node.op.def().effect == Effect::Pure && node.regions.is_empty() && node.results.len() == 1
}

/// Whether a node reads its operands from memory rather than being fused with them.
fn from_memory(node: &Node) -> bool {
    let lower = &node.op.def().lower;
    matches!(lower, Lower::Contract(_) | Lower::AddRows | Lower::Call(..)) || !pure(node)
}

/// What is alive when, roughly: what is cheap is fused into what uses it, unless that reads
/// memory or it is one of those that are kept.
fn stored(func: &Func, kept: BTreeSet<ValueId>) -> Liveness {
    let mut live = Liveness::new(func);
    let mut stored = kept;
    for id in &func.regions[func.body].nodes {
        let node = &func.nodes[*id];
        if !cheap(node) {
            stored.extend(&node.results);
        }
        if from_memory(node) {
            crate::egraph::region::uses_of(func, *id, &mut stored);
        }
    }
    live.sizes.retain(|v, _| stored.contains(v));
    live
}

/// Where the backward pass begins: where most values are alive, whatever their sizes. Each
/// layer adds some in the forward pass, and is done with them in the backward pass.
fn turn(live: &Liveness) -> Option<usize> {
    let mut counted = live.clone();
    counted.sizes.values_mut().for_each(|size| *size = 1);
    counted.fullest()
}

/// What is computed up to the turn and used after it.
fn crossing(func: &Func, live: &Liveness, turn: usize) -> BTreeSet<ValueId> {
    let used = |v: &ValueId| live.last_use.get(v).is_some_and(|u| *u > turn);
    let before = live.defined.iter().filter(|(_, at)| **at <= turn).map(|(v, _)| *v);
    before.filter(|v| used(v) && !free(func, *v)).collect()
}

/// The forward pass.
struct Forward<'a> {
    func: &'a Func,
    defined: &'a BTreeMap<ValueId, usize>,
    /// See [`crossing`].
    crossing: BTreeSet<ValueId>,
    /// Those that are not computed again, come what may.
    stays: BTreeSet<ValueId>,
    /// For each position, the bytes that cross the turn and are computed up to there.
    kept: Vec<i64>,
    /// For each position, the bytes that the rest of the forward pass needs.
    needed: Vec<i128>,
}

impl<'a> Forward<'a> {
    fn new(
        func: &'a Func,
        live: &'a Liveness,
        turn: usize,
        crossing: BTreeSet<ValueId>,
    ) -> Forward<'a> {
        let nodes = &func.regions[func.body].nodes;
        let mut stays: BTreeSet<ValueId> =
            func.regions[func.body].results.iter().copied().collect();
        for id in &nodes[turn + 1..] {
            if !func.nodes[*id].regions.is_empty() {
                crate::egraph::region::uses_of(func, *id, &mut stays);
            }
        }
        let total = sum(crossing.iter().map(|v| bytes(func, *v)));
        stays.extend(crossing.iter().filter(|v| bytes(func, **v) <= total / SMALL));
        let again = crossing.difference(&stays).copied().collect();
        let repeats = |n: &Node| pure(n) && !n.results.iter().any(|v| stays.contains(v));
        let overwritten = overwritten(func, live, &again, &repeats);
        stays.extend(overwritten);

        let mut kept = vec![0; turn + 1];
        for v in &crossing {
            let here: &mut i64 = &mut kept[live.defined[v]];
            *here = here.saturating_add(bytes(func, *v));
        }
        (1..=turn).for_each(|at| kept[at] = kept[at].saturating_add(kept[at - 1]));
        // Until its last use before the turn, a value is needed.
        let mut last: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (at, id) in nodes[..=turn].iter().enumerate() {
            for v in func.nodes[*id].operands.iter().filter(|v| !free(func, **v)) {
                last.insert(*v, at);
            }
        }
        let mut needed = vec![0; turn + 2];
        for (v, last) in last {
            let Some(first) = live.defined.get(&v) else { continue };
            needed[*first] += i128::from(bytes(func, v));
            needed[last] -= i128::from(bytes(func, v));
        }
        (1..=turn).for_each(|at| needed[at] += needed[at - 1]);
        Forward { func, defined: &live.defined, crossing, stays, kept, needed }
    }

    fn node(&self, v: ValueId) -> Option<&'a Node> {
        self.func.def(v).map(|n| &self.func.nodes[n])
    }

    fn repeatable(&self, v: ValueId) -> bool {
        !self.stays.contains(&v) && self.node(v).is_some_and(pure)
    }

    /// After which positions it is cut, for so many segments: where little is needed of what
    /// is before, near places that share what is kept evenly.
    fn cuts(&self, segments: usize) -> Vec<usize> {
        let total = self.kept.last().copied().unwrap_or(0);
        let part = total / segments as i64;
        let at = |bytes: i64| self.kept.partition_point(|k| *k < bytes);
        let cuts = (1..segments as i64).filter_map(|i| {
            let near = at(i * part - part / 3)..at(i * part + part / 3).max(1);
            near.min_by_key(|p| self.needed[*p])
        });
        let mut cuts: Vec<usize> = cuts.collect();
        cuts.dedup();
        cuts
    }

    /// What is kept if the first segments, so many eighths of them, are computed again. What
    /// the last one has is used at once.
    fn keep(&self, segments: usize, share: u8) -> BTreeSet<ValueId> {
        let cuts = self.cuts(segments);
        let repeated = (cuts.len() * usize::from(share)).div_ceil(usize::from(ALL));
        let segment =
            |v: ValueId| self.defined.get(&v).map_or(0, |d| cuts.partition_point(|cut| cut < d));
        let mut by_segment: Vec<Vec<ValueId>> = vec![vec![]; cuts.len() + 1];
        for v in &self.crossing {
            by_segment[segment(*v)].push(*v);
        }
        let mut keep = BTreeSet::new();
        for (here, values) in by_segment.into_iter().enumerate().rev() {
            if here >= repeated {
                keep.extend(values);
                continue;
            }
            let mut seen = BTreeSet::new();
            let mut stack = values;
            while let Some(v) = stack.pop() {
                if free(self.func, v) || keep.contains(&v) || !seen.insert(v) {
                    continue;
                }
                match self.node(v).filter(|_| self.repeatable(v) && segment(v) == here) {
                    Some(node) => stack.extend(&node.operands),
                    None => _ = keep.insert(v),
                }
            }
        }
        keep
    }
}
