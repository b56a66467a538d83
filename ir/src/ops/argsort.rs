//! The order of the elements along an axis.

use super::shared::sort::{self, SORT_ATTRS};
use super::util::*;
use crate::eval::{Array, Data};
use crate::facts::IntRange;
use crate::lower::{Lower, Routine};
use crate::op::*;
use crate::{DType, Dim, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "argsort",
    summary: "Gives the indices that put the elements along an axis in order, as i32. Equal elements \
              keep their order, and NaN comes last in either direction.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: SORT_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let shape = sort::infer(cx)?.shape;
        Ok(vec![TensorType::new(DType::I32, shape)])
    },
    grad: Grad::Undefined("argsort has no derivative: its result is indices"),
    rules: &[],
    facts: Facts {
        integers: |cx| {
            let axis = cx.attrs.int("axis") as usize;
            IntRange::indices_of(&cx.result.shape[axis], DType::I32)
        },
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: sort::needs,
    cost: crate::cost::as_lowered,
    lower: Lower::Call(Routine::ArgSort, |cx| {
        let axis = cx.attrs.int("axis") as usize;
        let (before, after) = cx.result.shape.split_at(axis);
        let down = i64::from(cx.attrs.bool("descending"));
        vec![Dim::product(before), after[0].clone(), Dim::product(&after[1..]), down.into()]
    }),
    eval: Eval::Pure(|cx| {
        let (axis, down) = (cx.attrs.int("axis") as usize, cx.attrs.bool("descending"));
        let places = match &cx.operands[0].data {
            Data::Float(a) => sort::places(a, axis, |a, b| sort::floats(*a, *b, down)),
            Data::Int(a) => sort::places(a, axis, |a, b| if down { b.cmp(a) } else { a.cmp(b) }),
            Data::Bool(_) => return Err("expected numbers".into()),
        };
        Ok(vec![Array::int(DType::I32, from_vec(cx.operands[0].shape(), places))])
    }),
};
