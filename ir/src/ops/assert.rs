//! Stopping the program when something does not hold.

use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, OpDef};

pub const DEF: OpDef = OpDef {
    name: "assert",
    summary: "Fails the call with a message unless every element of `cond` is true.",
    operands: &[Operand::one("cond", ElementKind::Bool)],
    attrs: &[AttrSpec {
        name: "message",
        kind: AttrKind::Str,
        default: Some(|| Attr::Str(String::new())),
        doc: "what to say when it fails",
    }],
    regions: &[],
    effect: Effect::Io,
    stage: Stage::Core,
    infer: |_| Ok(vec![]),
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Assert),
    eval: Eval::Interpreter,
};
