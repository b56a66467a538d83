//! Telling numbers from infinities and NaN.

use super::util::*;
use crate::OpDef;
use crate::kernel::{Scalar, ScalarOp};
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "is_finite",
    summary: "True where an element is neither infinite nor NaN.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: predicate,
    grad: Grad::Zero("a truth value has no derivative"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        let infinity = k.constant(Scalar::of(k.reg_type(a[0]), f64::INFINITY));
        let size = k.op(ScalarOp::Abs, a);
        k.op(ScalarOp::Lt, &[size, infinity])
    }),
    eval: Eval::Pure(|cx| eval_test(cx, f64::is_finite)),
};
