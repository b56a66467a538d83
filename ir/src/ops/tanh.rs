//! The hyperbolic tangent.

use super::util::*;
use crate::OpDef;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "tanh",
    summary: "Takes the hyperbolic tangent of every element.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        let one = e.splat_like(1.0, n.out);
        Some(e.mul(n.ct, e.sub(one, e.mul(n.out, n.out))))
    }),
    rules: RULES,
    facts: Facts::AT_MOST_ONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Tanh, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::tanh)),
};

const RULES: &[Rule] =
    &[Rule::exact("tanh.neg", "(tanh (neg x))", "(neg (tanh x))", "the tangent is odd")];
