//! The same elements, in the same order, under another shape.

use super::util::*;
use crate::attr::AttrKind;
use crate::facts::{Simpler, SimplerCx};
use crate::lower::Lower;
use crate::op::*;
use crate::rule::{Match, Rule};
use crate::vjp::V;
use crate::{Attr, Attrs, Dim, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "reshape",
    summary: "Gives the elements, in order, another shape.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[AttrSpec {
        name: "shape",
        kind: AttrKind::Shape,
        default: None,
        doc: "the result shape; one size may be written `_` in source text",
    }],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let x = &cx.operands[0];
        let shape = cx.attrs.shape("shape");
        let (from, to) = (x.elements(), Dim::product(shape));
        if from != to {
            return Err(InferError::new(
                "E0210",
                format!("`reshape` cannot turn {from} elements into {to}"),
            )
            .at(Blame::Operand(0), format!("this is {x}, {from} elements"))
            .at(Blame::Attr("shape"), format!("this has {to} elements")));
        }
        Ok(vec![TensorType::new(x.dtype, shape.to_vec())])
    },
    grad: Grad::Vjp(|e, n, _| Some(e.reshape(n.ct, &e.ty(n.operands[0]).shape))),
    rules: RULES,
    facts: Facts { moves: Moves::Reshaped, simpler, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Reshape,
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        Ok(vec![map_data!(&cx.operands[0], a => from_vec(&shape, a.iter().copied().collect()))])
    }),
};

/// Only the last of several shapes matters.
fn simpler(cx: &SimplerCx<'_>) -> Option<Simpler> {
    let to = &cx.result.shape;
    if cx.operand(0).shape == *to {
        return Some(Simpler::Value(cx.operands[0]));
    }
    let (inner, _) = cx.through(0, Op::Reshape)?;
    if cx.func.ty(inner).shape == *to {
        return Some(Simpler::Value(inner));
    }
    let attrs = Attrs::none().with("shape", Attr::Shape(to.to_vec()));
    Some(Simpler::Node(Op::Reshape, vec![inner], attrs))
}

const RULES: &[Rule] = &[
    Rule::computed(
        "reshape.same",
        "(reshape:r x)",
        |m| (m.shape("x") == m.root_ty().shape).then(|| m.var("x")),
        "already of that shape",
    ),
    Rule::exact(
        "reshape.reshape",
        "(reshape:r (reshape:q x))",
        "(reshape:r x)",
        "only the last shape counts",
    ),
    Rule::exact(
        "reshape.unary",
        "(@unary:f (reshape:r x))",
        "(reshape:r (@unary:f x))",
        "views move outward, where they meet",
    ),
    Rule::exact(
        "reshape.binary",
        "(@binary:f (reshape:r x) (reshape:r y))",
        "(reshape:r (@binary:f x y))",
        "one view instead of two",
    )
    .when(|m| m.shape("x") == m.shape("y")),
    Rule::computed(
        "reshape.broadcast",
        "(reshape:r (broadcast:b x))",
        scalar_broadcast,
        "a repeated scalar has any shape",
    ),
];

fn scalar_broadcast(m: &Match<'_>) -> Option<V> {
    let shape = m.root_ty().shape;
    m.shape("x").is_empty().then(|| m.emit().broadcast(m.var("x"), &shape, &[]))
}
