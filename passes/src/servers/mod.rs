//! Dividing a training entry between workers and parameter servers.
//!
//! Cut at its gradients, an entry is what computes them (the worker's part) and what
//! becomes of them: the update, a pure function from gradients and variables to
//! variables. That is divided further into *groups*, so that servers can have some
//! variables each. Variables and gradients are in one group if a tensor is computed
//! of both: a weight, its gradient, its moments. What groups do have in common goes
//! through scalars, as when gradients are clipped by the norm of all of them: each
//! group is summed up (`summary`), all are taken together in one place (`shared`), and
//! what comes out is handed to every group's `update`.
//!
//! Names of the parts and their ports are in [`tfc_abi::parts`].
//!
//! Invariants
//! - Parts have no effects but the worker's own; together they do what the entry does,
//!   but that entry results which depend on averaged gradients are the worker's.
//! - An entry that cannot be divided has no parts, and servers refuse it.

mod groups;
mod rows;

use crate::util::{Stop, rewrite};
use std::collections::{BTreeMap, BTreeSet};
use tfc_abi::parts::{ELEMENTS, Part, Wire};
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::graph::{Def, DimDecl};
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::{Effect, Moves};
use tfc_ir::{Attr, Dim, Func, Graph, Node, NodeId, Op, ValueId, VarId};

/// The parts of an entry; none if it cannot be divided, or trains nothing.
pub(crate) fn divide(graph: &Graph, func: &Func) -> Result<Vec<Func>, Stop> {
    let Some(flow) = Flow::of(func) else { return Ok(vec![]) };
    let Some(update) = Update::find(graph, func, &flow)? else { return Ok(vec![]) };
    if update.written.is_empty() || !stale_free(func, &flow, &update) {
        return Ok(vec![]);
    }
    let (whole, sparse) = gradients(graph, func, &update)?;
    let mut parts = vec![worker(graph, &whole, &flow, &update)?];
    parts.extend(rows::used(graph, func, &whole, &flow, &update)?);
    parts.extend(groups::groups(graph, func, &update, &sparse)?);
    for part in &mut parts {
        part.replica = true;
        part.span = func.span;
    }
    Ok(parts)
}

/// The dim of updates that take any number of elements.
pub(crate) fn elements_dim() -> DimDecl {
    DimDecl { name: ELEMENTS.into(), min: 0, max: i64::MAX, span: tfc_ir::diag::Span::NONE }
}

/// Whether a part is such an update.
pub(crate) fn takes_elements(func: &Func) -> bool {
    let param = |v: &ValueId| func.ty(*v).shape.as_slice() == [Dim::sym(ELEMENTS)];
    func.replica && func.params().iter().any(param)
}

/// What depends on what, and which write a read sees.
struct Flow {
    /// By value: it depends on something combined over the workers.
    combined: BTreeSet<ValueId>,
    /// By value: it depends on feeds that have axes, or on effects, in a way other than
    /// that: servers are sent it. Scalar feeds are sent as they are.
    fed: BTreeSet<ValueId>,
    /// By reading or writing node: the write before it.
    before: BTreeMap<NodeId, NodeId>,
    /// Writes of what depends on something combined.
    learned: BTreeSet<NodeId>,
    /// The last write of each variable.
    last: BTreeMap<VarId, NodeId>,
    /// Variables that are written in a way that is not looked into.
    opaque: BTreeSet<VarId>,
}

impl Flow {
    /// None if values are combined inside a branch or a loop, or twice in a row.
    fn of(func: &Func) -> Option<Flow> {
        let mut f = Flow {
            combined: BTreeSet::new(),
            fed: func.params().iter().copied().filter(|p| func.ty(*p).rank() > 0).collect(),
            before: BTreeMap::new(),
            learned: BTreeSet::new(),
            last: BTreeMap::new(),
            opaque: BTreeSet::new(),
        };
        for &id in &func.regions[func.body].nodes {
            f.add(func, id)?;
        }
        Some(f)
    }

    fn add(&mut self, func: &Func, id: NodeId) -> Option<()> {
        let node = &func.nodes[id];
        let mut combined = node.operands.iter().any(|v| self.combined.contains(v));
        let mut fed = node.operands.iter().any(|v| self.fed.contains(v)) || has_dims(func, node);
        if !node.regions.is_empty() {
            let (mut bad, mut written) = (false, vec![]);
            for_inner(func, node, &mut |inner| {
                bad |= inner.op == Op::AllReduce
                    || inner.operands.iter().any(|v| self.combined.contains(v));
                if inner.op.def().effect == Effect::Write {
                    written.extend(inner.var);
                }
            });
            if bad || combined {
                return None;
            }
            self.opaque.extend(written);
            fed = true;
        }
        match kind(node) {
            Kind::AllReduce => {
                if combined {
                    return None;
                }
                (combined, fed) = (true, false);
            }
            Kind::Pure => {}
            Kind::Read(var) | Kind::Assign(var) | Kind::Change(var, _) => {
                if let Some(&write) = self.last.get(&var) {
                    self.before.insert(id, write);
                    // What is assigned does not depend on what was there.
                    let kept = !matches!(kind(node), Kind::Assign(_));
                    combined |= kept && self.learned.contains(&write);
                }
                if !matches!(kind(node), Kind::Read(_)) {
                    self.last.insert(var, id);
                    if combined {
                        self.learned.insert(id);
                    }
                }
            }
            Kind::Other => {
                if let Some(var) = node.var {
                    self.opaque.insert(var);
                }
                fed = true;
            }
        }
        for &result in &node.results {
            if combined {
                self.combined.insert(result);
            }
            if fed {
                self.fed.insert(result);
            }
        }
        Some(())
    }
}

enum Kind {
    AllReduce,
    Pure,
    Read(VarId),
    Assign(VarId),
    /// The variable becomes what this op makes of it and the operand.
    Change(VarId, Op),
    Other,
}

fn kind(node: &Node) -> Kind {
    if !node.regions.is_empty() {
        return Kind::Other;
    }
    match (node.op, node.op.def().effect, &node.op.def().lower, node.var) {
        (Op::AllReduce, ..) => Kind::AllReduce,
        (_, Effect::Pure, ..) => Kind::Pure,
        (_, _, Lower::Step(StepKind::Read), Some(var)) => Kind::Read(var),
        (_, _, Lower::Step(StepKind::Assign), Some(var)) => Kind::Assign(var),
        (_, _, Lower::Step(StepKind::Update(op)), Some(var)) => Kind::Change(var, *op),
        _ => Kind::Other,
    }
}

fn for_inner(func: &Func, node: &Node, visit: &mut dyn FnMut(&Node)) {
    for &region in &node.regions {
        for &id in &func.regions[region].nodes {
            visit(&func.nodes[id]);
            for_inner(func, &func.nodes[id], visit);
        }
    }
}

/// The update as a function without effects.
struct Update {
    func: Func,
    /// The gradients, as the entry computes them, and the function's params.
    grads: Vec<(ValueId, ValueId)>,
    /// The same for what else the worker computes for it.
    crosses: Vec<(ValueId, ValueId)>,
    /// Params for the variables that are read.
    vars: BTreeMap<VarId, ValueId>,
    /// Results: what the variables become.
    written: BTreeMap<VarId, ValueId>,
}

impl Update {
    /// None if it does something this is not prepared for.
    fn find(graph: &Graph, func: &Func, flow: &Flow) -> Result<Option<Update>, Stop> {
        let body = &func.regions[func.body].nodes;
        let mut ours: BTreeSet<VarId> = BTreeSet::new();
        for (&var, &write) in &flow.last {
            let mut at = Some(write);
            while let Some(id) = at {
                if flow.learned.contains(&id) {
                    ours.insert(var);
                }
                at = flow.before.get(&id).copied();
            }
        }
        // What is needed, going back from the writes.
        let mut needed: BTreeSet<NodeId> = BTreeSet::new();
        let mut crosses: BTreeSet<ValueId> = BTreeSet::new();
        let mut stack: Vec<NodeId> = ours.iter().map(|v| flow.last[v]).collect();
        while let Some(id) = stack.pop() {
            if !needed.insert(id) {
                continue;
            }
            let node = &func.nodes[id];
            let var = match kind(node) {
                Kind::AllReduce if node.attrs.str("op") == "mean" => continue,
                Kind::AllReduce | Kind::Other => return Ok(None),
                Kind::Pure | Kind::Assign(_) => None,
                Kind::Read(var) | Kind::Change(var, _) => Some(var),
            };
            if let Some(var) = var {
                if flow.opaque.contains(&var) {
                    return Ok(None);
                }
                match (flow.before.get(&id), flow.last.get(&var)) {
                    (Some(&write), _) => stack.push(write),
                    // Written, so that its first value is the servers' to keep.
                    (None, Some(&last)) if ours.insert(var) => stack.push(last),
                    _ => {}
                }
            }
            for &operand in &node.operands {
                let cross = flow.fed.contains(&operand)
                    && !flow.combined.contains(&operand)
                    && !of_scalars(func, operand);
                match func.def(operand).filter(|_| !cross) {
                    Some(def) => stack.push(def),
                    None => drop(crosses.insert(operand)),
                }
            }
        }
        if ours.iter().any(|v| flow.opaque.contains(v)) {
            return Ok(None);
        }
        // And forward again.
        let mut u = Update {
            func: Func::new(&func.name),
            grads: vec![],
            crosses: vec![],
            vars: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        let mut values: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut after: BTreeMap<NodeId, ValueId> = BTreeMap::new();
        let mut b = Builder::new(&mut u.func, &graph.vars);
        for &old in &crosses {
            let param = b.param(func.ty(old).clone(), None);
            values.insert(old, param);
            u.crosses.push((old, param));
        }
        for &id in body.iter().filter(|id| needed.contains(id)) {
            let node = &func.nodes[id];
            let before =
                |b: &mut Builder<'_>, vars: &mut BTreeMap<VarId, ValueId>, var: VarId| match flow
                    .before
                    .get(&id)
                {
                    Some(write) => after[write],
                    None => *vars
                        .entry(var)
                        .or_insert_with(|| b.param(graph.vars[var].ty.clone(), None)),
                };
            match kind(node) {
                Kind::AllReduce => {
                    let param = b.param(func.ty(node.operands[0]).clone(), None);
                    values.insert(node.results[0], param);
                    u.grads.push((node.operands[0], param));
                }
                Kind::Read(var) => {
                    let value = before(&mut b, &mut u.vars, var);
                    values.insert(node.results[0], value);
                }
                Kind::Assign(_) => {
                    after.insert(id, values[&node.operands[0]]);
                }
                Kind::Change(var, op) => {
                    let old = before(&mut b, &mut u.vars, var);
                    b.origin.span = node.span;
                    let new = b.emit(op, &[old, values[&node.operands[0]]], node.attrs.clone())?;
                    after.insert(id, new);
                }
                Kind::Pure => {
                    let operands: Vec<ValueId> = node.operands.iter().map(|v| values[v]).collect();
                    let spec = NodeSpec::new(node.op, &operands, node.attrs.clone(), node.span);
                    let new = b.node(spec)?;
                    let results = b.func.nodes[new].results.clone();
                    values.extend(node.results.iter().copied().zip(results));
                }
                Kind::Other => {}
            }
        }
        for &var in &ours {
            u.written.insert(var, after[&flow.last[&var]]);
            // A variable that is only written has a place all the same.
            u.vars.entry(var).or_insert_with(|| b.param(graph.vars[var].ty.clone(), None));
        }
        Ok(Some(u))
    }
}

/// Whether a write is left to the servers alone. A counter is counted by the worker,
/// too, who may need it in the same step; what servers have replaces it afterwards.
fn is_left_out(func: &Func, flow: &Flow, update: &Update, id: NodeId) -> bool {
    match kind(&func.nodes[id]) {
        Kind::Assign(var) | Kind::Change(var, _) if update.written.contains_key(&var) => {
            let scalar = func.nodes[id].operands.iter().all(|v| func.ty(*v).rank() == 0);
            !scalar || flow.learned.contains(&id)
        }
        _ => false,
    }
}

/// A scalar computed of scalars, or one repeated: cheaper to be computed on servers,
/// too, than to be sent.
fn of_scalars(func: &Func, value: ValueId) -> bool {
    let Some(node) = func.def(value).map(|id| &func.nodes[id]) else { return false };
    let scalar = |v: &ValueId| func.ty(*v).rank() == 0;
    matches!(kind(node), Kind::Pure)
        && !node.operands.is_empty()
        && (scalar(&value) || spreads_scalar(func, node))
        && node.operands.iter().all(scalar)
}

/// Whether a node depends on run-time dims, which servers do not know.
fn has_dims(func: &Func, node: &Node) -> bool {
    let open = |d: &Dim| d.as_const().is_none();
    node.results.iter().any(|v| func.ty(*v).shape.iter().any(open))
        || node.op.def().attrs.iter().any(|spec| match node.attrs.get(spec.name) {
            Some(Attr::Shape(dims)) => dims.iter().any(open),
            _ => false,
        })
}

/// Whether nothing but the update sees what the update has written.
fn stale_free(func: &Func, flow: &Flow, update: &Update) -> bool {
    let ours = |id: NodeId| is_left_out(func, flow, update, id);
    let mut needed: Vec<ValueId> = func.results().to_vec();
    needed.extend(update.grads.iter().chain(&update.crosses).map(|(old, _)| *old));
    let live = live(func, needed, &ours);
    let stale = |id: &NodeId| flow.before.get(id).is_some_and(|write| ours(*write));
    let reads_inside = |id: &NodeId| {
        let mut found = false;
        for_inner(func, &func.nodes[*id], &mut |inner| {
            found |= inner.var.is_some_and(|v| update.written.contains_key(&v));
        });
        // Before the update or after it: it is not looked into.
        found && !func.nodes[*id].regions.is_empty() && follows_write(func, *id, &ours)
    };
    !live.iter().any(|id| stale(id) || reads_inside(id))
}

/// What these values and all effects need, but those that are left out.
fn live(
    func: &Func,
    mut stack: Vec<ValueId>,
    left_out: &dyn Fn(NodeId) -> bool,
) -> BTreeSet<NodeId> {
    let mut live: BTreeSet<NodeId> = BTreeSet::new();
    for &id in &func.regions[func.body].nodes {
        let node = &func.nodes[id];
        let effect = !matches!(node.op.def().effect, Effect::Pure | Effect::Read);
        if effect && !left_out(id) {
            live.insert(id);
            stack.extend(&node.operands);
            for_inner(func, node, &mut |inner| stack.extend(&inner.operands));
        }
    }
    while let Some(value) = stack.pop() {
        if let Some(id) = func.def(value).filter(|id| live.insert(*id)) {
            stack.extend(&func.nodes[id].operands);
            for_inner(func, &func.nodes[id], &mut |inner| stack.extend(&inner.operands));
        }
    }
    live
}

fn follows_write(func: &Func, id: NodeId, ours: &dyn Fn(NodeId) -> bool) -> bool {
    func.regions[func.body].nodes.iter().take_while(|n| **n != id).any(|n| ours(*n))
}

/// The entry with what the update needs among its results, and which gradients are
/// there as rows.
fn gradients(graph: &Graph, func: &Func, update: &Update) -> Result<(Func, BTreeSet<u32>), Stop> {
    let mut whole = func.clone();
    whole.name = Part::Gradients.name(&func.name);
    let mut sparse = BTreeSet::new();
    let mut results = vec![];
    for (k, (old, _)) in (0u32..).zip(&update.grads) {
        match rows::of_gradient(graph, &mut whole, *old)? {
            Some((ids, rows)) => {
                sparse.insert(k);
                results.push((ids, Wire::Ids(k)));
                results.push((rows, Wire::Rows(k)));
            }
            None => results.push((*old, Wire::Grad(k))),
        }
    }
    results.extend((0u32..).zip(&update.crosses).map(|(k, (old, _))| (*old, Wire::Cross(k))));
    let body = whole.body;
    for (value, wire) in results {
        whole.regions[body].results.push(value);
        whole.result_names.push(wire.name());
    }
    Ok((whole, sparse))
}

/// The worker's part of that: without the update.
fn worker(graph: &Graph, whole: &Func, flow: &Flow, update: &Update) -> Result<Func, Stop> {
    rewrite(graph, whole, &mut |r, id| {
        let node = &r.old.nodes[id];
        Ok(match kind(node) {
            Kind::AllReduce => Some(vec![r.get(node.operands[0])]),
            _ if is_left_out(whole, flow, update, id) => Some(vec![]),
            _ => None,
        })
    })
}

/// A scalar repeated to a tensor.
fn spreads_scalar(func: &Func, node: &Node) -> bool {
    node.op.def().facts.moves == Moves::Repeated
        && node.attrs.get("shape").is_some()
        && node.operands.iter().all(|v| func.ty(*v).rank() == 0)
        && node.results.iter().all(|v| func.ty(*v).rank() > 0)
        && matches!(func.values[node.results[0]].def, Def::Node(..))
}
