//! sinh, cosh, the cube root and erfc, in f64 as those of [`super::arc`].

use super::exp::{exp, exp_bounded, expm1};
use super::log::log;
use super::seq::Seq;
use super::tables::*;
use crate::Reg;

/// From here on `exp(-a)` counts for nothing beside `exp(a)`.
const FAR: f64 = 22.0;

/// `exp(a) / 2`, which is finite a little longer than `exp(a)`.
fn half_exp(s: &mut Seq, a: Reg) -> Reg {
    let half = s.c(0.5);
    let b = s.mul(a, half);
    let root = exp(s, b);
    let first = s.mul(root, half);
    s.mul(first, root)
}

pub(super) fn sinh(s: &mut Seq, x: &[Reg]) -> Reg {
    let a = s.abs(x[0]);
    let (one, half, limit) = (s.c(1.0), s.c(0.5), s.c(FAR));
    let b = s.at_most(a, FAR);
    let t = expm1(s, b);
    let bottom = s.add(t, one);
    let quotient = s.div(t, bottom);
    let sum = s.add(t, quotient);
    let near = s.mul(sum, half);
    let far = half_exp(s, a);
    let is_far = s.lt(limit, a);
    let v = s.select(is_far, far, near);
    s.with_sign(v, x[0])
}

pub(super) fn cosh(s: &mut Seq, x: &[Reg]) -> Reg {
    let a = s.abs(x[0]);
    let (half, limit) = (s.c(0.5), s.c(FAR));
    let b = s.at_most(a, FAR);
    let e = exp(s, b);
    let down = s.div(half, e);
    let near = s.fma(e, half, down);
    let far = half_exp(s, a);
    let is_far = s.lt(limit, a);
    s.select(is_far, far, near)
}

/// A guess by logarithm, and one step of Newton's method, whose error is the square
/// of the guess's.
pub(super) fn cbrt(s: &mut Seq, x: &[Reg]) -> Reg {
    let x = x[0];
    let a = s.abs(x);
    // The cube of the guess must be a normal number.
    let (tiny, up, down, one) =
        (s.c(2f64.powi(-900)), s.c(2f64.powi(300)), s.c(2f64.powi(-100)), s.c(1.0));
    let is_tiny = s.lt(a, tiny);
    let raise = s.select(is_tiny, up, one);
    let lower = s.select(is_tiny, down, one);
    let b = s.mul(a, raise);
    let third = s.c(1.0 / 3.0);
    let l = log(s, b);
    let l = s.mul(l, third);
    let y = exp(s, l);
    let square = s.mul(y, y);
    let minus = s.neg(b);
    let over = s.fma(square, y, minus);
    let three = s.c(3.0);
    let slope = s.mul(square, three);
    let step = s.div(over, slope);
    let v = s.sub(y, step);
    let v = s.mul(v, lower);
    let v = s.with_sign(v, x);
    // Zeros, infinities and NaN are their own roots.
    let (zero, infinity) = (s.c(0.0), s.c(f64::INFINITY));
    let (above, below) = (s.lt(zero, a), s.lt(a, infinity));
    let plain = s.and(above, below);
    s.select(plain, v, x)
}

/// `exp(-a^2)` times a slowly varying function of `a`; the square in twice the
/// precision, because the exponential multiplies its error.
pub(super) fn erfc(s: &mut Seq, x: &[Reg]) -> Reg {
    let x = x[0];
    let a = s.abs(x);
    let a = s.at_most(a, 28.0);
    let (k, one, two) = (s.c(3.75), s.c(1.0), s.c(2.0));
    let (top, bottom) = (s.sub(a, k), s.add(a, k));
    let t = s.div(top, bottom);
    let p = s.poly(t, &ERFC_64);
    let slope = s.fma(a, two, one);
    let p = s.div(p, slope);
    let minus = s.neg(a);
    let square = s.mul(minus, a);
    let back = s.neg(square);
    let low = s.fma(minus, a, back);
    let e = exp_bounded(s, square, Some(low));
    let v = s.mul(p, e);
    // One, exactly, where the polynomial is a little off it.
    let near = s.c(1e-17);
    let flat = s.lt(a, near);
    let v = s.select(flat, one, v);
    let reflected = s.sub(two, v);
    let zero = s.c(0.0);
    let negative = s.lt(x, zero);
    s.select(negative, reflected, v)
}
