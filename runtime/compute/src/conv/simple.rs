//! Convolutions by plain loops, one result element at a time: integers, and what
//! the faster ways are tested against.

use super::ConvArgs;
use crate::gemm::BlockFn;
use crate::gemm::simple::Number;
use crate::pool::Pool;
use tfc_abi::plan::ConvKind;

/// # Safety
/// As [`super::conv`], for elements `T`.
pub unsafe fn conv<T: Number>(pool: &Pool, c: &ConvArgs<'_>, finished: Option<BlockFn<'_>>) {
    let (rows, columns) = match c.kind {
        ConvKind::Forward => (c.batch * c.out_channels, c.out_h * c.out_w),
        ConvKind::GradInput => (c.batch * c.in_channels, c.in_h * c.in_w),
        ConvKind::GradFilter => {
            (c.out_channels, c.in_channels / c.groups * c.kernel[0] * c.kernel[1])
        }
    };
    if rows == 0 || columns == 0 {
        return;
    }
    let taps = c.kernel[0] * c.kernel[1];
    let each = match c.kind {
        ConvKind::Forward => c.in_channels / c.groups * taps,
        ConvKind::GradInput => c.out_channels / c.groups * taps,
        ConvKind::GradFilter => c.batch * c.out_h * c.out_w,
    };
    let cost = (rows as i64).saturating_mul(columns as i64).saturating_mul(each as i64 + 1);
    let parts = pool.parts_for(rows, cost.saturating_mul(2));
    pool.ranges(rows, 1, parts, &|lo, hi| {
        for row in lo..hi {
            for column in 0..columns {
                // SAFETY: the caller's promise; result rows are disjoint.
                unsafe {
                    let sum = element::<T>(c, row, column);
                    *c.out.cast::<T>().add(row * columns + column) = T::narrow(sum);
                }
            }
        }
        if let Some(finished) = finished {
            finished(lo, hi, 0, columns);
        }
    });
}

/// One element of the result.
///
/// # Safety
/// As [`conv`]; row and column are in range.
pub unsafe fn element<T: Number>(c: &ConvArgs<'_>, row: usize, column: usize) -> T::Sum {
    // SAFETY: the caller's promise.
    unsafe {
        match c.kind {
            ConvKind::Forward => forward::<T>(c, row, column),
            ConvKind::GradInput => grad_input::<T>(c, row, column),
            ConvKind::GradFilter => grad_filter::<T>(c, row, column),
        }
    }
}

impl ConvArgs<'_> {
    /// The input coordinate output `o` reads through tap `k`, unless in padding.
    #[inline]
    pub fn input_at(&self, axis: usize, o: usize, k: usize) -> Option<usize> {
        let size = if axis == 0 { self.in_h } else { self.in_w };
        let at = o * self.stride[axis] + k * self.dilation[axis];
        at.checked_sub(self.pad[axis]).filter(|i| *i < size)
    }

    /// The output coordinate that reads input `i` through tap `k`, if any.
    #[inline]
    pub fn output_at(&self, axis: usize, i: usize, k: usize) -> Option<usize> {
        let size = if axis == 0 { self.out_h } else { self.out_w };
        let at = (i + self.pad[axis]).checked_sub(k * self.dilation[axis])?;
        (at.is_multiple_of(self.stride[axis])).then(|| at / self.stride[axis]).filter(|o| *o < size)
    }
}

/// # Safety
/// As [`conv`]; row and column are in range, here and below.
unsafe fn forward<T: Number>(c: &ConvArgs<'_>, row: usize, column: usize) -> T::Sum {
    let (n, o) = (row / c.out_channels, row % c.out_channels);
    let (y, x) = (column / c.out_w, column % c.out_w);
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let group = o / co;
    let mut sum = T::ZERO;
    for i in 0..ci {
        for ky in 0..c.kernel[0] {
            let Some(iy) = c.input_at(0, y, ky) else { continue };
            for kx in 0..c.kernel[1] {
                let Some(ix) = c.input_at(1, x, kx) else { continue };
                let image = ((n * c.in_channels + group * ci + i) * c.in_h + iy) * c.in_w + ix;
                let filter = ((o * ci + i) * c.kernel[0] + ky) * c.kernel[1] + kx;
                // SAFETY: both indices are inside by the geometry.
                unsafe {
                    let (a, b) = (*c.lhs.cast::<T>().add(image), *c.rhs.cast::<T>().add(filter));
                    sum = T::mul_add(a, b, sum);
                }
            }
        }
    }
    sum
}

/// # Safety
/// As [`forward`].
unsafe fn grad_input<T: Number>(c: &ConvArgs<'_>, row: usize, column: usize) -> T::Sum {
    let (n, i) = (row / c.in_channels, row % c.in_channels);
    let (y, x) = (column / c.in_w, column % c.in_w);
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let group = i / ci;
    let mut sum = T::ZERO;
    for o in group * co..(group + 1) * co {
        for ky in 0..c.kernel[0] {
            let Some(oy) = c.output_at(0, y, ky) else { continue };
            for kx in 0..c.kernel[1] {
                let Some(ox) = c.output_at(1, x, kx) else { continue };
                let grad = ((n * c.out_channels + o) * c.out_h + oy) * c.out_w + ox;
                let filter = ((o * ci + i % ci) * c.kernel[0] + ky) * c.kernel[1] + kx;
                // SAFETY: both indices are inside by the geometry.
                unsafe {
                    let (a, b) = (*c.lhs.cast::<T>().add(grad), *c.rhs.cast::<T>().add(filter));
                    sum = T::mul_add(a, b, sum);
                }
            }
        }
    }
    sum
}

/// # Safety
/// As [`forward`].
unsafe fn grad_filter<T: Number>(c: &ConvArgs<'_>, o: usize, column: usize) -> T::Sum {
    let taps = c.kernel[0] * c.kernel[1];
    let (i, ky, kx) = (column / taps, column % taps / c.kernel[1], column % c.kernel[1]);
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let group = o / co;
    let mut sum = T::ZERO;
    for n in 0..c.batch {
        for y in 0..c.out_h {
            let Some(iy) = c.input_at(0, y, ky) else { continue };
            for x in 0..c.out_w {
                let Some(ix) = c.input_at(1, x, kx) else { continue };
                let image = ((n * c.in_channels + group * ci + i) * c.in_h + iy) * c.in_w + ix;
                let grad = ((n * c.out_channels + o) * c.out_h + y) * c.out_w + x;
                // SAFETY: both indices are inside by the geometry.
                unsafe {
                    let (a, b) = (*c.lhs.cast::<T>().add(image), *c.rhs.cast::<T>().add(grad));
                    sum = T::mul_add(a, b, sum);
                }
            }
        }
    }
    sum
}
