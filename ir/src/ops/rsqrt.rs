//! The reciprocal square root.

use super::util::*;
use crate::OpDef;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "rsqrt",
    summary: "Computes 1 / sqrt(x) for every element.",
    operands: &[Operand::one("x", Kind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        // d x^(-1/2) = -1/2 x^(-3/2) = -1/2 out^3
        let cube = e.mul(n.out, e.mul(n.out, n.out));
        Some(e.mul(n.ct, e.mul(e.splat_like(-0.5, n.out), cube)))
    }),
    rules: &[],
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Rsqrt, a)),
    eval: Eval::Pure(|cx| eval_float(cx, |x| 1.0 / x.sqrt())),
};
