//! The rectifier.

use super::util::*;
use crate::facts::{FINITE, NONNEG, NONZERO, RangeCx};
use crate::kernel::{Scalar, ScalarOp};
use crate::lower::Lower;
use crate::op::*;
use crate::rule::{Fact, Rule};
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "relu",
    summary: "Replaces negative elements by 0; NaN stays NaN. The derivative at 0 is taken to be 0.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let zero = e.splat_like(0.0, n.out);
        Some(e.select(e.binary(Op::Gt, n.out, zero), n.ct, zero))
    }),
    rules: RULES,
    facts: Facts { range, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        // Not `Max`: a compare and a blend are cheaper, and keep NaN as well.
        let zero = k.constant(Scalar::of(k.reg_type(a[0]), 0.0));
        let below = k.op(ScalarOp::Lt, &[a[0], zero]);
        k.op(ScalarOp::Select, &[below, zero, a[0]])
    }),
    eval: Eval::Pure(|cx| eval_num(cx, |x| if x < 0.0 { 0.0 } else { x }, |x| x.max(0))),
};

/// What is negative becomes zero.
fn range(cx: &dyn RangeCx) -> Range {
    let kept = if cx.has(0, Fact::NonNeg) { NONNEG | FINITE | NONZERO } else { FINITE };
    Range::new(cx.facts(0) & kept, cx.size(0))
}

const RULES: &[Rule] = &[
    Rule::exact("relu.relu", "(relu (relu x))", "(relu x)", "already not negative"),
    Rule::exact("relu.nonneg", "(relu x)", "x", "already not negative").assume("x", Fact::NonNeg),
    Rule::exact(
        "relu.select",
        "(relu (select c x 0))",
        "(select c (relu x) 0)",
        "masks move outward, where they meet",
    ),
];
