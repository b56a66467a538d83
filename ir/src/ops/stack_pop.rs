//! Taking back what was kept earlier in the same call.

use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "stack_pop",
    summary: "Takes the value off a stack that `stack_push` put there last. An empty stack fails \
              at run time.",
    operands: &[],
    attrs: &[
        AttrSpec {
            name: "stack",
            kind: AttrKind::Str,
            default: None,
            doc: "the name of the stack",
        },
        AttrSpec {
            name: "shape",
            kind: AttrKind::Shape,
            default: None,
            doc: "the shape of what is on it",
        },
        AttrSpec {
            name: "dtype",
            kind: AttrKind::DType,
            default: Some(|| Attr::DType(DType::F32)),
            doc: "the element type of what is on it",
        },
    ],
    regions: &[],
    effect: Effect::Stack,
    stage: Stage::Core,
    infer: |cx| {
        let dtype = cx.attrs.dtype("dtype").unwrap_or(DType::F32);
        Ok(vec![TensorType::new(dtype, cx.attrs.shape("shape").to_vec())])
    },
    grad: Grad::Structural,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Pop),
    eval: Eval::Interpreter,
};
