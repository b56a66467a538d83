//! What must hold for run-time dims.

use tfc_ir::build::Builder;
use tfc_ir::diag::Span;
use tfc_ir::graph::DimDecl;
use tfc_ir::require::{never_negative, requirements};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Op, TensorType};

fn n(v: i64) -> Dim {
    Dim::constant(v)
}

fn b() -> Dim {
    Dim::sym("B")
}

fn dims(min: i64, max: i64) -> Vec<DimDecl> {
    vec![DimDecl { name: "B".into(), min, max, span: Span::NONE }]
}

/// What one op on an operand of this shape requires.
fn of(op: Op, shape: &[Dim], attrs: Attrs, dims: &[DimDecl]) -> Vec<(String, String)> {
    let vars = Default::default();
    let mut func = Func::new("f");
    let mut builder = Builder::new(&mut func, &vars);
    let x = builder.param(TensorType::new(DType::F32, shape.to_vec()), None);
    builder.emit(op, &[x], attrs).unwrap();
    let found = requirements(&func, dims);
    found.into_iter().map(|r| (r.value.to_string(), r.message)).collect()
}

fn slice(start: Dim, end: Dim, stride: i64) -> Attrs {
    Attrs::none()
        .with("starts", Attr::Shape(vec![start]))
        .with("ends", Attr::Shape(vec![end]))
        .with("strides", Attr::Ints(vec![stride]))
}

#[test]
fn slices_of_run_time_axes() {
    let any = &dims(0, i64::MAX);
    let small = of(Op::Slice, &[b()], slice(n(0), n(3), 1), any);
    let message = "slice 0..3 of axis 0, which has size B, ends behind the last element";
    assert_eq!(small, [("B - 3".to_string(), message.to_string())]);
    // The range of the dim can settle it.
    assert_eq!(of(Op::Slice, &[b()], slice(n(0), n(3), 1), &dims(3, 9)), []);
    assert_eq!(of(Op::Slice, &[b()], slice(n(0), b(), 1), any), []);
    assert_eq!(of(Op::Slice, &[b()], slice(n(0), b(), 2), any), []);
    // The last two: start and size.
    let last = of(Op::Slice, &[b()], slice(b() - n(2), b(), 1), any);
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].0, "B - 2");
    assert!(last[0].1.contains("starts before"));
    // The elements 0, 2 and 4 of B.
    assert_eq!(of(Op::Slice, &[b()], slice(n(0), n(6), 2), any)[0].0, "B - 5");
}

#[test]
fn sizes_that_could_be_negative() {
    let pad =
        Attrs::none().with("low", Attr::Shape(vec![n(-2)])).with("high", Attr::Shape(vec![n(0)]));
    let found = of(Op::Pad, &[b()], pad.clone(), &dims(0, i64::MAX));
    let message = "`pad` would give axis 0 a size of B - 2, below zero";
    assert_eq!(found, [("B - 2".to_string(), message.to_string())]);
    assert_eq!(of(Op::Pad, &[b()], pad, &dims(2, i64::MAX)), []);
}

#[test]
fn windows_over_run_time_images() {
    let attrs = Attrs::none()
        .with("window", Attr::Ints(vec![3, 3]))
        .with("stride", Attr::Ints(vec![2, 2]))
        .with("pad", Attr::Ints(vec![1, 0, 0, 0]));
    let found = of(Op::MaxPool, &[n(1), n(1), b(), n(5)], attrs.clone(), &dims(0, i64::MAX));
    assert_eq!(found[0].0, "B - 2");
    let message = "a window of height 3 of `max_pool` does not fit an image of height B, padding \
                   included";
    assert_eq!(found[0].1, message);
    assert_eq!(of(Op::MaxPool, &[n(1), n(1), b(), n(5)], attrs, &dims(2, 8)), []);
}

#[test]
fn ranges_bound_from_both_sides() {
    let range = &dims(2, 10);
    assert!(never_negative(&(n(10) - b()), range));
    assert!(!never_negative(&(n(9) - b()), range));
    assert!(never_negative(&(b() - n(2)), range));
    assert!(!never_negative(&(b() - n(3)), range));
    assert!(never_negative(&(b() * n(3) - n(6)), range));
    assert!(never_negative(&((b() - n(2)).floor_div(2)), range));
    assert!(!never_negative(&(Dim::sym("T") - n(1)), range));
}
