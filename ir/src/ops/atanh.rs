//! The inverse of the hyperbolic tangent.

use super::util::*;
use crate::OpDef;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "atanh",
    summary: "Gives the number whose hyperbolic tangent every element is; NaN beyond 1.",
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
        Some(e.div(n.ct, left))
    }),
    rules: RULES,
    facts: Facts { range: |cx| Range::new(cx.facts(0) & NONNEG, Magnitude::ANY), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Atanh, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::atanh)),
};

const RULES: &[Rule] =
    &[Rule::exact("atanh.neg", "(atanh (neg x))", "(neg (atanh x))", "the function is odd")];
