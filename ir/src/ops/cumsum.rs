//! Running sums.

use super::util::*;
use crate::kernel::Combine;
use crate::lower::Lower;
use crate::op::*;
use crate::{Attr, Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "cumsum",
    summary: "Gives running sums along an axis: each element combined with all before it.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: SCAN_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_scan,
    grad: Grad::Vjp(|e, n, _| {
        let attrs = n.attrs.clone().with("reverse", Attr::Bool(!n.attrs.bool("reverse")));
        Some(e.emit(Op::CumSum, &[n.ct], attrs))
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Scan(Combine::Sum),
    eval: Eval::Pure(|cx| eval_scan(cx, (0.0, |a, b| a + b), (0, i64::wrapping_add))),
};
