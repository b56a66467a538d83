//! Adding rows to a tensor by index.

use super::bounds::IndexUse;
use super::{bounds, gather, sizes};
use crate::eval::{Array, Data};
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, OpDef, TensorType};
use ndarray::ArrayD;

pub const DEF: OpDef = OpDef {
    name: "scatter_add",
    summary: "`base` with row `ids[i]` increased by `updates[i]`, for every i in order; repeated \
              indices add up. An index out of range fails the call, a negative one too; with \
              `bounds: \"drop\"` its row is left out.",
    operands: &[
        Operand::one("base", ElementKind::Num),
        Operand::one("ids", ElementKind::Index),
        Operand::one("updates", ElementKind::Num),
    ],
    attrs: &[bounds::attr("indices out of range: \"check\" fails, \"drop\" leaves their rows out")],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        bounds::valid(cx)?;
        sizes::same_dtype(cx, 0, 2)?;
        rows(cx.op, &cx.operands[0], &cx.operands[1], &cx.operands[2], 1)
            .map_err(|err| err.at(Blame::Operand(0), format!("this is {}", cx.operands[0])))?;
        Ok(vec![cx.operands[0].clone()])
    },
    grad: Grad::Vjp(|e, n, i| match i {
        0 => Some(n.ct),
        2 => {
            let (ids, rows) = (n.operands[1], e.ty(n.ct).shape[0].clone());
            let taken = gather::emit(e, n.ct, ids, 0);
            match bounds::drops(n.attrs) {
                true => Some(gather::only_in_range(e, taken, ids, &rows)),
                false => Some(taken),
            }
        }
        _ => None,
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::Or(bounds::DROP, |cx| {
        vec![IndexUse::one(1, 0, cx.operands[0].shape[0].clone())]
    }),
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::AddRows,
    eval: Eval::Pure(|cx| {
        let [base, ids, updates] = cx.operands else { return Err("expected 3 operands".into()) };
        let Data::Int(ids) = &ids.data else { return Err("expected indices".into()) };
        let drop = !bounds::is_checked(cx.attrs);
        Ok(vec![match (&base.data, &updates.data) {
            (Data::Float(b), Data::Float(u)) => {
                Array::float(base.dtype, scatter(b, ids, u, drop, |a, b| *a += b)?)
            }
            (Data::Int(b), Data::Int(u)) => {
                Array::int(base.dtype, scatter(b, ids, u, drop, |a, b| *a = a.wrapping_add(b))?)
            }
            _ => return Err("expected numbers of one type".into()),
        }])
    }),
};

/// Checks that `updates` holds one row of `base` for each of `ids`. `first` is
/// the operand number of `ids`; `updates` is the one after it.
pub fn rows(
    op: &str,
    base: &TensorType,
    ids: &TensorType,
    updates: &TensorType,
    first: usize,
) -> Result<(), InferError> {
    if base.rank() == 0 {
        return Err(InferError::new(
            "E0237",
            format!("`{op}` adds to rows, but a scalar has none"),
        ));
    }
    let mut shape = ids.shape.clone();
    shape.extend_from_slice(&base.shape[1..]);
    if updates.shape == shape {
        return Ok(());
    }
    let expected = TensorType::new(updates.dtype, shape);
    Err(InferError::new("E0237", format!("`updates` of `{op}` must have one row for each index"))
        .at(Blame::Operand(first + 1), format!("this is {updates}, but {expected} is needed"))
        .at(Blame::Operand(first), format!("this is {ids}")))
}

/// `base` with rows combined in order: also what updates of variables mean. An index
/// out of range is an error, or dropped.
pub fn scatter<T: Copy>(
    base: &ArrayD<T>,
    ids: &ArrayD<i64>,
    updates: &ArrayD<T>,
    drop: bool,
    combine: impl Fn(&mut T, T),
) -> Result<ArrayD<T>, String> {
    let rows = base.shape()[0];
    let width: usize = base.shape()[1..].iter().product();
    let mut out: Vec<T> = base.iter().copied().collect();
    let updates: Vec<T> = updates.iter().copied().collect();
    for (i, &id) in ids.iter().enumerate() {
        let row = match usize::try_from(id).ok().filter(|r| *r < rows) {
            Some(row) => row,
            None if drop => continue,
            None => return Err(format!("index {id} is out of range: the tensor has {rows} rows")),
        };
        for j in 0..width {
            combine(&mut out[row * width + j], updates[i * width + j]);
        }
    }
    Ok(super::util::from_vec(base.shape(), out))
}

/// Adds rows at indices that a `gather` of an axis of this size clamped: they are in
/// range unless there is nothing to gather from.
pub fn emit(e: &dyn Emit, base: V, ids: V, updates: V, size: &Dim) -> V {
    let some = size.as_const().is_some_and(|n| n > 0);
    let bounds = if some { bounds::TRUST } else { bounds::DROP };
    let attrs = Attrs::none().with("bounds", Attr::Str(bounds.to_string()));
    e.emit(Op::ScatterAdd, &[base, ids, updates], attrs)
}
