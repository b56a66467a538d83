//! Computes at compile time what depends on literals alone.
//!
//! Through each op's own `eval`, so a folded value is what the interpreter
//! would say. Results above [`MAX_BYTES`] are left to run time, repeated values
//! stay one element and a `broadcast`, and random draws are never folded.

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use std::sync::Arc;
use tfc_ir::build::Rewriter;
use tfc_ir::diag::Diag;
use tfc_ir::eval::{Array, Data};
use tfc_ir::lower::Lower;
use tfc_ir::magnitude::is_normal;
use tfc_ir::op::{Eval, EvalCx, Moves, Stage};
use tfc_ir::{Attr, Attrs, DType, Func, Graph, Node, NodeId, Op, Tensor, TensorType, ValueId};

/// Folding must not grow the program.
pub const MAX_BYTES: i64 = 64 * 1024;

pub fn fold(graph: Graph, _: &PassOptions) -> Result<Passed, Vec<Diag>> {
    each_func(graph, run)
}

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut changed = false;
    let new = rewrite(graph, func, &mut |r, id| {
        let value = fold_node(r, id)?;
        changed |= value.is_some();
        Ok(value.map(|v| vec![v]))
    })?;
    Ok((new, changed))
}

fn fold_node(r: &mut Rewriter<'_>, id: NodeId) -> Result<Option<ValueId>, Stop> {
    let node = &r.old.nodes[id];
    let def = node.op.def();
    let Eval::Pure(eval) = def.eval else { return Ok(None) };
    // What other processes have is not known here either.
    let unknown = def.is_random() || def.stage == Stage::Source;
    let skip = !node.op.is_pure() || node.op == Op::Const || unknown;
    let [result] = node.results.as_slice() else { return Ok(None) };
    if skip {
        return Ok(None);
    }
    let ty = r.old.ty(*result).clone();
    let operands: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
    // All elements of all operands equal: one element stands for all.
    if matches!(def.lower, Lower::Map(_)) && !operands.is_empty() {
        let scalars: Option<Vec<Array>> = operands.iter().map(|v| splat(r, *v)).collect();
        let Some(scalars) = scalars else { return Ok(None) };
        let results = [TensorType::scalar(ty.dtype)];
        let Some(tensor) = evaluate(eval, &scalars, node, &results) else { return Ok(None) };
        let value = constant(r, node, tensor)?;
        if ty.shape.is_empty() {
            return Ok(Some(value));
        }
        let attrs =
            Attrs::none().with("shape", Attr::Shape(ty.shape)).with("axes", Attr::Ints(vec![]));
        return Ok(Some(r.builder(&node.origin()).emit(Op::Broadcast, &[value], attrs)?));
    }
    let size = ty.elements().as_const().map(|n| n.saturating_mul(ty.dtype.size() as i64));
    if size.is_none_or(|s| s > MAX_BYTES) || ty.static_shape().is_none() {
        return Ok(None);
    }
    // Repeating one value is what `broadcast` is for.
    if def.facts.moves == Moves::Repeated && splat(r, operands[0]).is_some() {
        return Ok(None);
    }
    let literals: Option<Vec<Array>> = operands
        .iter()
        .map(|v| {
            let def = r.def(*v)?;
            if def.op != Op::Const {
                return None;
            }
            def.attrs.tensor("value").map(|t| Array::from_tensor(t))
        })
        .collect();
    let Some(literals) = literals else { return Ok(None) };
    let results = [ty];
    let Some(tensor) = evaluate(eval, &literals, node, &results) else { return Ok(None) };
    Ok(Some(constant(r, node, tensor)?))
}

/// The one value of a constant, or of a repeated one.
fn splat(r: &Rewriter<'_>, value: ValueId) -> Option<Array> {
    let node = r.def(value)?;
    if node.op == Op::Const {
        let t = node.attrs.tensor("value")?;
        let size = t.dtype().size();
        let first = t.bytes().get(..size)?;
        if !t.bytes().chunks_exact(size).all(|e| e == first) {
            return None;
        }
        let one = Tensor::from_bytes(t.dtype(), vec![], first.into())?;
        return Some(Array::from_tensor(&one));
    }
    let repeats = node.op.def().facts.moves == Moves::Repeated;
    repeats.then(|| splat(r, node.operands[0])).flatten()
}

type EvalFn = fn(&EvalCx<'_>) -> Result<Vec<Array>, String>;

fn evaluate(
    eval: EvalFn,
    operands: &[Array],
    node: &Node,
    results: &[TensorType],
) -> Option<Tensor> {
    Some(evaluated(eval, operands, &node.attrs, results)?.to_tensor())
}

/// The value of an op on known operands; `None` if it needs what only run time
/// knows, or if it overflows or underflows: such a constant says nothing of what
/// it was made from, and must not meet others.
pub(crate) fn evaluated(
    eval: EvalFn,
    operands: &[Array],
    attrs: &Attrs,
    results: &[TensorType],
) -> Option<Array> {
    // No dim has a value at compile time: an op that needs one says so.
    let cx = EvalCx { operands, attrs, results, dims: &|_| None };
    let out = eval(&cx).ok()?.pop()?;
    let Data::Float(values) = &out.data else { return Some(out) };
    let plain = |v: &f64| *v == 0.0 || is_normal(*v, out.dtype);
    if values.iter().any(|v| !plain(v)) && operands.iter().all(usual) {
        return None;
    }
    // The same in the widest type shows a zero that should not be one.
    if out.dtype != DType::F64 && values.iter().any(|v| *v == 0.0) {
        let wide = |a: &Array| match a.dtype.is_float() {
            true => Array { dtype: DType::F64, ..a.clone() },
            false => a.clone(),
        };
        let wider: Vec<Array> = operands.iter().map(wide).collect();
        let results: Vec<TensorType> =
            results.iter().map(|t| TensorType::new(DType::F64, t.shape.clone())).collect();
        let mut attrs = attrs.clone();
        if attrs.dtype("to").is_some() {
            attrs.set("to", Attr::DType(DType::F64));
        }
        let cx = EvalCx { operands: &wider, attrs: &attrs, results: &results, dims: &|_| None };
        let exact = eval(&cx).ok().and_then(|mut a| a.pop());
        if let Some(Array { data: Data::Float(exact), .. }) = exact
            && exact.shape() == values.shape()
            && exact.iter().zip(values).any(|(e, v)| *v == 0.0 && *e != 0.0)
        {
            return None;
        }
    }
    Some(out)
}

/// Whether an operand is of the kind whose infinities come from overflow: no
/// element of it is infinite, NaN, zero (which may be divided by) or subnormal.
fn usual(a: &Array) -> bool {
    match &a.data {
        Data::Float(values) => values.iter().all(|v| is_normal(*v, a.dtype)),
        _ => true,
    }
}

fn constant(r: &mut Rewriter<'_>, node: &Node, tensor: Tensor) -> Result<ValueId, Stop> {
    let attrs = Attrs::none().with("value", Attr::Tensor(Arc::new(tensor)));
    Ok(r.builder(&node.origin()).emit(Op::Const, &[], attrs)?)
}
