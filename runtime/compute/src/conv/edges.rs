//! Padding meets nothing, also where what it would meet is infinite or NaN.
//!
//! The products multiply the padding, as zeros, by what lies over it, and zero times
//! infinity is NaN. Only pixels whose window reaches into the padding can do that.
//!
//! - Where a result is a pixel (forward, gradient of the input), one of those that came
//!   out as NaN is computed again without the padding. What a filter holds need not be
//!   looked at for that.
//! - In the gradient of a filter, every result has met the padding. Elements of the
//!   output's gradient that lie over it and are not finite are left out of the product
//!   and added one by one.

use super::implicit::{Result, product};
use super::{ConvArgs, simple};
use crate::gemm::BlockFn;
use crate::gemm::kernel::{Kernels, Real};
use crate::gemm::pack::{Operand, Strided};
use crate::gemm::simple::Number;
use crate::pool::Pool;
use tfc_abi::plan::ConvKind;

/// The pixels of a result whose window meets no padding, as ranges of rows and columns.
#[derive(Clone, Copy)]
pub struct Inner {
    rows: (usize, usize),
    columns: (usize, usize),
    /// All columns there are.
    width: usize,
}

/// Pixels of a row that is not looked at as a whole.
const LONG: usize = 96;

fn any_nan<E: Number>(values: &[E]) -> bool
where
    E::Sum: PartialEq,
{
    let mut any = false;
    for value in values {
        let value = value.widen();
        #[expect(clippy::eq_op, reason = "true of NaN alone")]
        {
            any |= value != value;
        }
    }
    any
}

impl Inner {
    /// None if that is all of them, or the result has no pixels.
    pub fn of(c: &ConvArgs<'_>) -> Option<Inner> {
        let [rows, columns] = [0, 1].map(|axis| c.inner(axis));
        let (height, width) = match c.kind {
            ConvKind::Forward => (c.out_h, c.out_w),
            ConvKind::GradInput => (c.in_h, c.in_w),
            ConvKind::GradFilter => return None,
        };
        let all = rows == (0, height) && columns == (0, width);
        (!all && width > 0).then_some(Inner { rows, columns, width })
    }

    /// Computes again what is NaN because of the padding, in these rows and columns of
    /// the result.
    ///
    /// # Safety
    /// As [`super::conv`], for elements `E`; the rectangle is inside the result, has
    /// been computed, and nobody else uses it.
    pub unsafe fn mend<E: Number>(
        self,
        c: &ConvArgs<'_>,
        rows: (usize, usize),
        columns: (usize, usize),
        all_columns: usize,
    ) where
        E::Sum: PartialEq,
    {
        let width = self.width;
        for row in rows.0..rows.1 {
            // Nearly always there is nothing to mend. Where rows of pixels are long, only
            // the ends of most of them can tell; short ones are looked at as a whole,
            // which are vectors.
            // SAFETY: the caller's promise.
            let line = unsafe {
                let start = c.out.cast::<E>().add(row * all_columns + columns.0);
                std::slice::from_raw_parts(start, columns.1 - columns.0)
            };
            let any = if width < LONG {
                any_nan(line)
            } else {
                (columns.0 / width..columns.1.div_ceil(width)).any(|y| {
                    // The pixels of this row, counted from the first of the line.
                    let at = |x: usize| (y * width + x).clamp(columns.0, columns.1) - columns.0;
                    let (left, right) = match (self.rows.0..self.rows.1).contains(&y) {
                        true => self.columns,
                        false => (width, width),
                    };
                    any_nan(&line[at(0)..at(left)]) || any_nan(&line[at(right)..at(width)])
                })
            };
            if !any {
                continue;
            }
            for y in columns.0 / width..columns.1.div_ceil(width) {
                let from = columns.0.max(y * width) - y * width;
                let to = columns.1.min((y + 1) * width) - y * width;
                let (left, right) = match (self.rows.0..self.rows.1).contains(&y) {
                    true => self.columns,
                    false => (to, to),
                };
                for x in (from..left.min(to)).chain(right.max(from)..to) {
                    let column = y * width + x;
                    // SAFETY: the caller's promise.
                    unsafe {
                        let out = c.out.cast::<E>().add(row * all_columns + column);
                        let value = (*out).widen();
                        #[expect(clippy::eq_op, reason = "true of NaN alone")]
                        if value != value {
                            *out = E::narrow(simple::element::<E>(c, row, column));
                        }
                    }
                }
            }
        }
    }
}

impl ConvArgs<'_> {
    /// The coordinates of a result's pixels at which every tap meets something.
    fn inner(&self, axis: usize) -> (usize, usize) {
        let (input, output) = match axis {
            0 => (self.in_h, self.out_h),
            _ => (self.in_w, self.out_w),
        };
        let (stride, pad) = (self.stride[axis], self.pad[axis]);
        let reach = (self.kernel[axis] - 1) * self.dilation[axis];
        match self.kind {
            ConvKind::GradInput if stride > 1 => (0, 0),
            ConvKind::GradInput => {
                (reach.saturating_sub(pad), output.saturating_sub(pad).min(input))
            }
            _ => {
                let last = (input + pad).saturating_sub(reach);
                (pad.div_ceil(stride), last.div_ceil(stride).min(output))
            }
        }
    }

    /// Whether some tap of the window at output coordinate `o` is in padding.
    fn reaches_padding(&self, axis: usize, o: usize) -> bool {
        let size = if axis == 0 { self.in_h } else { self.in_w };
        let first = o * self.stride[axis];
        let last = first + (self.kernel[axis] - 1) * self.dilation[axis];
        first < self.pad[axis] || last >= size + self.pad[axis]
    }
}

/// The elements of the output's gradient that are not finite and whose window
/// reaches into the padding.
///
/// # Safety
/// As [`super::conv`], for elements `E` and the gradient of a filter.
pub unsafe fn not_finite<T: Real, E: Result<T>>(c: &ConvArgs<'_>) -> Vec<usize> {
    let rows: Vec<bool> = (0..c.out_h).map(|y| c.reaches_padding(0, y)).collect();
    let every: Vec<usize> = (0..c.out_w).collect();
    let columns: Vec<usize> = every.iter().copied().filter(|x| c.reaches_padding(1, *x)).collect();
    let mut out = vec![];
    if columns.is_empty() && !rows.contains(&true) {
        return out;
    }
    for plane in 0..c.batch * c.out_channels {
        for (y, edge) in rows.iter().enumerate() {
            let row = (plane * c.out_h + y) * c.out_w;
            for x in if *edge { &every } else { &columns } {
                // SAFETY: the coordinates are those of a pixel.
                let value = unsafe { *c.rhs.cast::<E>().add(row + x) }.widen();
                if value * T::default() != T::default() {
                    out.push(row + x);
                }
            }
        }
    }
    out
}

/// The gradient of the filter with the elements `apart` added one by one.
///
/// # Safety
/// As [`super::conv`], for elements `E` and the gradient of a filter.
pub unsafe fn grad_filter<T: Real, E: Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    apart: &[usize],
    finished: Option<BlockFn<'_>>,
) where
    Strided<E>: Operand<T>,
{
    let elements = c.batch * c.out_channels * c.out_h * c.out_w;
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let columns = ci * c.kernel[0] * c.kernel[1];
    // SAFETY: the caller's promise; every index is inside by the geometry.
    unsafe {
        let given = std::slice::from_raw_parts(c.rhs.cast::<E>(), elements);
        let mut rest = given.to_vec();
        apart.iter().for_each(|at| rest[*at] = E::narrow(T::default()));
        product::<T, E>(kernels, pool, &ConvArgs { rhs: rest.as_ptr().cast(), ..*c }, None);
        for &at in apart {
            let (plane, pixel) = (at / (c.out_h * c.out_w), at % (c.out_h * c.out_w));
            let (n, o) = (plane / c.out_channels, plane % c.out_channels);
            let (y, x) = (pixel / c.out_w, pixel % c.out_w);
            for column in 0..columns {
                let (ky, kx) = (column / c.kernel[1] % c.kernel[0], column % c.kernel[1]);
                let channel = o / co * ci + column / (c.kernel[0] * c.kernel[1]);
                let (Some(iy), Some(ix)) = (c.input_at(0, y, ky), c.input_at(1, x, kx)) else {
                    continue;
                };
                let image = ((n * c.in_channels + channel) * c.in_h + iy) * c.in_w + ix;
                let term = given[at].widen() * (*c.lhs.cast::<E>().add(image)).widen();
                let sum = c.out.cast::<E>().add(o * columns + column);
                *sum = E::narrow((*sum).widen() + term);
            }
        }
    }
    if let Some(finished) = finished {
        finished(0, c.out_channels, 0, columns);
    }
}
