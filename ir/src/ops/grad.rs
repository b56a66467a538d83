//! Gradients, until differentiation replaces them.

use crate::attr::AttrKind;
use crate::lower::Lower;
use crate::op::*;
use crate::{Attr, OpDef};

pub const DEF: OpDef = OpDef {
    name: "grad",
    summary: "The gradients of `y` with respect to each of `wrt`. If `y` is not a scalar, the \
              operand after it is the gradient that flows into it (`seeded`).",
    operands: &[Operand::one("y", ElementKind::Float), Operand::many("wrt", ElementKind::Float)],
    attrs: &[AttrSpec {
        name: "seeded",
        kind: AttrKind::Bool,
        default: Some(|| Attr::Bool(false)),
        doc: "whether the second operand is the gradient flowing into `y`",
    }],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Source,
    infer: |cx| {
        let y = &cx.operands[0];
        if !cx.attrs.bool("seeded") {
            if y.rank() > 0 {
                return Err(InferError::new(
                    "E0330",
                    format!("the gradient of {y} needs to know how its elements count"),
                )
                .at(Blame::Operand(0), format!("this is {y}, not a scalar"))
                .help("reduce it first, as in `grad(sum(y), ..)`, or give the gradient flowing in: `ct: ..`"));
            }
            return Ok(cx.operands[1..].to_vec());
        }
        match cx.operands.get(1) {
            Some(ct) if ct == y => Ok(cx.operands[2..].to_vec()),
            Some(ct) => Err(InferError::new(
                "E0331",
                "the gradient flowing into a tensor must have its type",
            )
            .at(Blame::Operand(0), format!("this is {y}"))
            .at(Blame::Operand(1), format!("this is {ct}"))),
            None => Err(InferError::new("E0331", "the gradient flowing into `y` is missing")
                .at(Blame::Operand(0), format!("this is {y}"))),
        }
    },
    grad: Grad::Structural,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Never,
    eval: Eval::Never,
};
