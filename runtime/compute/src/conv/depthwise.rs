//! One filter per channel: vectors of pixels, nothing multiplied as a matrix.
//!
//! A channel is laid out as a [`field`](super::field), padding and all, so that
//! every tap reads vectors of neighbours at every stride.

use super::field::Plan;
use super::implicit::Result;
use super::windows::Widen;
use super::{ConvArgs, edges, simple};
use crate::gemm::BlockFn;
use crate::gemm::driver::grow;
use crate::gemm::kernel::{Kernels, MAX_LANES, PlaneFn, Real, Rows};
use crate::gemm::pack::{Operand, Strided};
use crate::gemm::planes::Cover;
use crate::gemm::simple::Number;
use crate::mem::Bytes;
use crate::pool::Pool;
use std::cell::RefCell;
use tfc_abi::plan::ConvKind;

thread_local! {
    /// A channel's field, and its sums before they are put in place.
    static PLANES: RefCell<[Bytes; 2]> = const { RefCell::new([Bytes::empty(), Bytes::empty()]) };
}

/// Elements of planes that are handed on together.
const TOGETHER: usize = 2048;

/// Whether this convolution is one.
pub fn applies(c: &ConvArgs<'_>) -> bool {
    c.groups == c.in_channels && c.groups == c.out_channels
}

/// # Safety
/// As [`super::conv`], for elements `T`; [`applies`] holds.
pub unsafe fn conv<T: Real + Number + Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) where
    Strided<T>: Operand<T>,
{
    if c.kind == ConvKind::GradFilter {
        // SAFETY: the caller's promise.
        unsafe {
            let apart = edges::not_finite::<T, T>(c);
            if !apart.is_empty() {
                return edges::grad_filter::<T, T>(kernels, pool, c, &apart, finished);
            }
        }
    }
    let channels = c.groups;
    let (rows, columns, each) = match c.kind {
        ConvKind::Forward => (c.batch * channels, c.out_h * c.out_w, 1),
        ConvKind::GradInput => (c.batch * channels, c.in_h * c.in_w, 1),
        ConvKind::GradFilter => (channels, c.kernel[0] * c.kernel[1], c.batch),
    };
    if rows == 0 || columns == 0 {
        return;
    }
    let plans: Vec<Plan> = match c.kind {
        ConvKind::GradInput => (0..c.stride[0] * c.stride[1])
            .map(|g| Plan::backward(c, [g / c.stride[1], g % c.stride[1]]))
            .collect(),
        // Computing the columns in between costs less than taking them apart.
        ConvKind::Forward if c.stride[1] <= 3 => vec![Plan::dense_columns(c)],
        _ => vec![Plan::forward(c)],
    };
    let dense = c.kind == ConvKind::Forward && plans[0].x.grid != c.out_w;
    let step = if dense { c.stride[1] } else { 1 };
    let taps = c.kernel[0] * c.kernel[1];
    let work = (rows * each) as i64 * (c.out_h * c.out_w * (taps + 4)) as i64;
    let parts = pool.parts_for(rows, work / 8);
    let offsets: Vec<_> = plans.iter().map(|plan| plan.offsets(plan.y.grid)).collect();
    let small = small_planes(kernels, c);
    // Small planes are handed on by the dozen: that costs as much as computing one.
    let some = (TOGETHER / columns).max(1);
    pool.ranges(rows, 1, parts, &|lo, hi| {
        let mut weights = Vec::with_capacity(taps);
        for first in (lo..hi).step_by(some) {
            let last = (first + some).min(hi);
            for row in first..last {
                // SAFETY: the caller's promise; rows of the result are disjoint.
                unsafe {
                    match c.kind {
                        ConvKind::GradFilter => {
                            grad_filter::<T>(kernels, c, &plans[0], &offsets[0], row);
                        }
                        _ if small.as_ref().is_some_and(|f| small_plane::<T>(f, c, row)) => {}
                        _ => plane::<T>(kernels, c, &plans, &offsets, (row, step), &mut weights),
                    }
                }
            }
            if let Some(f) = finished {
                f(first, last, 0, columns);
            }
        }
    });
}

/// Whether a weight may meet padding, which is zero, without a trace.
fn finite<T: Real>(weights: &[T]) -> bool {
    weights.iter().all(|w| *w * T::default() == T::default())
}

/// Most vectors times taps of a plane that is computed without a field: what is known of
/// them stays in cache.
const MOST_SPOTS: usize = 4096;

/// What computes planes without a field, and how, where that is worth it: laying a small
/// plane out, and taking the sums between strides apart, costs more than the sums.
fn small_planes<T: Real>(kernels: &Kernels<T>, c: &ConvArgs<'_>) -> Option<(PlaneFn<T>, Cover)> {
    let (plane, lanes) = (kernels.plane?, kernels.nr / 2);
    let forward = c.kind == ConvKind::Forward;
    let (source, result) = match forward {
        true => ([c.in_h, c.in_w], [c.out_h, c.out_w]),
        false => ([c.out_h, c.out_w], [c.in_h, c.in_w]),
    };
    let step = match c.stride {
        _ if c.kind == ConvKind::GradFilter => return None,
        [1, 1] if result[1] <= 2 * lanes => 1,
        [2, 2] if forward => 2,
        _ => return None,
    };
    let turn = if forward { 1 } else { -1 };
    let away = |at: usize, a: usize| turn * ((at * c.dilation[a]) as isize - c.pad[a] as isize);
    let [height, width] = c.kernel;
    let taps = (0..height * width).map(|i| (away(i / width, 0), away(i % width, 1)));
    let taps: Vec<_> = taps.collect();
    Some((plane, Cover::new(source, result, step, &taps, lanes, MOST_SPOTS)?))
}

/// [`plane`] by such a function; false where a weight is not finite. The sums are the same.
///
/// # Safety
/// As [`plane`].
unsafe fn small_plane<T: Real>(
    (compute, cover): &(PlaneFn<T>, Cover),
    c: &ConvArgs<'_>,
    row: usize,
) -> bool {
    let taps = c.kernel[0] * c.kernel[1];
    let (source, result) = match c.kind {
        ConvKind::Forward => (c.in_h * c.in_w, c.out_h * c.out_w),
        _ => (c.out_h * c.out_w, c.in_h * c.in_w),
    };
    // SAFETY: the filter, the channel and the result are as large as the sizes say.
    unsafe {
        let filter = c.rhs.cast::<T>().add(row % c.groups * taps);
        if !finite(std::slice::from_raw_parts(filter, taps)) {
            return false;
        }
        let src = c.lhs.cast::<T>().add(row * source);
        compute(src, cover, filter, c.out.cast::<T>().add(row * result));
    }
    true
}

/// One channel of one image: of the output, or of the input's gradient. Every
/// `step`-th column of a plan is one of the result. `offsets` are those of the taps of
/// each plan.
///
/// # Safety
/// As [`conv`]; `row` is below images times channels.
unsafe fn plane<T: Real + Number + Widen<T>>(
    kernels: &Kernels<T>,
    c: &ConvArgs<'_>,
    plans: &[Plan],
    offsets: &[Vec<usize>],
    (row, step): (usize, usize),
    weights: &mut Vec<T>,
) {
    let forward = c.kind == ConvKind::Forward;
    let [sy, sx] = if forward { [1, 1] } else { c.stride };
    let (height, width) = if forward { (c.out_h, c.out_w) } else { (c.in_h, c.in_w) };
    let taps = c.kernel[0] * c.kernel[1];
    // SAFETY: the filter, the channel and the result are as large as the sizes
    // say; the grids of `plans` are disjoint parts of the result.
    unsafe {
        let filter = c.rhs.cast::<T>().add(row % c.groups * taps);
        let out = c.out.cast::<T>().add(row * height * width);
        if !finite(std::slice::from_raw_parts(filter, taps)) {
            for at in 0..height * width {
                *out.add(at) = <T as Number>::narrow(simple::element::<T>(c, row, at));
            }
            return;
        }
        PLANES.with_borrow_mut(|[field, sums]| {
            for (g, plan) in plans.iter().enumerate() {
                let (rows, wide) = (plan.y.grid, plan.x.grid);
                if rows * wide == 0 {
                    continue;
                }
                let source = c.lhs.cast::<T>().add(row * plan.plane());
                plan.build::<T, T>(kernels, source, 1, (0, rows), field);
                weights.clear();
                for (ky, ..) in &plan.y.taps {
                    let line = filter.add(ky * c.kernel[1]);
                    weights.extend(plan.x.taps.iter().map(|(kx, ..)| *line.add(*kx)));
                }
                // The sums of whole rows of the field, of which the last ones
                // belong to no pixel.
                let n = (rows - 1) * plan.row() + wide;
                grow(sums, (n + MAX_LANES) * size_of::<T>());
                let (field, sums) = (field.as_ptr().cast::<T>(), sums.as_ptr().cast::<T>());
                (kernels.weighted)(field, &offsets[g], weights.as_ptr(), n, sums);
                if [sy, sx] == [1, 1] {
                    let rows = Rows { count: rows, from: plan.row(), to: width, low: 0 };
                    (kernels.lay)(sums, step, width, &rows, out);
                    continue;
                }
                for y in 0..rows {
                    let to = out.add((y * sy + g / sx) * width + g % sx);
                    (kernels.spread)(sums.add(y * plan.row()), 1, wide, to, sx);
                }
            }
        });
    }
}

/// A channel's filter gradient, image after image.
///
/// # Safety
/// As [`conv`]; `channel` exists.
unsafe fn grad_filter<T: Real + Widen<T>>(
    kernels: &Kernels<T>,
    c: &ConvArgs<'_>,
    plan: &Plan,
    offsets: &[usize],
    channel: usize,
) {
    let taps = c.kernel[0] * c.kernel[1];
    // SAFETY: the planes and the result are as large as the sizes say.
    unsafe {
        let out = c.out.cast::<T>().add(channel * taps);
        out.write_bytes(0, taps);
        let (rows, wide) = (plan.y.grid, plan.x.grid);
        if rows * wide == 0 {
            return;
        }
        PLANES.with_borrow_mut(|[field, _]| {
            for n in 0..c.batch {
                let at = n * c.groups + channel;
                let source = c.lhs.cast::<T>().add(at * plan.plane());
                let grad = c.rhs.cast::<T>().add(at * rows * wide);
                plan.build::<T, T>(kernels, source, 1, (0, rows), field);
                let field = field.as_ptr().cast::<T>();
                let sizes = [rows, wide, wide, plan.row()];
                (kernels.dots)(field, offsets, grad, sizes, out);
            }
        });
    }
}
