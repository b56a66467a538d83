//! Narrow types, reciprocal square root, remainder.

use super::seq::Seq;
use crate::{Reg, ScalarOp, ScalarType};

pub(super) fn rsqrt(s: &mut Seq, x: Reg) -> Reg {
    let root = s.op(ScalarOp::Sqrt, &[x]);
    let one = s.c(1.0);
    s.div(one, root)
}

pub(super) fn wrap_i8(s: &mut Seq, x: Reg) -> Reg {
    let x = s.shl(x, 24);
    s.sar(x, 24)
}

pub(super) fn wrap_u8(s: &mut Seq, x: Reg) -> Reg {
    let low = s.scalar(crate::Scalar::I32(0xff));
    s.and(x, low)
}

/// The bits of `x` rounded to even at bit `at`.
fn rounded_bits(s: &mut Seq, bits: Reg, at: i64) -> Reg {
    let last = s.shr(bits, at);
    let one = s.i(1);
    let last = s.and(last, one);
    let half = s.i((1 << (at - 1)) - 1);
    let up = s.add(bits, half);
    let up = s.add(up, last);
    let keep = s.i(-(1 << at));
    s.and(up, keep)
}

fn nan_stays(s: &mut Seq, x: Reg, v: Reg) -> Reg {
    let number = s.eq(x, x);
    s.select(number, v, x)
}

pub(super) fn to_bf16(s: &mut Seq, x: Reg) -> Reg {
    let bits = s.bits(x);
    let bits = rounded_bits(s, bits, 16);
    let v = s.float(bits);
    nan_stays(s, x, v)
}

pub(super) fn to_f16(s: &mut Seq, x: Reg) -> Reg {
    let a = s.abs(x);
    let bits = s.bits(a);
    let bits = rounded_bits(s, bits, 13);
    let normal = s.float(bits);
    // The last bit of 0.5 is the last bit of f16's subnormals.
    let half = s.c(0.5);
    let up = s.add(a, half);
    let small = s.sub(up, half);
    let smallest = s.c(2f64.powi(-14));
    let is_small = s.lt(a, smallest);
    let v = s.select(is_small, small, normal);
    let (limit, infinity) = (s.c(65536.0), s.c(f64::INFINITY));
    let fits = s.lt(v, limit);
    let v = s.select(fits, v, infinity);
    let v = s.with_sign(v, x);
    nan_stays(s, x, v)
}

/// The remainder of truncated division, exact: quotients of more than 2^46 are
/// taken off in steps. For f64 that ends at 2^184; the result is NaN beyond.
pub(super) fn rem(s: &mut Seq, x: Reg, y: Reg) -> Reg {
    if s.is_f32() {
        let (a, b) = (s.convert(x, ScalarType::F64), s.convert(y, ScalarType::F64));
        let r = s.with(ScalarType::F64, |s| rem_steps(s, a, b, &[230, 184, 138, 92, 46, 0]));
        s.convert(r, ScalarType::F32)
    } else {
        let r = rem_steps(s, x, y, &[138, 92, 46, 0]);
        let (size, limit) = (s.abs(r), s.abs(y));
        let done = s.lt(size, limit);
        let nan = s.c(f64::NAN);
        s.select(done, r, nan)
    }
}

fn rem_steps(s: &mut Seq, x: Reg, y: Reg, steps: &[i32]) -> Reg {
    let (mut a, b) = (s.abs(x), s.abs(y));
    let zero = s.c(0.0);
    for step in steps {
        let scale = s.c(2f64.powi(*step));
        let b = s.mul(b, scale);
        let q = s.div(a, b);
        let q = s.trunc(q);
        let minus = s.neg(q);
        let r = s.fma(minus, b, a);
        // The quotient may have been rounded up to the next integer, or down.
        let low = s.lt(r, zero);
        let up = s.add(r, b);
        let r = s.select(low, up, r);
        let high = s.le(b, r);
        let down = s.sub(r, b);
        let r = s.select(high, down, r);
        // Nothing to take off; the divisor may be infinite.
        let none = s.eq(q, zero);
        a = s.select(none, a, r);
    }
    s.with_sign(a, x)
}
