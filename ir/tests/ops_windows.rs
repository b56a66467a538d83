//! Convolution against an independent loop over random geometries; pooling by
//! hand and by lowering; what inference says about impossible ones.

mod support;

use support::*;
use tfc_ir::eval::{Array, Data};
use tfc_ir::{DType, Op};

/// A geometry: sizes are small, everything else is free.
#[derive(Clone, Debug)]
struct Geometry {
    n: i64,
    c: i64,
    o: i64,
    groups: i64,
    image: [i64; 2],
    kernel: [i64; 2],
    stride: [i64; 2],
    dilation: [i64; 2],
    /// Top, bottom, left, right.
    pad: [i64; 4],
    out: [i64; 2],
}

fn geometry(random: &mut Random) -> Geometry {
    loop {
        let mut two = |least: i64, range: i64| [0; 2].map(|_| least + random.below(range));
        let (image, kernel) = (two(1, 7), two(1, 4));
        let (stride, dilation) = (two(1, 3), two(1, 3));
        let pad = [0; 4].map(|_| random.below(3));
        let groups = 1 + random.below(3);
        let g = Geometry {
            n: random.below(3),
            c: groups * (1 + random.below(2)),
            o: groups * (1 + random.below(2)),
            groups,
            image,
            kernel,
            stride,
            dilation,
            pad,
            out: [0, 1].map(|a| {
                let room = image[a] + pad[2 * a] + pad[2 * a + 1];
                (room - dilation[a] * (kernel[a] - 1) - 1).div_euclid(stride[a]) + 1
            }),
        };
        if g.out.iter().all(|o| *o > 0) {
            return g;
        }
    }
}

impl Geometry {
    fn attrs(&self, c: Case) -> Case {
        c.ints("stride", &self.stride)
            .ints("pad", &self.pad)
            .ints("dilation", &self.dilation)
            .int("groups", self.groups)
    }

    fn image_shape(&self) -> [usize; 4] {
        [self.n, self.c, self.image[0], self.image[1]].map(|v| v as usize)
    }

    fn filter_shape(&self) -> [usize; 4] {
        [self.o, self.c / self.groups, self.kernel[0], self.kernel[1]].map(|v| v as usize)
    }

    fn out_shape(&self) -> [usize; 4] {
        [self.n, self.o, self.out[0], self.out[1]].map(|v| v as usize)
    }

    /// The convolution, written against a padded copy of the image.
    fn naive(&self, x: &[f64], f: &[f64]) -> Vec<f64> {
        let (ph, pw) =
            (self.image[0] + self.pad[0] + self.pad[1], self.image[1] + self.pad[2] + self.pad[3]);
        let mut padded = vec![0.0; (self.n * self.c * ph * pw) as usize];
        for plane in 0..self.n * self.c {
            for h in 0..self.image[0] {
                for w in 0..self.image[1] {
                    let to = (plane * ph + h + self.pad[0]) * pw + w + self.pad[2];
                    let from = (plane * self.image[0] + h) * self.image[1] + w;
                    padded[to as usize] = x[from as usize];
                }
            }
        }
        let mut out = vec![];
        let per_group = (self.c / self.groups, self.o / self.groups);
        for i in 0..self.n * self.o * self.out[0] * self.out[1] {
            let (col, rest) = (i % self.out[1], i / self.out[1]);
            let (row, rest) = (rest % self.out[0], rest / self.out[0]);
            let (o, n) = (rest % self.o, rest / self.o);
            let mut sum = 0.0;
            for t in 0..per_group.0 * self.kernel[0] * self.kernel[1] {
                let (b, rest) = (t % self.kernel[1], t / self.kernel[1]);
                let (a, c) = (rest % self.kernel[0], rest / self.kernel[0]);
                let plane = n * self.c + o / per_group.1 * per_group.0 + c;
                let (h, w) = (
                    row * self.stride[0] + a * self.dilation[0],
                    col * self.stride[1] + b * self.dilation[1],
                );
                let weight = ((o * per_group.0 + c) * self.kernel[0] + a) * self.kernel[1] + b;
                sum += padded[((plane * ph + h) * pw + w) as usize] * f[weight as usize];
            }
            out.push(sum);
        }
        out
    }
}

fn dot(a: &Array, b: &Array) -> f64 {
    values(a).iter().zip(values(b)).map(|(x, y)| x * y).sum()
}

#[test]
fn conv2d_agrees_with_a_naive_loop_and_its_gradients_are_adjoint() {
    let random = &mut Random(11);
    for _ in 0..300 {
        let g = geometry(random);
        let x = random.array(DType::F64, &g.image_shape());
        let f = random.array(DType::F64, &g.filter_shape());
        let ct = random.array(DType::F64, &g.out_shape());
        let out = g.attrs(case(Op::Conv2d).arg(x.clone()).arg(f.clone())).run();
        assert_eq!(out.shape(), g.out_shape());
        assert_eq!(values(&out), g.naive(&values(&x), &values(&f)), "{g:?}");
        // <conv(x, f), ct> = <x, grad_input(ct, f)> = <f, grad_filter(x, ct)>;
        // the elements are multiples of 1/8, so sums are exact.
        let shape = g.image_shape().map(|v| v as i64);
        let dx = case(Op::Conv2dGradInput).arg(ct.clone()).arg(f.clone()).sizes("shape", &shape);
        let df =
            case(Op::Conv2dGradFilter).arg(x.clone()).arg(ct.clone()).ints("kernel", &g.kernel);
        let (dx, df) = (g.attrs(dx).run(), g.attrs(df).run());
        assert_eq!((dx.shape(), df.shape()), (x.shape(), f.shape()));
        assert_eq!(dot(&out, &ct), dot(&x, &dx), "{g:?}");
        assert_eq!(dot(&out, &ct), dot(&f, &df), "{g:?}");
    }
}

#[test]
fn conv2d_of_integers_wraps_and_of_run_time_sizes_infers() {
    let x = ints(DType::I8, &[1, 1, 1, 2], &[100, 100]);
    let f = ints(DType::I8, &[1, 1, 1, 2], &[1, 1]);
    assert_eq!(values(&case(Op::Conv2d).arg(x).arg(f).run()), [-56.0]);
    let c = case(Op::Conv2d)
        .typed(&[sym("B"), n(3), sym("H"), sym("H")], Random(1).array(DType::F32, &[2, 3, 5, 5]))
        .arg(Random(2).array(DType::F32, &[4, 3, 3, 3]))
        .dim("B", 2)
        .dim("H", 5)
        .ints("stride", &[2, 1])
        .ints("pad", &[1, 1, 1, 1]);
    assert_eq!(c.infer().unwrap().to_string(), "f32[B, 4, ((H - 1) / 2) + 1, H]");
    assert_eq!(c.run().shape(), [2, 4, 3, 5]);
}

#[test]
fn conv2d_explains_what_does_not_fit() {
    let c = |x: &[usize], f: &[usize]| {
        let random = &mut Random(5);
        case(Op::Conv2d).arg(random.array(DType::F32, x)).arg(random.array(DType::F32, f))
    };
    let good = || c(&[1, 4, 5, 5], &[6, 4, 3, 3]);
    assert!(good().infer().is_ok());
    assert_eq!(c(&[4, 5, 5], &[6, 4, 3, 3]).code(), "E0239");
    assert_eq!(c(&[1, 4, 5, 5], &[6, 4, 3]).code(), "E0239");
    assert_eq!(c(&[1, 4, 5, 5], &[6, 3, 3, 3]).code(), "E0240");
    assert_eq!(good().int("groups", 2).code(), "E0240");
    assert_eq!(good().int("groups", 4).code(), "E0240");
    assert_eq!(good().int("groups", 0).code(), "E0240");
    assert_eq!(good().ints("stride", &[0, 1]).code(), "E0241");
    assert_eq!(good().ints("dilation", &[1, i64::MAX]).code(), "E0241");
    assert_eq!(good().ints("pad", &[0, 0, -1, 0]).code(), "E0241");
    assert_eq!(good().ints("pad", &[0, 0]).code(), "E0230");
    assert_eq!(good().ints("dilation", &[3, 1]).code(), "E0242");
    assert_eq!(c(&[1, 4, 2, 5], &[6, 4, 3, 3]).code(), "E0242");
    assert_eq!(c(&[1, 4, 2, 5], &[6, 4, 0, 3]).code(), "E0241");
    let mixed = case(Op::Conv2d)
        .arg(Random(1).array(DType::F32, &[1, 1, 3, 3]))
        .arg(Random(1).array(DType::F64, &[1, 1, 3, 3]));
    assert_eq!(mixed.code(), "E0206");
    let ct = Random(1).array(DType::F32, &[1, 6, 3, 3]);
    let grad = case(Op::Conv2dGradInput).arg(ct).arg(Random(1).array(DType::F32, &[6, 4, 3, 3]));
    assert!(grad.clone().sizes("shape", &[1, 4, 5, 5]).infer().is_ok());
    assert_eq!(grad.sizes("shape", &[1, 4, 6, 5]).code(), "E0243");
}

/// Nine pixels: a ramp with a tie and a NaN-free interior.
fn image() -> Array {
    floats(&[1, 1, 3, 3], &[1.0, 5.0, 2.0, 5.0, 3.0, -1.0, 0.0, 4.0, 4.0])
}

#[test]
fn pooling_by_hand() {
    let max = case(Op::MaxPool).arg(image()).ints("window", &[2, 2]).ints("stride", &[1, 1]);
    assert_eq!(values(&max.run()), [5.0, 5.0, 5.0, 4.0]);
    let avg = case(Op::AvgPool).arg(image()).ints("window", &[2, 2]).ints("stride", &[1, 1]);
    assert_eq!(values(&avg.run()), [3.5, 2.25, 3.0, 2.5]);
    // Padding never wins and does not count; the stride is the window.
    let pad = |op, x| case(op).arg(x).ints("window", &[2, 2]).ints("pad", &[1, 0, 0, 1]);
    let minus = floats(&[1, 1, 1, 1], &[-3.0]);
    assert_eq!(values(&pad(Op::MaxPool, minus.clone()).run()), [-3.0]);
    assert_eq!(values(&pad(Op::AvgPool, minus).run()), [-3.0]);
    assert_eq!(values(&pad(Op::MaxPool, image()).run()), [5.0, 2.0, 5.0, 4.0]);
    assert_eq!(values(&pad(Op::AvgPool, image()).run()), [3.0, 2.0, 3.0, 1.5]);
    // NaN wins wherever it is.
    let nan = floats(&[1, 1, 1, 4], &[f64::NAN, 1.0, 1.0, f64::NAN]);
    let c = case(Op::MaxPool).arg(nan).ints("window", &[1, 2]);
    assert!(values(&c.run()).iter().all(|v| v.is_nan()));
}

#[test]
fn the_gradient_of_max_pooling_goes_to_the_first_winner() {
    let attrs = |c: Case| c.ints("window", &[2, 2]).ints("stride", &[1, 1]);
    let out = attrs(case(Op::MaxPool).arg(image())).run();
    let index = attrs(case(Op::MaxPoolIndex).arg(image()).arg(out)).run();
    assert_eq!(values(&index), [1.0, 1.0, 3.0, 7.0]);
    let ct = floats(&[1, 1, 2, 2], &[1.0, 10.0, 100.0, 1000.0]);
    let grad = attrs(case(Op::MaxPoolGrad).arg(ct).arg(index.clone()));
    let dx = grad.sizes("shape", &[1, 1, 3, 3]).run();
    assert_eq!(values(&dx), [0.0, 11.0, 0.0, 100.0, 0.0, 0.0, 0.0, 1000.0, 0.0]);
    let taken = attrs(case(Op::MaxPoolTake).arg(image()).arg(index)).run();
    assert_eq!(values(&taken), [5.0, 5.0, 5.0, 4.0]);
}

/// All five pooling ops over random windows, each checked against its lowering;
/// gradients are adjoint to their ops.
#[test]
fn pooling_over_random_windows() {
    let random = &mut Random(23);
    let dtypes = [DType::F64, DType::F32, DType::F16, DType::BF16];
    let mut done = 0;
    for round in 0..400 {
        let dtype = dtypes[round % 4];
        let window = [1 + random.below(4), 1 + random.below(4)];
        let stride = [1 + random.below(4), 1 + random.below(4)];
        let mut side = |a: usize| random.below(window[a]);
        let pad = [side(0), side(0), side(1), side(1)];
        let image = [random.below(3), 1 + random.below(2), random.below(7), random.below(7)];
        let shape = image.map(|v| v as usize);
        let x = random.array(dtype, &shape);
        // Height and width as run-time dims: windows over empty images too.
        let dims = [n(image[0]), n(image[1]), sym("H"), sym("W")];
        let attrs = |c: Case| {
            c.ints("window", &window)
                .ints("stride", &stride)
                .ints("pad", &pad)
                .dim("H", image[2])
                .dim("W", image[3])
        };
        let pool = |op, x: &Array| attrs(case(op).typed(&dims, x.clone()));
        let out_ty = pool(Op::MaxPool, &x).infer().unwrap();
        let sizes = [("H", image[2]), ("W", image[3])];
        let lookup = |name: &str| sizes.iter().find(|s| s.0 == name).map(|s| s.1);
        if out_ty.shape.iter().any(|d| d.eval(&lookup).unwrap() < 0) {
            continue;
        }
        done += 1;
        let out = pool(Op::MaxPool, &x).run();
        let index =
            attrs(case(Op::MaxPoolIndex).typed(&dims, x.clone()).typed(&out_ty.shape, out.clone()))
                .run();
        let taken = attrs(
            case(Op::MaxPoolTake).typed(&dims, x.clone()).typed(&out_ty.shape, index.clone()),
        )
        .run();
        let mean = pool(Op::AvgPool, &x).run();
        let ct = random.array(dtype, out.shape());
        let grad = |c: Case| attrs(c).shape("shape", &dims).run();
        let dmax = grad(
            case(Op::MaxPoolGrad).typed(&out_ty.shape, ct.clone()).typed(&out_ty.shape, index),
        );
        let davg = grad(case(Op::AvgPoolGrad).typed(&out_ty.shape, ct.clone()));
        if image.iter().all(|v| *v > 0) && dtype == DType::F64 {
            assert_eq!(values(&taken), values(&out));
            assert_eq!(dot(&taken, &ct), dot(&x, &dmax));
            assert!((dot(&mean, &ct) - dot(&x, &davg)).abs() < 1e-9);
        }
    }
    assert!(done > 200, "only {done} windows fit");
}

#[test]
fn max_pooling_of_integers() {
    for dtype in [DType::I8, DType::U8, DType::I32, DType::I64] {
        let x = ints(dtype, &[1, 1, 2, 2], &[-5, -3, -9, -8]);
        let c = case(Op::MaxPool).arg(x).ints("window", &[2, 2]).ints("pad", &[1, 1, 1, 1]);
        let c = c.ints("stride", &[1, 1]);
        let Data::Int(out) = c.run().data else { panic!("integers") };
        assert_eq!(out[[0, 0, 1, 1]], if dtype == DType::U8 { 253 } else { -3 });
    }
}

#[test]
fn pooling_explains_what_does_not_fit() {
    let c = || case(Op::MaxPool).arg(image());
    assert_eq!(c().ints("window", &[0, 1]).code(), "E0241");
    assert_eq!(c().ints("window", &[2]).code(), "E0230");
    assert_eq!(c().ints("window", &[4, 1]).code(), "E0242");
    assert_eq!(c().ints("window", &[2, 2]).ints("stride", &[1]).code(), "E0230");
    assert_eq!(c().ints("window", &[2, 2]).ints("pad", &[2, 0, 0, 0]).code(), "E0241");
    assert_eq!(
        case(Op::AvgPool).arg(floats(&[3], &[0.0; 3])).ints("window", &[1, 1]).code(),
        "E0239"
    );
    let grad = case(Op::AvgPoolGrad).arg(image()).ints("window", &[2, 2]);
    assert_eq!(grad.clone().sizes("shape", &[1, 1, 3, 3]).code(), "E0243");
    assert!(grad.sizes("shape", &[1, 1, 6, 7]).infer().is_ok());
}
