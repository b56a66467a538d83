//! Receiving a tensor from another task of a cluster.

use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "recv",
    summary: "Waits for a tensor that another task of a cluster sends with `send`. Between two \
              tasks, messages are received in the order they are sent in.",
    operands: &[],
    attrs: &[
        AttrSpec {
            name: "from",
            kind: AttrKind::Str,
            default: None,
            doc: "the task, such as \"/job:ps/task:1\"",
        },
        AttrSpec {
            name: "shape",
            kind: AttrKind::Shape,
            default: Some(|| Attr::Shape(vec![])),
            doc: "the shape of the tensor",
        },
        AttrSpec {
            name: "dtype",
            kind: AttrKind::DType,
            default: Some(|| Attr::DType(DType::F32)),
            doc: "the element type of the tensor",
        },
        AttrSpec {
            name: "signal",
            kind: AttrKind::Bool,
            default: Some(|| Attr::Bool(false)),
            doc: "no tensor comes, only the news that the other task is that far",
        },
        AttrSpec {
            name: "name",
            kind: AttrKind::Str,
            default: Some(|| Attr::Str(String::new())),
            doc: "what is received, for messages",
        },
    ],
    regions: &[],
    effect: Effect::Io,
    stage: Stage::Core,
    infer: |cx| {
        if cx.attrs.bool("signal") {
            return Ok(vec![]);
        }
        let dtype = cx.attrs.dtype("dtype").unwrap_or(DType::F32);
        Ok(vec![TensorType::new(dtype, cx.attrs.shape("shape").to_vec())])
    },
    grad: Grad::Undefined("gradients are taken before a graph is cut into parts"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Recv),
    eval: Eval::Interpreter,
};
