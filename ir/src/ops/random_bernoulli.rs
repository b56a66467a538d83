//! Random truth values.

use super::philox;
use super::util::*;
use crate::attr::AttrKind;
use crate::eval::Array;
use crate::lower::Lower;
use crate::op::*;
use crate::{Attr, Attrs, DType, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "random_bernoulli",
    summary: "Truth values that are true with probability `p`.",
    operands: &[Operand::one("key", ElementKind::Key)],
    attrs: &[
        philox::SHAPE,
        AttrSpec {
            name: "p",
            kind: AttrKind::Float,
            default: Some(|| Attr::float(0.5)),
            doc: "the probability of true, from 0 to 1",
        },
        philox::STREAM,
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        philox::check(cx)?;
        let p = cx.attrs.float("p");
        if !(0.0..=1.0).contains(&p) {
            return Err(InferError::new("E0205", "a probability must be from 0 to 1")
                .at(Blame::Attr("p"), format!("this is {p}")));
        }
        Ok(vec![TensorType::new(DType::Bool, cx.attrs.shape("shape"))])
    },
    grad: philox::NO_GRAD,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Expand(|e, operands, attrs| {
        let given = Attrs::none()
            .with("shape", Attr::Shape(attrs.shape("shape").to_vec()))
            .with("stream", Attr::Int(attrs.int("stream")))
            .with("lane", Attr::Int(LANE))
            .with("dtype", Attr::DType(DType::F32));
        let u = e.emit(Op::RandomUniform, operands, given);
        e.binary(Op::Lt, u, e.splat_like(attrs.float("p"), u))
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let attrs = cx.attrs.clone().with("lane", Attr::Int(LANE));
        let word = philox::words(&EvalCx { attrs: &attrs, ..*cx })?;
        // In f32, as the expansion compares.
        let p = cx.attrs.float("p") as f32;
        let count = shape.iter().product::<usize>() as u64;
        let values = (0..count).map(|i| ((word(i) >> 8) as f32 / (1 << 24) as f32) < p).collect();
        Ok(vec![Array::bool(from_vec(&shape, values))])
    }),
};

const LANE: i64 = 3;
