//! Reading a variable from a file while the program runs.

use super::{save, state};
use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, OpDef};

pub const DEF: OpDef = OpDef {
    name: "restore",
    summary: "Replaces variables by what a .safetensors file has under their names: what `save` \
              wrote, a checkpoint, a file from elsewhere. A file that cannot be read, lacks one or \
              has another type for it fails at run time.",
    operands: &[],
    attrs: &[
        save::PATH,
        AttrSpec {
            name: "key",
            kind: AttrKind::Str,
            default: Some(|| Attr::Str(String::new())),
            doc: "the tensor's name in the file, if it is not the variable's",
        },
    ],
    regions: &[],
    effect: Effect::Write,
    stage: Stage::Core,
    infer: |cx| {
        state::variable(cx)?;
        save::check_path(cx)?;
        Ok(vec![])
    },
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Restore),
    eval: Eval::Interpreter,
};
