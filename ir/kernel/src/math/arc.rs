//! atan, atan2, asin, acos, tan, and the inverse hyperbolic functions.
//!
//! Written once, for f64: an f32 argument is converted and the result rounded, which
//! leaves half a unit of error for a few more instructions. They are rarely where the
//! time goes.

use super::log::{log, log1p};
use super::seq::Seq;
use super::tables::*;
use super::trig;
use crate::{Reg, ScalarOp, ScalarType};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

/// What pi / 2 lacks; a half of it pi / 4, twice pi.
const FRAC_PI_2_LOW: f64 = 6.123_233_995_736_766e-17;

/// Runs an f64 function; f32 operands are converted, and so is the result.
pub(super) fn in_f64(s: &mut Seq, args: &[Reg], f: fn(&mut Seq, &[Reg]) -> Reg) -> Reg {
    if !s.is_f32() {
        return f(s, args);
    }
    let wide: Vec<Reg> = args.iter().map(|a| s.convert(*a, ScalarType::F64)).collect();
    let v = s.with(ScalarType::F64, |s| f(s, &wide));
    s.convert(v, ScalarType::F32)
}

/// atan of an `a` that is not negative.
///
/// Where `a` is above tan(pi / 8), atan(a) = pi / 4 + atan((a - 1) / (a + 1)), and
/// above its reciprocal, pi / 2 + atan(-1 / a).
fn atan_positive(s: &mut Seq, a: Reg) -> Reg {
    let one = s.c(1.0);
    let (low, high) = (s.c(0.414_213_562_373_095_03), s.c(2.414_213_562_373_095));
    let (middle, far) = (s.lt(low, a), s.lt(high, a));
    let (less, more) = (s.sub(a, one), s.add(a, one));
    let minus_one = s.c(-1.0);
    let top = s.select(far, minus_one, less);
    let bottom = s.select(far, a, more);
    let quotient = s.div(top, bottom);
    let u = s.select(middle, quotient, a);
    let zero = s.c(0.0);
    let (quarter, half) = (s.c(FRAC_PI_4), s.c(FRAC_PI_2));
    let base = s.select(far, half, quarter);
    let base = s.select(middle, base, zero);
    let (quarter, half) = (s.c(FRAC_PI_2_LOW / 2.0), s.c(FRAC_PI_2_LOW));
    let rest = s.select(far, half, quarter);
    let rest = s.select(middle, rest, zero);
    let z = s.mul(u, u);
    let p = s.poly(z, &ATAN_64);
    let uz = s.mul(u, z);
    let small = s.fma(uz, p, rest);
    let small = s.add(u, small);
    s.add(base, small)
}

pub(super) fn atan(s: &mut Seq, x: &[Reg]) -> Reg {
    let a = s.abs(x[0]);
    let v = atan_positive(s, a);
    s.with_sign(v, x[0])
}

/// The angle of the point (x, y): operands are y, x.
pub(super) fn atan2(s: &mut Seq, args: &[Reg]) -> Reg {
    let [y, x] = [args[0], args[1]];
    let (ay, ax) = (s.abs(y), s.abs(x));
    let steep = s.lt(ax, ay);
    let top = s.select(steep, ax, ay);
    let bottom = s.select(steep, ay, ax);
    let (zero, one, infinity) = (s.c(0.0), s.c(1.0), s.c(f64::INFINITY));
    let quotient = s.div(top, bottom);
    let nowhere = s.eq(bottom, zero);
    let quotient = s.select(nowhere, zero, quotient);
    let diagonal = s.eq(top, infinity);
    let quotient = s.select(diagonal, one, quotient);
    let v = atan_positive(s, quotient);
    let (half, half_low) = (s.c(FRAC_PI_2), s.c(FRAC_PI_2_LOW));
    let rest = s.sub(v, half_low);
    let turned = s.sub(half, rest);
    let v = s.select(steep, turned, v);
    // -0 counts as left.
    let sign = s.with_sign(one, x);
    let left = s.lt(sign, zero);
    let (whole, whole_low) = (s.c(PI), s.c(2.0 * FRAC_PI_2_LOW));
    let rest = s.sub(v, whole_low);
    let mirrored = s.sub(whole, rest);
    let v = s.select(left, mirrored, v);
    let v = s.with_sign(v, y);
    // NaN in either.
    let (number_x, number_y) = (s.eq(x, x), s.eq(y, y));
    let v = s.select(number_x, v, x);
    s.select(number_y, v, y)
}

/// For |x| <= 1/2, asin(x); beyond, asin of the root of (1 - |x|) / 2, from which
/// the result is a difference with pi / 2. And whether it is beyond.
fn asin_reduced(s: &mut Seq, x: Reg) -> (Reg, Reg) {
    let (one, half) = (s.c(1.0), s.c(0.5));
    let a = s.abs(x);
    let beyond = s.lt(half, a);
    let near = s.mul(x, x);
    let left = s.sub(one, a);
    let far = s.mul(left, half);
    let z = s.select(beyond, far, near);
    let root = s.op(ScalarOp::Sqrt, &[far]);
    let u = s.select(beyond, root, x);
    let p = s.poly(z, &ASIN_64);
    let uz = s.mul(u, z);
    (s.fma(uz, p, u), beyond)
}

pub(super) fn asin(s: &mut Seq, x: &[Reg]) -> Reg {
    let x = x[0];
    let (v, beyond) = asin_reduced(s, x);
    let (half, low, minus_two) = (s.c(FRAC_PI_2), s.c(FRAC_PI_2_LOW), s.c(-2.0));
    let far = s.fma(v, minus_two, low);
    let far = s.add(half, far);
    let far = s.with_sign(far, x);
    s.select(beyond, far, v)
}

pub(super) fn acos(s: &mut Seq, x: &[Reg]) -> Reg {
    let x = x[0];
    let (v, beyond) = asin_reduced(s, x);
    let (half, low) = (s.c(FRAC_PI_2), s.c(FRAC_PI_2_LOW));
    let rest = s.sub(low, v);
    let near = s.add(half, rest);
    let twice = s.add(v, v);
    let (whole, whole_low) = (s.c(PI), s.c(2.0 * FRAC_PI_2_LOW));
    let rest = s.sub(whole_low, twice);
    let left = s.add(whole, rest);
    let zero = s.c(0.0);
    let negative = s.lt(x, zero);
    let far = s.select(negative, left, twice);
    s.select(beyond, far, near)
}

/// In f32 too, whose sine and cosine take arguments of any size.
pub(super) fn tan(s: &mut Seq, x: Reg) -> Reg {
    let (sin, cos) = (trig::sin(s, x), trig::cos(s, x));
    s.div(sin, cos)
}

/// Beyond this, `sqrt(x^2 + 1)` is `x`.
const LARGE: f64 = 268_435_456.0;

pub(super) fn asinh(s: &mut Seq, x: &[Reg]) -> Reg {
    let a = s.abs(x[0]);
    let (one, ln2) = (s.c(1.0), s.c(LN_2));
    // The square must not overflow.
    let b = s.at_most(a, LARGE);
    let square = s.mul(b, b);
    let root = s.fma(b, b, one);
    let root = s.op(ScalarOp::Sqrt, &[root]);
    let bottom = s.add(root, one);
    let more = s.div(square, bottom);
    let more = s.add(b, more);
    let near = log1p(s, more);
    let far = log(s, a);
    let far = s.add(far, ln2);
    let large = s.c(LARGE);
    let is_far = s.lt(large, a);
    let v = s.select(is_far, far, near);
    s.with_sign(v, x[0])
}

pub(super) fn acosh(s: &mut Seq, x: &[Reg]) -> Reg {
    let x = x[0];
    let (one, ln2, nan) = (s.c(1.0), s.c(LN_2), s.c(f64::NAN));
    let b = s.at_most(x, LARGE);
    let t = s.sub(b, one);
    let twice = s.add(t, t);
    let root = s.fma(t, t, twice);
    let root = s.op(ScalarOp::Sqrt, &[root]);
    let more = s.add(t, root);
    let near = log1p(s, more);
    let far = log(s, x);
    let far = s.add(far, ln2);
    let large = s.c(LARGE);
    let is_far = s.lt(large, x);
    let v = s.select(is_far, far, near);
    let below = s.lt(x, one);
    s.select(below, nan, v)
}

pub(super) fn atanh(s: &mut Seq, x: &[Reg]) -> Reg {
    let a = s.abs(x[0]);
    let (one, half) = (s.c(1.0), s.c(0.5));
    let twice = s.add(a, a);
    let left = s.sub(one, a);
    let quotient = s.div(twice, left);
    let v = log1p(s, quotient);
    let v = s.mul(v, half);
    // Beyond one `v` is NaN, and its sign bit is the operand's or not: no matter.
    s.with_sign(v, x[0])
}
