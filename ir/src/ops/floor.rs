//! Rounding down.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "floor",
    summary: "Rounds every element down to a whole number.",
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
    lower: Lower::Map(|k, a| k.op(ScalarOp::Floor, a)),
    eval: Eval::Pure(|cx| eval_float(cx, f64::floor)),
};

const RULES: &[Rule] = &[
    Rule::exact("floor.floor", "(floor (floor x))", "(floor x)", "already whole"),
    Rule::exact("floor.ceil", "(floor (ceil x))", "(ceil x)", "already whole"),
    Rule::exact("floor.round", "(floor (round x))", "(round x)", "already whole"),
];
