//! AVX2 and AVX-512 kernels.

use super::kernel::{Kernels, Simd, kernels};
use super::portable;
use std::arch::x86_64::*;

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
                // SAFETY: the CPU has the instruction set; the caller's promise,
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
                // SAFETY: as above.
                unsafe { $fma(a, b, c) }
            }

            #[inline(always)]
            unsafe fn add(a: $v, b: $v) -> $v {
                // SAFETY: as above.
                unsafe { $add(a, b) }
            }
        }
    };
}

simd!(
    F32x8,
    f32,
    __m256,
    8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_fmadd_ps,
    _mm256_add_ps
);
simd!(
    F64x4,
    f64,
    __m256d,
    4,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_fmadd_pd,
    _mm256_add_pd
);
simd!(
    F32x16,
    f32,
    __m512,
    16,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_fmadd_ps,
    _mm512_add_ps
);
simd!(
    F64x8,
    f64,
    __m512d,
    8,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_fmadd_pd,
    _mm512_add_pd
);

kernels!(AVX2_F32, "avx2", f32, F32x8, [1 2 3 4 5 6], "avx2,fma");
kernels!(AVX2_F64, "avx2", f64, F64x4, [1 2 3 4 5 6], "avx2,fma");
kernels!(AVX512_F32, "avx512", f32, F32x16, [1 2 3 4 5 6 7 8 9 10 11 12], "avx512f");
kernels!(AVX512_F64, "avx512", f64, F64x8, [1 2 3 4 5 6 7 8 9 10 11 12], "avx512f");

fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
}

fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")
}

/// The sets this CPU can run, best first.
pub fn all_f32() -> Vec<&'static Kernels<f32>> {
    let mut all = vec![];
    if has_avx512() {
        all.push(&AVX512_F32);
    }
    if has_avx2() {
        all.push(&AVX2_F32);
    }
    all.push(&portable::F32);
    all
}

/// The sets this CPU can run, best first.
pub fn all_f64() -> Vec<&'static Kernels<f64>> {
    let mut all = vec![];
    if has_avx512() {
        all.push(&AVX512_F64);
    }
    if has_avx2() {
        all.push(&AVX2_F64);
    }
    all.push(&portable::F64);
    all
}
