//! Tiles of which one operand is read where it lies, without panels of it: its rows are side
//! by side in memory, and a table says how far each step is from the first.
//!
//! A panel pays where it is read often. What a convolution reads of a picture it reads only
//! once for each vector or two of channels, and a copy of it for every tap of the filter is
//! several times as large as what it is a copy of.

use super::kernel::Simd;

/// `c (+)= a · b` for a tile of `R` rows by `V` vectors.
///
/// Row `r` of `a` is element `steps[p] + r` in step `p`; from row `W` on it is `second +
/// steps[p] + r - W`. Step `p` of `b` starts at `p * b_step`. Every element is a chain of
/// multiply-adds in the order of `k`, as in other tiles. In each step, a line is asked for
/// that will be needed soon.
///
/// # Safety
/// The pointers but `ahead` are valid for that; the CPU has `S`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel's operands, kept in registers")]
pub unsafe fn gather<S: Simd, const R: usize, const W: usize, const V: usize>(
    steps: &[usize],
    a: *const S::T,
    second: usize,
    b: *const S::T,
    b_step: usize,
    c: *mut S::T,
    c_row: usize,
    add: bool,
    ahead: *const S::T,
    ahead_step: usize,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let zero = S::splat(S::T::default());
        let mut sums = [[zero; V]; R];
        let (mut b, mut ahead) = (b, ahead);
        for step in steps {
            S::prefetch_far(ahead);
            let first = a.add(*step);
            let second = first.wrapping_add(second);
            let mut bs = [zero; V];
            for (v, x) in bs.iter_mut().enumerate() {
                *x = S::load(b.add(v * S::LANES));
            }
            for (r, sum) in sums.iter_mut().enumerate() {
                let at = if r < W { first.add(r) } else { second.add(r - W) };
                let x = S::splat(*at);
                for (sum, b) in sum.iter_mut().zip(&bs) {
                    *sum = S::fma(x, *b, *sum);
                }
            }
            b = b.wrapping_add(b_step);
            ahead = ahead.wrapping_add(ahead_step);
        }
        for (r, sum) in sums.iter().enumerate() {
            let c = c.add(r * c_row);
            for (v, sum) in sum.iter().enumerate() {
                let c = c.add(v * S::LANES);
                S::store(c, if add { S::add(S::load(c), *sum) } else { *sum });
            }
        }
    }
}
