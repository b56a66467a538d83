//! Where the largest elements along an axis are.

use super::shared::sort::{self, TOP_ATTRS};
use crate::facts::IntRange;
use crate::lower::Lower;
use crate::op::*;
use crate::{Attr, DType, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "top_k_index",
    summary: "Gives the indices of the `k` largest elements along an axis, the largest first, as i32. Of \
              equal elements the first is first; NaN counts as smallest.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: TOP_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let shape = sort::infer_top(cx)?.shape;
        Ok(vec![TensorType::new(DType::I32, shape)])
    },
    grad: Grad::Undefined("top_k_index has no derivative: its result is indices"),
    rules: &[],
    facts: Facts {
        integers: |cx| {
            let axis = cx.attrs.int("axis") as usize;
            IntRange::indices_of(&cx.operands[0].shape[axis], DType::I32)
        },
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: sort::needs_top,
    cost: crate::cost::as_lowered,
    lower: Lower::Expand(|e, operands, attrs| sort::top_places(e, operands[0], attrs)),
    eval: Eval::Pure(|cx| {
        let attrs = cx.attrs.clone().with("descending", Attr::Bool(true));
        let Eval::Pure(argsort) = Op::ArgSort.def().eval else { return Err("no order".into()) };
        let order = argsort(&EvalCx { attrs: &attrs, ..*cx })?.remove(0);
        let (axis, k) = (cx.attrs.int("axis") as usize, cx.attrs.int("k") as usize);
        Ok(vec![sort::first(&order, axis, k)])
    }),
};
