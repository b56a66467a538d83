//! Whether all are true.

use super::util::*;
use crate::OpDef;
use crate::lower::{Lower, Reduction};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "all",
    summary: "Tells, over the given axes, whether all elements are true; over none it is true.",
    operands: &[Operand::one("x", ElementKind::Bool)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Zero("a truth value has no derivative"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Reduce(Reduction::And),
    eval: Eval::Pure(|cx| eval_reduce_bool(cx, true, |a, b| a & b)),
};
