//! Sums that the backward pass of a loop carries along.
//!
//! A value used in every iteration gets a contribution in every iteration. Where that
//! touches only some rows (the gradient of `x[i]` in a loop over `x`), the rows
//! are added to the sum in place; making a whole tensor of zeros around them in
//! every iteration would cost the length of the loop once more.

use super::reverse::{Back, Reverse};
use crate::util::{Stop, is_zero};
use tfc_ir::build::Origin;
use tfc_ir::ops::bounds;
use tfc_ir::vjp::{Emit, V};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Node, Op, RegionId, TensorType, ValueId};

/// One carried sum of contributions to `key`.
pub(super) struct Sum {
    pub key: ValueId,
    /// Before the first iteration.
    pub start: ValueId,
    /// After an iteration.
    pub next: ValueId,
    form: Form,
}

/// How the sum lies in memory.
#[derive(Clone, PartialEq)]
enum Form {
    /// As the value itself.
    Whole,
    /// With its axes in another order: the permutation that puts them back.
    Turned(Vec<i64>),
    /// As rows of the value's last axes.
    Rows(Vec<Dim>),
}

/// Rows to add to a sum.
struct Update {
    form: Form,
    ty: TensorType,
    ids: ValueId,
    rows: ValueId,
    /// What the sum does with indices out of range.
    attrs: Attrs,
}

/// The sums for the contributions to one value in one iteration. The current region
/// is the body of the backward pass; `outer` the one around the loop.
pub(super) fn accumulate(
    s: &mut Reverse<'_, '_>,
    back: &mut Back,
    at: &Origin,
    key: ValueId,
    list: Vec<ValueId>,
    outer: RegionId,
) -> Result<Vec<Sum>, Stop> {
    let mut whole = vec![];
    let mut sums: Vec<(TensorType, Sum)> = vec![];
    for part in list {
        let Some(update) = update(s, at, part)? else {
            whole.push(part);
            continue;
        };
        let known = sums.iter().position(|(ty, sum)| *ty == update.ty && sum.form == update.form);
        let index = match known {
            Some(index) => index,
            None => {
                let inner = std::mem::replace(&mut s.r.region, outer);
                let start = s.zeros(at, &update.ty)?;
                s.r.region = inner;
                let next = back.param(s, at, update.ty.clone());
                sums.push((update.ty, Sum { key, start, next, form: update.form }));
                sums.len() - 1
            }
        };
        let sum = &mut sums[index].1;
        let operands = [sum.next, update.ids, update.rows];
        sum.next = s.r.builder(at).emit(Op::ScatterAdd, &operands, update.attrs)?;
    }
    let mut out: Vec<Sum> = sums.into_iter().map(|(_, sum)| sum).collect();
    if !whole.is_empty() {
        let ty = s.r.new.ty(key).clone();
        // What is there already is where the sum starts.
        let inner = std::mem::replace(&mut s.r.region, outer);
        let start = match s.parts.remove(&key) {
            Some(list) => s.sum(at, list)?,
            None => s.zeros(at, &ty)?,
        };
        s.r.region = inner;
        let before = back.param(s, at, ty);
        let part = s.sum(at, whole)?;
        let next = s.r.builder(at).emit(Op::Add, &[before, part], Attrs::none())?;
        out.push(Sum { key, start, next, form: Form::Whole });
    }
    Ok(out)
}

/// The sum of contributions to a carried value: rows are added to the others,
/// which are carried along anyway.
pub(super) fn total(
    s: &mut Reverse<'_, '_>,
    at: &Origin,
    list: Vec<ValueId>,
) -> Result<ValueId, Stop> {
    let (mut whole, mut rows) = (vec![], vec![]);
    for part in list {
        match update(s, at, part)? {
            Some(u) if !matches!(u.form, Form::Turned(_)) => rows.push((part, u)),
            _ => whole.push(part),
        }
    }
    // Something to add rows to.
    if whole.is_empty()
        && let Some((part, _)) = rows.pop()
    {
        whole.push(part);
    }
    let mut total = s.sum(at, whole)?;
    for (_, u) in rows {
        let shape = s.r.new.ty(total).shape.to_vec();
        let sum = s.emit(at, &mut |emit| {
            let e: &dyn Emit = emit;
            let base = e.reshape(emit.opaque(total), &u.ty.shape);
            let operands = [base, emit.opaque(u.ids), emit.opaque(u.rows)];
            Some(e.reshape(e.emit(Op::ScatterAdd, &operands, u.attrs.clone()), &shape))
        })?;
        total = sum.unwrap_or(total);
    }
    Ok(total)
}

impl Sum {
    /// The sum after the loop, as a gradient of its value.
    pub fn restore(
        &self,
        s: &mut Reverse<'_, '_>,
        at: &Origin,
        v: ValueId,
    ) -> Result<ValueId, Stop> {
        let back = s.emit(at, &mut |e| {
            let (e, x): (&dyn Emit, V) = (e, e.opaque(v));
            match &self.form {
                Form::Whole => None,
                Form::Turned(perm) => Some(e.transpose(x, perm)),
                Form::Rows(shape) => Some(e.reshape(x, shape)),
            }
        })?;
        Ok(back.unwrap_or(v))
    }
}

/// A contribution that is zero but for some rows.
fn update(s: &mut Reverse<'_, '_>, at: &Origin, part: ValueId) -> Result<Option<Update>, Stop> {
    let func = &s.r.new;
    let Some(node) = s.r.def(part).cloned() else { return Ok(None) };
    match node.op {
        Op::ScatterAdd => Ok(rows_of(func, &node, Form::Whole)),
        Op::Transpose => {
            Ok(s.r.def(node.operands[0]).filter(|n| n.op == Op::ScatterAdd).and_then(|scatter| {
                rows_of(func, scatter, Form::Turned(node.attrs.ints("perm").to_vec()))
            }))
        }
        Op::DynamicUpdateSlice if is_zero(func, node.operands[0]) => boxed(s, at, &node),
        _ => Ok(None),
    }
}

fn rows_of(func: &Func, node: &Node, form: Form) -> Option<Update> {
    let [base, ids, rows] = node.operands[..] else { return None };
    let attrs = node.attrs.clone();
    is_zero(func, base).then(|| Update { form, ty: func.ty(base).clone(), ids, rows, attrs })
}

/// A box as rows: along the axes up to the last one it does not fill.
fn boxed(s: &mut Reverse<'_, '_>, at: &Origin, node: &Node) -> Result<Option<Update>, Stop> {
    let (x, update) = (s.r.new.ty(node.operands[0]).clone(), s.r.new.ty(node.operands[1]).clone());
    let Some(last) = (0..x.rank()).rev().find(|a| x.shape[*a] != update.shape[*a]) else {
        return Ok(None);
    };
    let (lead, count) = (&update.shape[..=last], Dim::product(&update.shape[..=last]));
    let (rows, width) = (Dim::product(&x.shape[..=last]), Dim::product(&x.shape[last + 1..]));
    let ids = s.emit(at, &mut |emit| {
        let e: &dyn Emit = emit;
        let size = |d: Dim| {
            let attrs = Attrs::none()
                .with("size", Attr::Shape(vec![d]))
                .with("dtype", Attr::DType(DType::I64));
            e.emit(Op::DimSize, &[], attrs)
        };
        let mut total = e.splat(0.0, DType::I64, lead);
        for a in 0..=last {
            // As the slice was taken: moved so that it fits.
            let start = e.cast(emit.opaque(node.operands[2 + a]), DType::I64);
            let room = size(x.shape[a].clone() - update.shape[a].clone());
            let start = e.binary(Op::Minimum, start, room);
            let start = e.binary(Op::Maximum, start, e.splat(0.0, DType::I64, &[]));
            let along = Attrs::none()
                .with("shape", Attr::Shape(lead.to_vec()))
                .with("axis", Attr::Int(a as i64))
                .with("dtype", Attr::DType(DType::I64));
            let at = e.add(e.broadcast(start, lead, &[]), e.emit(Op::Iota, &[], along));
            let stride = size(Dim::product(&x.shape[a + 1..=last]));
            total = e.add(total, e.mul(at, e.broadcast(stride, lead, &[])));
        }
        Some(e.reshape(total, std::slice::from_ref(&count)))
    })?;
    let flat = s.emit(at, &mut |e| {
        let shape = [count.clone(), width.clone()];
        Some((e as &dyn Emit).reshape(e.opaque(node.operands[1]), &shape))
    })?;
    let (Some(ids), Some(flat)) = (ids, flat) else { return Ok(None) };
    let ty = TensorType::new(x.dtype, vec![rows, width]);
    let attrs = bounds::unchecked(Op::ScatterAdd, Attrs::none());
    Ok(Some(Update { form: Form::Rows(x.shape.to_vec()), ty, ids, rows: flat, attrs }))
}
