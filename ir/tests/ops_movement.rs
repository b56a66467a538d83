//! Movement ops: values worked out by hand, and lowering against `eval` over
//! shapes, dtypes and run-time dims.

mod support;

use support::*;
use tfc_ir::eval::Array;
use tfc_ir::{DType, Op};

const DTYPES: [DType; 9] = DType::ALL;

fn count(dtype: DType, shape: &[usize]) -> Array {
    let len = shape.iter().product::<usize>() as i64;
    ints(dtype, shape, &(0..len).collect::<Vec<_>>())
}

#[test]
fn slice_takes_every_stride_th_element() {
    let c = case(Op::Slice).arg(count(DType::I32, &[2, 5]));
    let c = c.sizes("starts", &[1, 0]).sizes("ends", &[2, 5]).ints("strides", &[1, 2]);
    assert_eq!(values(&c.run()), [5.0, 7.0, 9.0]);
    // A run-time axis: the last two of it.
    for size in [2, 3, 7] {
        let c = case(Op::Slice)
            .typed(&[sym("B")], count(DType::F32, &[size]))
            .dim("B", size as i64)
            .shape("starts", &[sym("B") - n(2)])
            .shape("ends", &[sym("B")])
            .ints("strides", &[1]);
        assert_eq!(c.infer().unwrap().to_string(), "f32[2]");
        assert_eq!(values(&c.run()), [size as f64 - 2.0, size as f64 - 1.0]);
    }
    // One that turns out not to fit says so.
    let c = case(Op::Slice)
        .typed(&[sym("B")], count(DType::F32, &[1]))
        .dim("B", 1)
        .sizes("starts", &[0])
        .sizes("ends", &[3])
        .ints("strides", &[1]);
    assert!(c.try_run().unwrap_err().contains("does not fit axis 0 of size 1"));
}

#[test]
fn slice_of_nothing_and_of_a_scalar() {
    for dtype in DTYPES {
        let c = case(Op::Slice).arg(count(dtype, &[0, 4]));
        let c = c.sizes("starts", &[0, 1]).sizes("ends", &[0, 3]).ints("strides", &[3, 1]);
        assert_eq!(c.run().shape(), [0, 2]);
        let c = case(Op::Slice).arg(count(dtype, &[]));
        let c = c.sizes("starts", &[]).sizes("ends", &[]).ints("strides", &[]);
        assert_eq!(values(&c.run()), [0.0]);
    }
    let strided = case(Op::Slice).typed(&[sym("B")], count(DType::F32, &[0])).dim("B", 0);
    let strided = strided.sizes("starts", &[0]).shape("ends", &[sym("B")]).ints("strides", &[2]);
    assert_eq!(strided.run().shape(), [0]);
}

#[test]
fn slice_explains_what_does_not_fit() {
    let c = |starts: &[i64], ends: &[i64], strides: &[i64]| {
        case(Op::Slice)
            .arg(count(DType::F32, &[4]))
            .sizes("starts", starts)
            .sizes("ends", ends)
            .ints("strides", strides)
            .code()
    };
    assert_eq!(c(&[0], &[5], &[1]), "E0234");
    assert_eq!(c(&[-1], &[3], &[1]), "E0234");
    assert_eq!(c(&[3], &[2], &[1]), "E0234");
    assert_eq!(c(&[0], &[4], &[0]), "E0233");
    assert_eq!(c(&[0, 0], &[4], &[1]), "E0230");
    let beyond = case(Op::Slice).typed(&[sym("B")], count(DType::F32, &[4])).dim("B", 4);
    let beyond =
        beyond.sizes("starts", &[0]).shape("ends", &[sym("B") + n(1)]).ints("strides", &[1]);
    assert_eq!(beyond.code(), "E0234");
}

#[test]
fn pad_puts_cuts_and_spreads() {
    let x = || case(Op::Pad).arg(floats(&[3], &[1.0, 2.0, 3.0]));
    let c = x().sizes("low", &[1]).sizes("high", &[2]).float("value", 9.0);
    assert_eq!(values(&c.run()), [9.0, 1.0, 2.0, 3.0, 9.0, 9.0]);
    let c = x().sizes("low", &[-1]).sizes("high", &[1]);
    assert_eq!(values(&c.run()), [2.0, 3.0, 0.0]);
    let c = x().sizes("low", &[1]).sizes("high", &[-2]).ints("interior", &[1]);
    assert_eq!(values(&c.run()), [0.0, 1.0, 0.0, 2.0]);
    let c = x().sizes("low", &[-2]).sizes("high", &[0]).ints("interior", &[2]);
    assert_eq!(values(&c.run()), [0.0, 2.0, 0.0, 0.0, 3.0]);
    let c = x().sizes("low", &[-3]).sizes("high", &[0]);
    assert_eq!(c.run().shape(), [0]);
}

#[test]
fn pad_of_every_dtype_and_of_nothing() {
    for dtype in DTYPES {
        for size in [0, 1, 3] {
            let c = case(Op::Pad)
                .typed(&[sym("B"), n(2)], count(dtype, &[size, 2]))
                .dim("B", size as i64)
                .sizes("low", &[2, 0])
                .sizes("high", &[1, 1])
                .float("value", 1.0);
            let out = c.run();
            assert_eq!(out.shape(), [size + 3, 3]);
            assert_eq!(values(&out)[0], 1.0);
        }
    }
    let random = &mut Random(3);
    for _ in 0..200 {
        let rank = 1 + random.below(3) as usize;
        let shape: Vec<usize> = (0..rank).map(|_| random.below(4) as usize).collect();
        let low: Vec<i64> = (0..rank).map(|_| random.below(5) - 2).collect();
        let high: Vec<i64> = (0..rank).map(|_| random.below(5) - 2).collect();
        let interior: Vec<i64> = (0..rank).map(|_| random.below(3)).collect();
        let c = case(Op::Pad).arg(random.array(DType::F64, &shape));
        let c = c.sizes("low", &low).sizes("high", &high).ints("interior", &interior);
        if c.infer().is_ok() {
            c.run();
        } else {
            assert_eq!(c.code(), "E0235");
        }
    }
}

#[test]
fn pad_explains_what_does_not_fit() {
    let x = || case(Op::Pad).arg(floats(&[3], &[1.0, 2.0, 3.0]));
    assert_eq!(x().sizes("low", &[-4]).sizes("high", &[0]).code(), "E0235");
    let between = x().sizes("low", &[0]).sizes("high", &[0]).ints("interior", &[-1]);
    assert_eq!(between.code(), "E0235");
    assert_eq!(x().sizes("low", &[0, 0]).sizes("high", &[0]).code(), "E0230");
}

#[test]
fn concat_joins_also_empty_ones() {
    let c = case(Op::Concat)
        .arg(count(DType::I64, &[2, 1]))
        .arg(count(DType::I64, &[2, 0]))
        .arg(count(DType::I64, &[2, 2]))
        .int("axis", 1);
    assert_eq!(values(&c.run()), [0.0, 0.0, 1.0, 1.0, 2.0, 3.0]);
    for dtype in DTYPES {
        for (a, b) in [(0, 0), (0, 2), (3, 0), (2, 1)] {
            let c = case(Op::Concat)
                .typed(&[sym("A"), n(3)], count(dtype, &[a, 3]))
                .typed(&[sym("B"), n(3)], count(dtype, &[b, 3]))
                .arg(count(dtype, &[1, 3]))
                .dim("A", a as i64)
                .dim("B", b as i64)
                .int("axis", 0);
            assert_eq!(c.infer().unwrap().shape[0], sym("A") + sym("B") + n(1));
            assert_eq!(c.run().shape(), [a + b + 1, 3]);
        }
    }
    let c = case(Op::Concat).arg(count(DType::I32, &[4])).int("axis", 0);
    assert_eq!(values(&c.run()), [0.0, 1.0, 2.0, 3.0]);
    let c = case(Op::Concat).arg(count(DType::I32, &[0])).arg(count(DType::I32, &[0]));
    assert_eq!(c.int("axis", 0).run().shape(), [0]);
}

#[test]
fn concat_explains_what_does_not_fit() {
    let two = |a: Array, b: Array, axis| case(Op::Concat).arg(a).arg(b).int("axis", axis).code();
    assert_eq!(two(count(DType::I32, &[2, 3]), count(DType::I32, &[3, 3]), 1), "E0236");
    assert_eq!(two(count(DType::I32, &[2]), count(DType::I32, &[2, 1]), 0), "E0236");
    assert_eq!(two(count(DType::I32, &[2]), count(DType::I64, &[2]), 0), "E0206");
    assert_eq!(two(count(DType::I32, &[2]), count(DType::I32, &[2]), 1), "E0207");
    assert_eq!(two(count(DType::I32, &[]), count(DType::I32, &[]), 0), "E0207");
}

#[test]
fn reverse_turns_around() {
    let c = case(Op::Reverse).arg(count(DType::F16, &[2, 3])).ints("axes", &[1]);
    assert_eq!(values(&c.run()), [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
    for size in [0, 1, 4] {
        let c = case(Op::Reverse).typed(&[sym("B")], count(DType::U8, &[size]));
        let c = c.dim("B", size as i64).ints("axes", &[0]);
        let expected: Vec<f64> = (0..size).rev().map(|v| v as f64).collect();
        assert_eq!(values(&c.run()), expected);
    }
    assert_eq!(
        case(Op::Reverse).arg(count(DType::I32, &[2])).ints("axes", &[0, 0]).code(),
        "E0208"
    );
    assert_eq!(case(Op::Reverse).arg(count(DType::I32, &[2])).ints("axes", &[1]).code(), "E0207");
}

#[test]
fn iota_counts_in_every_number_type() {
    for dtype in DTYPES {
        let c = case(Op::Iota).shape("shape", &[n(2), sym("B")]).dim("B", 3).int("axis", 1);
        let c = c.dtype(dtype);
        if dtype == DType::Bool {
            assert_eq!(c.code(), "E0202");
        } else {
            assert_eq!(values(&c.run()), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
        }
    }
    let wraps = case(Op::Iota).sizes("shape", &[300]).dtype(DType::I8).run();
    assert_eq!(values(&wraps)[128], -128.0);
    let rounds = case(Op::Iota).sizes("shape", &[2060]).dtype(DType::F16).run();
    assert_eq!(values(&rounds)[2049], 2048.0);
    assert_eq!(case(Op::Iota).sizes("shape", &[]).code(), "E0207");
    assert_eq!(case(Op::Iota).sizes("shape", &[-1]).code(), "E0231");
}

#[test]
fn gather_picks_and_clamps() {
    let x = count(DType::F32, &[3, 2]);
    let ids = ints(DType::I64, &[4], &[2, 0, 7, -1]);
    let c = case(Op::Gather).arg(x.clone()).arg(ids).bounds("clamp");
    assert_eq!(values(&c.run()), [4.0, 5.0, 0.0, 1.0, 4.0, 5.0, 0.0, 1.0]);
    let ids = ints(DType::U8, &[2, 1], &[1, 0]);
    let c = case(Op::Gather).arg(x.clone()).arg(ids).int("axis", 1);
    assert_eq!(c.infer().unwrap().to_string(), "f32[3, 2, 1]");
    assert_eq!(values(&c.run()), [1.0, 0.0, 3.0, 2.0, 5.0, 4.0]);
    // One index takes the axis away.
    let c = case(Op::Gather).arg(x).arg(ints(DType::I32, &[], &[1]));
    assert_eq!(values(&c.run()), [2.0, 3.0]);
}

#[test]
fn gather_of_every_dtype_and_of_nothing() {
    for dtype in DTYPES {
        for size in [0, 1, 4] {
            let c = case(Op::Gather)
                .typed(&[sym("V"), n(2)], count(dtype, &[size, 2]))
                .typed(&[sym("B")], ints(DType::I32, &[3], &[0, 3, 1]))
                .dim("V", size as i64)
                .dim("B", 3)
                .bounds("clamp");
            assert_eq!(c.run().shape(), [3, 2]);
        }
        let none = case(Op::Gather).arg(count(dtype, &[2, 2])).arg(ints(DType::I32, &[0], &[]));
        assert_eq!(none.run().shape(), [0, 2]);
    }
    let scalar = case(Op::Gather).arg(count(DType::F32, &[])).arg(ints(DType::I32, &[], &[0]));
    assert_eq!(scalar.code(), "E0207");
    let float = case(Op::Gather).arg(count(DType::F32, &[2])).arg(count(DType::F32, &[1]));
    assert_eq!(float.code(), "E0202");
}

#[test]
fn scatter_add_adds_repeated_rows() {
    let base = floats(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let c = |ids: &[i64]| {
        case(Op::ScatterAdd)
            .arg(base.clone())
            .arg(ints(DType::I32, &[ids.len()], ids))
            .arg(floats(&[ids.len(), 2], &vec![10.0; 2 * ids.len()]))
    };
    assert_eq!(values(&c(&[2, 0, 2]).run()), [10.0, 11.0, 2.0, 3.0, 24.0, 25.0]);
    assert_eq!(values(&c(&[]).run()), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    for bad in [3, -1] {
        let err = c(&[bad]).try_run().unwrap_err();
        assert_eq!(err, format!("index {bad} is out of range: the tensor has 3 rows"));
    }
    let dropped = c(&[3, 1, -1]).bounds("drop").run();
    assert_eq!(values(&dropped), [0.0, 1.0, 12.0, 13.0, 4.0, 5.0]);
    let wraps = case(Op::ScatterAdd)
        .arg(ints(DType::I8, &[1], &[100]))
        .arg(ints(DType::I64, &[], &[0]))
        .arg(ints(DType::I8, &[], &[100]));
    assert_eq!(values(&wraps.run()), [-56.0]);
}

#[test]
fn scatter_add_explains_what_does_not_fit() {
    let c = |base: &[usize], ids: &[usize], updates: &[usize]| {
        case(Op::ScatterAdd)
            .arg(count(DType::F32, base))
            .arg(count(DType::I32, ids))
            .arg(count(DType::F32, updates))
            .code()
    };
    assert_eq!(c(&[3, 2], &[4], &[3, 2]), "E0237");
    assert_eq!(c(&[3, 2], &[4], &[4]), "E0237");
    assert_eq!(c(&[], &[4], &[4]), "E0237");
    let mixed = case(Op::ScatterAdd)
        .arg(count(DType::F32, &[3]))
        .arg(count(DType::I32, &[1]))
        .arg(count(DType::F64, &[1]));
    assert_eq!(mixed.code(), "E0206");
}

#[test]
fn dynamic_slices_are_clamped_into_place() {
    let start = |v| ints(DType::I32, &[], &[v]);
    for (at, expected) in [(0, [0.0, 1.0]), (2, [2.0, 3.0]), (9, [3.0, 4.0]), (-4, [0.0, 1.0])] {
        let c = case(Op::DynamicSlice).arg(count(DType::F32, &[5])).arg(start(at)).bounds("clamp");
        assert_eq!(values(&c.sizes("sizes", &[2]).run()), expected);
        let mut updated: Vec<f64> = (0..5).map(|v| v as f64).collect();
        updated[expected[0] as usize] = 7.0;
        updated[expected[1] as usize] = 8.0;
        let c = case(Op::DynamicUpdateSlice)
            .arg(count(DType::F32, &[5]))
            .arg(floats(&[2], &[7.0, 8.0]))
            .arg(start(at))
            .bounds("clamp");
        assert_eq!(values(&c.run()), updated);
    }
}

#[test]
fn dynamic_slices_of_every_dtype_and_of_nothing() {
    let start = |dtype, v| ints(dtype, &[], &[v]);
    for dtype in DTYPES {
        for size in [0, 1, 3] {
            let c = case(Op::DynamicSlice)
                .typed(&[sym("B"), n(2)], count(dtype, &[3, 2]))
                .dim("B", 3)
                .dim("S", size as i64)
                .arg(start(DType::I64, 1))
                .arg(start(DType::U8, 1))
                .shape("sizes", &[sym("S"), n(1)])
                .bounds("clamp");
            assert_eq!(c.run().shape(), [size, 1]);
            let c = case(Op::DynamicUpdateSlice)
                .typed(&[sym("B"), n(2)], count(dtype, &[3, 2]))
                .typed(&[sym("S"), n(2)], count(dtype, &[size, 2]))
                .dim("B", 3)
                .dim("S", size as i64)
                .arg(start(DType::I32, 1))
                .arg(start(DType::I32, 0))
                .bounds("clamp");
            assert_eq!(c.run().shape(), [3, 2]);
        }
    }
    let scalar = case(Op::DynamicUpdateSlice).arg(floats(&[], &[1.0])).arg(floats(&[], &[2.0]));
    assert_eq!(values(&scalar.run()), [2.0]);
    let scalar = case(Op::DynamicSlice).arg(floats(&[], &[1.0])).sizes("sizes", &[]);
    assert_eq!(values(&scalar.run()), [1.0]);
}

#[test]
fn dynamic_slices_explain_what_does_not_fit() {
    let start = || ints(DType::I32, &[], &[0]);
    let x = || case(Op::DynamicSlice).arg(count(DType::F32, &[5]));
    assert_eq!(x().sizes("sizes", &[2]).code(), "E0238");
    assert_eq!(x().arg(start()).sizes("sizes", &[6]).code(), "E0238");
    assert_eq!(x().arg(start()).sizes("sizes", &[2, 1]).code(), "E0230");
    assert_eq!(x().arg(start()).sizes("sizes", &[-2]).code(), "E0231");
    assert_eq!(x().arg(count(DType::I32, &[1])).sizes("sizes", &[2]).code(), "E0232");
    let x = || case(Op::DynamicUpdateSlice).arg(count(DType::F32, &[5]));
    assert_eq!(x().arg(count(DType::F32, &[6])).arg(start()).code(), "E0238");
    assert_eq!(x().arg(count(DType::F32, &[1, 1])).arg(start()).code(), "E0238");
    assert_eq!(x().arg(count(DType::I32, &[1])).arg(start()).code(), "E0206");
}

/// user 5, faults 5: indices out of range were clamped or ignored.
#[test]
fn indices_out_of_range_fail_unless_asked_not_to() {
    let id = |v| ints(DType::I32, &[], &[v]);
    let x = || count(DType::F32, &[5]);
    for bad in [5, 99, -1, -5] {
        let all = [
            case(Op::Gather).arg(x()).arg(id(bad)),
            case(Op::OneHot).arg(id(bad)).int("depth", 5),
            case(Op::DynamicSlice).arg(x()).arg(id(bad)).sizes("sizes", &[1]),
            case(Op::DynamicUpdateSlice).arg(x()).arg(floats(&[1], &[7.0])).arg(id(bad)),
        ];
        for c in all {
            let why = c.try_run().unwrap_err();
            assert!(why.contains(&format!("index {bad} is out of range")), "{why}");
            assert!(why.contains("size 5"), "{why}");
        }
    }
    let c = case(Op::DynamicSlice).arg(x()).arg(id(4)).sizes("sizes", &[2]);
    assert_eq!(c.try_run().unwrap_err(), "a box of 2 cannot begin at 4: axis 0 has size 5");
    let c = case(Op::Gather).arg(count(DType::F32, &[0])).arg(id(0));
    assert!(c.try_run().is_err(), "an empty axis has no entry");
    // Each op knows one other way.
    assert_eq!(case(Op::Gather).arg(x()).arg(id(0)).bounds("drop").code(), "E0532");
    assert_eq!(case(Op::OneHot).arg(id(0)).int("depth", 5).bounds("clamp").code(), "E0532");
}

#[test]
fn one_hot_is_zero_out_of_range() {
    for dtype in DTYPES {
        let c = case(Op::OneHot)
            .typed(&[sym("B")], ints(DType::I32, &[4], &[1, 3, -1, 0]))
            .dim("B", 4)
            .int("depth", 3)
            .dtype(dtype)
            .bounds("drop");
        let expected = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        assert_eq!(values(&c.run()), expected);
        assert_eq!(c.int("depth", 0).run().shape(), [4, 0]);
    }
    let c = case(Op::OneHot).arg(ints(DType::U8, &[], &[2])).int("depth", 3);
    assert_eq!(values(&c.run()), [0.0, 0.0, 1.0]);
    assert_eq!(c.int("depth", -1).code(), "E0231");
}
