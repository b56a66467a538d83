//! Does in several kernels what is too much for one.
//!
//! Large tensors are reduced to a scalar in two steps, so that threads share the
//! work: rows of the tensor first, then what is left of each. A kernel's iterations
//! are what threads share, and a reduction to a scalar has one. The rows depend on
//! sizes alone, never on the number of threads, and so do the bits of the result. A
//! size that is known only when the program runs counts as large.
//!
//! Many tensors are joined a few at a time. An element of a join is looked for in
//! each operand, so joining n of them at once takes time and code for n at every
//! element; a tree of joins takes log n copies of it instead.

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use tfc_ir::build::{GraphEmit, Rewriter};
use tfc_ir::diag::Diag;
use tfc_ir::lower::Lower;
use tfc_ir::op::Moves;
use tfc_ir::vjp::{Emit, V};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Node, Op, ValueId};

/// Fewer elements than this are one thread's work.
const LARGE: i64 = 1 << 16;
/// A row has at least this many elements, where their number is known.
const ROW: i64 = 1 << 8;
/// Rows of a tensor that has none, or too few, of its own.
const FLAT_ROW: i64 = 1 << 12;
/// Rows enough for any number of threads.
const MANY: i64 = 1 << 6;
/// Operands joined at once, at most.
const JOINED: usize = 16;

pub fn split(graph: Graph, _: &PassOptions) -> Result<Passed, Vec<Diag>> {
    each_func(graph, |graph, func| {
        let mut any = false;
        func.walk(&mut |_, node| any |= cut(func, node).is_some() || joins_many(node));
        if !any {
            return Ok((func.clone(), false));
        }
        let new = rewrite(graph, func, &mut |r, id| {
            let old = r.old;
            let node = &old.nodes[id];
            if joins_many(node) {
                return join_in_steps(r, node).map(|value| Some(vec![value]));
            }
            let Some(cut) = cut(old, node) else { return Ok(None) };
            let operand: ValueId = r.get(node.operands[0]);
            let to = old.ty(node.results[0]).clone();
            let mut builder = r.builder(&node.origin());
            let emit = GraphEmit::new(&mut builder);
            let x = emit.opaque(operand);
            let e: &dyn Emit = &emit;
            // Half-precision sums are rounded once, at the end.
            let half = matches!(to.dtype, DType::F16 | DType::BF16);
            let sums = half && cut.rounds;
            let x = if sums { e.cast(x, DType::F32) } else { x };
            let y = in_steps(e, node.op, &cut, x);
            let y = if sums { e.cast(y, to.dtype) } else { y };
            let y = e.reshape(y, &to.shape);
            let value = emit.value(y);
            emit.finish()?;
            Ok(Some(vec![value]))
        })?;
        Ok((new, true))
    })
}

fn joins_many(node: &Node) -> bool {
    node.op.def().facts.moves == Moves::Joined && node.operands.len() > JOINED
}

/// A tree of joins of about equal size. Fusion stores those inside it: an element of
/// the next one would repeat their search.
fn join_in_steps(r: &mut Rewriter<'_>, node: &Node) -> Result<ValueId, Stop> {
    let mut parts: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
    while parts.len() > 1 {
        // Levels still to come, this one included, and how many each must join.
        let levels = (1..).find(|n| JOINED.saturating_pow(*n) >= parts.len()).unwrap_or(1);
        let each = (2..JOINED).find(|n| n.saturating_pow(levels) >= parts.len()).unwrap_or(JOINED);
        let mut joined = vec![];
        for some in parts.chunks(each) {
            joined.push(match some {
                [one] => *one,
                _ => r.builder(&node.origin()).emit(node.op, some, node.attrs.clone())?,
            });
        }
        parts = joined;
    }
    Ok(parts[0])
}

/// How a large reduction is done in steps.
struct Cut {
    rows: Rows,
    /// Makes one result of two.
    combine: Op,
    /// Each step rounds.
    rounds: bool,
}

/// How a tensor is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rows {
    /// Its first axes, this many, count the rows.
    Axes(usize),
    /// The elements in order, cut into rows of [`FLAT_ROW`].
    Flat,
    /// Its first axis, whose size is known when it runs, cut into rows of this many.
    First(i64),
}

/// The rows to reduce first, if this is a large reduction to a scalar.
fn cut(func: &Func, node: &Node) -> Option<Cut> {
    let Lower::Reduce(kind) = node.op.def().lower else { return None };
    let combine = kind.combining()?;
    let cut = |rows: Rows| Cut { rows, combine, rounds: kind.rounds() };
    let from = func.ty(node.operands[0]);
    if !func.ty(node.results[0]).elements().is_one() || from.elements().is_one() {
        return None;
    }
    let known = |axes: &[Dim]| axes.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?));
    if let Some(all) = known(&from.shape) {
        if all < LARGE {
            return None;
        }
        let enough = |n: &usize| {
            known(&from.shape[..*n]).is_some_and(|rows| rows >= MANY && all / rows >= ROW)
        };
        return Some(cut((1..from.rank()).find(enough).map_or(Rows::Flat, Rows::Axes)));
    }
    // Sizes of a run: all axes up to the last such size, if rows are long; else the axis of
    // that size is in the rows, and cut if it is the first.
    let last = from.shape.iter().rposition(|d| d.as_const().is_none())?;
    Some(cut(match (known(&from.shape[last + 1..])?, last) {
        (0, _) => return None,
        (ROW.., _) => Rows::Axes(last + 1),
        (each, 0) => Rows::First(FLAT_ROW / each),
        _ => Rows::Axes(last),
    }))
}

fn in_steps(e: &dyn Emit, op: Op, cut: &Cut, x: V) -> V {
    match cut.rows {
        Rows::Axes(first) => {
            let rank = e.ty(x).rank();
            let inner = reduce(e, op, x, first..rank);
            reduce(e, op, inner, 0..first)
        }
        Rows::Flat => {
            let all = e.ty(x).elements();
            let flat = e.reshape(x, &[all]);
            in_steps(e, op, &Cut { rows: Rows::First(FLAT_ROW), ..*cut }, flat)
        }
        Rows::First(row) => {
            let shape = e.ty(x).shape.clone();
            let (size, inner) = (&shape[0], &shape[1..]);
            let count = size.floor_div(row);
            let whole = count.clone() * Dim::constant(row);
            let part = |from: &Dim, to: &Dim| match from.is_zero() && to == size {
                true => x,
                false => slice(e, x, from, to),
            };
            let rows = [&[count, Dim::constant(row)], inner].concat();
            let rows = e.reshape(part(&Dim::constant(0), &whole), &rows);
            let total = in_steps(e, op, &Cut { rows: Rows::Axes(1), ..*cut }, rows);
            if whole == *size {
                return total;
            }
            let rest = reduce(e, op, part(&whole, size), 0..shape.len());
            e.emit(cut.combine, &[total, rest], Attrs::none())
        }
    }
}

/// A range of the first axis.
fn slice(e: &dyn Emit, x: V, from: &Dim, to: &Dim) -> V {
    let shape = e.ty(x).shape.clone();
    let (mut starts, mut ends) = (vec![Dim::constant(0); shape.len()], shape.clone());
    (starts[0], ends[0]) = (from.clone(), to.clone());
    let attrs = Attrs::none()
        .with("starts", Attr::Shape(starts))
        .with("ends", Attr::Shape(ends))
        .with("strides", Attr::Ints(vec![1; shape.len()]));
    e.emit(Op::Slice, &[x], attrs)
}

fn reduce(e: &dyn Emit, op: Op, x: V, axes: std::ops::Range<usize>) -> V {
    let attrs = Attrs::none()
        .with("axes", Attr::Ints(axes.map(|a| a as i64).collect()))
        .with("keep", Attr::Bool(false));
    e.emit(op, &[x], attrs)
}
