//! Loops of convolutions that are no products of matrices: one filter per
//! channel, and copies between rows and every `s`-th element of a row.
//!
//! The order of sums is the same for every instruction set.

use super::kernel::{Rows, Simd, total};

/// Vectors computed at once: enough to hide the latency of a multiply-add.
const AT_ONCE: usize = 6;

/// `out[i] = sum of weights[t] * base[offsets[t] + i]` over `t` in order, for `i`
/// below `n`.
///
/// # Safety
/// `base` at every offset, and `out`, are valid for `n` elements and a vector
/// more; `weights` has as many elements as `offsets`.
#[inline(always)]
pub unsafe fn weighted<S: Simd>(
    base: *const S::T,
    offsets: &[usize],
    weights: *const S::T,
    n: usize,
    out: *mut S::T,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let zero = S::splat(S::T::default());
        let mut i = 0;
        while i + AT_ONCE * S::LANES <= n {
            let mut sums = [zero; AT_ONCE];
            for (t, offset) in offsets.iter().enumerate() {
                let (w, base) = (S::splat(*weights.add(t)), base.add(offset + i));
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = S::fma(w, S::load(base.add(v * S::LANES)), *sum);
                }
            }
            for (v, sum) in sums.iter().enumerate() {
                S::store(out.add(i + v * S::LANES), *sum);
            }
            i += AT_ONCE * S::LANES;
        }
        while i < n {
            let mut sum = zero;
            for (t, offset) in offsets.iter().enumerate() {
                sum = S::fma(S::splat(*weights.add(t)), S::load(base.add(offset + i)), sum);
            }
            S::store(out.add(i), sum);
            i += S::LANES;
        }
    }
}

/// Bytes of the partial sums of [`dots`]: 16 of f32, 8 of f64, on every machine.
pub const DOTS_BYTES: usize = 64;

/// Adds the dot products of a plane `grad` with planes at `offsets` of `base` to
/// `sums`. `sizes` are the rows, the columns, and the elements from row to row of
/// `grad` and of `base`.
///
/// Column `x` goes to partial sum `x` modulo their number, row after row; then
/// the partial sums are added up.
///
/// # Safety
/// The planes exist; `sums` has as many elements as `offsets`.
#[inline(always)]
pub unsafe fn dots<S: Simd>(
    base: *const S::T,
    offsets: &[usize],
    grad: *const S::T,
    sizes: [usize; 4],
    sums: *mut S::T,
) {
    // SAFETY: passed on.
    unsafe {
        match DOTS_BYTES / size_of::<S::V>() {
            1 => dots_by::<S, 1>(base, offsets, grad, sizes, sums),
            2 => dots_by::<S, 2>(base, offsets, grad, sizes, sums),
            _ => dots_by::<S, 4>(base, offsets, grad, sizes, sums),
        }
    }
}

/// # Safety
/// As [`dots`], with `V` vectors of partial sums.
#[inline(always)]
unsafe fn dots_by<S: Simd, const V: usize>(
    base: *const S::T,
    offsets: &[usize],
    grad: *const S::T,
    sizes: [usize; 4],
    sums: *mut S::T,
) {
    // SAFETY: passed on.
    unsafe {
        let mut t = 0;
        while t + 3 <= offsets.len() {
            some_dots::<S, V, 3>(base, &offsets[t..], grad, sizes, sums.add(t));
            t += 3;
        }
        while t < offsets.len() {
            some_dots::<S, V, 1>(base, &offsets[t..], grad, sizes, sums.add(t));
            t += 1;
        }
    }
}

/// # Safety
/// As [`dots`], for the first `N` offsets.
#[inline(always)]
unsafe fn some_dots<S: Simd, const V: usize, const N: usize>(
    base: *const S::T,
    offsets: &[usize],
    grad: *const S::T,
    [rows, columns, grad_row, base_row]: [usize; 4],
    sums: *mut S::T,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let zero = S::splat(S::T::default());
        let mut partial = [[zero; V]; N];
        for y in 0..rows {
            let (grad, base) = (grad.add(y * grad_row), base.add(y * base_row));
            let mut x = 0;
            while x + V * S::LANES <= columns {
                for v in 0..V {
                    let at = x + v * S::LANES;
                    let g = S::load(grad.add(at));
                    for (t, partial) in partial.iter_mut().enumerate() {
                        partial[v] = S::fma(g, S::load(base.add(offsets[t] + at)), partial[v]);
                    }
                }
                x += V * S::LANES;
            }
            for v in 0..V {
                let at = x + v * S::LANES;
                if at >= columns {
                    break;
                }
                // What is beside the plane may be infinite: neither is read.
                let n = S::LANES.min(columns - at);
                let g = S::load_first(grad.add(at), n);
                for (t, partial) in partial.iter_mut().enumerate() {
                    let b = S::load_first(base.add(offsets[t] + at), n);
                    partial[v] = S::fma(g, b, partial[v]);
                }
            }
        }
        for (t, partial) in partial.iter().enumerate() {
            *sums.add(t) = *sums.add(t) + total::<S, V>(partial);
        }
    }
}

/// `dst[i * to] = src[i * from]` for `i` below `count`.
///
/// # Safety
/// Both are valid for what is read and written, and apart.
#[inline(always)]
pub unsafe fn spread<S: Simd>(
    src: *const S::T,
    from: usize,
    count: usize,
    dst: *mut S::T,
    to: usize,
) {
    // SAFETY: the caller's promise. Steps of one and two are loops of their own,
    // which become vector code.
    unsafe {
        match (from, to) {
            (1, 1) => {
                let mut i = 0;
                while i + S::LANES <= count {
                    S::store(dst.add(i), S::load(src.add(i)));
                    i += S::LANES;
                }
                if i < count {
                    let rest = count - i;
                    S::store_first(dst.add(i), S::load_first(src.add(i), rest), rest);
                }
            }
            (2, 1) => {
                let mut i = 0;
                // Of the last pair only the first element is there for certain.
                while i + S::LANES < count {
                    let [even, _] = S::every::<2>(src.add(2 * i));
                    S::store(dst.add(i), even);
                    i += S::LANES;
                }
                (i..count).for_each(|i| *dst.add(i) = *src.add(2 * i));
            }
            (1, 2) => (0..count).for_each(|i| *dst.add(2 * i) = *src.add(i)),
            _ => (0..count).for_each(|i| *dst.add(i * to) = *src.add(i * from)),
        }
    }
}

/// Most vectors of a row of [`lay_some`].
const MOST_LAID: usize = 16;

/// [`lay`] by whole vectors, for steps of one and two. Vectors begin where zeros do, and
/// only the elements that there are are read; what the last vector of a row writes beyond
/// its end is written again by the next row.
///
/// # Safety
/// As [`lay`].
#[inline(always)]
unsafe fn lay_some<S: Simd>(
    src: *const S::T,
    step: usize,
    count: usize,
    rows: &Rows,
    dst: *mut S::T,
) {
    let Rows { low, to, .. } = *rows;
    // Those of a vector's elements that are read, `first` being its first one.
    let (start, end) = (low * step, (low + count) * step);
    let which = |first: usize| {
        let bit = |at: usize| 1u32 << at.saturating_sub(first).min(S::LANES);
        ((bit(end) - bit(start)) & if step == 2 { 0x5555 } else { 0xffff }) as u16
    };
    let mut some = [[0u16; 2]; MOST_LAID];
    let vectors = to.div_ceil(S::LANES);
    for (v, some) in some[..vectors].iter_mut().enumerate() {
        let first = v * S::LANES * step;
        *some = [which(first), if step == 2 { which(first + S::LANES) } else { 0 }];
    }
    let src = src.wrapping_sub(low * step);
    for r in 0..rows.count {
        let (src, dst) = (src.wrapping_add(r * rows.from), dst.wrapping_add(r * to));
        for (v, some) in some[..vectors].iter().enumerate() {
            let from = src.wrapping_add(v * S::LANES * step);
            let at = v * S::LANES;
            // SAFETY: the elements of these bits are in the row; stores end in this row or
            // a later one.
            unsafe {
                let low = S::load_some(from, some[0]);
                let x = match step {
                    1 => low,
                    _ => S::evens(low, S::load_some(from.wrapping_add(S::LANES), some[1])),
                };
                if at + S::LANES <= (rows.count - r) * to {
                    S::store(dst.add(at), x);
                } else {
                    S::store_first(dst.add(at), x, S::LANES.min(to - at));
                }
            }
        }
    }
}

/// Rows of every `step`-th element, `count` of them, with zeros around.
///
/// # Safety
/// The rows exist, and `dst` has room for them.
#[inline(always)]
pub unsafe fn lay<S: Simd>(
    src: *const S::T,
    step: usize,
    count: usize,
    rows: &Rows,
    dst: *mut S::T,
) {
    let Rows { low, to, .. } = *rows;
    if S::LOADS_SOME && (step == 1 || step == 2) && to <= MOST_LAID * S::LANES {
        // SAFETY: the caller's promise.
        return unsafe { lay_some::<S>(src, step, count, rows, dst) };
    }
    for r in 0..rows.count {
        // SAFETY: the caller's promise.
        unsafe {
            let (src, dst) = (src.add(r * rows.from), dst.add(r * to));
            (0..low).for_each(|i| *dst.add(i) = S::T::default());
            spread::<S>(src, step, count, dst.add(low), 1);
            (low + count..to).for_each(|i| *dst.add(i) = S::T::default());
        }
    }
}
