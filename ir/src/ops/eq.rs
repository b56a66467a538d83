//! Equality.

use super::util::*;
use crate::OpDef;
use crate::kernel::{ScalarOp, ScalarType};
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "eq",
    summary: "Compares two tensors elementwise: a == b. NaN equals nothing, not even itself.",
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
        if k.reg_type(a[0]) == ScalarType::Bool {
            let differ = k.op(ScalarOp::Xor, a);
            return k.op(ScalarOp::Not, &[differ]);
        }
        k.op(ScalarOp::Eq, a)
    }),
    eval: Eval::Pure(|cx| eval_compare(cx, |a, b| a == b, |a, b| a == b)),
};
