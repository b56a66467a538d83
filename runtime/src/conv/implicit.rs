//! Convolutions as matrix products whose operands are gathered while packing.
//!
//! | kind | left | right | `k` |
//! |---|---|---|---|
//! | forward | filter | windows of the input | channels x taps |
//! | gradient of the input | filter, turned | windows of the output's gradient | channels x taps |
//! | gradient of the filter | output's gradient | taps of the input | pixels of all images |

use super::field::Plan;
use super::windows::{Filter, Pixels, Taps, Widen, Windows};
use super::{ConvArgs, edges};
use crate::gemm::driver::{DIRECT_A_COLUMNS, Rect, grow, rectangle};
use crate::gemm::kernel::{Kernels, Real};
use crate::gemm::pack::{Operand, Strided};
use crate::gemm::prepack::Lefts;
use crate::gemm::{BlockFn, Grid, half_rectangle};
use crate::mem::Bytes;
use crate::pool::Pool;
use std::cell::RefCell;
use tfc_abi::plan::ConvKind;

thread_local! {
    /// A grid's part of a result.
    static SPARE: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
}

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

    /// `dst[i * to] = src[i]` for `i` below `count`, rounded.
    ///
    /// # Safety
    /// Both are valid for that.
    unsafe fn scatter(_: &Kernels<T>, src: *const T, count: usize, dst: *mut Self, to: usize) {
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe { *dst.add(i * to) = Self::narrow(*src.add(i)) };
        }
    }
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

            unsafe fn scatter(
                kernels: &Kernels<$t>, src: *const $t, count: usize, dst: *mut $t, to: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe { (kernels.spread)(src, 1, count, dst, to) }
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
    let (m, n) = match c.kind {
        ConvKind::Forward => (c.out_channels, c.out_h * c.out_w),
        ConvKind::GradInput => (c.in_channels, c.in_h * c.in_w),
        ConvKind::GradFilter => (c.out_channels, c.in_channels * c.kernel[0] * c.kernel[1]),
    };
    if m == 0 || n == 0 || (c.kind != ConvKind::GradFilter && c.batch == 0) {
        return;
    }
    // SAFETY: passed on.
    unsafe {
        match c.kind {
            ConvKind::GradFilter => grad_filter::<T, E>(pool, c, finished),
            ConvKind::GradInput if c.stride != [1, 1] => {
                grad_input_by_grids::<T, E>(pool, c, finished);
            }
            _ => windows::<T, E>(pool, c, finished),
        }
    }
}

/// Whether the windows are the image as it is. `pad` is that before the first
/// pixel; only the sizes tell of padding after the last.
fn whole(c: &ConvArgs) -> bool {
    c.kernel == [1, 1]
        && c.stride == [1, 1]
        && c.pad == [0, 0]
        && (c.in_h, c.in_w) == (c.out_h, c.out_w)
}

/// Threads worth having for `madds` multiply-adds; gathering makes one dearer than
/// in a plain product.
fn threads_for(pool: &Pool, sizes: [usize; 4]) -> usize {
    let madds = sizes.iter().fold(1u64, |w, s| w.saturating_mul((*s).max(1) as u64));
    pool.parts_for(usize::MAX, i64::try_from(madds / 16).unwrap_or(i64::MAX))
}

/// The forward convolution, and the gradient of the input at stride one: the same
/// with filter and image seen from the other side.
///
/// # Safety
/// As [`product`], for one of these.
unsafe fn windows<T: Real, E: Result<T>>(pool: &Pool, c: &ConvArgs, finished: Option<BlockFn<'_>>)
where
    Strided<E>: Operand<T>,
{
    let kernels = T::kernels();
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let taps = c.kernel[0] * c.kernel[1];
    let forward = c.kind == ConvKind::Forward;
    let plan = if forward { Plan::forward(c) } else { Plan::backward(c, [0, 0]) };
    let (m, n, from) = if forward { (co, plan.pixels(), ci) } else { (ci, plan.pixels(), co) };
    let k = from * plan.taps();
    let lhs = |at: usize| c.lhs.cast::<E>().wrapping_add(at);
    let filter = |group: usize| c.rhs.cast::<E>().wrapping_add(group * co * ci * taps);
    let threads = threads_for(pool, [m, n, k, c.batch * c.groups]);
    let grid = Grid::new(threads, c.batch * c.groups, (m, kernels.mr()), (n, kernels.nr));
    let straight = |group| Strided { start: filter(group), lane: ci * taps, step: 1 };
    let turned = |group| Strided { start: filter(group), lane: 1, step: ci };
    let gathered =
        |group| Filter { plan: &plan, start: filter(group), kernel: c.kernel, channels: [ci, co] };
    let left = |group: usize, use_it: &mut dyn FnMut(&dyn Operand<T>)| match (forward, whole(c)) {
        (true, _) => use_it(&straight(group)),
        (false, true) => use_it(&turned(group)),
        (false, false) => use_it(&gathered(group)),
    };
    let compute = |left: &dyn Operand<T>, part: (usize, usize), rows: Bounds, columns: Bounds| {
        let (image, group) = part;
        let source = lhs((image * c.groups + group) * from * plan.plane());
        let row_offset = (image * c.groups + group) * m;
        let shifted = |r0: usize, r1: usize, c0: usize, c1: usize| {
            if let Some(f) = finished {
                f(row_offset + r0, row_offset + r1, c0, c1);
            }
        };
        let (image, windows);
        let right: &dyn Operand<T> = if whole(c) {
            image = Strided { start: source, lane: 1, step: n };
            &image
        } else {
            windows = Windows { plan: &plan, source };
            &windows
        };
        let rect = Rect {
            rows,
            columns,
            k,
            a: left,
            b: right,
            c: std::ptr::null_mut(),
            c_row: n,
            accumulate: false,
            finished: None,
        };
        let out = c.out.cast::<E>().wrapping_add((row_offset + rows.0) * n + columns.0);
        // SAFETY: the operands have these lanes and steps by the geometry;
        // rectangles of the result are disjoint.
        unsafe { E::compute(kernels, &rect, out, finished.is_some().then_some(&shifted)) };
    };
    // The filters are packed once, not once for each image and rectangle; unless
    // they meet so few columns that they are not worth packing.
    let packed = c.batch * n > DIRECT_A_COLUMNS;
    let mut lefts = Lefts::new(if packed { c.groups } else { 0 }, |_| (m, k), kernels.mr());
    if packed {
        // SAFETY: the filters exist.
        unsafe { lefts.pack(pool, kernels, &|group, pack| left(group, pack)) };
    }
    grid.run(pool, &|matrix, rows, columns| {
        let (image, group) = (matrix / c.groups, matrix % c.groups);
        match lefts.get(group) {
            Some(packed) => compute(&packed, (image, group), rows, columns),
            None => left(group, &mut |l| compute(l, (image, group), rows, columns)),
        }
    });
}

type Bounds = (usize, usize);

/// The gradient of the input at strides beyond one. The input's pixels fall into
/// grids, each of which meets taps of its own; a grid's part of the result is
/// computed beside it and then spread out.
///
/// # Safety
/// As [`product`], for one of these.
unsafe fn grad_input_by_grids<T: Real, E: Result<T>>(
    pool: &Pool,
    c: &ConvArgs,
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    let kernels = T::kernels();
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let (taps, plane) = (c.kernel[0] * c.kernel[1], c.in_h * c.in_w);
    let [sy, sx] = c.stride;
    let plans: Vec<Plan> = (0..sy * sx).map(|g| Plan::backward(c, [g / sx, g % sx])).collect();
    let threads = threads_for(pool, [ci, c.out_h * c.out_w, co * taps, c.batch * c.groups]);
    // A part has all columns, so that its rows are final when it ends.
    let grid = Grid::new(threads, c.batch * c.groups, (ci, kernels.mr()), (1, 1));
    let mut lefts = Lefts::new(
        c.groups * plans.len(),
        |part| (ci, co * plans[part % plans.len()].taps()),
        kernels.mr(),
    );
    // SAFETY: the filters exist.
    unsafe {
        lefts.pack(pool, kernels, &|part, pack| {
            let start = c.rhs.cast::<E>().wrapping_add(part / plans.len() * co * ci * taps);
            let plan = &plans[part % plans.len()];
            pack(&Filter { plan, start, kernel: c.kernel, channels: [ci, co] });
        });
    }
    grid.run(pool, &|matrix, rows, _| {
        let (image, group) = (matrix / c.groups, matrix % c.groups);
        let row_offset = (image * c.groups + group) * ci;
        let out = c.out.cast::<E>().wrapping_add((row_offset + rows.0) * plane);
        let source = c.lhs.cast::<E>().wrapping_add(matrix * co * c.out_h * c.out_w);
        for (g, plan) in plans.iter().enumerate() {
            let (n, wide) = (plan.pixels(), plan.x.grid);
            let Some(left) = lefts.get(group * plans.len() + g) else { continue };
            if n == 0 {
                continue;
            }
            SPARE.with_borrow_mut(|spare| {
                let height = rows.1 - rows.0;
                grow(spare, height * n * size_of::<T>());
                let sums = spare.as_ptr().cast::<T>();
                let rect = Rect {
                    rows,
                    columns: (0, n),
                    k: co * plan.taps(),
                    a: &left,
                    b: &Windows { plan, source },
                    c: sums,
                    c_row: n,
                    accumulate: false,
                    finished: None,
                };
                // SAFETY: the sums have room for the rectangle; every row of the
                // grid is a part of a row of the result.
                unsafe {
                    rectangle(kernels, &rect);
                    for at in 0..height * plan.y.grid {
                        let (r, y) = (at / plan.y.grid, at % plan.y.grid);
                        let to = r * plane + (y * sy + g / sx) * c.in_w + g % sx;
                        let from = sums.add((r * plan.y.grid + y) * wide);
                        E::scatter(kernels, from, wide, out.add(to), sx);
                    }
                }
            });
        }
        if let Some(f) = finished {
            f(row_offset + rows.0, row_offset + rows.1, 0, plane);
        }
    });
}

/// # Safety
/// As [`product`], for the gradient of a filter.
unsafe fn grad_filter<T: Real, E: Result<T>>(
    pool: &Pool,
    c: &ConvArgs,
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    let kernels = T::kernels();
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let (in_plane, out_plane) = (c.in_h * c.in_w, c.out_h * c.out_w);
    let plan = Plan::forward(c);
    let (m, n, k) = (co, ci * plan.taps(), c.batch * out_plane);
    let threads = threads_for(pool, [m, n, k, c.groups]);
    let grid = Grid::new(threads, c.groups, (m, kernels.mr()), (n, kernels.nr));
    grid.run(pool, &|group, rows, columns| {
        let row_offset = group * co;
        let shifted = |r0: usize, r1: usize, c0: usize, c1: usize| {
            if let Some(f) = finished {
                f(row_offset + r0, row_offset + r1, c0, c1);
            }
        };
        let image = c.lhs.cast::<E>().wrapping_add(group * ci * in_plane);
        let grad = Pixels {
            start: c.rhs.cast::<E>().wrapping_add(group * co * out_plane),
            image: c.out_channels * out_plane,
            plane: out_plane,
        };
        let (pixels, windows);
        let right: &dyn Operand<T> = if whole(c) {
            pixels = Pixels { start: image, image: c.in_channels * in_plane, plane: in_plane };
            &pixels
        } else {
            windows = Taps::new(c, &plan, image);
            &windows
        };
        let rect = Rect {
            rows,
            columns,
            k,
            a: &grad,
            b: right,
            c: std::ptr::null_mut(),
            c_row: n,
            accumulate: false,
            finished: None,
        };
        let out = c.out.cast::<E>().wrapping_add((row_offset + rows.0) * n + columns.0);
        // SAFETY: the operands have these lanes and steps by the geometry;
        // rectangles of the result are disjoint.
        unsafe { E::compute(kernels, &rect, out, finished.is_some().then_some(&shifted)) };
    });
}
