//! The square root.

use super::util::*;
use crate::OpDef;
use crate::facts::NONNEG;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "sqrt",
    summary: "Takes the square root of every element; of a negative number it is NaN.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        // d sqrt(x) = 0.5 / sqrt(x)
        Some(e.div(e.mul(n.ct, e.splat_like(0.5, n.ct)), n.out))
    }),
    rules: RULES,
    facts: Facts { range: |cx| Range::new(cx.facts(0) & NONNEG, cx.size(0).sqrt()), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Sqrt, a)),
    eval: Eval::Pure(|cx| eval_float(cx, f64::sqrt)),
};

const RULES: &[Rule] = &[
    Rule::exact("sqrt.square", "(sqrt (mul x x))", "(abs x)", "the root undoes squaring").round(),
    Rule::exact("sqrt.reciprocal", "(sqrt (div 1 x))", "(rsqrt x)", "one op instead of two")
        .special(),
];
