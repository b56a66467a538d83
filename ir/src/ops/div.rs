//! Divides the first tensor by the second. Integers truncate toward zero, and by zero give zero.

use super::util::*;
use crate::facts::{NONNEG, RangeCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::{Fact, Match, Rule, Search};
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "div",
    summary: "Divides the first tensor by the second. Integers truncate toward zero, and by zero give zero.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        let [_, b] = *n.operands else { return None };
        // d(a/b) = da/b - (a/b) db/b
        Some(if i == 0 { e.div(n.ct, b) } else { e.neg(e.div(e.mul(n.ct, n.out), b)) })
    }),
    rules: RULES,
    facts: Facts { range, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Div, a)),
    eval: Eval::Pure(|cx| {
        eval_num2(cx, |a, b| a / b, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) })
    }),
};

/// The sign bit of a quotient is the xor of the operands'. A share, `x / sum(x)` of
/// something not negative, is at most one.
fn range(cx: &dyn RangeCx) -> Range {
    let share = || cx.has(0, Fact::NonNeg) && cx.own_reduction(Op::Sum).is_some();
    let size = if share() {
        Magnitude::at_most(0)
    } else if cx.has(1, Fact::NonZero) {
        cx.size(0).times(cx.size(1).reciprocal())
    } else {
        Magnitude::ANY
    };
    Range::new(cx.facts(0) & cx.facts(1) & NONNEG, size)
}

const RULES: &[Rule] = &[
    Rule::exact("div.one", "(div x 1)", "x", "one changes nothing"),
    Rule::exact("div.minus_one", "(div x -1)", "(neg x)", "only the sign changes")
        .when(|m| m.root_ty().dtype.is_float()),
    Rule::exact("div.zero_slope", "(div #c x)", "0", "nothing, divided by anything")
        .when(|m| m.root_ty().dtype.is_float() && m.splat("c") == Some(0.0))
        .refine(),
    Rule::exact("div.self_slope", "(div x x)", "1", "one, where it is anything")
        .when(|m| m.root_ty().dtype.is_float())
        .refine(),
    Rule::exact(
        "div.power_of_two",
        "(div x #c)",
        "(mul x (div 1 #c))",
        "the reciprocal of a power of two is exact",
    )
    .when(power_of_two),
    Rule::exact(
        "div.splat",
        "(div x #c)",
        "(mul x (div 1 #c))",
        "a product is cheaper than a quotient",
    )
    .when(|m| {
        m.root_ty().dtype.is_float() && m.splat("c").is_some_and(|c| m.makes(c) && m.makes(1.0 / c))
    })
    .round(),
    Rule::exact("div.neg", "(div (neg x) y)", "(neg (div x y))", "the sign moves outward")
        .when(|m| m.root_ty().dtype.is_float()),
    Rule::exact("div.by_neg", "(div x (neg y))", "(neg (div x y))", "the sign moves outward")
        .when(|m| m.root_ty().dtype.is_float()),
    Rule::exact("div.mul_cancel", "(div (mul x y) y)", "x", "multiplying is undone")
        .when(|m| m.root_ty().dtype.is_float())
        .refine(),
    Rule::exact(
        "div.div",
        "(div (div x y) z)",
        "(div x (mul y z))",
        "a product is cheaper than a quotient",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .within(|m| m.normal(m.magnitude("y").times(m.magnitude("z"))))
    .round(),
    Rule::exact(
        "div.by_div",
        "(div x (div y z))",
        "(div (mul x z) y)",
        "a product is cheaper than a quotient",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .within(|m| m.normal(m.magnitude("x").times(m.magnitude("z"))))
    .round(),
    Rule::exact(
        "div.splats",
        "(div (mul x #c) #d)",
        "(mul x (div #c #d))",
        "constants divide at compile time",
    )
    .when(|m| m.root_ty().dtype.is_float() && m.innermost(Op::Mul) && quotient(m, "c", "d"))
    .round(),
    Rule::exact(
        "div.sqrt",
        "(div x (sqrt y))",
        "(mul x (rsqrt y))",
        "the reciprocal root is one op",
    )
    .round(),
    Rule::exact(
        "div.rsqrt",
        "(div x (rsqrt y))",
        "(mul x (sqrt y))",
        "a product is cheaper than a quotient",
    )
    .round(),
    Rule::exact(
        "div.sigmoid",
        "(div 1 (add (exp (neg x)) 1))",
        "(sigmoid x)",
        "the logistic function, which does not overflow",
    )
    .round(),
    Rule::exact(
        "div.bcast",
        "(div x (broadcast:b s))",
        "(mul x (broadcast:b (div 1 s)))",
        "one quotient instead of one for each element",
    )
    .search(Search::Broadcasts)
    .when(|m| {
        m.root_ty().dtype.is_float()
            && m.splat("s").is_none()
            && m.ty("s").shape.len() < m.root_ty().shape.len()
    })
    .within(|m| m.normal(m.magnitude("s").reciprocal()))
    .round(),
    Rule::exact(
        "div.bcast_join",
        "(div (div x (broadcast:b p)) (broadcast:b q))",
        "(div x (broadcast:b (mul p q)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.root_ty().dtype.is_float() && m.joins())
    .within(|m| m.normal(m.magnitude("p").times(m.magnitude("q"))))
    .round(),
    Rule::exact(
        "div.bcast_mul",
        "(div (mul x (broadcast:b p)) (broadcast:b q))",
        "(mul x (broadcast:b (div p q)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.root_ty().dtype.is_float() && m.joins())
    .within(|m| m.normal(m.magnitude("p").times(m.magnitude("q").reciprocal())))
    .round(),
    Rule::exact(
        "vjp.log_of_quotient",
        "(vjp.div.0 e s p (vjp.log.0 p l ct))",
        "(div ct e)",
        "d log(e/s) / de is 1/e, whatever s is",
    )
    .search(Search::Gradients)
    .refine(),
    Rule::exact(
        "vjp.log_of_quotient_by",
        "(vjp.div.1 e s p (vjp.log.0 p l ct))",
        "(div (neg ct) s)",
        "d log(e/s) / ds is -1/s, whatever e is",
    )
    .search(Search::Gradients)
    .refine(),
];

/// Whether the quotient of two constants is one of normal size.
pub fn quotient(m: &Match<'_>, above: &str, below: &str) -> bool {
    let (Some(c), Some(d)) = (m.splat(above), m.splat(below)) else { return false };
    m.makes(c) && m.makes(d) && m.makes(c / d)
}

/// Whether `#c` and its reciprocal are powers of two of normal size.
fn power_of_two(m: &Match<'_>) -> bool {
    let small = |c: f64| (2.0f64.powi(-14)..=2.0f64.powi(14)).contains(&c.abs());
    m.root_ty().dtype.is_float() && m.splat("c").is_some_and(|c| small(c) && c.to_bits() << 12 == 0)
}
