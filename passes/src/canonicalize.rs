//! Drops ops that do nothing, merges chains of movement, and moves transposes
//! into the products that can read their operands transposed.

use crate::pipeline::{Options, Passed};
use crate::util::{Stop, each_func, rewrite};
use tfc_ir::build::Rewriter;
use tfc_ir::diag::Diag;
use tfc_ir::{Attr, Attrs, Func, Graph, Node, NodeId, Op, TensorType, ValueId};

pub fn canonicalize(graph: Graph, _: &Options) -> Result<Passed, Vec<Diag>> {
    each_func(graph, run)
}

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut changed = false;
    let new = rewrite(graph, func, &mut |r, id| {
        let value = simplify(r, id)?;
        changed |= value.is_some();
        Ok(value.map(|v| vec![v]))
    })?;
    Ok((new, changed))
}

fn simplify(r: &mut Rewriter<'_>, id: NodeId) -> Result<Option<ValueId>, Stop> {
    let node = &r.old.nodes[id];
    let (Some(&first), [result]) = (node.operands.first(), node.results.as_slice()) else {
        return Ok(None);
    };
    let x = r.get(first);
    let from = r.new.ty(x).clone();
    let to = r.old.ty(*result).clone();
    match node.op {
        Op::Reshape => reshape(r, node, x, &from, &to),
        Op::Broadcast => broadcast(r, node, x, &from, &to),
        Op::Transpose => transpose(r, node, x),
        Op::Cast if from.dtype == to.dtype => Ok(Some(x)),
        Op::MatMul => matmul(r, node),
        _ if node.op.is_pure() && node.attrs.get("axes").is_some() => {
            // A reduction over no axes keeps every element.
            let reduces = matches!(node.op.def().lower, tfc_ir::lower::Lower::Reduce(_));
            Ok((reduces && node.attrs.ints("axes").is_empty() && from == to).then_some(x))
        }
        _ => Ok(None),
    }
}

/// The only operand of the node that defines `value`, if it is this op.
fn through(r: &Rewriter<'_>, value: ValueId, op: Op) -> Option<(ValueId, Attrs)> {
    let node = r.def(value)?;
    (node.op == op).then(|| (node.operands[0], node.attrs.clone()))
}

fn reshape(
    r: &mut Rewriter<'_>,
    node: &Node,
    x: ValueId,
    from: &TensorType,
    to: &TensorType,
) -> Result<Option<ValueId>, Stop> {
    if from.shape == to.shape {
        return Ok(Some(x));
    }
    let Some((inner, _)) = through(r, x, Op::Reshape) else { return Ok(None) };
    if r.new.ty(inner).shape == to.shape {
        return Ok(Some(inner));
    }
    let attrs = Attrs::none().with("shape", Attr::Shape(to.shape.clone()));
    Ok(Some(r.builder(&node.origin()).emit(Op::Reshape, &[inner], attrs)?))
}

fn broadcast(
    r: &mut Rewriter<'_>,
    node: &Node,
    x: ValueId,
    from: &TensorType,
    to: &TensorType,
) -> Result<Option<ValueId>, Stop> {
    let axes = node.attrs.ints("axes");
    if from.shape == to.shape && axes.iter().enumerate().all(|(i, a)| i as i64 == *a) {
        return Ok(Some(x));
    }
    let Some((inner, attrs)) = through(r, x, Op::Broadcast) else { return Ok(None) };
    let axes: Vec<i64> = attrs.ints("axes").iter().map(|a| axes[*a as usize]).collect();
    let attrs =
        Attrs::none().with("shape", Attr::Shape(to.shape.clone())).with("axes", Attr::Ints(axes));
    Ok(Some(r.builder(&node.origin()).emit(Op::Broadcast, &[inner], attrs)?))
}

fn transpose(r: &mut Rewriter<'_>, node: &Node, x: ValueId) -> Result<Option<ValueId>, Stop> {
    let perm = node.attrs.ints("perm");
    let identity = |p: &[i64]| p.iter().enumerate().all(|(i, a)| i as i64 == *a);
    if identity(perm) {
        return Ok(Some(x));
    }
    let Some((inner, attrs)) = through(r, x, Op::Transpose) else { return Ok(None) };
    let first = attrs.ints("perm");
    let perm: Vec<i64> = perm.iter().map(|p| first[*p as usize]).collect();
    if identity(&perm) {
        return Ok(Some(inner));
    }
    let attrs = Attrs::none().with("perm", Attr::Ints(perm));
    Ok(Some(r.builder(&node.origin()).emit(Op::Transpose, &[inner], attrs)?))
}

/// `matmul(transpose(a), b)` reads `a` as it is stored.
fn matmul(r: &mut Rewriter<'_>, node: &Node) -> Result<Option<ValueId>, Stop> {
    let mut attrs = node.attrs.clone();
    let mut operands: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
    let mut changed = false;
    for (i, name) in ["trans_a", "trans_b"].into_iter().enumerate() {
        let Some((inner, inner_attrs)) = through(r, operands[i], Op::Transpose) else { continue };
        let perm = inner_attrs.ints("perm");
        let n = perm.len();
        let swaps = n >= 2
            && perm[..n - 2].iter().enumerate().all(|(i, a)| i as i64 == *a)
            && perm[n - 2..] == [n as i64 - 1, n as i64 - 2];
        if swaps {
            operands[i] = inner;
            attrs.set(name, Attr::Bool(!attrs.bool(name)));
            changed = true;
        }
    }
    if !changed {
        return Ok(None);
    }
    Ok(Some(r.builder(&node.origin()).emit(Op::MatMul, &operands, attrs)?))
}
