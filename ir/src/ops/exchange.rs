//! What `all_reduce` becomes in the version of an entry that several processes run.

use super::all_reduce;
use crate::OpDef;
use crate::lower::{Lower, StepKind};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "exchange",
    summary: "Combines tensors with their counterparts in the other processes of a job, all of \
              them at once. The compiler makes it of `all_reduce`. In a program that runs by \
              itself the results are the operands.",
    operands: &[Operand::many("x", ElementKind::Num)],
    attrs: all_reduce::ATTRS,
    regions: &[],
    // All processes do the same exchanges in the same order.
    effect: Effect::Io,
    stage: Stage::Core,
    infer: |cx| {
        all_reduce::check(cx)?;
        Ok(cx.operands.to_vec())
    },
    grad: Grad::Undefined("gradients are taken before `all_reduce` becomes an exchange"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Exchange),
    eval: Eval::Interpreter,
};
