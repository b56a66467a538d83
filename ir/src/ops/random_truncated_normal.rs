//! Normally distributed random floats without tails.
//!
//! One uniform number goes through the inverse of the distribution, so there is
//! nothing to reject: element `i` needs only word `i`.

use super::philox;
use super::util::*;
use crate::eval::{Array, Data};
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, DType, Op, OpDef, TensorType};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

pub const DEF: OpDef = OpDef {
    name: "random_truncated_normal",
    summary: "Normally distributed floats (mean 0, variance 1 before they are cut) between -2 and 2.",
    operands: &[Operand::one("key", ElementKind::Key)],
    attrs: &[philox::SHAPE, philox::FLOAT, philox::STREAM],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: philox::floats,
    grad: philox::NO_GRAD,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Expand(|e, operands, attrs| {
        let dtype = attrs.dtype("dtype").unwrap_or(DType::F32);
        let wide = widened(dtype);
        let given = attrs.clone().with("lane", Attr::Int(LANE)).with("dtype", Attr::DType(wide));
        let u = e.emit(Op::RandomUniform, operands, given);
        let num = |v: f64| e.splat_like(v, u);
        let x = e.mul(e.sub(e.mul(num(2.0), u), num(1.0)), num(WITHIN));
        let mut y = guess(e, x);
        if wide == DType::F64 {
            for _ in 0..CORRECTIONS {
                let miss = e.sub(e.unary(Op::Erf, y), x);
                let steep = e.mul(num(1.0 / FRAC_2_SQRT_PI), e.unary(Op::Exp, e.mul(y, y)));
                y = e.sub(y, e.mul(miss, steep));
            }
        }
        let z = e.mul(num(SQRT_2), y);
        let clamped = e.emit(Op::Clamp, &[z, num(-2.0), num(2.0)], Attrs::none());
        e.cast(clamped, dtype)
    }),
    eval: Eval::Pure(|cx| {
        let dtype = cx.results[0].dtype;
        let wide = widened(dtype);
        let attrs = cx.attrs.clone().with("lane", Attr::Int(LANE)).with("dtype", Attr::DType(wide));
        let results = [TensorType::new(wide, cx.results[0].shape.clone())];
        let uniform =
            EvalCx { operands: cx.operands, attrs: &attrs, results: &results, dims: cx.dims };
        let drawn = match Op::RandomUniform.def().eval {
            Eval::Pure(eval) => eval(&uniform)?,
            _ => return Err("no uniform numbers".into()),
        };
        match drawn.first().map(|a| &a.data) {
            Some(Data::Float(u)) => {
                let wide = Array::float(wide, u.mapv(truncated));
                Ok(vec![map_floats(dtype, &wide, |x| x)])
            }
            _ => Err("no uniform numbers".into()),
        }
    }),
};

const LANE: i64 = 4;
/// How much of the normal distribution is between -2 and 2: erf(sqrt(2)).
const WITHIN: f64 = 0.954_499_736_103_641_6;
/// Newton's method doubles the digits of [`guess`] each time.
const CORRECTIONS: usize = 2;

/// Coefficients of the inverse error function's polynomial, highest first, in
/// -log(1 - x*x) - 2.5: Giles, "Approximating the erfinv function" (2010), the
/// branch around zero, which holds beyond the numbers used here.
const GUESS: [f64; 9] = [
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
];

fn guess(e: &dyn Emit, x: V) -> V {
    let one = e.splat_like(1.0, x);
    let log = e.unary(Op::Log, e.sub(one, e.mul(x, x)));
    let w = e.sub(e.neg(log), e.splat_like(2.5, x));
    let mut p = e.splat_like(GUESS[0], x);
    for c in &GUESS[1..] {
        p = e.add(e.mul(p, w), e.splat_like(*c, x));
    }
    e.mul(p, x)
}

fn truncated(u: f64) -> f64 {
    let x = (2.0 * u - 1.0) * WITHIN;
    let w = -libm::log(1.0 - x * x) - 2.5;
    let mut y = GUESS.iter().fold(0.0, |p, c| p * w + c) * x;
    for _ in 0..CORRECTIONS {
        y -= (libm::erf(y) - x) * libm::exp(y * y) / FRAC_2_SQRT_PI;
    }
    (SQRT_2 * y).clamp(-2.0, 2.0)
}
