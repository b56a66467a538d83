//! Summation over axes.

use super::util::*;

use crate::eval::{Array, Data};
use crate::lower::{Lower, Reduction};
use crate::op::*;
use crate::OpDef;
use ndarray::Axis;

pub const DEF: OpDef = OpDef {
    name: "sum",
    summary: "Sums over the given axes.",
    operands: &[Operand::one("x", Kind::Num)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(|e, n, _| {
        let shape = e.ty(n.operands[0]).shape;
        let axes = n.attrs.ints("axes");
        let ct = if n.attrs.bool("keep") {
            let all: Vec<i64> = (0..shape.len() as i64).collect();
            e.broadcast(n.ct, &shape, &all)
        } else {
            e.unreduce(n.ct, &shape, axes)
        };
        Some(ct)
    }),
    rules: &[],
    lower: Lower::Reduce(Reduction::Sum),
    eval: Eval::Pure(|cx| {
        let mut axes = cx.attrs.ints("axes").to_vec();
        axes.sort();
        let out = result_shape(cx, 0)?;
        let dtype = cx.operands[0].dtype;
        Ok(vec![match &cx.operands[0].data {
            Data::Float(a) => {
                let mut a = a.clone();
                for axis in axes.iter().rev() {
                    a = a.sum_axis(Axis(*axis as usize));
                }
                Array::float(dtype, from_vec(&out, a.into_iter().collect()))
            }
            Data::Int(a) => {
                let mut a = a.clone();
                for axis in axes.iter().rev() {
                    a = a.fold_axis(Axis(*axis as usize), 0, |s: &i64, x: &i64| s.wrapping_add(*x));
                }
                Array::int(dtype, from_vec(&out, a.into_iter().collect()))
            }
            Data::Bool(_) => return Err("expected numbers".into()),
        }])
    }),
};
