//! Replacing a box of a tensor at a place computed at run time.

use super::dynamic_slice::{self, fits, start, start_values, starts};
use super::{bounds, pull, sizes};
use crate::eval::{Array, Data};
use crate::kernel::{Ix, ScalarOp};
use crate::lower::{Lower, Pull};
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attrs, Op, OpDef};
use ndarray::ArrayD;

pub const DEF: OpDef = OpDef {
    name: "dynamic_update_slice",
    summary: "`x` with the box that begins at `starts` replaced by `update`. A box that sticks \
              out fails the call; with `bounds: \"clamp\"` it is moved so that it fits.",
    operands: &[
        Operand::one("x", ElementKind::Any),
        Operand::one("update", ElementKind::Any),
        Operand::many("starts", ElementKind::Int),
    ],
    attrs: &[bounds::attr("a box that sticks out: \"check\" fails, \"clamp\" moves it")],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        bounds::valid(cx)?;
        let (x, update) = (&cx.operands[0], &cx.operands[1]);
        sizes::same_dtype(cx, 0, 1)?;
        if x.rank() != update.rank() {
            return Err(InferError::new(
                "E0238",
                format!("`{}` needs tensors of one rank, but has {x} and {update}", cx.op),
            )
            .at(Blame::Operand(0), format!("rank {}", x.rank()))
            .at(Blame::Operand(1), format!("rank {}", update.rank())));
        }
        starts(cx, 2)?;
        fits(cx, x, &update.shape)
            .map_err(|err| err.at(Blame::Operand(1), format!("this is {update}")))?;
        Ok(vec![x.clone()])
    },
    grad: Grad::Vjp(|e, n, i| {
        let starts = &n.operands[2..];
        match i {
            0 => Some(emit(e, n.ct, e.splat_like(0.0, n.operands[1]), starts)),
            1 => Some(dynamic_slice::emit(e, n.ct, starts, &e.ty(n.operands[1]).shape)),
            _ => None,
        }
    }),
    rules: &[],
    facts: Facts { moves: Moves::Replaced, ..Facts::NONE },
    indices: Indices::Or(bounds::CLAMP, |cx| {
        bounds::boxed(cx.operands[0], &cx.operands[1].shape, 2)
    }),
    needs: |cx, need| crate::require::box_fits(cx, &cx.operands[1].shape, need),
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let (x, update) = (k.operand_type(0).shape, k.operand_type(1).shape);
        let old = k.operand(0, at);
        let mut inside = None;
        let (mut from, mut guarded) = (vec![], vec![]);
        for i in 0..at.len() {
            if x[i] == update[i] {
                from.push(at[i].clone());
                continue;
            }
            let start = start(k, 2 + i, &x[i], &update[i]);
            let p = k.index(&at[i]);
            let local = k.op(ScalarOp::Sub, &[p, start]);
            let here = pull::inside(k, local, &update[i]);
            inside = Some(pull::and(k, inside, here));
            let local = pull::clamp(k, local, &update[i]);
            from.push(k.dynamic(local));
            guarded.push(update[i].clone());
        }
        let new = k.guarded(1, &from, &guarded);
        match inside {
            Some(inside) => k.op(ScalarOp::Select, &[inside, new, old]),
            None => new,
        }
    }),
    eval: Eval::Pure(|cx| {
        let (x, update) = (&cx.operands[0], &cx.operands[1]);
        let starts = start_values(cx, update.shape(), &cx.operands[2..])?;
        fn replaced<T: Copy>(x: &ArrayD<T>, update: &ArrayD<T>, starts: &[usize]) -> ArrayD<T> {
            sizes::build(x.shape(), |at| {
                let local: Option<Vec<usize>> = (0..at.len())
                    .map(|i| at[i].checked_sub(starts[i]).filter(|p| *p < update.shape()[i]))
                    .collect();
                local.map_or_else(|| x[at], |local| update[&local[..]])
            })
        }
        let data = match (&x.data, &update.data) {
            (Data::Float(x), Data::Float(u)) => Data::Float(replaced(x, u, &starts)),
            (Data::Int(x), Data::Int(u)) => Data::Int(replaced(x, u, &starts)),
            (Data::Bool(x), Data::Bool(u)) => Data::Bool(replaced(x, u, &starts)),
            _ => return Err("operands of different types".into()),
        };
        Ok(vec![Array { dtype: x.dtype, data }])
    }),
};

/// Where in the result an element of the update goes.
pub fn place(k: &mut dyn Pull, at: &[Ix]) -> Vec<Ix> {
    let (x, update) = (k.operand_type(0).shape, k.operand_type(1).shape);
    (0..at.len())
        .map(|i| match x[i] == update[i] {
            true => at[i].clone(),
            false => {
                let start = start(k, 2 + i, &x[i], &update[i]);
                k.dynamic(start).plus(&at[i])
            }
        })
        .collect()
}

/// A box that fits, or is moved so that it does.
pub fn emit(e: &dyn Emit, x: V, update: V, starts: &[V]) -> V {
    let operands = [&[x, update], starts].concat();
    let attrs = bounds::unchecked(Op::DynamicUpdateSlice, Attrs::none());
    e.emit(Op::DynamicUpdateSlice, &operands, attrs)
}
