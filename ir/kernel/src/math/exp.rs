//! exp, expm1, sigmoid, tanh.
//!
//! `x = n ln 2 + r`; n comes out of the low bits of `x / ln 2 + 1.5 * 2^23`
//! (or `2^52`), which rounds to an integer and needs no conversion.

use super::seq::Seq;
use super::tables::*;
use crate::Reg;

const LN2_HI_32: f64 = 0.693_147_182_464_599_6;
const LN2_LO_32: f64 = -1.904_654_212_125_933_6e-9;
const LN2_HI_64: f64 = std::f64::consts::LN_2;
const LN2_LO_64: f64 = 2.319_046_813_846_299_6e-17;
const LOG2_E: f64 = std::f64::consts::LOG2_E;

/// `1.5 * 2^(bits of the fraction)`.
const MAGIC_32: f64 = 12_582_912.0;
const MAGIC_64: f64 = 6_755_399_441_055_744.0;

fn magic(s: &mut Seq) -> Reg {
    s.pick(MAGIC_32, MAGIC_64)
}

/// `factor * 2^n`, n being the low bits of `t`; both are normal numbers.
fn power_of_two(s: &mut Seq, t: Reg, factor: f64) -> Reg {
    let (fraction, bits) = if s.is_f32() {
        (23, i64::from((factor as f32).to_bits()))
    } else {
        (52, factor.to_bits() as i64)
    };
    let n = s.shl(t, fraction);
    let one = s.i(bits);
    let bits = s.add(n, one);
    s.float(bits)
}

/// `x - n ln 2`.
fn reduce(s: &mut Seq, x: Reg, n: Reg) -> Reg {
    let hi = s.pick(-LN2_HI_32, -LN2_HI_64);
    let lo = s.pick(-LN2_LO_32, -LN2_LO_64);
    let r = s.fma(n, hi, x);
    s.fma(n, lo, r)
}

/// `exp(r) - 1` for |r| <= ln 2 / 2.
fn expm1_reduced(s: &mut Seq, r: Reg) -> Reg {
    let q = if s.is_f32() { s.poly(r, &EXPM1_32) } else { s.poly(r, &EXPM1_64) };
    let r2 = s.mul(r, r);
    s.fma(r2, q, r)
}

/// The rounded `x / ln 2`, with what `magic` adds, as bits; and the rest.
fn split(s: &mut Seq, x: Reg) -> (Reg, Reg) {
    let (magic, scale) = (magic(s), s.c(LOG2_E));
    let t = s.fma(x, scale, magic);
    let n = s.sub(t, magic);
    let r = reduce(s, x, n);
    (s.bits(t), r)
}

/// `exp(r)` for |r| <= ln 2 / 2.
fn exp_reduced(s: &mut Seq, r: Reg) -> Reg {
    let one = s.c(1.0);
    if s.is_f32() {
        let q = s.poly(r, &EXP_32);
        let p = s.fma(r, q, one);
        s.fma(r, p, one)
    } else {
        let p = expm1_reduced(s, r);
        s.add(p, one)
    }
}

/// exp of an `x` that is NaN or not far outside the range of finite results;
/// `low` is added to `x` in higher precision.
pub(super) fn exp_bounded(s: &mut Seq, x: Reg, low: Option<Reg>) -> Reg {
    let magic = magic(s);
    let scale = s.c(LOG2_E);
    let t = s.fma(x, scale, magic);
    let n = s.sub(t, magic);
    let mut r = reduce(s, x, n);
    if let Some(low) = low {
        r = s.add(r, low);
    }
    let p = exp_reduced(s, r);
    s.scale(p, n)
}

/// `p * 2^n` for an integral n, where p is near 1.
pub(super) fn scale(s: &mut Seq, p: Reg, n: Reg) -> Reg {
    // Two factors: the whole power may be no normal number, only the result. The
    // first takes a quarter of the exponent, so that the second is the first of them
    // to get to zero; see `exp`.
    let (magic, quarter) = (magic(s), s.c(0.25));
    let t = s.add(n, magic);
    let t1 = s.fma(n, quarter, magic);
    let (t, t1) = (s.bits(t), s.bits(t1));
    let rest = s.sub(t, t1);
    let first = power_of_two(s, t1, 1.0);
    let second = power_of_two(s, rest, 1.0);
    let p = s.mul(p, first);
    s.mul(p, second)
}

pub(super) fn exp(s: &mut Seq, x: Reg) -> Reg {
    // Results are zero from -104 (-746) on. Arithmetic that underflows takes CPUs a
    // hundred cycles and more, and masks are full of -inf; so arguments go as far as to
    // where the second factor's exponent is that of zero: -169 less a quarter is -127
    // (-1364, -1023), and the product with zero is exact.
    let (n, highest) = if s.is_f32() { (-169.0, 89.0) } else { (-1364.0, 710.0) };
    let lowest = n * std::f64::consts::LN_2;
    let x = s.at_most(x, highest);
    let x = s.at_least(x, lowest);
    exp_bounded(s, x, None)
}

pub(super) fn expm1(s: &mut Seq, x: Reg) -> Reg {
    let (lowest, highest, tiny) =
        if s.is_f32() { (-20.0, 89.0, 2f64.powi(-26)) } else { (-40.0, 710.0, 2f64.powi(-56)) };
    let y = s.at_most(x, highest);
    let y = s.at_least(y, lowest);
    let (t, r) = split(s, y);
    let q = expm1_reduced(s, r);
    // Half of the power, doubled at the end: 2^128 is no float.
    let power = power_of_two(s, t, 0.5);
    let half = s.c(0.5);
    let less = s.sub(power, half);
    let v = s.fma(power, q, less);
    let v = s.add(v, v);
    s.small_is(x, tiny, v)
}

/// `(1 - exp(-k r)) / k` for k = 1 or 2 and |k r| <= ln 2 / 2.
fn decay(s: &mut Seq, r: Reg, k: f64) -> Reg {
    // With Q the table's function, that is r - k r^2 Q(-k r); powers of k and the
    // signs go into the coefficients, exactly.
    let mut power = 1.0;
    let mut fold = |c: f64| {
        power *= -k;
        c * power
    };
    let r2 = s.mul(r, r);
    let q = if s.is_f32() {
        let coefs = EXPM1_SHORT_32.map(|c| fold(f64::from(c)));
        s.poly_in_pairs(r, r2, &coefs)
    } else {
        let coefs = EXPM1_64.map(fold);
        s.poly_in_pairs(r, r2, &coefs)
    };
    s.fma(r2, q, r)
}

pub(super) fn sigmoid(s: &mut Seq, x: Reg) -> Reg {
    // With exp(-x) = 2^n (1 - d), the result is c / (c + c 2^n - c 2^n d) for any
    // c. A small c keeps all of that in range where the result is subnormal. That
    // c is no power of two keeps the sums away from the lower ends of binades,
    // where they lose most; it was chosen by measuring.
    let (lowest, highest, c) = if s.is_f32() {
        (-104.0, 60.0, 1.625 * 2f64.powi(-24))
    } else {
        (-746.0, 600.0, 1.625 * 2f64.powi(-56))
    };
    let x = s.at_most(x, highest);
    let x = s.at_least(x, lowest);
    let (magic, scale) = (magic(s), s.c(-LOG2_E));
    let t = s.fma(x, scale, magic);
    let n = s.sub(t, magic);
    let hi = s.pick(LN2_HI_32, LN2_HI_64);
    let lo = s.pick(LN2_LO_32, LN2_LO_64);
    let r = s.fma(n, hi, x);
    let r = s.fma(n, lo, r);
    let d = decay(s, r, 1.0);
    let t = s.bits(t);
    let power = power_of_two(s, t, c);
    let c = s.c(c);
    let minus = s.neg(power);
    // The small terms first: only the last sum rounds much off.
    let bottom = s.fma(minus, d, c);
    let bottom = s.add(bottom, power);
    s.div(c, bottom)
}

pub(super) fn tanh(s: &mut Seq, x: Reg) -> Reg {
    // With exp(-2|x|) = 2^-n (1 - 2d), the result is
    // (2^n / 2 - 1/2 + d) / (2^n / 2 + 1/2 - d): nothing cancels, and the sums with
    // 1/2 are exact where they matter. For small x, n is 0 and the top is d.
    let a = s.abs(x);
    let a = s.at_most(a, if s.is_f32() { 10.0 } else { 22.0 });
    // The low bits of the sum are the exponent of 2^n / 2, bias and all.
    let magic = s.pick(MAGIC_32 + 126.0, MAGIC_64 + 1022.0);
    let scale = s.c(2.0 * LOG2_E);
    let t = s.fma(a, scale, magic);
    let n = s.sub(t, magic);
    // One constant will do: what it lacks counts little beside 2^n.
    let half_ln2 = s.pick(-0.5 * LN2_HI_32, -0.5 * LN2_HI_64);
    let r = s.fma(n, half_ln2, a);
    let d = decay(s, r, 2.0);
    let t = s.bits(t);
    let power = s.shl(t, if s.is_f32() { 23 } else { 52 });
    let power = s.float(power);
    let half = s.c(0.5);
    let (less, more) = (s.sub(power, half), s.add(power, half));
    let (top, bottom) = (s.add(less, d), s.sub(more, d));
    let v = s.div(top, bottom);
    s.with_sign(v, x)
}
