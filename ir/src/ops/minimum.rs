//! The smaller of two.

use super::util::*;
use crate::facts::{IntRange, IntegersCx, NONPOS, RangeCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "minimum",
    summary: "Takes the smaller of two tensors, elementwise; NaN if either is NaN. Where both are equal, each gets half of the gradient.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        let (this, other) = (n.operands[i], n.operands[1 - i]);
        let zero = e.splat_like(0.0, n.ct);
        let half = e.mul(n.ct, e.splat_like(0.5, n.ct));
        let wins = e.select(e.binary(Op::Lt, this, other), n.ct, zero);
        Some(e.select(e.binary(Op::Eq, this, other), half, wins))
    }),
    rules: RULES,
    facts: Facts { commutes: true, range, integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Min, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, float_min, i64::min)),
};

fn range(cx: &dyn RangeCx) -> Range {
    let (a, b) = (cx.facts(0), cx.facts(1));
    Range::new(a & b | (a | b) & NONPOS, cx.size(0).or(cx.size(1)))
}

fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let (a, b) = (cx.range(0)?, cx.range(1)?);
    if a.start < 0 || b.start < 0 {
        return None;
    }
    let second = (a.end.clone() - b.end.clone()).is_never_negative();
    Some(IntRange { start: 0, end: if second { b.end } else { a.end } })
}

const RULES: &[Rule] = &[
    Rule::exact("minimum.self", "(minimum x x)", "x", "the smaller of the same"),
    Rule::exact("minimum.twice", "(minimum (minimum x y) y)", "(minimum x y)", "already smaller"),
    Rule::exact(
        "minimum.splats",
        "(minimum (minimum x #c) #d)",
        "(minimum x (minimum #c #d))",
        "constants compare at compile time",
    ),
    Rule::exact(
        "minimum.neg",
        "(minimum (neg x) (neg y))",
        "(neg (maximum x y))",
        "one negation fewer",
    )
    .when(|m| m.root_ty().dtype.is_float()),
];
