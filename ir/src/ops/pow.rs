//! Powers.

use super::util::*;
use crate::kernel::{Elementary, Reg, Scalar, ScalarOp};
use crate::lower::{Lower, Pull};
use crate::op::*;
use crate::rule::{Fact, Rule};
use crate::{DType, Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "pow",
    summary: "Raises `a` to the power `b`, elementwise. Integers wrap, and negative exponents of \
              integers truncate toward zero. With respect to `b`, the derivative where `a` is not \
              positive is taken to be 0.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        let [a, b] = *n.operands else { return None };
        let one = e.splat_like(1.0, b);
        let zero = e.splat_like(0.0, b);
        if i == 0 {
            // b a^(b-1), but 0 for b = 0 even where a^(-1) is infinite.
            let flat = e.binary(Op::Eq, b, zero);
            let exponent = e.select(flat, one, e.sub(b, one));
            return Some(e.mul(n.ct, e.mul(b, e.binary(Op::Pow, a, exponent))));
        }
        // a^b log a. The logarithm is only taken of positive numbers, so that
        // nothing of the other case leaks, in second derivatives either.
        let positive = e.binary(Op::Gt, a, zero);
        let log = e.unary(Op::Log, e.select(positive, a, one));
        let slope = e.mul(e.select(positive, n.out, zero), log);
        Some(e.mul(n.ct, slope))
    }),
    rules: RULES,
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        if k.reg_type(a[0]).is_float() {
            k.call(Elementary::Pow, a)
        } else {
            lower_int(k, a[0], a[1])
        }
    }),
    eval: Eval::Pure(|cx| eval_num2(cx, libm::pow, int_pow)),
};

const RULES: &[Rule] = &[
    Rule::exact("pow.one", "(pow x 1)", "x", "the first power"),
    Rule::exact("pow.zero", "(pow x 0)", "1", "even of NaN"),
    Rule::exact("pow.two", "(pow x 2)", "(mul x x)", "one product").round(),
    Rule::exact("pow.minus_one", "(pow x -1)", "(div 1 x)", "one quotient")
        .when(|m| m.root_ty().dtype.is_float())
        .round(),
    Rule::exact("pow.half", "(pow x 0.5)", "(sqrt x)", "one root").refine(),
    Rule::exact("pow.minus_half", "(pow x -0.5)", "(rsqrt x)", "one reciprocal root").special(),
    // Roots have instructions, powers take twenty times as long.
    Rule::exact(
        "pow.three_quarters",
        "(pow x 0.75)",
        "(mul (sqrt x) (sqrt (sqrt x)))",
        "two roots",
    )
    .assume("x", Fact::NonNeg)
    .round(),
    Rule::exact(
        "pow.minus_three_quarters",
        "(pow x -0.75)",
        "(mul (rsqrt x) (sqrt (rsqrt x)))",
        "two roots",
    )
    .assume("x", Fact::NonNeg)
    .round(),
    Rule::exact("pow.quarter", "(pow x 0.25)", "(sqrt (sqrt x))", "two roots")
        .assume("x", Fact::NonNeg)
        .round(),
    Rule::exact("pow.minus_quarter", "(pow x -0.25)", "(sqrt (rsqrt x))", "two roots")
        .assume("x", Fact::NonNeg)
        .round(),
    Rule::exact("pow.three_halves", "(pow x 1.5)", "(mul x (sqrt x))", "one root")
        .assume("x", Fact::NonNeg)
        .round(),
    // The power by which a gradient divides: x last, so that nothing overflows on the way.
    Rule::exact("pow.minus_three_halves", "(pow x -1.5)", "(div (rsqrt x) x)", "one root")
        .assume("x", Fact::NonNeg)
        .round(),
    Rule::exact(
        "pow.minus_seven_quarters",
        "(pow x -1.75)",
        "(div (mul (rsqrt x) (sqrt (rsqrt x))) x)",
        "two roots",
    )
    .assume("x", Fact::NonNeg)
    .round(),
];

fn int_pow(base: i64, exponent: i64) -> i64 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, e) => [1, -1][(e & 1) as usize],
        (_, e) if e < 0 => 0,
        (mut square, mut left) => {
            let mut out = 1i64;
            while left > 0 {
                if left & 1 == 1 {
                    out = out.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                left >>= 1;
            }
            out
        }
    }
}

/// Squaring and multiplying, once per bit of the exponent.
fn lower_int(k: &mut dyn Pull, base: Reg, exponent: Reg) -> Reg {
    let bits = match k.result_type().dtype {
        DType::I8 => 7,
        DType::U8 => 8,
        DType::I32 => 31,
        _ => 63,
    };
    let ty = k.reg_type(base);
    let mut constant = |v: f64| k.constant(Scalar::of(ty, v));
    let (zero, one, minus_one) = (constant(0.0), constant(1.0), constant(-1.0));
    let (mut out, mut square) = (one, base);
    for bit in 0..bits {
        let mask = match ty {
            crate::kernel::ScalarType::I32 => Scalar::I32(1 << bit),
            _ => Scalar::I64(1 << bit),
        };
        let mask = k.constant(mask);
        let masked = k.op(ScalarOp::And, &[exponent, mask]);
        let skip = k.op(ScalarOp::Eq, &[masked, zero]);
        let with = k.op(ScalarOp::Mul, &[out, square]);
        out = k.op(ScalarOp::Select, &[skip, out, with]);
        square = k.op(ScalarOp::Mul, &[square, square]);
    }
    // A negative exponent gives 1/x^n truncated: zero but for 1 and -1.
    let negative = k.op(ScalarOp::Lt, &[exponent, zero]);
    let odd = k.op(ScalarOp::And, &[exponent, one]);
    let even = k.op(ScalarOp::Eq, &[odd, zero]);
    let alternating = k.op(ScalarOp::Select, &[even, one, minus_one]);
    let is_one = k.op(ScalarOp::Eq, &[base, one]);
    let is_minus_one = k.op(ScalarOp::Eq, &[base, minus_one]);
    let reciprocal = k.op(ScalarOp::Select, &[is_minus_one, alternating, zero]);
    let reciprocal = k.op(ScalarOp::Select, &[is_one, one, reciprocal]);
    k.op(ScalarOp::Select, &[negative, reciprocal, out])
}

#[cfg(test)]
mod tests {
    use super::int_pow;

    #[test]
    fn integer_powers() {
        assert_eq!(int_pow(3, 4), 81);
        assert_eq!(int_pow(-2, 63), i64::MIN);
        assert_eq!(int_pow(0, 0), 1);
        assert_eq!(int_pow(0, -3), 0);
        assert_eq!(
            (int_pow(-1, -3), int_pow(-1, -4), int_pow(1, -9), int_pow(2, -1)),
            (-1, 1, 1, 0)
        );
        assert_eq!(int_pow(3, i64::MAX), int_pow(3, i64::MAX - 1).wrapping_mul(3));
    }
}
