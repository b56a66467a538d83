//! The arc sine.

use super::util::*;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "asin",
    summary: "Gives the angle, between -pi/2 and pi/2, whose sine every element is; NaN beyond 1.",
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
        Some(e.mul(n.ct, e.unary(Op::Rsqrt, left)))
    }),
    rules: RULES,
    facts: Facts {
        range: |cx| Range::new(cx.facts(0) & NONNEG, Magnitude::at_most(1)),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Asin, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::asin)),
};

const RULES: &[Rule] =
    &[Rule::exact("asin.neg", "(asin (neg x))", "(neg (asin x))", "the function is odd")];
