//! What the forward pass keeps for the backward pass.
//!
//! A training step holds most memory where it turns from forward to backward.
//! That point is found as the one where most bytes are live. Of the values that
//! are used on both sides of it, those that are cheap to compute again (elementwise ops and
//! movement) need not be kept if what they come from is: the smallest set of
//! values to keep is a minimum cut between what was computed before the point
//! and what is used after it. The others are computed again, just before their
//! first use after the point, where they fuse into whatever uses them.
//!
//! Invariants
//! - Only pure, cheap nodes are repeated; results keep their bits.
//! - Runs after the last merging of equal nodes, which would undo it.
//! - Parameters and variables are there anyway and cost nothing to keep.

use crate::cost_model::{MIN_SAVED, UNKNOWN_DIM, repeats_for_memory};
use crate::pipeline::{Details, PassOptions, Passed};
use crate::util::is_literal;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::diag::Diag;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::{Dim, Func, Graph, Node, NodeId, ValueId, VarId};

/// Bytes that live across the turning point, before and after.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Saved {
    pub entry: String,
    pub before: i64,
    pub after: i64,
    /// Nodes computed a second time.
    pub repeated: usize,
}

pub fn mincut(graph: Graph, _options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let (graph, saved) = run(graph);
    let changed = saved.iter().any(|s| s.repeated > 0);
    Ok(Passed { graph, changed, details: Details::Saved(saved) })
}

/// The pass, and what it did to each entry.
pub fn run(mut graph: Graph) -> (Graph, Vec<Saved>) {
    let mut saved = vec![];
    let entries = std::mem::take(&mut graph.entries);
    graph.entries = entries
        .into_iter()
        .map(|f| {
            let (f, s) = entry(&graph, f);
            saved.push(s);
            f
        })
        .collect();
    (graph, saved)
}

fn entry(graph: &Graph, func: Func) -> (Func, Saved) {
    let live = Liveness::new(&func);
    let entry = func.name.clone();
    let Some(turn) = live.fullest() else { return (func, Saved { entry, ..Saved::default() }) };
    let cut = Cut::new(&func, &live, turn);
    let before = sum(cut.crossing.iter().map(|v| bytes(&func, *v)));
    let keep = cut.solve(&func);
    let kept = keep.iter().filter(|v| !cut.passing.contains(v));
    let after = sum(kept.map(|v| bytes(&func, *v)));
    if before - after < MIN_SAVED {
        return (func, Saved { entry, before, after: before, repeated: 0 });
    }
    let again =
        |v: ValueId| !keep.contains(&v) && func.def(v).is_some_and(|n| cheap(&func.nodes[n]));
    let (out, made) = repeat(graph, &func, turn, &cut.crossing, &again);
    (out, Saved { entry, before, after, repeated: made.len() })
}

pub(crate) fn bytes(func: &Func, v: ValueId) -> i64 {
    let ty = func.ty(v);
    let size = |d: &Dim| d.eval(&|_| Some(UNKNOWN_DIM)).unwrap_or(UNKNOWN_DIM);
    let count = ty.shape.iter().map(size).fold(1i64, i64::saturating_mul);
    count.saturating_mul(ty.dtype.size() as i64)
}

/// Bytes of several values: one alone may have nearly as many as there are numbers for.
pub(crate) fn sum(bytes: impl Iterator<Item = i64>) -> i64 {
    bytes.fold(0, i64::saturating_add)
}

/// Whether computing the node again costs next to nothing once fused.
pub(crate) fn cheap(node: &Node) -> bool {
    let simple = match node.op.def().lower {
        Lower::Map(_) => repeats_for_memory(node.op),
        Lower::Index(_) => node.op.def().facts.moves.is_cheap(),
        Lower::Reshape | Lower::Constant => true,
        _ => false,
    };
    simple && node.op.def().effect == Effect::Pure && node.regions.is_empty()
}

/// Whether a value is there without being kept: it is in no buffer of its own.
pub(crate) fn free(func: &Func, v: ValueId) -> bool {
    func.def(v).map(|n| &func.nodes[n]).is_none_or(|n| is_literal(func, n) || is_read(n))
}

pub(crate) fn is_read(node: &Node) -> bool {
    node.op.def().effect == Effect::Read
}

/// The nodes of the body that only assignments and results need, back to the
/// contractions and reductions they start from: optimizers, and what a call gives back.
fn of_updates(func: &Func) -> BTreeSet<NodeId> {
    let body = &func.regions[func.body];
    let mut users: BTreeMap<ValueId, Vec<NodeId>> = BTreeMap::new();
    for id in &body.nodes {
        let mut used = BTreeSet::new();
        crate::egraph::region::uses_of(func, *id, &mut used);
        used.into_iter().for_each(|v| users.entry(v).or_default().push(*id));
    }
    let mut out = BTreeSet::new();
    let mut starts = BTreeSet::new();
    for id in body.nodes.iter().rev() {
        let node = &func.nodes[*id];
        let lower = &node.op.def().lower;
        if matches!(lower, Lower::Step(StepKind::Assign)) {
            out.insert(*id);
            continue;
        }
        let pure = node.op.def().effect == Effect::Pure && node.regions.is_empty();
        if !is_read(node) && (!pure || is_literal(func, node)) {
            continue;
        }
        let mut uses = node.results.iter().flat_map(|v| users.get(v)).flatten().peekable();
        let given = node.results.iter().any(|v| body.results.contains(v));
        if uses.peek().is_none() && !given {
            continue;
        }
        if uses.all(|user| out.contains(user) && !starts.contains(user)) {
            out.insert(*id);
            let sums = matches!(
                lower,
                Lower::Contract(_) | Lower::AddRows | Lower::Reduce(_) | Lower::Scan(_)
            );
            if sums {
                starts.insert(*id);
            }
        }
    }
    out
}

#[derive(Clone)]
pub(crate) struct Liveness {
    /// Position in the body of the node that defines a value.
    pub defined: BTreeMap<ValueId, usize>,
    first_use: BTreeMap<ValueId, usize>,
    pub last_use: BTreeMap<ValueId, usize>,
    /// Bytes of those that count: what belongs to the forward or the backward pass.
    pub sizes: BTreeMap<ValueId, i64>,
    len: usize,
}

impl Liveness {
    pub fn new(func: &Func) -> Liveness {
        let body = &func.regions[func.body];
        let mut live = Liveness {
            defined: BTreeMap::new(),
            first_use: BTreeMap::new(),
            last_use: BTreeMap::new(),
            sizes: BTreeMap::new(),
            len: body.nodes.len(),
        };
        // What only writes and results need belongs to neither pass, wherever it
        // stands in the text.
        let updates = of_updates(func);
        for (at, id) in body.nodes.iter().enumerate() {
            for v in &func.nodes[*id].results {
                live.defined.insert(*v, at);
                if !free(func, *v) && !updates.contains(id) && !body.results.contains(v) {
                    live.sizes.insert(*v, bytes(func, *v));
                }
            }
            let mut used = BTreeSet::new();
            crate::egraph::region::uses_of(func, *id, &mut used);
            for v in used {
                live.first_use.entry(v).or_insert(at);
                live.last_use.insert(v, at);
            }
        }
        for v in &body.results {
            live.last_use.insert(*v, body.nodes.len());
        }
        live
    }

    /// The position after which most bytes are needed by later nodes.
    pub fn fullest(&self) -> Option<usize> {
        self.most().1
    }

    /// The most bytes that are needed by later nodes, and after which position.
    pub fn most(&self) -> (i64, Option<usize>) {
        // Wide, because what has become too much must become less again.
        let mut change = vec![0i128; self.len + 2];
        for (v, size) in &self.sizes {
            let (from, to) = (self.defined[v], self.last_use.get(v).copied().unwrap_or(0));
            if to > from {
                change[from] += i128::from(*size);
                change[to] -= i128::from(*size);
            }
        }
        let (mut now, mut best) = (0, (0, None));
        for (at, delta) in change.iter().enumerate() {
            now += delta;
            if now > best.0 {
                best = (now, Some(at));
            }
        }
        (i64::try_from(best.0).unwrap_or(i64::MAX), best.1)
    }
}

struct Cut {
    /// Values used on both sides of the point.
    crossing: BTreeSet<ValueId>,
    /// Values computed before and used only after: on their way to a user, and
    /// there whatever is decided.
    passing: BTreeSet<ValueId>,
    /// Operands of contractions after the point. A contraction reads memory, so
    /// computing one again is a kernel of its own: these are not repeated.
    in_memory: BTreeSet<ValueId>,
    /// Values computed from a variable that is written before they are needed
    /// again: repeating them would need a copy of the old variable.
    overwritten: BTreeSet<ValueId>,
    /// Those that cannot be repeated, and all that can on the way to them.
    values: BTreeSet<ValueId>,
}

impl Cut {
    fn new(func: &Func, live: &Liveness, turn: usize) -> Cut {
        let crosses = |v: &ValueId| {
            live.defined.get(v).is_some_and(|d| *d <= turn)
                && live.last_use.get(v).is_some_and(|u| *u > turn)
                && !free(func, *v)
        };
        let early = |v: &ValueId| live.first_use.get(v).is_some_and(|u| *u <= turn);
        let (crossing, passing): (BTreeSet<ValueId>, BTreeSet<ValueId>) =
            live.defined.keys().filter(|v| crosses(v)).partition(|v| early(v));
        let in_memory = operands_of_contractions(func, turn);
        let overwritten = overwritten(func, live, &crossing, &cheap);
        let mut cut = Cut { crossing, passing, in_memory, overwritten, values: BTreeSet::new() };
        let mut stack: Vec<ValueId> = cut.crossing.iter().copied().collect();
        while let Some(v) = stack.pop() {
            if free(func, v) || !cut.values.insert(v) {
                continue;
            }
            if let Some(node) = cut.repeatable(func, v) {
                stack.extend(&node.operands);
            }
        }
        cut
    }

    /// The node that computes a value again, if that is cheap.
    fn repeatable<'f>(&self, func: &'f Func, v: ValueId) -> Option<&'f Node> {
        let node = func.def(v).map(|n| &func.nodes[n])?;
        let stays = self.in_memory.contains(&v) || self.overwritten.contains(&v);
        (cheap(node) && !stays).then_some(node)
    }

    /// The values to keep: a minimum cut, as near to the uses as there is one.
    fn solve(&self, func: &Func) -> BTreeSet<ValueId> {
        let number: BTreeMap<ValueId, usize> =
            self.values.iter().enumerate().map(|(i, v)| (*v, 2 + 2 * i)).collect();
        let mut flow = Flow::new(2 + 2 * self.values.len());
        for (v, &at) in &number {
            let passing = self.passing.contains(v);
            // The largest number is for what must not be cut.
            let size = bytes(func, *v).clamp(1, i64::MAX - 1);
            flow.edge(at, at + 1, if passing { 1 } else { size });
            match self.repeatable(func, *v) {
                Some(node) => {
                    for from in node.operands.iter().filter_map(|o| number.get(o)) {
                        flow.edge(from + 1, at, i64::MAX);
                    }
                }
                None => flow.edge(SOURCE, at, i64::MAX),
            }
            if self.crossing.contains(v) {
                flow.edge(at + 1, SINK, i64::MAX);
            }
        }
        flow.run();
        let near_sink = flow.reaches_sink();
        let kept = number.iter().filter(|(_, at)| near_sink[**at + 1] && !near_sink[**at]);
        kept.map(|(v, _)| *v).collect()
    }
}

/// What is computed, by nodes that could be repeated, from variables that are
/// written before its last use or that of a crossing value it leads to.
pub(crate) fn overwritten(
    func: &Func,
    live: &Liveness,
    crossing: &BTreeSet<ValueId>,
    repeatable: &dyn Fn(&Node) -> bool,
) -> BTreeSet<ValueId> {
    let nodes = &func.regions[func.body].nodes;
    let mut written: BTreeMap<VarId, usize> = BTreeMap::new();
    for (at, id) in nodes.iter().enumerate() {
        let mut vars = vec![];
        crate::cse::written(func, &func.nodes[*id], &mut vars);
        for var in vars {
            written.entry(var).or_insert(at);
        }
    }
    // From the uses back: until when a value would be needed again.
    let mut needed: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut out = BTreeSet::new();
    for id in nodes.iter().rev() {
        let node = &func.nodes[*id];
        let Some(&v) = node.results.first() else { continue };
        let own = live.last_use.get(&v).filter(|_| crossing.contains(&v));
        let Some(until) = own.max(needed.get(&v)).copied() else { continue };
        if !repeatable(node) {
            continue;
        }
        for operand in &node.operands {
            let read = func
                .def(*operand)
                .map(|d| &func.nodes[d])
                .filter(|d| d.op.def().effect == Effect::Read);
            let first_write = read.and_then(|d| d.var).and_then(|var| written.get(&var));
            if first_write.is_some_and(|at| *at < until) {
                out.insert(v);
            }
            let known = needed.entry(*operand).or_insert(0);
            *known = (*known).max(until);
        }
    }
    out
}

/// The same bytes under another shape.
fn is_view(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Reshape)
}

/// What contractions after a point read, also under another shape.
fn operands_of_contractions(func: &Func, turn: usize) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    for id in func.regions[func.body].nodes.iter().skip(turn + 1) {
        let node = &func.nodes[*id];
        if !matches!(node.op.def().lower, Lower::Contract(_) | Lower::AddRows | Lower::Call(..)) {
            continue;
        }
        for operand in &node.operands {
            let mut v = *operand;
            out.insert(v);
            while let Some(n) = func.def(v).filter(|n| is_view(&func.nodes[*n])) {
                v = func.nodes[n].operands[0];
                out.insert(v);
            }
        }
    }
    out
}

pub(crate) const SOURCE: usize = 0;
pub(crate) const SINK: usize = 1;

/// Maximum flow by shortest augmenting paths in layers (Dinic).
pub(crate) struct Flow {
    edges: Vec<(usize, i64)>,
    from: Vec<Vec<usize>>,
    level: Vec<usize>,
    next: Vec<usize>,
}

impl Flow {
    pub fn new(nodes: usize) -> Flow {
        Flow { edges: vec![], from: vec![vec![]; nodes], level: vec![], next: vec![] }
    }

    /// Edge `e` and its reverse `e ^ 1`.
    pub fn edge(&mut self, from: usize, to: usize, capacity: i64) {
        self.from[from].push(self.edges.len());
        self.edges.push((to, capacity));
        self.from[to].push(self.edges.len());
        self.edges.push((from, 0));
    }

    pub fn run(&mut self) {
        while self.layer() {
            self.next = vec![0; self.from.len()];
            while self.augment() {}
        }
    }

    fn layer(&mut self) -> bool {
        self.level = vec![usize::MAX; self.from.len()];
        self.level[SOURCE] = 0;
        let mut queue = VecDeque::from([SOURCE]);
        while let Some(at) = queue.pop_front() {
            for &e in &self.from[at] {
                let (to, capacity) = self.edges[e];
                if capacity > 0 && self.level[to] == usize::MAX {
                    self.level[to] = self.level[at] + 1;
                    queue.push_back(to);
                }
            }
        }
        self.level[SINK] != usize::MAX
    }

    /// One path along the layers, walked with an explicit stack.
    fn augment(&mut self) -> bool {
        let mut path: Vec<usize> = vec![];
        let mut at = SOURCE;
        loop {
            if at == SINK {
                let least = path.iter().map(|e| self.edges[*e].1).min().unwrap_or(0);
                for e in path {
                    if self.edges[e].1 != i64::MAX {
                        self.edges[e].1 -= least;
                    }
                    let back = &mut self.edges[e ^ 1].1;
                    *back = back.saturating_add(least);
                }
                return least > 0 && least != i64::MAX;
            }
            match self.from[at].get(self.next[at]) {
                Some(&e) => {
                    let (to, capacity) = self.edges[e];
                    if capacity > 0 && self.level[to] == self.level[at] + 1 {
                        path.push(e);
                        at = to;
                    } else {
                        self.next[at] += 1;
                    }
                }
                None => match path.pop() {
                    Some(e) => {
                        at = self.edges[e ^ 1].0;
                        self.next[at] += 1;
                    }
                    None => return false,
                },
            }
        }
    }

    pub fn reaches_sink(&self) -> Vec<bool> {
        let mut seen = vec![false; self.from.len()];
        seen[SINK] = true;
        let mut queue = VecDeque::from([SINK]);
        while let Some(at) = queue.pop_front() {
            for &e in &self.from[at] {
                // The edge into `at` is the reverse of the one stored here.
                let (from, _) = self.edges[e];
                if self.edges[e ^ 1].1 > 0 && !seen[from] {
                    seen[from] = true;
                    queue.push_back(from);
                }
            }
        }
        seen
    }
}

/// Emits the function anew: what crosses the point and is to be computed `again` is
/// computed before its first use after the point, from what is not. Also returns the new
/// values by the old ones.
pub(crate) fn repeat(
    graph: &Graph,
    func: &Func,
    turn: usize,
    crossing: &BTreeSet<ValueId>,
    again: &dyn Fn(ValueId) -> bool,
) -> (Func, BTreeMap<ValueId, ValueId>) {
    let body = func.body;
    let mut out = func.clone();
    out.regions[body].nodes.clear();
    let mut copies = Copies { graph, func, out, again, made: BTreeMap::new() };
    for (at, &id) in func.regions[body].nodes.iter().enumerate() {
        if at > turn {
            // Nested regions keep what they use: it is not theirs to repeat.
            for v in func.nodes[id].operands.iter().filter(|v| crossing.contains(v)) {
                copies.compute(*v);
            }
            for operand in &mut copies.out.nodes[id].operands {
                if let Some(new) = copies.made.get(operand) {
                    *operand = *new;
                }
            }
        }
        copies.out.regions[body].nodes.push(id);
    }
    (copies.out, copies.made)
}

/// What is computed a second time.
struct Copies<'a> {
    graph: &'a Graph,
    func: &'a Func,
    out: Func,
    again: &'a dyn Fn(ValueId) -> bool,
    made: BTreeMap<ValueId, ValueId>,
}

impl Copies<'_> {
    /// Whether a value has to be computed again before something can use it.
    fn missing(&self, v: ValueId) -> bool {
        !self.made.contains_key(&v) && !free(self.func, v) && (self.again)(v)
    }

    fn compute(&mut self, v: ValueId) {
        let mut stack = vec![v];
        while let Some(&v) = stack.last() {
            let node = self.func.def(v).map(|n| &self.func.nodes[n]);
            let Some(node) = node.filter(|_| self.missing(v)) else {
                stack.pop();
                continue;
            };
            let first: Vec<ValueId> =
                node.operands.iter().filter(|o| self.missing(**o)).copied().collect();
            if !first.is_empty() {
                stack.extend(first);
                continue;
            }
            stack.pop();
            let operands: Vec<ValueId> =
                node.operands.iter().map(|o| self.made.get(o).copied().unwrap_or(*o)).collect();
            let mut b = Builder::new(&mut self.out, &self.graph.vars);
            let mut spec = NodeSpec::new(node.op, &operands, node.attrs.clone(), node.span);
            spec.device = node.device.clone();
            // The same op on values of the same types.
            let new = b.node(spec).map_or(v, |new| self.out.nodes[new].results[0]);
            self.made.insert(v, new);
        }
    }
}
