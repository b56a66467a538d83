//! Negation.

use super::util::*;
use crate::OpDef;
use crate::facts::{FINITE, NONPOS, NONZERO, RangeCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::{Fact, Rule};

pub const DEF: OpDef = OpDef {
    name: "neg",
    summary: "Negates every element.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.neg(n.ct))),
    rules: RULES,
    facts: Facts { range, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Neg, a)),
    eval: Eval::Pure(|cx| eval_num(cx, |x| -x, i64::wrapping_neg)),
};

fn range(cx: &dyn RangeCx) -> Range {
    let sign = if cx.has(0, Fact::NonNeg) { NONPOS } else { 0 };
    Range::new(cx.facts(0) & (FINITE | NONZERO) | sign, cx.size(0))
}

const RULES: &[Rule] = &[
    Rule::exact("neg.neg", "(neg (neg x))", "x", "the sign flips twice"),
    Rule::exact("neg.sub", "(neg (sub x y))", "(sub y x)", "the difference the other way round")
        .round(),
    Rule::exact(
        "neg.mul_splat",
        "(neg (mul x #c))",
        "(mul x (neg #c))",
        "the constant takes the sign",
    ),
    Rule::exact(
        "neg.div_splat",
        "(neg (div #c x))",
        "(div (neg #c) x)",
        "the constant takes the sign",
    )
    .when(|m| m.root_ty().dtype.is_float()),
    Rule::exact(
        "neg.add_splat",
        "(neg (add x #c))",
        "(sub (neg #c) x)",
        "the constant takes the sign",
    )
    .round(),
];
