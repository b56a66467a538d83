//! Adding rows to a tensor by index.

use super::bounds::IndexUse;
use super::{gather, sizes};
use crate::eval::{Array, Data};
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attrs, Op, OpDef, TensorType};
use ndarray::ArrayD;

pub const DEF: OpDef = OpDef {
    name: "scatter_add",
    summary: "`base` with row `ids[i]` increased by `updates[i]`, for every i in order; repeated \
              indices add up. An index out of range fails at run time.",
    operands: &[
        Operand::one("base", ElementKind::Num),
        Operand::one("ids", ElementKind::Index),
        Operand::one("updates", ElementKind::Num),
    ],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        sizes::same_dtype(cx, 0, 2)?;
        rows(cx.op, &cx.operands[0], &cx.operands[1], &cx.operands[2], 1)
            .map_err(|err| err.at(Place::Operand(0), format!("this is {}", cx.operands[0])))?;
        Ok(vec![cx.operands[0].clone()])
    },
    grad: Grad::Vjp(|e, n, i| match i {
        0 => Some(n.ct),
        2 => Some(gather::emit(e, n.ct, n.operands[1], 0)),
        _ => None,
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::Checked(|cx| vec![IndexUse::one(1, 0, cx.operands[0].shape[0].clone())]),
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::AddRows,
    eval: Eval::Pure(|cx| {
        let [base, ids, updates] = cx.operands else { return Err("expected 3 operands".into()) };
        let Data::Int(ids) = &ids.data else { return Err("expected indices".into()) };
        Ok(vec![match (&base.data, &updates.data) {
            (Data::Float(b), Data::Float(u)) => {
                Array::float(base.dtype, scatter(b, ids, u, |a, b| *a += b)?)
            }
            (Data::Int(b), Data::Int(u)) => {
                Array::int(base.dtype, scatter(b, ids, u, |a, b| *a = a.wrapping_add(b))?)
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
        .at(Place::Operand(first + 1), format!("this is {updates}, but {expected} is needed"))
        .at(Place::Operand(first), format!("this is {ids}")))
}

/// `base` with rows combined in order: also what updates of variables mean.
pub fn scatter<T: Copy>(
    base: &ArrayD<T>,
    ids: &ArrayD<i64>,
    updates: &ArrayD<T>,
    combine: impl Fn(&mut T, T),
) -> Result<ArrayD<T>, String> {
    let rows = base.shape()[0];
    let width: usize = base.shape()[1..].iter().product();
    let mut out: Vec<T> = base.iter().copied().collect();
    let updates: Vec<T> = updates.iter().copied().collect();
    for (i, &id) in ids.iter().enumerate() {
        let row = usize::try_from(id)
            .ok()
            .filter(|r| *r < rows)
            .ok_or_else(|| format!("index {id} is out of range: the tensor has {rows} rows"))?;
        for j in 0..width {
            combine(&mut out[row * width + j], updates[i * width + j]);
        }
    }
    Ok(super::util::from_vec(base.shape(), out))
}

pub fn emit(e: &dyn Emit, base: V, ids: V, updates: V) -> V {
    e.emit(Op::ScatterAdd, &[base, ids, updates], Attrs::none())
}
