//! sin and cos.
//!
//! f32 arguments of any size are reduced exactly: the products of the argument
//! with pieces of 1 / 2 pi fit an f64, and whole turns are dropped piece by
//! piece. f64 arguments are reduced by pi / 2 in three parts, which is good up to
//! 2^50; beyond, where neighbouring numbers are a quarter turn apart, the result
//! is NaN.

use super::seq::Seq;
use super::tables::*;
use crate::{Reg, ScalarType};

/// 1 / 2 pi in pieces of 29 bits.
const TURNS: [f64; 7] = [
    0.159_154_942_724_853_75,
    3.670_415_811_563_021_4e-10,
    5.690_025_167_992_954e-19,
    1.470_303_684_693_260_8e-27,
    2.586_717_175_209_053_7e-36,
    9.458_140_877_728_297e-46,
    9.301_187_196_294_348e-54,
];
const HALF_PI: [f64; 3] =
    [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];

/// Where f64 arguments end.
pub(super) const END: f64 = 1_125_899_906_842_624.0;

pub(super) fn sin(s: &mut Seq, x: Reg) -> Reg {
    let v = quarter(s, x, 0);
    // Also keeps the sign of zero.
    s.small_is(x, if s.is_f32() { 2f64.powi(-13) } else { 2f64.powi(-28) }, v)
}

pub(super) fn cos(s: &mut Seq, x: Reg) -> Reg {
    quarter(s, x, 1)
}

/// `sin(x + ahead * pi / 2)`.
fn quarter(s: &mut Seq, x: Reg, ahead: i64) -> Reg {
    let (r, q) = if s.is_f32() { reduce_32(s, x) } else { reduce_64(s, x) };
    let z = s.mul(r, r);
    let (sin, cos) = if s.is_f32() {
        (s.poly(z, &SIN_32), s.poly(z, &COS_32))
    } else {
        (s.poly(z, &SIN_64), s.poly(z, &COS_64))
    };
    let r3 = s.mul(r, z);
    let sin = s.fma(r3, sin, r);
    let (one, minus_half) = (s.c(1.0), s.c(-0.5));
    let z2 = s.mul(z, z);
    let base = s.fma(z, minus_half, one);
    let cos = s.fma(z2, cos, base);
    let ahead = s.i(ahead);
    let q = s.add(q, ahead);
    let one = s.i(1);
    let odd = s.and(q, one);
    let none = s.i(0);
    let odd = s.ne(odd, none);
    let v = s.select(odd, cos, sin);
    let two = s.i(2);
    let half_turn = s.and(q, two);
    let sign = s.shl(half_turn, if s.is_f32() { 30 } else { 62 });
    let bits = s.bits(v);
    let bits = s.xor(bits, sign);
    s.float(bits)
}

/// The angle within a quarter turn, and the quarter's number (modulo four, with
/// anything in the higher bits).
fn reduce_32(s: &mut Seq, x: Reg) -> (Reg, Reg) {
    let x = s.convert(x, ScalarType::F64);
    let (r, q) = s.with(ScalarType::F64, |s| {
        let mut turns: Option<Reg> = None;
        for piece in TURNS {
            let piece = s.c(piece);
            let p = s.mul(x, piece);
            let whole = s.round(p);
            let part = s.sub(p, whole);
            turns = Some(match turns {
                None => part,
                Some(sum) => {
                    let sum = s.add(sum, part);
                    let whole = s.round(sum);
                    s.sub(sum, whole)
                }
            });
        }
        let turns = turns.unwrap_or(x);
        let four = s.c(4.0);
        let quarters = s.mul(turns, four);
        let q = s.round(quarters);
        let rest = s.sub(quarters, q);
        let scale = s.c(std::f64::consts::FRAC_PI_2);
        (s.mul(rest, scale), q)
    });
    let (r, q) = (s.convert(r, ScalarType::F32), s.convert(q, ScalarType::F32));
    let magic = s.c(12_582_912.0);
    let q = s.add(q, magic);
    (r, s.bits(q))
}

fn reduce_64(s: &mut Seq, x: Reg) -> (Reg, Reg) {
    let limit = s.c(END);
    let size = s.abs(x);
    let good = s.le(size, limit);
    let nan = s.c(f64::NAN);
    let x = s.select(good, x, nan);
    let per = s.c(std::f64::consts::FRAC_2_PI);
    let magic = s.c(6_755_399_441_055_744.0);
    let k = s.fma(x, per, magic);
    let q = s.bits(k);
    let k = s.sub(k, magic);
    let minus = s.neg(k);
    // hi + lo = x - k pi / 2
    let (mut hi, mut lo) = (x, s.c(0.0));
    for part in HALF_PI {
        let part = s.c(part);
        let p = s.mul(minus, part);
        let back = s.neg(p);
        let p_low = s.fma(minus, part, back);
        let sum = s.add(hi, p);
        let p_part = s.sub(sum, hi);
        let hi_part = s.sub(sum, p_part);
        let p_err = s.sub(p, p_part);
        let hi_err = s.sub(hi, hi_part);
        let err = s.add(hi_err, p_err);
        let err = s.add(err, p_low);
        lo = s.add(lo, err);
        hi = sum;
    }
    (s.add(hi, lo), q)
}
