//! Every op's lowering against its `eval`, without a compiler in between.
//!
//! An op whose `lower` and `eval` disagree is found here, before any pass or
//! backend is involved.

#[path = "support/pull.rs"]
mod pull;
mod rows;

use pull::Direct;
use rows::*;
use std::collections::BTreeSet;
use tfc_ir::build::{self, Builder, GraphEmit};
use tfc_ir::diag::Span;
use tfc_ir::eval::Array;
use tfc_ir::graph::DimDecl;
use tfc_ir::interp::{self, State};
use tfc_ir::lower::Lower;
use tfc_ir::op::{ElementKind, Eval, EvalCx};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Op, Tensor, TensorType, ValueId};

fn eval(op: Op, operands: &[Array], attrs: &Attrs, result: TensorType) -> Array {
    let Eval::Pure(eval) = op.def().eval else { panic!("{} is not evaluated", op.name()) };
    let cx = EvalCx { operands, attrs, results: &[result], dims: &size };
    eval(&cx).unwrap_or_else(|e| panic!("{}: {e}", op.name())).remove(0)
}

/// The lowering's answer at every index.
fn lowered(
    op: Op,
    operands: &[Array],
    types: &[TensorType],
    attrs: &Attrs,
    result: &TensorType,
) -> Vec<f64> {
    Direct { op, operands, types, attrs, result, dims: &size }.run()
}

fn same(dtype: DType, got: f64, want: f64) -> bool {
    let tolerance = match dtype {
        DType::F64 => 1e-13,
        DType::F32 => 1e-6,
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 0.0,
    };
    if got == 0.0 && want == 0.0 {
        return got.is_sign_negative() == want.is_sign_negative();
    }
    got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= tolerance * want.abs()
}

/// Values worth trying.
fn specials(dtype: DType, ternary: bool) -> Vec<f64> {
    let nan = f64::NAN;
    let inf = f64::INFINITY;
    match dtype {
        DType::Bool => vec![0.0, 1.0],
        DType::I8 => vec![-128.0, -3.0, -1.0, 0.0, 1.0, 2.0, 7.0, 127.0],
        DType::U8 => vec![0.0, 1.0, 2.0, 7.0, 128.0, 255.0],
        DType::I32 => vec![i32::MIN as f64, -3.0, -1.0, 0.0, 1.0, 2.0, 31.0, i32::MAX as f64],
        DType::I64 => vec![i64::MIN as f64, -3.0, -1.0, 0.0, 1.0, 2.0, 63.0, (1i64 << 52) as f64],
        _ if ternary => vec![-inf, -1.5, -0.0, 0.0, 1.0, inf, nan],
        _ => vec![
            -inf, -300.0, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-6, 0.5, 1.0, 1.5, 2.0, 3.5, 50.0, inf,
            nan,
        ],
    }
}

/// All combinations of special values, as one tensor an operand.
fn combinations(dtypes: &[DType]) -> Vec<Array> {
    let lists: Vec<Vec<f64>> = dtypes.iter().map(|d| specials(*d, dtypes.len() > 2)).collect();
    let total: usize = lists.iter().map(Vec::len).product();
    let mut stride = 1;
    lists
        .iter()
        .zip(dtypes)
        .map(|(list, dtype)| {
            let values = (0..total).map(|i| list[i / stride % list.len()]);
            let tensor = Tensor::from_f64(*dtype, vec![total], values);
            stride *= list.len();
            Array::from_tensor(&tensor)
        })
        .collect()
}

#[test]
fn elementwise_ops_mean_what_they_compile_to() {
    let mut tried = 0;
    for &op in Op::ALL {
        let def = op.def();
        if !matches!(def.lower, Lower::Map(_)) {
            continue;
        }
        for dtype in DType::ALL {
            let dtypes: Option<Vec<DType>> = def
                .operands
                .iter()
                .map(|o| match o.kind {
                    ElementKind::Bool => Some(DType::Bool),
                    kind => kind.admits(dtype).then_some(dtype),
                })
                .collect();
            let Some(dtypes) = dtypes else { continue };
            let targets = if op == Op::Cast { &DType::ALL[..] } else { &[dtype] };
            for &to in targets {
                let mut attrs = Attrs::none();
                if op == Op::Cast {
                    attrs.set("to", Attr::DType(to));
                }
                let operands = combinations(&dtypes);
                let types: Vec<TensorType> = operands
                    .iter()
                    .map(|a| TensorType::new(a.dtype, vec![Dim::from(a.shape()[0])]))
                    .collect();
                let result = build::infer(op, &types, &attrs, None, &[]).unwrap().remove(0);
                let want = eval(op, &operands, &attrs, result.clone()).to_tensor().to_f64();
                let got = lowered(op, &operands, &types, &attrs, &result);
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let inputs: Vec<f64> =
                        operands.iter().map(|a| a.to_tensor().to_f64()[i]).collect();
                    assert!(
                        same(result.dtype, *got, *want),
                        "{} of {inputs:?} ({dtype} to {}): {got} lowered, {want} by eval",
                        def.name,
                        result.dtype
                    );
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 10_000, "{tried}");
}

/// The operands of a row, and their types.
fn operands(row: &Row, dtype: DType) -> (Vec<Array>, Vec<TensorType>) {
    let mut random = Random(42);
    row.inputs
        .iter()
        .map(|input| match input {
            In::Random(shape, lo, hi) => (
                Array::from_tensor(&random.tensor(dtype, shape, *lo, *hi)),
                TensorType::new(dtype, shape.clone()),
            ),
            In::Given(tensor) => {
                let shape: Vec<Dim> = tensor.shape().iter().map(|d| Dim::from(*d)).collect();
                (Array::from_tensor(tensor), TensorType::new(tensor.dtype(), shape))
            }
        })
        .unzip()
}

/// Attributes with defaults filled in.
fn complete(row: &Row) -> Attrs {
    let mut attrs = row.attrs.clone();
    for spec in row.op.def().attrs {
        if let (None, Some(default)) = (attrs.get(spec.name), spec.default) {
            attrs.set(spec.name, default());
        }
    }
    attrs
}

#[test]
fn index_ops_mean_what_they_compile_to() {
    for row in rows().into_iter().chain(other_rows()) {
        if !matches!(row.op.def().lower, Lower::Index(_)) {
            continue;
        }
        for dtype in [DType::F32, DType::F64] {
            let (operands, types) = operands(&row, dtype);
            let attrs = complete(&row);
            let result = build::infer(row.op, &types, &attrs, None, &[])
                .unwrap_or_else(|e| panic!("{}: {e:?}", row.op.name()))
                .remove(0);
            let concrete: Vec<Dim> =
                result.shape.iter().map(|d| Dim::constant(d.eval(&size).unwrap())).collect();
            let concrete = TensorType::new(result.dtype, concrete);
            let want = eval(row.op, &operands, &attrs, concrete).to_tensor().to_f64();
            let got = lowered(row.op, &operands, &types, &attrs, &result);
            assert_eq!(got.len(), want.len());
            // Windows are summed in another order.
            let scale = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let name = row.op.name();
                let close = same(result.dtype, *got, *want)
                    || result.dtype.is_float() && (got - want).abs() <= 1e-6 * scale;
                assert!(close, "{name} at {i}: {got} lowered, {want} by eval");
                if name.starts_with("random") {
                    assert_eq!(got, want, "random numbers agree bit for bit");
                }
            }
        }
    }
}

/// A graph with one entry that applies the op, or its expansion, to parameters.
fn entry(row: &Row, types: &[TensorType], expand: bool) -> Graph {
    let mut graph = Graph::default();
    for (name, _) in [B, T] {
        graph.dims.push(DimDecl { name: name.into(), min: 0, max: i64::MAX, span: Span::NONE });
    }
    let mut func = Func::new("f");
    let mut b = Builder::new(&mut func, &graph.vars);
    b.param(TensorType::new(DType::Bool, vec![Dim::sym(B.0), Dim::sym(T.0)]), None);
    let params: Vec<ValueId> = types.iter().map(|t| b.param(t.clone(), None)).collect();
    let result = match row.op.def().lower {
        Lower::Expand(body) if expand => {
            let e = GraphEmit::new(&mut b);
            let operands: Vec<_> = params.iter().map(|p| e.opaque(*p)).collect();
            let out = e.value(body(&e, &operands, &complete(row)));
            e.finish().unwrap_or_else(|err| panic!("{}: {err:?}", row.op.name()));
            out
        }
        _ => b.emit(row.op, &params, complete(row)).unwrap(),
    };
    func.result_names = vec!["out".into()];
    func.regions[func.body].results = vec![result];
    graph.entries.push(func);
    tfc_ir::verify::assert_valid(&graph, tfc_ir::op::Stage::Core, row.op.name());
    graph
}

#[test]
fn expansions_mean_the_same() {
    for row in rows().into_iter().chain(other_rows()) {
        if !matches!(row.op.def().lower, Lower::Expand(_)) {
            continue;
        }
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let (arrays, types) = operands(&row, dtype);
            let dims = Tensor::splat(DType::Bool, vec![B.1 as usize, T.1 as usize], 0.0);
            let feeds: Vec<Tensor> =
                std::iter::once(dims).chain(arrays.iter().map(Array::to_tensor)).collect();
            let [want, got] = [false, true].map(|expand| {
                let graph = entry(&row, &types, expand);
                let mut state = State::zeros(&graph).unwrap();
                interp::run(&graph, "f", &feeds, &mut state).unwrap().remove(0)
            });
            assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()));
            let scale = want.to_f64().iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (got, want) in got.to_f64().into_iter().zip(want.to_f64()) {
                let close = same(dtype, got, want) || (got - want).abs() <= 1e-6 * scale;
                assert!(close, "{}: {got} expanded, {want} by eval", row.op.name());
            }
        }
    }
}

#[test]
fn every_pulled_or_expanded_op_has_a_row() {
    let covered: BTreeSet<Op> = rows().iter().chain(other_rows().iter()).map(|r| r.op).collect();
    let missing: Vec<&str> = Op::ALL
        .iter()
        .filter(|op| matches!(op.def().lower, Lower::Index(_) | Lower::Expand(_)))
        .filter(|op| !covered.contains(op))
        .map(|op| op.name())
        .collect();
    assert!(
        missing.is_empty(),
        "add a row with inputs to `rows()` (with a gradient) or `other_rows()` in \
         ir/tests/rows/mod.rs: {missing:?}"
    );
}
