//! What inference says about variables, effects, control flow and gradients.
//! (What they do is tested with the interpreter.)

use tfc_ir::build::infer;
use tfc_ir::op::{Effect, InferError, Stage};
use tfc_ir::{Attr, Attrs, DType, Dim, Op, TensorType};

fn ty(dtype: DType, shape: &[i64]) -> TensorType {
    TensorType::new(dtype, shape.iter().map(|d| Dim::constant(*d)).collect::<Vec<_>>())
}

fn f32s(shape: &[i64]) -> TensorType {
    ty(DType::F32, shape)
}

fn attrs(op: Op) -> Attrs {
    op.def().attrs.iter().fold(Attrs::none(), |out, spec| match spec.default {
        Some(default) => out.with(spec.name, default()),
        None => out,
    })
}

fn on_var(
    op: Op,
    var: Option<&TensorType>,
    operands: &[TensorType],
) -> Result<Vec<TensorType>, InferError> {
    let var = var.map(|ty| tfc_ir::graph::Var {
        name: "v".into(),
        ty: ty.clone(),
        symbol: tfc_ir::graph::Symbol::Variable,
        user: true,
        device: None,
        span: tfc_ir::diag::Span::NONE,
    });
    infer(op, operands, &attrs(op), var.as_ref(), &[])
}

fn with_regions(
    op: Op,
    operands: &[TensorType],
    regions: &[Vec<TensorType>],
) -> Result<Vec<TensorType>, InferError> {
    infer(op, operands, &attrs(op), None, regions)
}

fn code<T: std::fmt::Debug>(result: Result<T, InferError>) -> &'static str {
    result.expect_err("an ill-typed node").code
}

#[test]
fn variables_take_values_of_their_type_only() {
    let var = f32s(&[4, 2]);
    assert_eq!(on_var(Op::Read, Some(&var), &[]), Ok(vec![var.clone()]));
    assert_eq!(code(on_var(Op::Read, None, &[])), "E0430");
    for op in [Op::Assign, Op::AssignAdd, Op::AssignSub] {
        assert_eq!(op.def().effect, Effect::Write);
        assert_eq!(on_var(op, Some(&var), &[f32s(&[4, 2])]), Ok(vec![]));
        assert_eq!(code(on_var(op, None, &[f32s(&[4, 2])])), "E0430");
        assert_eq!(code(on_var(op, Some(&var), &[f32s(&[2, 4])])), "E0431");
        let err = on_var(op, Some(&var), &[ty(DType::F64, &[4, 2])]).unwrap_err();
        assert_eq!(err.code, "E0431");
        assert_eq!(err.help.as_deref(), Some("convert the value: `cast(.., to: f32)`"));
        let run_time = TensorType::new(DType::F32, vec![Dim::sym("B"), Dim::constant(2)]);
        let err = on_var(op, Some(&var), &[run_time]).unwrap_err();
        assert!(err.help.is_some_and(|h| h.contains("reduce the run-time axes")));
    }
    let flags = ty(DType::Bool, &[3]);
    assert_eq!(on_var(Op::Assign, Some(&flags), std::slice::from_ref(&flags)), Ok(vec![]));
    assert_eq!(code(on_var(Op::AssignAdd, Some(&flags), &[f32s(&[3])])), "E0432");
}

#[test]
fn rows_of_variables_take_rows() {
    let table = f32s(&[100, 8]);
    let ids = ty(DType::I32, &[5]);
    for op in [Op::ScatterAssign, Op::ScatterAssignAdd] {
        assert_eq!(on_var(op, Some(&table), &[ids.clone(), f32s(&[5, 8])]), Ok(vec![]));
        let scalar = ty(DType::I64, &[]);
        assert_eq!(on_var(op, Some(&table), &[scalar, f32s(&[8])]), Ok(vec![]));
        assert_eq!(code(on_var(op, Some(&table), &[ids.clone(), f32s(&[5, 7])])), "E0237");
        assert_eq!(code(on_var(op, Some(&table), &[ids.clone(), f32s(&[8])])), "E0237");
        let wide = ty(DType::F64, &[5, 8]);
        assert_eq!(code(on_var(op, Some(&table), &[ids.clone(), wide])), "E0431");
        assert_eq!(code(on_var(op, Some(&table), &[f32s(&[5]), f32s(&[5, 8])])), "E0202");
        assert_eq!(code(on_var(op, None, &[ids.clone(), f32s(&[5, 8])])), "E0430");
        assert_eq!(code(on_var(op, Some(&f32s(&[])), &[ids.clone(), f32s(&[5])])), "E0237");
    }
    // Set works on anything, adding on numbers.
    let flags = ty(DType::Bool, &[9]);
    let news = ty(DType::Bool, &[5]);
    assert_eq!(on_var(Op::ScatterAssign, Some(&flags), &[ids.clone(), news.clone()]), Ok(vec![]));
    assert_eq!(code(on_var(Op::ScatterAssignAdd, Some(&flags), &[ids, news])), "E0202");
}

#[test]
fn print_and_assert_have_no_results() {
    assert_eq!(on_var(Op::Print, None, &[ty(DType::BF16, &[2])]), Ok(vec![]));
    assert_eq!(on_var(Op::Assert, None, &[ty(DType::Bool, &[2])]), Ok(vec![]));
    assert_eq!(code(on_var(Op::Assert, None, &[f32s(&[])])), "E0202");
}

#[test]
fn branches_agree() {
    let cond = ty(DType::Bool, &[]);
    let a = vec![f32s(&[2]), ty(DType::I32, &[])];
    assert_eq!(
        with_regions(Op::If, std::slice::from_ref(&cond), &[a.clone(), a.clone()]),
        Ok(a.clone())
    );
    assert_eq!(with_regions(Op::If, std::slice::from_ref(&cond), &[vec![], vec![]]), Ok(vec![]));
    let many = [ty(DType::Bool, &[2])];
    assert_eq!(code(with_regions(Op::If, &many, &[a.clone(), a.clone()])), "E0232");
    let short = vec![f32s(&[2])];
    assert_eq!(
        code(with_regions(Op::If, std::slice::from_ref(&cond), &[a.clone(), short])),
        "E0433"
    );
    let other = vec![f32s(&[3]), ty(DType::I32, &[])];
    assert_eq!(code(with_regions(Op::If, &[cond], &[a, other])), "E0433");
}

#[test]
fn loops_keep_the_types_of_what_they_carry() {
    let carried = [ty(DType::I32, &[]), f32s(&[4])];
    let cond = vec![ty(DType::Bool, &[])];
    let body = carried.to_vec();
    let run = |cond: &[TensorType], body: &[TensorType]| {
        with_regions(Op::While, &carried, &[cond.to_vec(), body.to_vec()])
    };
    assert_eq!(run(&cond, &body), Ok(carried.to_vec()));
    assert_eq!(code(run(&[ty(DType::Bool, &[1])], &body)), "E0434");
    assert_eq!(code(run(&[], &body)), "E0434");
    assert_eq!(code(run(&cond, &body[..1])), "E0435");
    assert_eq!(code(run(&cond, &[body[0].clone(), f32s(&[5])])), "E0435");
}

#[test]
fn gradients_are_typed_like_what_they_are_with_respect_to() {
    assert_eq!(Op::Grad.def().stage, Stage::Source);
    let (loss, w, b) = (f32s(&[]), f32s(&[4, 2]), f32s(&[2]));
    let plain = attrs(Op::Grad);
    let seeded = plain.clone().with("seeded", Attr::Bool(true));
    let run = |operands: &[&TensorType], attrs: &Attrs| {
        let operands: Vec<TensorType> = operands.iter().map(|t| (*t).clone()).collect();
        infer(Op::Grad, &operands, attrs, None, &[])
    };
    assert_eq!(run(&[&loss, &w, &b], &plain), Ok(vec![w.clone(), b.clone()]));
    assert_eq!(run(&[&b, &b, &w], &seeded), Ok(vec![w.clone()]));
    assert_eq!(code(run(&[&b, &w], &plain)), "E0330");
    assert_eq!(code(run(&[&b, &w, &w], &seeded)), "E0331");
    assert_eq!(code(run(&[&b], &seeded)), "E0331");
    assert_eq!(code(run(&[&loss, &ty(DType::I32, &[])], &plain)), "E0202");
}

#[test]
fn own_gradients_cover_every_float_operand() {
    let operands = [f32s(&[3]), ty(DType::I32, &[3]), f32s(&[])];
    let value = vec![f32s(&[2])];
    let run = |forward: &[TensorType], backward: &[TensorType]| {
        with_regions(Op::CustomGrad, &operands, &[forward.to_vec(), backward.to_vec()])
    };
    assert_eq!(run(&value, &[f32s(&[3]), f32s(&[])]), Ok(value.clone()));
    assert_eq!(code(run(&[], &[f32s(&[3]), f32s(&[])])), "E0332");
    assert_eq!(code(run(&value, &[f32s(&[3])])), "E0333");
    let err = run(&value, &[f32s(&[3]), f32s(&[1])]).unwrap_err();
    assert_eq!((err.code, err.labels.len()), ("E0333", 1));
    assert_eq!(err.labels[0].0, tfc_ir::op::Blame::Operand(2));
}
