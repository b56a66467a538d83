//! The product of f16 and bf16 on tensor cores, summed in f32; and of f32 rounded to TF32,
//! where that was asked for.
//!
//! A block of four warps has a tile of 64 by 64; each warp a quarter, as two by four
//! products of 16 by 8, 16 terms of the sum at a time. Which element is in which
//! register is given by the instruction: see the PTX manual, "Matrix Fragments for
//! mma.m16n8k16".

use super::contract::{Finish, Gemm, begin};
use super::emit::{self, Emit};
use super::func::{Class, V};
use super::memory::list;
use super::sides::Which;
use super::stage::Layout;
use super::tile::{grid, place_sizes};
use super::{AMPERE, Entry, Launch};
use tfc_kernel::{DType, Kernel, Scalar};

const TILE: u32 = 64;
const TERMS: u32 = 16;
const THREADS: u32 = 128;
/// Bytes that an instruction takes of a row.
const WIDE: u32 = 32;
/// Bytes from row to row of a tile beyond those there are, so that the threads of a warp
/// read different banks.
const GAP: u32 = 16;

pub(super) fn entry(kernel: &Kernel, gemm: &Gemm, finish: &Finish, name: &str) -> (Entry, String) {
    let cut = &finish.cut;
    let size = gemm.dtype.size() as u32;
    // Of a row, in bytes.
    let pitch = TERMS * size + GAP;
    let mut e = begin(kernel, gemm, &place_sizes(gemm, TILE, TILE, TERMS, cut));
    e.f.need(AMPERE);
    let place = e.place(gemm, TILE, TILE, TERMS, cut);
    let layout = |base: u32| Layout {
        rows: TILE,
        terms: TERMS,
        by_row: pitch / size,
        by_term: 1,
        dtype: gemm.dtype,
        base,
        threads: THREADS,
    };
    let a = layout(0);
    let b = layout(a.bytes());
    let bytes = a.bytes() + b.bytes();
    e.f.shared(2 * bytes);
    let marks = if gemm.padded() { e.f.shared(b.bytes() / size * 4) } else { 0 };
    let stages = [
        e.stage(gemm, Which::A, place.batch, a, place.row, place.m, place.begin),
        e.stage(gemm, Which::B, place.batch, b, place.col, place.n, place.begin),
    ];
    let tid = e.f.special("%tid.x");
    let lane = e.f.op(Class::B32, "and.b32", &[&tid, &31]);
    let warp = e.f.op(Class::B32, "shr.u32", &[&tid, &5]);
    let group = e.f.op(Class::B32, "shr.u32", &[&lane, &2]);
    let member = e.f.op(Class::B32, "and.b32", &[&lane, &3]);
    let warp_row = e.f.op(Class::B32, "and.b32", &[&warp, &1]);
    let warp_row = e.f.op(Class::B32, "mad.lo.u32", &[&warp_row, &32, &group]);
    let warp_col = e.f.op(Class::B32, "shr.u32", &[&warp, &1]);
    let warp_col = e.f.op(Class::B32, "mul.lo.u32", &[&warp_col, &32]);
    let b_row = e.f.op(Class::B32, "add.u32", &[&warp_col, &group]);
    let shared = e.f.op(Class::B32, "mov.u32", &[&"shared"]);
    // Four bytes hold two terms, or one of TF32.
    let at = e.f.op(Class::B32, "mad.lo.u32", &[&member, &4, &shared]);
    let at_a = e.f.op(Class::B32, "mad.lo.u32", &[&warp_row, &pitch, &at]);
    let at_b = e.f.op(Class::B32, "mad.lo.u32", &[&b_row, &pitch, &at]);
    let zero = e.f.constant(Scalar::F32(0));
    // sums[row of products][column of products][register]
    let sums: Vec<Vec<Vec<V>>> = (0..2)
        .map(|_| (0..4).map(|_| (0..4).map(|_| e.f.copy(zero)).collect()).collect())
        .collect();
    let kind = match gemm.dtype {
        DType::F32 => "m16n8k8.row.col.f32.tf32.tf32.f32",
        DType::BF16 => "m16n8k16.row.col.f32.bf16.bf16.f32",
        _ => "m16n8k16.row.col.f32.f16.f16.f32",
    };
    let mut step = |e: &mut Emit, offset: V| {
        let at_a = e.f.op(Class::B32, "add.u32", &[&at_a, &offset]);
        let at_b = e.f.op(Class::B32, "add.u32", &[&at_b, &offset]);
        let word = |e: &mut Emit, at: V, first: u32| {
            let place = format!("[{at}+{first}]");
            if gemm.dtype != DType::F32 {
                return e.f.op(Class::B32, "ld.shared.b32", &[&place]);
            }
            let v = e.f.op(Class::F32, "ld.shared.f32", &[&place]);
            e.f.op(Class::B32, "cvt.rna.tf32.f32", &[&v])
        };
        for first in (0..TERMS * size).step_by(WIDE as usize) {
            let mut fa = vec![];
            for i in 0..2 {
                let place = |r: u32| first + (16 * i + 8 * (r % 2)) * pitch + 16 * (r / 2);
                let words = (0..4).map(|r| word(e, at_a, a.base + place(r)));
                fa.push(words.collect::<Vec<V>>());
            }
            let mut fb = vec![];
            for j in 0..4 {
                let place = |r: u32| first + 8 * j * pitch + 16 * r;
                fb.push((0..2).map(|r| word(e, at_b, b.base + place(r))).collect::<Vec<V>>());
            }
            for (row, fa) in sums.iter().zip(&fa) {
                for (sum, fb) in row.iter().zip(&fb) {
                    let (sum, fa, fb) = (list(sum), list(fa), list(fb));
                    e.f.line(format_args!("mma.sync.aligned.{kind} {sum}, {fa}, {fb}, {sum}"));
                }
            }
        }
    };
    let pair = e.f.op(Class::B32, "mad.lo.u32", &[&member, &2, &warp_col]);
    // The same sums, one term and one element after the other.
    let mut careful = |e: &mut Emit, offset: V| {
        let first = |e: &mut Emit, row: V, pitch: u32| {
            e.f.op(Class::B32, "mad.lo.u32", &[&row, &pitch, &shared])
        };
        let [at_a, at_b] = [warp_row, pair].map(|row| first(e, row, pitch));
        let at_a = e.f.op(Class::B32, "add.u32", &[&at_a, &offset]);
        let at_b = e.f.op(Class::B32, "add.u32", &[&at_b, &offset]);
        let at_mark = first(e, pair, pitch / size * 4);
        let left = e.f.op(Class::B32, "mov.b32", &[&TERMS]);
        let again = e.f.label();
        e.f.place(&again);
        let mut element = |at: V, first: u32| {
            e.load_from("shared", gemm.dtype, &[format!("[{at}+{first}]")], 1)[0]
        };
        // Rows by product and register, columns likewise.
        let va: Vec<V> = (0..4).map(|i| element(at_a, a.base + 8 * i * pitch)).collect();
        let columns = (0..8).map(|j| 8 * (j / 2) + j % 2);
        let vb: Vec<V> = columns.clone().map(|c| element(at_b, b.base + c * pitch)).collect();
        for (j, (col, vb)) in columns.zip(&vb).enumerate() {
            let there = format!("[{at_mark}+{}]", marks + col * (pitch / size * 4));
            let there = e.f.op(Class::B32, "ld.shared.b32", &[&there]);
            let there = e.f.op(Class::Pred, "setp.ne.u32", &[&there, &0]);
            for (i, va) in va.iter().enumerate() {
                let sum = sums[i / 2][j / 2][2 * (i % 2) + j % 2];
                e.f.line(format_args!("@{there} fma.rn.f32 {sum}, {va}, {vb}, {sum}"));
            }
        }
        for (at, by) in [(at_a, size), (at_b, size), (at_mark, 4)] {
            e.f.op_to(at, "add.u32", &[&at, &by]);
        }
        e.f.op_to(left, "sub.u32", &[&left, &1]);
        let more = e.f.op(Class::Pred, "setp.ne.u32", &[&left, &0]);
        e.f.line(format_args!("@{more} bra {again}"));
    };
    e.over_tiles(gemm, &place, &stages, [bytes, marks, TERMS], &mut step, &mut careful);
    e.finish_all(&place, &mut |e, place| {
        for (i, row) in sums.iter().enumerate() {
            for (j, sum) in row.iter().enumerate() {
                for (r, v) in sum.iter().enumerate() {
                    let at_row = 16 * i + 8 * (r / 2);
                    let at_col = 8 * j + r % 2;
                    let row = e.f.op(Class::B32, "add.u32", &[&warp_row, &at_row]);
                    let col = e.f.op(Class::B32, "add.u32", &[&pair, &at_col]);
                    e.finish_sums(gemm, finish, place, row, col, vec![*v]);
                }
            }
        }
    });
    let how = format!("tiles of {TILE} x {TILE} on tensor cores, {TERMS} terms at a time");
    let launch =
        Launch { entry: name.into(), grid: grid(gemm, TILE, TILE, cut), block: THREADS, shared: 0 };
    (e.f.finish(name, &emit::params(kernel), launch), how)
}
