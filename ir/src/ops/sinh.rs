//! The hyperbolic sine.

use super::util::*;
use crate::facts::NONNEG;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "sinh",
    summary: "Takes the hyperbolic sine of every element.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.mul(n.ct, e.unary(Op::Cosh, n.operands[0])))),
    rules: RULES,
    facts: Facts { range: |cx| Range::new(cx.facts(0) & NONNEG, Magnitude::ANY), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Sinh, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::sinh)),
};

const RULES: &[Rule] =
    &[Rule::exact("sinh.neg", "(sinh (neg x))", "(neg (sinh x))", "the function is odd")];
