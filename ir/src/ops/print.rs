//! Showing a tensor while the program runs.

use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, OpDef};

pub const DEF: OpDef = OpDef {
    name: "print",
    summary: "Writes a label and a tensor to standard error.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[AttrSpec {
        name: "label",
        kind: AttrKind::Str,
        default: Some(|| Attr::Str(String::new())),
        doc: "what to write before the tensor",
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
    lower: Lower::Step(StepKind::Print),
    eval: Eval::Interpreter,
};
