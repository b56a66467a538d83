//! Products against plain sums in f64.

use std::sync::Mutex;
use tfc_abi::DType;
use tfc_compute::Pool;
use tfc_compute::gemm::kernel::Real;
use tfc_compute::gemm::prepack::{PackCache, Stays};
use tfc_compute::gemm::{MatMulArgs, arch, matmul, real};
use tfc_compute::half::{bf16, f16};

/// Small reproducible numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// In -1..1, with few bits so that half-precision holds it exactly.
    fn value(&mut self) -> f64 {
        (self.next() % 257) as f64 / 128.0 - 1.0
    }
}

trait Elem: Copy {
    const DTYPE: DType;
    fn of(v: f64) -> Self;
    fn to(self) -> f64;
}

macro_rules! elem {
    ($($t:ty, $d:ident, $from:expr, $to:expr;)*) => {$(
        impl Elem for $t {
            const DTYPE: DType = DType::$d;
            fn of(v: f64) -> $t {
                ($from)(v)
            }
            fn to(self) -> f64 {
                ($to)(self)
            }
        }
    )*};
}

elem! {
    f32, F32, |v| v as f32, f64::from;
    f64, F64, |v| v, |v| v;
    f16, F16, f16::from_f64, f64::from;
    bf16, BF16, bf16::from_f64, f64::from;
    i32, I32, |v: f64| (v * 100.0) as i32, f64::from;
    i64, I64, |v: f64| (v * 100.0) as i64, |v| v as f64;
    i8, I8, |v: f64| (v * 3.0) as i8, f64::from;
    u8, U8, |v: f64| (v * 3.0) as u8, f64::from;
}

#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    trans_a: bool,
    trans_b: bool,
    share_b: bool,
}

struct Data<T> {
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T>,
}

impl Case {
    fn random(r: &mut Random) -> Case {
        let size = |r: &mut Random| match r.below(8) {
            0 => r.below(3),
            1 => 1,
            2 => r.below(150),
            _ => 1 + r.below(40),
        };
        let flag = |r: &mut Random| r.below(2) == 1;
        Case {
            m: size(r),
            n: size(r),
            k: if r.below(10) == 0 { r.below(900) } else { size(r) },
            batch: if r.below(4) == 0 { r.below(4) } else { 1 },
            trans_a: flag(r),
            trans_b: flag(r),
            share_b: flag(r),
        }
    }

    fn data<T: Elem>(&self, r: &mut Random) -> Data<T> {
        let mut fill = |n: usize| (0..n).map(|_| T::of(r.value())).collect();
        let b_count = if self.share_b { 1 } else { self.batch };
        Data {
            a: fill(self.batch * self.m * self.k),
            b: fill(b_count * self.k * self.n),
            c: fill(self.batch * self.m * self.n),
        }
    }

    fn args<T: Elem>(&self, d: &mut Data<T>) -> MatMulArgs<'static> {
        MatMulArgs {
            dtype: T::DTYPE,
            a: d.a.as_ptr().cast(),
            b: d.b.as_ptr().cast(),
            c: d.c.as_mut_ptr().cast(),
            m: self.m,
            n: self.n,
            k: self.k,
            batch: self.batch,
            a_stride: self.m * self.k,
            b_stride: if self.share_b { 0 } else { self.k * self.n },
            trans_a: self.trans_a,
            trans_b: self.trans_b,
            b_stays: None,
        }
    }

    fn naive<T: Elem>(&self, d: &Data<T>) -> Vec<f64> {
        let mut out = vec![];
        for x in 0..self.batch {
            let a = &d.a[x * self.m * self.k..];
            let b = &d.b[if self.share_b { 0 } else { x * self.k * self.n }..];
            for i in 0..self.m {
                for j in 0..self.n {
                    let mut sum = 0.0;
                    for p in 0..self.k {
                        let a = a[if self.trans_a { p * self.m + i } else { i * self.k + p }];
                        let b = b[if self.trans_b { j * self.k + p } else { p * self.n + j }];
                        sum += a.to() * b.to();
                    }
                    out.push(sum);
                }
            }
        }
        out
    }

    fn compare<T: Elem>(&self, got: &[T], want: &[f64], tolerance: f64) {
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            let scale = 1.0 + w.abs();
            assert!((g.to() - w).abs() <= tolerance * scale, "{self:?} at {i}: {} {w}", g.to());
        }
    }
}

fn floats<T: Elem>(cases: usize, seed: u64, tolerance: f64) {
    let mut r = Random(seed);
    let pools = [Pool::new(1), Pool::new(2), Pool::new(3)];
    for i in 0..cases {
        let case = Case::random(&mut r);
        let mut d = case.data::<T>(&mut r);
        let want = case.naive(&d);
        let args = case.args(&mut d);
        // SAFETY: the operands have the sizes of the case.
        unsafe { matmul(&pools[i % 3], &args, None) };
        case.compare(&d.c, &want, tolerance);
    }
}

#[test]
fn f32_products() {
    floats::<f32>(600, 1, 1e-4);
}

#[test]
fn f64_products() {
    floats::<f64>(300, 2, 1e-12);
}

#[test]
fn half_products() {
    floats::<f16>(200, 3, 2e-3);
    floats::<bf16>(200, 4, 2e-2);
}

#[test]
fn integer_products_wrap() {
    floats::<i32>(150, 5, 0.0);
    floats::<i64>(150, 6, 0.0);
    let mut r = Random(7);
    let pool = Pool::new(2);
    for _ in 0..150 {
        let case = Case::random(&mut r);
        let mut d = case.data::<i8>(&mut r);
        let want: Vec<i8> = case.naive(&d).iter().map(|v| *v as i64 as i8).collect();
        let args = case.args(&mut d);
        // SAFETY: the operands have the sizes of the case.
        unsafe { matmul(&pool, &args, None) };
        assert_eq!(d.c, want, "{case:?}");
        let mut d = case.data::<u8>(&mut r);
        let want: Vec<u8> = case.naive(&d).iter().map(|v| *v as i64 as u8).collect();
        let args = case.args(&mut d);
        // SAFETY: as above.
        unsafe { matmul(&pool, &args, None) };
        assert_eq!(d.c, want, "{case:?}");
    }
}

#[test]
fn every_instruction_set_agrees() {
    let mut r = Random(8);
    let pool = Pool::new(2);
    for kernels in arch::all_f32() {
        for _ in 0..200 {
            let case = Case::random(&mut r);
            let mut d = case.data::<f32>(&mut r);
            let want = case.naive(&d);
            let args = case.args(&mut d);
            // SAFETY: the operands have the sizes of the case; the CPU has the set.
            unsafe { real(kernels, &pool, &args, None) };
            case.compare(&d.c, &want, 1e-4);
        }
    }
    for kernels in arch::all_f64() {
        for _ in 0..100 {
            let case = Case::random(&mut r);
            let mut d = case.data::<f64>(&mut r);
            let want = case.naive(&d);
            let args = case.args(&mut d);
            // SAFETY: as above.
            unsafe { real(kernels, &pool, &args, None) };
            case.compare(&d.c, &want, 1e-12);
        }
    }
    assert!(!f32::kernels().name.is_empty());
}

#[test]
fn instruction_sets_that_fuse_give_the_same_bits() {
    let mut r = Random(12);
    let pool = Pool::new(2);
    let fused = |name: &str| name != "portable";
    for i in 0..300 {
        let mut case = Case::random(&mut r);
        if i % 10 == 0 {
            (case.m, case.k) = (1 + r.below(3), 1 + r.below(2000));
        }
        let d = case.data::<f64>(&mut r);
        let third = |v: &[f64]| v.iter().map(|v| *v / 3.0).collect::<Vec<f64>>();
        let wide = Data { a: third(&d.a), b: third(&d.b), c: d.c };
        let single = |v: &[f64]| v.iter().map(|v| *v as f32).collect::<Vec<f32>>();
        let mut first: Option<Vec<u32>> = None;
        for kernels in arch::all_f32().iter().filter(|k| fused(k.name)) {
            let mut d = Data { a: single(&wide.a), b: single(&wide.b), c: single(&wide.c) };
            let args = case.args(&mut d);
            // SAFETY: the operands have the sizes of the case; the CPU has the set.
            unsafe { real(kernels, &pool, &args, None) };
            let bits: Vec<u32> = d.c.iter().map(|v| v.to_bits()).collect();
            assert!(first.is_none_or(|f| f == bits), "{} {case:?}", kernels.name);
            first = Some(bits);
        }
        let mut first: Option<Vec<u64>> = None;
        for kernels in arch::all_f64().iter().filter(|k| fused(k.name)) {
            let mut d = Data { a: wide.a.clone(), b: wide.b.clone(), c: wide.c.clone() };
            let args = case.args(&mut d);
            // SAFETY: as above.
            unsafe { real(kernels, &pool, &args, None) };
            let bits: Vec<u64> = d.c.iter().map(|v| v.to_bits()).collect();
            assert!(first.is_none_or(|f| f == bits), "{} {case:?}", kernels.name);
            first = Some(bits);
        }
    }
}

/// Columns that lie where they are, a panel at a time, and in blocks that no cache holds:
/// the portable set may round apart, the others may not.
#[test]
fn wide_products_agree_however_columns_are_read() {
    let mut r = Random(14);
    let pool = Pool::new(2);
    for (m, n, k) in [(5, 700, 410), (20, 1100, 500), (64, 523, 390), (130, 1060, 400)] {
        let (trans_a, trans_b) = (false, false);
        let case = Case { m, n, k, batch: 1, trans_a, trans_b, share_b: false };
        let mut d = case.data::<f32>(&mut r);
        let want = case.naive(&d);
        let mut first: Option<Vec<u32>> = None;
        for kernels in arch::all_f32() {
            let args = case.args(&mut d);
            // SAFETY: the operands have the sizes of the case; the CPU has the set.
            unsafe { real(kernels, &pool, &args, None) };
            case.compare(&d.c, &want, 1e-4);
            let bits: Vec<u32> = d.c.iter().map(|v| v.to_bits()).collect();
            if kernels.name != "portable" {
                assert!(first.is_none_or(|f| f == bits), "{} {case:?}", kernels.name);
                first = Some(bits);
            }
        }
    }
}

#[test]
fn threads_change_no_bit() {
    let mut r = Random(9);
    let one = Pool::new(1);
    for threads in [2, 3, 5, 8] {
        let many = Pool::new(threads);
        for (m, n, k) in
            [(64, 512, 784), (300, 200, 500), (1, 3000, 700), (7, 1000, 400), (900, 1, 800)]
        {
            for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let case = Case { m, n, k, batch: 1, trans_a, trans_b, share_b: false };
                let mut d = case.data::<f32>(&mut r);
                let args = case.args(&mut d);
                // SAFETY: the operands have the sizes of the case.
                unsafe { matmul(&one, &args, None) };
                let first: Vec<u32> = d.c.iter().map(|v| v.to_bits()).collect();
                // SAFETY: as above.
                unsafe { matmul(&many, &args, None) };
                let second: Vec<u32> = d.c.iter().map(|v| v.to_bits()).collect();
                assert!(first == second, "{case:?} with {threads} threads");
            }
        }
    }
}

#[test]
fn every_block_is_finished_once_and_final() {
    let mut r = Random(10);
    let pool = Pool::new(3);
    for i in 0..200 {
        let mut case = Case::random(&mut r);
        if i % 10 == 0 {
            (case.m, case.n, case.k) = (150, 1300, 400);
        }
        let mut d = case.data::<f32>(&mut r);
        let want = case.naive(&d);
        let args = case.args(&mut d);
        let seen = Mutex::new(vec![0u8; want.len()]);
        let finished = |r0: usize, r1: usize, c0: usize, c1: usize| {
            let args = &args; // the whole, which is `Sync`
            let mut seen = seen.lock().unwrap();
            for row in r0..r1 {
                for column in c0..c1 {
                    let at = row * case.n + column;
                    seen[at] += 1;
                    // SAFETY: inside the result; this block is ours now.
                    let v = unsafe { args.c.cast::<f32>().add(at).read() };
                    assert!((f64::from(v) - want[at]).abs() < 1e-3 * (1.0 + want[at].abs()));
                }
            }
        };
        // SAFETY: the operands have the sizes of the case.
        unsafe { matmul(&pool, &args, Some(&finished)) };
        assert!(seen.lock().unwrap().iter().all(|s| *s == 1), "{case:?}");
    }
}

#[test]
fn operands_that_stay_are_packed_once_and_change_no_bit() {
    let mut r = Random(13);
    let pool = Pool::new(2);
    for i in 0..120 {
        let mut case = Case::random(&mut r);
        if i % 3 == 0 {
            (case.n, case.k) = (64 + r.below(100), 40 + r.below(900));
        }
        let mut d = case.data::<f32>(&mut r);
        let args = case.args(&mut d);
        let cache = PackCache::new(1 << 22);
        let run = |version: u64, cache: &PackCache| {
            let stays = Stays { cache, tensor: 3, version };
            let args = MatMulArgs { b_stays: Some(stays), ..args };
            // SAFETY: the operands have the sizes of the case.
            unsafe {
                args.c.cast::<f32>().write_bytes(0xff, d.c.len());
                matmul(&pool, &args, None);
                std::slice::from_raw_parts(args.c.cast::<u32>(), d.c.len()).to_vec()
            }
        };
        let first = run(0, &cache);
        // Nobody knows yet whether it will be read again.
        assert_eq!(cache.bytes(), 0);
        for _ in 0..3 {
            assert!(run(0, &cache) == first, "{case:?}");
        }
        let kept = cache.bytes();
        let shared = case.share_b || case.batch == 1;
        let streamed = case.m <= 1 || case.n <= 1 || case.m <= 3 && case.trans_b && !case.trans_a;
        let worth = !streamed && case.batch > 0 && case.k * case.n >= 2048;
        assert_eq!(kept > 0, shared && worth, "{case:?}");
        // Another version: the old pack is not used, its memory is, and no room is no error.
        let other: Vec<f32> = d.b.iter().map(|v| v + 1.0).collect();
        d.b.copy_from_slice(&other);
        let unpacked = PackCache::new(1 << 22);
        let changed = run(0, &unpacked);
        for _ in 0..3 {
            assert!(run(1, &cache) == changed && cache.bytes() == kept);
        }
        let none = PackCache::new(16);
        for _ in 0..3 {
            assert!(run(0, &none) == changed && none.bytes() == 0);
        }
    }
}
