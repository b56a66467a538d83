//! The cosine.

use super::util::*;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "cos",
    summary: "Takes the cosine of every element, in radians.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.neg(e.mul(n.ct, e.unary(Op::Sin, n.operands[0]))))),
    rules: RULES,
    facts: Facts::AT_MOST_ONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Cos, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::cos)),
};

const RULES: &[Rule] = &[
    Rule::exact("cos.neg", "(cos (neg x))", "(cos x)", "the cosine is even"),
    Rule::exact("cos.abs", "(cos (abs x))", "(cos x)", "the cosine is even"),
];
