//! Micro-kernels: the inner loops of products, once per instruction set.
//!
//! A tile is `rows x nr` elements of the result, kept in registers while `k`
//! runs. The code is written once over [`Simd`]; each instruction set wraps it in
//! functions that enable its features, and [`Kernels::get`] picks the widest set
//! the CPU has, once.
//!
//! Every element of a tile is a chain of multiply-adds in the order of `k`,
//! whatever the number of rows, so a result does not depend on how it was cut
//! into tiles.

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
/// `c` with its stride between rows; whether to add to `c`.
pub type TileFn<T> = unsafe fn(usize, *const T, isize, isize, *const T, isize, *mut T, isize, bool);
/// `y[0..n] += sum of x[p * x_stride] * b[p * b_stride + 0..n]` for `p` in `0..k`.
pub type AxpyFn<T> = unsafe fn(usize, usize, *const T, *const T, isize, *mut T);
/// Dot products of `x` with `n` rows of `b`: `y[j] (+)= x[0..k] · b[j * stride..]`.
pub type DotFn<T> = unsafe fn(usize, usize, *const T, *const T, isize, *mut T, bool);

pub struct Kernels<T: 'static> {
    pub name: &'static str,
    /// Tiles of 1, 2, .. rows.
    pub tiles: &'static [TileFn<T>],
    /// Columns of a tile.
    pub nr: usize,
    pub axpy: AxpyFn<T>,
    pub dot: DotFn<T>,
}

impl<T> Kernels<T> {
    /// Most rows of a tile.
    pub fn mr(&self) -> usize {
        self.tiles.len()
    }
}

/// Largest `mr * nr` of any instruction set.
pub const MAX_TILE: usize = 12 * 32;

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
}

/// The tile: `R` rows of two vectors.
///
/// # Safety
/// The pointers are valid for the strides and sizes given; the CPU has `S`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel's operands, kept in registers")]
pub unsafe fn tile<S: Simd, const R: usize>(
    k: usize,
    a: *const S::T,
    a_row: isize,
    a_step: isize,
    b: *const S::T,
    b_step: isize,
    c: *mut S::T,
    c_row: isize,
    add: bool,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let zero = S::splat(S::T::default());
        let mut sums = [[zero; 2]; R];
        let (mut a, mut b) = (a, b);
        for _ in 0..k {
            let (b0, b1) = (S::load(b), S::load(b.add(S::LANES)));
            for (r, sum) in sums.iter_mut().enumerate() {
                let x = S::splat(*a.offset(r as isize * a_row));
                sum[0] = S::fma(x, b0, sum[0]);
                sum[1] = S::fma(x, b1, sum[1]);
            }
            a = a.wrapping_offset(a_step);
            b = b.wrapping_offset(b_step);
        }
        for (r, sum) in sums.iter().enumerate() {
            let c = c.offset(r as isize * c_row);
            if add {
                S::store(c, S::add(S::load(c), sum[0]));
                let c1 = c.add(S::LANES);
                S::store(c1, S::add(S::load(c1), sum[1]));
            } else {
                S::store(c, sum[0]);
                S::store(c.add(S::LANES), sum[1]);
            }
        }
    }
}

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
        let mut p = 0;
        while p + AXPY_ROWS <= k {
            let b = b.offset(p as isize * b_step);
            let xs: [S::V; AXPY_ROWS] = std::array::from_fn(|r| S::splat(*x.add(p + r)));
            let mut j = 0;
            while j + S::LANES <= n {
                let mut sum = S::load(y.add(j));
                for (r, x) in xs.iter().enumerate() {
                    sum = S::fma(*x, S::load(b.offset(r as isize * b_step).add(j)), sum);
                }
                S::store(y.add(j), sum);
                j += S::LANES;
            }
            while j < n {
                let mut sum = *y.add(j);
                for r in 0..AXPY_ROWS {
                    sum += *x.add(p + r) * *b.offset(r as isize * b_step).add(j);
                }
                *y.add(j) = sum;
                j += 1;
            }
            p += AXPY_ROWS;
        }
        while p < k {
            let b = b.offset(p as isize * b_step);
            let x = *x.add(p);
            let v = S::splat(x);
            let mut j = 0;
            while j + S::LANES <= n {
                S::store(y.add(j), S::fma(v, S::load(b.add(j)), S::load(y.add(j))));
                j += S::LANES;
            }
            while j < n {
                *y.add(j) += x * *b.add(j);
                j += 1;
            }
            p += 1;
        }
    }
}

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
    add: bool,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let mut j = 0;
        while j < n {
            let rows = (n - j).min(4);
            let sums = match rows {
                4 => dot_rows::<S, 4>(k, x, b.offset(j as isize * b_row), b_row),
                _ => {
                    let mut sums = [S::T::default(); 4];
                    for (r, s) in sums.iter_mut().enumerate().take(rows) {
                        *s = dot_rows::<S, 1>(k, x, b.offset((j + r) as isize * b_row), b_row)[0];
                    }
                    sums
                }
            };
            for (r, s) in sums.iter().enumerate().take(rows) {
                let y = y.add(j + r);
                *y = if add { *y + *s } else { *s };
            }
            j += rows;
        }
    }
}

/// `R` dot products at once, each with two running sums.
///
/// # Safety
/// As [`dot`].
#[inline(always)]
unsafe fn dot_rows<S: Simd, const R: usize>(
    k: usize,
    x: *const S::T,
    b: *const S::T,
    b_row: isize,
) -> [S::T; R] {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let zero = S::splat(S::T::default());
        let mut sums = [[zero; 2]; R];
        let mut p = 0;
        while p + 2 * S::LANES <= k {
            let (x0, x1) = (S::load(x.add(p)), S::load(x.add(p + S::LANES)));
            for (r, sum) in sums.iter_mut().enumerate() {
                let b = b.offset(r as isize * b_row).add(p);
                sum[0] = S::fma(x0, S::load(b), sum[0]);
                sum[1] = S::fma(x1, S::load(b.add(S::LANES)), sum[1]);
            }
            p += 2 * S::LANES;
        }
        let mut out = [S::T::default(); R];
        for (r, (sum, out)) in sums.iter().zip(&mut out).enumerate() {
            let mut lanes = [S::T::default(); 16];
            S::store(lanes.as_mut_ptr(), S::add(sum[0], sum[1]));
            let mut total = lanes[..S::LANES].iter().fold(S::T::default(), |t, v| t + *v);
            for q in p..k {
                total += *x.add(q) * *b.offset(r as isize * b_row).add(q);
            }
            *out = total;
        }
        out
    }
}

/// Wraps the generic kernels in functions with `features` enabled, and lists
/// them in a [`Kernels`].
macro_rules! kernels {
    ($table:ident, $name:literal, $t:ty, $simd:ty, [$($rows:literal)*] $(, $features:literal)?) => {
        pub static $table: $crate::gemm::kernel::Kernels<$t> = {
            use $crate::gemm::kernel as k;
            $(#[target_feature(enable = $features)])?
            #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
            unsafe fn tile<const R: usize>(
                n: usize, a: *const $t, ar: isize, ak: isize, b: *const $t, bk: isize,
                c: *mut $t, cr: isize, add: bool,
            ) {
                // SAFETY: the caller's promise.
                unsafe { k::tile::<$simd, R>(n, a, ar, ak, b, bk, c, cr, add) }
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
                n: usize, m: usize, x: *const $t, b: *const $t, br: isize, y: *mut $t, add: bool,
            ) {
                // SAFETY: the caller's promise.
                unsafe { k::dot::<$simd>(n, m, x, b, br, y, add) }
            }
            k::Kernels {
                name: $name,
                tiles: &[$(tile::<$rows>),*],
                nr: 2 * <$simd as k::Simd>::LANES,
                axpy,
                dot,
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
