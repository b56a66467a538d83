//! The error function.

use super::util::*;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "erf",
    summary: "Takes the error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x.",
    operands: &[Operand::one("x", Kind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let x = n.operands[0];
        let slope = e.unary(Op::Exp, e.neg(e.mul(x, x)));
        let scale = e.splat_like(std::f64::consts::FRAC_2_SQRT_PI, x);
        Some(e.mul(n.ct, e.mul(scale, slope)))
    }),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Erf, a)),
    eval: Eval::Pure(|cx| eval_float(cx, erf)),
};

/// To about 1e-15 relative: a series of positive terms near zero, where nothing
/// cancels, and a continued fraction of the complement in the tail.
fn erf(x: f64) -> f64 {
    use std::f64::consts::{FRAC_2_SQRT_PI, PI};
    let size = x.abs();
    if x.is_nan() || x == 0.0 {
        return x;
    }
    if size > 6.0 {
        return 1.0f64.copysign(x);
    }
    let x2 = size * size;
    let value = if size < 2.5 {
        // erf x = 2/sqrt(pi) exp(-x^2) sum of 2^n x^(2n+1) / (1 * 3 * .. * (2n+1))
        let (mut term, mut sum, mut odd) = (size, size, 1.0);
        while term > sum * 1e-17 {
            odd += 2.0;
            term *= 2.0 * x2 / odd;
            sum += term;
        }
        FRAC_2_SQRT_PI * (-x2).exp() * sum
    } else {
        // sqrt(pi) exp(x^2) erfc x = 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + ..
        let mut tail = size;
        for k in (1..=80).rev() {
            tail = size + 0.5 * k as f64 / tail;
        }
        1.0 - (-x2).exp() / (PI.sqrt() * tail)
    };
    value.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn published_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, want) in [
            (0.1, 0.1124629160182849),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.0, 0.9953222650189527),
            (2.499, 0.9995908642442554),
            (2.501, 0.9995952208294163),
            (3.0, 0.9999779095030014),
            (5.0, 0.9999999999984626),
        ] {
            assert!((erf(x) - want).abs() < 4e-16 + 2e-15 * want, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
        assert_eq!(erf(f64::INFINITY), 1.0);
        assert!(erf(-0.0).is_sign_negative());
    }
}
