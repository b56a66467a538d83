//! Gradients set apart, to be compared with finite differences.
//!
//! For each `grad` of an entry there is an entry that computes it at a point that
//! can be moved: to every value differentiated by, `v`, a parameter is added, so
//! that `v + delta` is used in its place. A second entry computes only what is
//! differentiated, with the results of `stop_gradient` given from outside: they
//! are constants to the gradient, so they must be to the differences.
//!
//! A `grad` inside control flow is set apart in one run of its block: [`inside`].
//!
//! Everything is in `f64`, whatever the graph says.

pub mod inside;

use crate::differentiate::differentiate;
use crate::pipeline::PassOptions;
use crate::restrict::fetch;
use crate::util::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::diag::{Diag, Span};
use tfc_ir::graph::Def;
use tfc_ir::op::Effect;
use tfc_ir::{
    Attr, Attrs, DType, Func, Graph, NodeId, Op, RegionId, Tensor, TensorType, ValueId, VarId,
};

/// One `grad`, ready to be checked.
#[derive(Clone, Debug)]
pub struct Probe {
    pub entry: String,
    pub span: Span,
    /// Name of what is differentiated.
    pub of: String,
    pub targets: Vec<Target>,
    /// Whether a cotangent flows into it; one, otherwise.
    pub seeded: bool,
    /// `stop_gradient`s whose results the second entry is given.
    pub stopped: usize,
    /// Whether it stands inside control flow. Entry `gradient` then has the number
    /// of a run of the block instead of deltas, and gives one more result, how
    /// many runs there were; `stopped` counts all that is given to the block.
    pub inside: bool,
    /// Entry `gradient` gives what is differentiated, the cotangent if any, the
    /// gradients and the stopped values. Entry `value` gives the first two. Both
    /// have the entry's parameters, then the deltas; the second also the stopped
    /// values.
    pub graph: Graph,
}

/// A `grad` that cannot be set apart.
#[derive(Clone, Debug)]
pub struct Unchecked {
    pub of: String,
    pub why: inside::Why,
}

#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub ty: TensorType,
    /// The entry's parameter it is, by number.
    pub param: Option<usize>,
}

/// Every `grad` of an entry, in the order of the text.
pub fn probes(graph: &Graph, entry: &str) -> Result<(Vec<Probe>, Vec<Unchecked>), Vec<Diag>> {
    let graph = widen(graph);
    let Some(func) = graph.entries.iter().find(|f| f.name == entry) else {
        return Err(vec![Diag::error("E0911", format!("there is no entry `{entry}`"))]);
    };
    let body: BTreeSet<NodeId> = func.regions[func.body].nodes.iter().copied().collect();
    let mut all = vec![];
    func.walk(&mut |id, node| all.extend((node.op == Op::Grad).then_some(id)));
    let (mut out, mut unchecked) = (vec![], vec![]);
    for id in all {
        if body.contains(&id) {
            out.push(probe(&graph, func, id)?);
            continue;
        }
        match inside::probe(&graph, func, id)? {
            Ok(probe) => out.push(probe),
            Err(why) => {
                let of = name(&graph, func, func.nodes[id].operands[0]);
                unchecked.push(Unchecked { of, why });
            }
        }
    }
    Ok((out, unchecked))
}

/// The graph with every float type made `f64`.
pub fn widen(graph: &Graph) -> Graph {
    let wide = |d: DType| if d.is_float() { DType::F64 } else { d };
    let mut out = graph.clone();
    for var in out.vars.values_mut() {
        var.ty.dtype = wide(var.ty.dtype);
        if let Some(queue) = var.symbol.elements_mut() {
            queue.parts.iter_mut().for_each(|p| p.dtype = wide(p.dtype));
        }
    }
    for func in std::iter::once(&mut out.init).chain(&mut out.entries) {
        for value in func.values.values_mut() {
            value.ty.dtype = wide(value.ty.dtype);
        }
        for node in func.nodes.values_mut() {
            for spec in node.op.def().attrs {
                let new = match node.attrs.get(spec.name) {
                    Some(Attr::DType(d)) => Attr::DType(wide(*d)),
                    Some(Attr::Tensor(t)) if t.dtype().is_float() => {
                        let shape = t.shape().to_vec();
                        Attr::Tensor(Arc::new(Tensor::from_f64(DType::F64, shape, t.to_f64())))
                    }
                    _ => continue,
                };
                node.attrs.set(spec.name, new);
            }
        }
    }
    out
}

fn probe(graph: &Graph, old: &Func, grad: NodeId) -> Result<Probe, Vec<Diag>> {
    let mut func = old.clone();
    let node = func.nodes[grad].clone();
    let seeded = node.attrs.bool("seeded");
    let wrt = &node.operands[1 + seeded as usize..];
    let same = same_reads(&func);
    let canonical = |v: ValueId| same.get(&v).copied().unwrap_or(v);
    let mut targets: Vec<(ValueId, Target)> = vec![];
    let mut moved: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for &v in wrt {
        let v = canonical(v);
        if !targets.iter().any(|(t, _)| *t == v) {
            let param = func.params().iter().position(|p| *p == v);
            let target = Target { name: name(graph, old, v), ty: func.ty(v).clone(), param };
            let mut b = Builder::new(&mut func, &graph.vars);
            let delta = b.param(target.ty.clone(), Some(format!("delta.{}", target.name).into()));
            moved.insert(v, delta);
            targets.push((v, target));
        }
    }
    // Each value that stands for a target is moved where it is defined.
    let home = homes(&func);
    let values: Vec<ValueId> = func.values.keys().collect();
    for v in values {
        let Some(&delta) = moved.get(&canonical(v)) else { continue };
        move_value(graph, &mut func, &home, v, delta)?;
    }
    let node = func.nodes[grad].clone();
    let mut results = node.operands[..1 + seeded as usize].to_vec();
    let value_results = results.clone();
    // One gradient for each distinct target.
    for (v, _) in &targets {
        let at = wrt.iter().position(|w| canonical(*w) == *v).unwrap_or(0);
        results.push(node.results[at]);
    }
    let top: Vec<ValueId> = func.regions[func.body]
        .nodes
        .iter()
        .filter(|id| func.nodes[**id].op == Op::StopGradient)
        .map(|id| func.nodes[*id].results[0])
        .collect();
    let cone = cone(&func, &value_results);
    let stopped: Vec<ValueId> = top.into_iter().filter(|v| cone.contains(v)).collect();
    results.extend(&stopped);
    let mut out = graph.clone();
    let params = func.params().to_vec();
    let given: Vec<ValueId> = params.iter().chain(&stopped).copied().collect();
    let entry = |name: &str, results: &[ValueId], given: &[ValueId]| {
        let names: Vec<String> = (0..results.len()).map(|i| format!("r{i}")).collect();
        let mut f = fetch(graph, &func, &names, results, given).map_err(|Stop(d)| d)?;
        f.name = name.to_string();
        Ok::<Func, Vec<Diag>>(f)
    };
    out.entries =
        vec![entry("gradient", &results, &params)?, entry("value", &value_results, &given)?];
    let written = differentiate(out, &PassOptions::default())?;
    Ok(Probe {
        entry: old.name.clone(),
        span: node.span,
        of: name(graph, old, old.nodes[grad].operands[0]),
        targets: targets.into_iter().map(|(_, t)| t).collect(),
        seeded,
        stopped: stopped.len(),
        inside: false,
        graph: written.graph,
    })
}

/// Lets `v + delta` be used wherever `v` is.
fn move_value(
    graph: &Graph,
    func: &mut Func,
    home: &BTreeMap<NodeId, RegionId>,
    v: ValueId,
    delta: ValueId,
) -> Result<(), Vec<Diag>> {
    let (region, at) = match func.values[v].def {
        Def::Param(region, _) => (region, 0),
        Def::Node(node, _) => {
            let region = home.get(&node).copied().unwrap_or(func.body);
            let at = func.regions[region].nodes.iter().position(|n| *n == node);
            (region, at.map_or(0, |i| i + 1))
        }
    };
    let mut b = Builder::new(func, &graph.vars);
    b.region = region;
    let spec = NodeSpec::new(Op::Add, &[v, delta], Attrs::none(), Span::NONE);
    let add = b.node(spec).map_err(|e| Stop::from(e).0)?;
    let sum = func.nodes[add].results[0];
    let nodes = &mut func.regions[region].nodes;
    nodes.pop();
    nodes.insert(at, add);
    for (id, node) in func.nodes.iter_mut().filter(|(id, _)| *id != add) {
        let _ = id;
        node.operands.iter_mut().filter(|o| **o == v).for_each(|o| *o = sum);
    }
    for region in func.regions.values_mut() {
        region.results.iter_mut().filter(|o| **o == v).for_each(|o| *o = sum);
    }
    Ok(())
}

/// The region each node stands in.
fn homes(func: &Func) -> BTreeMap<NodeId, RegionId> {
    let nodes = |(r, region): (RegionId, &tfc_ir::Region)| {
        region.nodes.iter().map(move |n| (*n, r)).collect::<Vec<_>>()
    };
    func.regions.iter().flat_map(nodes).collect()
}

/// Values that some values are computed from.
fn cone(func: &Func, of: &[ValueId]) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    let mut stack = of.to_vec();
    while let Some(v) = stack.pop() {
        if out.insert(v)
            && let Some(def) = func.def(v)
        {
            let mut used = BTreeSet::new();
            crate::egraph::region::uses_of(func, def, &mut used);
            stack.extend(used);
        }
    }
    out
}

/// Reads of one variable with no write between them, mapped to the first.
fn same_reads(func: &Func) -> BTreeMap<ValueId, ValueId> {
    let mut current: BTreeMap<VarId, ValueId> = BTreeMap::new();
    let mut out = BTreeMap::new();
    func.walk(&mut |_, node| match (node.op.def().effect, node.var) {
        (Effect::Read, Some(v)) => {
            let value = node.results[0];
            out.insert(value, *current.entry(v).or_insert(value));
        }
        (Effect::Write, Some(v)) => {
            current.remove(&v);
        }
        _ => {}
    });
    out
}

fn name(graph: &Graph, func: &Func, v: ValueId) -> String {
    if let Some(name) = &func.values[v].name {
        return name.to_string();
    }
    match func.def(v).map(|n| &func.nodes[n]) {
        Some(node) => match node.var {
            Some(var) => graph.vars[var].name.clone(),
            None => node.op.name().to_string(),
        },
        None => "?".to_string(),
    }
}
