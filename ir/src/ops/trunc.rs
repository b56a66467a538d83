//! Rounding toward zero.

use super::util::*;
use crate::OpDef;
use crate::kernel::{Scalar, ScalarOp};
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "trunc",
    summary: "Rounds every element toward zero to a whole number.",
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
    lower: Lower::Map(|k, a| {
        let zero = k.constant(Scalar::of(k.reg_type(a[0]), 0.0));
        let below = k.op(ScalarOp::Lt, &[a[0], zero]);
        let (up, down) = (k.op(ScalarOp::Ceil, a), k.op(ScalarOp::Floor, a));
        k.op(ScalarOp::Select, &[below, up, down])
    }),
    eval: Eval::Pure(|cx| eval_float(cx, f64::trunc)),
};

const RULES: &[Rule] = &[
    Rule::exact("trunc.trunc", "(trunc (trunc x))", "(trunc x)", "already whole"),
    Rule::exact("trunc.floor", "(trunc (floor x))", "(floor x)", "already whole"),
    Rule::exact("trunc.ceil", "(trunc (ceil x))", "(ceil x)", "already whole"),
    Rule::exact("trunc.round", "(trunc (round x))", "(round x)", "already whole"),
    Rule::exact("trunc.neg", "(trunc (neg x))", "(neg (trunc x))", "the same on both sides"),
];
