//! Where every emitted node came from: the source line and the rules between.
//!
//! Every equality the e-graph learnt is an event between two nodes, made by a
//! rule; nodes with equal operands are equal without one. The shortest way from
//! an emitted node to one of the source program, over these, is its
//! explanation. A node no rule made equal to a source node stands inside the
//! right-hand side of one: it is explained by that rule and where it applied.
//! Operands are explained at their own nodes.

use super::analysis::RuleId;
use super::lang::Node as ENode;
use super::region::{Seeded, Traces};
use super::rules;
use egg::{Id, Language};
use std::collections::{BTreeMap, VecDeque};
use tfc_ir::diag::{SourceMap, Span};
use tfc_ir::op::Moves;
use tfc_ir::{Func, NodeId, Op};

#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub func: String,
    /// Name of the value, if the user gave it one.
    pub name: Option<String>,
    /// Op and type, as in `mul: f32[B, 10]`.
    pub node: String,
    /// Op of the source node it goes back to.
    pub from: String,
    pub span: Span,
    /// Rules in the order they were applied.
    pub steps: Vec<&'static str>,
}

/// The node of the old function an emitted node goes back to, and the rules
/// between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub from: Option<NodeId>,
    pub steps: Vec<&'static str>,
}

pub struct Explainer<'a> {
    s: &'a Seeded,
    edges: BTreeMap<Id, Vec<(Id, RuleId)>>,
    /// Numbers of the nodes that are equal because their operands are.
    twins: BTreeMap<ENode, Vec<Id>>,
}

/// Rules between a source node and an emitted one are few; this bounds a walk
/// over right-hand sides inside right-hand sides.
const LONGEST: usize = 64;

impl<'a> Explainer<'a> {
    pub fn new(s: &'a Seeded) -> Explainer<'a> {
        let mut edges: BTreeMap<Id, Vec<(Id, RuleId)>> = BTreeMap::new();
        for e in &s.g.analysis.events {
            edges.entry(e.from).or_default().push((e.to, e.rule));
            edges.entry(e.to).or_default().push((e.from, e.rule));
        }
        let mut twins: BTreeMap<ENode, Vec<Id>> = BTreeMap::new();
        for (i, node) in s.g.nodes().iter().enumerate() {
            let node = node.clone().map_children(|a| s.g.find(a));
            twins.entry(node).or_default().push(Id::from(i));
        }
        Explainer { s, edges, twins }
    }

    /// Source node and rules that lead from it to `id`.
    pub fn trace(&self, id: Id) -> Trace {
        let mut steps: Vec<&'static str> = vec![];
        let mut id = id;
        for _ in 0..LONGEST {
            let (end, way) = self.nearest(id);
            steps.extend(way.into_iter().map(rules::name));
            if let Some(at) = self.s.source.get(&end) {
                steps.reverse();
                return Trace { from: Some(*at), steps };
            }
            let (rule, at) = self.s.g.analysis.made_by[usize::from(end)];
            if rule == RuleId::SOURCE || at == end {
                break;
            }
            steps.push(rules::name(rule));
            id = at;
        }
        steps.reverse();
        Trace { from: origin(self.s, id), steps }
    }

    /// The nearest source node equal to `id`, or `id` itself; and the rules on
    /// the way there.
    fn nearest(&self, id: Id) -> (Id, Vec<RuleId>) {
        let mut from: BTreeMap<Id, Option<(Id, Option<RuleId>)>> = BTreeMap::from([(id, None)]);
        let mut queue = VecDeque::from([id]);
        while let Some(at) = queue.pop_front() {
            if self.s.source.contains_key(&at) {
                let mut way = vec![];
                let mut here = at;
                while let Some(Some((back, rule))) = from.get(&here) {
                    way.extend(*rule);
                    here = *back;
                }
                way.reverse();
                return (at, way);
            }
            let node = self.s.g.nodes()[usize::from(at)].clone();
            let node = node.map_children(|a| self.s.g.find(a));
            for &twin in self.twins.get(&node).into_iter().flatten() {
                from.entry(twin).or_insert_with(|| {
                    queue.push_front(twin);
                    Some((at, None))
                });
            }
            for &(next, rule) in self.edges.get(&at).into_iter().flatten() {
                from.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    Some((at, Some(rule)))
                });
            }
        }
        (id, vec![])
    }
}

/// The source node an e-node goes back to, following who made it.
pub fn origin(s: &Seeded, mut id: Id) -> Option<NodeId> {
    for _ in 0..LONGEST {
        if let Some(at) = s.source.get(&id) {
            return Some(*at);
        }
        let (rule, at) = *s.g.analysis.made_by.get(usize::from(id))?;
        if rule == RuleId::SOURCE || at == id {
            return None;
        }
        id = at;
    }
    None
}

/// Traces over two rewrites, one after the other.
pub fn join(first: &Traces, second: Traces) -> Traces {
    let through = |t: Trace| match t.from.and_then(|n| first.get(&n)) {
        Some(before) => {
            let steps = before.steps.iter().chain(&t.steps).copied().collect();
            Trace { from: before.from, steps }
        }
        None => Trace { from: None, steps: t.steps },
    };
    second.into_iter().map(|(n, t)| (n, through(t))).collect()
}

/// Explains every node of a rewritten function that is not a literal, in the
/// order of the text.
pub fn function(old: &Func, new: &Func, traces: &Traces, out: &mut Vec<Explanation>) {
    new.walk(&mut |id, node| {
        let literal = node.op == Op::Const
            || node.op.def().facts.moves == Moves::Repeated
                && new.def(node.operands[0]).is_some_and(|d| new.nodes[d].op == Op::Const);
        let Some(trace) = traces.get(&id).filter(|_| !literal) else { return };
        let source = trace.from.map(|n| &old.nodes[n]);
        let from = match source {
            Some(n) if n.op == Op::Vjp => {
                format!("vjp.{}.{}", n.attrs.str("of"), n.attrs.int("wrt"))
            }
            Some(n) => n.op.name().to_string(),
            None => "?".to_string(),
        };
        let value = node.results.first();
        out.push(Explanation {
            func: new.name.clone(),
            name: value.and_then(|v| new.values[*v].name.as_ref()).map(|n| n.to_string()),
            node: match value {
                Some(v) => format!("{}: {}", node.op.name(), new.ty(*v)),
                None => node.op.name().to_string(),
            },
            from,
            span: source.map_or(Span::NONE, |n| n.span),
            steps: trace.steps.clone(),
        });
    });
}

/// One line per node; of the initialiser, only what differs from the source.
pub fn text(list: &[Explanation], sources: &SourceMap) -> String {
    let mut out = String::new();
    for e in list.iter().filter(|e| e.func != "init" || !e.steps.is_empty()) {
        let place = place(e.span, sources).map_or(String::new(), |p| format!(" at {p}"));
        let steps = match e.steps.is_empty() {
            true => "as written".to_string(),
            false => e.steps.join(" > "),
        };
        let name = e.name.as_ref().map_or(String::new(), |n| format!("{n} = "));
        out.push_str(&format!("{}: {name}{} <- {}{place}: {steps}\n", e.func, e.node, e.from));
    }
    out
}

/// The same as JSON, one object a line.
pub fn json(list: &[Explanation], sources: &SourceMap) -> String {
    let quote = |s: &str| {
        let mut out = String::from("\"");
        for c in s.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
                c => out.push(c),
            }
        }
        out + "\""
    };
    let mut out = String::new();
    for e in list {
        let steps: Vec<String> = e.steps.iter().map(|s| quote(s)).collect();
        let at = place(e.span, sources).map_or("null".to_string(), |p| quote(&p));
        out.push_str(&format!(
            "{{\"entry\":{},\"name\":{},\"node\":{},\"from\":{},\"at\":{at},\"rules\":[{}]}}\n",
            quote(&e.func),
            e.name.as_ref().map_or("null".to_string(), |n| quote(n)),
            quote(&e.node),
            quote(&e.from),
            steps.join(",")
        ));
    }
    out
}

/// `file:line:column`.
fn place(span: Span, sources: &SourceMap) -> Option<String> {
    let file = sources.files.get(span.file as usize)?;
    let before = file.text.get(..span.lo as usize)?;
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    Some(format!("{}:{line}:{column}", file.name))
}
