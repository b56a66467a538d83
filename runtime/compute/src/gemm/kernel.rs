//! Micro-kernels: the inner loops of products, once per instruction set.
//!
//! A tile is `rows x nr` elements of the result, kept in registers while `k`
//! runs. The code is written once over [`Simd`]; each instruction set wraps it in
//! functions that enable its features, and [`Real::kernels`] picks the widest set
//! the CPU has, once. Packing is part of a set: it moves as many bytes as the
//! products read.
//!
//! Every element of a tile is a chain of multiply-adds in the order of `k`,
//! whatever the number of rows, so a result does not depend on how it was cut
//! into tiles.

use super::planes::Cover;
use std::sync::OnceLock;

/// An element with fast kernels.
pub trait Real:
    Copy
    + Default
    + PartialEq
    + Send
    + Sync
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::AddAssign
    + 'static
{
    fn kernels() -> &'static Kernels<Self>;
}

/// `c (+)= a · b` for a tile.
///
/// Arguments: `k`; `a` with its strides between rows and between steps of `k`;
/// `b` with its stride between steps of `k` (`nr` elements are read each step);
/// `c` with its stride between rows; whether to add to `c`; what will be needed soon,
/// of which a cache line is asked for in each step, and its stride between steps.
pub type TileFn<T> =
    unsafe fn(usize, *const T, isize, isize, *const T, isize, *mut T, isize, bool, *const T, isize);
/// A tile of an `a` that is read where it lies; see [`super::gather::gather`].
pub type GatherFn<T> =
    unsafe fn(&[usize], *const T, usize, *const T, usize, *mut T, usize, bool, *const T, usize);
/// `y[0..n] += sum of x[p * x_stride] * b[p * b_stride + 0..n]` for `p` in `0..k`.
pub type AxpyFn<T> = unsafe fn(usize, usize, *const T, *const T, isize, *mut T);
/// Dot products of `x` with `n` rows of `b`: `y[j] = x[0..k] · b[j * stride..]`.
pub type DotFn<T> = unsafe fn(usize, usize, *const T, *const T, isize, *mut T);
/// Panels of what lies lane beside lane; see [`super::pack::copy`].
pub type CopyFn<T> = unsafe fn(*const T, usize, usize, usize, usize, *mut T);
/// A panel of what lies step beside step; see [`super::pack::turn`].
pub type TurnFn<T> = unsafe fn(*const T, &[usize], usize, usize, bool, usize, *mut T);
/// A panel by whole vectors from anywhere; see [`super::pack::moves`].
pub type MovesFn<T> = unsafe fn(*const T, &[(usize, usize)], &[usize], usize, *mut T);
/// Weighted sums of shifted vectors; see [`super::taps::weighted`].
pub type WeightedFn<T> = unsafe fn(*const T, &[usize], *const T, usize, *mut T);
/// Weighted sums of a small plane; see [`super::planes::plane`].
pub type PlaneFn<T> = unsafe fn(*const T, &Cover, *const T, *mut T);
/// Dot products with shifted vectors; see [`super::taps::dots`].
pub type DotsFn<T> = unsafe fn(*const T, &[usize], *const T, [usize; 4], *mut T);
/// Every `s`-th element, side by side; see [`super::taps::spread`].
pub type SpreadFn<T> = unsafe fn(*const T, usize, usize, *mut T, usize);
/// Rows with zeros before and behind; see [`super::taps::lay`].
pub type LayFn<T> = unsafe fn(*const T, usize, usize, &Rows, *mut T);

/// Rows that are copied, and the zeros around them.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub count: usize,
    /// Elements from row to row where they come from.
    pub from: usize,
    /// Elements of a row where they go: `low` zeros, those copied, zeros.
    pub to: usize,
    pub low: usize,
}

pub struct Kernels<T: 'static> {
    pub name: &'static str,
    /// Tiles of 1, 2, .. rows, two vectors wide, of an `a` that lies row beside row.
    pub panel: &'static [TileFn<T>],
    /// The same, of an `a` that lies step beside step.
    pub rows: &'static [TileFn<T>],
    /// Tiles one vector wide, of any operands.
    pub narrow: &'static [TileFn<T>],
    /// Tiles of 1, 2, .. rows that are read where they lie, two vectors wide and one.
    pub gather: &'static [[GatherFn<T>; 2]],
    /// The same, of two runs of so many rows each.
    pub pairs: &'static [(usize, [GatherFn<T>; 2])],
    /// Columns of a tile.
    pub nr: usize,
    pub axpy: AxpyFn<T>,
    pub dot: DotFn<T>,
    pub copy: CopyFn<T>,
    pub turn: TurnFn<T>,
    pub moves: MovesFn<T>,
    pub weighted: WeightedFn<T>,
    /// None where it would be no faster.
    pub plane: Option<PlaneFn<T>>,
    pub dots: DotsFn<T>,
    pub spread: SpreadFn<T>,
    pub lay: LayFn<T>,
}

impl<T> Kernels<T> {
    /// Most rows of a tile.
    pub fn mr(&self) -> usize {
        self.panel.len()
    }

    /// Rows of a tile such that `rows` rows are as many tiles as need be, all of
    /// about one size: a last thin one would waste registers.
    pub fn even(&self, rows: usize) -> usize {
        rows.div_ceil(rows.div_ceil(self.mr()).max(1)).max(1)
    }
}

/// Largest `mr * nr` of any instruction set.
pub const MAX_TILE: usize = 12 * 32;
/// Most rows of a tile of any instruction set.
const MAX_ROWS: usize = 12;
/// Most lanes of a vector of any instruction set.
pub const MAX_LANES: usize = 16;

/// Bytes that come from memory together.
pub const CACHE_LINE: usize = 64;

/// Vectors of one instruction set. Methods are inlined into functions that
/// enable it.
pub trait Simd {
    type T: Real;
    type V: Copy;
    const LANES: usize;
    /// # Safety
    /// The CPU has the instruction set; here and below.
    unsafe fn splat(x: Self::T) -> Self::V;
    /// # Safety
    /// `p` is valid for `LANES` elements.
    unsafe fn load(p: *const Self::T) -> Self::V;
    /// # Safety
    /// `p` is valid for `LANES` elements.
    unsafe fn store(p: *mut Self::T, v: Self::V);
    /// `a * b + c`
    /// # Safety
    /// As [`Simd::splat`].
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// # Safety
    /// As [`Simd::splat`].
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// [`Simd::fma`] of single elements, rounded as it is.
    /// # Safety
    /// As [`Simd::splat`].
    unsafe fn fma_one(a: Self::T, b: Self::T, c: Self::T) -> Self::T;

    /// The first `n` elements at `p`, and zeros; only those `n` are touched.
    /// # Safety
    /// `p` is valid for `n` elements, `n <= LANES`.
    #[inline(always)]
    unsafe fn load_first(p: *const Self::T, n: usize) -> Self::V {
        let mut lanes = [Self::T::default(); MAX_LANES];
        // SAFETY: the caller's promise.
        unsafe {
            for (l, lane) in lanes.iter_mut().enumerate().take(n) {
                *lane = *p.add(l);
            }
            Self::load(lanes.as_ptr())
        }
    }

    /// Stores the first `n` elements.
    /// # Safety
    /// As [`Simd::load_first`].
    #[inline(always)]
    unsafe fn store_first(p: *mut Self::T, v: Self::V, n: usize) {
        let mut lanes = [Self::T::default(); MAX_LANES];
        // SAFETY: the caller's promise.
        unsafe {
            Self::store(lanes.as_mut_ptr(), v);
            for (l, lane) in lanes.iter().enumerate().take(n) {
                *p.add(l) = *lane;
            }
        }
    }

    /// Whether [`Simd::load_some`] is one instruction.
    const LOADS_SOME: bool = false;

    /// Those lanes at `p` whose bit is set in `which`, and zeros; only those are touched.
    /// # Safety
    /// `p` is valid for them.
    #[inline(always)]
    unsafe fn load_some(p: *const Self::T, which: u16) -> Self::V {
        let mut lanes = [Self::T::default(); MAX_LANES];
        // SAFETY: the caller's promise.
        unsafe {
            for (l, lane) in lanes.iter_mut().enumerate() {
                if which >> l & 1 == 1 {
                    *lane = *p.wrapping_add(l);
                }
            }
            Self::load(lanes.as_ptr())
        }
    }

    /// Stores those lanes whose bit is set in `which`; only those are touched.
    /// # Safety
    /// As [`Simd::load_some`].
    #[inline(always)]
    unsafe fn store_some(p: *mut Self::T, v: Self::V, which: u16) {
        let mut lanes = [Self::T::default(); MAX_LANES];
        // SAFETY: the caller's promise.
        unsafe {
            Self::store(lanes.as_mut_ptr(), v);
            for (l, lane) in lanes.iter().enumerate() {
                if which >> l & 1 == 1 {
                    *p.wrapping_add(l) = *lane;
                }
            }
        }
    }

    /// Every second lane of two vectors, from the first on.
    /// # Safety
    /// As [`Simd::splat`].
    #[inline(always)]
    unsafe fn evens(a: Self::V, b: Self::V) -> Self::V {
        let mut lanes = [Self::T::default(); 2 * MAX_LANES];
        // SAFETY: the caller's promise.
        unsafe {
            Self::store(lanes.as_mut_ptr(), a);
            Self::store(lanes.as_mut_ptr().add(Self::LANES), b);
            for l in 0..Self::LANES {
                lanes[l] = lanes[2 * l];
            }
            Self::load(lanes.as_ptr())
        }
    }

    /// Turns a block: `dst[s * width + l] = base[rows[l] + s]` for `s` below
    /// `steps` and `l` below `lanes`, both at most `LANES`.
    /// # Safety
    /// `rows` has `LANES` entries, at each of which `LANES` elements can be read;
    /// `dst` is valid for what is written.
    #[inline(always)]
    unsafe fn turn_block(
        base: *const Self::T,
        rows: *const usize,
        (steps, lanes): (usize, usize),
        dst: *mut Self::T,
        width: usize,
    ) {
        for s in 0..steps {
            for l in 0..lanes {
                // SAFETY: the caller's promise.
                unsafe { *dst.add(s * width + l) = *base.add(*rows.add(l) + s) };
            }
        }
    }

    /// Takes `M` vectors apart: lane `l` of vector `j` is `p[l * M + j]`.
    /// # Safety
    /// `p` is valid for `M * LANES` elements.
    #[inline(always)]
    unsafe fn every<const M: usize>(p: *const Self::T) -> [Self::V; M] {
        std::array::from_fn(|j| {
            let mut lanes = [Self::T::default(); MAX_LANES];
            // SAFETY: the caller's promise.
            unsafe {
                for (l, lane) in lanes.iter_mut().enumerate().take(Self::LANES) {
                    *lane = *p.add(l * M + j);
                }
                Self::load(lanes.as_ptr())
            }
        })
    }

    /// The same address, of which the compiler no longer knows how it is computed.
    #[inline(always)]
    fn apart(p: *const Self::T) -> *const Self::T {
        p
    }

    /// Asks for the cache line at `p`, which need not exist.
    #[inline(always)]
    fn prefetch(_: *const Self::T) {}

    /// The same, into a cache that has room for what is not needed at once.
    #[inline(always)]
    fn prefetch_far(_: *const Self::T) {}
}

/// The tile: `R` rows of `V` vectors.
///
/// # Safety
/// The pointers but `ahead` are valid for the strides and sizes given; the CPU has `S`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel's operands, kept in registers")]
pub unsafe fn tile<S: Simd, const R: usize, const V: usize, const A: u8>(
    k: usize,
    a: *const S::T,
    a_row: isize,
    a_step: isize,
    b: *const S::T,
    b_step: isize,
    c: *mut S::T,
    c_row: isize,
    add: bool,
    ahead: *const S::T,
    ahead_step: isize,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let mut sums = [[S::splat(S::T::default()); V]; R];
        let (mut a, mut b, mut ahead, mut steps) = (a, b, ahead, k);
        // The rows of `c` are far apart and not in cache: they are on their way
        // while `k` runs.
        if A != ANY && k >= R * UNROLL {
            // One row after another: what is on its way holds up the operands.
            let (mut row, mut left) = (c.cast_const(), R - 1);
            // Three rows of `a` to a pointer, and four steps: addresses take few registers,
            // and few instructions.
            let mut rows = [a; MAX_ROWS / 3];
            for (g, row) in rows.iter_mut().enumerate() {
                *row = a.wrapping_offset(3 * g as isize * a_row);
            }
            while steps >= UNROLL {
                ask::<S, V>(row);
                row = row.wrapping_offset(if left > 0 { c_row } else { 0 });
                left = left.saturating_sub(1);
                for row in &mut rows[..R.div_ceil(3)] {
                    *row = S::apart(*row);
                }
                for u in 0..UNROLL as isize {
                    S::prefetch_far(ahead.wrapping_offset(u * ahead_step));
                    let b = b.wrapping_offset(u * b_step);
                    let mut starts = [a; R];
                    for (r, start) in starts.iter_mut().enumerate() {
                        *start = if A == ROWS {
                            rows[r / 3].wrapping_offset((r % 3) as isize * a_row + u)
                        } else {
                            a.wrapping_offset(u * a_step).wrapping_add(r)
                        };
                    }
                    step::<S, R, V>(&starts, b, &mut sums);
                }
                for row in &mut rows[..R.div_ceil(3)] {
                    *row = row.wrapping_add(UNROLL);
                }
                steps -= UNROLL;
                a = a.wrapping_offset(UNROLL as isize * a_step);
                b = b.wrapping_offset(UNROLL as isize * b_step);
                ahead = ahead.wrapping_offset(UNROLL as isize * ahead_step);
            }
        } else {
            for r in 0..R {
                ask::<S, V>(c.wrapping_offset(r as isize * c_row));
            }
        }
        for _ in 0..steps {
            S::prefetch_far(ahead);
            let mut starts = [a; R];
            for (r, start) in starts.iter_mut().enumerate() {
                *start = a.wrapping_offset(r as isize * a_row);
            }
            step::<S, R, V>(&starts, b, &mut sums);
            a = a.wrapping_offset(a_step);
            b = b.wrapping_offset(b_step);
            ahead = ahead.wrapping_offset(ahead_step);
        }
        for (r, sum) in sums.iter().enumerate() {
            let c = c.offset(r as isize * c_row);
            for (v, sum) in sum.iter().enumerate() {
                let c = c.add(v * S::LANES);
                S::store(c, if add { S::add(S::load(c), *sum) } else { *sum });
            }
        }
    }
}

/// Asks for a row of a tile.
#[inline(always)]
fn ask<S: Simd, const V: usize>(row: *const S::T) {
    S::prefetch(row);
    S::prefetch(row.wrapping_add(V * S::LANES - 1));
}

/// One step of a tile, of which the rows are at `starts`. No closures: they would have
/// the features of their caller only where the compiler inlines them.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize>(
    starts: &[*const S::T; R],
    b: *const S::T,
    sums: &mut [[S::V; V]; R],
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let mut bs = [S::splat(S::T::default()); V];
        for (v, x) in bs.iter_mut().enumerate() {
            *x = S::load(b.add(v * S::LANES));
        }
        for (r, sum) in sums.iter_mut().enumerate() {
            let x = S::splat(*starts[r]);
            for v in 0..V {
                sum[v] = S::fma(x, bs[v], sum[v]);
            }
        }
    }
}

/// How `a` lies, for [`tile`]: with any strides; row beside row; step beside step.
pub const ANY: u8 = 0;
pub const PANEL: u8 = 1;
pub const ROWS: u8 = 2;

/// Steps that are written out.
const UNROLL: usize = 4;

/// Rows of `b` taken together by [`axpy`]: enough streams to fill the memory
/// pipe, few enough for registers.
const AXPY_ROWS: usize = 8;

/// # Safety
/// As [`tile`], for the sizes of [`AxpyFn`].
#[inline(always)]
pub unsafe fn axpy<S: Simd>(
    k: usize,
    n: usize,
    x: *const S::T,
    b: *const S::T,
    b_step: isize,
    y: *mut S::T,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let whole = n / S::LANES * S::LANES;
        let mut p = 0;
        while p + AXPY_ROWS <= k {
            let b = b.offset(p as isize * b_step);
            let xs: [S::V; AXPY_ROWS] = std::array::from_fn(|r| S::splat(*x.add(p + r)));
            for j in (0..whole).step_by(S::LANES) {
                let mut sum = S::load(y.add(j));
                for (r, x) in xs.iter().enumerate() {
                    sum = S::fma(*x, S::load(b.offset(r as isize * b_step).add(j)), sum);
                }
                S::store(y.add(j), sum);
            }
            p += AXPY_ROWS;
        }
        while p < k {
            let b = b.offset(p as isize * b_step);
            let v = S::splat(*x.add(p));
            for j in (0..whole).step_by(S::LANES) {
                S::store(y.add(j), S::fma(v, S::load(b.add(j)), S::load(y.add(j))));
            }
            p += 1;
        }
        if whole < n {
            // What fills no vector stays in one from the first row to the last.
            let (y, rest) = (y.add(whole), n - whole);
            let mut sum = S::load_first(y, rest);
            for p in 0..k {
                let b = b.offset(p as isize * b_step).add(whole);
                sum = S::fma(S::splat(*x.add(p)), S::load_first(b, rest), sum);
            }
            S::store_first(y, sum, rest);
        }
    }
}

/// Bytes of the partial sums of a dot product: 32 of f32, 16 of f64, on every
/// machine.
const PARTIAL_BYTES: usize = 128;

/// # Safety
/// As [`tile`], for the sizes of [`DotFn`].
#[inline(always)]
pub unsafe fn dot<S: Simd>(
    k: usize,
    n: usize,
    x: *const S::T,
    b: *const S::T,
    b_row: isize,
    y: *mut S::T,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let mut j = 0;
        while j < n {
            let b = b.offset(j as isize * b_row);
            let y = y.add(j);
            // Few sums at a time where they take many registers.
            j += match (PARTIAL_BYTES / size_of::<S::V>(), n - j) {
                (2, 4..) => dot_rows::<S, 2, 4>(k, x, b, b_row, y),
                (2, _) => dot_rows::<S, 2, 1>(k, x, b, b_row, y),
                (4, 2..) => dot_rows::<S, 4, 2>(k, x, b, b_row, y),
                (4, _) => dot_rows::<S, 4, 1>(k, x, b, b_row, y),
                _ => dot_rows::<S, 8, 1>(k, x, b, b_row, y),
            };
        }
    }
}

/// `R` dot products at once, each with `V` vectors of partial sums; gives `R`.
///
/// # Safety
/// As [`dot`].
#[inline(always)]
unsafe fn dot_rows<S: Simd, const V: usize, const R: usize>(
    k: usize,
    x: *const S::T,
    b: *const S::T,
    b_row: isize,
    y: *mut S::T,
) -> usize {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let zero = S::splat(S::T::default());
        let mut sums = [[zero; V]; R];
        let mut p = 0;
        while p + V * S::LANES <= k {
            let xs: [S::V; V] = std::array::from_fn(|v| S::load(x.add(p + v * S::LANES)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let b = b.offset(r as isize * b_row).add(p);
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = S::fma(xs[v], S::load(b.add(v * S::LANES)), *sum);
                }
            }
            p += V * S::LANES;
        }
        for (r, sums) in sums.iter().enumerate() {
            let mut total = total::<S, V>(sums);
            for q in p..k {
                total = S::fma_one(*x.add(q), *b.offset(r as isize * b_row).add(q), total);
            }
            let y = y.add(r);
            *y = total;
        }
        R
    }
}

/// The sum of the partial sums: the first half takes in the second, and so on.
///
/// # Safety
/// The CPU has `S`.
#[inline(always)]
pub unsafe fn total<S: Simd, const V: usize>(sums: &[S::V; V]) -> S::T {
    let mut all = [S::T::default(); 2 * MAX_LANES];
    // SAFETY: the caller's promise; `V` vectors fill 128 bytes at most.
    unsafe {
        for (v, sum) in sums.iter().enumerate() {
            S::store(all.as_mut_ptr().add(v * S::LANES), *sum);
        }
    }
    let mut half = V * S::LANES / 2;
    while half > 0 {
        let (low, high) = all.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(l, h)| *l += *h);
        half /= 2;
    }
    all[0]
}

/// Wraps the generic kernels in functions with `features` enabled, and lists
/// them in a [`Kernels`].
macro_rules! kernels {
    ($table:ident, $name:literal, $t:ty, $simd:ty, [$($rows:literal)*],
     [$($seen:literal)*], [$($pair:literal)*] $(, $features:literal)?) => {
        pub static $table: $crate::gemm::kernel::Kernels<$t> = {
            use $crate::gemm::kernel as k;
            $(#[target_feature(enable = $features)])?
            #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
            unsafe fn tile<const R: usize, const V: usize, const A: u8>(
                n: usize, a: *const $t, ar: isize, ak: isize, b: *const $t, bk: isize,
                c: *mut $t, cr: isize, add: bool, ahead: *const $t, far: isize,
            ) {
                // SAFETY: the caller's promise.
                unsafe { k::tile::<$simd, R, V, A>(n, a, ar, ak, b, bk, c, cr, add, ahead, far) }
            }
            $(#[target_feature(enable = $features)])?
            #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
            unsafe fn gather<const R: usize, const W: usize, const V: usize>(
                steps: &[usize], a: *const $t, second: usize, b: *const $t, bk: usize,
                c: *mut $t, cr: usize, add: bool, ahead: *const $t, far: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    $crate::gemm::gather::gather::<$simd, R, W, V>(
                        steps, a, second, b, bk, c, cr, add, ahead, far,
                    )
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn axpy(
                n: usize, m: usize, x: *const $t, b: *const $t, bk: isize, y: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { k::axpy::<$simd>(n, m, x, b, bk, y) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn dot(
                n: usize, m: usize, x: *const $t, b: *const $t, br: isize, y: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { k::dot::<$simd>(n, m, x, b, br, y) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn copy(
                src: *const $t, step: usize, lanes: usize, steps: usize, width: usize,
                panels: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $crate::gemm::pack::copy::<$simd>(src, step, lanes, steps, width, panels) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn turn(
                base: *const $t, rows: &[usize], lanes: usize, steps: usize, slack: bool,
                width: usize, panel: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    $crate::gemm::pack::turn::<$simd>(base, rows, lanes, steps, slack, width, panel)
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn moves(
                base: *const $t, moves: &[(usize, usize)], steps: &[usize], width: usize,
                panel: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $crate::gemm::pack::moves::<$simd>(base, moves, steps, width, panel) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn weighted(
                base: *const $t, offsets: &[usize], weights: *const $t, n: usize, out: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    $crate::gemm::taps::weighted::<$simd>(base, offsets, weights, n, out)
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn plane(
                src: *const $t, cover: &$crate::gemm::planes::Cover, weights: *const $t,
                out: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $crate::gemm::planes::plane::<$simd>(src, cover, weights, out) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn dots(
                base: *const $t, offsets: &[usize], grad: *const $t, sizes: [usize; 4],
                sums: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $crate::gemm::taps::dots::<$simd>(base, offsets, grad, sizes, sums) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn spread(
                src: *const $t, from: usize, count: usize, dst: *mut $t, to: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $crate::gemm::taps::spread::<$simd>(src, from, count, dst, to) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn lay(
                src: *const $t, step: usize, count: usize, rows: &k::Rows, dst: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $crate::gemm::taps::lay::<$simd>(src, step, count, rows, dst) }
            }
            k::Kernels {
                name: $name,
                panel: &[$(tile::<$rows, 2, { k::PANEL }>),*],
                rows: &[$(tile::<$rows, 2, { k::ROWS }>),*],
                narrow: &[$(tile::<$rows, 1, { k::ANY }>),*],
                gather: &[$([gather::<$seen, $seen, 2>, gather::<$seen, $seen, 1>]),*],
                pairs: &[$((
                    $pair,
                    [gather::<{ 2 * $pair }, $pair, 2>, gather::<{ 2 * $pair }, $pair, 1>],
                )),*],
                nr: 2 * <$simd as k::Simd>::LANES,
                axpy,
                dot,
                copy,
                turn,
                moves,
                weighted,
                plane: if <$simd as k::Simd>::LOADS_SOME { Some(plane) } else { None },
                dots,
                spread,
                lay,
            }
        };
    };
}

pub(super) use kernels;

impl Real for f32 {
    fn kernels() -> &'static Kernels<f32> {
        static CHOICE: OnceLock<&'static Kernels<f32>> = OnceLock::new();
        CHOICE.get_or_init(|| {
            super::arch::all_f32().first().copied().unwrap_or(&super::portable::F32)
        })
    }
}

impl Real for f64 {
    fn kernels() -> &'static Kernels<f64> {
        static CHOICE: OnceLock<&'static Kernels<f64>> = OnceLock::new();
        CHOICE.get_or_init(|| {
            super::arch::all_f64().first().copied().unwrap_or(&super::portable::F64)
        })
    }
}
