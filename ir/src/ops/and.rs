//! Conjunction.

use super::util::*;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::{Match, Rule};
use crate::{DType, OpDef};

pub const DEF: OpDef = OpDef {
    name: "and",
    summary: "Combines truth values: true where both are. On integers, bit by bit.",
    operands: &[Operand::one("a", ElementKind::Bits), Operand::one("b", ElementKind::Bits)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Zero("a truth value has no derivative"),
    rules: RULES,
    facts: Facts::COMMUTES,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::And, a)),
    eval: Eval::Pure(|cx| eval_bits2(cx, |a, b| a & b, |a, b| a & b)),
};

const RULES: &[Rule] = &[
    Rule::exact("and.self", "(and x x)", "x", "agreed twice"),
    Rule::computed(
        "and.splat",
        "(and x #c)",
        |m| bool_splat(m).map(|c| m.var(if c != 0.0 { "x" } else { "c" })),
        "a known condition",
    ),
];

/// The condition `#c`, unless these are bits of integers.
fn bool_splat(m: &Match<'_>) -> Option<f64> {
    m.splat("c").filter(|_| m.root_ty().dtype == DType::Bool)
}
