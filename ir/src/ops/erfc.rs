//! What the error function lacks.

use super::util::*;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "erfc",
    summary: "Takes 1 - erf(x) of every element, without the rounding of that difference.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let x = n.operands[0];
        let bell = e.unary(Op::Exp, e.neg(e.mul(x, x)));
        let scale = e.splat_like(-std::f64::consts::FRAC_2_SQRT_PI, x);
        Some(e.mul(n.ct, e.mul(bell, scale)))
    }),
    rules: &[],
    facts: Facts { range: |_| Range::new(NONNEG, Magnitude::at_most(1)), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Erfc, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::erfc)),
};
