//! Uniform random floats.

use super::philox;
use super::util::*;
use crate::eval::Array;
use crate::kernel::{Scalar, ScalarOp, ScalarType};
use crate::lower::Lower;
use crate::op::*;
use crate::{DType, OpDef};

pub const DEF: OpDef = OpDef {
    name: "random_uniform",
    summary: "Uniformly distributed floats in [0, 1): multiples of 2^-24 (f32), 2^-53 (f64), \
              2^-11 (f16) or 2^-8 (bf16), the same on every machine.",
    operands: &[Operand::one("key", ElementKind::Key)],
    attrs: &[philox::SHAPE, philox::FLOAT, philox::STREAM, philox::LANE],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: philox::floats,
    grad: philox::NO_GRAD,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let i = philox::linear(k, at);
        let dtype = k.result_type().dtype;
        if dtype != DType::F64 {
            let word = philox::lower_word(k, i);
            return philox::lower_fraction(k, word, 32, bits(dtype), ScalarType::F32);
        }
        // Two words an element, so two elements a block.
        let mut int = |v| k.constant(Scalar::I64(v));
        let (one, zero, half) = (int(1), int(0), int(32));
        let at = k.op(ScalarOp::ShrLogic, &[i, one]);
        let words = philox::lower_block(k, at);
        let odd = k.op(ScalarOp::And, &[i, one]);
        let even = k.op(ScalarOp::Eq, &[odd, zero]);
        let high = k.op(ScalarOp::Select, &[even, words[0], words[2]]);
        let low = k.op(ScalarOp::Select, &[even, words[1], words[3]]);
        let high = k.op(ScalarOp::Shl, &[high, half]);
        let both = k.op(ScalarOp::Or, &[high, low]);
        philox::lower_fraction(k, both, 64, bits(dtype), ScalarType::F64)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let dtype = cx.results[0].dtype;
        let word = philox::words(cx)?;
        let top = bits(dtype);
        let count = shape.iter().product::<usize>() as u64;
        let scale = 1.0 / (1u64 << top) as f64;
        let values = (0..count)
            .map(|i| match dtype {
                DType::F64 => {
                    let both = (word(2 * i) as u64) << 32 | word(2 * i + 1) as u64;
                    (both >> (64 - top)) as f64 * scale
                }
                _ => (word(i) >> (32 - top)) as f64 * scale,
            })
            .collect();
        Ok(vec![Array::float(dtype, from_vec(&shape, values))])
    }),
};

/// As many as the type holds exactly, so that nothing rounds up to 1.
fn bits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F64 => 53,
        _ => 24,
    }
}
