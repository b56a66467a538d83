//! Matrix instructions: a warp multiplies two small matrices.
//!
//! `mma.sync.aligned.m16n8k16.row.col` of f16 or bf16 and `m16n8k8` of tf32, all
//! with f32 sums. Which element of a matrix is in which lane's register is as the
//! PTX manual draws it. Hardware leaves the order of the sums open; here each
//! product is added in turn, in f32.

use crate::alu::Ty;
use half::{bf16, f16};

/// What the factors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    Half(Ty),
    /// f32 of which the low 13 bits are ignored.
    Tf32,
}

impl Factor {
    pub fn k(self) -> usize {
        match self {
            Factor::Half(_) => 16,
            Factor::Tf32 => 8,
        }
    }
}

/// Row and column of A in register `reg` of `lane`; `half` is which half of it.
fn place_a(factor: Factor, lane: usize, reg: usize, half: usize) -> (usize, usize) {
    let (group, member) = (lane / 4, lane % 4);
    let row = group + 8 * (reg % 2);
    match factor {
        Factor::Half(_) => (row, member * 2 + half + 8 * (reg / 2)),
        Factor::Tf32 => (row, member + 4 * (reg / 2)),
    }
}

fn place_b(factor: Factor, lane: usize, reg: usize, half: usize) -> (usize, usize) {
    let (group, member) = (lane / 4, lane % 4);
    match factor {
        Factor::Half(_) => (member * 2 + half + 8 * reg, group),
        Factor::Tf32 => (member + 4 * reg, group),
    }
}

fn place_c(lane: usize, reg: usize) -> (usize, usize) {
    (lane / 4 + 8 * (reg / 2), (lane % 4) * 2 + reg % 2)
}

fn element(factor: Factor, bits: u64, half: usize) -> f32 {
    let part = (bits >> (16 * half)) as u16;
    match factor {
        Factor::Half(Ty::BF16) => bf16::from_bits(part).to_f32(),
        Factor::Half(_) => f16::from_bits(part).to_f32(),
        Factor::Tf32 => f32::from_bits(bits as u32 & !0x1fff),
    }
}

/// `a · b + c`, registers of all lanes in, registers of all lanes out.
pub(crate) fn run(
    factor: Factor,
    a: &[[u64; 32]],
    b: &[[u64; 32]],
    c: &[[u64; 32]],
) -> [[u64; 32]; 4] {
    let k = factor.k();
    let halves = if factor == Factor::Tf32 { 1 } else { 2 };
    let (mut ma, mut mb) = ([[0f32; 16]; 16], [[0f32; 8]; 16]);
    for lane in 0..32 {
        for half in 0..halves {
            for (reg, values) in a.iter().enumerate() {
                let (row, col) = place_a(factor, lane, reg, half);
                ma[row][col] = element(factor, values[lane], half);
            }
            for (reg, values) in b.iter().enumerate() {
                let (row, col) = place_b(factor, lane, reg, half);
                mb[row][col] = element(factor, values[lane], half);
            }
        }
    }
    let mut out = [[0; 32]; 4];
    for lane in 0..32 {
        for reg in 0..4 {
            let (row, col) = place_c(lane, reg);
            let mut sum = f32::from_bits(c[reg][lane] as u32);
            for i in 0..k {
                sum += ma[row][i] * mb[i][col];
            }
            out[reg][lane] = u64::from(sum.to_bits());
        }
    }
    out
}
