//! Random bits.

use super::philox;
use super::util::*;
use crate::eval::Array;
use crate::kernel::ScalarType;
use crate::lower::Lower;
use crate::op::*;
use crate::{DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "random_bits",
    summary: "Uniformly distributed 32-bit integers (Philox4x32-10), a pure function of `key`, \
              `stream` and `lane`.",
    operands: &[Operand::one("key", ElementKind::Key)],
    attrs: &[philox::SHAPE, philox::STREAM, philox::LANE],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        philox::check(cx)?;
        Ok(vec![TensorType::new(DType::I32, cx.attrs.shape("shape"))])
    },
    grad: philox::NO_GRAD,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let i = philox::linear(k, at);
        let word = philox::lower_word(k, i);
        k.convert(word, ScalarType::I32)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let word = philox::words(cx)?;
        let count: usize = shape.iter().product();
        let values = (0..count as u64).map(|i| word(i) as i64).collect();
        Ok(vec![Array::int(DType::I32, from_vec(&shape, values))])
    }),
};
