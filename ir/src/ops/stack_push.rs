//! Keeping a value for later in the same call.

use crate::OpDef;
use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "stack_push",
    summary: "Puts a value on a stack, from which `stack_pop` takes it. A stack is named by its \
              use, belongs to one call, is empty when the call starts, and grows as needed. \
              Gradients of loops and branches keep with it what the backward pass needs.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[AttrSpec {
        name: "stack",
        kind: AttrKind::Str,
        default: None,
        doc: "the name of the stack; everything on one stack has one type",
    }],
    regions: &[],
    effect: Effect::Stack,
    stage: Stage::Core,
    infer: |_| Ok(vec![]),
    grad: Grad::Structural,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Push),
    eval: Eval::Interpreter,
};
