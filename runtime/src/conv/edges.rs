//! Padding meets nothing, also where what it would meet is infinite or NaN.
//!
//! The product that computes a filter's gradient multiplies the padding, as
//! zeros, by the output's gradient, and zero times infinity is NaN. Only pixels
//! whose window reaches into the padding can do that. Those among them that are
//! not finite are left out of the product and added one by one.

use super::ConvArgs;
use super::implicit::{Result, product};
use crate::gemm::BlockFn;
use crate::gemm::kernel::{Kernels, Real};
use crate::gemm::pack::{Operand, Strided};
use crate::pool::Pool;

impl ConvArgs {
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
pub unsafe fn not_finite<T: Real, E: Result<T>>(c: &ConvArgs) -> Vec<usize> {
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
    c: &ConvArgs,
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
