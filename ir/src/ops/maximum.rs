//! The larger of two.

use super::util::*;
use crate::facts::{IntRange, IntegersCx, NONNEG, RangeCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "maximum",
    summary: "Takes the larger of two tensors, elementwise; NaN if either is NaN. Where both are equal, each gets half of the gradient.",
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
        let wins = e.select(e.binary(Op::Gt, this, other), n.ct, zero);
        Some(e.select(e.binary(Op::Eq, this, other), half, wins))
    }),
    rules: RULES,
    facts: Facts { commutes: true, range, integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Max, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, float_max, i64::max)),
};

fn range(cx: &dyn RangeCx) -> Range {
    let (a, b) = (cx.facts(0), cx.facts(1));
    Range::new((a | b) & NONNEG | a & b, cx.size(0).or(cx.size(1)))
}

fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let (a, b) = (cx.range(0)?, cx.range(1)?);
    Some(IntRange { start: a.start.max(b.start), ..a.or(b)? })
}

const RULES: &[Rule] = &[
    Rule::exact("maximum.self", "(maximum x x)", "x", "the larger of the same"),
    Rule::exact("maximum.twice", "(maximum (maximum x y) y)", "(maximum x y)", "already larger"),
    Rule::exact(
        "maximum.splats",
        "(maximum (maximum x #c) #d)",
        "(maximum x (maximum #c #d))",
        "constants compare at compile time",
    ),
    Rule::exact(
        "maximum.relu",
        "(maximum x 0)",
        "(relu x)",
        "one op, which keeps the sign of zero",
    )
    .round(),
    Rule::exact(
        "maximum.neg",
        "(maximum (neg x) (neg y))",
        "(neg (minimum x y))",
        "one negation fewer",
    )
    .when(|m| m.root_ty().dtype.is_float()),
];
