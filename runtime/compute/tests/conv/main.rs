//! Convolutions of every kind against the plain loops in f64.

mod few;
mod tiles;

use std::sync::Mutex;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;
use tfc_compute::Pool;
use tfc_compute::conv::{ConvArgs, conv, real, simple};
use tfc_compute::gemm::arch;
use tfc_compute::gemm::prepack::{PackCache, Stays};
use tfc_compute::half::{bf16, f16};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// In -1..1, exact in half-precision.
    fn value(&mut self) -> f64 {
        self.below(33) as f64 / 16.0 - 1.0
    }
}

const KINDS: [ConvKind; 3] = [ConvKind::Forward, ConvKind::GradInput, ConvKind::GradFilter];

/// A geometry without memory.
fn geometry(r: &mut Random, kind: ConvKind) -> ConvArgs<'static> {
    let groups = 1 + r.below(3);
    let depthwise = r.below(4) == 0;
    let (ci, co) = if depthwise { (1, 1) } else { (1 + r.below(5), 1 + r.below(9)) };
    let kernel = [1 + r.below(4), 1 + r.below(4)];
    let stride = [1 + r.below(3), 1 + r.below(3)];
    let dilation = [1 + r.below(2), 1 + r.below(2)];
    let pad = [r.below(3), r.below(3)];
    let size = |r: &mut Random| r.below(20);
    let (in_h, in_w) = (size(r), size(r));
    let out = |size: usize, a: usize| {
        let reach = (kernel[a] - 1) * dilation[a] + 1;
        // Padding after the last row may differ from the padding before it.
        (size + 2 * pad[a] + 1).checked_sub(reach).map_or(0, |free| free / stride[a] + 1)
    };
    ConvArgs {
        kind,
        dtype: DType::F64,
        lhs: std::ptr::null(),
        rhs: std::ptr::null(),
        out: std::ptr::null_mut(),
        batch: r.below(4),
        in_channels: ci * groups,
        in_h,
        in_w,
        out_channels: co * groups,
        out_h: out(in_h, 0),
        out_w: out(in_w, 1),
        kernel,
        stride,
        dilation,
        pad,
        groups,
        plain: false,
        rhs_stays: None,
    }
}

/// Sizes of left, right, result.
fn sizes(c: &ConvArgs<'_>) -> [usize; 3] {
    let image = c.batch * c.in_channels * c.in_h * c.in_w;
    let filter = c.out_channels * (c.in_channels / c.groups) * c.kernel[0] * c.kernel[1];
    let output = c.batch * c.out_channels * c.out_h * c.out_w;
    match c.kind {
        ConvKind::Forward => [image, filter, output],
        ConvKind::GradInput => [output, filter, image],
        ConvKind::GradFilter => [image, output, filter],
    }
}

fn check<T: Copy>(
    dtype: DType,
    cases: usize,
    tolerance: f64,
    of: impl Fn(f64) -> T,
    get: impl Fn(T) -> f64,
) {
    let mut r = Random(dtype as u64 + 1);
    let pools = [Pool::new(1), Pool::new(2), Pool::new(5)];
    for i in 0..cases {
        let shape = geometry(&mut r, KINDS[i % 3]);
        let [nl, nr, no] = sizes(&shape);
        let (l, w): (Vec<f64>, Vec<f64>) =
            ((0..nl).map(|_| r.value()).collect(), (0..nr).map(|_| r.value()).collect());
        let mut want = vec![0f64; no];
        let naive = ConvArgs {
            lhs: l.as_ptr().cast(),
            rhs: w.as_ptr().cast(),
            out: want.as_mut_ptr().cast(),
            ..shape
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe { simple::conv::<f64>(&pools[0], &naive, None) };
        let (l, w): (Vec<T>, Vec<T>) =
            (l.iter().map(|v| of(*v)).collect(), w.iter().map(|v| of(*v)).collect());
        let mut got = vec![of(7.0); no];
        let args = ConvArgs {
            dtype,
            lhs: l.as_ptr().cast(),
            rhs: w.as_ptr().cast(),
            out: got.as_mut_ptr().cast(),
            ..shape
        };
        let columns =
            if shape.out_channels * shape.batch == 0 { 0 } else { shape.out_h * shape.out_w };
        let seen = Mutex::new(vec![0u8; no]);
        let finished = |r0: usize, r1: usize, c0: usize, c1: usize| {
            let mut seen = seen.lock().unwrap();
            for row in r0..r1 {
                seen[row * columns + c0..row * columns + c1].iter_mut().for_each(|s| *s += 1);
            }
        };
        let forward = shape.kind == ConvKind::Forward;
        // SAFETY: as above.
        unsafe { conv(&pools[i % 3], &args, if forward { Some(&finished) } else { None }) };
        for (at, (g, w)) in got.iter().zip(&want).enumerate() {
            let error = (get(*g) - w).abs();
            assert!(error <= tolerance * (1.0 + w.abs()), "{shape:?} at {at}: {} {w}", get(*g));
        }
        assert!(!forward || seen.lock().unwrap().iter().all(|s| *s == 1), "{shape:?}");
    }
}

/// Channels enough for several tiles, vectors of channels as well as of pixels,
/// and pictures wider than a vector.
fn larger(r: &mut Random, i: usize) -> ConvArgs<'static> {
    let mut c = geometry(r, KINDS[i % 3]);
    c.groups = 1 + r.below(2);
    let (ci, co) = match r.below(4) {
        // One filter per channel.
        0 => (1, 1),
        1 => (1 + r.below(3), 64),
        2 => (64, 1 + r.below(30)),
        _ => (1 + r.below(50), 1 + r.below(80)),
    };
    if (ci, co) == (1, 1) {
        c.groups = 1 + r.below(20);
    }
    (c.in_channels, c.out_channels) = (ci * c.groups, co * c.groups);
    let size = |r: &mut Random| 1 + r.below([9, 18, 50][i % 3]);
    (c.in_h, c.in_w) = (size(r), size(r));
    c.kernel = if r.below(3) == 0 { [1, 1] } else { [1 + r.below(3), 1 + r.below(5)] };
    let out = |size: usize, a: usize| {
        let reach = (c.kernel[a] - 1) * c.dilation[a] + 1;
        (size + 2 * c.pad[a] + 1).checked_sub(reach).map_or(0, |free| free / c.stride[a] + 1)
    };
    (c.out_h, c.out_w) = (out(c.in_h, 0), out(c.in_w, 1));
    if c.kernel == [1, 1] && r.below(2) == 0 {
        // The image as it is.
        (c.stride, c.pad, c.out_h, c.out_w) = ([1, 1], [0, 0], c.in_h, c.in_w);
    }
    c
}

#[test]
fn every_instruction_set_agrees() {
    let mut r = Random(77);
    let pools = [Pool::new(1), Pool::new(3)];
    for i in 0..240 {
        let shape = larger(&mut r, i);
        let [nl, nr, no] = sizes(&shape);
        let l: Vec<f64> = (0..nl).map(|_| r.value()).collect();
        let w: Vec<f64> = (0..nr).map(|_| r.value()).collect();
        let mut want = vec![0f64; no];
        let args = ConvArgs {
            lhs: l.as_ptr().cast(),
            rhs: w.as_ptr().cast(),
            out: want.as_mut_ptr().cast(),
            ..shape
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe { simple::conv::<f64>(&pools[1], &args, None) };
        // A third is no number of few bits: the order of sums shows.
        let third = |v: &[f64]| v.iter().map(|v| *v as f32 / 3.0).collect::<Vec<f32>>();
        let (l32, w32) = (third(&l), third(&w));
        let mut bits: Option<Vec<u32>> = None;
        for kernels in arch::all_f32() {
            for pool in &pools {
                let mut got = vec![7f32; no];
                let args = ConvArgs {
                    dtype: DType::F32,
                    lhs: l32.as_ptr().cast(),
                    rhs: w32.as_ptr().cast(),
                    out: got.as_mut_ptr().cast(),
                    ..shape
                };
                // SAFETY: as above; the CPU has the set.
                unsafe { real::<f32>(kernels, pool, &args, None) };
                for (at, (g, w)) in got.iter().zip(&want).enumerate() {
                    let (g, name) = (f64::from(*g) * 9.0, kernels.name);
                    let error = (g - w).abs();
                    assert!(error <= 2e-3 * (1.0 + w.abs()), "{name} {shape:?} at {at}: {g} {w}");
                }
                // Those that fuse multiply-adds give the same bits.
                if kernels.name != "portable" {
                    let now: Vec<u32> = got.iter().map(|v| v.to_bits()).collect();
                    assert!(bits.is_none_or(|b| b == now), "{} {shape:?}", kernels.name);
                    bits = Some(now);
                }
            }
        }
        for kernels in arch::all_f64() {
            let mut got = vec![7f64; no];
            let args = ConvArgs { out: got.as_mut_ptr().cast(), ..args };
            // SAFETY: as above.
            unsafe { real::<f64>(kernels, &pools[1], &args, None) };
            // Sixteenths are exact.
            assert!(got == want, "{} {shape:?}", kernels.name);
        }
    }
}

#[test]
fn f32_convolutions() {
    check::<f32>(DType::F32, 900, 1e-5, |v| v as f32, f64::from);
}

#[test]
fn f64_convolutions() {
    check::<f64>(DType::F64, 300, 1e-12, |v| v, |v| v);
}

#[test]
fn half_convolutions() {
    check::<f16>(DType::F16, 150, 2e-3, f16::from_f64, f64::from);
    check::<bf16>(DType::BF16, 150, 2e-2, bf16::from_f64, f64::from);
}

#[test]
fn integer_convolutions() {
    // Whole numbers times sixteen are exact: the sums are compared as such.
    let mut r = Random(99);
    let pool = Pool::new(2);
    for i in 0..60 {
        let shape = geometry(&mut r, KINDS[i % 3]);
        let [nl, nr, no] = sizes(&shape);
        let l: Vec<i32> = (0..nl).map(|_| r.below(100) as i32 - 50).collect();
        let w: Vec<i32> = (0..nr).map(|_| r.below(100) as i32 - 50).collect();
        let (lf, wf): (Vec<f64>, Vec<f64>) =
            (l.iter().map(|v| f64::from(*v)).collect(), w.iter().map(|v| f64::from(*v)).collect());
        let (mut got, mut want) = (vec![0i32; no], vec![0f64; no]);
        let ints = ConvArgs {
            dtype: DType::I32,
            lhs: l.as_ptr().cast(),
            rhs: w.as_ptr().cast(),
            out: got.as_mut_ptr().cast(),
            ..shape
        };
        let floats = ConvArgs {
            lhs: lf.as_ptr().cast(),
            rhs: wf.as_ptr().cast(),
            out: want.as_mut_ptr().cast(),
            ..shape
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe {
            conv(&pool, &ints, None);
            conv(&pool, &floats, None);
        }
        assert!(got.iter().zip(&want).all(|(g, w)| f64::from(*g) == *w), "{shape:?}");
    }
}

/// A convolution by its definition: the image is padded for real, and every
/// (pixel, weight, output) that meet is visited. Shares nothing with the crate.
/// `high` is the padding after the last row and column.
fn by_definition(c: &ConvArgs<'_>, high: [usize; 2], l: &[f64], r: &[f64]) -> Vec<f64> {
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let (ph, pw) = (c.in_h + c.pad[0] + high[0], c.in_w + c.pad[1] + high[1]);
    let mut out = vec![0.0; sizes(c)[2]];
    for n in 0..c.batch {
        for o in 0..c.out_channels {
            for i in 0..ci {
                for (ky, kx) in (0..c.kernel[0]).flat_map(|y| (0..c.kernel[1]).map(move |x| (y, x)))
                {
                    for (y, x) in (0..c.out_h).flat_map(|y| (0..c.out_w).map(move |x| (y, x))) {
                        // Coordinates in the padded image.
                        let py = y * c.stride[0] + ky * c.dilation[0];
                        let px = x * c.stride[1] + kx * c.dilation[1];
                        assert!(py < ph && px < pw, "{c:?}");
                        let rows = c.pad[0]..c.pad[0] + c.in_h;
                        let columns = c.pad[1]..c.pad[1] + c.in_w;
                        if !rows.contains(&py) || !columns.contains(&px) {
                            continue;
                        }
                        let channel = o / co * ci + i;
                        let image =
                            ((n * c.in_channels + channel) * c.in_h + py - c.pad[0]) * c.in_w + px
                                - c.pad[1];
                        let weight = ((o * ci + i) * c.kernel[0] + ky) * c.kernel[1] + kx;
                        let pixel = ((n * c.out_channels + o) * c.out_h + y) * c.out_w + x;
                        match c.kind {
                            ConvKind::Forward => out[pixel] += l[image] * r[weight],
                            ConvKind::GradInput => out[image] += l[pixel] * r[weight],
                            ConvKind::GradFilter => out[weight] += l[image] * r[pixel],
                        }
                    }
                }
            }
        }
    }
    out
}

/// Every kind with every small geometry; `visit` gets it with its high padding.
fn small_geometries(mut visit: impl FnMut(&ConvArgs<'_>, [usize; 2])) {
    let pads: Vec<[usize; 4]> = (0..81).map(|i| [i / 27, i / 9 % 3, i / 3 % 3, i % 3]).collect();
    // Channels in, channels out, groups: one, several, grouped, one filter each.
    let channels = [(1, 1, 1), (2, 3, 1), (4, 2, 2), (3, 3, 3)];
    for (k, kind) in KINDS.into_iter().enumerate() {
        for step in 0..3 * 3 * 2 * 2 {
            let kernel = [1 + step / 4 % 3, 1 + step / 12];
            let (stride, dilation) = (1 + step % 2, 1 + step / 2 % 2);
            for (p, [top, bottom, left, right]) in pads.iter().copied().enumerate() {
                // Each case takes one of the sizes and of the channels in turn.
                let turn = k + step + p;
                let (in_channels, out_channels, groups) = channels[turn % 4];
                let (in_h, in_w) = ([1, 3, 5][turn / 4 % 3], [2, 1, 4][turn % 3]);
                let out = |size: usize, axis: usize, pad: usize| {
                    let reach = (kernel[axis] - 1) * dilation + 1;
                    (size + pad).checked_sub(reach).map_or(0, |free| free / stride + 1)
                };
                let shape = ConvArgs {
                    kind,
                    dtype: DType::F64,
                    lhs: std::ptr::null(),
                    rhs: std::ptr::null(),
                    out: std::ptr::null_mut(),
                    batch: 1 + turn % 2,
                    in_channels,
                    in_h,
                    in_w,
                    out_channels,
                    out_h: out(in_h, 0, top + bottom),
                    out_w: out(in_w, 1, left + right),
                    kernel,
                    stride: [stride; 2],
                    dilation: [dilation; 2],
                    pad: [top, left],
                    groups,
                    plain: false,
                    rhs_stays: None,
                };
                visit(&shape, [bottom, right]);
            }
        }
    }
}

// values 1: 1x1 filters padded only at the bottom or right read past the image.
#[test]
fn small_geometries_are_as_defined() {
    let pool = Pool::new(1);
    let mut r = Random(5);
    let mut cases = 0;
    small_geometries(|shape, high| {
        let [nl, nr, no] = sizes(shape);
        let l: Vec<f64> = (0..nl).map(|_| r.value()).collect();
        let w: Vec<f64> = (0..nr).map(|_| r.value()).collect();
        let want = by_definition(shape, high, &l, &w);
        let single = |v: &[f64]| v.iter().map(|v| *v as f32).collect::<Vec<f32>>();
        let whole = |v: &[f64]| v.iter().map(|v| (*v * 16.0) as i32).collect::<Vec<i32>>();
        let (l32, w32, li, wi) = (single(&l), single(&w), whole(&l), whole(&w));
        let (mut f64s, mut f32s, mut ints) = (vec![9.0; no], vec![9f32; no], vec![9; no]);
        let args = |dtype, lhs: *const u8, rhs: *const u8, out: *mut u8| ConvArgs {
            dtype,
            lhs,
            rhs,
            out,
            ..*shape
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe {
            let out = f64s.as_mut_ptr().cast();
            conv(&pool, &args(DType::F64, l.as_ptr().cast(), w.as_ptr().cast(), out), None);
            let out = f32s.as_mut_ptr().cast();
            conv(&pool, &args(DType::F32, l32.as_ptr().cast(), w32.as_ptr().cast(), out), None);
            let out = ints.as_mut_ptr().cast();
            conv(&pool, &args(DType::I32, li.as_ptr().cast(), wi.as_ptr().cast(), out), None);
        }
        // Sixteenths are exact in all three.
        for (at, w) in want.iter().enumerate() {
            assert_eq!(f64s[at], *w, "f64 {shape:?} {high:?} at {at}");
            assert_eq!(f64::from(f32s[at]), *w, "f32 {shape:?} {high:?} at {at}");
            assert_eq!(f64::from(ints[at]), *w * 256.0, "i32 {shape:?} {high:?} at {at}");
        }
        cases += 1;
    });
    assert_eq!(cases, 3 * 36 * 81);
}

// values 8: a NaN over padding alone made the whole gradient of the filter NaN, and a
// weight that was NaN made pixels NaN that it only met the padding of.
#[test]
fn padding_meets_nothing() {
    let pool = Pool::new(2);
    let mut r = Random(11);
    let (mut kept, mut cases) = (0, 0);
    small_geometries(|shape, high| {
        if sizes(shape)[1] == 0 {
            return;
        }
        let [nl, nr, no] = sizes(shape);
        let l: Vec<f32> = (0..nl).map(|_| r.value() as f32).collect();
        let mut w: Vec<f32> = (0..nr).map(|_| r.value() as f32).collect();
        w[r.below(nr)] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][cases % 3];
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let want = by_definition(shape, high, &wide(&l), &wide(&w));
        let mut got = vec![9f32; no];
        let rows = match shape.kind {
            ConvKind::Forward => shape.batch * shape.out_channels,
            ConvKind::GradInput => shape.batch * shape.in_channels,
            ConvKind::GradFilter => shape.out_channels,
        };
        let seen = Mutex::new(vec![0; rows]);
        let finished = |r0: usize, r1: usize, c0: usize, c1: usize| {
            let mut seen = seen.lock().unwrap();
            (r0..r1).for_each(|row| seen[row] += c1 - c0);
        };
        let args = ConvArgs {
            dtype: DType::F32,
            lhs: l.as_ptr().cast(),
            rhs: w.as_ptr().cast(),
            out: got.as_mut_ptr().cast(),
            ..*shape
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe { conv(&pool, &args, Some(&finished)) };
        for (at, w) in want.iter().enumerate() {
            let same = f64::from(got[at]) == *w || (got[at].is_nan() && w.is_nan());
            assert!(same, "{shape:?} {high:?} at {at}: {} {w}", got[at]);
        }
        let columns = no / rows.max(1);
        assert!(seen.lock().unwrap().iter().all(|s| *s == columns), "{shape:?}");
        kept += usize::from(want.iter().all(|w| w.is_finite()));
        cases += 1;
    });
    // In many of the cases the value met nothing but padding.
    assert!(cases > 2000 && kept > 200, "{kept} of {cases}");
}

/// Pictures whose rows are several vectors long: strides are taken apart in vectors, and only
/// the ends of rows are looked at for what met the padding.
#[test]
fn long_rows_are_as_defined() {
    let pool = Pool::new(2);
    let mut r = Random(21);
    for case in 0..24 {
        let (in_h, in_w) = (3 + case % 3, 90 + 13 * (case % 5));
        let (kernel, stride) = ([2 + case % 2, 1 + case % 4], 1 + case % 2);
        let out = |size: usize, k: usize| (size + 2).saturating_sub(k) / stride + 1;
        let shape = ConvArgs {
            kind: [ConvKind::Forward, ConvKind::GradInput][case / 2 % 2],
            dtype: DType::F32,
            lhs: std::ptr::null(),
            rhs: std::ptr::null(),
            out: std::ptr::null_mut(),
            batch: 1,
            in_channels: 2,
            in_h,
            in_w,
            out_channels: [3, 2][case % 2],
            out_h: out(in_h, kernel[0]),
            out_w: out(in_w, kernel[1]),
            kernel,
            stride: [stride; 2],
            dilation: [1, 1],
            pad: [1, 1],
            groups: [1, 2][case % 2],
            plain: false,
            rhs_stays: None,
        };
        let [nl, nr, no] = sizes(&shape);
        let l: Vec<f32> = (0..nl).map(|_| r.value() as f32).collect();
        let mut w: Vec<f32> = (0..nr).map(|_| r.value() as f32).collect();
        if case >= 8 {
            w[r.below(nr)] = f32::INFINITY;
        }
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let want = by_definition(&shape, [1, 1], &wide(&l), &wide(&w));
        for kernels in arch::all_f32() {
            let mut got = vec![9f32; no];
            let args = ConvArgs {
                lhs: l.as_ptr().cast(),
                rhs: w.as_ptr().cast(),
                out: got.as_mut_ptr().cast(),
                ..shape
            };
            // SAFETY: the memory has the sizes of the geometry.
            unsafe { real(kernels, &pool, &args, None) };
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = f64::from(*got) == *want || (got.is_nan() && want.is_nan());
                assert!(same, "{} {shape:?} at {at}: {got}, not {want}", kernels.name);
            }
        }
    }
}

#[test]
fn filters_that_stay_are_packed_once_and_change_no_bit() {
    let mut r = Random(21);
    let pool = Pool::new(2);
    let mut kept = 0;
    for i in 0..90 {
        let shape = larger(&mut r, i);
        let [nl, nr, no] = sizes(&shape);
        let l: Vec<f32> = (0..nl).map(|_| r.value() as f32).collect();
        let w: Vec<f32> = (0..nr).map(|_| r.value() as f32).collect();
        let cache = PackCache::new(1 << 22);
        let mut first: Option<Vec<u32>> = None;
        for _ in 0..3 {
            let mut got = vec![7f32; no];
            let args = ConvArgs {
                dtype: DType::F32,
                lhs: l.as_ptr().cast(),
                rhs: w.as_ptr().cast(),
                out: got.as_mut_ptr().cast(),
                rhs_stays: Some(Stays { cache: &cache, tensor: 0, version: 5 }),
                ..shape
            };
            // SAFETY: the memory has the sizes of the geometry.
            unsafe { conv(&pool, &args, None) };
            let bits: Vec<u32> = got.iter().map(|v| v.to_bits()).collect();
            assert!(first.is_none_or(|f| f == bits), "{shape:?}");
            first = Some(bits);
        }
        kept += usize::from(cache.bytes() > 0);
        assert!(cache.bytes() == 0 || shape.kind == ConvKind::Forward);
    }
    assert!(kept > 5, "{kept}");
}
