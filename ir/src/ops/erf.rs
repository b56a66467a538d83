//! The error function.

use super::util::*;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "erf",
    summary: "Takes the error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x.",
    operands: &[Operand::one("x", ElementKind::Float)],
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
    rules: RULES,
    facts: Facts::AT_MOST_ONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Erf, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::erf)),
};

const RULES: &[Rule] =
    &[Rule::exact("erf.neg", "(erf (neg x))", "(neg (erf x))", "the error function is odd")];
