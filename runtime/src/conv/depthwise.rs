//! One filter per channel, forward: row by row, without gathering anything.

use super::ConvArgs;
use crate::gemm::BlockFn;
use crate::gemm::kernel::Real;
use crate::pool::Pool;
use tfc_abi::plan::ConvKind;

/// Whether this convolution is one.
pub fn applies(c: &ConvArgs) -> bool {
    c.kind == ConvKind::Forward && c.groups == c.in_channels && c.groups == c.out_channels
}

/// # Safety
/// As [`super::conv`], for elements `T`; [`applies`] holds.
pub unsafe fn conv<T: Real>(pool: &Pool, c: &ConvArgs, finished: Option<BlockFn<'_>>) {
    let rows = c.batch * c.out_channels;
    let columns = c.out_h * c.out_w;
    if rows == 0 || columns == 0 {
        return;
    }
    let work = (rows as i64).saturating_mul((columns * c.kernel[0] * c.kernel[1]) as i64);
    let parts = pool.parts_for(rows, work / 4);
    pool.ranges(rows, 1, parts, &|lo, hi| {
        for row in lo..hi {
            // SAFETY: the caller's promise; channels are disjoint.
            unsafe { channel::<T>(c, row) };
            if let Some(f) = finished {
                f(row, row + 1, 0, columns);
            }
        }
    });
}

/// # Safety
/// As [`conv`]; `row` is below images times channels.
unsafe fn channel<T: Real>(c: &ConvArgs, row: usize) {
    let axpy = T::kernels().axpy;
    let [kh, kw] = c.kernel;
    // SAFETY: every index is inside by the geometry: `input_at` checks, and the
    // inner columns read only input columns that exist.
    unsafe {
        let image = c.lhs.cast::<T>().add(row * c.in_h * c.in_w);
        let filter = c.rhs.cast::<T>().add(row % c.out_channels * kh * kw);
        let out = c.out.cast::<T>().add(row * c.out_h * c.out_w);
        // Columns whose every tap is inside the image, when steps are by one.
        let reach = (kw - 1) * c.dilation[1];
        let first = c.pad[1].min(c.out_w);
        let last = (c.in_w + c.pad[1]).saturating_sub(reach).min(c.out_w).max(first);
        let inner = if c.stride[1] == 1 { (first, last) } else { (0, 0) };
        for y in 0..c.out_h {
            let out = out.add(y * c.out_w);
            for x in 0..c.out_w {
                *out.add(x) = T::default();
            }
            for ky in 0..kh {
                let Some(iy) = c.input_at(0, y, ky) else { continue };
                let (line, taps) = (image.add(iy * c.in_w), filter.add(ky * kw));
                if inner.0 < inner.1 {
                    let start = line.add(inner.0 - c.pad[1]);
                    let step = c.dilation[1] as isize;
                    axpy(kw, inner.1 - inner.0, taps, start, step, out.add(inner.0));
                }
                for x in (0..inner.0).chain(inner.1..c.out_w) {
                    for kx in 0..kw {
                        if let Some(ix) = c.input_at(1, x, kx) {
                            *out.add(x) += *taps.add(kx) * *line.add(ix);
                        }
                    }
                }
            }
        }
    }
}
