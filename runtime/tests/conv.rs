//! Convolutions of every kind against the plain loops in f64.

use std::sync::Mutex;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;
use tfc_runtime::Pool;
use tfc_runtime::conv::{ConvArgs, conv, simple};
use tfc_runtime::half::{bf16, f16};

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
fn geometry(r: &mut Random, kind: ConvKind) -> ConvArgs {
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
    }
}

/// Sizes of left, right, result.
fn sizes(c: &ConvArgs) -> [usize; 3] {
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
