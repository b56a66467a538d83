//! exp, expm1, sigmoid, tanh.
//!
//! `x = n ln 2 + r`; n comes out of the low bits of `x / ln 2 + 1.5 * 2^23`
//! (or `2^52`), which rounds to an integer and needs no conversion.

use super::seq::Seq;
use super::tables::*;
use crate::kernel::Reg;

const LN2_HI_32: f64 = 0.693_147_182_464_599_6;
const LN2_LO_32: f64 = -1.904_654_212_125_933_6e-9;
const LN2_HI_64: f64 = std::f64::consts::LN_2;
const LN2_LO_64: f64 = 2.319_046_813_846_299_6e-17;
const LOG2_E: f64 = std::f64::consts::LOG2_E;

/// `1.5 * 2^(bits of the fraction)`.
fn magic(s: &mut Seq) -> Reg {
    s.pick(12_582_912.0, 6_755_399_441_055_744.0)
}

/// Exponent of the float whose low bits `t` has, plus `bias`, as a power of two.
fn power_of_two(s: &mut Seq, t: Reg, bias: i64) -> Reg {
    let fraction = if s.is_f32() { 23 } else { 52 };
    let n = s.shl(t, fraction);
    let bias = s.i(bias << fraction);
    let bits = s.add(n, bias);
    s.float(bits)
}

fn bias(s: &Seq) -> i64 {
    if s.is_f32() { 127 } else { 1023 }
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
    // Two factors: the whole power may be no normal number, only the result.
    let half = s.c(0.5);
    let t1 = s.fma(n, half, magic);
    let (t, t1) = (s.bits(t), s.bits(t1));
    let rest = s.sub(t, t1);
    let bias = bias(s);
    let first = power_of_two(s, t1, bias);
    let second = power_of_two(s, rest, bias);
    let p = s.mul(p, first);
    s.mul(p, second)
}

pub(super) fn exp(s: &mut Seq, x: Reg) -> Reg {
    let (lowest, highest) = if s.is_f32() { (-104.0, 89.0) } else { (-746.0, 710.0) };
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
    let bias = bias(s) - 1;
    let power = power_of_two(s, t, bias);
    let half = s.c(0.5);
    let less = s.sub(power, half);
    let v = s.fma(power, q, less);
    let v = s.add(v, v);
    s.small_is(x, tiny, v)
}

pub(super) fn sigmoid(s: &mut Seq, x: Reg) -> Reg {
    // exp(-|x|) never overflows. It is computed `up` times larger, so that one
    // power of two does even where the result is subnormal.
    let (largest, shift) = if s.is_f32() { (104.0, 26) } else { (746.0, 56) };
    let a = s.abs(x);
    let a = s.at_most(a, largest);
    let a = s.neg(a);
    let (t, r) = split(s, a);
    let p = exp_reduced(s, r);
    let bias = bias(s) + shift;
    let scale = power_of_two(s, t, bias);
    let e = s.mul(p, scale);
    let (zero, one) = (s.c(0.0), s.c(1.0));
    let (up, down) = (s.c(2f64.powi(shift as i32)), s.c(2f64.powi(-shift as i32)));
    let negative = s.lt(x, zero);
    let top = s.select(negative, e, up);
    let e = s.mul(e, down);
    let v = quotient(s, top, e, one);
    s.mul(v, down)
}

pub(super) fn tanh(s: &mut Seq, x: Reg) -> Reg {
    // With e = exp(2|x|) - 1, tanh |x| = e / (e + 2).
    let a = s.abs(x);
    let a = s.at_most(a, if s.is_f32() { 10.0 } else { 22.0 });
    let y = s.add(a, a);
    let (t, r) = split(s, y);
    let q = expm1_reduced(s, r);
    let bias = bias(s);
    let power = power_of_two(s, t, bias);
    let one = s.c(1.0);
    let less = s.sub(power, one);
    let e = s.fma(power, q, less);
    let two = s.c(2.0);
    let v = quotient(s, e, e, two);
    s.with_sign(v, x)
}

/// `top / (e + c)`: the sum and the quotient are rounded, and what they lost is
/// put back.
fn quotient(s: &mut Seq, top: Reg, e: Reg, c: Reg) -> Reg {
    let bottom = s.add(e, c);
    let back = s.sub(bottom, c);
    let bottom_low = s.sub(e, back);
    let one = s.c(1.0);
    let inverse = s.div(one, bottom);
    let v = s.mul(top, inverse);
    let minus = s.neg(v);
    let rest = s.fma(minus, bottom, top);
    let rest = s.fma(minus, bottom_low, rest);
    s.fma(rest, inverse, v)
}
