//! Multiplies two tensors elementwise.

use super::util::*;
use crate::facts::{NONNEG, RangeCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::{Fact, Match, Rule, Search};
use crate::vjp::V;
use crate::{DType, Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "mul",
    summary: "Multiplies two tensors elementwise.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| Some(e.mul(n.ct, n.operands[1 - i]))),
    rules: RULES,
    facts: Facts { commutes: true, regroups: true, range, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Mul, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, |a, b| a * b, i64::wrapping_mul)),
};

/// The sign bit of a product is the xor of the operands'.
fn range(cx: &dyn RangeCx) -> Range {
    let square = cx.same(0, 1);
    let facts = if square { NONNEG } else { cx.facts(0) & cx.facts(1) & NONNEG };
    Range::new(facts, cx.size(0).times(cx.size(1)))
}

const RULES: &[Rule] = &[
    Rule::exact("mul.one", "(mul x 1)", "x", "one changes nothing"),
    Rule::exact("mul.minus_one", "(mul x -1)", "(neg x)", "only the sign changes"),
    Rule::exact("mul.zero", "(mul x 0)", "0", "zero, unless infinite or NaN")
        .assume("x", Fact::Finite)
        .round(),
    Rule::exact("mul.neg", "(mul x (neg y))", "(neg (mul x y))", "the sign moves outward"),
    Rule::exact(
        "mul.splats",
        "(mul (mul x #c) #d)",
        "(mul x (mul #c #d))",
        "constants multiply at compile time",
    )
    .when(|m| m.innermost(Op::Mul) && product(m))
    .round(),
    Rule::exact(
        "mul.div_splats",
        "(mul (div x #c) #d)",
        "(mul x (div #d #c))",
        "constants divide at compile time",
    )
    .when(|m| {
        m.root_ty().dtype.is_float() && m.innermost(Op::Mul) && super::div::quotient(m, "d", "c")
    })
    .round(),
    Rule::exact(
        "mul.splat_div",
        "(mul (div #c x) #d)",
        "(div (mul #c #d) x)",
        "constants multiply at compile time",
    )
    .when(|m| m.root_ty().dtype.is_float() && product(m))
    .round(),
    Rule::exact(
        "mul.splat_out",
        "(mul (mul x #c) y)",
        "(mul (mul x y) #c)",
        "constants move outward, where they meet",
    )
    .when(|m| m.splat("y").is_none() && m.splat("x").is_none())
    .within(|m| outward(m, m.magnitude("c")))
    .round(),
    Rule::exact("mul.div_cancel", "(mul (div x y) y)", "x", "dividing is undone")
        .when(|m| m.root_ty().dtype.is_float())
        .refine(),
    Rule::exact(
        "vjp.log_times",
        "(mul (vjp.log.0 p l ct) p)",
        "ct",
        "d log(p) / dp is 1/p, and nothing is divided by a probability",
    )
    .search(Search::Gradients)
    .refine(),
    Rule::exact("mul.reciprocal", "(mul x (div 1 y))", "(div x y)", "one rounding fewer")
        .when(|m| m.root_ty().dtype.is_float())
        .round(),
    Rule::exact(
        "mul.div_out",
        "(mul (div x y) z)",
        "(div (mul x z) y)",
        "divisors move outward, where they meet",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .search(Search::Pieces)
    .special(),
    Rule::exact("mul.exp", "(mul (exp x) (exp y))", "(exp (add x y))", "one exponential fewer")
        .special(),
    Rule::exact("mul.sqrt", "(mul (sqrt x) (sqrt x))", "x", "squaring undoes the root").refine(),
    Rule::exact(
        "mul.rsqrt",
        "(mul (rsqrt x) (rsqrt x))",
        "(div 1 x)",
        "one division instead of a root",
    )
    .refine(),
    Rule::exact("mul.rsqrt_self", "(mul x (rsqrt x))", "(sqrt x)", "one op instead of two")
        .refine(),
    Rule::exact(
        "mul.select_zero",
        "(mul (select c x 0) y)",
        "(select c (mul x y) 0)",
        "masks move outward, where they meet",
    )
    .refine(),
    Rule::computed(
        "mul.mask",
        "(mul x (cast:k c))",
        |m| {
            (m.ty("c").dtype == DType::Bool).then(|| {
                let e = m.emit();
                let x = m.var("x");
                e.select(m.var("c"), x, e.splat_like(0.0, x))
            })
        },
        "a mask is a choice",
    )
    .refine(),
    Rule::computed(
        "mul.matmul_push",
        "(mul (matmul:m a b) #c)",
        push_into_smaller,
        "scaling the smaller operand touches fewer elements",
    )
    .within(grows_a_bounded_operand)
    .round(),
    Rule::exact(
        "mul.bcast_join",
        "(mul (mul x (broadcast:b p)) (broadcast:b q))",
        "(mul x (broadcast:b (mul p q)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.joins())
    .within(|m| m.normal(m.magnitude("p").times(m.magnitude("q"))))
    .round(),
    Rule::exact(
        "mul.bcast_out",
        "(mul (mul x (broadcast:b p)) y)",
        "(mul (mul x y) (broadcast:b p))",
        "full-size operands meet first, so that small ones can",
    )
    .search(Search::Broadcasts)
    .when(|m| m.full_size(&["x", "y"]) && m.splat("p").is_none())
    .within(|m| outward(m, m.magnitude("p")))
    .round(),
    Rule::exact(
        "mul.bcast_div",
        "(mul (div x (broadcast:b p)) (broadcast:b q))",
        "(mul x (broadcast:b (div q p)))",
        "the small operands meet first",
    )
    .search(Search::Broadcasts)
    .when(|m| m.root_ty().dtype.is_float() && m.joins())
    .within(|m| m.normal(m.magnitude("q").times(m.magnitude("p").reciprocal())))
    .round(),
    Rule::exact(
        "mul.assoc",
        "(mul (mul x y) z)",
        "(mul x (mul y z))",
        "multiplication associates, up to rounding",
    )
    .search(Search::Pieces)
    .special(),
];

/// Whether the product of the constants `#c` and `#d` is one of normal size.
fn product(m: &Match<'_>) -> bool {
    let (Some(c), Some(d)) = (m.splat("c"), m.splat("d")) else { return false };
    !m.root_ty().dtype.is_float() || m.makes(c) && m.makes(d) && m.makes(c * d)
}

/// Whether `x * y` may be computed before a factor: it does not overflow, and the
/// factor makes it no larger, so what underflows would have anyway; or it does not
/// underflow, and the factor makes it no smaller.
fn outward(m: &Match<'_>, factor: Magnitude) -> bool {
    let inner = m.magnitude("x").times(m.magnitude("y"));
    let dtype = m.root_ty().dtype;
    let shrinks = factor.hi <= 0 && inner.below(dtype);
    !dtype.is_float() || shrinks || factor.lo >= 0 && inner.above(dtype)
}

/// Whether the operand that would be scaled neither overflows nor underflows.
fn grows_a_bounded_operand(m: &Match<'_>) -> bool {
    let scaled = |name: &str| m.normal(m.magnitude(name).times(m.magnitude("c")));
    scaled("a") && scaled("b")
}

/// Moves a constant factor of a product of matrices to the operand that is
/// smaller than the result, if one is.
fn push_into_smaller(m: &Match<'_>) -> Option<V> {
    let e = m.emit();
    let size = |name: &str| m.ty(name).static_shape().map(|s| s.iter().product::<usize>());
    let out = m.root_ty().static_shape()?.iter().product::<usize>();
    let (a, b) = (m.var("a"), m.var("b"));
    let value = m.splat("c")?;
    let scaled = |x: V| e.mul(x, e.splat_like(value, x));
    match (size("a")?, size("b")?) {
        (sa, sb) if sa < out && sa <= sb => m.again("m", &[scaled(a), b]),
        (_, sb) if sb < out => m.again("m", &[a, scaled(b)]),
        _ => None,
    }
}
