//! What windows read, laid out so that they read it without looking.
//!
//! A convolution reads its source (the input, or the output's gradient) at
//! places that depend on stride, dilation and padding. A *field* is a copy of some
//! rows of some channels with the padding written out and the columns and rows
//! of a stride brought together, so that the pixels of a grid row, seen through
//! any tap of the filter, lie side by side:
//!
//! ```text
//! value(channel, tap, y, x) = field[channel * channel_size + tap_offset + y * row + x]
//! ```
//!
//! Along an axis, the source coordinates that a tap needs are `i * step + slot`
//! for entries `i` of one *slot*. Forward, there is a slot for every remainder
//! by the stride that some tap has, and the step is the stride. For the gradient
//! of the input, the pixels of the input fall into as many grids as the stride
//! (in each direction), and each grid meets only those taps that fit; there is
//! one slot and the step is one.

use super::ConvArgs;
use super::windows::Widen;
use crate::gemm::kernel::{Kernels, MAX_LANES, Real, Rows};
use crate::mem::Bytes;

/// One axis of a field.
pub struct Axis {
    /// Taps that take part: which, the slot they read, how many entries in.
    pub taps: Vec<(usize, usize, usize)>,
    slots: Vec<isize>,
    step: usize,
    /// Coordinates of the grid.
    pub grid: usize,
    /// Entries of a slot beyond those of the grid.
    reach: usize,
    /// Coordinates of the source.
    size: usize,
}

impl Axis {
    /// The input, for the output's pixels.
    pub fn forward(c: &ConvArgs<'_>, a: usize) -> Axis {
        let (size, grid) = if a == 0 { (c.in_h, c.out_h) } else { (c.in_w, c.out_w) };
        let mut axis =
            Axis { taps: vec![], slots: vec![], step: c.stride[a], grid, reach: 0, size };
        for k in 0..c.kernel[a] {
            let at = k * c.dilation[a];
            let first = (at % axis.step) as isize - c.pad[a] as isize;
            let known = axis.slots.iter().position(|s| *s == first);
            let slot = known.unwrap_or(axis.slots.len());
            if known.is_none() {
                axis.slots.push(first);
            }
            axis.taps.push((k, slot, at / axis.step));
        }
        axis.reach = axis.taps.iter().map(|t| t.2).max().unwrap_or(0);
        axis
    }

    /// As [`Axis::forward`], but in one slot: output pixel `o` is `o * stride` of
    /// a grid of all pixels.
    pub fn dense(c: &ConvArgs<'_>, a: usize) -> Axis {
        let one = ConvArgs { stride: [1, 1], ..*c };
        let mut axis = Axis::forward(&one, a);
        axis.grid = (axis.grid.max(1) - 1) * c.stride[a] + axis.grid.min(1);
        axis
    }

    /// The output's gradient, for the input's pixels `grid`, `grid + stride`, ..
    pub fn backward(c: &ConvArgs<'_>, a: usize, grid: usize) -> Axis {
        let (input, size) = if a == 0 { (c.in_h, c.out_h) } else { (c.in_w, c.out_w) };
        let stride = c.stride[a] as isize;
        let fits: Vec<(usize, isize)> = (0..c.kernel[a])
            .map(|k| (k, (grid + c.pad[a]) as isize - (k * c.dilation[a]) as isize))
            .filter(|(_, at)| at % stride == 0)
            .map(|(k, at)| (k, at / stride))
            .collect();
        let least = fits.iter().map(|t| t.1).min().unwrap_or(0);
        let most = fits.iter().map(|t| t.1).max().unwrap_or(0);
        Axis {
            taps: fits.iter().map(|(k, at)| (*k, 0, (at - least) as usize)).collect(),
            slots: vec![least],
            step: 1,
            grid: input.saturating_sub(grid).div_ceil(c.stride[a]),
            reach: (most - least) as usize,
            size,
        }
    }

    /// The entries of `slot` that are in the source, of `count` from `first` on:
    /// their bounds, and the source coordinate of the first of them.
    fn inside(&self, slot: usize, first: usize, count: usize) -> (usize, usize, usize) {
        let start = (first * self.step) as isize + self.slots[slot];
        let step = self.step as isize;
        let entries = |room: isize| (room.max(0) as usize).div_ceil(self.step).min(count);
        let low = entries(-start);
        let high = entries(self.size as isize - start).max(low);
        (low, high, (start + low as isize * step).max(0) as usize)
    }
}

/// Both axes, and the sizes of one image.
pub struct Plan {
    pub y: Axis,
    pub x: Axis,
    /// Rows and columns of the source, which are those of its channels.
    source: [usize; 2],
}

impl Plan {
    pub fn forward(c: &ConvArgs<'_>) -> Plan {
        Plan { y: Axis::forward(c, 0), x: Axis::forward(c, 1), source: [c.in_h, c.in_w] }
    }

    /// As [`Plan::forward`], with the columns between those of the output.
    pub fn dense_columns(c: &ConvArgs<'_>) -> Plan {
        Plan { x: Axis::dense(c, 1), ..Plan::forward(c) }
    }

    /// For the input's pixels whose coordinates by the stride leave `rest`.
    pub fn backward(c: &ConvArgs<'_>, rest: [usize; 2]) -> Plan {
        let (y, x) = (Axis::backward(c, 0, rest[0]), Axis::backward(c, 1, rest[1]));
        Plan { y, x, source: [c.out_h, c.out_w] }
    }

    /// Taps that take part.
    pub fn taps(&self) -> usize {
        self.y.taps.len() * self.x.taps.len()
    }

    /// Pixels of the grid.
    pub fn pixels(&self) -> usize {
        self.y.grid * self.x.grid
    }

    /// Elements from grid row to grid row.
    pub fn row(&self) -> usize {
        self.x.grid + self.x.reach
    }

    /// Elements of a channel, for `rows` rows of the grid.
    pub fn channel(&self, rows: usize) -> usize {
        self.y.slots.len() * self.x.slots.len() * (rows + self.y.reach) * self.row()
    }

    /// Elements of a channel of the source.
    pub fn plane(&self) -> usize {
        self.source[0] * self.source[1]
    }

    /// Where each tap starts in a channel of `rows` rows of the grid, in order.
    pub fn offsets(&self, rows: usize) -> Vec<usize> {
        let slot = (rows + self.y.reach) * self.row();
        let mut out = Vec::with_capacity(self.taps());
        for (_, ys, y) in &self.y.taps {
            for (_, xs, x) in &self.x.taps {
                out.push((ys * self.x.slots.len() + xs) * slot + y * self.row() + x);
            }
        }
        out
    }

    /// The field of `channels` channels from `source` on, for `rows` rows of the
    /// grid from `y` on. It can be read a vector beyond its end.
    ///
    /// # Safety
    /// The channels exist.
    pub unsafe fn build<T: Real, E: Widen<T>>(
        &self,
        kernels: &Kernels<T>,
        source: *const E,
        channels: usize,
        (y, rows): (usize, usize),
        field: &mut Bytes,
    ) {
        let len = channels * self.channel(rows);
        crate::gemm::driver::grow(field, (len + MAX_LANES) * size_of::<T>());
        // SAFETY: the field has room for these channels.
        unsafe { self.build_at(kernels, source, channels, (y, rows), field.as_ptr().cast()) };
    }

    /// As [`Plan::build`], to memory that there is.
    ///
    /// # Safety
    /// As there; `dst` is valid for what [`Plan::channel`] counts.
    pub unsafe fn build_at<T: Real, E: Widen<T>>(
        &self,
        kernels: &Kernels<T>,
        source: *const E,
        channels: usize,
        (y, rows): (usize, usize),
        dst: *mut T,
    ) {
        let (height, width) = (rows + self.y.reach, self.row());
        let mut dst = dst;
        let columns: Vec<_> = (0..self.x.slots.len()).map(|s| self.x.inside(s, 0, width)).collect();
        // SAFETY: the field has room for what `channel` counts, of which each
        // round of the loops writes its own part; `inside` gives only rows and
        // columns that the source has.
        unsafe {
            for channel in 0..channels {
                let source = source.add(channel * self.plane());
                for ys in 0..self.y.slots.len() {
                    let (top, bottom, first) = self.y.inside(ys, y, height);
                    for (low, high, column) in &columns {
                        if top > 0 {
                            dst.write_bytes(0, top * width);
                        }
                        let (src, count) =
                            (source.wrapping_add(first * self.source[1]), high - low);
                        let rows = Rows {
                            count: bottom - top,
                            from: self.y.step * self.source[1],
                            to: width,
                            low: *low,
                        };
                        let src = if count == 0 { source } else { src.add(*column) };
                        if rows.count > 0 {
                            E::lay(kernels, src, self.x.step, count, &rows, dst.add(top * width));
                        }
                        if bottom < height {
                            dst.add(bottom * width).write_bytes(0, (height - bottom) * width);
                        }
                        dst = dst.add(height * width);
                    }
                }
            }
        }
    }
}
