//! The tiled product: each block has a tile of the result, each thread a small block
//! of it in registers. Tiles of the factors go through shared memory, two at a time:
//! while one is computed with, the next is on its way.

use super::contract::{Finish, Gemm, SPLITS, Side, begin, least};
use super::emit::{self, Emit};
use super::func::{Class, V};
use super::sides::{Batch, Which, walked};
use super::stage::{Layout, Next, Stage};
use super::{Entry, Launch};
use tfc_kernel::{DType, Dim, Kernel, ScalarType};

/// Sizes of tiles: the block's, the terms of the sum at a time, the thread's.
#[derive(Clone, Copy)]
struct Tile {
    m: u32,
    n: u32,
    k: u32,
    tm: u32,
    tn: u32,
}

fn choose(gemm: &Gemm, eight_bytes: bool) -> Tile {
    let few = |d: &Dim| d.as_const().is_some_and(|n| n <= 16);
    // Where a pixel is takes registers, which sums cannot have then.
    let image = matches!(gemm.b, Side::Image(..));
    if few(&gemm.n) {
        Tile { m: 64, n: 16, k: 16, tm: 4, tn: 1 }
    } else if few(&gemm.m) {
        Tile { m: 16, n: 64, k: 16, tm: 1, tn: 4 }
    } else if eight_bytes {
        Tile { m: 64, n: 64, k: 16, tm: 4, tn: 4 }
    } else if least(&gemm.m) >= 128 && least(&gemm.n) >= 128 && !image {
        Tile { m: 128, n: 128, k: 8, tm: 8, tn: 8 }
    } else if least(&gemm.n) >= 128 && !image {
        Tile { m: 64, n: 128, k: 8, tm: 8, tn: 8 }
    } else if least(&gemm.m) >= 128 {
        Tile { m: 128, n: 64, k: 16, tm: 8, tn: 4 }
    } else {
        Tile { m: 64, n: 64, k: 16, tm: 8, tn: 4 }
    }
}

impl Tile {
    fn threads(self) -> u32 {
        (self.m / self.tm) * (self.n / self.tn)
    }

    /// Blocks that a multiprocessor must have registers for: 512 threads with 64 sums
    /// each, 640 with 32 of a product. The assembler would take more to have loads further ahead.
    fn resident(self, gemm: &Gemm) -> u32 {
        match self.tm * self.tn {
            64 => 512 / self.threads(),
            32 if walked(gemm, Which::B).is_some() => 512 / self.threads(),
            32 if matches!(gemm.b, Side::Image(..)) => 0,
            32 => 640 / self.threads(),
            _ => 0,
        }
    }
}

/// The type of sums, which are wider than the elements they are made of.
pub(super) fn sum_type(dtype: DType) -> DType {
    match ScalarType::of(dtype) {
        ScalarType::F64 => DType::F64,
        ScalarType::I64 => DType::I64,
        ScalarType::I32 => DType::I32,
        ScalarType::F32 | ScalarType::Bool => DType::F32,
    }
}

/// Where a block is in the product.
pub(super) struct Place {
    pub batch: Batch,
    /// First row and column of its tile.
    pub row: V,
    pub col: V,
    /// The part of the sum, when it is cut.
    pub part: Option<V>,
    /// Whether it is not cut after all, if only the dims say so.
    pub whole: Option<V>,
    /// Where its part of the sum starts and ends.
    pub begin: V,
    pub end: V,
    pub m: V,
    pub n: V,
}

/// Parts that sums have.
fn parts(cut: &Dim) -> Dim {
    Dim::constant(1) + cut.clone() * Dim::constant(SPLITS - 1)
}

/// Blocks of a launch.
pub(super) fn grid(gemm: &Gemm, tile_m: u32, tile_n: u32, cut: &Dim) -> [Dim; 3] {
    let tiles = |d: &Dim, by: u32| d.ceil_div(i64::from(by));
    let all = tiles(&gemm.m, tile_m) * tiles(&gemm.n, tile_n) * gemm.batch.clone() * parts(cut);
    [all, Dim::constant(1), Dim::constant(1)]
}

/// Terms of a part of a sum.
fn chunk(gemm: &Gemm, terms: u32, cut: &Dim) -> Dim {
    let rounded = |by: i64| {
        gemm.k.ceil_div(by * i64::from(terms))
            * Dim::constant(i64::from(terms))
            * match by {
                1 => Dim::constant(1) - cut.clone(),
                _ => cut.clone(),
            }
    };
    rounded(1) + rounded(SPLITS)
}

/// Sizes that [`Emit::place`] needs.
pub(super) fn place_sizes(
    gemm: &Gemm,
    tile_m: u32,
    tile_n: u32,
    terms: u32,
    cut: &Dim,
) -> Vec<Dim> {
    let tiles = |d: &Dim, by: u32| d.ceil_div(i64::from(by));
    let mut sizes = vec![tiles(&gemm.m, tile_m), tiles(&gemm.n, tile_n)];
    if !cut.is_zero() {
        sizes.extend([chunk(gemm, terms, cut), parts(cut)]);
    }
    sizes
}

impl Emit<'_> {
    pub(super) fn place(
        &mut self,
        gemm: &Gemm,
        tile_m: u32,
        tile_n: u32,
        terms: u32,
        cut: &Dim,
    ) -> Place {
        let tiles = |d: &Dim, by: u32| d.ceil_div(i64::from(by));
        let mut rest = self.f.special("%ctaid.x");
        let mut next = |e: &mut Self, by: &dyn std::fmt::Display| {
            let q = e.f.op(Class::B32, "div.u32", &[&rest, by]);
            let back = e.f.op(Class::B32, "mul.lo.u32", &[&q, by]);
            let r = e.f.op(Class::B32, "sub.u32", &[&rest, &back]);
            rest = q;
            r
        };
        let (wide, high) =
            (self.dim32(&tiles(&gemm.n, tile_n)), self.dim32(&tiles(&gemm.m, tile_m)));
        let col = next(self, &wide);
        let row = next(self, &high);
        let count = (!cut.is_zero()).then(|| self.dim32(&parts(cut)));
        let part = count.map(|count| next(self, &count));
        let batch = self.batch(gemm, rest);
        let row = self.f.op(Class::B32, "mul.lo.u32", &[&row, &tile_m]);
        let col = self.f.op(Class::B32, "mul.lo.u32", &[&col, &tile_n]);
        let k = self.dim32(&gemm.k);
        let (begin, end) = match part {
            None => (self.f.op(Class::B32, "mov.b32", &[&0]), k),
            Some(part) => {
                let chunk = self.dim32(&chunk(gemm, terms, cut));
                let begin = self.f.op(Class::B32, "mul.lo.u32", &[&part, &chunk]);
                let end = self.f.op(Class::B32, "add.u32", &[&begin, &chunk]);
                (begin, self.f.op(Class::B32, "min.u32", &[&end, &k]))
            }
        };
        let (m, n) = (self.dim32(&gemm.m), self.dim32(&gemm.n));
        let whole = count.filter(|_| !cut.is_one());
        let whole = whole.map(|count| self.f.op(Class::Pred, "setp.eq.u32", &[&count, &1]));
        Place { batch, row, col, part, whole, begin, end, m, n }
    }

    /// Goes over the sum, tile by tile. `step` computes with the tiles that start at
    /// the offset it is given.
    ///
    /// Where there is padding, `careful` does the same with those elements of the second
    /// factor alone that a tile of words at `marks` names: it is called for tiles of which
    /// the first factor holds a NaN or an infinity. That is the same for all threads.
    pub(super) fn over_tiles(
        &mut self,
        gemm: &Gemm,
        place: &Place,
        stages: &[Stage; 2],
        [bytes, marks, terms]: [u32; 3],
        step: &mut dyn FnMut(&mut Self, V),
        careful: &mut dyn FnMut(&mut Self, V),
    ) {
        // The first round only loads.
        let offset = self.f.op(Class::B32, "mov.b32", &[&bytes]);
        let first = self.f.copy(place.begin);
        let special = gemm.padded().then(|| self.f.op(Class::Pred, "setp.eq.u32", &[&0, &0]));
        let aligned = self.aligned(stages);
        let [again, computed, done, seldom] = [(); 4].map(|()| self.f.label());
        self.f.place(&again);
        let last = self.f.op(Class::B32, "add.u32", &[&first, &terms]);
        let whole = self.f.op(Class::Pred, "setp.le.u32", &[&last, &place.end]);
        let next = Next { first, end: place.end, whole };
        let detour = self.fetch(gemm, place.batch, stages, next, aligned);
        // What is seldom done stands behind the loop.
        match special {
            Some(special) => self.f.line(format_args!("@{special} bra.uni {seldom}")),
            None => self.unless_first(first, place, &computed),
        }
        step(self, offset);
        self.f.place(&computed);
        self.f.op_to(offset, "sub.u32", &[&bytes, &offset]);
        self.hand_over(gemm, stages, offset, special);
        let more = self.f.op(Class::Pred, "setp.lt.u32", &[&first, &place.end]);
        self.f.mov(first, last);
        self.f.line(format_args!("@{more} bra.uni {again}"));
        if special.is_some() || detour.is_some() {
            self.f.line(format_args!("bra.uni {done}"));
        }
        if let Some(detour) = detour {
            self.detour(gemm, stages, next, &detour);
        }
        if special.is_some() {
            self.f.place(&seldom);
            self.unless_first(first, place, &computed);
            self.mark(gemm, place.batch, &stages[1], [first, place.end], marks);
            self.f.line(format_args!("bar.sync 0"));
            careful(self, offset);
            self.f.line(format_args!("bra.uni {computed}"));
        }
        self.f.place(&done);
    }

    /// In the first round there is nothing to compute with: on to `computed`.
    fn unless_first(&mut self, first: V, place: &Place, computed: &str) {
        let none = self.f.op(Class::Pred, "setp.eq.u32", &[&first, &place.begin]);
        self.f.line(format_args!("@{none} bra.uni {computed}"));
    }

    /// Stores what was loaded, and waits for all threads to have done so. `special`
    /// becomes whether any of them has a NaN or an infinity of the first factor.
    fn hand_over(&mut self, gemm: &Gemm, stages: &[Stage; 2], offset: V, special: Option<V>) {
        for stage in stages {
            self.stash(gemm, stage, offset);
        }
        let Some(special) = special else {
            return self.f.line(format_args!("bar.sync 0"));
        };
        // Zero times each of them, added up, is NaN then and zero otherwise.
        let class = Class::of(ScalarType::of(gemm.dtype));
        let zero = self.f.constant(tfc_kernel::Scalar::of(ScalarType::of(gemm.dtype), 0.0));
        let mut sum = zero;
        for v in stages[0].values() {
            let v = self.widen(gemm.dtype, *v);
            sum = self.f.op(class, &format!("fma.rn.{}", class.ty()), &[&v, &zero, &sum]);
        }
        let nan = self.f.op(Class::Pred, &format!("setp.nan.{}", class.ty()), &[&sum, &sum]);
        self.f.line(format_args!("bar.red.or.pred {special}, 0, {nan}"));
    }

    /// Does `each` for all sums of a thread, once to keep parts and once for whole sums, where
    /// the dims say which. It is given the place as it is then.
    pub(super) fn finish_all(&mut self, place: &Place, each: &mut dyn FnMut(&mut Self, &Place)) {
        let Some(whole) = place.whole else { return each(self, place) };
        let [direct, done] = [(); 2].map(|()| self.f.label());
        let dims = self.dims.clone();
        self.f.line(format_args!("@{whole} bra.uni {direct}"));
        each(self, place);
        self.f.line(format_args!("bra.uni {done}"));
        self.f.place(&direct);
        self.dims = dims;
        each(self, &Place { part: None, ..*place });
        self.f.place(&done);
    }

    /// Finishes neighbouring sums of one row, where they are in the product. `row` and
    /// `col` are those in the tile.
    pub(super) fn finish_sums(
        &mut self,
        gemm: &Gemm,
        finish: &Finish,
        place: &Place,
        row: V,
        col: V,
        sums: Vec<V>,
    ) {
        let skip = self.f.label();
        let row = self.f.op(Class::B32, "add.u32", &[&place.row, &row]);
        let col = self.f.op(Class::B32, "add.u32", &[&place.col, &col]);
        let out = self.f.op(Class::Pred, "setp.ge.u32", &[&row, &place.m]);
        let out = self.f.op(Class::Pred, "setp.ge.or.u32", &[&col, &place.n, &out]);
        self.f.line(format_args!("@{out} bra {skip}"));
        let (m, n) = (self.dim(&gemm.m), self.dim(&gemm.n));
        let row = self.f.op(Class::B64, "cvt.u64.u32", &[&row]);
        let col = self.f.op(Class::B64, "cvt.u64.u32", &[&col]);
        let number = self.f.op(Class::B64, "cvt.u64.u32", &[&place.batch.number]);
        match (place.part, finish.workspace) {
            (Some(part), Some(workspace)) => {
                let batch = self.dim(&gemm.batch);
                let part = self.f.op(Class::B64, "cvt.u64.u32", &[&part]);
                let number = self.f.op(Class::B64, "mad.lo.s64", &[&part, &batch, &number]);
                let row = self.f.op(Class::B64, "mad.lo.s64", &[&number, &m, &row]);
                let dtype = self.kernel.bufs[workspace as usize].dtype;
                let at = self.f.op(Class::B64, "mad.lo.s64", &[&row, &n, &col]);
                for (i, sum) in sums.iter().enumerate() {
                    let at = super::memory::At { reg: Some(at), plus: i as i64 };
                    let to = self.address(workspace, at);
                    self.store_to("global", dtype, &[to], &[*sum]);
                }
            }
            _ => {
                let row = self.f.op(Class::B64, "mad.lo.s64", &[&number, &m, &row]);
                self.finish_element(finish, row, col, &n, sums);
            }
        }
        self.f.place(&skip);
    }
}

pub(super) fn entry(kernel: &Kernel, gemm: &Gemm, finish: &Finish, name: &str) -> (Entry, String) {
    let dtype = sum_type(gemm.dtype);
    let size = dtype.size() as u32;
    let t = choose(gemm, size == 8);
    let cut = &finish.cut;
    let mut e = begin(kernel, gemm, &place_sizes(gemm, t.m, t.n, t.k, cut));
    e.f.resident(t.resident(gemm));
    let place = e.place(gemm, t.m, t.n, t.k, cut);
    // Four more elements to a line of the tile: fewer threads meet in a bank.
    let layout = |rows: u32, base: u32| Layout {
        rows,
        terms: t.k,
        by_row: 1,
        by_term: rows + 4,
        dtype,
        base,
        threads: t.threads(),
    };
    let a = layout(t.m, 0);
    let b = layout(t.n, a.bytes());
    let bytes = a.bytes() + b.bytes();
    e.f.shared(2 * bytes);
    let marks = if gemm.padded() { e.f.shared(b.bytes() / size * 4) } else { 0 };
    let stages = [
        e.stage(gemm, Which::A, place.batch, a, place.row, place.m, place.begin),
        e.stage(gemm, Which::B, place.batch, b, place.col, place.n, place.begin),
    ];
    // The thread's rows and columns: groups of four, apart by a quarter of the tile.
    let tid = e.f.special("%tid.x");
    let across = t.n / t.tn;
    let x = e.f.op(Class::B32, "and.b32", &[&tid, &(across - 1)]);
    let y = e.f.op(Class::B32, "shr.u32", &[&tid, &across.trailing_zeros()]);
    let (gm, gn) = (t.tm.min(4), t.tn.min(4));
    let x = e.f.op(Class::B32, "mul.lo.u32", &[&x, &gn]);
    let y = e.f.op(Class::B32, "mul.lo.u32", &[&y, &gm]);
    let shared = e.f.op(Class::B32, "mov.u32", &[&"shared"]);
    let at_a = e.f.op(Class::B32, "mad.lo.u32", &[&y, &size, &shared]);
    let at_b = e.f.op(Class::B32, "mad.lo.u32", &[&x, &size, &shared]);
    let ty = ScalarType::of(dtype);
    let zero = e.f.constant(tfc_kernel::Scalar::of(ty, 0.0));
    let sums: Vec<Vec<V>> =
        (0..t.tm).map(|_| (0..t.tn).map(|_| e.f.copy(zero)).collect()).collect();
    let fma = match dtype {
        DType::F64 => "fma.rn.f64",
        DType::I64 => "mad.lo.s64",
        DType::I32 => "mad.lo.s32",
        _ => "fma.rn.f32",
    };
    // `n` values in groups, from line `k` of a tile.
    let line = |e: &mut Emit, at: V, l: Layout, k: u32, n: u32| -> Vec<V> {
        let group = n.min(4);
        let apart = l.rows * group / n;
        (0..n / group)
            .flat_map(|g| {
                let first = l.base + (k * l.by_term + g * apart) * size;
                let places: Vec<String> = match group * size {
                    32 => vec![format!("[{at}+{first}]"), format!("[{at}+{}]", first + 16)],
                    _ => vec![format!("[{at}+{first}]")],
                };
                e.load_from("shared", dtype, &places, group as usize)
            })
            .collect()
    };
    let mut step = |e: &mut Emit, offset: V| {
        let at_a = e.f.op(Class::B32, "add.u32", &[&at_a, &offset]);
        let at_b = e.f.op(Class::B32, "add.u32", &[&at_b, &offset]);
        for k in 0..t.k {
            let va = line(e, at_a, a, k, t.tm);
            let vb = line(e, at_b, b, k, t.tn);
            for (row, va) in sums.iter().zip(&va) {
                for (sum, vb) in row.iter().zip(&vb) {
                    e.f.op_to(*sum, fma, &[va, vb, sum]);
                }
            }
        }
    };
    let mut careful = |e: &mut Emit, offset: V| {
        let at_a = e.f.op(Class::B32, "add.u32", &[&at_a, &offset]);
        let at_b = e.f.op(Class::B32, "add.u32", &[&at_b, &offset]);
        let at_mark = e.f.op(Class::B32, "mad.lo.u32", &[&x, &4, &shared]);
        let left = e.f.op(Class::B32, "mov.b32", &[&t.k]);
        let again = e.f.label();
        e.f.place(&again);
        let va = line(e, at_a, a, 0, t.tm);
        let group = t.tn.min(4);
        for j in 0..t.tn as usize {
            let col = j as u32 % group + j as u32 / group * (b.rows * group / t.tn);
            let vb = format!("[{at_b}+{}]", b.base + col * size);
            let vb = e.load_from("shared", dtype, &[vb], 1)[0];
            let there = format!("[{at_mark}+{}]", marks + 4 * col);
            let there = e.f.op(Class::B32, "ld.shared.b32", &[&there]);
            let there = e.f.op(Class::Pred, "setp.ne.u32", &[&there, &0]);
            for (row, va) in sums.iter().zip(&va) {
                let sum = &row[j];
                e.f.line(format_args!("@{there} {fma} {sum}, {va}, {vb}, {sum}"));
            }
        }
        e.f.op_to(at_a, "add.u32", &[&at_a, &(a.by_term * size)]);
        e.f.op_to(at_b, "add.u32", &[&at_b, &(b.by_term * size)]);
        e.f.op_to(at_mark, "add.u32", &[&at_mark, &(b.by_term * 4)]);
        e.f.op_to(left, "sub.u32", &[&left, &1]);
        let more = e.f.op(Class::Pred, "setp.ne.u32", &[&left, &0]);
        e.f.line(format_args!("@{more} bra {again}"));
    };
    e.over_tiles(gemm, &place, &stages, [bytes, marks, t.k], &mut step, &mut careful);
    // From what the loop has in registers anyway.
    let [x, y] = [at_b, at_a].map(|at| {
        let bytes = e.f.op(Class::B32, "sub.u32", &[&at, &shared]);
        e.f.op(Class::B32, "shr.u32", &[&bytes, &size.trailing_zeros()])
    });
    let four = gemm.n.div_exact(&Dim::constant(4)).is_some() && gn == 4;
    e.finish_all(&place, &mut |e, place| {
        for i in 0..t.tm {
            let off = i % gm + i / gm * (t.m * gm / t.tm);
            let row = e.f.op(Class::B32, "add.u32", &[&y, &off]);
            for g in 0..t.tn / gn {
                let apart = g * (t.n * gn / t.tn);
                let row_sums = &sums[i as usize][(g * gn) as usize..((g + 1) * gn) as usize];
                if four {
                    let col = e.f.op(Class::B32, "add.u32", &[&x, &apart]);
                    e.finish_sums(gemm, finish, place, row, col, row_sums.to_vec());
                    continue;
                }
                for (j, sum) in row_sums.iter().enumerate() {
                    let col = e.f.op(Class::B32, "add.u32", &[&x, &(apart + j as u32)]);
                    e.finish_sums(gemm, finish, place, row, col, vec![*sum]);
                }
            }
        }
    });
    let how = format!(
        "tiles of {} x {}, {} x {} to a thread, {} terms at a time through two buffers",
        t.m, t.n, t.tm, t.tn, t.k
    );
    let grid = grid(gemm, t.m, t.n, cut);
    let launch = Launch { entry: name.into(), grid, block: t.threads(), shared: 0 };
    (e.f.finish(name, &emit::params(kernel), launch), how)
}
