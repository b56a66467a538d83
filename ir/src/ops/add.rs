//! Adds two tensors elementwise.

use super::util::*;
use crate::eval::round_to;
use crate::facts::{IntRange, IntegersCx, NONNEG, NONPOS, RangeCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::{Fact, Match, Rule, Search};
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "add",
    summary: "Adds two tensors elementwise.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|_, n, _| Some(n.ct)),
    rules: RULES,
    facts: Facts { commutes: true, regroups: true, range, integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Add, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, |a, b| a + b, i64::wrapping_add)),
};

fn range(cx: &dyn RangeCx) -> Range {
    let (a, b) = (cx.size(0), cx.size(1));
    // What is added to something not negative makes it no smaller.
    let lo = match (cx.has(0, Fact::NonZero), cx.has(1, Fact::NonZero)) {
        _ if !(cx.has(0, Fact::NonNeg) && cx.has(1, Fact::NonNeg)) => i16::MIN,
        (true, false) => a.lo,
        (false, true) => b.lo,
        (true, true) => a.lo.max(b.lo),
        (false, false) => a.lo.min(b.lo),
    };
    let size = Magnitude { lo, hi: a.or(b).summed(1).hi };
    Range::new(cx.facts(0) & cx.facts(1) & (NONNEG | NONPOS), size)
}

/// Constants only: sums of dims might wrap.
fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let (range, by) = (cx.range(0)?, (cx.constant)(1)?);
    range.end.as_const()?;
    range.shifted(by)?.within(cx.result.dtype)
}

const RULES: &[Rule] = &[
    Rule::exact("add.zero", "(add x 0)", "x", "zero adds nothing, but -0 + 0 is 0").round(),
    Rule::exact("add.neg_zero", "(add x -0)", "x", "negative zero adds nothing at all"),
    Rule::exact(
        "add.neg",
        "(add x (neg y))",
        "(sub x y)",
        "subtraction is addition of the negated",
    ),
    Rule::exact("add.self", "(add x x)", "(mul x 2)", "doubling is exact, and reads once"),
    Rule::exact(
        "add.splats",
        "(add (add x #c) #d)",
        "(add x (add #c #d))",
        "constants add up at compile time",
    )
    .when(|m| m.innermost(Op::Add) && exact_sum(m))
    .refine(),
    Rule::exact(
        "add.splat_sub",
        "(add (sub #c x) #d)",
        "(sub (add #c #d) x)",
        "constants add up at compile time",
    )
    .when(exact_sum)
    .refine(),
    Rule::exact(
        "add.factor",
        "(add (mul a b) (mul a c))",
        "(mul a (add b c))",
        "one product fewer",
    )
    .when(different_factors)
    .within(|m| m.bounded(m.magnitude("b").or(m.magnitude("c")).summed(1)))
    .refine(),
    Rule::exact(
        "add.factor_opposite",
        "(add (mul x #c) (mul y #d))",
        "(mul (sub x y) #c)",
        "one product fewer",
    )
    .when(opposite_factors)
    .within(|m| {
        let sum = m.magnitude("x").or(m.magnitude("y")).summed(1);
        m.splat("c").is_some_and(|c| c >= 1.0) || m.bounded(sum)
    })
    .round(),
    Rule::exact(
        "add.factor_self",
        "(add a (mul a b))",
        "(mul a (add b 1))",
        "the sum happens on one factor, which may be smaller",
    )
    .refine(),
    Rule::exact(
        "add.factor_div",
        "(add (div a d) (div b d))",
        "(div (add a b) d)",
        "one division fewer",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .search(Search::Pieces)
    .special(),
    Rule::exact(
        "add.matmul_left",
        "(add (matmul:m a b) (matmul:m a c))",
        "(matmul:m a (add b c))",
        "half the multiplications",
    )
    .within(|m| m.bounded(m.magnitude("b").or(m.magnitude("c")).summed(1)))
    .refine(),
    Rule::exact(
        "add.matmul_right",
        "(add (matmul:m a c) (matmul:m b c))",
        "(matmul:m (add a b) c)",
        "half the multiplications",
    )
    .within(|m| m.bounded(m.magnitude("a").or(m.magnitude("b")).summed(1)))
    .refine(),
    Rule::exact(
        "add.sums",
        "(add (sum:s x) (sum:s y))",
        "(sum:s (add x y))",
        "one reduction fewer",
    )
    .when(same_shapes)
    .search(Search::Pieces)
    .special(),
    Rule::exact(
        "add.selects",
        "(add (select c x 0) (select c 0 y))",
        "(select c x y)",
        "the two halves of one choice",
    )
    .round(),
    Rule::exact(
        "add.bcast_join",
        "(add (add x (broadcast:b p)) (broadcast:b q))",
        "(add x (broadcast:b (add p q)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.joins())
    .special(),
    Rule::exact(
        "add.bcast_out",
        "(add (add x (broadcast:b p)) y)",
        "(add (add x y) (broadcast:b p))",
        "full-size operands meet first, so that small ones can",
    )
    .search(Search::Pieces)
    .when(|m| m.full_size(&["x", "y"]) && m.splat("p").is_none())
    .special(),
    Rule::exact(
        "add.bcast_sub",
        "(add (sub x (broadcast:b p)) (broadcast:b q))",
        "(add x (broadcast:b (sub q p)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.joins())
    .special(),
    Rule::exact(
        "add.assoc",
        "(add (add x y) z)",
        "(add x (add y z))",
        "addition associates, up to rounding",
    )
    .search(Search::Pieces)
    .special(),
];

/// Whether the constants add up to one that is not rounded: `x + (c + d)` is then
/// no less precise than `(x + c) + d`.
fn exact_sum(m: &Match<'_>) -> bool {
    let (Some(c), Some(d)) = (m.splat("c"), m.splat("d")) else { return false };
    let dtype = m.root_ty().dtype;
    let sum = c + d;
    // In `f64` the parts must come back.
    let whole = sum - c == d && sum - d == c;
    !dtype.is_float() || sum.is_finite() && whole && round_to(dtype, sum) == sum
}

/// Twice the same product is a multiple of it; with a constant for the common
/// factor there would be no end of multiples.
fn different_factors(m: &Match<'_>) -> bool {
    m.var("b") != m.var("c")
}

/// Whether `#d` is `#c` with the other sign.
fn opposite_factors(m: &Match<'_>) -> bool {
    let (Some(c), Some(d)) = (m.splat("c"), m.splat("d")) else { return false };
    m.root_ty().dtype.is_float() && c == -d && c > 0.0 && c.is_finite()
}

fn same_shapes(m: &Match<'_>) -> bool {
    m.ty("x") == m.ty("y")
}
