//! The inverse of the hyperbolic cosine.

use super::util::*;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "acosh",
    summary: "Gives the number, not negative, whose hyperbolic cosine every element is; NaN below 1.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let x = n.operands[0];
        let one = e.splat_like(1.0, x);
        let square = e.mul(e.sub(x, one), e.add(x, one));
        Some(e.mul(n.ct, e.unary(Op::Rsqrt, square)))
    }),
    rules: &[],
    facts: Facts { range: |_| Range::new(NONNEG, Magnitude::ANY), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Acosh, a)),
    eval: Eval::Pure(|cx| eval_float(cx, |x| (Elementary::Acosh.def().reference)(&[x]))),
};
