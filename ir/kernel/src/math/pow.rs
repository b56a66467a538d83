//! pow, with the special cases of IEEE 754 and C.

use super::exp::exp_bounded;
use super::log::{LN2_REST, LN2_SHORT, log, normalise, split};
use super::seq::Seq;
use super::tables::ATANH_TAIL_64;
use crate::{Reg, ScalarType};

pub(super) fn pow(s: &mut Seq, x: Reg, y: Reg) -> Reg {
    let a = s.abs(x);
    let v = if s.is_f32() {
        // f64 has the bits to spare that log needs.
        let (a, y) = (s.convert(a, ScalarType::F64), s.convert(y, ScalarType::F64));
        let v = s.with(ScalarType::F64, |s| {
            let l = log(s, a);
            let p = s.mul(l, y);
            let p = s.at_most(p, 710.0);
            let p = s.at_least(p, -746.0);
            exp_bounded(s, p, None)
        });
        s.convert(v, ScalarType::F32)
    } else {
        power_64(s, a, y)
    };
    special(s, x, y, v)
}

fn special(s: &mut Seq, x: Reg, y: Reg, v: Reg) -> Reg {
    let (zero, one, half) = (s.c(0.0), s.c(1.0), s.c(0.5));
    let whole = s.trunc(y);
    let is_int = s.eq(whole, y);
    let halved = s.mul(y, half);
    let whole = s.trunc(halved);
    let has_half = s.ne(whole, halved);
    let odd = s.and(is_int, has_half);
    let bits = s.bits(x);
    let none = s.i(0);
    let signed = s.lt(bits, none);
    let flip = s.and(signed, odd);
    let minus = s.neg(v);
    let v = s.select(flip, minus, v);
    // A negative finite number to a power that is no integer.
    let (lowest, infinity, nan) = (s.c(f64::NEG_INFINITY), s.c(f64::INFINITY), s.c(f64::NAN));
    let negative = s.lt(x, zero);
    let finite = s.lt(lowest, x);
    let fraction = s.not(is_int);
    let bad = s.and(negative, finite);
    let bad = s.and(bad, fraction);
    let v = s.select(bad, nan, v);
    // Exactly one.
    let no_power = s.eq(y, zero);
    let base_one = s.eq(x, one);
    let minus_one = s.c(-1.0);
    let base_minus = s.eq(x, minus_one);
    let magnitude = s.abs(y);
    let endless = s.eq(magnitude, infinity);
    let alternating = s.and(base_minus, endless);
    let is_one = s.or(no_power, base_one);
    let is_one = s.or(is_one, alternating);
    s.select(is_one, one, v)
}

/// A sum of two doubles, the second at most half an ULP of the first.
#[derive(Clone, Copy)]
struct Double {
    hi: Reg,
    lo: Reg,
}

/// `a + b` exactly.
fn two_sum(s: &mut Seq, a: Reg, b: Reg) -> Double {
    let hi = s.add(a, b);
    let b_part = s.sub(hi, a);
    let a_part = s.sub(hi, b_part);
    let b_err = s.sub(b, b_part);
    let a_err = s.sub(a, a_part);
    let lo = s.add(a_err, b_err);
    Double { hi, lo }
}

/// `a * b` exactly.
fn two_product(s: &mut Seq, a: Reg, b: Reg) -> Double {
    let hi = s.mul(a, b);
    let minus = s.neg(hi);
    let lo = s.fma(a, b, minus);
    Double { hi, lo }
}

fn product(s: &mut Seq, a: Double, b: Double) -> Double {
    let p = two_product(s, a.hi, b.hi);
    let lo = s.fma(a.hi, b.lo, p.lo);
    let lo = s.fma(a.lo, b.hi, lo);
    let hi = s.add(p.hi, lo);
    let back = s.sub(hi, p.hi);
    let lo = s.sub(lo, back);
    Double { hi, lo }
}

fn sum(s: &mut Seq, a: Double, b: Double) -> Double {
    let t = two_sum(s, a.hi, b.hi);
    let lo = s.add(a.lo, b.lo);
    let lo = s.add(lo, t.lo);
    let hi = s.add(t.hi, lo);
    let back = s.sub(hi, t.hi);
    let lo = s.sub(lo, back);
    Double { hi, lo }
}

/// `a^y` in f64, for `a` not negative: the logarithm needs twice the precision,
/// for it is multiplied by up to 700.
fn power_64(s: &mut Seq, a: Reg, y: Reg) -> Reg {
    let (n, adjust) = normalise(s, a);
    let parts = split(s, n);
    let k = s.add(parts.k, adjust);
    let one = s.c(1.0);
    let f = s.sub(parts.m, one);
    // t = f / (2 + f), to twice the precision.
    let two = s.c(2.0);
    let bottom = two_sum(s, two, f);
    let t_hi = s.div(f, bottom.hi);
    let minus = s.neg(t_hi);
    let rest = s.fma(minus, bottom.hi, f);
    let rest = s.fma(minus, bottom.lo, rest);
    let t_lo = s.div(rest, bottom.hi);
    let t = Double { hi: t_hi, lo: t_lo };
    let z = product(s, t, t);
    // 2 t + t z (2/3 + z tail)
    let tail = s.poly(z.hi, &ATANH_TAIL_64);
    let (third, third_low) = (s.c(0.666_666_666_666_666_6), s.c(3.700_743_415_417_188e-17));
    let c = s.fma(z.hi, tail, third_low);
    let c = two_sum(s, third, c);
    let t3 = product(s, t, z);
    let higher = product(s, t3, c);
    let double_t = Double { hi: s.add(t.hi, t.hi), lo: s.add(t.lo, t.lo) };
    let log_m = sum(s, double_t, higher);
    let short = s.c(LN2_SHORT);
    let exact = s.mul(k, short);
    let rest = s.c(LN2_REST);
    let rest = two_product(s, k, rest);
    let whole = two_sum(s, exact, rest.hi);
    let whole_lo = s.add(whole.lo, rest.lo);
    let l = sum(s, Double { hi: whole.hi, lo: whole_lo }, log_m);
    // Zero and infinity have logarithms without a low part.
    let (zero, infinity, lowest) = (s.c(0.0), s.c(f64::INFINITY), s.c(f64::NEG_INFINITY));
    let is_zero = s.eq(a, zero);
    let hi = s.select(is_zero, lowest, l.hi);
    let finite = s.lt(a, infinity);
    let hi = s.select(finite, hi, a);
    let p = two_product(s, y, hi);
    let low = s.fma(y, l.lo, p.lo);
    let size = s.abs(p.hi);
    let limit = s.c(800.0);
    let normal = s.lt(size, limit);
    let low = s.select(normal, low, zero);
    let p = s.at_most(p.hi, 710.0);
    let p = s.at_least(p, -746.0);
    exp_bounded(s, p, Some(low))
}
