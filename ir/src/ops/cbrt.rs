//! The cube root.

use super::util::*;
use crate::OpDef;
use crate::facts::{FINITE, NONNEG};
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "cbrt",
    summary: "Takes the cube root of every element, of negative ones too.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let three = e.splat_like(3.0, n.out);
        Some(e.div(n.ct, e.mul(three, e.mul(n.out, n.out))))
    }),
    rules: RULES,
    facts: Facts {
        range: |cx| Range::new(cx.facts(0) & (NONNEG | FINITE), Magnitude::ANY),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Cbrt, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::cbrt)),
};

const RULES: &[Rule] =
    &[Rule::exact("cbrt.neg", "(cbrt (neg x))", "(neg (cbrt x))", "the function is odd")];
