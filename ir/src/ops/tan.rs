//! The tangent.

use super::util::*;
use crate::OpDef;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "tan",
    summary: "Takes the tangent of every element, in radians.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let one = e.splat_like(1.0, n.out);
        Some(e.mul(n.ct, e.add(one, e.mul(n.out, n.out))))
    }),
    rules: RULES,
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Tan, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::tan)),
};

const RULES: &[Rule] =
    &[Rule::exact("tan.neg", "(tan (neg x))", "(neg (tan x))", "the function is odd")];
