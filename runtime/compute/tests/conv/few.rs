//! The gradient of filters that read few channels.

use crate::tiles::run;
use crate::{Random, geometry, sizes};
use std::sync::Mutex;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;
use tfc_compute::Pool;
use tfc_compute::conv::{ConvArgs, conv, simple};
use tfc_compute::gemm::arch;

/// Few input channels, and output channels enough for vectors of them.
fn few(r: &mut Random, i: usize) -> ConvArgs<'static> {
    let mut c = geometry(r, ConvKind::GradFilter);
    c.groups = 1;
    (c.in_channels, c.out_channels) = (1 + r.below(4), 16 + r.below(60));
    c.batch = 1 + r.below([2, 70][i % 2]);
    let size = |r: &mut Random| 1 + r.below([30, 20, 9, 200][i % 4]);
    (c.in_h, c.in_w) = (size(r), size(r));
    c.kernel = [1 + r.below(5), 1 + r.below(6)];
    let high = [r.below(3), r.below(3)];
    let out = |size: usize, a: usize| {
        let reach = (c.kernel[a] - 1) * c.dilation[a] + 1;
        (size + c.pad[a] + high[a]).checked_sub(reach).map_or(0, |free| free / c.stride[a] + 1)
    };
    (c.out_h, c.out_w) = (out(c.in_h, 0), out(c.in_w, 1));
    // Not more than a test has time for.
    while c.batch > 1 && sizes(&c)[1] > 200_000 {
        c.batch /= 2;
    }
    c
}

#[test]
fn few_channels_agree_with_plain_sums() {
    let mut r = Random(909);
    let pools = [1, 2, 3, 7].map(Pool::new);
    let (mut other, mut squares) = (0, [0f64; 2]);
    for i in 0..80 {
        let shape = few(&mut r, i);
        let [nl, nr, no] = sizes(&shape);
        let l: Vec<f32> = (0..nl).map(|_| (r.value() / 3.0) as f32).collect();
        let w: Vec<f32> = (0..nr).map(|_| (r.value() / 3.0) as f32).collect();
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
        let terms = (shape.batch * shape.out_h * shape.out_w) as f64;
        let mut bits: Option<Vec<u32>> = None;
        for kernels in arch::all_f32() {
            for pool in &pools {
                let got = run(&shape, kernels, pool, (&l, &w));
                for (at, (g, w)) in got.iter().zip(&want).enumerate() {
                    let error = (f64::from(*g) - w).abs();
                    let most = 1e-7 + 2e-7 * terms.sqrt();
                    assert!(error < most, "{} {shape:?} at {at}: {g} {w}", kernels.name);
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
        let own = run(&shape, arch::all_f32()[0], &pools[0], (&l, &w));
        other += usize::from(plain != own);
        for (sum, got) in squares.iter_mut().zip([own, plain]) {
            *sum += got.iter().zip(&want).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum::<f64>();
        }
    }
    assert!(other > 30, "only {other} of 80 went another way");
    // Shorter chains lose less.
    assert!(squares[0] < squares[1], "{squares:?}");
}

#[test]
fn what_is_not_finite_does_not_spread_from_few_channels() {
    let mut r = Random(910);
    let pools = [Pool::new(1), Pool::new(3)];
    for i in 0..80 {
        let shape = few(&mut r, i);
        let [nl, nr, no] = sizes(&shape);
        if nl.min(nr).min(no) == 0 {
            continue;
        }
        let mut l: Vec<f32> = (0..nl).map(|_| r.value() as f32).collect();
        let mut w: Vec<f32> = (0..nr).map(|_| r.value() as f32).collect();
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38][i % 4];
        if i % 3 == 0 {
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
fn gradients_from_few_channels_are_finished_once() {
    let mut r = Random(911);
    for i in 0..40 {
        let shape = few(&mut r, i);
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
        let columns = no / shape.out_channels;
        let seen = Mutex::new(vec![0u8; no]);
        let finished = |r0: usize, r1: usize, c0: usize, c1: usize| {
            let mut seen = seen.lock().unwrap();
            for row in r0..r1 {
                seen[row * columns + c0..row * columns + c1].iter_mut().for_each(|s| *s += 1);
            }
        };
        // SAFETY: the memory has the sizes of the geometry.
        unsafe { conv(&Pool::new([1, 2, 5][i % 3]), &args, Some(&finished)) };
        assert!(seen.lock().unwrap().iter().all(|s| *s == 1), "{shape:?}");
    }
}
