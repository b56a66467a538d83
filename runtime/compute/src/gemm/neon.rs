//! NEON kernels; every aarch64 CPU has them.

use super::kernel::{Kernels, Simd, kernels};
use super::portable;
use std::arch::aarch64::*;

macro_rules! simd {
    ($name:ident, $t:ty, $v:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident,
     $fma:ident, $add:ident) => {
        pub struct $name;

        impl Simd for $name {
            type T = $t;
            type V = $v;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> $v {
                // SAFETY: NEON is part of the baseline; the caller's promise,
                // here and below.
                unsafe { $splat(x) }
            }

            #[inline(always)]
            unsafe fn load(p: *const $t) -> $v {
                // SAFETY: as above.
                unsafe { $load(p) }
            }

            #[inline(always)]
            unsafe fn store(p: *mut $t, v: $v) {
                // SAFETY: as above.
                unsafe { $store(p, v) }
            }

            #[inline(always)]
            unsafe fn fma(a: $v, b: $v, c: $v) -> $v {
                // SAFETY: as above. The intrinsic adds to its first operand.
                unsafe { $fma(c, a, b) }
            }

            #[inline(always)]
            unsafe fn add(a: $v, b: $v) -> $v {
                // SAFETY: as above.
                unsafe { $add(a, b) }
            }

            #[inline(always)]
            unsafe fn fma_one(a: $t, b: $t, c: $t) -> $t {
                a.mul_add(b, c)
            }
        }
    };
}

simd!(F32x4, f32, float32x4_t, 4, vdupq_n_f32, vld1q_f32, vst1q_f32, vfmaq_f32, vaddq_f32);
simd!(F64x2, f64, float64x2_t, 2, vdupq_n_f64, vld1q_f64, vst1q_f64, vfmaq_f64, vaddq_f64);

kernels!(NEON_F32, "neon", f32, F32x4, [1 2 3 4 5 6 7 8 9 10 11 12],
    [1 2 3 4 5 6 7 8 9 10 11 12], [4 5 6], "neon");
kernels!(NEON_F64, "neon", f64, F64x2, [1 2 3 4 5 6 7 8 9 10 11 12],
    [1 2 3 4 5 6 7 8 9 10 11 12], [4 5 6], "neon");

/// The sets this CPU can run, best first.
pub fn all_f32() -> Vec<&'static Kernels<f32>> {
    vec![&NEON_F32, &portable::F32]
}

/// The sets this CPU can run, best first.
pub fn all_f64() -> Vec<&'static Kernels<f64>> {
    vec![&NEON_F64, &portable::F64]
}
