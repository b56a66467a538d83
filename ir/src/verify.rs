//! What holds of every graph, checked after every pass.
//!
//! A finding here is a bug in whatever built the graph, never something a user
//! did: the front end reports those in the user's words before this runs. Each
//! finding names the node and where it came from.
//!
//! Checked
//! - every node stands in exactly one region, every region under exactly one
//!   node, and values know who defines them;
//! - values are defined before they are used, in their region or one around it;
//! - operand kinds, attributes and result types are what the op's record and
//!   its `infer` say;
//! - ops are legal at the stage;
//! - variables are named by exactly the ops that have one, and have static
//!   shapes;
//! - `after` edges join effectful nodes of one region, the later to the earlier;
//! - every run-time dim in use is declared, and can be told from a parameter.

use crate::diag::{Diag, Span};
use crate::graph::{Def, Func, Graph, Node, NodeId, RegionId, ValueId, Var};
use crate::lower::{Lower, StepKind};
use crate::op::{Effect, Stage};
use crate::{Attr, DType, Dim, Op, TensorType, build};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything wrong with a graph at a stage; empty if it is well-formed.
pub fn verify(graph: &Graph, stage: Stage) -> Vec<Diag> {
    let mut diags = vec![];
    for (_, var) in graph.vars.iter() {
        if var.ty.static_shape().is_none() {
            diags.push(
                Diag::error(
                    CODE,
                    format!("variable `{}` has a run-time size: {}", var.name, var.ty),
                )
                .at(var.span, "declared here"),
            );
        }
    }
    let mut names = BTreeSet::new();
    for entry in &graph.entries {
        if !names.insert((entry.name.as_str(), entry.replica, &entry.task)) {
            diags.push(
                Diag::error(CODE, format!("two entries are named `{}`", entry.name))
                    .at(entry.span, "this one too"),
            );
        }
    }
    if !graph.init.params().is_empty() || !graph.init.results().is_empty() {
        diags.push(Diag::error(CODE, "the initialiser has parameters or results"));
    }
    for func in graph.entries.iter().filter(|f| f.runner) {
        if !func.params().is_empty() || !func.results().is_empty() {
            diags.push(
                Diag::error(CODE, format!("runner `{}` has parameters or results", func.name))
                    .at(func.span, "declared here"),
            );
        }
    }
    for func in std::iter::once(&graph.init).chain(&graph.entries) {
        let mut checker = Checker {
            graph,
            func,
            stage,
            diags: &mut diags,
            scope: vec![],
            visible: BTreeSet::new(),
            regions: BTreeSet::new(),
            nodes: BTreeSet::new(),
            bound: BTreeSet::new(),
        };
        checker.func();
        let known = diags.is_empty();
        diags.extend(crate::stacks::check(func).into_iter().filter(|_| known));
    }
    diags
}

/// Panics with the findings, naming the pass: for debug builds and tests.
pub fn assert_valid(graph: &Graph, stage: Stage, pass: &str) {
    let diags = verify(graph, stage);
    let text: Vec<String> = diags.iter().map(|d| d.message.clone()).collect();
    assert!(diags.is_empty(), "the graph is not well-formed after `{pass}`:\n{}", text.join("\n"));
}

/// The graph is not well-formed: a bug in tfc.
const CODE: &str = "E0999";

struct Checker<'a> {
    graph: &'a Graph,
    func: &'a Func,
    stage: Stage,
    diags: &'a mut Vec<Diag>,
    /// Values each open region defined so far.
    scope: Vec<Vec<ValueId>>,
    visible: BTreeSet<ValueId>,
    regions: BTreeSet<RegionId>,
    nodes: BTreeSet<NodeId>,
    /// Dims some parameter gives the value of.
    bound: BTreeSet<Arc<str>>,
}

impl<'a> Checker<'a> {
    fn report(&mut self, span: Span, message: String) {
        let name = if self.func.name.is_empty() { "the initialiser" } else { &self.func.name };
        self.diags.push(Diag::error(CODE, format!("in `{name}`: {message}")).at(span, "here"));
    }

    fn func(&mut self) {
        let func = self.func;
        for &param in func.params() {
            let Some(value) = func.values.get(param) else { continue };
            self.bound.extend(value.ty.shape.iter().filter_map(Dim::as_sym).cloned());
        }
        if func.results().len() != func.result_names.len() {
            self.report(
                func.span,
                format!(
                    "{} results, but {} result names",
                    func.results().len(),
                    func.result_names.len()
                ),
            );
        }
        self.region(func.body, func.span);
    }

    fn region(&mut self, id: RegionId, span: Span) {
        let func = self.func;
        let Some(region) = func.regions.get(id) else {
            return self.report(span, format!("there is no region {id}"));
        };
        if !self.regions.insert(id) {
            return self.report(span, format!("region {id} stands in two places"));
        }
        self.scope.push(vec![]);
        for (i, &param) in region.params.iter().enumerate() {
            match func.values.get(param) {
                Some(value) if value.def == Def::Param(id, i as u32) => {
                    self.dims(span, &value.ty.shape);
                    self.define(param);
                }
                Some(_) => self.report(span, format!("{param} does not know it is a parameter")),
                None => self.report(span, format!("there is no value {param}")),
            }
        }
        let mut earlier = BTreeMap::new();
        for (at, &node) in region.nodes.iter().enumerate() {
            let Some(n) = func.nodes.get(node) else {
                self.report(span, format!("there is no node {node}"));
                continue;
            };
            if !self.nodes.insert(node) {
                self.report(n.span, format!("{node} (`{}`) stands in two places", n.op.name()));
                continue;
            }
            self.node(node, n);
            self.after(n, &earlier);
            earlier.insert(node, at);
        }
        for &result in &region.results {
            self.used(result, span, "a region's result");
        }
        for value in self.scope.pop().unwrap_or_default() {
            self.visible.remove(&value);
        }
    }

    fn define(&mut self, value: ValueId) {
        self.visible.insert(value);
        if let Some(scope) = self.scope.last_mut() {
            scope.push(value);
        }
    }

    fn used(&mut self, value: ValueId, span: Span, by: &str) -> bool {
        let ok = self.visible.contains(&value);
        if !ok {
            self.report(span, format!("{by} uses {value}, which is not defined there"));
        }
        ok
    }

    fn node(&mut self, id: NodeId, node: &'a Node) {
        let func = self.func;
        let def = node.op.def();
        let what = format!("`{}`", def.name);
        if def.stage == Stage::Source && self.stage == Stage::Core {
            self.report(node.span, format!("{what} is not legal at this stage"));
        }
        if matches!(def.lower, Lower::Step(StepKind::Send | StepKind::Recv)) && func.task.is_none()
        {
            self.report(node.span, format!("{what} stands outside of the part of a task"));
        }
        let mut ok = true;
        for &operand in &node.operands {
            ok &= self.used(operand, node.span, &what);
        }
        for (name, attr) in node.attrs.iter() {
            // A gradient term also carries the attributes of its op.
            if node.op != Op::Vjp && def.attrs.iter().all(|spec| spec.name != name) {
                self.report(node.span, format!("{what} has no attribute `{name}`"));
            }
            if let Attr::Shape(shape) = attr {
                self.dims(node.span, shape);
            }
        }
        let var = match (node.var, def.effect) {
            (Some(var), Effect::Read | Effect::Write) => {
                let found = self.graph.vars.get(var);
                if found.is_none() {
                    self.report(node.span, format!("{what} names {var}, which is not there"));
                    ok = false;
                }
                found
            }
            (None, Effect::Read | Effect::Write) => {
                self.report(node.span, format!("{what} names no variable"));
                ok = false;
                None
            }
            (Some(_), _) => {
                self.report(node.span, format!("{what} names a variable"));
                None
            }
            (None, _) => None,
        };
        if node.regions.len() != def.regions.len() {
            self.report(
                node.span,
                format!(
                    "{what} has {} regions instead of {}",
                    node.regions.len(),
                    def.regions.len()
                ),
            );
            ok = false;
        }
        for &region in &node.regions {
            self.region(region, node.span);
            ok &= func.regions.get(region).is_some();
        }
        for (i, &result) in node.results.iter().enumerate() {
            match func.values.get(result) {
                Some(value) if value.def == Def::Node(id, i as u32) => {
                    self.dims(node.span, &value.ty.shape);
                    self.define(result);
                }
                Some(_) => {
                    self.report(node.span, format!("{result} does not know that {id} defines it"));
                }
                None => {
                    self.report(node.span, format!("there is no value {result}"));
                    ok = false;
                }
            }
        }
        if ok {
            self.types(node, var);
        }
    }

    fn types(&mut self, node: &'a Node, var: Option<&Var>) {
        let func = self.func;
        let types = |values: &[ValueId]| -> Option<Vec<TensorType>> {
            values.iter().map(|v| func.values.get(*v).map(|v| v.ty.clone())).collect()
        };
        let Some(operands) = types(&node.operands) else { return };
        let regions: Option<Vec<Vec<TensorType>>> =
            node.regions.iter().map(|r| types(&func.regions[*r].results)).collect();
        let (Some(regions), Some(results)) = (regions, types(&node.results)) else { return };
        let what = format!("`{}`", node.op.name());
        match build::infer(node.op, &operands, &node.attrs, var, &regions) {
            Ok(inferred) if inferred == results => {}
            Ok(inferred) => self.report(
                node.span,
                format!(
                    "{what} gives ({}), but is said to give ({})",
                    show(&inferred),
                    show(&results)
                ),
            ),
            Err(err) => self.report(node.span, err.message),
        }
        // What regions are given is not part of `infer`.
        for (i, &region) in node.regions.iter().enumerate() {
            let given = match (node.op, i) {
                (Op::If, _) => vec![],
                // The gradient also gets the value and what flows into it.
                (Op::CustomGrad, 1) => [&operands[..], &results, &results].concat(),
                _ => operands.clone(),
            };
            let Some(params) = types(&func.regions[region].params) else { continue };
            if params != given {
                self.report(
                    node.span,
                    format!(
                        "a region of {what} takes ({}), but is given ({})",
                        show(&params),
                        show(&given)
                    ),
                );
            }
        }
        if node.op == Op::If && operands != [TensorType::scalar(DType::Bool)] {
            self.report(node.span, format!("{what} needs one bool[]"));
        }
    }

    fn after(&mut self, node: &Node, earlier: &BTreeMap<NodeId, usize>) {
        if !node.after.is_empty() && !effectful(self.func, node) {
            self.report(
                node.span,
                format!("`{}` has no effect, so it cannot be ordered by `after`", node.op.name()),
            );
        }
        for &before in &node.after {
            let Some(target) = self.func.nodes.get(before) else {
                self.report(node.span, format!("`after` names {before}, which is not there"));
                continue;
            };
            if !earlier.contains_key(&before) {
                self.report(
                    node.span,
                    format!("`after` names {before}, which does not stand before it in its region"),
                );
            } else if !effectful(self.func, target) {
                self.report(
                    node.span,
                    format!("`after` names `{}`, which has no effect", target.op.name()),
                );
            }
        }
    }

    fn dims(&mut self, span: Span, shape: &[Dim]) {
        for sym in shape.iter().flat_map(Dim::syms) {
            if self.graph.dims.iter().all(|d| d.name != sym) {
                self.report(span, format!("the dim `{sym}` is not declared"));
            } else if !self.bound.contains(&sym) {
                self.report(span, format!("no parameter tells the value of the dim `{sym}`"));
            }
        }
    }
}

/// Whether running the node can be noticed: it, or something in its regions,
/// reads or writes state or talks to the world.
pub fn effectful(func: &Func, node: &Node) -> bool {
    node.op.def().effect != Effect::Pure
        || node.regions.iter().filter_map(|r| func.regions.get(*r)).any(|region| {
            region.nodes.iter().filter_map(|n| func.nodes.get(*n)).any(|n| effectful(func, n))
        })
}

fn show(types: &[TensorType]) -> String {
    types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
}
