//! Products by plain loops: integers and truth values, for which nobody waits.

use super::{BlockFn, MatMulArgs};
use crate::half::{bf16, f16};
use crate::pool::Pool;

/// An element and the type its sums are kept in.
pub trait Number: Copy + Send + Sync {
    type Sum: Copy;
    const ZERO: Self::Sum;
    fn widen(self) -> Self::Sum;
    fn narrow(sum: Self::Sum) -> Self;
    fn mul_add(a: Self, b: Self, sum: Self::Sum) -> Self::Sum;
}

macro_rules! wrapping {
    ($($t:ty),*) => {$(
        impl Number for $t {
            type Sum = $t;
            const ZERO: $t = 0;
            fn widen(self) -> $t {
                self
            }
            fn narrow(sum: $t) -> $t {
                sum
            }
            fn mul_add(a: $t, b: $t, sum: $t) -> $t {
                a.wrapping_mul(b).wrapping_add(sum)
            }
        }
    )*};
}

macro_rules! floating {
    ($($t:ty, $sum:ty, $narrow:expr;)*) => {$(
        impl Number for $t {
            type Sum = $sum;
            const ZERO: $sum = 0.0;
            fn widen(self) -> $sum {
                self.into()
            }
            fn narrow(sum: $sum) -> $t {
                $narrow(sum)
            }
            fn mul_add(a: $t, b: $t, sum: $sum) -> $sum {
                <$sum>::from(a) * <$sum>::from(b) + sum
            }
        }
    )*};
}

wrapping!(i8, u8, i32, i64);
floating! {
    f16, f32, f16::from_f32;
    bf16, f32, bf16::from_f32;
    f32, f32, std::convert::identity;
    f64, f64, std::convert::identity;
}

/// A bool in memory: `or` of `and`s.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Truth(u8);

impl Number for Truth {
    type Sum = bool;
    const ZERO: bool = false;
    fn widen(self) -> bool {
        self.0 != 0
    }
    fn narrow(sum: bool) -> Truth {
        Truth(sum.into())
    }
    fn mul_add(a: Truth, b: Truth, sum: bool) -> bool {
        sum | (a.0 != 0 && b.0 != 0)
    }
}

/// Columns whose sums are kept at once.
const STRIP: usize = 256;

/// # Safety
/// As [`super::matmul`], for elements `T`.
pub unsafe fn matmul<T: Number>(pool: &Pool, g: &MatMulArgs<'_>, finished: Option<BlockFn<'_>>) {
    let rows = g.batch * g.m;
    if rows == 0 || g.n == 0 {
        return;
    }
    let cost = (g.n as i64).saturating_mul(g.k as i64 + 1).saturating_mul(rows as i64);
    let parts = pool.parts_for(rows, cost);
    pool.ranges(rows, 1, parts, &|lo, hi| {
        for row in lo..hi {
            // SAFETY: the caller's promise; rows are disjoint.
            unsafe { one_row::<T>(g, row) };
        }
        if let Some(finished) = finished {
            finished(lo, hi, 0, g.n);
        }
    });
}

/// # Safety
/// As [`super::matmul`]; `row < batch * m`.
unsafe fn one_row<T: Number>(g: &MatMulArgs<'_>, row: usize) {
    let (batch, i) = (row / g.m, row % g.m);
    // SAFETY: every index below is inside its operand by the caller's promise.
    unsafe {
        let a = g.a.cast::<T>().add(batch * g.a_stride);
        let b = g.b.cast::<T>().add(batch * g.b_stride);
        let c = g.c.cast::<T>().add(row * g.n);
        let a_at = |p: usize| *a.add(if g.trans_a { p * g.m + i } else { i * g.k + p });
        let mut sums = [T::ZERO; STRIP];
        for j0 in (0..g.n).step_by(STRIP) {
            let width = STRIP.min(g.n - j0);
            sums[..width].fill(T::ZERO);
            if g.trans_b {
                for (j, s) in sums[..width].iter_mut().enumerate() {
                    let b = b.add((j0 + j) * g.k);
                    for p in 0..g.k {
                        *s = T::mul_add(a_at(p), *b.add(p), *s);
                    }
                }
            } else {
                for p in 0..g.k {
                    let (x, b) = (a_at(p), b.add(p * g.n + j0));
                    for (j, s) in sums[..width].iter_mut().enumerate() {
                        *s = T::mul_add(x, *b.add(j), *s);
                    }
                }
            }
            for (j, s) in sums[..width].iter().enumerate() {
                *c.add(j0 + j) = T::narrow(*s);
            }
        }
    }
}
