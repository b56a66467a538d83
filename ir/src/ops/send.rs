//! Sending a tensor to another task of a cluster.

use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, OpDef};

pub const DEF: OpDef = OpDef {
    name: "send",
    summary: "Sends a tensor to another task of a cluster, whose `recv` of the same name takes \
              it; without a tensor, only the news that this point is reached. It does not wait. \
              The compiler makes it where a tensor is used on another task than the one that \
              computes it, and it may stand in the part of one task only (`entry .. on`).",
    operands: &[Operand::many("x", ElementKind::Any)],
    attrs: &[
        AttrSpec {
            name: "to",
            kind: AttrKind::Str,
            default: None,
            doc: "the task, such as \"/job:ps/task:1\"",
        },
        AttrSpec {
            name: "name",
            kind: AttrKind::Str,
            default: Some(|| Attr::Str(String::new())),
            doc: "what is sent, for messages",
        },
    ],
    regions: &[],
    effect: Effect::Io,
    stage: Stage::Core,
    infer: |cx| match cx.operands {
        [] | [_] => Ok(vec![]),
        more => Err(InferError::new("E0201", "`send` takes one tensor or none")
            .at(Blame::Op, format!("{} were given", more.len()))),
    },
    grad: Grad::Undefined("gradients are taken before a graph is cut into parts"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Send),
    eval: Eval::Interpreter,
};
