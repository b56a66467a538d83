//! The largest elements along an axis.

use super::shared::sort::{self, TOP_ATTRS};
use super::take_along;
use crate::OpDef;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "top_k",
    summary: "Gives the `k` largest elements along an axis, the largest first; NaN counts as smallest. \
              `top_k_index` says where they are.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: TOP_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| Ok(vec![sort::infer_top(cx)?]),
    grad: Grad::Vjp(|e, n, _| {
        let places = sort::top_places(e, n.operands[0], n.attrs);
        Some(sort::back(e, n.operands[0], places, n.attrs.int("axis"), n.ct))
    }),
    rules: &[],
    facts: Facts { moves: Moves::Part, ..Facts::NONE },
    indices: Indices::None,
    needs: sort::needs_top,
    cost: crate::cost::as_lowered,
    lower: Lower::Expand(|e, operands, attrs| {
        let places = sort::top_places(e, operands[0], attrs);
        take_along::emit(e, operands[0], places, attrs.int("axis"))
    }),
    eval: Eval::Pure(|cx| {
        let sorted = sort::descending(cx)?;
        let (axis, k) = (cx.attrs.int("axis") as usize, cx.attrs.int("k") as usize);
        Ok(vec![sort::first(&sorted, axis, k)])
    }),
};
