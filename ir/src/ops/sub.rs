//! Subtracts the second tensor from the first.

use super::util::*;
use crate::facts::{IntRange, IntegersCx, NONPOS, RangeCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::{Fact, Rule, Search};
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "sub",
    summary: "Subtracts the second tensor from the first.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| Some(if i == 0 { n.ct } else { e.neg(n.ct) })),
    rules: RULES,
    facts: Facts { regroups: true, range, integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Sub, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, |a, b| a - b, i64::wrapping_sub)),
};

fn range(cx: &dyn RangeCx) -> Range {
    let size = Magnitude::at_most(cx.size(0).or(cx.size(1)).summed(1).hi);
    match cx.own_reduction(Op::ReduceMax) {
        Some(peaks) => Range { peaks, ..Range::new(NONPOS, size) },
        None => Range::new(0, size),
    }
}

/// Constants only: differences of dims might wrap.
fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let (range, by) = (cx.range(0)?, (cx.constant)(1)?.checked_neg()?);
    range.end.as_const()?;
    range.shifted(by)?.within(cx.result.dtype)
}

const RULES: &[Rule] = &[
    Rule::exact("sub.zero", "(sub x 0)", "x", "zero takes nothing away"),
    Rule::exact("sub.from_zero", "(sub 0 x)", "(neg x)", "0 - 0 is 0, but the negated 0 is -0")
        .round(),
    Rule::exact("sub.neg", "(sub x (neg y))", "(add x y)", "taking away the negated adds"),
    Rule::exact("sub.of_neg", "(sub (neg x) y)", "(neg (add x y))", "the sign moves outward")
        .round(),
    Rule::exact("sub.self", "(sub x x)", "0", "nothing is left").assume("x", Fact::Finite),
    Rule::exact(
        "sub.self_slope",
        "(sub x x)",
        "0",
        "nothing is left, where there was something finite",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .refine(),
    Rule::exact("sub.splat", "(sub x #c)", "(add x (neg #c))", "one form for constants")
        .when(|m| m.splat("c") != Some(0.0)),
    Rule::exact(
        "sub.factor",
        "(sub (mul a b) (mul a c))",
        "(mul a (sub b c))",
        "one product fewer",
    )
    .within(|m| m.bounded(m.magnitude("b").or(m.magnitude("c")).summed(1)))
    .refine(),
    Rule::exact(
        "sub.factor_self",
        "(sub a (mul a b))",
        "(mul a (sub 1 b))",
        "the difference happens on one factor, which may be smaller",
    )
    .refine(),
    Rule::exact(
        "sub.factor_from",
        "(sub (mul a b) a)",
        "(mul a (sub b 1))",
        "the difference happens on one factor, which may be smaller",
    )
    .refine(),
    Rule::exact(
        "sub.factor_div",
        "(sub (div a d) (div b d))",
        "(div (sub a b) d)",
        "one division fewer",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .search(Search::Pieces)
    .special(),
    Rule::exact(
        "sub.matmul_left",
        "(sub (matmul:m a b) (matmul:m a c))",
        "(matmul:m a (sub b c))",
        "half the multiplications",
    )
    .within(|m| m.bounded(m.magnitude("b").or(m.magnitude("c")).summed(1)))
    .refine(),
    Rule::exact(
        "sub.matmul_right",
        "(sub (matmul:m a c) (matmul:m b c))",
        "(matmul:m (sub a b) c)",
        "half the multiplications",
    )
    .within(|m| m.bounded(m.magnitude("a").or(m.magnitude("b")).summed(1)))
    .refine(),
    Rule::exact(
        "sub.bcast_add",
        "(sub (add x (broadcast:b p)) (broadcast:b q))",
        "(add x (broadcast:b (sub p q)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.joins())
    .special(),
    Rule::exact(
        "sub.bcast_join",
        "(sub (sub x (broadcast:b p)) (broadcast:b q))",
        "(sub x (broadcast:b (add p q)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.joins())
    .special(),
    Rule::exact(
        "sub.bcast_out",
        "(sub (sub x (broadcast:b p)) y)",
        "(sub (sub x y) (broadcast:b p))",
        "full-size operands meet first, so that small ones can",
    )
    .search(Search::Pieces)
    .when(|m| m.full_size(&["x", "y"]))
    .special(),
];
