//! Convolutions as matrix products whose operands are gathered while packing.
//!
//! | kind | left | right | `k` |
//! |---|---|---|---|
//! | forward | filter | windows of the input | channels x taps |
//! | gradient of the input | filter, turned | windows of the output's gradient | channels x taps |
//! | gradient of the filter | output's gradient | taps of the input | pixels of all images |

use super::windows::{Filter, Pixels, Taps, Widen, Windows};
use super::{ConvArgs, edges};
use crate::gemm::driver::{Rect, rectangle};
use crate::gemm::kernel::{Kernels, Real};
use crate::gemm::pack::{Operand, Strided};
use crate::gemm::{BlockFn, Grid, half_rectangle};
use crate::pool::Pool;
use tfc_abi::plan::ConvKind;

/// A rectangle of the result, in memory of `E`s.
pub trait Result<T: Real>: Widen<T> + 'static {
    /// # Safety
    /// As [`rectangle`]; `c` is element `(rows.0, columns.0)`.
    unsafe fn compute(
        kernels: &Kernels<T>,
        rect: &Rect<'_, T>,
        c: *mut Self,
        finished: Option<&dyn Fn(usize, usize, usize, usize)>,
    );
}

macro_rules! same {
    ($($t:ty),*) => {$(
        impl Result<$t> for $t {
            unsafe fn compute(
                kernels: &Kernels<$t>,
                rect: &Rect<'_, $t>,
                c: *mut $t,
                finished: Option<&dyn Fn(usize, usize, usize, usize)>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { rectangle(kernels, &Rect { c, finished, ..*rect }) }
            }
        }
    )*};
}

same!(f32, f64);

macro_rules! halves {
    ($($t:ty),*) => {$(
        impl Result<f32> for $t {
            unsafe fn compute(
                _: &Kernels<f32>,
                rect: &Rect<'_, f32>,
                c: *mut $t,
                finished: Option<&dyn Fn(usize, usize, usize, usize)>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { half_rectangle(rect, c, finished) }
            }
        }
    )*};
}

halves!(crate::half::f16, crate::half::bf16);

/// # Safety
/// As [`super::conv`], for elements `E`.
pub unsafe fn conv<T: Real, E: Result<T>>(pool: &Pool, c: &ConvArgs, finished: Option<BlockFn<'_>>)
where
    Strided<E>: Operand<T>,
{
    // SAFETY: the caller's promise.
    unsafe {
        if c.kind == ConvKind::GradFilter {
            let apart = edges::not_finite::<T, E>(c);
            if !apart.is_empty() {
                return edges::grad_filter::<T, E>(pool, c, &apart, finished);
            }
        }
        product::<T, E>(pool, c, finished);
    }
}

/// The product as such, whatever it multiplies the padding by.
///
/// # Safety
/// As [`conv`].
pub(super) unsafe fn product<T: Real, E: Result<T>>(
    pool: &Pool,
    c: &ConvArgs,
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    let kernels = T::kernels();
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let taps = c.kernel[0] * c.kernel[1];
    let (in_plane, out_plane) = (c.in_h * c.in_w, c.out_h * c.out_w);
    // Per (image, group): rows, columns, steps.
    let (images, m, n, k) = match c.kind {
        ConvKind::Forward => (c.batch, co, out_plane, ci * taps),
        ConvKind::GradInput => (c.batch, ci, in_plane, co * taps),
        ConvKind::GradFilter => (1, co, ci * taps, c.batch * out_plane),
    };
    let matrices = images * c.groups;
    if matrices == 0 || m == 0 || n == 0 {
        return;
    }
    let madds = [n, k.max(1), matrices].iter().fold(m as u64, |w, s| w.saturating_mul(*s as u64));
    // Gathering makes a multiply-add dearer than in a plain product.
    let threads = pool.parts_for(usize::MAX, i64::try_from(madds / 16).unwrap_or(i64::MAX));
    let grid = Grid::new(threads, matrices, (m, kernels.mr()), (n, kernels.nr));
    // The windows are the image as it is. `pad` is that before the first pixel;
    // only the sizes tell of padding after the last.
    let whole = c.kernel == [1, 1]
        && c.stride == [1, 1]
        && c.pad == [0, 0]
        && (c.in_h, c.in_w) == (c.out_h, c.out_w);
    grid.run(pool, threads, &|matrix, rows, columns| {
        let (image, group) = (matrix / c.groups, matrix % c.groups);
        let lhs = |at: usize| c.lhs.cast::<E>().wrapping_add(at);
        let rhs = |at: usize| c.rhs.cast::<E>().wrapping_add(at);
        // Rows of the result count through images and groups.
        let row_offset = match c.kind {
            ConvKind::Forward => image * c.out_channels + group * co,
            ConvKind::GradInput => image * c.in_channels + group * ci,
            ConvKind::GradFilter => group * co,
        };
        let shifted = |r0: usize, r1: usize, c0: usize, c1: usize| {
            if let Some(f) = finished {
                f(row_offset + r0, row_offset + r1, c0, c1);
            }
        };
        let compute = |a: &dyn Operand<T>, b: &dyn Operand<T>| {
            let out = c.out.cast::<E>().wrapping_add((row_offset + rows.0) * n + columns.0);
            let rect = Rect {
                rows,
                columns,
                k,
                a,
                b,
                c: std::ptr::null_mut(),
                c_row: n,
                accumulate: false,
                finished: None,
            };
            // SAFETY: the operands have these lanes and steps by the geometry;
            // rectangles of the result are disjoint.
            unsafe {
                E::compute(kernels, &rect, out, finished.is_some().then_some(&shifted));
            }
        };
        let image_at = (image * c.in_channels + group * ci) * in_plane;
        let grad_at = (image * c.out_channels + group * co) * out_plane;
        match c.kind {
            ConvKind::Forward => {
                let filter = Strided { start: rhs(group * co * k), lane: k, step: 1 };
                if whole {
                    let b = Strided { start: lhs(image_at), lane: 1, step: in_plane };
                    compute(&filter, &b);
                } else {
                    compute(&filter, &Windows::forward(c, lhs(image_at)));
                }
            }
            ConvKind::GradInput => {
                let filter = Filter { start: rhs(group * co * ci * taps), taps, channels: ci };
                compute(&filter, &Windows::backward(c, lhs(grad_at)));
            }
            ConvKind::GradFilter => {
                let start = rhs(group * co * out_plane);
                let image = c.out_channels * out_plane;
                let grad = Pixels { start, image, plane: out_plane };
                compute(&grad, &Taps { conv: c, start: lhs(group * ci * in_plane) });
            }
        }
    });
}
