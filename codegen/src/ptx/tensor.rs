//! The product of matrices of f16 or bf16 on tensor cores, summed in f32; and of f32 rounded
//! to TF32, where that was asked for.
//!
//! Tiles go from global to shared memory without passing registers, 16 bytes at a time
//! (`cp.async`), into two buffers in turn: while one is computed with, the other is filled.
//! They lie there as in global memory, along rows or along the sum, and `ldmatrix` gives a
//! warp their elements where the matrix instruction wants them, turned where it has to.
//! Which element is in which register is given by the instructions: see the PTX manual,
//! "Matrix Fragments for mma.m16n8k16" and "ldmatrix". Four elements of f32 are eight halves
//! to `ldmatrix`; only turning them it cannot do.
//!
//! Factors that are not aligned for that are copied element by element, to the same places.

use super::contract::{Finish, Gemm, begin, least};
use super::emit::{self, Emit};
use super::func::{Class, V};
use super::memory::{list, memory_type};
use super::sides::{Row, Which};
use super::stage::neighbours;
use super::tile::{Place, grid, place_sizes};
use super::{AMPERE, Entry, Launch};
use tfc_kernel::{DType, Dim, Kernel, Scalar};

/// Bytes of a row in a tile, in the part that an instruction takes, and in a copy.
const ROW: u32 = 64;
const STEP: u32 = 32;
const BYTES: u32 = 16;

/// The size of elements.
fn size(gemm: &Gemm) -> u32 {
    gemm.dtype.size() as u32
}

/// Terms of the sum at a time.
fn terms(gemm: &Gemm) -> u32 {
    ROW / size(gemm)
}

/// Elements of a copy.
fn chunk(gemm: &Gemm) -> u32 {
    BYTES / size(gemm)
}

/// The tile of a block, and the warps that share it.
#[derive(Clone, Copy)]
struct Tile {
    m: u32,
    n: u32,
    warps: [u32; 2],
}

impl Tile {
    fn choose(gemm: &Gemm) -> Tile {
        match [&gemm.m, &gemm.n].map(|d| least(d) >= 128) {
            [true, true] => Tile { m: 128, n: 128, warps: [2, 4] },
            [false, true] => Tile { m: 64, n: 128, warps: [2, 2] },
            [true, false] => Tile { m: 128, n: 64, warps: [2, 2] },
            [false, false] => Tile { m: 64, n: 64, warps: [2, 2] },
        }
    }

    fn threads(self) -> u32 {
        32 * self.warps[0] * self.warps[1]
    }

    /// Rows and columns of a warp.
    fn of_warp(self) -> [u32; 2] {
        [self.m / self.warps[0], self.n / self.warps[1]]
    }
}

/// Whether both factors have neighbours side by side in memory.
pub(super) fn is_plain(gemm: &Gemm) -> bool {
    neighbours(&gemm.a, &gemm.m, &gemm.k).is_some()
        && neighbours(&gemm.b, &gemm.n, &gemm.k).is_some()
}

/// The way of a factor's tiles to shared memory.
struct Copied {
    which: Which,
    along_k: bool,
    /// Whether elements have to be turned by loading them one by one.
    single: bool,
    /// Where its tile starts in a buffer, and bytes from line to line.
    base: u32,
    pitch: u32,
    slots: Vec<Slot>,
    /// Where the first slot goes in the first buffer; bytes to the next slot's place.
    place: V,
    apart: u32,
    /// Whether slots can be copied at once, if that is known at run time only.
    aligned: Option<V>,
}

/// What a thread copies with one instruction.
struct Slot {
    at: V,
    step: V,
    row: V,
    /// From the first term of the tile.
    term: V,
}

impl Emit<'_> {
    fn copied(&mut self, gemm: &Gemm, which: Which, place: &Place, t: Tile, base: u32) -> Copied {
        let (side, extent, rows, first, count) = match which {
            Which::A => (&gemm.a, &gemm.m, t.m, place.row, place.m),
            Which::B => (&gemm.b, &gemm.n, t.n, place.col, place.n),
        };
        let along_k = side.along_k();
        let single = !along_k && gemm.dtype == DType::F32;
        let (size, terms, chunk) = (size(gemm), terms(gemm), chunk(gemm));
        let sizes = neighbours(side, extent, &gemm.k).into_iter().flatten();
        let whole = |d: &Dim| d.div_exact(&Dim::constant(chunk.into())).is_some();
        let unknown: Vec<Dim> = sizes.filter(|d| !whole(d)).collect();
        let aligned = unknown.iter().fold(None, |all, d| {
            let d = self.dim32(d);
            Some(all.map_or(d, |all| self.f.op(Class::B32, "or.b32", &[&all, &d])))
        });
        let aligned = aligned.map(|all: V| {
            let rest = self.f.op(Class::B32, "and.b32", &[&all, &(chunk - 1)]);
            self.f.op(Class::Pred, "setp.eq.u32", &[&rest, &0])
        });
        // A line of the tile is a row, or a term of the sum.
        let (lines, length) = if along_k { (rows, terms) } else { (terms, rows) };
        // Between lines there are bytes that keep what is loaded together in different
        // banks: the eight lines of a matrix, or elements of four lines.
        let (across, pitch) = (length / chunk, size * length + if single { 32 } else { 16 });
        let at_once = t.threads() / across;
        let tid = self.f.special("%tid.x");
        let in_line = self.f.op(Class::B32, "and.b32", &[&tid, &(across - 1)]);
        let in_line = self.f.op(Class::B32, "shl.b32", &[&in_line, &chunk.trailing_zeros()]);
        let line = self.f.op(Class::B32, "shr.u32", &[&tid, &across.trailing_zeros()]);
        let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
        let to = self.f.op(Class::B32, "mad.lo.u32", &[&line, &pitch, &shared]);
        let to = self.f.op(Class::B32, "mad.lo.u32", &[&in_line, &size, &to]);
        let mut slots = vec![];
        for i in 0..lines / at_once {
            let line = self.f.op(Class::B32, "add.u32", &[&line, &(i * at_once)]);
            let (row, term) = if along_k { (line, in_line) } else { (in_line, line) };
            let row = self.f.op(Class::B32, "add.u32", &[&first, &row]);
            // What is copied for rows past the end goes to sums that nobody stores.
            let last = if along_k { 1 } else { chunk };
            let last = self.f.op(Class::B32, "sub.u32", &[&count, &last]);
            let moved = self.f.op(Class::B32, "min.u32", &[&row, &last]);
            let there = match aligned.filter(|_| !along_k) {
                None => moved,
                Some(p) => self.f.op(Class::B32, "selp.b32", &[&moved, &row, &p]),
            };
            let k = self.f.op(Class::B32, "add.u32", &[&place.begin, &term]);
            let Row::Pointer { at, step } = self.row(gemm, which, place.batch, there, k, terms)
            else {
                unreachable!("a plain factor has pointers")
            };
            slots.push(Slot { at, step, row, term });
        }
        let (place, apart) = (to, at_once * pitch);
        Copied { which, along_k, single, base, pitch, slots, place, apart, aligned }
    }

    /// Starts the copies of a tile's slots to the buffer at `offset`.
    fn start(&mut self, gemm: &Gemm, c: &Copied, [first, end, whole]: [V; 3], offset: V) {
        let to = self.f.op(Class::B32, "add.u32", &[&c.place, &offset]);
        // All terms of a tile are there, or none.
        let even = gemm.k.div_exact(&Dim::constant(terms(gemm).into())).is_some();
        for (i, slot) in (0..).zip(&c.slots) {
            let place = format!("[{to}+{}], [{}], {BYTES}", c.base + i * c.apart, slot.at);
            if even {
                self.f.line(format_args!("@{whole} cp.async.cg.shared.global {place}"));
                continue;
            }
            let k = self.f.op(Class::B32, "add.u32", &[&first, &slot.term]);
            let there = self.f.op(Class::Pred, "setp.lt.u32", &[&k, &end]);
            let size = self.f.op(Class::B32, "selp.b32", &[&BYTES, &0, &there]);
            self.f.line(format_args!("cp.async.cg.shared.global {place}, {size}"));
        }
    }

    /// Copies a tile element by element.
    fn element_by_element(&mut self, gemm: &Gemm, c: &Copied, [first, end]: [V; 2], offset: V) {
        let (ty, class) = memory_type(gemm.dtype);
        let size = size(gemm);
        let zero = if class == Class::F32 { "0f00000000" } else { "0" };
        let rows = self.dim32(if c.which == Which::A { &gemm.m } else { &gemm.n });
        let to = self.f.op(Class::B32, "add.u32", &[&c.place, &offset]);
        for (i, slot) in (0..).zip(&c.slots) {
            let k = self.f.op(Class::B32, "add.u32", &[&first, &slot.term]);
            for e in 0..chunk(gemm) {
                let mut moved = |v: V, moves: bool| match moves && e > 0 {
                    true => self.f.op(Class::B32, "add.u32", &[&v, &e]),
                    false => v,
                };
                let (k, row) = (moved(k, c.along_k), moved(slot.row, !c.along_k));
                let ok = self.f.op(Class::Pred, "setp.lt.u32", &[&k, &end]);
                let ok = self.f.op(Class::Pred, "setp.lt.and.u32", &[&row, &rows, &ok]);
                let v = self.f.op(class, &format!("mov.{}", class.ty()), &[&zero]);
                self.f.line(format_args!("@{ok} ld.global.{ty} {v}, [{}+{}]", slot.at, size * e));
                let place = c.base + i * c.apart + size * e;
                self.f.line(format_args!("st.shared.{ty} [{to}+{place}], {v}"));
            }
        }
    }

    /// What the instruction wants of 16 rows, in four registers: `at` is what
    /// [`Emit::lines`] gave, `turns` the bits it was given.
    fn matrices(&mut self, c: &Copied, at: V, plus: u32, [rows, _]: [u32; 2]) -> Vec<V> {
        if c.single {
            let far =
                |bit: u32| 8 * 4 * u32::from(bit == rows) + 4 * c.pitch * u32::from(bit != rows);
            let places = (0..4).map(|n| plus + far(0) * (n & 1) + far(1) * (n >> 1));
            let places: Vec<u32> = places.collect();
            let load = |e: &mut Self, plus: &u32| {
                let v = e.f.op(Class::F32, "ld.shared.f32", &[&format!("[{at}+{plus}]")]);
                e.f.op(Class::B32, "cvt.rna.tf32.f32", &[&v])
            };
            return places.iter().map(|plus| load(self, plus)).collect();
        }
        let regs: Vec<V> = (0..4).map(|_| self.f.reg(Class::B32)).collect();
        let trans = if c.along_k { "" } else { ".trans" };
        let to = list(&regs);
        self.f.line(format_args!(
            "ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {to}, [{at}+{plus}]"
        ));
        regs
    }

    /// Registers of f32 as the instruction wants them.
    fn rounded(&mut self, regs: Vec<V>) -> Vec<V> {
        let round = |v: V| {
            let float = self.f.op(Class::F32, "mov.b32", &[&v]);
            self.f.op(Class::B32, "cvt.rna.tf32.f32", &[&float])
        };
        regs.into_iter().map(round).collect()
    }

    /// Where the line starts that a lane gives of the four matrices, in the first buffer.
    /// `first` is the warp's first row; of the number of a matrix one bit says that it is
    /// eight rows further, the other that it is 16 bytes further along the sum.
    fn lines(&mut self, c: &Copied, lane: V, first: V, [row_bit, term_bit]: [u32; 2]) -> V {
        let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
        if c.single {
            // The lane's own element of the first matrix.
            let row = self.f.op(Class::B32, "shr.u32", &[&lane, &2]);
            let row = self.f.op(Class::B32, "add.u32", &[&row, &first]);
            let term = self.f.op(Class::B32, "and.b32", &[&lane, &3]);
            let at = self.f.op(Class::B32, "mad.lo.u32", &[&term, &c.pitch, &shared]);
            return self.f.op(Class::B32, "mad.lo.u32", &[&row, &4, &at]);
        }
        let in_matrix = self.f.op(Class::B32, "and.b32", &[&lane, &7]);
        let mut eight = |bit: u32| {
            let v = self.f.op(Class::B32, "and.b32", &[&lane, &(8 << bit)]);
            if bit == 0 { v } else { self.f.op(Class::B32, "shr.u32", &[&v, &bit]) }
        };
        let (row, term) = (eight(row_bit), eight(term_bit));
        let row = self.f.op(Class::B32, "add.u32", &[&row, &first]);
        let (line, in_line) = if c.along_k { (row, term) } else { (term, row) };
        let line = self.f.op(Class::B32, "add.u32", &[&line, &in_matrix]);
        let at = self.f.op(Class::B32, "mad.lo.u32", &[&line, &c.pitch, &shared]);
        self.f.op(Class::B32, "mad.lo.u32", &[&in_line, &2, &at])
    }
}

pub(super) fn entry(kernel: &Kernel, gemm: &Gemm, finish: &Finish, name: &str) -> (Entry, String) {
    let cut = &finish.cut;
    let t = Tile::choose(gemm);
    let (size, terms) = (size(gemm), terms(gemm));
    let mut e = begin(kernel, gemm, &place_sizes(gemm, t.m, t.n, terms, cut));
    e.f.need(AMPERE);
    e.f.resident(512 / t.threads());
    let place = e.place(gemm, t.m, t.n, terms, cut);
    let a = e.copied(gemm, Which::A, &place, t, 0);
    let bytes = |c: &Copied, rows: u32| c.pitch * if c.along_k { rows } else { terms };
    let b = e.copied(gemm, Which::B, &place, t, bytes(&a, t.m));
    let buffer = bytes(&a, t.m) + bytes(&b, t.n);
    e.f.shared(2 * buffer);
    let [wm, wn] = t.of_warp();
    let tid = e.f.special("%tid.x");
    let lane = e.f.op(Class::B32, "and.b32", &[&tid, &31]);
    let warp = e.f.op(Class::B32, "shr.u32", &[&tid, &5]);
    let warp_m = e.f.op(Class::B32, "and.b32", &[&warp, &(t.warps[0] - 1)]);
    let warp_m = e.f.op(Class::B32, "mul.lo.u32", &[&warp_m, &wm]);
    let warp_n = e.f.op(Class::B32, "shr.u32", &[&warp, &t.warps[0].trailing_zeros()]);
    let warp_n = e.f.op(Class::B32, "mul.lo.u32", &[&warp_n, &wn]);
    let (bits_a, bits_b) = ([0, 1], [1, 0]);
    let at_a = e.lines(&a, lane, warp_m, bits_a);
    let at_b = e.lines(&b, lane, warp_n, bits_b);
    let zero = e.f.constant(Scalar::F32(0));
    // sums[row of products][column of products][register]
    let sums: Vec<Vec<Vec<V>>> = (0..wm / 16)
        .map(|_| (0..wn / 8).map(|_| (0..4).map(|_| e.f.copy(zero)).collect()).collect())
        .collect();
    let kind = match gemm.dtype {
        DType::F32 => "m16n8k8.row.col.f32.tf32.tf32.f32",
        DType::BF16 => "m16n8k16.row.col.f32.bf16.bf16.f32",
        _ => "m16n8k16.row.col.f32.f16.f16.f32",
    };
    let first = e.f.copy(place.begin);
    // The buffer that is filled; the other one is computed with.
    let fill = e.f.op(Class::B32, "mov.b32", &[&0]);
    let [again, started, computed, done] = [(); 4].map(|()| e.f.label());
    // What is seldom done stands behind the loop.
    let seldom: Option<(V, String)> = match (a.aligned, b.aligned) {
        (None, None) => None,
        (Some(p), None) | (None, Some(p)) => Some((p, e.f.label())),
        (Some(p), Some(q)) => Some((e.f.op(Class::Pred, "and.pred", &[&p, &q]), e.f.label())),
    };
    e.f.place(&again);
    let last = e.f.op(Class::B32, "add.u32", &[&first, &terms]);
    let whole = e.f.op(Class::Pred, "setp.le.u32", &[&last, &place.end]);
    let other = e.f.op(Class::B32, "sub.u32", &[&buffer, &fill]);
    let tile = [first, place.end, whole];
    if let Some((aligned, label)) = &seldom {
        e.f.line(format_args!("@!{aligned} bra.uni {label}"));
    }
    e.start(gemm, &a, tile, fill);
    e.start(gemm, &b, tile, fill);
    e.f.place(&started);
    e.f.line(format_args!("cp.async.commit_group"));
    for slot in a.slots.iter().chain(&b.slots) {
        e.f.op_to(slot.at, "add.s64", &[&slot.at, &slot.step]);
    }
    // The first round only loads.
    let none = e.f.op(Class::Pred, "setp.eq.u32", &[&first, &place.begin]);
    e.f.line(format_args!("@{none} bra.uni {computed}"));
    let [from_a, from_b] = [at_a, at_b].map(|at| e.f.op(Class::B32, "add.u32", &[&at, &other]));
    for k in 0..ROW / STEP {
        // Bytes to the matrices of 16 rows.
        let at = |c: &Copied, rows: u32| match c.along_k {
            true => c.base + 16 * rows * c.pitch + STEP * k,
            false => c.base + STEP / size * k * c.pitch + 16 * size * rows,
        };
        let load = |e: &mut Emit, c: &Copied, from: V, rows: u32, bits: [u32; 2]| {
            let regs = e.matrices(c, from, at(c, rows), bits);
            if gemm.dtype == DType::F32 && !c.single { e.rounded(regs) } else { regs }
        };
        let fa: Vec<_> = (0..wm / 16).map(|i| load(&mut e, &a, from_a, i, bits_a)).collect();
        let fb: Vec<_> = (0..wn / 16).flat_map(|j| load(&mut e, &b, from_b, j, bits_b)).collect();
        for (row, fa) in sums.iter().zip(&fa) {
            for (sum, fb) in row.iter().zip(fb.chunks(2)) {
                let (sum, fa, fb) = (list(sum), list(fa), list(fb));
                e.f.line(format_args!("mma.sync.aligned.{kind} {sum}, {fa}, {fb}, {sum}"));
            }
        }
    }
    e.f.place(&computed);
    e.f.line(format_args!("cp.async.wait_group 0"));
    e.f.line(format_args!("bar.sync 0"));
    let more = e.f.op(Class::Pred, "setp.lt.u32", &[&first, &place.end]);
    e.f.mov(first, last);
    e.f.mov(fill, other);
    e.f.line(format_args!("@{more} bra.uni {again}"));
    if let Some((_, label)) = &seldom {
        e.f.line(format_args!("bra.uni {done}"));
        e.f.place(label);
        for c in [&a, &b] {
            let [single, next] = [(); 2].map(|()| e.f.label());
            if let Some(aligned) = c.aligned {
                e.f.line(format_args!("@!{aligned} bra.uni {single}"));
            }
            e.start(gemm, c, tile, fill);
            if c.aligned.is_some() {
                e.f.line(format_args!("bra.uni {next}"));
                e.f.place(&single);
                e.element_by_element(gemm, c, [first, place.end], fill);
                e.f.place(&next);
            }
        }
        e.f.line(format_args!("bra.uni {started}"));
    }
    e.f.place(&done);
    let group = e.f.op(Class::B32, "shr.u32", &[&lane, &2]);
    let member = e.f.op(Class::B32, "and.b32", &[&lane, &3]);
    let row = e.f.op(Class::B32, "add.u32", &[&warp_m, &group]);
    let col = e.f.op(Class::B32, "mad.lo.u32", &[&member, &2, &warp_n]);
    // Columns that neighbour: both are there, or none.
    let at_once = if gemm.n.div_exact(&Dim::constant(4)).is_some() { 2 } else { 1 };
    e.finish_all(&place, &mut |e, place| {
        for (i, products) in sums.iter().enumerate() {
            for (j, sum) in products.iter().enumerate() {
                for (r, vs) in sum.chunks(at_once).enumerate() {
                    let (at_row, at_col) = (r * at_once / 2 * 8, r * at_once % 2);
                    let row = e.f.op(Class::B32, "add.u32", &[&row, &(16 * i + at_row)]);
                    let col = e.f.op(Class::B32, "add.u32", &[&col, &(8 * j + at_col)]);
                    e.finish_sums(gemm, finish, place, row, col, vs.to_vec());
                }
            }
        }
    });
    let how = format!(
        "tiles of {} x {} on tensor cores, {wm} x {wn} to a warp, {terms} terms at a time through \
         two buffers",
        t.m, t.n
    );
    let grid = grid(gemm, t.m, t.n, cut);
    let launch = Launch { entry: name.into(), grid, block: t.threads(), shared: 0 };
    (e.f.finish(name, &emit::params(kernel), launch), how)
}
