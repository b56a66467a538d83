//! Gradients inside `if` and `while`, set apart.
//!
//! A block runs any number of times, so one run of it is chosen: entry `gradient`
//! is the entry itself with a parameter `run`, and with everything of interest
//! carried out of the blocks around the `grad` as it was in that run. What is
//! differentiated, the gradient, what the loops carried into the iteration, and what
//! the blocks read of variables and queues: to the gradient the latter are given,
//! so entry `value` has them as parameters. It is the entry up to the `grad`, with
//! the blocks around it opened up.
//!
//! Not done, and told: a `grad` in the condition of a loop, or in the body of a
//! function with a gradient of its own; and one whose value reads variables or
//! queues in blocks of its own, which nothing carries out.

use super::{Probe, Target, cone, homes, move_value, name};
use crate::differentiate::differentiate;
use crate::pipeline::PassOptions;
use crate::restrict::fetch;
use crate::util::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_ir::build::Builder;
use tfc_ir::diag::Diag;
use tfc_ir::graph::{Def, Value};
use tfc_ir::op::Effect;
use tfc_ir::{
    Attr, Attrs, DType, Func, Graph, NodeId, Op, RegionId, Tensor, TensorType, ValueId, VarId,
};

/// A block around a `grad`: the node it belongs to, and which of its regions.
#[derive(Clone, Copy, Debug)]
struct Block {
    owner: NodeId,
    region: RegionId,
}

/// Why a gradient is not checked.
pub type Why = &'static str;

/// The probe of a `grad` that stands inside control flow.
pub(super) fn probe(
    graph: &Graph,
    old: &Func,
    grad: NodeId,
) -> Result<Result<Probe, Why>, Vec<Diag>> {
    let mut blocks = vec![];
    if !find(old, old.body, grad, &mut blocks) {
        return Ok(Err("it stands nowhere"));
    }
    for b in &blocks {
        let node = &old.nodes[b.owner];
        match node.op {
            Op::If => {}
            Op::While if node.regions[1] == b.region => {}
            Op::While => return Ok(Err("it stands in the condition of a loop")),
            _ => return Ok(Err("it stands in a function that has a gradient of its own")),
        }
    }
    let node = old.nodes[grad].clone();
    let seeded = node.attrs.bool("seeded");
    let (of, wrt) = node.operands.split_at(1 + seeded as usize);
    let same = same_reads(old, &blocks);
    let canonical = |v: ValueId| same.get(&v).copied().unwrap_or(v);
    let mut targets: Vec<ValueId> = vec![];
    for v in wrt.iter().map(|v| canonical(*v)) {
        if !targets.contains(&v) {
            targets.push(v);
        }
    }

    let mut flat = flatten(old, &blocks);
    let cone = cone(&flat, of);
    let inner: Vec<NodeId> = flat.regions[flat.body].nodes.clone();
    let outer = old.regions[old.body].nodes.iter().position(|n| *n == blocks[0].owner);
    let own = &inner[outer.unwrap_or(0)..];
    if own.iter().any(|n| used(old, *n, &cone) && reads_inside(old, *n)) {
        return Ok(Err("its value reads variables or queues in a block of its own"));
    }
    // To the gradient these are given, and not by what comes before the `grad`.
    let mut given: BTreeSet<ValueId> = BTreeSet::new();
    for b in blocks.iter().filter(|b| old.nodes[b.owner].op == Op::While) {
        given.extend(&old.regions[b.region].params);
    }
    for id in own.iter().filter(|id| !matches!(old.nodes[**id].op.def().effect, Effect::Pure)) {
        given.extend(old.nodes[*id].results.iter().filter(|_| old.nodes[*id].regions.is_empty()));
    }
    given.extend(
        inner
            .iter()
            .filter(|id| old.nodes[**id].op == Op::StopGradient)
            .flat_map(|id| &old.nodes[*id].results),
    );
    given.retain(|v| cone.contains(v));
    let given: Vec<ValueId> = given.into_iter().collect();

    let mut results: Vec<ValueId> = of.to_vec();
    for t in &targets {
        let at = wrt.iter().position(|w| canonical(*w) == *t).unwrap_or(0);
        results.push(node.results[at]);
    }
    results.extend(&given);
    let gradient = carried_out(graph, old, &blocks, &results).map_err(|Stop(d)| d)?;

    let names: Vec<Target> = targets
        .iter()
        .map(|v| Target {
            name: name(graph, old, *v),
            ty: old.ty(*v).clone(),
            param: old.params().iter().position(|p| p == v),
        })
        .collect();
    let mut deltas: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (v, target) in targets.iter().zip(&names) {
        let label = Some(format!("delta.{}", target.name).into());
        let delta = Builder::new(&mut flat, &graph.vars).param(target.ty.clone(), label);
        deltas.insert(*v, delta);
    }
    let home = homes(&flat);
    for v in old.values.keys() {
        if let Some(&delta) = deltas.get(&canonical(v)) {
            let here = match flat.values[v].def {
                Def::Node(n, _) => home.contains_key(&n),
                Def::Param(region, _) => region == flat.body,
            };
            if here {
                move_value(graph, &mut flat, &home, v, delta)?;
            }
        }
    }
    // What is differentiated may itself be what was moved.
    let moved: Vec<ValueId> = flat.nodes[grad].operands[..of.len()].to_vec();
    let fed: Vec<ValueId> = flat.params().iter().chain(&given).copied().collect();
    let labels: Vec<String> = (0..moved.len()).map(|i| format!("r{i}")).collect();
    let mut value = fetch(graph, &flat, &labels, &moved, &fed).map_err(|Stop(d)| d)?;
    value.name = "value".to_string();

    let mut out = graph.clone();
    out.entries = vec![gradient, value];
    let written = differentiate(out, &PassOptions::default())?;
    Ok(Ok(Probe {
        entry: old.name.clone(),
        span: node.span,
        of: name(graph, old, of[0]),
        targets: names,
        seeded,
        stopped: given.len(),
        inside: true,
        graph: written.graph,
    }))
}

/// The blocks around a node, outermost first; none if it stands elsewhere.
fn find(func: &Func, region: RegionId, grad: NodeId, blocks: &mut Vec<Block>) -> bool {
    for &owner in &func.regions[region].nodes {
        if owner == grad {
            return true;
        }
        for &region in &func.nodes[owner].regions {
            blocks.push(Block { owner, region });
            if find(func, region, grad, blocks) {
                return true;
            }
            blocks.pop();
        }
    }
    false
}

/// The function with the blocks opened up: what stands before each, then its own
/// nodes. Their parameters are defined by nothing.
fn flatten(old: &Func, blocks: &[Block]) -> Func {
    let mut func = old.clone();
    let mut nodes = vec![];
    let mut region = old.body;
    for b in blocks {
        let before = old.regions[region].nodes.iter().take_while(|n| **n != b.owner);
        nodes.extend(before.copied());
        region = b.region;
    }
    nodes.extend(&old.regions[region].nodes);
    for b in blocks {
        for &p in &old.regions[b.region].params {
            func.values[p].def = Def::Param(func.body, 0);
        }
        func.regions[b.region] = Default::default();
    }
    let body = func.body;
    func.regions[body].nodes = nodes;
    func
}

/// Whether some values come from a node.
fn used(func: &Func, id: NodeId, cone: &BTreeSet<ValueId>) -> bool {
    func.nodes[id].results.iter().any(|v| cone.contains(v))
}

/// Whether blocks of a node read state, or take something from the outside.
fn reads_inside(func: &Func, id: NodeId) -> bool {
    let inner = |n: &NodeId| {
        let effect = func.nodes[*n].op.def().effect;
        !matches!(effect, Effect::Pure | Effect::Regions) || reads_inside(func, *n)
    };
    func.nodes[id].regions.iter().any(|r| func.regions[*r].nodes.iter().any(inner))
}

/// Variables a node and its blocks write.
fn writes(func: &Func, id: NodeId, out: &mut BTreeSet<VarId>) {
    let node = &func.nodes[id];
    if node.op.def().effect == Effect::Write {
        out.extend(node.var);
    }
    for inner in node.regions.iter().flat_map(|r| &func.regions[*r].nodes) {
        writes(func, *inner, out);
    }
}

/// Reads of one variable with no write between them, mapped to the first. A loop
/// starts with what its last iteration wrote.
fn same_reads(func: &Func, blocks: &[Block]) -> BTreeMap<ValueId, ValueId> {
    let mut current: BTreeMap<VarId, ValueId> = BTreeMap::new();
    let mut out = BTreeMap::new();
    let mut region = func.body;
    let owners = blocks.iter().map(|b| Some(*b)).chain([None]);
    for block in owners {
        for &id in &func.regions[region].nodes {
            if block.is_some_and(|b| b.owner == id) {
                break;
            }
            let node = &func.nodes[id];
            if let (Effect::Read, Some(v)) = (node.op.def().effect, node.var) {
                let value = node.results[0];
                out.insert(value, *current.entry(v).or_insert(value));
            }
            let mut written = BTreeSet::new();
            writes(func, id, &mut written);
            current.retain(|v, _| !written.contains(v));
        }
        let Some(block) = block else { break };
        if func.nodes[block.owner].op == Op::While {
            let mut written = BTreeSet::new();
            writes(func, block.owner, &mut written);
            current.retain(|v, _| !written.contains(v));
        }
        region = block.region;
    }
    out
}

/// The entry with values of the innermost block as its results, as they are in
/// run number `run` of the block, a parameter; the last result says how many runs
/// there were.
fn carried_out(
    graph: &Graph,
    old: &Func,
    blocks: &[Block],
    values: &[ValueId],
) -> Result<Func, Stop> {
    let mut func = old.clone();
    let body = func.body;
    let run = Builder::new(&mut func, &graph.vars)
        .param(TensorType::scalar(DType::I64), Some(Arc::from("run")));
    let types: Vec<TensorType> = std::iter::once(TensorType::scalar(DType::I64))
        .chain(values.iter().map(|v| old.ty(*v).clone()))
        .collect();
    // Nothing yet: no run, zeros.
    let mut carry: Vec<ValueId> = vec![];
    let length = func.regions[body].nodes.len();
    for ty in &types {
        let zero = splat(graph, &mut func, body, 0.0, ty)?;
        carry.push(zero);
    }
    let first = func.regions[body].nodes.split_off(length);
    func.regions[body].nodes.splice(0..0, first);
    let carry = carry_through(graph, &mut func, blocks, carry, run, values)?;
    // The number of runs last.
    let results: Vec<ValueId> = carry[1..].iter().chain(&carry[..1]).copied().collect();
    let names: Vec<String> = (0..results.len()).map(|i| format!("r{i}")).collect();
    let params = func.params().to_vec();
    let mut out = fetch(graph, &func, &names, &results, &params)?;
    out.name = "gradient".to_string();
    Ok(out)
}

fn carry_through(
    graph: &Graph,
    func: &mut Func,
    blocks: &[Block],
    carry: Vec<ValueId>,
    run: ValueId,
    values: &[ValueId],
) -> Result<Vec<ValueId>, Stop> {
    let Some((block, rest)) = blocks.split_first() else { return Ok(carry) };
    let types: Vec<TensorType> = carry.iter().map(|v| func.ty(*v).clone()).collect();
    let regions = func.nodes[block.owner].regions.clone();
    let is_loop = func.nodes[block.owner].op == Op::While;
    let mut entering = carry.clone();
    if is_loop {
        func.nodes[block.owner].operands.extend(&carry);
        for &region in &regions {
            let mut b = Builder::new(func, &graph.vars);
            b.region = region;
            let inner: Vec<ValueId> = types.iter().map(|ty| b.param(ty.clone(), None)).collect();
            if region == block.region {
                entering = inner;
            }
        }
    }
    let leaving = match rest.is_empty() {
        true => latch(graph, func, block.region, &entering, run, values)?,
        false => carry_through(graph, func, rest, entering, run, values)?,
    };
    for &region in &regions {
        // The branch not taken passes on what there was.
        let from = if region == block.region { &leaving } else { &carry };
        if region == block.region || !is_loop {
            func.regions[region].results.extend(from);
        }
    }
    let mut out = vec![];
    for ty in types {
        let at = func.nodes[block.owner].results.len() as u32;
        let value = func.values.push(Value { ty, def: Def::Node(block.owner, at), name: None });
        func.nodes[block.owner].results.push(value);
        out.push(value);
    }
    Ok(out)
}

/// At the end of a block: counts the run, and keeps the values if it is the one.
fn latch(
    graph: &Graph,
    func: &mut Func,
    region: RegionId,
    carry: &[ValueId],
    run: ValueId,
    values: &[ValueId],
) -> Result<Vec<ValueId>, Stop> {
    let count = func.ty(carry[0]).clone();
    let one = splat(graph, func, region, 1.0, &count)?;
    let types: Vec<TensorType> = values.iter().map(|v| func.ty(*v).clone()).collect();
    let mut b = Builder::new(func, &graph.vars);
    b.region = region;
    let now = b.emit(Op::Eq, &[carry[0], run], Attrs::none())?;
    let mut out = vec![b.emit(Op::Add, &[carry[0], one], Attrs::none())?];
    for ((value, kept), ty) in values.iter().zip(&carry[1..]).zip(types) {
        let all =
            Attrs::none().with("shape", Attr::Shape(ty.shape)).with("axes", Attr::Ints(vec![]));
        let now = b.emit(Op::Broadcast, &[now], all)?;
        out.push(b.emit(Op::Select, &[now, *value, *kept], Attrs::none())?);
    }
    Ok(out)
}

fn splat(
    graph: &Graph,
    func: &mut Func,
    region: RegionId,
    value: f64,
    ty: &TensorType,
) -> Result<ValueId, Stop> {
    let mut b = Builder::new(func, &graph.vars);
    b.region = region;
    let scalar = Tensor::splat(ty.dtype, vec![], value);
    let attrs = Attrs::none().with("value", Attr::Tensor(Arc::new(scalar)));
    let scalar = b.emit(Op::Const, &[], attrs)?;
    let all =
        Attrs::none().with("shape", Attr::Shape(ty.shape.clone())).with("axes", Attr::Ints(vec![]));
    Ok(b.emit(Op::Broadcast, &[scalar], all)?)
}
