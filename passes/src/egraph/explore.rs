//! Reassociation, on small pieces of the program.
//!
//! Commutativity and associativity fill any e-graph, so they run on pieces of
//! about sixty ops, each with its own small e-graph and limits. A piece is a
//! neighbourhood of elementwise ops, movement and reductions; products of
//! matrices and convolutions lie between pieces. A forward computation and the
//! gradients that read it are neighbours, so they share a piece. Networks repeat
//! their layers: a piece equal to an earlier one but for the names of its inputs
//! is answered from memory.
//!
//! Invariant: what comes out costs no more than what went in, counted over the
//! whole function.

use super::extract::{Problem, Totals};
use super::region::{self, Piece, Seeded, Traces, What};
use super::saturate::{Limits, saturate};
use super::{Report, Rewriting, rules};
use crate::cost_model::{Role, role};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tfc_ir::op::Moves;
use tfc_ir::rule::Search;
use tfc_ir::{Attrs, Func, Graph, NodeId, Op, RegionId, TensorType, ValueId};

/// Ops of a piece.
const SIZE: usize = 60;
/// Regrouping moves rounding errors about: a piece must gain this share for it.
const WORTHWHILE: f64 = 0.02;
const LIMITS: Limits = Limits { nodes: 4_000, rounds: 30, matches: 2_000 };

/// `None` if nothing is gained.
pub fn rewrite(
    graph: &Graph,
    func: &Func,
    options: &Rewriting,
    report: &mut Report,
) -> Option<(Func, Traces)> {
    let mut search = Exploration {
        rules: rules::ids(&[Search::Whole, Search::Broadcasts, Search::Pieces]),
        memory: BTreeMap::new(),
        options,
        report,
        changed: false,
    };
    search.rules.retain(|id| !options.disabled.contains(rules::name(*id)));
    let out = region::rebuild(graph, func, &mut |func, region| Some(search.region(func, region)));
    if !search.changed {
        return None;
    }
    let (before, after) = (total(func, options), total(&out.0, options));
    if after.cost >= before.cost {
        return None;
    }
    report.changed = true;
    report.after.cost += after.cost - before.cost;
    report.after.kernels = report.after.kernels + after.kernels - before.kernels;
    report.after.ops = report.after.ops + after.ops - before.ops;
    Some(out)
}

/// What a function costs as it is.
fn total(func: &Func, options: &Rewriting) -> Totals {
    let mut sum = Totals::default();
    for region in func.regions.keys() {
        for s in region::seed(func, region).into_values() {
            let t = Problem::new(&s.g, &s.root_ids(), s.seed, options.model).source().after;
            sum.cost += t.cost;
            sum.kernels += t.kernels;
            sum.ops += t.ops;
        }
    }
    sum
}

struct Exploration<'a> {
    rules: Vec<super::analysis::RuleId>,
    memory: BTreeMap<Key, Answer>,
    options: &'a Rewriting,
    report: &'a mut Report,
    changed: bool,
}

/// A piece without the names of its values: ops on numbered values, types of the
/// inputs, which values are needed outside, and the device.
type Key = (Vec<(Op, Attrs, Vec<usize>)>, Vec<TensorType>, Vec<usize>, Option<Arc<str>>);

/// The numbering behind a [`Key`].
struct Numbered {
    key: Key,
    /// Inputs, then results of nodes.
    values: Vec<ValueId>,
    nodes: Vec<NodeId>,
}

/// What to make of a piece, and the values it was found for; nothing if it is
/// best as it is.
struct Answer {
    piece: Option<Piece>,
    values: Vec<ValueId>,
    nodes: Vec<NodeId>,
}

impl Exploration<'_> {
    fn region(&mut self, func: &Func, region: RegionId) -> Vec<Piece> {
        let positions = region::positions(func, region);
        let mut out = vec![];
        for (members, roots) in pieces(func, region) {
            self.report.pieces += 1;
            let found = number(func, &members, &roots);
            if self.memory.contains_key(&found.key) {
                self.report.repeated += 1;
            } else {
                let piece = self.solve(func, &positions, &found, &roots);
                let Numbered { key, values, nodes } = number(func, &members, &roots);
                self.memory.insert(key, Answer { piece, values, nodes });
            }
            let piece = self.memory.get(&found.key).and_then(|a| rename(a, &found));
            if let Some(piece) = piece.filter(|p| region::in_order(&positions, p)) {
                self.changed = true;
                out.push(piece);
            }
        }
        out
    }

    fn solve(
        &mut self,
        func: &Func,
        positions: &region::Positions,
        found: &Numbered,
        roots: &[ValueId],
    ) -> Option<Piece> {
        let mut s = Seeded::default();
        for &id in &found.nodes {
            s.put(func, id)?;
            if !literal(func, func.nodes[id].results[0]) {
                s.computed.insert(func.nodes[id].results[0]);
            }
        }
        s.roots = roots.to_vec();
        s.finish();
        let stats = saturate(&mut s.g, &self.rules, self.options.mode, LIMITS);
        self.report.explored.absorb(&stats);
        if let Some(conflict) = s.g.analysis.conflict.take() {
            debug_assert!(false, "unsound rule: {conflict}");
            self.report.conflicts.push(conflict);
            return None;
        }
        let (solution, piece) = region::choose(func, positions, &s, self.options);
        let pays = solution.after.cost <= solution.before.cost * (1.0 - WORTHWHILE);
        pays.then_some(piece)
    }
}

/// Whether the value is a constant or a repeated one: part of the code of
/// whoever uses it.
fn literal(func: &Func, v: ValueId) -> bool {
    match func.def(v).map(|n| &func.nodes[n]) {
        Some(n) if n.op == Op::Const => true,
        Some(n) if n.op.def().facts.moves == Moves::Repeated => literal(func, n.operands[0]),
        _ => false,
    }
}

/// Cuts a region into pieces: their nodes in order, and the values others need.
fn pieces(func: &Func, region: RegionId) -> Vec<(Vec<NodeId>, Vec<ValueId>)> {
    let nodes = &func.regions[region].nodes;
    let fits = |id: NodeId| {
        let node = &func.nodes[id];
        region::enters(node) && role(node.op) != Role::Contract && !literal(func, node.results[0])
    };
    let inside: BTreeSet<NodeId> = nodes.iter().copied().filter(|id| fits(*id)).collect();
    let places: BTreeMap<NodeId, usize> = nodes.iter().copied().zip(0..).collect();
    let mut users: BTreeMap<ValueId, Vec<NodeId>> = BTreeMap::new();
    let mut needed: BTreeSet<ValueId> = func.regions[region].results.iter().copied().collect();
    for &id in nodes {
        if inside.contains(&id) {
            for &v in &func.nodes[id].operands {
                users.entry(v).or_default().push(id);
            }
        } else {
            region::uses_of(func, id, &mut needed);
        }
    }
    let mut owner: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut found: Vec<Vec<NodeId>> = vec![];
    for &start in nodes.iter().filter(|id| inside.contains(id)) {
        if owner.contains_key(&start) {
            continue;
        }
        let mut members = vec![];
        let mut queue = VecDeque::from([start]);
        owner.insert(start, found.len());
        while let Some(id) = queue.pop_front() {
            members.push(id);
            let node = &func.nodes[id];
            let above = users.get(&node.results[0]).into_iter().flatten().copied();
            let below = node.operands.iter().filter_map(|v| func.def(*v));
            let mut near: Vec<NodeId> = above.chain(below).collect();
            // A value everybody reads joins nothing.
            near.truncate(SIZE);
            near.sort();
            for next in near {
                let room = members.len() + queue.len() < SIZE;
                let same = func.nodes[next].device == node.device;
                if room && same && inside.contains(&next) && !owner.contains_key(&next) {
                    owner.insert(next, found.len());
                    queue.push_back(next);
                }
            }
        }
        members.sort_by_key(|id| places[id]);
        found.push(members);
    }
    let regroups = |id: &NodeId| func.nodes[*id].op.def().facts.regroups;
    let mut out = vec![];
    for (at, members) in found.into_iter().enumerate() {
        // With fewer there is nothing to regroup.
        if members.iter().filter(|id| regroups(id)).count() < 2 {
            continue;
        }
        let outside = |v: &ValueId| {
            needed.contains(v)
                || users.get(v).into_iter().flatten().any(|user| owner.get(user) != Some(&at))
        };
        let results = members.iter().map(|id| func.nodes[*id].results[0]);
        let roots: Vec<ValueId> = results.filter(outside).collect();
        out.push((members, roots));
    }
    out
}

/// Numbers the values of a piece in the order they appear, with the literals it
/// uses made part of it.
fn number(func: &Func, members: &[NodeId], roots: &[ValueId]) -> Numbered {
    let mut nodes: Vec<NodeId> = vec![];
    let mut known: BTreeSet<NodeId> = members.iter().copied().collect();
    for &id in members {
        for &v in &func.nodes[id].operands {
            // A literal is a constant under broadcasts: one chain, which may end
            // in what another literal has brought in already.
            let mut chain = vec![];
            let mut at = v;
            while let Some(def) = func.def(at).filter(|n| literal(func, at) && known.insert(*n)) {
                chain.push(def);
                let Some(below) = func.nodes[def].operands.first() else { break };
                at = *below;
            }
            nodes.extend(chain.into_iter().rev());
        }
        nodes.push(id);
    }
    let computed: BTreeSet<ValueId> = nodes.iter().map(|n| func.nodes[*n].results[0]).collect();
    let mut values: Vec<ValueId> = vec![];
    let mut numbers: BTreeMap<ValueId, usize> = BTreeMap::new();
    for v in nodes.iter().flat_map(|n| &func.nodes[*n].operands) {
        if !computed.contains(v) && !numbers.contains_key(v) {
            numbers.insert(*v, values.len());
            values.push(*v);
        }
    }
    let types = values.iter().map(|v| func.ty(*v).clone()).collect();
    let mut program = vec![];
    for &id in &nodes {
        let node = &func.nodes[id];
        let operands = node.operands.iter().map(|v| numbers[v]).collect();
        program.push((node.op, node.attrs.clone(), operands));
        numbers.insert(node.results[0], values.len());
        values.push(node.results[0]);
    }
    let roots = roots.iter().map(|v| numbers[v]).collect();
    let device = members.first().and_then(|n| func.nodes[*n].device.clone());
    Numbered { key: (program, types, roots, device), values, nodes }
}

/// The answer for an equal piece, in this one's values.
fn rename(answer: &Answer, here: &Numbered) -> Option<Piece> {
    let piece = answer.piece.as_ref()?;
    let values: BTreeMap<ValueId, ValueId> =
        answer.values.iter().copied().zip(here.values.iter().copied()).collect();
    let nodes: BTreeMap<NodeId, NodeId> =
        answer.nodes.iter().copied().zip(here.nodes.iter().copied()).collect();
    let mut out = piece.clone();
    for node in &mut out.nodes {
        if let What::Input(v) = &mut node.what {
            *v = *values.get(v)?;
        }
        node.named = node.named.and_then(|v| values.get(&v).copied());
        node.from = node.from.and_then(|n| nodes.get(&n).copied());
    }
    out.roots =
        piece.roots.iter().map(|(v, at)| Some((*values.get(v)?, *at))).collect::<Option<_>>()?;
    out.holds = piece.holds.iter().map(|v| values.get(v).copied()).collect::<Option<_>>()?;
    Some(out)
}
