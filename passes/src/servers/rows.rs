//! Tables of which a step uses some rows.
//!
//! The gradient of a table that is only gathered from is zero but for the rows that
//! were gathered. So workers send these rows with their numbers, and servers change
//! these alone where the update would leave the others as they are. Nor does a worker
//! need more of the table than the rows it gathers: which ones is a part of its own,
//! that it runs before it asks for them.

use super::groups::plan_index;
use super::{Flow, Kind, Update, for_inner, is_left_out, kind, live};
use crate::util::{Stop, is_zero};
use std::collections::{BTreeMap, BTreeSet};
use tfc_abi::parts::{Part, Wire};
use tfc_ir::build::{Builder, GraphEmit, NodeSpec};
use tfc_ir::op::{Grad, Moves};
use tfc_ir::vjp::{Emit, VjpArgs, term_of};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, NodeId, Op, TensorType, ValueId, VarId};

/// A gradient as numbers of rows and these rows, with what computes them added to the
/// function; none if it is not by how it is made zero elsewhere.
pub(super) fn of_gradient(
    graph: &Graph,
    func: &mut Func,
    grad: ValueId,
) -> Result<Option<(ValueId, ValueId)>, Stop> {
    let ty = func.ty(grad).clone();
    if ty.rank() == 0 || ty.shape.iter().any(|d| d.as_const().is_none()) {
        return Ok(None);
    }
    let mut found = vec![];
    if !collect(graph, func, grad, &mut found)? {
        return Ok(None);
    }
    let mut b = Builder::new(func, &graph.vars);
    let ids = found.iter().map(|(ids, _)| flat(&mut b, *ids)).collect::<Result<Vec<_>, Stop>>()?;
    let mut rows = vec![];
    for (&ids, (_, value)) in ids.iter().zip(&found) {
        let mut shape = vec![b.func.ty(ids).shape[0].clone()];
        shape.extend_from_slice(&ty.shape[1..]);
        rows.push(reshape(&mut b, *value, shape)?);
    }
    Ok(Some((joined(&mut b, &ids)?, joined(&mut b, &rows)?)))
}

/// Takes a gradient apart into scattered rows; false when it is anything else, too.
fn collect(
    graph: &Graph,
    func: &mut Func,
    value: ValueId,
    out: &mut Vec<(ValueId, ValueId)>,
) -> Result<bool, Stop> {
    let Some(node) = func.def(value).map(|id| func.nodes[id].clone()) else { return Ok(false) };
    Ok(match (node.op, node.operands.as_slice()) {
        (Op::Vjp, [operands @ .., forward, ct]) => {
            let Some((of, wrt, attrs)) = term_of(&node.attrs) else { return Ok(false) };
            let Grad::Vjp(grad) = of.def().grad else { return Ok(false) };
            if of.def().facts.moves != Moves::Picked {
                return Ok(false);
            }
            let mut b = Builder::new(func, &graph.vars);
            b.origin = node.origin();
            let emit = GraphEmit::new(&mut b);
            let given: Vec<_> = operands.iter().map(|v| emit.opaque(*v)).collect();
            let (forward, ct) = (emit.opaque(*forward), emit.opaque(*ct));
            let args = VjpArgs { operands: &given, out: forward, ct, attrs: &attrs };
            let written = grad(&emit as &dyn Emit, &args, wrt).map(|v| emit.value(v));
            emit.finish()?;
            // Written out, it is no gradient term any more.
            match written {
                Some(value) => collect(graph, func, value, out)?,
                None => false,
            }
        }
        (Op::ScatterAdd, &[base, ids, rows]) => {
            let rest = is_zero(func, base) || collect(graph, func, base, out)?;
            out.push((ids, rows));
            rest
        }
        (Op::Add, &[a, b]) => collect(graph, func, a, out)? && collect(graph, func, b, out)?,
        _ => false,
    })
}

/// Numbers of rows, one after the other.
fn flat(b: &mut Builder<'_>, ids: ValueId) -> Result<ValueId, Stop> {
    let TensorType { dtype, shape } = b.func.ty(ids).clone();
    let ids = match dtype {
        DType::I64 => ids,
        _ => b.emit(Op::Cast, &[ids], Attrs::none().with("to", Attr::DType(DType::I64)))?,
    };
    reshape(b, ids, vec![Dim::product(&shape)])
}

fn reshape(b: &mut Builder<'_>, value: ValueId, shape: Vec<Dim>) -> Result<ValueId, Stop> {
    if b.func.ty(value).shape == shape {
        return Ok(value);
    }
    Ok(b.emit(Op::Reshape, &[value], Attrs::none().with("shape", Attr::Shape(shape)))?)
}

fn joined(b: &mut Builder<'_>, parts: &[ValueId]) -> Result<ValueId, Stop> {
    match parts {
        [one] => Ok(*one),
        _ => Ok(b.emit(Op::Concat, parts, Attrs::none().with("axis", Attr::Int(0)))?),
    }
}

/// Which rows of which tables the worker's part reads; none if it reads them whole.
/// `whole` is the entry with its gradients among the results.
pub(super) fn used(
    graph: &Graph,
    func: &Func,
    whole: &Func,
    flow: &Flow,
    update: &Update,
) -> Result<Option<Func>, Stop> {
    let left_out = |id: NodeId| is_left_out(whole, flow, update, id);
    let live = live(whole, whole.results().to_vec(), &left_out);
    let mut tables: BTreeMap<VarId, Vec<ValueId>> = BTreeMap::new();
    for &var in update.written.keys() {
        if let Some(ids) = gathered(graph, whole, &live, flow, var).filter(|ids| !ids.is_empty()) {
            tables.insert(var, ids);
        }
    }
    if tables.is_empty() {
        return Ok(None);
    }
    let mut needed: BTreeSet<NodeId> = BTreeSet::new();
    let mut stack: Vec<ValueId> = tables.values().flatten().copied().collect();
    while let Some(value) = stack.pop() {
        let Some(id) = whole.def(value) else { continue };
        let mut at = Some(id);
        while let Some(id) = at.filter(|id| needed.insert(*id)) {
            let node = &whole.nodes[id];
            // What was there before the write that is read.
            at = match kind(node) {
                Kind::Pure | Kind::Assign(_) => None,
                Kind::Read(var) if tables.contains_key(&var) => return Ok(None),
                Kind::Read(_) | Kind::Change(..) => flow.before.get(&id).copied(),
                Kind::AllReduce | Kind::Other => return Ok(None),
            };
            stack.extend(&node.operands);
        }
    }
    let mut new = Func::new(&Part::Used.name(&func.name));
    let mut b = Builder::new(&mut new, &graph.vars);
    let mut values: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for &p in whole.params() {
        values.insert(p, b.param(whole.ty(p).clone(), whole.values[p].name.clone()));
    }
    let mut after: BTreeMap<NodeId, ValueId> = BTreeMap::new();
    for &id in whole.regions[whole.body].nodes.iter().filter(|id| needed.contains(id)) {
        let node = &whole.nodes[id];
        let operands: Vec<ValueId> = node.operands.iter().map(|v| values[v]).collect();
        b.origin.span = node.span;
        let before = |b: &mut Builder<'_>| -> Result<ValueId, Stop> {
            if let Some(write) = flow.before.get(&id) {
                return Ok(after[write]);
            }
            let read = NodeSpec::new(Op::Read, &[], Attrs::none(), node.span);
            let read = b.node(NodeSpec { var: node.var, ..read })?;
            Ok(b.func.nodes[read].results[0])
        };
        match kind(node) {
            Kind::Read(_) => drop(values.insert(node.results[0], before(&mut b)?)),
            Kind::Assign(_) => drop(after.insert(id, operands[0])),
            Kind::Change(_, op) => {
                let old = before(&mut b)?;
                let new = b.emit(op, &[old, operands[0]], node.attrs.clone())?;
                after.insert(id, new);
            }
            _ => {
                let spec = NodeSpec::new(node.op, &operands, node.attrs.clone(), node.span);
                let made = b.node(spec)?;
                let results = b.func.nodes[made].results.clone();
                values.extend(node.results.iter().copied().zip(results));
            }
        }
    }
    let mut results = vec![];
    for (var, ids) in &tables {
        let ids: Vec<ValueId> =
            ids.iter().map(|v| flat(&mut b, values[v])).collect::<Result<_, Stop>>()?;
        results.push((joined(&mut b, &ids)?, Wire::Var(plan_index(graph, *var)).name()));
    }
    let body = new.body;
    new.regions[body].results = results.iter().map(|(v, _)| *v).collect();
    new.result_names = results.into_iter().map(|(_, n)| n).collect();
    Ok(Some(new))
}

/// The indices by which a variable is gathered from; none if it is used otherwise.
fn gathered(
    graph: &Graph,
    func: &Func,
    live: &BTreeSet<NodeId>,
    flow: &Flow,
    var: VarId,
) -> Option<Vec<ValueId>> {
    let ty = &graph.vars[var].ty;
    if ty.rank() == 0 || ty.shape.iter().any(|d| d.as_const().is_none()) {
        return None;
    }
    let mut reads: BTreeSet<ValueId> = BTreeSet::new();
    let mut ids = vec![];
    for &id in func.regions[func.body].nodes.iter().filter(|id| live.contains(id)) {
        let node = &func.nodes[id];
        let mut inside = false;
        for_inner(func, node, &mut |inner| {
            inside |= inner.var == Some(var) || inner.operands.iter().any(|v| reads.contains(v));
        });
        let taken = |v: &ValueId| reads.contains(v);
        inside |= node.regions.iter().any(|r| func.regions[*r].results.iter().any(taken));
        if inside || node.operands.iter().skip(1).any(taken) {
            return None;
        }
        if node.operands.first().is_some_and(taken) {
            if node.op != Op::Gather || node.attrs.int("axis") != 0 {
                return None;
            }
            ids.push(node.operands[1]);
        }
        if node.var == Some(var) {
            match kind(node) {
                Kind::Read(_) if !flow.before.contains_key(&id) => {
                    reads.insert(node.results[0]);
                }
                _ => return None,
            }
        }
    }
    let whole = func.results().iter().any(|v| reads.contains(v));
    (!whole).then_some(ids)
}

/// An update for any number of elements. If it leaves everything as it is where the
/// gradient is zero, and the gradient comes as rows, it need not see other rows.
pub(super) fn alone(mut func: Func, sparse: &BTreeSet<u32>) -> Func {
    let wire = |v: &ValueId| func.values[*v].name.as_deref().and_then(Wire::of);
    let grads: Vec<(ValueId, u32)> = func
        .params()
        .iter()
        .filter_map(|p| match wire(p) {
            Some(Wire::Grad(k)) => Some((*p, k)),
            _ => None,
        })
        .collect();
    if let [(param, k)] = grads[..]
        && sparse.contains(&k)
        && stands_still(&func, param)
    {
        func.values[param].name = Some(Wire::Rows(k).name().into());
    }
    func
}

/// Whether a gradient of zero changes no tensor.
fn stands_still(func: &Func, grad: ValueId) -> bool {
    /// What is known of a value when the gradient is zero.
    #[derive(Clone, Copy, PartialEq)]
    enum Known {
        Zero,
        Is(ValueId),
    }
    let mut known: BTreeMap<ValueId, Known> =
        func.params().iter().map(|p| (*p, Known::Is(*p))).collect();
    known.insert(grad, Known::Zero);
    for &id in &func.regions[func.body].nodes {
        let node = &func.nodes[id];
        let Some(&result) = node.results.first() else { continue };
        let of = |i: usize| node.operands.get(i).and_then(|v| known.get(v)).copied();
        let zero = |i: usize| of(i) == Some(Known::Zero);
        let found = match node.op {
            _ if is_zero(func, result) => Some(Known::Zero),
            Op::Mul if zero(0) || zero(1) => Some(Known::Zero),
            Op::Div | Op::Neg if zero(0) => Some(Known::Zero),
            Op::Add if zero(0) => of(1),
            Op::Add | Op::Sub if zero(1) => of(0),
            _ => None,
        };
        known.insert(result, found.unwrap_or(Known::Is(result)));
    }
    let name = |v: ValueId| func.values[v].name.as_deref();
    func.results().iter().zip(&func.result_names).filter(|(v, _)| func.ty(**v).rank() > 0).all(
        |(v, n)| match known.get(v) {
            Some(Known::Is(p)) => func.params().contains(p) && name(*p) == Some(n.as_str()),
            _ => false,
        },
    )
}
