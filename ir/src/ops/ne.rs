//! Inequality.

use super::util::*;
use crate::OpDef;
use crate::kernel::{ScalarOp, ScalarType};
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "ne",
    summary: "Compares two tensors elementwise: a != b. NaN differs from everything, even itself.",
    operands: &[Operand::one("a", ElementKind::Any), Operand::one("b", ElementKind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: predicate,
    grad: Grad::Zero("a truth value has no derivative"),
    rules: &[],
    facts: Facts::COMMUTES,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        let truth = k.reg_type(a[0]) == ScalarType::Bool;
        k.op(if truth { ScalarOp::Xor } else { ScalarOp::Ne }, a)
    }),
    eval: Eval::Pure(|cx| eval_compare(cx, |a, b| a != b, |a, b| a != b)),
};
