//! Matrix products.
//!
//! | case | way |
//! |---|---|
//! | f32, f64 | [`driver`] over [`kernel`]s for the CPU at hand |
//! | one row or one column | streaming kernels, at the speed of memory |
//! | weights that stay from call to call | kept packed, see [`prepack`] |
//! | f16, bf16 | as f32; converted while packing, rounded once per element |
//! | integers, bool | [`simple`] |
//!
//! Work is cut into rectangles of the result; `k` is never cut between threads,
//! so results do not depend on their number. Nor do they depend on the instruction
//! set, if it has fused multiply-adds: the order of every sum is fixed by the sizes
//! (docs/numerics.md says how).

#[cfg(target_arch = "aarch64")]
#[path = "neon.rs"]
pub mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86.rs"]
pub mod arch;
pub mod driver;
pub mod gather;
pub mod kernel;
pub mod pack;
pub mod peak;
pub mod planes;
pub mod portable;
pub mod prepack;
pub mod simple;
pub mod taps;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub mod arch {
    //! No vector set of its own.
    use super::kernel::Kernels;
    use super::portable;

    pub fn all_f32() -> Vec<&'static Kernels<f32>> {
        vec![&portable::F32]
    }

    pub fn all_f64() -> Vec<&'static Kernels<f64>> {
        vec![&portable::F64]
    }
}

use crate::half::{bf16, f16};
use crate::pool::{MAX_PARTS, Pool};
use driver::{Rect, left_as_is, rectangle};
use kernel::{Kernels, Real};
use pack::{Operand, Strided};
use prepack::{Layout, Stays, Wholes};
use std::cell::RefCell;
use tfc_abi::DType;

/// Called with `[row0, row1) x [col0, col1)` of the result when that block is
/// final. Rows count through all matrices of a batch.
pub type BlockFn<'a> = &'a (dyn Fn(usize, usize, usize, usize) + Sync);

/// `c[i] = op(a[i]) · op(b[i])` for every matrix of a batch; see
/// [`tfc_abi::plan::MatMul`].
#[derive(Clone, Copy, Debug)]
pub struct MatMulArgs<'a> {
    pub dtype: DType,
    pub a: *const u8,
    pub b: *const u8,
    pub c: *mut u8,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub a_stride: usize,
    pub b_stride: usize,
    pub trans_a: bool,
    pub trans_b: bool,
    /// Where `b`, if it stays the same between calls, may be kept packed.
    pub b_stays: Option<Stays<'a>>,
}

// SAFETY: the operands are read only, and parts of the result are disjoint.
unsafe impl Sync for MatMulArgs<'_> {}

impl MatMulArgs<'_> {
    /// The left matrix number `i` of a batch.
    fn left<E>(&self, i: usize) -> Strided<E> {
        let (lane, step) = if self.trans_a { (1, self.m) } else { (self.k, 1) };
        Strided { start: self.a.cast::<E>().wrapping_add(i * self.a_stride), lane, step }
    }

    /// The right one.
    fn right<E>(&self, i: usize) -> Strided<E> {
        let (lane, step) = if self.trans_b { (self.k, 1) } else { (1, self.n) };
        Strided { start: self.b.cast::<E>().wrapping_add(i * self.b_stride), lane, step }
    }
}

/// # Safety
/// The pointers are aligned and valid for the sizes given; `c` overlaps neither
/// `a` nor `b`.
pub unsafe fn matmul(pool: &Pool, args: &MatMulArgs<'_>, finished: Option<BlockFn<'_>>) {
    // SAFETY: the caller's promise.
    unsafe {
        match args.dtype {
            DType::F32 => real(f32::kernels(), pool, args, finished),
            DType::F64 => real(f64::kernels(), pool, args, finished),
            DType::F16 => half_precision::<f16>(pool, args, finished),
            DType::BF16 => half_precision::<bf16>(pool, args, finished),
            DType::I8 => simple::matmul::<i8>(pool, args, finished),
            DType::U8 => simple::matmul::<u8>(pool, args, finished),
            DType::I32 => simple::matmul::<i32>(pool, args, finished),
            DType::I64 => simple::matmul::<i64>(pool, args, finished),
            DType::Bool => simple::matmul::<simple::Truth>(pool, args, finished),
        }
    }
}

/// Multiply-adds a core does in a nanosecond, roughly.
const MADDS_PER_NS: u64 = 24;
/// Elements streamed from memory in a nanosecond, roughly.
const STREAMED_PER_NS: u64 = 4;

/// A part of a region that is cut finer than the pool has threads should be worth
/// this many nanoseconds.
const FINE_PART_NS: i64 = 150_000;

/// Parts worth making of work that takes `ns`: one for each thread, or a few if
/// the work is long, so that a thread that is held up holds up little. Every thread
/// gets as many as the others: with seven parts for two, one would wait for an
/// eighth of the time.
pub(crate) fn parts_for(pool: &Pool, ns: i64) -> usize {
    let threads = pool.parts_for(usize::MAX, ns);
    if threads == 1 {
        return 1;
    }
    let parts = usize::try_from(ns / FINE_PART_NS).unwrap_or(usize::MAX);
    parts.clamp(threads, 4 * threads).next_multiple_of(threads)
}

/// How a batch of `batch` results, each `m x n`, is cut: parts per matrix along
/// rows and along columns.
pub(crate) struct Grid {
    batch: usize,
    m: (usize, usize, usize),
    n: (usize, usize, usize),
}

impl Grid {
    /// About `parts` rectangles, with bounds on multiples of the tile.
    pub(crate) fn new(parts: usize, batch: usize, m: (usize, usize), n: (usize, usize)) -> Grid {
        // A matrix of a batch is the natural part; within one, cut the longer
        // side, so that less is packed twice.
        Grid::cut(parts, batch, m, n, n.0 >= m.0)
    }

    /// The same, with columns cut before rows or the other way round.
    pub(crate) fn cut(
        parts: usize,
        batch: usize,
        (m, mr): (usize, usize),
        (n, nr): (usize, usize),
        columns: bool,
    ) -> Grid {
        let each = parts.div_ceil(batch.max(1));
        let (tiles_m, tiles_n) = (m.div_ceil(mr), n.div_ceil(nr));
        let (pm, pn) = if columns {
            let pn = each.min(tiles_n.div_ceil(2)).max(1);
            ((each / pn).clamp(1, tiles_m.max(1)), pn)
        } else {
            let pm = each.min(tiles_m.div_ceil(2)).max(1);
            (pm, (each / pm).clamp(1, tiles_n.max(1)))
        };
        Grid { batch, m: (m, mr, pm), n: (n, nr, pn) }
    }

    pub(crate) fn parts(&self) -> usize {
        self.batch * self.m.2 * self.n.2
    }

    /// Runs `task(matrix, rows, columns)` for every rectangle, on the pool.
    pub(crate) fn run(
        &self,
        pool: &Pool,
        task: &(dyn Fn(usize, (usize, usize), (usize, usize)) + Sync),
    ) {
        let bounds = |(size, tile, parts): (usize, usize, usize), p: usize| {
            let tiles = size.div_ceil(tile);
            let at = |p: usize| (tiles * p / parts * tile).min(size);
            (at(p), at(p + 1))
        };
        let total = self.parts();
        let one = |part: usize| {
            let (matrix, rest) = (part / (self.m.2 * self.n.2), part % (self.m.2 * self.n.2));
            let (rows, columns) =
                (bounds(self.m, rest / self.n.2), bounds(self.n, rest % self.n.2));
            if rows.0 < rows.1 && columns.0 < columns.1 {
                task(matrix, rows, columns);
            }
        };
        // More parts than a region can have go in runs.
        let runs = total.min(MAX_PARTS);
        pool.run(runs, &|t| (total * t / runs..total * (t + 1) / runs).for_each(one));
    }
}

/// # Safety
/// As [`matmul`], for elements `T`; the CPU can run `kernels`.
pub unsafe fn real<T: Real>(
    kernels: &Kernels<T>,
    pool: &Pool,
    g: &MatMulArgs<'_>,
    finished: Option<BlockFn<'_>>,
) where
    Strided<T>: Operand<T>,
{
    if g.batch == 0 || g.m == 0 || g.n == 0 {
        return;
    }
    if g.m == 1 || g.n == 1 || (g.m <= 3 && g.trans_b && !g.trans_a) {
        // SAFETY: passed on.
        unsafe { vectors(kernels, pool, g, finished) };
        return;
    }
    let madds =
        [g.n, g.k.max(1), g.batch].iter().fold(g.m as u64, |w, s| w.saturating_mul(*s as u64));
    let ns = i64::try_from(madds / MADDS_PER_NS).unwrap_or(i64::MAX);
    let grid = Grid::new(parts_for(pool, ns), g.batch, (g.m, kernels.mr()), (g.n, kernels.nr));
    let layout = Layout { count: 1, lanes: g.n, k: g.k, width: kernels.nr, turned: g.trans_b };
    let one = g.batch == 1 || g.b_stride == 0;
    // SAFETY: the operand exists, and is the same whenever the caller says so.
    let kept = unsafe {
        let stays = g.b_stays.filter(|_| one);
        Wholes::only_kept(pool, kernels, layout, stays, &|_, with| with(&g.right::<T>(0)))
    };
    let kept = kept.as_ref().and_then(|k| k.get(0));
    // Parts beside each other read the same rows of the left operand: it is packed
    // for all of them.
    let as_is = !g.trans_a && left_as_is(g.m / grid.m.2, g.n / grid.n.2);
    let beside = grid.n.2 > 1 && g.batch == 1 && !as_is;
    // SAFETY: the operand exists.
    let left = beside.then(|| unsafe {
        let size = |_| (g.m, g.k);
        Wholes::new(pool, kernels, 1, size, kernels.mr(), &|_, with| with(&g.left::<T>(0)))
    });
    let left = left.as_ref().and_then(|l| l.get(0));
    grid.run(pool, &|matrix, rows, columns| {
        let row_offset = matrix * g.m;
        let shifted = |r0: usize, r1: usize, c0: usize, c1: usize| {
            if let Some(f) = finished {
                f(row_offset + r0, row_offset + r1, c0, c1);
            }
        };
        let c = (row_offset + rows.0) * g.n + columns.0;
        let (own, right) = (g.left::<T>(matrix), g.right::<T>(matrix));
        let rect = Rect {
            rows,
            columns,
            k: g.k,
            a: left.as_ref().map_or(&own as &dyn Operand<T>, |l| l),
            b: kept.as_ref().map_or(&right as &dyn Operand<T>, |k| k),
            c: g.c.cast::<T>().wrapping_add(c),
            c_row: g.n,
            add: false,
            finished: finished.is_some().then_some(&shifted),
        };
        // SAFETY: rectangles are disjoint and inside the result.
        unsafe { rectangle(kernels, &rect) };
    });
}

/// A few rows times a matrix, row by row; a product with one column is the same
/// thing transposed.
///
/// # Safety
/// As [`real`].
unsafe fn vectors<T: Real>(
    kernels: &Kernels<T>,
    pool: &Pool,
    g: &MatMulArgs<'_>,
    finished: Option<BlockFn<'_>>,
) {
    let column = g.n == 1 && g.m > 1;
    // The vector is contiguous either way; the matrix is `length` by `k`.
    let (rows, length) = if column { (1, g.m) } else { (g.m, g.n) };
    let k_contiguous = if column { !g.trans_a } else { g.trans_b };
    let elements = (length as u64).saturating_mul(g.k.max(1) as u64);
    let total = elements.saturating_mul((g.batch * rows) as u64);
    let ns = i64::try_from(total / STREAMED_PER_NS).unwrap_or(i64::MAX);
    let grid = Grid::new(parts_for(pool, ns), g.batch, (1, 1), (length, 64));
    grid.run(pool, &|matrix, _, (lo, hi)| {
        let (a, b) = (
            g.a.cast::<T>().wrapping_add(matrix * g.a_stride),
            g.b.cast::<T>().wrapping_add(matrix * g.b_stride),
        );
        let (x, w) = if column { (b, a) } else { (a, b) };
        for row in 0..rows {
            let at = if column { matrix * g.m } else { (matrix * g.m + row) * g.n };
            // SAFETY: vector, matrix and result are as large as the sizes say;
            // parts of the result are disjoint.
            unsafe {
                let y = g.c.cast::<T>().add(at + lo);
                let x = x.add(row * g.k);
                if k_contiguous {
                    let w = w.add(lo * g.k);
                    (kernels.dot)(g.k, hi - lo, x, w, g.k as isize, y);
                } else {
                    y.write_bytes(0, hi - lo);
                    (kernels.axpy)(g.k, hi - lo, x, w.add(lo), length as isize, y);
                }
            }
        }
        if let Some(finished) = finished {
            if column {
                finished(matrix * g.m + lo, matrix * g.m + hi, 0, 1);
            } else {
                finished(matrix * g.m, matrix * g.m + rows, lo, hi);
            }
        }
    });
}

/// A half-precision type.
pub(crate) trait Half: Copy + Send + Sync + 'static {
    fn from_f32(v: f32) -> Self;
}

macro_rules! half {
    ($($t:ty),*) => {$(
        impl Half for $t {
            fn from_f32(v: f32) -> $t {
                <$t>::from_f32(v)
            }
        }
    )*};
}

half!(f16, bf16);

/// Rows and columns of a half-precision result summed in f32 at a time.
const HALF_BLOCK: (usize, usize) = (240, 512);

thread_local! {
    static SUMS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One rectangle of a result of `E`s: summed as f32 in blocks, rounded once.
///
/// # Safety
/// As [`rectangle`]; `c` is element `(rows.0, columns.0)`.
pub(crate) unsafe fn half_rectangle<E: Half>(
    kernels: &Kernels<f32>,
    rect: &Rect<'_, f32>,
    c: *mut E,
    finished: Option<&dyn Fn(usize, usize, usize, usize)>,
) {
    // Whole panels of an operand that comes packed.
    let height = rect.a.packed().map_or(HALF_BLOCK.0, |p| HALF_BLOCK.0 / p.width * p.width);
    SUMS.with_borrow_mut(|sums| {
        sums.resize(HALF_BLOCK.0 * HALF_BLOCK.1, 0.0);
        for r0 in (rect.rows.0..rect.rows.1).step_by(height) {
            let r1 = (r0 + height).min(rect.rows.1);
            for c0 in (rect.columns.0..rect.columns.1).step_by(HALF_BLOCK.1) {
                let c1 = (c0 + HALF_BLOCK.1).min(rect.columns.1);
                let width = c1 - c0;
                // SAFETY: the block is inside the rectangle.
                let at = |r: usize| unsafe {
                    c.add((r - rect.rows.0) * rect.c_row + c0 - rect.columns.0)
                };
                let block = Rect {
                    rows: (r0, r1),
                    columns: (c0, c1),
                    c: sums.as_mut_ptr(),
                    c_row: width,
                    finished: None,
                    ..*rect
                };
                // SAFETY: the sums have room for the block.
                unsafe { rectangle(kernels, &block) };
                for r in r0..r1 {
                    let row = &sums[(r - r0) * width..][..width];
                    for (j, s) in row.iter().enumerate() {
                        // SAFETY: as above.
                        unsafe { *at(r).add(j) = E::from_f32(*s) };
                    }
                }
                if let Some(f) = finished {
                    f(r0, r1, c0, c1);
                }
            }
        }
    });
}

/// # Safety
/// As [`matmul`], for elements `E`.
unsafe fn half_precision<E: Half>(pool: &Pool, g: &MatMulArgs<'_>, finished: Option<BlockFn<'_>>)
where
    Strided<E>: Operand<f32>,
{
    if g.batch == 0 || g.m == 0 || g.n == 0 {
        return;
    }
    let kernels = f32::kernels();
    let madds =
        [g.n, g.k.max(1), g.batch].iter().fold(g.m as u64, |w, s| w.saturating_mul(*s as u64));
    let ns = i64::try_from(madds / MADDS_PER_NS).unwrap_or(i64::MAX);
    let grid = Grid::new(parts_for(pool, ns), g.batch, (g.m, kernels.mr()), (g.n, kernels.nr));
    grid.run(pool, &|matrix, rows, columns| {
        let row_offset = matrix * g.m;
        let shifted = |r0: usize, r1: usize, c0: usize, c1: usize| {
            if let Some(f) = finished {
                f(row_offset + r0, row_offset + r1, c0, c1);
            }
        };
        let rect = Rect {
            rows,
            columns,
            k: g.k,
            a: &g.left::<E>(matrix),
            b: &g.right::<E>(matrix),
            c: std::ptr::null_mut(),
            c_row: g.n,
            add: false,
            finished: None,
        };
        let c = g.c.cast::<E>().wrapping_add((row_offset + rows.0) * g.n + columns.0);
        // SAFETY: rectangles are disjoint and inside the result.
        unsafe { half_rectangle(kernels, &rect, c, Some(&shifted)) };
    });
}
