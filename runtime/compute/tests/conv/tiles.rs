//! Convolutions by tiles, with fewer multiplications than the plain sum.

use crate::{KINDS, Random, geometry, sizes};
use std::sync::Mutex;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;
use tfc_compute::Pool;
use tfc_compute::conv::{ConvArgs, conv, real, simple};
use tfc_compute::gemm::arch;
use tfc_compute::gemm::kernel::Kernels;

/// Windows of 3x3 or 5x5 and channels enough that tiles are worth it.
fn tiled(r: &mut Random, i: usize) -> ConvArgs<'static> {
    let mut c = geometry(r, KINDS[i % 3]);
    let window = [3, 5][i / 3 % 2];
    let groups = 1 + usize::from(r.below(3) == 0);
    (c.groups, c.kernel, c.stride, c.dilation) = (groups, [window; 2], [1, 1], [1, 1]);
    c.pad = [r.below(window), r.below(window)];
    c.batch = 1 + r.below(3);
    (c.in_channels, c.out_channels) = ((16 + r.below(50)) * groups, (16 + r.below(70)) * groups);
    let size = |r: &mut Random| 1 + r.below([14, 30, 40][i / 6 % 3]);
    (c.in_h, c.in_w) = (size(r), size(r));
    let high = [r.below(window), r.below(window)];
    let out = |size: usize, a: usize| (size + c.pad[a] + high[a]).saturating_sub(window - 1);
    (c.out_h, c.out_w) = (out(c.in_h, 0), out(c.in_w, 1));
    c
}

/// The bits of a convolution of f32.
pub fn run(
    shape: &ConvArgs<'_>,
    kernels: &'static Kernels<f32>,
    pool: &Pool,
    (l, w): (&[f32], &[f32]),
) -> Vec<f32> {
    let mut got = vec![7f32; sizes(shape)[2]];
    let args = ConvArgs {
        dtype: DType::F32,
        lhs: l.as_ptr().cast(),
        rhs: w.as_ptr().cast(),
        out: got.as_mut_ptr().cast(),
        ..*shape
    };
    // SAFETY: the memory has the sizes of the geometry; the CPU has the set.
    unsafe { real::<f32>(kernels, pool, &args, None) };
    got
}

#[test]
fn tiles_agree_with_plain_sums() {
    let mut r = Random(303);
    let pools = [Pool::new(1), Pool::new(2), Pool::new(5)];
    // By kind and window: how many went by tiles, and the squares of errors, by tiles and
    // plain.
    let (mut other, mut squares) = ([0; 6], [[0f64; 2]; 6]);
    for i in 0..240 {
        let shape = tiled(&mut r, i);
        let (case, window) = (i % 6, shape.kernel[0]);
        let [nl, nr, no] = sizes(&shape);
        let third = |r: &mut Random| (r.value() / 3.0) as f32;
        let l: Vec<f32> = (0..nl).map(|_| third(&mut r)).collect();
        let w: Vec<f32> = (0..nr).map(|_| third(&mut r)).collect();
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let (wide_l, wide_w, mut want) = (wide(&l), wide(&w), vec![0f64; no]);
        let args = ConvArgs {
            lhs: wide_l.as_ptr().cast(),
            rhs: wide_w.as_ptr().cast(),
            out: want.as_mut_ptr().cast(),
            ..shape
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe { simple::conv::<f64>(&pools[1], &args, None) };
        let mut bits: Option<Vec<u32>> = None;
        for kernels in arch::all_f32() {
            for pool in &pools {
                let got = run(&shape, kernels, pool, (&l, &w));
                // Both terms of a product are below a third.
                let terms = match shape.kind {
                    ConvKind::GradFilter => shape.batch * shape.out_h * shape.out_w / 9 + 16,
                    _ => shape.in_channels.max(shape.out_channels) * window * window / 9,
                };
                for (at, (g, w)) in got.iter().zip(&want).enumerate() {
                    let error = (f64::from(*g) - w).abs();
                    let name = kernels.name;
                    assert!(error <= 3e-7 * terms as f64, "{name} {shape:?} at {at}: {g} {w}");
                }
                if kernels.name != "portable" {
                    let now: Vec<u32> = got.iter().map(|v| v.to_bits()).collect();
                    assert!(bits.is_none_or(|b| b == now), "{} {shape:?}", kernels.name);
                    bits = Some(now);
                }
            }
        }
        let plain = ConvArgs { plain: true, ..shape };
        let plain = run(&plain, arch::all_f32()[0], &pools[0], (&l, &w));
        let tiles = run(&shape, arch::all_f32()[0], &pools[0], (&l, &w));
        if plain != tiles {
            other[case] += 1;
            for (sum, got) in squares[case].iter_mut().zip([tiles, plain]) {
                let errors = got.iter().zip(&want).map(|(g, w)| f64::from(*g) - w);
                *sum += errors.map(|e| e * e).sum::<f64>();
            }
        }
    }
    assert!(other.iter().all(|n| *n > 15), "only {other:?} of 40 each went by tiles");
    for (case, [tiles, plain]) in squares.into_iter().enumerate() {
        let ratio = (tiles / plain).sqrt();
        assert!(ratio < 3.3, "case {case}: {ratio} times the error of the plain sum");
    }
}

/// The gradient of the filter sums over all pixels of all images.
#[test]
fn long_sums_by_tiles_lose_little() {
    let mut r = Random(707);
    let (pool, kernels) = (Pool::new(2), arch::all_f32()[0]);
    let base = ConvArgs { kind: ConvKind::GradFilter, ..tiled(&mut r, 0) };
    for (window, size, batch) in [(3, 14, 64), (3, 56, 64), (5, 14, 64), (5, 56, 64), (3, 6, 40)] {
        for positive in [false, true] {
            let shape = ConvArgs {
                batch,
                in_channels: 16,
                in_h: size,
                in_w: size,
                out_channels: 16,
                out_h: size,
                out_w: size,
                kernel: [window; 2],
                pad: [window / 2; 2],
                groups: 1,
                ..base
            };
            let [nl, nr, no] = sizes(&shape);
            let value = |r: &mut Random| {
                let v = r.value() / 3.0 + r.value() / 777.0;
                if positive { v.abs() as f32 } else { v as f32 }
            };
            let l: Vec<f32> = (0..nl).map(|_| value(&mut r)).collect();
            let w: Vec<f32> = (0..nr).map(|_| value(&mut r)).collect();
            let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
            let (wide_l, wide_w, mut want) = (wide(&l), wide(&w), vec![0f64; no]);
            let args = ConvArgs {
                lhs: wide_l.as_ptr().cast(),
                rhs: wide_w.as_ptr().cast(),
                out: want.as_mut_ptr().cast(),
                ..shape
            };
            // SAFETY: the memory has the sizes of the geometry.
            unsafe { simple::conv::<f64>(&pool, &args, None) };
            let error = |plain: bool| {
                let got = run(&ConvArgs { plain, ..shape }, kernels, &pool, (&l, &w));
                let errors = got.iter().zip(&want).map(|(g, w)| f64::from(*g) - w);
                errors.map(|e| e * e).sum::<f64>().sqrt()
            };
            let ratio = error(false) / error(true);
            assert!(ratio < 3.3, "{shape:?}: {ratio} times the error of the plain sum");
        }
    }
}

#[test]
fn what_is_not_finite_does_not_spread_in_tiles() {
    let mut r = Random(404);
    let pools = [Pool::new(1), Pool::new(3)];
    for i in 0..60 {
        let shape = tiled(&mut r, i);
        let [nl, nr, no] = sizes(&shape);
        if nl.min(nr).min(no) == 0 {
            continue;
        }
        let mut l: Vec<f32> = (0..nl).map(|_| r.value() as f32).collect();
        let mut w: Vec<f32> = (0..nr).map(|_| r.value() as f32).collect();
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38][i % 4];
        if i % 5 == 0 {
            w[r.below(nr)] = odd;
        } else {
            l[r.below(nl)] = odd;
        }
        let plain = ConvArgs { plain: true, ..shape };
        for kernels in arch::all_f32() {
            let want = run(&plain, kernels, &pools[0], (&l, &w));
            let got = run(&shape, kernels, &pools[i % 2], (&l, &w));
            for (at, (g, w)) in got.iter().zip(&want).enumerate() {
                let close = g == w || (g.is_nan() && w.is_nan());
                let finite = g.is_finite() && w.is_finite();
                assert!(close || finite, "{} {shape:?} at {at}: {g} {w}", kernels.name);
            }
        }
    }
}

#[test]
fn every_tile_is_finished_once() {
    let mut r = Random(505);
    for i in 0..60 {
        let shape = tiled(&mut r, i);
        let pool = Pool::new([1, 2, 7][i / 3 % 3]);
        let [nl, nr, no] = sizes(&shape);
        let mut l: Vec<f32> = (0..nl).map(|_| r.value() as f32).collect();
        let w: Vec<f32> = (0..nr).map(|_| r.value() as f32).collect();
        if i % 2 == 0 && nl > 0 {
            l[r.below(nl)] = f32::NAN;
        }
        let mut got = vec![7f32; no];
        let args = ConvArgs {
            dtype: DType::F32,
            lhs: l.as_ptr().cast(),
            rhs: w.as_ptr().cast(),
            out: got.as_mut_ptr().cast(),
            ..shape
        };
        let columns = match shape.kind {
            ConvKind::Forward => shape.out_h * shape.out_w,
            ConvKind::GradInput => shape.in_h * shape.in_w,
            ConvKind::GradFilter => shape.in_channels / shape.groups * shape.kernel[0].pow(2),
        };
        let seen = Mutex::new(vec![0u8; no]);
        let finished = |r0: usize, r1: usize, c0: usize, c1: usize| {
            let mut seen = seen.lock().unwrap();
            for row in r0..r1 {
                seen[row * columns + c0..row * columns + c1].iter_mut().for_each(|s| *s += 1);
            }
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe { conv(&pool, &args, Some(&finished)) };
        // Without images there may be nothing to finish.
        let none = shape.out_h * shape.out_w == 0;
        assert!(none || seen.lock().unwrap().iter().all(|s| *s == 1), "{shape:?}");
    }
}

/// Rows of tiles that are cut, and channels that are: threads take some of each.
#[test]
fn the_gradient_of_the_filter_is_the_same_for_any_threads() {
    let mut r = Random(808);
    let base = ConvArgs { kind: ConvKind::GradFilter, ..tiled(&mut r, 0) };
    let cases = [
        // Window, groups, channels in and out, rows and columns, padding.
        (3, 1, [16, 20], [9, 301], [1, 0]),
        (5, 1, [33, 16], [7, 250], [4, 3]),
        (5, 2, [48, 36], [11, 130], [0, 2]),
        (3, 2, [70, 500], [17, 10], [2, 1]),
        (3, 1, [130, 90], [40, 41], [1, 1]),
        (3, 1, [512, 520], [9, 9], [1, 1]),
    ];
    for (window, groups, [ci, co], [in_h, in_w], pad) in cases {
        let shape = ConvArgs {
            batch: 3,
            in_channels: ci * groups,
            out_channels: co * groups,
            in_h,
            in_w,
            out_h: in_h + 2 * pad[0] + 1 - window,
            out_w: in_w + 2 * pad[1] + 1 - window,
            kernel: [window; 2],
            pad,
            groups,
            ..base
        };
        let [nl, nr, _] = sizes(&shape);
        let l: Vec<f32> = (0..nl).map(|_| (r.value() / 3.0) as f32).collect();
        let w: Vec<f32> = (0..nr).map(|_| (r.value() / 3.0) as f32).collect();
        let first = Pool::new(1);
        let plain = ConvArgs { plain: true, ..shape };
        let plain = run(&plain, arch::all_f32()[0], &first, (&l, &w));
        let want = run(&shape, arch::all_f32()[0], &first, (&l, &w));
        assert!(plain != want, "{shape:?} does not go by tiles");
        // Errors are about 1e-7 of the largest sums.
        let largest = plain.iter().fold(0f32, |most, v| most.max(v.abs()));
        for (p, w) in plain.iter().zip(&want) {
            assert!((p - w).abs() < 3e-5 * largest, "{shape:?}: {w}, plainly {p}");
        }
        for kernels in arch::all_f32() {
            for threads in [1, 2, 3, 4, 8] {
                let got = run(&shape, kernels, &Pool::new(threads), (&l, &w));
                if kernels.name == "portable" {
                    let close = |(g, w): (&f32, &f32)| (g - w).abs() < 3e-5 * largest;
                    assert!(got.iter().zip(&want).all(close), "{threads} {shape:?}");
                } else {
                    assert!(got == want, "{} {threads} {shape:?}", kernels.name);
                }
            }
        }
    }
}

/// Memory for tiles would grow with the width.
#[test]
fn very_wide_pictures_are_summed_plainly() {
    let mut r = Random(606);
    let mut shape = ConvArgs { kind: ConvKind::Forward, ..tiled(&mut r, 0) };
    (shape.batch, shape.in_channels, shape.out_channels) = (1, 16, 16);
    (shape.in_h, shape.in_w, shape.pad) = (3, 60_002, [0, 0]);
    (shape.out_h, shape.out_w) = (1, 60_000);
    let [nl, nr, _] = sizes(&shape);
    let l: Vec<f32> = (0..nl).map(|_| (r.value() / 3.0) as f32).collect();
    let w: Vec<f32> = (0..nr).map(|_| (r.value() / 3.0) as f32).collect();
    let (pool, kernels) = (Pool::new(2), arch::all_f32()[0]);
    let plain = run(&ConvArgs { plain: true, ..shape }, kernels, &pool, (&l, &w));
    assert!(run(&shape, kernels, &pool, (&l, &w)) == plain);
    // Less wide ones are not.
    (shape.in_h, shape.in_w, shape.out_h, shape.out_w) = (34, 402, 32, 400);
    let plain = run(&ConvArgs { plain: true, ..shape }, kernels, &pool, (&l, &w));
    assert!(run(&shape, kernels, &pool, (&l, &w)) != plain);
}
