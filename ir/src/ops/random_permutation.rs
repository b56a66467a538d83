//! Numbers in random order.
//!
//! The "swap or not" shuffle (Hoang, Morris, Rogaway: "An enciphering scheme based
//! on a card shuffle", CRYPTO 2012): in each round every place has one partner, and
//! a bit that both agree on says whether the two change places. Any element is
//! computed alone, without a table, and every size works. The rounds are driven by
//! a 64-bit key that Philox makes of the op's key and stream.

use super::philox;
use super::util::*;
use crate::eval::Array;
use crate::facts::IntRange;
use crate::kernel::{Ix, Reg, Scalar, ScalarOp};
use crate::lower::{Lower, Pull};
use crate::op::*;
use crate::{Attr, DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "random_permutation",
    summary: "The whole numbers below the size of a vector, each once, in random order.",
    operands: &[Operand::one("key", ElementKind::Key)],
    attrs: &[
        AttrSpec {
            name: "shape",
            kind: crate::attr::AttrKind::Shape,
            default: None,
            doc: "the result shape: one size",
        },
        philox::STREAM,
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        philox::check(cx)?;
        let shape = cx.attrs.shape("shape");
        let large = shape.first().and_then(|d| d.as_const()).is_some_and(|n| n > i32::MAX as i64);
        if shape.len() != 1 || large {
            return Err(InferError::new(
                "E0216",
                "a permutation is a vector of at most 2147483647",
            )
            .at(Blame::Attr("shape"), "expected one size"));
        }
        Ok(vec![TensorType::new(DType::I64, shape)])
    },
    grad: philox::NO_GRAD,
    rules: &[],
    facts: Facts {
        integers: |cx| IntRange::indices_of(&cx.result.shape[0], cx.result.dtype),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let seed = lower_seed(k);
        let size = k.result_type().shape[0].clone();
        let size = k.index(&Ix::constant(1).scale(&size));
        let mut x = k.index(&at[0]);
        let (zero, half) = (int(k, 0), int(k, 32));
        for round in 0..ROUNDS {
            let step = int(k, GOLDEN.wrapping_mul(round as u64 + 1) as i64);
            let own = k.op(ScalarOp::Add, &[seed, step]);
            let mixed = lower_mix(k, own);
            // partner = (word * size >> 32) - x, modulo the size.
            let word = k.op(ScalarOp::ShrLogic, &[mixed, half]);
            let product = k.op(ScalarOp::Mul, &[word, size]);
            let pivot = k.op(ScalarOp::ShrLogic, &[product, half]);
            let partner = k.op(ScalarOp::Sub, &[pivot, x]);
            let wrapped = k.op(ScalarOp::Add, &[partner, size]);
            let below = k.op(ScalarOp::Lt, &[partner, zero]);
            let partner = k.op(ScalarOp::Select, &[below, wrapped, partner]);
            let first = k.op(ScalarOp::Lt, &[partner, x]);
            let larger = k.op(ScalarOp::Select, &[first, x, partner]);
            let place = k.op(ScalarOp::Add, &[mixed, larger]);
            let bits = lower_mix(k, place);
            let swap = k.op(ScalarOp::Lt, &[bits, zero]);
            x = k.op(ScalarOp::Select, &[swap, partner, x]);
        }
        x
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let attrs = cx.attrs.clone().with("lane", Attr::Int(LANE));
        let word = philox::words(&EvalCx { attrs: &attrs, ..*cx })?;
        let seed = word(0) as u64 | (word(1) as u64) << 32;
        let size = shape.first().copied().unwrap_or(0) as u64;
        let values = (0..size).map(|i| place(i, size, seed) as i64).collect();
        Ok(vec![Array::int(DType::I64, from_vec(&shape, values))])
    }),
};

const LANE: i64 = 5;
/// After so many rounds every order of a million elements is about as likely.
const ROUNDS: usize = 48;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// A bijection of 64 bits in which every bit depends on all (SplitMix64's).
const MIX: [(u32, u64); 2] = [(30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)];
const MIX_LAST: u32 = 31;

fn place(mut x: u64, size: u64, seed: u64) -> u64 {
    for round in 0..ROUNDS {
        let mixed = mix(seed.wrapping_add(GOLDEN.wrapping_mul(round as u64 + 1)));
        let pivot = ((mixed >> 32) * size) >> 32;
        let partner = if pivot < x { pivot + size - x } else { pivot - x };
        if mix(mixed.wrapping_add(x.max(partner))) >> 63 == 1 {
            x = partner;
        }
    }
    x
}

fn mix(mut z: u64) -> u64 {
    for (shift, factor) in MIX {
        z = (z ^ (z >> shift)).wrapping_mul(factor);
    }
    z ^ (z >> MIX_LAST)
}

fn int(k: &mut dyn Pull, v: i64) -> Reg {
    k.constant(Scalar::I64(v))
}

fn lower_seed(k: &mut dyn Pull) -> Reg {
    let block = int(k, 0);
    let [low, high, ..] = philox::lower_block_of(k, block, LANE);
    let half = int(k, 32);
    let high = k.op(ScalarOp::Shl, &[high, half]);
    k.op(ScalarOp::Or, &[low, high])
}

fn lower_mix(k: &mut dyn Pull, mut z: Reg) -> Reg {
    let folded = |k: &mut dyn Pull, z: Reg, shift: u32| {
        let by = int(k, shift as i64);
        let shifted = k.op(ScalarOp::ShrLogic, &[z, by]);
        k.op(ScalarOp::Xor, &[z, shifted])
    };
    for (shift, factor) in MIX {
        let factor = int(k, factor as i64);
        let mixed = folded(k, z, shift);
        z = k.op(ScalarOp::Mul, &[mixed, factor]);
    }
    folded(k, z, MIX_LAST)
}
