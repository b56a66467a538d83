//! The arc tangent.

use super::util::*;
use crate::OpDef;
use crate::facts::{FINITE, NONNEG};
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "atan",
    summary: "Gives the angle, between -pi/2 and pi/2, whose tangent every element is.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let x = n.operands[0];
        let one = e.splat_like(1.0, x);
        Some(e.div(n.ct, e.add(one, e.mul(x, x))))
    }),
    rules: RULES,
    facts: Facts {
        range: |cx| Range::new(cx.facts(0) & (NONNEG | FINITE), Magnitude::at_most(1)),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Atan, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::atan)),
};

const RULES: &[Rule] =
    &[Rule::exact("atan.neg", "(atan (neg x))", "(neg (atan x))", "the function is odd")];
