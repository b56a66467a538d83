//! AVX2 and AVX-512 kernels.

use super::kernel::{Kernels, Simd, kernels};
use super::portable;
use std::arch::asm;
use std::arch::x86_64::*;

macro_rules! simd {
    ($name:ident, $t:ty, $v:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident,
     $fma:ident, $add:ident, $load_first:ident, $store_first:ident, $turn:ident $(, $every:ident)?
    $(; $some:ident, $store_some:ident, $evens:ident)?) => {
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

            #[inline(always)]
            unsafe fn fma_one(a: $t, b: $t, c: $t) -> $t {
                a.mul_add(b, c)
            }

            #[inline(always)]
            unsafe fn load_first(p: *const $t, n: usize) -> $v {
                // SAFETY: as above.
                unsafe { $load_first(p, n) }
            }

            #[inline(always)]
            unsafe fn store_first(p: *mut $t, v: $v, n: usize) {
                // SAFETY: as above.
                unsafe { $store_first(p, v, n) }
            }

            #[inline(always)]
            unsafe fn turn_block(
                base: *const $t,
                rows: *const usize,
                block: (usize, usize),
                dst: *mut $t,
                width: usize,
            ) {
                // SAFETY: as above.
                unsafe { $turn(base, rows, block, dst, width) }
            }

            $(
                #[inline(always)]
                unsafe fn every<const M: usize>(p: *const $t) -> [$v; M] {
                    // SAFETY: as above.
                    unsafe { $every(p) }
                }
            )?

            $(
                const LOADS_SOME: bool = true;

                #[inline(always)]
                unsafe fn load_some(p: *const $t, which: u16) -> $v {
                    // SAFETY: as above.
                    unsafe { $some(p, which) }
                }

                #[inline(always)]
                unsafe fn store_some(p: *mut $t, v: $v, which: u16) {
                    // SAFETY: as above.
                    unsafe { $store_some(p, v, which) }
                }

                #[inline(always)]
                unsafe fn evens(a: $v, b: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $evens(a, b) }
                }
            )?

            #[inline(always)]
            #[allow(clippy::pointers_in_nomem_asm_block, reason = "nothing is read there")]
            fn apart(p: *const $t) -> *const $t {
                let mut p = p;
                // SAFETY: no instruction at all.
                unsafe {
                    asm!("/* {0} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags))
                };
                p
            }

            #[inline(always)]
            fn prefetch(p: *const $t) {
                // SAFETY: a prefetch of any address is allowed.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
            }

            #[inline(always)]
            fn prefetch_far(p: *const $t) {
                // SAFETY: as above.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
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
    _mm256_add_ps,
    load_first_f32x8,
    store_first_f32x8,
    turn_f32x8
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
    _mm256_add_pd,
    load_first_f64x4,
    store_first_f64x4,
    turn_f64x4
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
    _mm512_add_ps,
    load_first_f32x16,
    store_first_f32x16,
    turn_f32x16,
    every_f32x16;
    load_some_f32x16, store_some_f32x16, evens_f32x16
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
    _mm512_add_pd,
    load_first_f64x8,
    store_first_f64x8,
    turn_f64x8;
    load_some_f64x8, store_some_f64x8, evens_f64x8
);

/// # Safety
/// As [`Simd::load_some`], here and below.
#[inline(always)]
unsafe fn load_some_f32x16(p: *const f32, which: u16) -> __m512 {
    // SAFETY: lanes that are not in the mask are not touched.
    unsafe { _mm512_maskz_loadu_ps(which, p) }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn load_some_f64x8(p: *const f64, which: u16) -> __m512d {
    // SAFETY: as above.
    unsafe { _mm512_maskz_loadu_pd(which as u8, p) }
}

/// # Safety
/// As [`Simd::store_some`], here and below.
#[inline(always)]
unsafe fn store_some_f32x16(p: *mut f32, v: __m512, which: u16) {
    // SAFETY: as above.
    unsafe { _mm512_mask_storeu_ps(p, which, v) }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn store_some_f64x8(p: *mut f64, v: __m512d, which: u16) {
    // SAFETY: as above.
    unsafe { _mm512_mask_storeu_pd(p, which as u8, v) }
}

/// # Safety
/// As [`Simd::evens`], here and below.
#[inline(always)]
unsafe fn evens_f32x16(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        _mm512_permutex2var_ps(a, at, b)
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn evens_f64x8(a: __m512d, b: __m512d) -> __m512d {
    // SAFETY: the caller's promise.
    unsafe {
        let at = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        _mm512_permutex2var_pd(a, at, b)
    }
}

/// Ones, then zeros: eight lanes from `8 - n` on are a mask of the first `n`.
static ONES: [i64; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
static ONES_32: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// # Safety
/// As [`Simd::load_first`], here and below.
#[inline(always)]
unsafe fn load_first_f32x8(p: *const f32, n: usize) -> __m256 {
    // SAFETY: `n` is at most 8; lanes beyond it are not touched.
    unsafe {
        let mask = _mm256_loadu_si256(ONES_32.as_ptr().add(8 - n).cast());
        _mm256_maskload_ps(p, mask)
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn load_first_f64x4(p: *const f64, n: usize) -> __m256d {
    // SAFETY: `n` is at most 4.
    unsafe {
        let mask = _mm256_loadu_si256(ONES.as_ptr().add(8 - n).cast());
        _mm256_maskload_pd(p, mask)
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn load_first_f32x16(p: *const f32, n: usize) -> __m512 {
    // SAFETY: `n` is at most 16.
    unsafe { _mm512_maskz_loadu_ps(((1u32 << n) - 1) as u16, p) }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn load_first_f64x8(p: *const f64, n: usize) -> __m512d {
    // SAFETY: `n` is at most 8.
    unsafe { _mm512_maskz_loadu_pd(((1u32 << n) - 1) as u8, p) }
}

/// By halves: masked stores of AVX are slow on some CPUs.
///
/// # Safety
/// As [`Simd::store_first`], here and below.
#[inline(always)]
unsafe fn store_first_f32x8(p: *mut f32, v: __m256, n: usize) {
    // SAFETY: each store is of lanes below `n`.
    unsafe {
        if n == 8 {
            return _mm256_storeu_ps(p, v);
        }
        let (mut p, mut low) = (p, _mm256_castps256_ps128(v));
        if n & 4 != 0 {
            _mm_storeu_ps(p, low);
            (p, low) = (p.add(4), _mm256_extractf128_ps::<1>(v));
        }
        if n & 2 != 0 {
            _mm_storel_pd(p.cast(), _mm_castps_pd(low));
            (p, low) = (p.add(2), _mm_movehl_ps(low, low));
        }
        if n & 1 != 0 {
            _mm_store_ss(p, low);
        }
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn store_first_f64x4(p: *mut f64, v: __m256d, n: usize) {
    // SAFETY: each store is of lanes below `n`.
    unsafe {
        if n == 4 {
            return _mm256_storeu_pd(p, v);
        }
        let (mut p, mut low) = (p, _mm256_castpd256_pd128(v));
        if n & 2 != 0 {
            _mm_storeu_pd(p, low);
            (p, low) = (p.add(2), _mm256_extractf128_pd::<1>(v));
        }
        if n & 1 != 0 {
            _mm_store_sd(p, low);
        }
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn store_first_f32x16(p: *mut f32, v: __m512, n: usize) {
    // SAFETY: `n` is at most 16.
    unsafe { _mm512_mask_storeu_ps(p, ((1u32 << n) - 1) as u16, v) }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn store_first_f64x8(p: *mut f64, v: __m512d, n: usize) {
    // SAFETY: `n` is at most 8.
    unsafe { _mm512_mask_storeu_pd(p, ((1u32 << n) - 1) as u8, v) }
}

/// # Safety
/// As [`Simd::every`], for `M` of two or four.
#[inline(always)]
unsafe fn every_f32x16<const M: usize>(p: *const f32) -> [__m512; M] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut v = [_mm512_setzero_ps(); M];
        for (j, v) in v.iter_mut().enumerate() {
            *v = _mm512_loadu_ps(p.add(16 * j));
        }
        let mut out = v;
        for (j, out) in out.iter_mut().enumerate() {
            let mut at = [0i32; 16];
            for (l, at) in at.iter_mut().enumerate() {
                *at = ((M * l + j) % 32) as i32;
            }
            let at = _mm512_loadu_si512(at.as_ptr().cast());
            let low = _mm512_permutex2var_ps(v[0], at, v[1]);
            *out = if M == 2 {
                low
            } else {
                let high = _mm512_castps_pd(_mm512_permutex2var_ps(v[M - 2], at, v[M - 1]));
                let high = _mm512_castpd512_pd256(high);
                _mm512_castpd_ps(_mm512_insertf64x4::<1>(_mm512_castps_pd(low), high))
            };
        }
        out
    }
}

/// Stores the rows of a block that was turned.
macro_rules! store_turned {
    ($rows:expr, $n:literal, ($steps:expr, $lanes:expr), $dst:expr, $width:expr,
     $store:ident, $store_first:ident) => {
        if $steps == $n && $lanes == $n {
            for (s, row) in $rows.iter().enumerate() {
                $store($dst.add(s * $width), *row);
            }
        } else {
            for (s, row) in $rows.iter().enumerate() {
                if s < $steps {
                    $store_first($dst.add(s * $width), *row, $lanes);
                }
            }
        }
    };
}

/// Sixteen rows of sixteen: pairs, pairs of pairs, then quarters of registers.
///
/// # Safety
/// As [`Simd::turn_block`], here and below.
#[inline(always)]
unsafe fn turn_f32x16(
    base: *const f32,
    rows: *const usize,
    (steps, lanes): (usize, usize),
    dst: *mut f32,
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut a = [_mm512_setzero_ps(); 16];
        for (l, a) in a.iter_mut().enumerate() {
            *a = _mm512_loadu_ps(base.add(*rows.add(l)));
        }
        let mut b = a;
        for i in 0..8 {
            b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
            b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
        }
        for g in [0, 4, 8, 12] {
            for h in 0..2 {
                let (x, y) = (_mm512_castps_pd(b[g + h]), _mm512_castps_pd(b[g + h + 2]));
                a[g + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
                a[g + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
            }
        }
        // Quarter `q` of `a[4 * g + j]` is step `4 * q + j` of lanes `4 * g ..`.
        for j in 0..4 {
            let even_low = _mm512_shuffle_f32x4::<0x88>(a[j], a[4 + j]);
            let even_high = _mm512_shuffle_f32x4::<0x88>(a[8 + j], a[12 + j]);
            let odd_low = _mm512_shuffle_f32x4::<0xdd>(a[j], a[4 + j]);
            let odd_high = _mm512_shuffle_f32x4::<0xdd>(a[8 + j], a[12 + j]);
            b[j] = _mm512_shuffle_f32x4::<0x88>(even_low, even_high);
            b[8 + j] = _mm512_shuffle_f32x4::<0xdd>(even_low, even_high);
            b[4 + j] = _mm512_shuffle_f32x4::<0x88>(odd_low, odd_high);
            b[12 + j] = _mm512_shuffle_f32x4::<0xdd>(odd_low, odd_high);
        }
        store_turned!(b, 16, (steps, lanes), dst, width, _mm512_storeu_ps, store_first_f32x16);
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn turn_f64x8(
    base: *const f64,
    rows: *const usize,
    (steps, lanes): (usize, usize),
    dst: *mut f64,
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut a = [_mm512_setzero_pd(); 8];
        for (l, a) in a.iter_mut().enumerate() {
            *a = _mm512_loadu_pd(base.add(*rows.add(l)));
        }
        let mut b = a;
        for i in 0..4 {
            b[2 * i] = _mm512_unpacklo_pd(a[2 * i], a[2 * i + 1]);
            b[2 * i + 1] = _mm512_unpackhi_pd(a[2 * i], a[2 * i + 1]);
        }
        for j in 0..2 {
            let even_low = _mm512_shuffle_f64x2::<0x88>(b[j], b[2 + j]);
            let even_high = _mm512_shuffle_f64x2::<0x88>(b[4 + j], b[6 + j]);
            let odd_low = _mm512_shuffle_f64x2::<0xdd>(b[j], b[2 + j]);
            let odd_high = _mm512_shuffle_f64x2::<0xdd>(b[4 + j], b[6 + j]);
            a[j] = _mm512_shuffle_f64x2::<0x88>(even_low, even_high);
            a[4 + j] = _mm512_shuffle_f64x2::<0xdd>(even_low, even_high);
            a[2 + j] = _mm512_shuffle_f64x2::<0x88>(odd_low, odd_high);
            a[6 + j] = _mm512_shuffle_f64x2::<0xdd>(odd_low, odd_high);
        }
        store_turned!(a, 8, (steps, lanes), dst, width, _mm512_storeu_pd, store_first_f64x8);
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn turn_f32x8(
    base: *const f32,
    rows: *const usize,
    (steps, lanes): (usize, usize),
    dst: *mut f32,
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut a = [_mm256_setzero_ps(); 8];
        for (l, a) in a.iter_mut().enumerate() {
            *a = _mm256_loadu_ps(base.add(*rows.add(l)));
        }
        let mut b = a;
        for i in 0..4 {
            b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
            b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
        }
        for g in [0, 4] {
            for h in 0..2 {
                let (x, y) = (_mm256_castps_pd(b[g + h]), _mm256_castps_pd(b[g + h + 2]));
                a[g + 2 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
                a[g + 2 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
            }
        }
        for j in 0..4 {
            b[j] = _mm256_permute2f128_ps::<0x20>(a[j], a[4 + j]);
            b[4 + j] = _mm256_permute2f128_ps::<0x31>(a[j], a[4 + j]);
        }
        store_turned!(b, 8, (steps, lanes), dst, width, _mm256_storeu_ps, store_first_f32x8);
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn turn_f64x4(
    base: *const f64,
    rows: *const usize,
    (steps, lanes): (usize, usize),
    dst: *mut f64,
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut a = [_mm256_setzero_pd(); 4];
        for (l, a) in a.iter_mut().enumerate() {
            *a = _mm256_loadu_pd(base.add(*rows.add(l)));
        }
        let mut b = a;
        for i in 0..2 {
            b[2 * i] = _mm256_unpacklo_pd(a[2 * i], a[2 * i + 1]);
            b[2 * i + 1] = _mm256_unpackhi_pd(a[2 * i], a[2 * i + 1]);
        }
        for j in 0..2 {
            a[j] = _mm256_permute2f128_pd::<0x20>(b[j], b[2 + j]);
            a[2 + j] = _mm256_permute2f128_pd::<0x31>(b[j], b[2 + j]);
        }
        store_turned!(a, 4, (steps, lanes), dst, width, _mm256_storeu_pd, store_first_f64x4);
    }
}

kernels!(AVX2_F32, "avx2", f32, F32x8, [1 2 3 4 5 6], [1 2 3 4 5 6], [2 3], "avx2,fma");
kernels!(AVX2_F64, "avx2", f64, F64x4, [1 2 3 4 5 6], [1 2 3 4 5 6], [2 3], "avx2,fma");
kernels!(AVX512_F32, "avx512", f32, F32x16, [1 2 3 4 5 6 7 8 9 10 11 12],
    [1 2 3 4 5 6 7 8 9 10 11 12 13 14], [4 5 6 7], "avx512f");
kernels!(AVX512_F64, "avx512", f64, F64x8, [1 2 3 4 5 6 7 8 9 10 11 12],
    [1 2 3 4 5 6 7 8 9 10 11 12 13 14], [4 5 6 7], "avx512f");

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
