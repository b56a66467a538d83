//! A gradient term, not yet written out.
//!
//! `vjp(operands.., out, ct, of: "mul", wrt: 0, ..)` is the contribution of
//! one use to the gradient of operand `wrt` of the op `of`. Differentiation leaves
//! these for the e-graph, which expands them by the op's own `grad` function and
//! may first simplify between them. The attributes of that op stand
//! beside `of` and `wrt`; [`crate::vjp::term_attrs`] makes them.

use crate::attr::AttrKind;
use crate::lower::Lower;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "vjp",
    summary: "Contribution of one use of an op to the gradient of one operand.",
    operands: &[Operand::many("operands", ElementKind::Any)],
    attrs: &[
        AttrSpec { name: "of", kind: AttrKind::Str, default: None, doc: "the op differentiated" },
        AttrSpec { name: "wrt", kind: AttrKind::Int, default: None, doc: "which operand of it" },
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Source,
    infer: |cx| {
        let name = cx.attrs.str("of");
        if Op::from_name(name).is_none_or(|op| !matches!(op.def().grad, Grad::Vjp(_))) {
            return Err(InferError::new("E0301", format!("`{name}` has no gradient"))
                .at(Blame::Attr("of"), "expected the name of a differentiable op"));
        }
        let index = usize::try_from(cx.attrs.int("wrt")).unwrap_or(usize::MAX);
        let operands = cx.operands.len().saturating_sub(2);
        if index >= operands {
            return Err(InferError::new("E0302", "`vjp` has no operand with this index")
                .at(Blame::Attr("wrt"), format!("there are {operands} operands")));
        }
        if cx.operands[operands] != cx.operands[operands + 1] {
            return Err(InferError::new("E0302", "a cotangent has the type of the result")
                .at(Blame::Operand(operands), format!("this is {}", cx.operands[operands]))
                .at(
                    Blame::Operand(operands + 1),
                    format!("this is {}", cx.operands[operands + 1]),
                ));
        }
        Ok(vec![cx.operands[index].clone()])
    },
    grad: Grad::Undefined("the inner gradient is written out before it is differentiated again"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Never,
    eval: Eval::Never,
};
