//! The inverse of the hyperbolic sine.

use super::util::*;
use crate::facts::{FINITE, NONNEG};
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "asinh",
    summary: "Gives the number whose hyperbolic sine every element is.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let x = n.operands[0];
        let one = e.splat_like(1.0, x);
        Some(e.mul(n.ct, e.unary(Op::Rsqrt, e.add(e.mul(x, x), one))))
    }),
    rules: RULES,
    facts: Facts {
        range: |cx| Range::new(cx.facts(0) & (NONNEG | FINITE), Magnitude::ANY),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Asinh, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::asinh)),
};

const RULES: &[Rule] =
    &[Rule::exact("asinh.neg", "(asinh (neg x))", "(neg (asinh x))", "the function is odd")];
