//! Rounding up.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "ceil",
    summary: "Rounds every element up to a whole number.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Zero("a step function is constant wherever it has a derivative"),
    rules: RULES,
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Ceil, a)),
    eval: Eval::Pure(|cx| eval_float(cx, f64::ceil)),
};

const RULES: &[Rule] = &[
    Rule::exact("ceil.ceil", "(ceil (ceil x))", "(ceil x)", "already whole"),
    Rule::exact("ceil.floor", "(ceil (floor x))", "(floor x)", "already whole"),
];
