//! Telling NaN.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "is_nan",
    summary: "True where an element is NaN.",
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
    lower: Lower::Map(|k, a| k.op(ScalarOp::Ne, &[a[0], a[0]])),
    eval: Eval::Pure(|cx| eval_test(cx, f64::is_nan)),
};
