//! The sine.

use super::util::*;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "sin",
    summary: "Takes the sine of every element, in radians.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.mul(n.ct, e.unary(Op::Cos, n.operands[0])))),
    rules: RULES,
    facts: Facts::AT_MOST_ONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Sin, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::sin)),
};

const RULES: &[Rule] =
    &[Rule::exact("sin.neg", "(sin (neg x))", "(neg (sin x))", "the sine is odd")];
