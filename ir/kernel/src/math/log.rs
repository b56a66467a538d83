//! log and log1p.
//!
//! The argument is `2^k (1 + f)` with `1 + f` between the roots of 1/2 and 2.

use super::seq::Seq;
use super::tables::*;
use crate::{Reg, ScalarType};

/// ln 2 in two parts, the first short enough that its product with an exponent
/// is exact.
pub(super) const LN2_SHORT: f64 = 0.693_147_180_369_123_8;
pub(super) const LN2_REST: f64 = 1.908_214_929_270_587_7e-10;

/// Added to an f64 exponent to keep it positive through a logical shift.
const LIFT: i64 = 1100;

pub(super) struct Split {
    /// k as a float.
    pub k: Reg,
    /// `k << (bits of the fraction)`.
    pub k_bits: Reg,
    /// `1 + f`.
    pub m: Reg,
}

/// Splits a positive normal number; of others it makes something harmless.
pub(super) fn split(s: &mut Seq, x: Reg) -> Split {
    let bits = s.bits(x);
    if s.is_f32() {
        let root = s.i(0x3f35_04f3);
        let from_root = s.sub(bits, root);
        let k = s.sar(from_root, 23);
        let k_bits = s.shl(k, 23);
        let m = s.sub(bits, k_bits);
        let m = s.float(m);
        let k = s.convert(k, ScalarType::F32);
        return Split { k, k_bits, m };
    }
    // No vector unit of ours shifts or converts signed 64-bit integers well.
    let root = s.i(0x3fe6_a09e_667f_3bcd - (LIFT << 52));
    let from_root = s.sub(bits, root);
    let lifted = s.shr(from_root, 52);
    let lift = s.i(LIFT << 52);
    let k_bits = s.shl(lifted, 52);
    let k_bits = s.sub(k_bits, lift);
    let m = s.sub(bits, k_bits);
    let m = s.float(m);
    // The bits of 2^52 + n are those of 2^52 with n in the fraction.
    let base = s.i(0x4330_0000_0000_0000);
    let k = s.or(lifted, base);
    let k = s.float(k);
    let base = s.c(2f64.powi(52) + LIFT as f64);
    let k = s.sub(k, base);
    Split { k, k_bits, m }
}

/// `k ln 2 + log(1 + f)`.
fn assemble(s: &mut Seq, k: Reg, f: Reg) -> Reg {
    let f2 = s.mul(f, f);
    if s.is_f32() {
        let p = s.poly(f, &LOG_32);
        let f3 = s.mul(f2, f);
        let lo = s.c(-1.904_654_212_125_933_6e-9);
        let low = s.mul(k, lo);
        let low = s.fma(f3, p, low);
        let minus_half = s.c(-0.5);
        let low = s.fma(f2, minus_half, low);
        let v = s.add(f, low);
        let hi = s.c(0.693_147_182_464_599_6);
        return s.fma(k, hi, v);
    }
    let half = s.c(0.5);
    let hf2 = s.mul(f2, half);
    let two = s.c(2.0);
    let bottom = s.add(f, two);
    let t = s.div(f, bottom);
    let z = s.mul(t, t);
    let p = s.poly(z, &ATANH_64);
    let r = s.fma(z, p, hf2);
    let rest = s.c(LN2_REST);
    let low = s.mul(k, rest);
    let low = s.fma(t, r, low);
    let low = s.sub(low, hf2);
    let v = s.add(f, low);
    let short = s.c(LN2_SHORT);
    s.fma(k, short, v)
}

/// The values at zero, below zero, at infinity and NaN; `distance` is the
/// argument minus the place where the logarithm is infinite.
fn special(s: &mut Seq, x: Reg, distance: Reg, v: Reg) -> Reg {
    let infinity = s.c(f64::INFINITY);
    let finite = s.lt(x, infinity);
    let v = s.select(finite, v, x);
    let (zero, nan, lowest) = (s.c(0.0), s.c(f64::NAN), s.c(f64::NEG_INFINITY));
    let at_zero = s.eq(distance, zero);
    let edge = s.select(at_zero, lowest, nan);
    let outside = s.le(distance, zero);
    s.select(outside, edge, v)
}

/// Makes a subnormal argument normal; gives it and what to add to its k.
pub(super) fn normalise(s: &mut Seq, x: Reg) -> (Reg, Reg) {
    let (smallest, shift) =
        if s.is_f32() { (f64::from(f32::MIN_POSITIVE), 24) } else { (f64::MIN_POSITIVE, 54) };
    let smallest = s.c(smallest);
    let subnormal = s.lt(x, smallest);
    let up = s.c(2f64.powi(shift));
    let scaled = s.mul(x, up);
    let y = s.select(subnormal, scaled, x);
    let (zero, down) = (s.c(0.0), s.c(-f64::from(shift)));
    (y, s.select(subnormal, down, zero))
}

pub(super) fn log(s: &mut Seq, x: Reg) -> Reg {
    let (y, adjust) = normalise(s, x);
    let Split { k, m, .. } = split(s, y);
    let k = s.add(k, adjust);
    let one = s.c(1.0);
    let f = s.sub(m, one);
    let v = assemble(s, k, f);
    special(s, x, x, v)
}

pub(super) fn log1p(s: &mut Seq, x: Reg) -> Reg {
    let one = s.c(1.0);
    let u = s.add(x, one);
    let Split { k, k_bits, m } = split(s, u);
    // f = (1 + x) / 2^k - 1 = x / 2^k + (1 / 2^k - 1), rounded once.
    let one_bits = s.bits(one);
    let scale = s.sub(one_bits, k_bits);
    let scale = s.float(scale);
    let less = s.sub(scale, one);
    let exact = s.fma(x, scale, less);
    // For large x the 1 does not matter, and 1 / 2^k may not exist.
    let plain = s.sub(m, one);
    let large = s.c(2f64.powi(60));
    let is_large = s.lt(large, x);
    let f = s.select(is_large, plain, exact);
    let v = assemble(s, k, f);
    let v = special(s, x, u, v);
    s.small_is(x, if s.is_f32() { 2f64.powi(-26) } else { 2f64.powi(-56) }, v)
}
