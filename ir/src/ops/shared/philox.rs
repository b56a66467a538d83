//! Philox4x32-10, the counter-based generator behind all random ops.
//!
//! Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3"
//! (SC 2011). A block of four 32-bit words is a pure function of a 128-bit
//! counter and a 64-bit key, so any element can be computed alone, in any order,
//! on any thread, with the same result.
//!
//! Element `i` of a tensor of 32-bit words is word `i % 4` of the block with
//! counter `[i / 4 low, i / 4 high, stream, lane]`. `stream` tells apart the
//! random ops of a program, `lane` the sequences one op needs.

use crate::attr::AttrKind;
use crate::kernel::{Ix, Reg, Scalar, ScalarOp, ScalarType};
use crate::lower::Pull;
use crate::op::{AttrSpec, Blame, EvalCx, Grad, InferCx, InferError};
use crate::{Attr, Attrs, DType, Dim, TensorType};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// One block.
pub fn block(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [m0, m1] = MULTIPLIERS;
        let (p0, p1) = (m0 as u64 * c[0] as u64, m1 as u64 * c[2] as u64);
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ key[1],
            p0 as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    c
}

pub const SHAPE: AttrSpec =
    AttrSpec { name: "shape", kind: AttrKind::Shape, default: None, doc: "the result shape" };

pub const STREAM: AttrSpec = AttrSpec {
    name: "stream",
    kind: AttrKind::Int,
    default: Some(|| Attr::Int(0)),
    doc: "which sequence of the key to use, from 0 to 4294967295; the same key and stream always \
          give the same numbers",
};

pub const LANE: AttrSpec = AttrSpec {
    name: "lane",
    kind: AttrKind::Int,
    default: Some(|| Attr::Int(0)),
    doc: "which sequence of the stream to use; `random_normal` takes lanes 1 and 2, \
          `random_bernoulli` lane 3, `random_truncated_normal` lane 4, `random_permutation` \
          lane 5",
};

pub const FLOAT: AttrSpec = AttrSpec {
    name: "dtype",
    kind: AttrKind::DType,
    default: Some(|| Attr::DType(DType::F32)),
    doc: "the element type, a float type",
};

/// Of all random ops: what they are told is a key and sizes.
pub const NO_GRAD: Grad = Grad::Zero("random numbers depend on no tensor of floats");

/// The result of the ops that make floats: of their `dtype` and `shape`.
pub fn floats(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    check(cx)?;
    let dtype = cx.attrs.dtype("dtype").unwrap_or(DType::F32);
    Ok(vec![TensorType::new(dtype, cx.attrs.shape("shape"))])
}

/// What all random ops check.
pub fn check(cx: &InferCx<'_>) -> Result<(), InferError> {
    let key = &cx.operands[0];
    if key.rank() != 0 {
        return Err(InferError::new("E0232", format!("the key of `{}` is one number", cx.op))
            .at(Blame::Operand(0), format!("this is {key}"))
            .help(
                "write an `i64[]`: a literal seed, a parameter or a counter kept in a variable",
            ));
    }
    for name in ["stream", "lane"] {
        if u32::try_from(cx.attrs.int(name)).is_err() {
            return Err(InferError::new(
                "E0205",
                format!("`{name}` of `{}` must be from 0 to {}", cx.op, u32::MAX),
            )
            .at(Blame::Attr(name), format!("this is {}", cx.attrs.int(name))));
        }
    }
    if let Some(dtype) = cx.attrs.dtype("dtype")
        && !dtype.is_float()
    {
        return Err(InferError::new("E0202", format!("`{}` makes floats", cx.op))
            .at(Blame::Attr("dtype"), format!("this is {dtype}"))
            .help("use `random_bits` for integers"));
    }
    super::sizes::no_negative_size(cx, "shape")
}

/// Calls `f` with a function from word number to word, for evaluation.
pub fn words(cx: &EvalCx<'_>) -> Result<impl Fn(u64) -> u32 + use<>, String> {
    let key = match &cx.operands[0].data {
        crate::eval::Data::Int(a) => a.iter().next().copied().unwrap_or(0),
        _ => return Err("expected an integer key".into()),
    };
    let (stream, lane) = (cx.attrs.int("stream") as u32, cx.attrs.int("lane") as u32);
    Ok(move |i: u64| {
        let at = i / 4;
        let counter = [at as u32, (at >> 32) as u32, stream, lane];
        block(counter, [key as u32, (key >> 32) as u32])[(i % 4) as usize]
    })
}

/// The element number of `at`, row-major.
pub fn linear(k: &mut dyn Pull, at: &[Ix]) -> Reg {
    let shape = k.result_type().shape;
    let mut ix = Ix::constant(0);
    for (axis, at) in at.iter().enumerate() {
        ix = ix.plus(&at.scale(&Dim::product(&shape[axis + 1..])));
    }
    k.index(&ix)
}

/// Kernel code for the block with the number in `at`: four `i64` registers
/// with values below 2^32.
pub fn lower_block(k: &mut dyn Pull, at: Reg) -> [Reg; 4] {
    let lane = k.attrs().int("lane");
    lower_block_of(k, at, lane)
}

/// [`lower_block`] of another lane than the op's attribute.
pub fn lower_block_of(k: &mut dyn Pull, at: Reg, lane: i64) -> [Reg; 4] {
    // 32-bit words live in 64-bit registers, where their products fit.
    let key = k.operand(0, &[]);
    let int = |k: &mut dyn Pull, v: i64| k.constant(Scalar::I64(v));
    let (mask, half) = (int(k, u32::MAX as i64), int(k, 32));
    let split = |k: &mut dyn Pull, x: Reg| {
        [k.op(ScalarOp::And, &[x, mask]), k.op(ScalarOp::ShrLogic, &[x, half])]
    };
    let [c0, c1] = split(k, at);
    let mut key = split(k, key);
    let attrs: &Attrs = k.attrs();
    let stream = attrs.int("stream");
    let mut c = [c0, c1, int(k, stream), int(k, lane)];
    let multipliers = MULTIPLIERS.map(|m| k.constant(Scalar::I64(m as i64)));
    let weyl = WEYL.map(|w| k.constant(Scalar::I64(w as i64)));
    for round in 0..ROUNDS {
        let p0 = k.op(ScalarOp::Mul, &[multipliers[0], c[0]]);
        let p1 = k.op(ScalarOp::Mul, &[multipliers[1], c[2]]);
        let ([lo0, hi0], [lo1, hi1]) = (split(k, p0), split(k, p1));
        let mut mix = |a, b, c| {
            let ab = k.op(ScalarOp::Xor, &[a, b]);
            k.op(ScalarOp::Xor, &[ab, c])
        };
        c = [mix(hi1, c[1], key[0]), lo1, mix(hi0, c[3], key[1]), lo0];
        if round + 1 < ROUNDS {
            for i in 0..2 {
                let sum = k.op(ScalarOp::Add, &[key[i], weyl[i]]);
                key[i] = k.op(ScalarOp::And, &[sum, mask]);
            }
        }
    }
    c
}

/// Kernel code for the word with the number in `i`.
pub fn lower_word(k: &mut dyn Pull, i: Reg) -> Reg {
    let mut int = |v| k.constant(Scalar::I64(v));
    let (one, two, zero) = (int(1), int(2), int(0));
    let at = k.op(ScalarOp::ShrLogic, &[i, two]);
    let words = lower_block(k, at);
    let mut bit = |mask| {
        let masked = k.op(ScalarOp::And, &[i, mask]);
        k.op(ScalarOp::Eq, &[masked, zero])
    };
    let (even, low) = (bit(one), bit(two));
    let mut pick = |cond, a, b| k.op(ScalarOp::Select, &[cond, a, b]);
    let (first, second) = (pick(even, words[0], words[1]), pick(even, words[2], words[3]));
    pick(low, first, second)
}

/// A float in [0, 1) from the top `bits` of a register that holds `of` bits.
pub fn lower_fraction(k: &mut dyn Pull, word: Reg, of: u32, bits: u32, to: ScalarType) -> Reg {
    let shift = k.constant(Scalar::I64((of - bits) as i64));
    let top = k.op(ScalarOp::ShrLogic, &[word, shift]);
    let whole = k.convert(top, to);
    let scale = k.constant(Scalar::of(to, 1.0 / (1u64 << bits) as f64));
    k.op(ScalarOp::Mul, &[whole, scale])
}

#[cfg(test)]
mod tests {
    use super::block;

    #[test]
    fn known_answers() {
        // Random123's `kat_vectors`, philox4x32 with 10 rounds.
        assert_eq!(block([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        let ones = u32::MAX;
        assert_eq!(block([ones; 4], [ones; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            block([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }
}
