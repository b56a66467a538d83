//! Rounding to nearest.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "round",
    summary: "Rounds every element to the nearest whole number, halves to the even one.",
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
    lower: Lower::Map(|k, a| k.op(ScalarOp::RoundEven, a)),
    eval: Eval::Pure(|cx| eval_float(cx, f64::round_ties_even)),
};

const RULES: &[Rule] = &[
    Rule::exact("round.round", "(round (round x))", "(round x)", "already whole"),
    Rule::exact("round.floor", "(round (floor x))", "(floor x)", "already whole"),
];
