//! Kernels for any CPU: arrays the compiler vectorises as far as the baseline
//! allows. Products and sums are rounded apart: a fused multiply-add would be a
//! library call here.

use super::kernel::{Simd, kernels};

macro_rules! array_simd {
    ($name:ident, $t:ty, $lanes:literal) => {
        pub struct $name;

        impl Simd for $name {
            type T = $t;
            type V = [$t; $lanes];
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self::V {
                [x; $lanes]
            }

            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self::V {
                // SAFETY: the caller's promise; an array needs no more alignment
                // than its elements.
                unsafe { p.cast::<Self::V>().read() }
            }

            #[inline(always)]
            unsafe fn store(p: *mut $t, v: Self::V) {
                // SAFETY: as in `load`.
                unsafe { p.cast::<Self::V>().write(v) }
            }

            #[inline(always)]
            unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                std::array::from_fn(|i| a[i] * b[i] + c[i])
            }

            #[inline(always)]
            unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|i| a[i] + b[i])
            }

            #[inline(always)]
            unsafe fn fma_one(a: $t, b: $t, c: $t) -> $t {
                a * b + c
            }
        }
    };
}

array_simd!(F32x4, f32, 4);
array_simd!(F64x2, f64, 2);

kernels!(F32, "portable", f32, F32x4, [1 2 3 4], [1 2 3 4], [2]);
kernels!(F64, "portable", f64, F64x2, [1 2 3 4], [1 2 3 4], [2]);
