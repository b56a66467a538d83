//! Negation of truth values.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "not",
    summary: "Turns true into false and false into true. On integers, flips every bit.",
    operands: &[Operand::one("x", ElementKind::Bits)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Zero("a truth value has no derivative"),
    rules: RULES,
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Not, a)),
    eval: Eval::Pure(|cx| eval_bits(cx, |x| !x, |x| !x)),
};

const RULES: &[Rule] = &[
    Rule::exact("not.not", "(not (not x))", "x", "denied twice"),
    Rule::exact("not.eq", "(not (eq x y))", "(ne x y)", "the opposite comparison, for NaN as well"),
    Rule::exact("not.ne", "(not (ne x y))", "(eq x y)", "the opposite comparison, for NaN as well"),
];
