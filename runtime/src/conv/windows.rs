//! Operands of convolutions: matrices that exist only while they are packed.

use super::ConvArgs;
use crate::gemm::pack::{Operand, pad};
use crate::half::{bf16, f16};

/// An element in memory that is computed with as a `T`.
pub trait Widen<T>: Copy + Send + Sync {
    fn widen(self) -> T;
    fn narrow(value: T) -> Self;
}

macro_rules! widen {
    ($($e:ty => $t:ty, $f:expr, $back:expr;)*) => {$(
        impl Widen<$t> for $e {
            #[inline(always)]
            fn widen(self) -> $t {
                ($f)(self)
            }

            fn narrow(value: $t) -> $e {
                ($back)(value)
            }
        }
    )*};
}

widen! {
    f32 => f32, |x| x, |x| x;
    f64 => f64, |x| x, |x| x;
    f16 => f32, f16::to_f32, f16::from_f32;
    bf16 => f32, bf16::to_f32, bf16::from_f32;
}

/// How a grid coordinate and a tap of the filter give a coordinate of the source,
/// along one axis: `t = grid * mul + tap * tap_mul + offset`, which must be a
/// multiple of `div` and, divided, less than `size`.
#[derive(Clone, Copy)]
struct Axis {
    mul: isize,
    tap_mul: isize,
    offset: isize,
    div: isize,
    size: isize,
}

impl Axis {
    #[inline(always)]
    fn at(&self, grid: usize, tap: usize) -> isize {
        grid as isize * self.mul + tap as isize * self.tap_mul + self.offset
    }

    /// The source coordinate for `t`, if there is one.
    #[inline(always)]
    fn source(&self, t: isize) -> Option<isize> {
        if self.div == 1 {
            return (t >= 0 && t < self.size).then_some(t);
        }
        (t >= 0 && t % self.div == 0 && t / self.div < self.size).then_some(t / self.div)
    }
}

/// Lanes are the pixels of a grid, steps are (channel, tap): the right operand of
/// a forward convolution (pixels of the output, read from the input) and of the
/// gradient of the input (pixels of the input, read from the output's gradient).
pub struct Windows<E> {
    source: *const E,
    /// Elements of a channel.
    plane: usize,
    source_w: usize,
    grid_w: usize,
    taps: [usize; 2],
    y: Axis,
    x: Axis,
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Windows<E> {}

impl<E> Windows<E> {
    /// Windows on an image of the input, for the output's pixels.
    pub fn forward(c: &ConvArgs, source: *const E) -> Windows<E> {
        let axis = |a: usize, size: usize| Axis {
            mul: c.stride[a] as isize,
            tap_mul: c.dilation[a] as isize,
            offset: -(c.pad[a] as isize),
            div: 1,
            size: size as isize,
        };
        Windows {
            source,
            plane: c.in_h * c.in_w,
            source_w: c.in_w,
            grid_w: c.out_w,
            taps: c.kernel,
            y: axis(0, c.in_h),
            x: axis(1, c.in_w),
        }
    }

    /// Windows on the output's gradient, for the input's pixels.
    pub fn backward(c: &ConvArgs, source: *const E) -> Windows<E> {
        let axis = |a: usize, size: usize| Axis {
            mul: 1,
            tap_mul: -(c.dilation[a] as isize),
            offset: c.pad[a] as isize,
            div: c.stride[a] as isize,
            size: size as isize,
        };
        Windows {
            source,
            plane: c.out_h * c.out_w,
            source_w: c.out_w,
            grid_w: c.in_w,
            taps: c.kernel,
            y: axis(0, c.out_h),
            x: axis(1, c.out_w),
        }
    }

    /// `count` pixels of one grid row, from `(y, x)`, for one step.
    ///
    /// # Safety
    /// `dst` is valid for `count` elements; the step exists.
    #[inline(always)]
    unsafe fn run<T: Copy + Default>(
        &self,
        (channel, ky, kx): (usize, usize, usize),
        (y, x): (usize, usize),
        count: usize,
        dst: *mut T,
    ) where
        E: Widen<T>,
    {
        // SAFETY: `source` checks every coordinate; the caller promises `dst`.
        unsafe {
            let Some(row) = self.y.source(self.y.at(y, ky)) else {
                for l in 0..count {
                    *dst.add(l) = T::default();
                }
                return;
            };
            let row = self.source.add(channel * self.plane + row as usize * self.source_w);
            let first = self.x.at(x, kx);
            let steps = self.x.mul == 1 && self.x.div == 1;
            if steps && first >= 0 && first + count as isize <= self.x.size {
                let src = row.offset(first);
                if count == 16 {
                    for l in 0..16 {
                        *dst.add(l) = (*src.add(l)).widen();
                    }
                } else {
                    for l in 0..count {
                        *dst.add(l) = (*src.add(l)).widen();
                    }
                }
                return;
            }
            for l in 0..count {
                let t = first + l as isize * self.x.mul;
                *dst.add(l) = match self.x.source(t) {
                    Some(i) => (*row.offset(i)).widen(),
                    None => T::default(),
                };
            }
        }
    }
}

impl<T: Copy + Default, E: Widen<T>> Operand<T> for Windows<E> {
    unsafe fn pack(
        &self,
        lane: usize,
        lanes: usize,
        step: usize,
        steps: usize,
        width: usize,
        panel: *mut T,
    ) {
        let taps = self.taps[0] * self.taps[1];
        let (mut channel, tap) = (step / taps, step % taps);
        let (mut ky, mut kx) = (tap / self.taps[1], tap % self.taps[1]);
        let (y0, x0) = (lane / self.grid_w, lane % self.grid_w);
        for p in 0..steps {
            let dst = panel.wrapping_add(p * width);
            let (mut y, mut x, mut done) = (y0, x0, 0);
            while done < lanes {
                let count = (self.grid_w - x).min(lanes - done);
                // SAFETY: the caller's promise.
                unsafe { self.run((channel, ky, kx), (y, x), count, dst.add(done)) };
                done += count;
                y += 1;
                x = 0;
            }
            kx += 1;
            if kx == self.taps[1] {
                kx = 0;
                ky += 1;
                if ky == self.taps[0] {
                    ky = 0;
                    channel += 1;
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { pad(panel, lanes, steps, width) };
    }
}

/// The filter as the left operand of the input's gradient: lanes are input
/// channels, steps are (output channel, tap).
pub struct Filter<E> {
    /// The first filter of the group.
    pub start: *const E,
    pub taps: usize,
    /// Input channels of a group.
    pub channels: usize,
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Filter<E> {}

impl<T: Copy + Default, E: Widen<T>> Operand<T> for Filter<E> {
    unsafe fn pack(
        &self,
        lane: usize,
        lanes: usize,
        step: usize,
        steps: usize,
        width: usize,
        panel: *mut T,
    ) {
        for p in 0..steps {
            let (o, tap) = ((step + p) / self.taps, (step + p) % self.taps);
            for l in 0..lanes {
                let at = (o * self.channels + lane + l) * self.taps + tap;
                // SAFETY: the caller's promise.
                unsafe { *panel.add(p * width + l) = (*self.start.add(at)).widen() };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { pad(panel, lanes, steps, width) };
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

impl<T: Copy + Default, E: Widen<T>> Operand<T> for Pixels<E> {
    unsafe fn pack(
        &self,
        lane: usize,
        lanes: usize,
        step: usize,
        steps: usize,
        width: usize,
        panel: *mut T,
    ) {
        let mut p = 0;
        while p < steps {
            let (n, pixel) = ((step + p) / self.plane, (step + p) % self.plane);
            let run = (self.plane - pixel).min(steps - p);
            for l in 0..lanes {
                let at = n * self.image + (lane + l) * self.plane + pixel;
                for q in 0..run {
                    // SAFETY: the caller's promise.
                    unsafe {
                        *panel.add((p + q) * width + l) = (*self.start.add(at + q)).widen();
                    }
                }
            }
            p += run;
        }
        // SAFETY: the caller's promise.
        unsafe { pad(panel, lanes, steps, width) };
    }
}

/// The right operand of the filter's gradient: lanes are (input channel, tap),
/// steps are the output's pixels of all images.
pub struct Taps<'a, E> {
    pub conv: &'a ConvArgs,
    /// The group's first channel of the first image.
    pub start: *const E,
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Taps<'_, E> {}

impl<T: Copy + Default, E: Widen<T>> Operand<T> for Taps<'_, E> {
    unsafe fn pack(
        &self,
        lane: usize,
        lanes: usize,
        step: usize,
        steps: usize,
        width: usize,
        panel: *mut T,
    ) {
        let c = self.conv;
        let (taps, plane) = (c.kernel[0] * c.kernel[1], c.out_h * c.out_w);
        for l in 0..lanes {
            let (channel, tap) = ((lane + l) / taps, (lane + l) % taps);
            let (ky, kx) = (tap / c.kernel[1], tap % c.kernel[1]);
            let mut p = 0;
            while p < steps {
                let (n, pixel) = ((step + p) / plane, (step + p) % plane);
                let (y, x) = (pixel / c.out_w, pixel % c.out_w);
                let run = (c.out_w - x).min(steps - p);
                let row = c
                    .input_at(0, y, ky)
                    .map(|iy| ((n * c.in_channels + channel) * c.in_h + iy) * c.in_w);
                for q in 0..run {
                    let value = match (row, c.input_at(1, x + q, kx)) {
                        // SAFETY: the coordinates are inside the image.
                        (Some(row), Some(ix)) => unsafe { (*self.start.add(row + ix)).widen() },
                        _ => T::default(),
                    };
                    // SAFETY: the caller's promise.
                    unsafe { *panel.add((p + q) * width + l) = value };
                }
                p += run;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { pad(panel, lanes, steps, width) };
    }
}
