//! Between graphs and e-graphs.
//!
//! The pure nodes of one region that run on one device make one e-graph. What
//! other nodes, nested regions and results need of it are its roots; what it
//! needs from outside are its inputs. What is chosen from it is a [`Piece`]; the
//! function is rebuilt by walking the old nodes in their order and emitting what
//! a piece made of each where that stood. So the order, and with it how long
//! values live, stays that of the source: gradients are written out in the order
//! they are taken, not in the order updates ask for them.
//!
//! Invariant: a root of a piece reads only inputs that are defined before the
//! root was in the text. Equalities could lead to others; then the piece is left
//! as it was.

use super::analysis::{self, Event, Graph as EGraph, RuleId, TensorAnalysis};
use super::explain::{self, Explainer, Trace};
use super::extract::{Problem, Solution};
use super::lang::Node as ENode;
use super::rules;
use super::saturate::{Limits, saturate};
use super::{Report, Rewriting};
use egg::{Id, Language};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::op::Effect;
use tfc_ir::rule::Search;
use tfc_ir::{Attrs, Func, Graph, Node, NodeId, Op, RegionId, ValueId};

/// One e-graph and how it joins the function around it.
pub struct Seeded {
    pub g: EGraph,
    /// E-node of each value inside.
    pub values: BTreeMap<ValueId, Id>,
    /// Those of them that are not inputs.
    pub computed: BTreeSet<ValueId>,
    /// Values from outside, by input number.
    pub inputs: Vec<ValueId>,
    pub roots: Vec<ValueId>,
    /// Where e-nodes of the source program came from.
    pub source: BTreeMap<Id, NodeId>,
    /// E-nodes the source program has.
    pub seed: usize,
    pub depth: usize,
}

type Device = Option<Arc<str>>;

/// Whether a node may be rewritten.
pub fn enters(node: &Node) -> bool {
    node.op.def().effect == Effect::Pure
        && node.regions.is_empty()
        && node.results.len() == 1
        && node.after.is_empty()
        && node.var.is_none()
        && node.op != Op::Grad
}

/// Puts the pure nodes of a region into one e-graph per device.
pub fn seed(func: &Func, region: RegionId) -> BTreeMap<Device, Seeded> {
    let mut home: BTreeMap<ValueId, Device> = BTreeMap::new();
    let mut out: BTreeMap<Device, Seeded> = BTreeMap::new();
    let mut depth: BTreeMap<ValueId, usize> = BTreeMap::new();
    let region = &func.regions[region];
    for &id in &region.nodes {
        let node = &func.nodes[id];
        if !enters(node) {
            continue;
        }
        let s = out.entry(node.device.clone()).or_default();
        if s.put(func, id).is_none() {
            continue;
        }
        s.computed.insert(node.results[0]);
        home.insert(node.results[0], node.device.clone());
        let below = node.operands.iter().filter_map(|v| depth.get(v)).max().copied().unwrap_or(0);
        depth.insert(node.results[0], below + 1);
        s.depth = s.depth.max(below + 1);
    }
    // Everything not inside that uses a value makes it a root.
    let mut used: BTreeSet<ValueId> = region.results.iter().copied().collect();
    for &id in &region.nodes {
        let node = &func.nodes[id];
        let inside = |s: &Seeded| node.results.first().is_some_and(|r| s.computed.contains(r));
        match out.get(&node.device).filter(|s| inside(s)) {
            None => uses_of(func, id, &mut used),
            // Another device's e-graph has it as an input.
            Some(_) => used.extend(
                node.operands.iter().filter(|v| home.get(v).is_some_and(|d| *d != node.device)),
            ),
        }
    }
    for v in used {
        if let Some(s) = home.get(&v).and_then(|d| out.get_mut(d)) {
            s.roots.push(v);
        }
    }
    for s in out.values_mut() {
        s.finish();
    }
    out
}

/// Values a node and the regions under it use.
pub fn uses_of(func: &Func, id: NodeId, used: &mut BTreeSet<ValueId>) {
    let node = &func.nodes[id];
    used.extend(&node.operands);
    for &region in &node.regions {
        used.extend(&func.regions[region].results);
        for &inner in &func.regions[region].nodes {
            uses_of(func, inner, used);
        }
    }
}

impl Default for Seeded {
    fn default() -> Seeded {
        Seeded {
            g: EGraph::new(TensorAnalysis::default()),
            values: BTreeMap::new(),
            computed: BTreeSet::new(),
            inputs: vec![],
            roots: vec![],
            source: BTreeMap::new(),
            seed: 0,
            depth: 0,
        }
    }
}

impl Seeded {
    /// Adds a node whose operands are inside, or become inputs.
    pub fn put(&mut self, func: &Func, id: NodeId) -> Option<()> {
        let node = &func.nodes[id];
        let args: Vec<Id> = node.operands.iter().map(|v| self.value(func, *v)).collect();
        let value = self.add(node, id, &args)?;
        self.values.insert(node.results[0], value);
        Some(())
    }

    /// The source program is complete.
    pub fn finish(&mut self) {
        self.g.rebuild();
        self.seed = self.g.nodes().len();
    }

    fn value(&mut self, func: &Func, v: ValueId) -> Id {
        if let Some(id) = self.values.get(&v) {
            return *id;
        }
        let number = self.inputs.len() as u32;
        self.inputs.push(v);
        let id = analysis::add_input(&mut self.g, number, func.ty(v));
        let class = self.g.find(id);
        self.g[class].data.user = true;
        self.values.insert(v, id);
        id
    }

    /// A gradient term is added and written out at once: the written-out form
    /// is the source program as far as extraction is concerned.
    fn add(&mut self, node: &Node, at: NodeId, args: &[Id]) -> Option<Id> {
        let g = &mut self.g;
        if node.op != Op::Vjp {
            let attrs = g.analysis.attrs.intern(node.attrs.clone());
            let id = analysis::add_interned(g, node.op, attrs, args).ok()?;
            self.source.entry(id).or_insert(at);
            // Sums of gradient terms are gradients; all else was written.
            let sum = node.op == Op::Add && args.iter().any(|a| !g[*a].data.user);
            let class = g.find(id);
            g[class].data.user |= !sum;
            return Some(id);
        }
        let (op, wrt, attrs) = tfc_ir::vjp::term_of(&node.attrs)?;
        let attrs = g.analysis.attrs.intern(attrs);
        let term = analysis::add_vjp(g, op, wrt, attrs, args)?;
        self.source.entry(term).or_insert(at);
        let enode = ENode::Vjp { op, wrt: wrt as u8, attrs, args: args.into() };
        let rule = rules::vjp_rule(op, wrt)?;
        (g.analysis.rule, g.analysis.at) = (rule, term);
        let value = rules::expand_vjp(g, &enode);
        g.analysis.rule = RuleId::SOURCE;
        let value = value?;
        if g.find(value) != g.find(term) {
            g.analysis.events.push(Event { from: term, to: value, rule });
            g.union(term, value);
        }
        Some(value)
    }

    pub fn root_ids(&self) -> Vec<Id> {
        self.roots.iter().map(|v| self.values[v]).collect()
    }
}

/// A rewritten part of a region.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// What it computes; each node reads earlier ones only.
    pub nodes: Vec<PieceNode>,
    /// The node that gives a value of the old function.
    pub roots: BTreeMap<ValueId, usize>,
    /// Values of the old function it replaces.
    pub holds: BTreeSet<ValueId>,
    pub device: Device,
}

#[derive(Clone, Debug)]
pub struct PieceNode {
    pub what: What,
    /// The old value whose name it takes.
    pub named: Option<ValueId>,
    /// The old node it goes back to.
    pub from: Option<NodeId>,
    /// Rules between that and this, if they were asked for.
    pub steps: Vec<&'static str>,
}

#[derive(Clone, Debug)]
pub enum What {
    Input(ValueId),
    Op { op: Op, attrs: Attrs, args: Vec<usize> },
}

/// What becomes of each region: `None` leaves it as it is.
pub type Plan<'a> = dyn FnMut(&Func, RegionId) -> Option<Vec<Piece>> + 'a;

/// Where the nodes of a rebuilt function came from.
pub type Traces = BTreeMap<NodeId, Trace>;

/// Traces of a function in which every node stands for itself.
pub fn untouched(func: &Func) -> Traces {
    let mut out = Traces::new();
    func.walk(&mut |id, _| {
        out.insert(id, Trace { from: Some(id), steps: vec![] });
    });
    out
}

/// Rewrites one function region by region; `None` if that changes nothing.
pub fn rewrite(
    graph: &Graph,
    func: &Func,
    options: &Rewriting,
    report: &mut Report,
) -> Option<(Func, Traces)> {
    let mut groups = vec![Search::Gradients];
    if !options.expand_only {
        groups.extend([Search::Whole, Search::Broadcasts]);
    }
    let mut rule_ids = rules::ids(&groups);
    rule_ids.retain(|id| !options.disabled.contains(rules::name(*id)));
    let mut changed = false;
    let mut plan = |func: &Func, region: RegionId| {
        let mut pieces = vec![];
        let positions = positions(func, region);
        for (device, mut s) in seed(func, region) {
            let limits = Limits {
                nodes: 2_000.max(8 * s.seed),
                rounds: 64.max(3 * s.depth),
                matches: 20_000.max(s.seed),
            };
            let stats = saturate(&mut s.g, &rule_ids, options.mode, limits);
            report.stats.absorb(&stats);
            report.seed += s.seed;
            if let Some(conflict) = s.g.analysis.conflict.take() {
                debug_assert!(false, "unsound rule: {conflict}");
                report.conflicts.push(conflict);
                if let Some(again) = seed(func, region).remove(&device) {
                    s = again;
                }
            }
            let (solution, piece) = choose(func, &positions, &s, options);
            report.add_totals(solution.before, solution.after);
            changed |= !as_written(func, &s, &solution);
            pieces.push(piece);
        }
        Some(pieces)
    };
    let out = rebuild(graph, func, &mut plan);
    report.changed |= changed;
    changed.then_some(out)
}

/// The best program in an e-graph that can stand where the old one stood.
pub fn choose(
    func: &Func,
    positions: &Positions,
    s: &Seeded,
    options: &Rewriting,
) -> (Solution, Piece) {
    let problem = Problem::new(&s.g, &s.root_ids(), s.seed, options.model);
    if !options.expand_only {
        let solution = problem.solve();
        let piece = piece(func, s, &solution, options.explain);
        if in_order(positions, &piece) {
            return (solution, piece);
        }
    }
    let solution = problem.source();
    let piece = piece(func, s, &solution, options.explain);
    (solution, piece)
}

/// Where in the region's text a value is defined; those from outside are before
/// all of it.
pub type Positions = BTreeMap<ValueId, usize>;

pub fn positions(func: &Func, region: RegionId) -> Positions {
    let mut out = Positions::new();
    for (at, id) in func.regions[region].nodes.iter().enumerate() {
        out.extend(func.nodes[*id].results.iter().map(|v| (*v, at + 1)));
    }
    out
}

/// Whether every root reads only what is defined before it.
pub fn in_order(positions: &Positions, piece: &Piece) -> bool {
    let at = |v: &ValueId| positions.get(v).copied().unwrap_or(0);
    let mut latest: Vec<usize> = vec![];
    for node in &piece.nodes {
        latest.push(match &node.what {
            What::Input(v) => at(v),
            What::Op { args, .. } => args.iter().map(|a| latest[*a]).max().unwrap_or(0),
        });
    }
    piece.roots.iter().all(|(v, node)| latest[*node] < at(v))
}

/// Where in the region's text each node of a piece goes: where the node it goes
/// back to was, but after all it reads.
fn places(func: &Func, positions: &Positions, piece: &Piece) -> Vec<usize> {
    let at = |v: &ValueId| positions.get(v).copied().unwrap_or(0);
    let mut out: Vec<usize> = vec![];
    for node in &piece.nodes {
        out.push(match &node.what {
            What::Input(v) => at(v),
            What::Op { args, .. } => {
                let source = node.from.and_then(|n| func.nodes[n].results.first());
                args.iter().map(|a| out[*a]).max().max(source.map(at)).unwrap_or(0)
            }
        });
    }
    out
}

/// Classes of a solution, operands first.
fn order(s: &Seeded, solution: &Solution) -> Vec<Id> {
    let (mut out, mut done) = (vec![], BTreeSet::new());
    for root in s.root_ids() {
        let mut stack = vec![(s.g.find(root), false)];
        while let Some((class, ready)) = stack.pop() {
            if done.contains(&class) {
                continue;
            }
            if ready {
                done.insert(class);
                out.push(class);
                continue;
            }
            stack.push((class, true));
            let children = solution.nodes[&class].0.children();
            stack.extend(children.iter().rev().filter(|a| !done.contains(a)).map(|a| (*a, false)));
        }
    }
    out
}

/// Whether the solution is the old program: the same nodes, and no two of them
/// became one.
fn as_written(func: &Func, s: &Seeded, solution: &Solution) -> bool {
    let mut needed: BTreeSet<ValueId> = BTreeSet::new();
    let mut stack: Vec<ValueId> = s.roots.clone();
    let mut classes = BTreeSet::new();
    while let Some(v) = stack.pop() {
        if !needed.insert(v) {
            continue;
        }
        let class = s.g.find(s.values[&v]);
        let Some(def) = func.def(v).filter(|_| s.computed.contains(&v)) else { continue };
        let node = &func.nodes[def];
        if node.op == Op::Vjp || !classes.insert(class) {
            return false;
        }
        let mine = s.g.nodes()[usize::from(s.values[&v])].clone();
        match solution.nodes.get(&class) {
            Some((chosen, _)) if *chosen == mine.map_children(|a| s.g.find(a)) => {}
            _ => return false,
        }
        stack.extend(&node.operands);
    }
    true
}

/// What was chosen, apart from the e-graph it was chosen from.
pub fn piece(func: &Func, s: &Seeded, solution: &Solution, explain: bool) -> Piece {
    let mut names: BTreeMap<Id, ValueId> = BTreeMap::new();
    for v in s.computed.iter().filter(|v| func.values[**v].name.is_some()) {
        names.entry(s.g.find(s.values[v])).or_insert(*v);
    }
    let explainer = explain.then(|| Explainer::new(s));
    let mut at: BTreeMap<Id, usize> = BTreeMap::new();
    let mut out = Piece { holds: s.computed.clone(), ..Piece::default() };
    for class in order(s, solution) {
        let (node, id) = &solution.nodes[&class];
        let what = match node {
            ENode::Input(n) => What::Input(s.inputs[*n as usize]),
            ENode::Op { op, attrs, args } => What::Op {
                op: *op,
                attrs: s.g.analysis.attrs.get(*attrs).clone(),
                args: args.iter().map(|a| at[a]).collect(),
            },
            ENode::Vjp { .. } => unreachable!("gradient terms are never chosen"),
        };
        let Trace { from, steps } = match &explainer {
            Some(explainer) => explainer.trace(*id),
            None => Trace { from: explain::origin(s, *id), steps: vec![] },
        };
        at.insert(class, out.nodes.len());
        out.nodes.push(PieceNode { what, named: names.get(&class).copied(), from, steps });
    }
    out.roots = s.roots.iter().map(|v| (*v, at[&s.g.find(s.values[v])])).collect();
    out.device = s.source.values().next().and_then(|n| func.nodes[*n].device.clone());
    out
}

/// Emits a function anew: nodes outside pieces as they were, the rest as the
/// pieces say.
pub fn rebuild(graph: &Graph, func: &Func, plan: &mut Plan<'_>) -> (Func, Traces) {
    let mut out = Func::new(&func.name);
    out.doc = func.doc.clone();
    out.result_names = func.result_names.clone();
    out.runner = func.runner;
    out.replica = func.replica;
    out.needs = func.needs.clone();
    out.task = func.task.clone();
    out.span = func.span;
    let body = out.body;
    let mut r = Rebuild {
        old: func,
        builder: Builder::new(&mut out, &graph.vars),
        values: BTreeMap::new(),
        nodes: BTreeMap::new(),
        traces: BTreeMap::new(),
        plan,
    };
    r.region(func.body, body);
    let traces = r.traces;
    (out, traces)
}

struct Rebuild<'a> {
    old: &'a Func,
    builder: Builder<'a>,
    values: BTreeMap<ValueId, ValueId>,
    nodes: BTreeMap<NodeId, NodeId>,
    traces: Traces,
    plan: &'a mut Plan<'a>,
}

/// A piece being emitted.
struct Part {
    piece: Piece,
    emitted: Vec<Option<ValueId>>,
}

impl Rebuild<'_> {
    fn region(&mut self, from: RegionId, to: RegionId) {
        let old = self.old;
        let outer = std::mem::replace(&mut self.builder.region, to);
        for &p in &old.regions[from].params {
            let value = &old.values[p];
            let new = self.builder.param(value.ty.clone(), value.name.clone());
            self.values.insert(p, new);
        }
        let pieces = (self.plan)(old, from).unwrap_or_default();
        let mut home: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (i, piece) in pieces.iter().enumerate() {
            home.extend(piece.holds.iter().map(|v| (*v, i)));
        }
        let positions = positions(old, from);
        let mut parts: Vec<Part> = vec![];
        // What to emit after the node at each place; 0 is before all of them.
        let mut due: Vec<Vec<(usize, usize)>> = vec![vec![]; old.regions[from].nodes.len() + 1];
        for piece in pieces {
            for (index, place) in places(old, &positions, &piece).into_iter().enumerate() {
                due[place].push((parts.len(), index));
            }
            parts.push(Part { emitted: vec![None; piece.nodes.len()], piece });
        }
        for (place, due) in due.into_iter().enumerate() {
            if let Some(&id) = place.checked_sub(1).and_then(|i| old.regions[from].nodes.get(i)) {
                let node = &old.nodes[id];
                if !node.results.first().is_some_and(|r| home.contains_key(r)) {
                    let mut needs = BTreeSet::new();
                    uses_of(old, id, &mut needs);
                    for v in needs {
                        self.demand(&mut parts, &home, v);
                    }
                    self.copy(id);
                }
            }
            for (at, index) in due {
                self.emit(&mut parts, &home, at, index);
            }
        }
        for &v in &old.regions[from].results {
            self.demand(&mut parts, &home, v);
        }
        let results = old.regions[from].results.iter().map(|v| self.values[v]).collect();
        self.builder.func.regions[to].results = results;
        self.builder.region = outer;
    }

    /// Copies a node that is not rewritten, and the regions under it.
    fn copy(&mut self, id: NodeId) {
        let node = &self.old.nodes[id];
        let mut regions = vec![];
        for &r in &node.regions {
            let new = self.builder.func.regions.push(Default::default());
            self.region(r, new);
            regions.push(new);
        }
        let spec = NodeSpec {
            op: node.op,
            operands: node.operands.iter().map(|v| self.values[v]).collect(),
            attrs: node.attrs.clone(),
            var: node.var,
            regions,
            after: node.after.iter().filter_map(|n| self.nodes.get(n).copied()).collect(),
            device: node.device.clone(),
            span: node.span,
            site: node.site,
        };
        // It was well-typed before, and its operands have the types they had.
        let new = self.builder.node(spec);
        let new = new.unwrap_or_else(|e| unreachable!("copying `{}`: {e:?}", node.op.name()));
        self.nodes.insert(id, new);
        self.traces.insert(new, Trace { from: Some(id), steps: vec![] });
        for (old, at) in node.results.iter().zip(0..) {
            let value = self.builder.func.nodes[new].results[at];
            self.builder.func.values[value].name = self.old.values[*old].name.clone();
            self.values.insert(*old, value);
        }
    }

    /// Emits whatever computes a value, if it is not there yet.
    fn demand(&mut self, parts: &mut [Part], home: &BTreeMap<ValueId, usize>, v: ValueId) {
        if self.values.contains_key(&v) {
            return;
        }
        let Some(&at) = home.get(&v) else { return };
        let Some(&root) = parts[at].piece.roots.get(&v) else { return };
        self.emit(parts, home, at, root);
        if let Some(new) = parts[at].emitted[root] {
            self.values.insert(v, new);
        }
    }

    fn emit(
        &mut self,
        parts: &mut [Part],
        home: &BTreeMap<ValueId, usize>,
        at: usize,
        root: usize,
    ) {
        let mut stack = vec![root];
        while let Some(&index) = stack.last() {
            if parts[at].emitted[index].is_some() {
                stack.pop();
                continue;
            }
            let node = parts[at].piece.nodes[index].clone();
            let value = match node.what {
                What::Input(outside) => {
                    self.demand(parts, home, outside);
                    self.values[&outside]
                }
                What::Op { op, attrs, args } => {
                    let part = &parts[at];
                    let missing = args.iter().rev().filter(|a| part.emitted[**a].is_none());
                    let depth = stack.len();
                    stack.extend(missing.copied());
                    if stack.len() > depth {
                        continue;
                    }
                    let operands: Vec<ValueId> =
                        args.iter().filter_map(|a| part.emitted[*a]).collect();
                    let from = node.from.map(|n| self.old.nodes[n].origin()).unwrap_or_default();
                    let mut spec = NodeSpec::new(op, &operands, attrs, from.span);
                    spec.site = from.site;
                    spec.device = part.piece.device.clone();
                    let new = self.builder.node(spec);
                    let new = new.unwrap_or_else(|e| unreachable!("`{}`: {e:?}", op.name()));
                    let value = self.builder.func.nodes[new].results[0];
                    self.builder.func.values[value].name =
                        node.named.and_then(|v| self.old.values[v].name.clone());
                    self.traces.insert(new, Trace { from: node.from, steps: node.steps });
                    value
                }
            };
            stack.pop();
            parts[at].emitted[index] = Some(value);
        }
    }
}
