//! Between graphs and e-graphs.
//!
//! The pure nodes of one region that run on one device make one e-graph. What
//! other nodes, nested regions and results need of it are its roots; what it
//! needs from outside are its inputs. The function is rebuilt by walking the
//! other nodes in their order and emitting what each needs just before it.

use super::analysis::{self, Event, Graph as EGraph, RuleId, TensorAnalysis};
use super::explain::{self, Explainer};
use super::extract::{Problem, Solution};
use super::lang::Node as ENode;
use super::rules;
use super::saturate::{Limits, saturate};
use super::{Options, Report};
use egg::{Id, Language};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::diag::Span;
use tfc_ir::op::Effect;
use tfc_ir::rule::Group;
use tfc_ir::{Attrs, Func, Graph, Node, NodeId, Op, RegionId, ValueId};

/// One e-graph and how it joins the function around it.
pub struct Seeded {
    pub g: EGraph,
    /// E-node of each value computed inside.
    pub values: BTreeMap<ValueId, Id>,
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

/// What becomes of each e-graph of a region.
pub type Plan<'a> = dyn FnMut(&Func, RegionId) -> Vec<(Seeded, Solution)> + 'a;

/// Whether a node may be rewritten.
pub fn enters(node: &Node) -> bool {
    node.op.def().effect == Effect::Pure
        && node.regions.is_empty()
        && node.results.len() == 1
        && node.after.is_empty()
        && node.var.is_none()
        && node.op != Op::Grad
}

/// Puts the pure nodes of a region into one e-graph per device. `keep` may
/// narrow that to some of them.
pub fn seed(
    func: &Func,
    region: RegionId,
    keep: &dyn Fn(NodeId) -> bool,
) -> BTreeMap<Device, Seeded> {
    let mut home: BTreeMap<ValueId, Device> = BTreeMap::new();
    let mut out: BTreeMap<Device, Seeded> = BTreeMap::new();
    let mut depth: BTreeMap<ValueId, usize> = BTreeMap::new();
    let region = &func.regions[region];
    for &id in &region.nodes {
        let node = &func.nodes[id];
        if !enters(node) || !keep(id) {
            continue;
        }
        let s = out.entry(node.device.clone()).or_insert_with(|| Seeded {
            g: EGraph::new(TensorAnalysis::default()),
            values: BTreeMap::new(),
            inputs: vec![],
            roots: vec![],
            source: BTreeMap::new(),
            seed: 0,
            depth: 0,
        });
        let args: Vec<Id> = node.operands.iter().map(|v| s.value(func, *v)).collect();
        let Some(value) = s.add(node, id, &args) else { continue };
        s.values.insert(node.results[0], value);
        home.insert(node.results[0], node.device.clone());
        let below = node.operands.iter().filter_map(|v| depth.get(v)).max().copied().unwrap_or(0);
        depth.insert(node.results[0], below + 1);
        s.depth = s.depth.max(below + 1);
    }
    // Everything not inside that uses a value makes it a root.
    let mut used: BTreeSet<ValueId> = region.results.iter().copied().collect();
    for &id in &region.nodes {
        let node = &func.nodes[id];
        let inside = |s: &Seeded| node.results.first().is_some_and(|r| s.values.contains_key(r));
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
        s.g.rebuild();
        s.seed = s.g.nodes().len();
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

impl Seeded {
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

/// Rewrites one function region by region.
pub fn rewrite(graph: &Graph, func: &Func, options: &Options, report: &mut Report) -> Func {
    let mut groups = vec![Group::V];
    if !options.expand_only {
        groups.extend([Group::C, Group::D]);
    }
    let mut rule_ids = rules::ids(&groups);
    rule_ids.retain(|id| !options.disabled.contains(rules::name(*id)));
    let mut plan = |func: &Func, region: RegionId| {
        let mut parts = vec![];
        for (device, mut s) in seed(func, region, &|_| true) {
            let limits = Limits {
                nodes: 20_000.max(8 * s.seed),
                rounds: 64.max(3 * s.depth),
                matches: 20_000,
            };
            let stats = saturate(&mut s.g, &rule_ids, options.mode, limits);
            report.stats.absorb(&stats);
            report.seed += s.seed;
            if let Some(conflict) = s.g.analysis.conflict.take() {
                debug_assert!(false, "unsound rule: {conflict}");
                report.conflicts.push(conflict);
                if let Some(again) = seed(func, region, &|_| true).remove(&device) {
                    s = again;
                }
            }
            let problem = Problem::new(&s.g, &s.root_ids(), s.seed, options.model);
            let solution = problem.solve();
            report.add_totals(solution.before, solution.after);
            report.changed |= solution.swaps > 0;
            if options.explain {
                let explainer = Explainer::new(&s, func);
                explain::region(&explainer, &solution, &mut report.explanations);
            }
            parts.push((s, solution));
        }
        parts
    };
    rebuild(graph, func, &mut plan)
}

/// Emits a function anew: nodes outside e-graphs as they were, the rest as the
/// solutions say.
pub fn rebuild(graph: &Graph, func: &Func, plan: &mut Plan<'_>) -> Func {
    let mut out = Func::new(&func.name);
    out.doc = func.doc.clone();
    out.result_names = func.result_names.clone();
    out.span = func.span;
    let body = out.body;
    let mut r = Rebuild {
        old: func,
        builder: Builder::new(&mut out, &graph.vars),
        values: BTreeMap::new(),
        nodes: BTreeMap::new(),
        plan,
    };
    r.region(func.body, body);
    out
}

struct Rebuild<'a> {
    old: &'a Func,
    builder: Builder<'a>,
    values: BTreeMap<ValueId, ValueId>,
    nodes: BTreeMap<NodeId, NodeId>,
    plan: &'a mut Plan<'a>,
}

/// An e-graph being emitted.
struct Part {
    s: Seeded,
    solution: Solution,
    emitted: BTreeMap<Id, ValueId>,
    names: BTreeMap<Id, Arc<str>>,
    spans: BTreeMap<Id, Span>,
    device: Device,
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
        let mut parts: Vec<Part> = (self.plan)(old, from)
            .into_iter()
            .map(|(s, solution)| Part::new(old, s, solution))
            .collect();
        for &id in &old.regions[from].nodes {
            let node = &old.nodes[id];
            if parts.iter().any(|p| node.results.first().is_some_and(|r| p.s.holds(*r))) {
                continue;
            }
            let mut needs = BTreeSet::new();
            uses_of(old, id, &mut needs);
            for v in needs {
                self.demand(&mut parts, v);
            }
            self.copy(id);
        }
        for &v in &old.regions[from].results {
            self.demand(&mut parts, v);
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
        };
        // It was well-typed before, and its operands have the types they had.
        let new = self.builder.node(spec);
        let new = new.unwrap_or_else(|e| unreachable!("copying `{}`: {e:?}", node.op.name()));
        self.nodes.insert(id, new);
        for (old, at) in node.results.iter().zip(0..) {
            let value = self.builder.func.nodes[new].results[at];
            self.builder.func.values[value].name = self.old.values[*old].name.clone();
            self.values.insert(*old, value);
        }
    }

    /// Emits whatever computes a value, if it is not there yet.
    fn demand(&mut self, parts: &mut Vec<Part>, v: ValueId) {
        if self.values.contains_key(&v) {
            return;
        }
        let Some(at) = parts.iter().position(|p| p.s.roots.contains(&v)) else { return };
        let class = parts[at].class_of(v);
        self.emit(parts, at, class);
        if let Some(new) = parts[at].emitted.get(&class) {
            self.values.insert(v, *new);
        }
    }

    fn emit(&mut self, parts: &mut Vec<Part>, at: usize, class: Id) {
        let mut stack = vec![class];
        while let Some(&class) = stack.last() {
            if parts[at].emitted.contains_key(&class) {
                stack.pop();
                continue;
            }
            let (node, _) = parts[at].solution.nodes[&class].clone();
            let missing: Vec<Id> = node
                .children()
                .iter()
                .filter(|a| !parts[at].emitted.contains_key(a))
                .copied()
                .collect();
            if !missing.is_empty() {
                stack.extend(missing.into_iter().rev());
                continue;
            }
            stack.pop();
            let value = match &node {
                ENode::Input(n) => {
                    let outside = parts[at].s.inputs[*n as usize];
                    self.demand(parts, outside);
                    self.values[&outside]
                }
                ENode::Op { op, attrs, args } => {
                    let part = &parts[at];
                    let operands: Vec<ValueId> = args.iter().map(|a| part.emitted[a]).collect();
                    let attrs: Attrs = part.s.g.analysis.attrs.get(*attrs).clone();
                    let span = part.spans.get(&class).copied().unwrap_or(Span::NONE);
                    let mut spec = NodeSpec::new(*op, &operands, attrs, span);
                    spec.device = part.device.clone();
                    let new = self.builder.node(spec);
                    let new = new.unwrap_or_else(|e| unreachable!("`{}`: {e:?}", op.name()));
                    let value = self.builder.func.nodes[new].results[0];
                    self.builder.func.values[value].name = part.names.get(&class).cloned();
                    value
                }
                ENode::Vjp { .. } => unreachable!("gradient terms are never chosen"),
            };
            parts[at].emitted.insert(class, value);
        }
    }
}

impl Seeded {
    /// Whether the value is computed in this e-graph.
    fn holds(&self, v: ValueId) -> bool {
        self.values.contains_key(&v) && !self.inputs.contains(&v)
    }
}

impl Part {
    fn new(old: &Func, s: Seeded, solution: Solution) -> Part {
        let mut names = BTreeMap::new();
        for (v, id) in &s.values {
            if let Some(name) = &old.values[*v].name
                && s.holds(*v)
            {
                names.entry(s.g.find(*id)).or_insert_with(|| name.clone());
            }
        }
        let explainer = Explainer::new(&s, old);
        let spans = solution
            .nodes
            .iter()
            .filter_map(|(class, (_, id))| {
                let at = explainer.origin(*id)?;
                Some((*class, old.nodes[at].span))
            })
            .collect();
        let device = s.source.values().next().and_then(|n| old.nodes[*n].device.clone());
        Part { s, solution, emitted: BTreeMap::new(), names, spans, device }
    }

    fn class_of(&self, v: ValueId) -> Id {
        self.s.g.find(self.s.values[&v])
    }
}
