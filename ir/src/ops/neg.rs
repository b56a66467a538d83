//! Negation.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "neg",
    summary: "Negates every element.",
    operands: &[Operand::one("x", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.neg(n.ct))),
    rules: RULES,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Neg, a)),
    eval: Eval::Pure(|cx| eval_num(cx, |x| -x, i64::wrapping_neg)),
};

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
