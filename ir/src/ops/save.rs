//! Writing tensors to a file while the program runs.

use crate::attr::AttrKind;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, OpDef};

pub const DEF: OpDef = OpDef {
    name: "save",
    summary: "Writes tensors to a .safetensors file, all or none: variables under their names, \
              other values under the names they have in the text. `restore` and `--restore` read \
              it, and `--state` if it has all variables.",
    operands: &[Operand::many("values", ElementKind::Any)],
    attrs: &[
        PATH,
        AttrSpec {
            name: "names",
            kind: AttrKind::Str,
            default: Some(|| Attr::Str(String::new())),
            doc: "the tensors' names in the file, separated by commas; left out, they are those of \
                  the text",
        },
    ],
    regions: &[],
    effect: Effect::Io,
    stage: Stage::Core,
    infer: |cx| {
        check_path(cx)?;
        let names = cx.attrs.str("names");
        let names: Vec<&str> = names.split(',').filter(|n| !n.is_empty()).collect();
        let twice = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n));
        if let Some((i, name)) = twice {
            return Err(InferError::new("E0462", format!("two tensors are saved as `{name}`"))
                .at(Blame::Operand(i.min(cx.operands.len().saturating_sub(1))), "the second"));
        }
        if names.len() != cx.operands.len() || names.is_empty() {
            let (n, m) = (cx.operands.len(), names.len());
            return Err(InferError::new("E0462", format!("{n} tensors and {m} names for them"))
                .at(Blame::Op, "each tensor is saved under a name"));
        }
        Ok(vec![])
    },
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::Save),
    eval: Eval::Interpreter,
};

pub const PATH: AttrSpec = AttrSpec {
    name: "path",
    kind: AttrKind::Str,
    default: None,
    doc: "the file, in the directory of `--checkpoint-dir` or else the working directory; \
          `.safetensors` is added where it is missing",
};

pub fn check_path(cx: &InferCx<'_>) -> Result<(), InferError> {
    if cx.attrs.str("path").is_empty() {
        return Err(InferError::new("E0461", format!("the path of `{}` is empty", cx.op))
            .at(Blame::Attr("path"), "name a file"));
    }
    Ok(())
}
