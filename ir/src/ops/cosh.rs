//! The hyperbolic cosine.

use super::util::*;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "cosh",
    summary: "Takes the hyperbolic cosine of every element.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.mul(n.ct, e.unary(Op::Sinh, n.operands[0])))),
    rules: RULES,
    facts: Facts {
        range: |_| Range::new(NONNEG, Magnitude { lo: 0, ..Magnitude::ANY }),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Cosh, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::cosh)),
};

const RULES: &[Rule] = &[
    Rule::exact("cosh.neg", "(cosh (neg x))", "(cosh x)", "the function is even"),
    Rule::exact("cosh.abs", "(cosh (abs x))", "(cosh x)", "the function is even"),
];
