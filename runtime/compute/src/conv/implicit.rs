//! Convolutions as matrix products whose operands are gathered while packing.
//!
//! | kind | left | right | `k` |
//! |---|---|---|---|
//! | forward | filter | windows of the input | channels x taps |
//! | gradient of the input | filter, turned | windows of the output's gradient | channels x taps |
//! | gradient of the filter | output's gradient | taps of the input | pixels of all images |

use super::ConvArgs;
use super::across::Across;
use super::edges::{self, Inner};
use super::few;
use super::field::Plan;
use super::windows::{Filter, Pixels, Taps, Widen, Windows};
use super::winograd;
use crate::gemm::driver::{Rect, grow, rectangle};
use crate::gemm::kernel::{Kernels, MAX_LANES, Real};
use crate::gemm::pack::{Operand, Strided, rows_of};
use crate::gemm::prepack::{Layout, Wholes};
use crate::gemm::{BlockFn, Grid, half_rectangle, parts_for};
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

    /// # Safety
    /// As [`Inner::mend`].
    unsafe fn mend(
        inner: Inner,
        c: &ConvArgs<'_>,
        rows: Bounds,
        columns: Bounds,
        all_columns: usize,
    );

    /// Computes the convolution by [`winograd`] or [`few`], if it is one for these and comes out
    /// finite.
    ///
    /// # Safety
    /// As [`super::conv`], for elements `Self`.
    unsafe fn faster(_: &Kernels<T>, _: &Pool, _: &ConvArgs<'_>, _: Option<BlockFn<'_>>) -> bool {
        false
    }

    /// `dst[s * width + l] = src[rows[l] + s]`, rounded; see
    /// [`crate::gemm::pack::turn`]. A vector can be read wherever an element can.
    ///
    /// # Safety
    /// As there.
    unsafe fn turn_out(
        _: &Kernels<T>,
        src: *const T,
        rows: &[usize],
        (lanes, steps): (usize, usize),
        dst: *mut Self,
        width: usize,
    ) {
        for s in 0..steps {
            for (l, row) in rows.iter().enumerate().take(lanes) {
                // SAFETY: the caller's promise.
                unsafe { *dst.add(s * width + l) = Self::narrow(*src.add(row + s)) };
            }
        }
    }

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

macro_rules! mend {
    () => {
        unsafe fn mend(inner: Inner, c: &ConvArgs<'_>, rows: Bounds, columns: Bounds, all: usize) {
            // SAFETY: the caller's promise.
            unsafe { inner.mend::<Self>(c, rows, columns, all) }
        }
    };
}

macro_rules! same {
    ($($t:ty { $($own:item)* })*) => {$(
        impl Result<$t> for $t {
            $($own)*

            unsafe fn compute(
                kernels: &Kernels<$t>,
                rect: &Rect<'_, $t>,
                c: *mut $t,
                finished: Option<&dyn Fn(usize, usize, usize, usize)>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { rectangle(kernels, &Rect { c, finished, ..*rect }) }
            }

            mend!();

            unsafe fn turn_out(
                kernels: &Kernels<$t>, src: *const $t, rows: &[usize],
                (lanes, steps): (usize, usize), dst: *mut $t, width: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe { (kernels.turn)(src, rows, lanes, steps, true, width, dst) }
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

same! {
    f32 {
        unsafe fn faster(
            kernels: &Kernels<f32>,
            pool: &Pool,
            c: &ConvArgs<'_>,
            finished: Option<BlockFn<'_>>,
        ) -> bool {
            // SAFETY: the caller's promise.
            unsafe {
                winograd::conv(kernels, pool, c, finished)
                    || few::conv(kernels, pool, c, finished)
            }
        }
    }
    f64 {}
}

macro_rules! halves {
    ($($t:ty),*) => {$(
        impl Result<f32> for $t {
            unsafe fn compute(
                kernels: &Kernels<f32>,
                rect: &Rect<'_, f32>,
                c: *mut $t,
                finished: Option<&dyn Fn(usize, usize, usize, usize)>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { half_rectangle(kernels, rect, c, finished) }
            }

            mend!();
        }
    )*};
}

halves!(crate::half::f16, crate::half::bf16);

/// # Safety
/// As [`super::conv`], for elements `E`.
pub unsafe fn conv<T: Real, E: Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    // SAFETY: the caller's promise.
    unsafe {
        if c.kind == ConvKind::GradFilter {
            if E::faster(kernels, pool, c, finished) {
                return;
            }
            let apart = edges::not_finite::<T, E>(c);
            if !apart.is_empty() {
                return edges::grad_filter::<T, E>(kernels, pool, c, &apart, finished);
            }
        }
        product::<T, E>(kernels, pool, c, finished);
    }
}

/// The product as such; a filter's gradient is whatever it multiplies the padding by.
///
/// # Safety
/// As [`conv`].
pub(super) unsafe fn product<T: Real, E: Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    c: &ConvArgs<'_>,
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
            ConvKind::GradFilter => grad_filter::<T, E>(kernels, pool, c, finished),
            ConvKind::GradInput if c.stride != [1, 1] => {
                grad_input_by_grids::<T, E>(kernels, pool, c, finished);
            }
            _ if E::faster(kernels, pool, c, finished) => {}
            _ => by_windows::<T, E>(kernels, pool, c, finished),
        }
    }
}

/// Whether the windows are the image as it is. `pad` is that before the first
/// pixel; only the sizes tell of padding after the last.
fn whole(c: &ConvArgs<'_>) -> bool {
    c.kernel == [1, 1]
        && c.stride == [1, 1]
        && c.pad == [0, 0]
        && (c.in_h, c.in_w) == (c.out_h, c.out_w)
}

/// Parts worth making of `sizes` multiply-adds; gathering makes one dearer than in
/// a plain product.
fn parts_of(pool: &Pool, sizes: [usize; 4]) -> usize {
    let madds = sizes.iter().fold(1u64, |w, s| w.saturating_mul((*s).max(1) as u64));
    parts_for(pool, i64::try_from(madds / 16).unwrap_or(i64::MAX))
}

/// The forward convolution, and the gradient of the input at stride one: the same
/// with filter and image seen from the other side.
pub(super) struct ByWindows<'a, E> {
    pub(super) c: &'a ConvArgs<'a>,
    pub(super) plan: Plan,
    /// Channels of a group of the result, and of what is read.
    pub(super) to: usize,
    pub(super) from: usize,
    /// Vectors are of channels rather than of pixels, which are packed: of those there
    /// are few, and rows of them are too short for [`Across`], or the last vectors of them
    /// would be mostly empty.
    across: bool,
    finished: Option<BlockFn<'a>>,
    /// Where no padding is met, if there is some elsewhere.
    inner: Option<Inner>,
    _element: std::marker::PhantomData<E>,
}

// SAFETY: the operands are read only.
unsafe impl<E> Sync for ByWindows<'_, E> {}

/// Elements of a block of sums that is turned while in cache.
const TURNED: usize = 1 << 17;

impl<'a, E> ByWindows<'a, E> {
    pub(super) fn new(
        c: &'a ConvArgs<'a>,
        nr: usize,
        finished: Option<BlockFn<'a>>,
    ) -> ByWindows<'a, E> {
        let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
        let forward = c.kind == ConvKind::Forward;
        let plan = if forward { Plan::forward(c) } else { Plan::backward(c, [0, 0]) };
        let (to, from) = if forward { (co, ci) } else { (ci, co) };
        // What empty lanes cost, in percent. A last panel may be half as wide.
        let lanes = |n: usize| match n % nr {
            rest if (1..=nr / 2).contains(&rest) => n - rest + nr / 2,
            _ => n.next_multiple_of(nr),
        };
        let waste = |n: usize| lanes(n) * 100 / n;
        // Sums of vectors of channels are turned afterwards.
        let across = waste(to) + 12 < waste(plan.pixels());
        let (inner, _element) = (Inner::of(c), std::marker::PhantomData);
        ByWindows { c, plan, to, from, across, finished, inner, _element }
    }

    fn k(&self) -> usize {
        self.from * self.plan.taps()
    }

    /// See [`whole`].
    pub(super) fn whole(&self) -> bool {
        whole(self.c)
    }

    /// Hands on what is final of one group's part of an image: channels and pixels.
    ///
    /// # Safety
    /// It was just computed, and is this thread's.
    pub(super) unsafe fn hand_on<T: Real>(&self, part: usize, channels: Bounds, pixels: Bounds)
    where
        E: Result<T>,
    {
        let rows = (part * self.to + channels.0, part * self.to + channels.1);
        if let Some(inner) = self.inner {
            // SAFETY: the caller's promise.
            unsafe { E::mend(inner, self.c, rows, pixels, self.plan.pixels()) };
        }
        if let Some(f) = self.finished {
            f(rows.0, rows.1, pixels.0, pixels.1);
        }
    }

    /// Hands the filters of a group to `with`: lanes are channels of the result.
    pub(super) fn filters<T: Real>(&self, group: usize, with: &mut dyn FnMut(&dyn Operand<T>))
    where
        E: Result<T>,
        Strided<E>: Operand<T>,
    {
        let c = self.c;
        let size = self.to * self.from * c.kernel[0] * c.kernel[1];
        let start = c.rhs.cast::<E>().wrapping_add(group * size);
        match (c.kind == ConvKind::Forward, whole(c)) {
            (true, _) => with(&Strided { start, lane: self.k(), step: 1 }),
            (false, true) => with(&Strided { start, lane: 1, step: self.to }),
            (false, false) => with(&Filter {
                plan: &self.plan,
                start,
                kernel: c.kernel,
                channels: [self.to, self.from],
            }),
        }
    }

    /// One rectangle of one group's part of an image: channels and pixels.
    ///
    /// # Safety
    /// Both exist, and nobody else computes them.
    pub(super) unsafe fn compute<T: Real>(
        &self,
        kernels: &Kernels<T>,
        filters: &dyn Operand<T>,
        part: usize,
        channels: Bounds,
        pixels: Bounds,
    ) where
        E: Result<T>,
        Strided<E>: Operand<T>,
    {
        let (c, n) = (self.c, self.plan.pixels());
        let source = c.lhs.cast::<E>().wrapping_add(part * self.from * self.plan.plane());
        let (image, windows);
        let image: &dyn Operand<T> = if whole(c) {
            image = Strided { start: source, lane: 1, step: n };
            &image
        } else {
            windows = Windows { plan: &self.plan, source };
            &windows
        };
        let row = part * self.to;
        let out = c.out.cast::<E>().wrapping_add((row + channels.0) * n + pixels.0);
        let finished = |r0: usize, r1: usize, c0: usize, c1: usize| {
            // SAFETY: the block was just computed, and is this thread's.
            unsafe { self.hand_on::<T>(part, (r0, r1), (c0, c1)) };
        };
        let rect = Rect {
            rows: channels,
            columns: pixels,
            k: self.k(),
            a: filters,
            b: image,
            c: std::ptr::null_mut(),
            c_row: n,
            add: false,
            finished: None,
        };
        if !self.across {
            let finished: &dyn Fn(usize, usize, usize, usize) = &finished;
            let asked = self.inner.is_some() || self.finished.is_some();
            // SAFETY: the operands have these lanes and steps by the geometry.
            unsafe { E::compute(kernels, &rect, out, asked.then_some(finished)) };
            return;
        }
        let wide = channels.1 - channels.0;
        let block = (TURNED / wide).clamp(kernels.mr(), 240);
        SPARE.with_borrow_mut(|spare| {
            grow(spare, (block * wide + MAX_LANES) * size_of::<T>());
            let sums = spare.as_ptr().cast::<T>();
            for p0 in (pixels.0..pixels.1).step_by(block) {
                let p1 = (p0 + block).min(pixels.1);
                let rect = Rect {
                    rows: (p0, p1),
                    columns: channels,
                    a: image,
                    b: filters,
                    c: sums,
                    c_row: wide,
                    ..rect
                };
                // SAFETY: as above; the sums have room for the block and a vector.
                unsafe {
                    rectangle(kernels, &rect);
                    for p in (p0..p1).step_by(MAX_LANES) {
                        let lanes = MAX_LANES.min(p1 - p);
                        let rows = rows_of(lanes, |l| (p - p0 + l) * wide);
                        let out = out.add(p - pixels.0);
                        E::turn_out(kernels, sums, &rows, (lanes, wide), out, n);
                    }
                }
                finished(channels.0, channels.1, p0, p1);
            }
        });
    }
}

/// # Safety
/// As [`product`], for a convolution that is computed by windows.
unsafe fn by_windows<T: Real, E: Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    let job = ByWindows::<E>::new(c, kernels.nr, finished);
    let (m, n, k, matrices) = (job.to, job.plan.pixels(), job.k(), c.batch * c.groups);
    let mut parts = parts_of(pool, [m, n, k, matrices]);
    // Where windows are gathered and there are pixels enough, each part has pixels of its
    // own, and all filters.
    let pixels = !whole(c) && !job.across && n >= 2 * pool.threads() * kernels.nr;
    if m > n {
        // Each part gathers the pixels of others again, or reads the filters of others.
        parts = parts.min(pool.threads());
    }
    let seen = Across::of(kernels, &job);
    let width = if job.across || seen.is_some() { kernels.nr } else { kernels.even(m) };
    // The filters are packed once, not once for each image and rectangle.
    let layout = Layout { count: c.groups, lanes: m, k, width, turned: true };
    let stays = c.rhs_stays.filter(|_| c.kind == ConvKind::Forward);
    // SAFETY: the filters exist, and are the same whenever the caller says so.
    let filters = unsafe {
        Wholes::kept(pool, kernels, layout, stays, &|group, with| job.filters(group, with))
    };
    if let Some(seen) = seen {
        // SAFETY: passed on.
        return unsafe { seen.conv(kernels, pool, &job, &filters, parts) };
    }
    let run = |part: usize, channels: Bounds, pixels: Bounds| {
        let Some(filters) = filters.get(part % c.groups) else { return };
        // SAFETY: parts are disjoint.
        unsafe { job.compute::<T>(kernels, &filters, part, channels, pixels) };
    };
    if job.across {
        let grid = Grid::new(parts, matrices, (n, kernels.mr()), (m, width));
        grid.run(pool, &|part, pixels, channels| run(part, channels, pixels));
    } else {
        let grid = Grid::cut(parts, matrices, (m, width), (n, kernels.nr), n >= m || pixels);
        grid.run(pool, &run);
    }
}

type Bounds = (usize, usize);

/// The gradient of the input at strides beyond one. The input's pixels fall into
/// grids, each of which meets taps of its own; a grid's part of the result is
/// computed beside it and then spread out.
///
/// # Safety
/// As [`product`], for one of these.
unsafe fn grad_input_by_grids<T: Real, E: Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let (taps, plane) = (c.kernel[0] * c.kernel[1], c.in_h * c.in_w);
    let [sy, sx] = c.stride;
    let plans: Vec<Plan> = (0..sy * sx).map(|g| Plan::backward(c, [g / sx, g % sx])).collect();
    let parts = parts_of(pool, [ci, c.out_h * c.out_w, co * taps, c.batch * c.groups]);
    let inner = Inner::of(c);
    // A part has all columns, so that its rows are final when it ends.
    let grid = Grid::new(parts, c.batch * c.groups, (ci, kernels.even(ci)), (1, 1));
    let size = |part: usize| (ci, co * plans[part % plans.len()].taps());
    // SAFETY: the filters exist.
    let lefts = unsafe {
        let count = c.groups * plans.len();
        Wholes::new(pool, kernels, count, size, kernels.even(ci), &|part, with| {
            let start = c.rhs.cast::<E>().wrapping_add(part / plans.len() * co * ci * taps);
            let plan = &plans[part % plans.len()];
            with(&Filter { plan, start, kernel: c.kernel, channels: [ci, co] });
        })
    };
    grid.run(pool, &|matrix, rows, _| {
        let (image, group) = (matrix / c.groups, matrix % c.groups);
        let row_offset = (image * c.groups + group) * ci;
        let out = c.out.cast::<E>().wrapping_add((row_offset + rows.0) * plane);
        let source = c.lhs.cast::<E>().wrapping_add(matrix * co * c.out_h * c.out_w);
        let height = rows.1 - rows.0;
        if plans.iter().any(|plan| plan.taps() == 0) {
            // Pixels that no window reaches.
            for at in 0..height * plane {
                // SAFETY: these rows are the part's own.
                unsafe { *out.add(at) = E::narrow(T::default()) };
            }
        }
        for (g, plan) in plans.iter().enumerate() {
            let (n, wide) = (plan.pixels(), plan.x.grid);
            let Some(left) = lefts.get(group * plans.len() + g) else { continue };
            if n == 0 || plan.taps() == 0 {
                continue;
            }
            // As many rows of the grid at a time as stay in cache.
            let block = (TURNED / (height * wide)).clamp(1, plan.y.grid);
            for y0 in (0..plan.y.grid).step_by(block) {
                let y1 = (y0 + block).min(plan.y.grid);
                SPARE.with_borrow_mut(|spare| {
                    let columns = (y1 - y0) * wide;
                    grow(spare, height * columns * size_of::<T>());
                    let sums = spare.as_ptr().cast::<T>();
                    let rect = Rect {
                        rows,
                        columns: (y0 * wide, y1 * wide),
                        k: co * plan.taps(),
                        a: &left,
                        b: &Windows { plan, source },
                        c: sums,
                        c_row: columns,
                        add: false,
                        finished: None,
                    };
                    // SAFETY: the sums have room for the rectangle; every row of
                    // the grid is a part of a row of the result.
                    unsafe {
                        rectangle(kernels, &rect);
                        for (r, y) in (0..height).flat_map(|r| (y0..y1).map(move |y| (r, y))) {
                            let to = r * plane + (y * sy + g / sx) * c.in_w + g % sx;
                            let from = sums.add(r * columns + (y - y0) * wide);
                            E::scatter(kernels, from, wide, out.add(to), sx);
                        }
                    }
                });
            }
        }
        let rows = (row_offset + rows.0, row_offset + rows.1);
        if let Some(inner) = inner {
            // SAFETY: these rows were just computed, and are this thread's.
            unsafe { E::mend(inner, c, rows, (0, plane), plane) };
        }
        if let Some(f) = finished {
            f(rows.0, rows.1, 0, plane);
        }
    });
}

/// # Safety
/// As [`product`], for the gradient of a filter.
unsafe fn grad_filter<T: Real, E: Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let (in_plane, out_plane) = (c.in_h * c.in_w, c.out_h * c.out_w);
    let plan = Plan::forward(c);
    let (m, n, k) = (co, ci * plan.taps(), c.batch * out_plane);
    let parts = parts_of(pool, [m, n, k, c.groups]);
    let grid = Grid::new(parts, c.groups, (m, kernels.mr()), (n, kernels.nr));
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
            add: false,
            finished: None,
        };
        let out = c.out.cast::<E>().wrapping_add((row_offset + rows.0) * n + columns.0);
        // SAFETY: the operands have these lanes and steps by the geometry;
        // rectangles of the result are disjoint.
        unsafe { E::compute(kernels, &rect, out, finished.is_some().then_some(&shifted)) };
    });
}
