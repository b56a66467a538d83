//! A literal tensor.

use crate::attr::AttrKind;
use crate::eval::Array;
use crate::lower::Lower;
use crate::op::*;
use crate::{Dim, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "const",
    summary: "A literal tensor, stored in the program.",
    operands: &[],
    attrs: &[AttrSpec { name: "value", kind: AttrKind::Tensor, default: None, doc: "the tensor" }],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| match cx.attrs.tensor("value") {
        Some(t) => {
            let shape: Vec<Dim> = t.shape().iter().map(|d| Dim::from(*d)).collect();
            Ok(vec![TensorType::new(t.dtype(), shape)])
        }
        None => Err(InferError::new("E0204", "`const` needs a value")),
    },
    grad: Grad::Zero("a literal does not depend on anything"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Constant,
    eval: Eval::Pure(|cx| match cx.attrs.tensor("value") {
        Some(t) => Ok(vec![Array::from_tensor(t)]),
        None => Err("no value".into()),
    }),
};
