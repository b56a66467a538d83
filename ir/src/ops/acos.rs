//! The arc cosine.

use super::util::*;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "acos",
    summary: "Gives the angle, between 0 and pi, whose cosine every element is; NaN beyond 1.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let x = n.operands[0];
        let one = e.splat_like(1.0, x);
        let left = e.mul(e.sub(one, x), e.add(one, x));
        Some(e.neg(e.mul(n.ct, e.unary(Op::Rsqrt, left))))
    }),
    rules: &[],
    facts: Facts { range: |_| Range::new(NONNEG, Magnitude::at_most(2)), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Acos, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::acos)),
};
