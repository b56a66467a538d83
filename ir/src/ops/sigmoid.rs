//! The logistic function.

use super::util::*;
use crate::OpDef;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "sigmoid",
    summary: "Computes 1 / (1 + exp(-x)) for every element.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let one = e.splat_like(1.0, n.out);
        Some(e.mul(n.ct, e.mul(n.out, e.sub(one, n.out))))
    }),
    rules: &[],
    facts: Facts { range: |_| Range::new(NONNEG, Magnitude::at_most(0)), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Sigmoid, a)),
    eval: Eval::Pure(|cx| {
        // Never exponentiates a positive number, so nothing overflows.
        eval_float(cx, |x| {
            let t = libm::exp(-x.abs());
            if x < 0.0 { t / (1.0 + t) } else { 1.0 / (1.0 + t) }
        })
    }),
};
