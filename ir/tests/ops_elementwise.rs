//! Elementwise ops, reductions, scans and random numbers: values by hand, and
//! what they say when they cannot be applied.

use tfc_ir::build::infer;
use tfc_ir::eval::Array;
use tfc_ir::op::{Blame, Eval, EvalCx, InferError};
use tfc_ir::{Attr, Attrs, DType, Dim, Op, Tensor, TensorType};

fn f32s(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, shape.to_vec(), values.iter().copied())
}

fn ints(dtype: DType, values: &[i64]) -> Tensor {
    Tensor::from_i64(dtype, vec![values.len()], values.iter().copied())
}

fn ty(dtype: DType, shape: &[Dim]) -> TensorType {
    TensorType::new(dtype, shape.to_vec())
}

fn complete(op: Op, mut attrs: Attrs) -> Attrs {
    for spec in op.def().attrs {
        if let (None, Some(default)) = (attrs.get(spec.name), spec.default) {
            attrs.set(spec.name, default());
        }
    }
    attrs
}

fn eval(op: Op, operands: &[Tensor], attrs: Attrs) -> Tensor {
    let attrs = complete(op, attrs);
    let types: Vec<TensorType> = operands
        .iter()
        .map(|t| ty(t.dtype(), &t.shape().iter().map(|d| Dim::from(*d)).collect::<Vec<_>>()))
        .collect();
    let results = infer(op, &types, &attrs, None, &[]).unwrap();
    let operands: Vec<Array> = operands.iter().map(Array::from_tensor).collect();
    let Eval::Pure(eval) = op.def().eval else { panic!("{}", op.name()) };
    let cx = EvalCx { operands: &operands, attrs: &attrs, results: &results, dims: &|_| None };
    eval(&cx).unwrap().remove(0).to_tensor()
}

fn refused(op: Op, types: &[TensorType], attrs: Attrs) -> InferError {
    infer(op, types, &complete(op, attrs), None, &[]).unwrap_err()
}

fn axes(axes: &[i64]) -> Attrs {
    Attrs::none().with("axes", Attr::Ints(axes.to_vec()))
}

#[test]
fn integers_wrap_and_divide_by_zero_to_zero() {
    let two = |op, a: i64, b: i64, dtype| {
        eval(op, &[ints(dtype, &[a]), ints(dtype, &[b])], Attrs::none()).to_i64()[0]
    };
    assert_eq!(two(Op::Add, 127, 1, DType::I8), -128);
    assert_eq!(two(Op::Sub, 0, 1, DType::U8), 255);
    assert_eq!(two(Op::Mul, i64::MAX, 2, DType::I64), -2);
    assert_eq!(two(Op::Div, 7, 0, DType::I32), 0);
    assert_eq!(two(Op::Div, -7, 2, DType::I32), -3);
    assert_eq!(two(Op::Div, -128, -1, DType::I8), -128);
    assert_eq!(two(Op::Rem, -7, 2, DType::I32), -1);
    assert_eq!(two(Op::Rem, 7, 0, DType::I64), 0);
    assert_eq!(two(Op::Rem, i64::MIN, -1, DType::I64), 0);
    assert_eq!(two(Op::Pow, 3, 5, DType::U8), 243);
    assert_eq!(two(Op::Pow, 2, 8, DType::U8), 0);
}

#[test]
fn rounding_ties_and_nan() {
    let round = eval(Op::Round, &[f32s(&[5], &[0.5, 1.5, 2.5, -0.5, -1.5])], Attrs::none());
    assert_eq!(round.to_f64(), [0.0, 2.0, 2.0, 0.0, -2.0]);
    let nan = f64::NAN;
    let max = eval(
        Op::Maximum,
        &[f32s(&[3], &[1.0, nan, -0.0]), f32s(&[3], &[nan, 1.0, 0.0])],
        Attrs::none(),
    );
    let max = max.to_f64();
    assert!(max[0].is_nan() && max[1].is_nan() && max[2].is_sign_positive());
    let x = f32s(&[4], &[1.0, f64::INFINITY, nan, -3.0]);
    assert_eq!(eval(Op::IsNan, std::slice::from_ref(&x), Attrs::none()).to_i64(), [0, 0, 1, 0]);
    assert_eq!(eval(Op::IsFinite, std::slice::from_ref(&x), Attrs::none()).to_i64(), [1, 0, 0, 1]);
    let relu = eval(Op::Relu, &[x], Attrs::none()).to_f64();
    assert!(relu[2].is_nan() && relu[3] == 0.0);
}

#[test]
fn reductions_over_some_all_and_no_elements() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let none = f32s(&[2, 0], &[]);
    let all = |op| {
        (
            eval(op, std::slice::from_ref(&x), axes(&[1])).to_f64(),
            eval(op, std::slice::from_ref(&x), axes(&[1, 0])).to_f64(),
            eval(op, std::slice::from_ref(&none), axes(&[1])).to_f64(),
        )
    };
    let inf = f64::INFINITY;
    assert_eq!(all(Op::Sum), (vec![6.0, 15.0], vec![21.0], vec![0.0, 0.0]));
    assert_eq!(all(Op::Prod), (vec![6.0, 120.0], vec![720.0], vec![1.0, 1.0]));
    assert_eq!(all(Op::ReduceMax), (vec![3.0, 6.0], vec![6.0], vec![-inf, -inf]));
    assert_eq!(all(Op::ReduceMin), (vec![1.0, 4.0], vec![1.0], vec![inf, inf]));
    let (rows, whole, empty) = all(Op::Mean);
    assert_eq!((rows, whole), (vec![2.0, 5.0], vec![3.5]));
    assert!(empty.iter().all(|v| v.is_nan()));
    let kept = eval(Op::Sum, &[x], axes(&[0]).with("keep", Attr::Bool(true)));
    assert_eq!((kept.shape(), kept.to_f64()), (&[1, 3][..], vec![5.0, 7.0, 9.0]));
    // Of integers, the identity is the end of the range.
    let none = Tensor::from_i64(DType::I8, vec![0], []);
    assert_eq!(eval(Op::ReduceMax, std::slice::from_ref(&none), axes(&[0])).to_i64(), [-128]);
    assert_eq!(eval(Op::ReduceMin, &[none], axes(&[0])).to_i64(), [127]);
    // An average of large f16 does not overflow on the way.
    let large = Tensor::from_f64(DType::F16, vec![4], [60000.0; 4]);
    assert_eq!(eval(Op::Mean, &[large], axes(&[0])).to_f64(), [60000.0]);
}

/// From mpmath, to 18 digits.
#[test]
fn elementary_functions() {
    for (op, x, want) in [
        (Op::Atan, 0.75, 0.6435011087932844),
        (Op::Atan, -20.0, -1.5208379310729538),
        (Op::Asin, 0.5, std::f64::consts::FRAC_PI_6),
        (Op::Asin, -0.875, -1.0654358165107394),
        (Op::Acos, 0.5, std::f64::consts::FRAC_PI_3),
        (Op::Acos, -0.875, 2.636232143305636),
        (Op::Tan, 1.25, 3.0095696738628313),
        (Op::Tan, -3.0, 0.1425465430742778),
        (Op::Sinh, 0.75, 0.82231673193583),
        (Op::Sinh, -5.0, -74.20321057778875),
        (Op::Cosh, 0.75, 1.2946832846768448),
        (Op::Cosh, -5.0, 74.20994852478785),
        (Op::Asinh, 0.75, std::f64::consts::LN_2),
        (Op::Asinh, -1000.0, -7.600902709541988),
        (Op::Acosh, 1.0625, 0.3517373900432606),
        (Op::Acosh, 30.0, 4.0940666686320855),
        (Op::Atanh, 0.5, 0.5493061443340549),
        (Op::Atanh, -0.96875, -2.0715673631957663),
        (Op::Erfc, 0.5, 0.4795001221869535),
        (Op::Erfc, 5.0, 1.537459794428035e-12),
        (Op::Cbrt, 10.0, 2.154434690031884),
        (Op::Cbrt, -0.001953125, -0.125),
    ] {
        let x = Tensor::splat(DType::F64, vec![], x);
        let got = eval(op, &[x], Attrs::none()).to_f64()[0];
        assert!((got - want).abs() <= 1e-15 * f64::abs(want), "{}: {got}, not {want}", op.name());
    }
    for (y, x, want) in [(1.0, -2.0, 2.677945044588987), (-3.0, 0.5, -1.4056476493802699)] {
        let two = [y, x].map(|v| Tensor::splat(DType::F64, vec![], v));
        let got = eval(Op::Atan2, &two, Attrs::none()).to_f64()[0];
        assert!((got - want).abs() <= 1e-15, "atan2: {got}, not {want}");
    }
}

/// As NumPy sorts, with `kind="stable"`.
#[test]
fn sorting_is_stable_and_nan_is_last() {
    let x = f32s(&[8], &[2.0, f64::NAN, -0.0, 0.0, 2.0, f64::NEG_INFINITY, f64::NAN, 1.0]);
    let attrs =
        |down| Attrs::none().with("axis", Attr::Int(0)).with("descending", Attr::Bool(down));
    let places = |down| eval(Op::ArgSort, std::slice::from_ref(&x), attrs(down)).to_i64();
    assert_eq!(places(false), [5, 2, 3, 7, 0, 4, 1, 6]);
    assert_eq!(places(true), [0, 4, 7, 2, 3, 5, 1, 6]);
    let sorted = eval(Op::Sort, std::slice::from_ref(&x), attrs(true)).to_f64();
    assert_eq!(sorted[..6], [2.0, 2.0, 1.0, 0.0, 0.0, f64::NEG_INFINITY]);
    assert!(sorted[6..].iter().all(|v| v.is_nan()));
    let grid = ints(DType::I32, &[3, 1, 2, 9, 9, 7]);
    let grid = Tensor::from_i64(DType::I32, vec![2, 3], grid.to_i64());
    let top = |op, axis| {
        let attrs = Attrs::none().with("k", Attr::Int(2)).with("axis", Attr::Int(axis));
        eval(op, std::slice::from_ref(&grid), attrs).to_i64()
    };
    assert_eq!(top(Op::TopK, 1), [3, 2, 9, 9]);
    assert_eq!(top(Op::TopKIndex, 1), [0, 2, 0, 1]);
    assert_eq!(top(Op::TopK, 0), [9, 9, 7, 3, 1, 2]);
    let ids = Tensor::from_i64(DType::I32, vec![2, 1], [2, 0]);
    let along = Attrs::none().with("axis", Attr::Int(1));
    assert_eq!(eval(Op::TakeAlong, &[grid.clone(), ids], along).to_i64(), [2, 9]);
    let b = Dim::sym("B");
    let err = refused(
        Op::TopK,
        &[ty(DType::F32, &[b, 3i64.into()])],
        Attrs::none().with("k", Attr::Int(4)).with("axis", Attr::Int(1)),
    );
    assert_eq!((err.code, &*err.message), ("E0244", "`top_k` cannot take 4 of 3"));
}

#[test]
fn indices_of_extremes() {
    let arg = |op, values: &[f64]| {
        eval(op, &[f32s(&[values.len()], values)], Attrs::none().with("axis", Attr::Int(0)))
            .to_i64()[0]
    };
    assert_eq!(arg(Op::ArgMax, &[1.0, 3.0, 3.0]), 1);
    assert_eq!(arg(Op::ArgMin, &[2.0, 1.0, 1.0]), 1);
    assert_eq!(arg(Op::ArgMax, &[1.0, f64::NAN, f64::NAN, 9.0]), 1);
    assert_eq!(arg(Op::ArgMin, &[1.0, f64::NAN, 0.0]), 1);
}

#[test]
fn scans_in_both_directions() {
    let scan = |op, reverse, exclusive| {
        let attrs = Attrs::none()
            .with("axis", Attr::Int(0))
            .with("reverse", Attr::Bool(reverse))
            .with("exclusive", Attr::Bool(exclusive));
        eval(op, &[f32s(&[3], &[2.0, 3.0, 4.0])], attrs).to_f64()
    };
    assert_eq!(scan(Op::CumSum, false, false), [2.0, 5.0, 9.0]);
    assert_eq!(scan(Op::CumSum, false, true), [0.0, 2.0, 5.0]);
    assert_eq!(scan(Op::CumSum, true, false), [9.0, 7.0, 4.0]);
    assert_eq!(scan(Op::CumProd, true, true), [12.0, 4.0, 1.0]);
}

#[test]
fn random_numbers_are_spread_as_they_should_be() {
    let draw = |op, key: i64, attrs: Attrs| {
        let attrs = attrs.with("shape", Attr::Shape(vec![Dim::constant(20_000)]));
        eval(op, &[Tensor::from_i64(DType::I64, vec![], [key])], attrs).to_f64()
    };
    let moments = |v: &[f64]| {
        let n = v.len() as f64;
        let mean = v.iter().sum::<f64>() / n;
        (mean, v.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n)
    };
    let uniform = draw(Op::RandomUniform, 1, Attrs::none());
    assert!(uniform.iter().all(|u| (0.0..1.0).contains(u)));
    let (mean, variance) = moments(&uniform);
    assert!(
        (mean - 0.5).abs() < 0.01 && (variance - 1.0 / 12.0).abs() < 0.003,
        "{mean} {variance}"
    );
    let (mean, variance) = moments(&draw(Op::RandomNormal, 1, Attrs::none()));
    assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    // Between -2 and 2, the variance is 1 - 4 * density(2) / 0.9545.
    let truncated = draw(Op::RandomTruncatedNormal, 1, Attrs::none());
    assert!(truncated.iter().all(|x| (-2.0..=2.0).contains(x)));
    let (mean, variance) = moments(&truncated);
    assert!(mean.abs() < 0.03 && (variance - 0.774).abs() < 0.02, "{mean} {variance}");
    let within = truncated.iter().filter(|x| x.abs() < 1.0).count() as f64 / 20_000.0;
    assert!((within - 0.6827 / 0.9545).abs() < 0.01, "{within}");
    let (mean, _) =
        moments(&draw(Op::RandomBernoulli, 1, Attrs::none().with("p", Attr::float(0.3))));
    assert!((mean - 0.3).abs() < 0.02, "{mean}");
    // Other keys and streams give other numbers; the same ones, the same.
    let stream = Attrs::none().with("stream", Attr::Int(1));
    assert_ne!(uniform, draw(Op::RandomUniform, 2, Attrs::none()));
    assert_ne!(uniform, draw(Op::RandomUniform, 1, stream));
    assert_eq!(uniform, draw(Op::RandomUniform, 1, Attrs::none()));
    // Element 5 is word 1 of block 1: the published generator, not one like it.
    let bits = draw(Op::RandomBits, 0, Attrs::none());
    let block = tfc_ir::ops::philox::block([0; 4], [0; 2]);
    assert_eq!(bits[..4], block.map(|w| w as i32 as f64));
    assert_eq!(bits[5], tfc_ir::ops::philox::block([1, 0, 0, 0], [0; 2])[1] as i32 as f64);
}

#[test]
fn a_permutation_has_every_number_once_and_favours_none() {
    let draw = |key: i64, size: i64| {
        let attrs = Attrs::none().with("shape", Attr::Shape(vec![Dim::constant(size)]));
        eval(Op::RandomPermutation, &[Tensor::from_i64(DType::I64, vec![], [key])], attrs).to_f64()
    };
    for size in [0, 1, 2, 3, 10, 1000, 4097] {
        let mut numbers = draw(5, size);
        assert!(size < 10 || numbers != draw(6, size));
        numbers.sort_by(f64::total_cmp);
        assert_eq!(numbers, (0..size).map(|i| i as f64).collect::<Vec<_>>());
    }
    // All six orders of three come about equally often, and no element keeps its place.
    let mut orders = std::collections::BTreeMap::new();
    for key in 0..6000 {
        *orders.entry(format!("{:?}", draw(key, 3))).or_insert(0) += 1;
    }
    assert!(orders.len() == 6 && orders.values().all(|n| (850..1150).contains(n)), "{orders:?}");
    let kept: usize = (0..100)
        .map(|key| draw(key, 500).iter().enumerate().filter(|(i, x)| *i as f64 == **x).count())
        .sum();
    assert!((60..140).contains(&kept), "{kept} elements in place, 100 expected");
}

#[test]
fn what_does_not_fit_is_explained() {
    let (b, t) = (Dim::sym("B"), Dim::sym("T"));
    let n = Dim::constant;
    let err = refused(
        Op::Add,
        &[ty(DType::F32, &[b.clone(), n(5)]), ty(DType::F32, &[b.clone(), n(4)])],
        Attrs::none(),
    );
    assert_eq!(err.code, "E0203");
    assert_eq!(
        err.message,
        "`add` needs operands of one shape, but axis 1 is 5 in one and 4 in the other"
    );
    assert_eq!(err.labels[1], (Blame::Operand(1), "this is f32[B, 4]".to_string()));
    assert_eq!(err.help, None);

    let err = refused(
        Op::Mul,
        &[ty(DType::F32, std::slice::from_ref(&b)), ty(DType::F32, &[t])],
        Attrs::none(),
    );
    let help =
        "`B` is known only when the program runs: sizes that must be equal need the same name";
    assert_eq!(err.help.as_deref(), Some(help));

    let err = refused(
        Op::Sub,
        &[TensorType::scalar(DType::F32), TensorType::scalar(DType::F64)],
        Attrs::none(),
    );
    assert_eq!(err.message, "`sub` needs operands of one element type");
    assert_eq!(err.help.as_deref(), Some("convert one of them: `cast(.., to: f32)`"));

    let err = refused(Op::Tanh, &[ty(DType::I32, std::slice::from_ref(&b))], Attrs::none());
    assert_eq!(err.message, "`tanh` takes a float type (f32, f64, f16, bf16) for `x`");

    let err = refused(Op::Sum, &[ty(DType::F32, &[b.clone(), n(5)])], axes(&[2]));
    assert_eq!(err.message, "axis 2 is out of range for a tensor of rank 2");
    assert_eq!(err.help.as_deref(), Some("axes are 0 to 1, or -2 to -1 from the end"));

    let err = refused(Op::Sum, &[ty(DType::F32, std::slice::from_ref(&b))], axes(&[0, 0]));
    assert_eq!((err.code, err.message.as_str()), ("E0208", "axis 0 is named twice"));

    let err = refused(
        Op::ArgMax,
        &[ty(DType::F32, &[b.clone(), n(0)])],
        Attrs::none().with("axis", Attr::Int(1)),
    );
    assert_eq!(err.message, "`argmax` along an axis without elements");

    let shape = Attrs::none().with("shape", Attr::Shape(vec![b]));
    let err = refused(Op::RandomBits, &[TensorType::scalar(DType::I32)], shape.clone());
    assert_eq!((err.code, err.message.as_str()), ("E0202", "`random_bits` takes i64 for `key`"));
    let key = TensorType::scalar(DType::I64);
    let low = shape.clone().with("p", Attr::float(1.5));
    assert_eq!(refused(Op::RandomBernoulli, std::slice::from_ref(&key), low).code, "E0205");
    let stream = shape.with("stream", Attr::Int(-1));
    assert_eq!(refused(Op::RandomNormal, &[key], stream).code, "E0205");
    let size = Attrs::none().with("size", Attr::Shape(vec![]));
    assert_eq!(refused(Op::DimSize, &[], size).code, "E0230");
}
