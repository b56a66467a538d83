//! The absolute value.

use super::util::*;
use crate::facts::{FINITE, NONNEG, NONZERO};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::{Fact, Rule};
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "abs",
    summary: "Takes the absolute value of every element. The derivative at 0 is taken to be 0.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.mul(n.ct, e.unary(Op::Sign, n.operands[0])))),
    rules: RULES,
    facts: Facts {
        range: |cx| Range::new(NONNEG | cx.facts(0) & (FINITE | NONZERO), cx.size(0)),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Abs, a)),
    eval: Eval::Pure(|cx| eval_num(cx, f64::abs, i64::wrapping_abs)),
};

const RULES: &[Rule] = &[
    Rule::exact("abs.abs", "(abs (abs x))", "(abs x)", "already without sign"),
    Rule::exact("abs.neg", "(abs (neg x))", "(abs x)", "the sign goes anyway"),
    Rule::exact("abs.relu", "(abs (relu x))", "(relu x)", "already without sign, but for -0")
        .round(),
    Rule::exact("abs.nonneg", "(abs x)", "x", "already without sign").assume("x", Fact::NonNeg),
];
