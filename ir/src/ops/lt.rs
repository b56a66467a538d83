//! Less than.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "lt",
    summary: "Compares two tensors elementwise: a < b. False where either is NaN.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
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
    lower: Lower::Map(|k, a| k.op(ScalarOp::Lt, a)),
    eval: Eval::Pure(|cx| eval_compare(cx, |a, b| a < b, |a, b| a < b)),
};
