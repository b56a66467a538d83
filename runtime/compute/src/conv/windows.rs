//! Operands of convolutions: matrices that exist only while they are packed.

use super::ConvArgs;
use super::field::Plan;
use crate::gemm::driver::KC;
use crate::gemm::kernel::{Kernels, MAX_LANES, Real, Rows};
use crate::gemm::pack::{Operand, each_panel, rows_of};
use crate::half::{bf16, f16};
use crate::mem::Bytes;
use std::cell::RefCell;

thread_local! {
    static FIELD: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
}

/// An element in memory that is computed with as a `T`.
pub trait Widen<T>: Copy + Send + Sync {
    fn widen(self) -> T;
    fn narrow(value: T) -> Self;

    /// As [`crate::gemm::taps::lay`].
    ///
    /// # Safety
    /// As there.
    unsafe fn lay(
        _: &Kernels<T>,
        src: *const Self,
        step: usize,
        count: usize,
        rows: &Rows,
        dst: *mut T,
    ) {
        for r in 0..rows.count {
            // SAFETY: the caller's promise.
            unsafe {
                let (src, dst) = (src.add(r * rows.from), dst.add(r * rows.to));
                dst.write_bytes(0, rows.to);
                for i in 0..count {
                    *dst.add(rows.low + i) = (*src.add(i * step)).widen();
                }
            }
        }
    }

    /// As [`crate::gemm::pack::turn`].
    ///
    /// # Safety
    /// As there.
    #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
    unsafe fn turn(
        _: &Kernels<T>,
        base: *const Self,
        rows: &[usize],
        lanes: usize,
        steps: usize,
        _: bool,
        width: usize,
        panel: *mut T,
    ) {
        for s in 0..steps {
            for (l, row) in rows.iter().enumerate().take(lanes) {
                // SAFETY: the caller's promise.
                unsafe { *panel.add(s * width + l) = (*base.add(row + s)).widen() };
            }
        }
    }
}

macro_rules! same {
    ($($t:ty),*) => {$(
        impl Widen<$t> for $t {
            fn widen(self) -> $t {
                self
            }

            fn narrow(value: $t) -> $t {
                value
            }

            unsafe fn lay(
                kernels: &Kernels<$t>, src: *const $t, step: usize, count: usize, rows: &Rows,
                dst: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { (kernels.lay)(src, step, count, rows, dst) };
            }

            unsafe fn turn(
                kernels: &Kernels<$t>, base: *const $t, rows: &[usize], lanes: usize,
                steps: usize, slack: bool, width: usize, panel: *mut $t,
            ) {
                // SAFETY: the caller's promise.
                unsafe { (kernels.turn)(base, rows, lanes, steps, slack, width, panel) };
            }
        }
    )*};
}

same!(f32, f64);

macro_rules! widen {
    ($($e:ty),*) => {$(
        impl Widen<f32> for $e {
            fn widen(self) -> f32 {
                self.to_f32()
            }

            fn narrow(value: f32) -> $e {
                <$e>::from_f32(value)
            }
        }
    )*};
}

widen!(f16, bf16);

/// Lanes are the pixels of a grid, steps are (channel, tap): the right operand of
/// a forward convolution (pixels of the output, read from the input) and of the
/// gradient of the input (pixels of the input, read from the output's gradient).
pub struct Windows<'a, E> {
    pub plan: &'a Plan,
    /// The group's first channel of the image.
    pub source: *const E,
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Windows<'_, E> {}

/// Most vectors that a panel is put together from: one for each lane, when every
/// grid row is one pixel.
const MAX_MOVES: usize = 32;

impl<T: Real, E: Widen<T>> Operand<T> for Windows<'_, E> {
    unsafe fn pack(
        &self,
        kernels: &Kernels<T>,
        (lane, lanes): (usize, usize),
        (step, steps): (usize, usize),
        width: usize,
        panels: *mut T,
    ) {
        let (plan, taps) = (self.plan, self.plan.taps());
        if steps == 0 || lanes == 0 {
            return;
        }
        let (vector, grid) = (kernels.nr / 2, plan.x.grid);
        let (top, bottom) = (lane / grid, (lane + lanes).div_ceil(grid));
        let (first, last) = (step / taps, (step + steps).div_ceil(taps));
        let (channel, offsets) = (plan.channel(bottom - top), plan.offsets(bottom - top));
        let mut starts = [0; KC];
        for (p, start) in starts[..steps].iter_mut().enumerate() {
            *start = ((step + p) / taps - first) * channel + offsets[(step + p) % taps];
        }
        FIELD.with_borrow_mut(|field| {
            let source = self.source.wrapping_add(first * plan.plane());
            // SAFETY: the steps' channels and the lanes' rows exist.
            unsafe {
                plan.build::<T, E>(kernels, source, last - first, (top, bottom - top), field);
            }
            let field = field.as_ptr().cast_const().cast::<T>();
            each_panel((lane, lanes), steps, width, panels, |lane, lanes, panel| {
                let (mut moves, mut count) = ([(0, 0); MAX_MOVES], 0);
                let mut done = 0;
                while done < lanes {
                    let (y, x) = ((lane + done) / grid - top, (lane + done) % grid);
                    let run = (grid - x).min(lanes - done);
                    for v in (0..run).step_by(vector) {
                        moves[count] = (y * plan.row() + x + v, done + v);
                        count += 1;
                    }
                    done += run;
                }
                // SAFETY: the moves are inside the field, or less than a vector
                // beyond it; the caller promises the panel.
                unsafe { (kernels.moves)(field, &moves[..count], &starts[..steps], width, panel) };
            });
        });
    }
}

/// The filter as the left operand of the input's gradient: lanes are input
/// channels, steps are (output channel, tap that takes part).
pub struct Filter<'a, E> {
    pub plan: &'a Plan,
    /// The first filter of the group.
    pub start: *const E,
    /// Rows and columns of a filter.
    pub kernel: [usize; 2],
    /// Input and output channels of a group.
    pub channels: [usize; 2],
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Filter<'_, E> {}

impl<T: Real, E: Widen<T>> Operand<T> for Filter<'_, E> {
    unsafe fn pack(
        &self,
        kernels: &Kernels<T>,
        lanes: (usize, usize),
        (step, steps): (usize, usize),
        width: usize,
        panels: *mut T,
    ) {
        let taps = self.kernel[0] * self.kernel[1];
        let mut part = vec![];
        for (ky, ..) in &self.plan.y.taps {
            for (kx, ..) in &self.plan.x.taps {
                part.push(ky * self.kernel[1] + kx);
            }
        }
        let mut turned = vec![T::default(); taps * width];
        let len = self.channels[0] * self.channels[1] * taps;
        each_panel(lanes, steps, width, panels, |lane, lanes, panel| {
            let rows = rows_of(lanes, |l| (lane + l) * taps);
            let mut p = 0;
            while p < steps {
                let (o, tap) = ((step + p) / part.len(), (step + p) % part.len());
                let run = (part.len() - tap).min(steps - p);
                // SAFETY: the caller's promise: the filters exist, the panel has
                // room, and so have the turned taps.
                unsafe {
                    let at = o * self.channels[0] * taps;
                    let (base, dst) = (self.start.add(at), panel.add(p * width));
                    // Whether a vector from the last tap is still in the filters.
                    let slack = at + rows[lanes - 1] + taps + MAX_LANES <= len;
                    if part.len() == taps {
                        E::turn(kernels, base.add(tap), &rows, lanes, run, slack, width, dst);
                    } else {
                        let all = turned.as_mut_ptr();
                        E::turn(kernels, base, &rows, lanes, taps, slack, width, all);
                        for (q, t) in part[tap..tap + run].iter().enumerate() {
                            dst.add(q * width).copy_from_nonoverlapping(all.add(t * width), lanes);
                        }
                    }
                }
                p += run;
            }
        });
    }
}

/// Steps are the output's pixels of all images. As the left operand of the
/// filter's gradient, lanes are output channels.
pub struct Pixels<E> {
    /// The group's first channel of the first image.
    pub start: *const E,
    /// Elements between images.
    pub image: usize,
    /// Pixels of a channel.
    pub plane: usize,
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Pixels<E> {}

impl<T: Real, E: Widen<T>> Operand<T> for Pixels<E> {
    unsafe fn pack(
        &self,
        kernels: &Kernels<T>,
        lanes: (usize, usize),
        (step, steps): (usize, usize),
        width: usize,
        panels: *mut T,
    ) {
        each_panel(lanes, steps, width, panels, |lane, lanes, panel| {
            let rows = rows_of(lanes, |l| (lane + l) * self.plane);
            let mut p = 0;
            while p < steps {
                let (n, pixel) = ((step + p) / self.plane, (step + p) % self.plane);
                let run = (self.plane - pixel).min(steps - p);
                // SAFETY: the caller's promise.
                unsafe {
                    let base = self.start.add(n * self.image + pixel);
                    E::turn(kernels, base, &rows, lanes, run, false, width, panel.add(p * width));
                }
                p += run;
            }
        });
    }
}

/// The right operand of the filter's gradient: lanes are (input channel, tap),
/// steps are the output's pixels of all images.
pub struct Taps<'a, E> {
    pub plan: &'a Plan,
    /// The group's first channel of the first image.
    pub start: *const E,
    /// Elements between images.
    pub image: usize,
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Taps<'_, E> {}

impl<T: Real, E: Widen<T>> Operand<T> for Taps<'_, E> {
    unsafe fn pack(
        &self,
        kernels: &Kernels<T>,
        (lane, lanes): (usize, usize),
        (step, steps): (usize, usize),
        width: usize,
        panels: *mut T,
    ) {
        let (plan, taps, grid) = (self.plan, self.plan.taps(), self.plan.x.grid);
        let (first, last) = (lane / taps, (lane + lanes).div_ceil(taps));
        FIELD.with_borrow_mut(|field| {
            let mut p = 0;
            while p < steps {
                // The pixels of one image.
                let (n, pixel) = ((step + p) / plan.pixels(), (step + p) % plan.pixels());
                let count = (plan.pixels() - pixel).min(steps - p);
                let (top, bottom) = (pixel / grid, (pixel + count).div_ceil(grid));
                let (channel, offsets) = (plan.channel(bottom - top), plan.offsets(bottom - top));
                let source = self.start.wrapping_add(n * self.image + first * plan.plane());
                // SAFETY: the lanes' channels and the pixels' rows exist.
                unsafe {
                    plan.build::<T, E>(kernels, source, last - first, (top, bottom - top), field);
                }
                let field = field.as_ptr().cast_const().cast::<T>();
                for l in (0..lanes).step_by(width) {
                    let here = width.min(lanes - l);
                    let rows = rows_of(here, |q| {
                        let at = lane + l + q;
                        (at / taps - first) * channel + offsets[at % taps]
                    });
                    let mut q = 0;
                    while q < count {
                        let (y, x) = ((pixel + q) / grid - top, (pixel + q) % grid);
                        let run = (grid - x).min(count - q);
                        // SAFETY: a vector can be read wherever the field has an
                        // element; the caller promises the panel.
                        unsafe {
                            let base = field.add(y * plan.row() + x);
                            let dst = panels.add(l * steps + (p + q) * width);
                            (kernels.turn)(base, &rows, here, run, true, width, dst);
                        }
                        q += run;
                    }
                }
                p += count;
            }
        });
        // Zeros beyond the last lane.
        each_panel((lane, lanes), steps, width, panels, |_, _, _| ());
    }
}

impl<E> Taps<'_, E> {
    pub fn new<'a>(c: &ConvArgs<'_>, plan: &'a Plan, start: *const E) -> Taps<'a, E> {
        Taps { plan, start, image: c.in_channels * c.in_h * c.in_w }
    }
}
