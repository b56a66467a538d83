//! The elements along an axis in order.

use super::shared::sort::{self, SORT_ATTRS};
use super::take_along;
use crate::OpDef;
use crate::eval::Data;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "sort",
    summary: "Puts the elements along an axis in order, the smallest first unless `descending`. NaN comes \
              last in either direction.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: SORT_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| Ok(vec![sort::infer(cx)?]),
    grad: Grad::Vjp(|e, n, _| {
        let (x, axis) = (n.operands[0], n.attrs.int("axis"));
        let places = sort::argsort(e, x, axis, n.attrs.bool("descending"));
        Some(sort::back(e, x, places, axis, n.ct))
    }),
    rules: &[],
    facts: Facts { moves: Moves::Reordered, ..Facts::NONE },
    indices: Indices::None,
    needs: sort::needs,
    cost: crate::cost::as_lowered,
    lower: Lower::Expand(|e, operands, attrs| {
        let (x, axis) = (operands[0], attrs.int("axis"));
        let places = sort::argsort(e, x, axis, attrs.bool("descending"));
        take_along::emit(e, x, places, axis)
    }),
    eval: Eval::Pure(|cx| {
        let (axis, down) = (cx.attrs.int("axis") as usize, cx.attrs.bool("descending"));
        let mut out = cx.operands[0].clone();
        match &mut out.data {
            Data::Float(a) => sort::sort(a, axis, |a, b| sort::floats(*a, *b, down)),
            Data::Int(a) => sort::sort(a, axis, |a, b| if down { b.cmp(a) } else { a.cmp(b) }),
            Data::Bool(_) => return Err("expected numbers".into()),
        }
        Ok(vec![out])
    }),
};
