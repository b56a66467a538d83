//! Every gradient against finite differences, in f64.
//!
//! An op with a vjp needs a row in `rows/mod.rs`. For each, with random points and
//! weights, `L = sum(weights * op(..))` is differentiated by the op's own
//! formulas and compared with central differences of `L`; then the gradient is
//! contracted with other weights and differentiated again. What the formulas
//! emit must also type-check for every other float type.

mod rows;

use rows::*;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::{Builder, GraphEmit};
use tfc_ir::diag::Span;
use tfc_ir::graph::{Def, DimDecl};
use tfc_ir::interp::{self, State};
use tfc_ir::op::Grad;
use tfc_ir::vjp::{Emit, V, VjpArgs};
use tfc_ir::{
    Attr, Attrs, DType, Dim, Func, Graph, Node, NodeId, Op, Tensor, TensorType, ValueId, verify,
};

/// One entry `f` of a graph under construction.
struct Case {
    graph: Graph,
    /// Parameters that are differentiated.
    floats: Vec<ValueId>,
    feeds: Vec<Tensor>,
}

/// Builds `[value, gradient..., second gradient...]` of the weighted sum of an
/// op's result, as one entry with results named after what they are.
fn build(row: &Row, dtype: DType, random: &mut Random, second: bool) -> Case {
    let mut graph = Graph::default();
    for (name, _) in [B, T] {
        graph.dims.push(DimDecl { name: name.into(), min: 0, max: i64::MAX, span: Span::NONE });
    }
    let mut func = Func::new("f");
    let mut feeds = vec![];
    let mut b = Builder::new(&mut func, &graph.vars);
    // Tells the dims, whatever the row's own operands do.
    b.param(TensorType::new(DType::Bool, vec![Dim::sym(B.0), Dim::sym(T.0)]), None);
    feeds.push(Tensor::splat(DType::Bool, vec![B.1 as usize, T.1 as usize], 0.0));
    let (mut operands, mut floats) = (vec![], vec![]);
    for input in &row.inputs {
        match input {
            In::Random(shape, lo, hi) => {
                let p = b.param(TensorType::new(dtype, shape.clone()), None);
                feeds.push(random.tensor(dtype, shape, *lo, *hi));
                operands.push(p);
                floats.push(p);
            }
            In::Given(tensor) => {
                let shape: Vec<Dim> = tensor.shape().iter().map(|d| Dim::from(*d)).collect();
                let p = b.param(TensorType::new(tensor.dtype(), shape), None);
                feeds.push(tensor.clone());
                operands.push(p);
                if tensor.dtype().is_float() {
                    floats.push(p);
                }
            }
        }
    }
    let mut attrs = row.attrs.clone();
    if row.op == Op::Cast {
        attrs.set("to", Attr::DType(dtype));
    }
    let out = b.emit(row.op, &operands, attrs).unwrap_or_else(|e| panic!("{:?}: {e:?}", row.op));
    let mut results = vec![weighted(&mut b, out, &mut feeds, random)];
    let first = differentiate(&mut b, results[0], &floats);
    results.extend(&first);
    if second {
        let mut total = None;
        for g in first {
            let term = weighted(&mut b, g, &mut feeds, random);
            total = Some(match total {
                None => term,
                Some(t) => b.emit(Op::Add, &[t, term], Attrs::none()).unwrap(),
            });
        }
        let total = total.expect("a differentiable operand");
        results.push(total);
        results.extend(differentiate(&mut b, total, &floats));
    }
    func.result_names = (0..results.len()).map(|i| i.to_string()).collect();
    func.regions[func.body].results = results;
    graph.entries.push(func);
    verify::assert_valid(&graph, row.op.def().stage, row.op.name());
    Case { graph, floats, feeds }
}

/// `sum(weights * value)` with random weights, a scalar.
fn weighted(
    b: &mut Builder<'_>,
    value: ValueId,
    feeds: &mut Vec<Tensor>,
    random: &mut Random,
) -> ValueId {
    let ty = b.func.ty(value).clone();
    feeds.push(random.tensor(ty.dtype, &ty.shape, -1.0, 1.0));
    let weights = b.param(ty.clone(), None);
    let product = b.emit(Op::Mul, &[value, weights], Attrs::none()).unwrap();
    let axes = (0..ty.rank() as i64).collect();
    b.emit(Op::Sum, &[product], Attrs::none().with("axes", Attr::Ints(axes))).unwrap()
}

/// Reverse accumulation over the nodes emitted so far; what nothing reaches has
/// a gradient of zero.
fn differentiate(b: &mut Builder<'_>, y: ValueId, wrt: &[ValueId]) -> Vec<ValueId> {
    let nodes: Vec<(NodeId, Node)> =
        b.func.regions[b.region].nodes.iter().map(|id| (*id, b.func.nodes[*id].clone())).collect();
    // Only what depends on `wrt` is worth a gradient, or may need one.
    let mut active: BTreeSet<ValueId> = wrt.iter().copied().collect();
    for (_, node) in &nodes {
        if node.operands.iter().any(|v| active.contains(v))
            && !matches!(node.op.def().grad, Grad::Zero(_))
        {
            active.extend(&node.results);
        }
    }
    let e = GraphEmit::new(b);
    let emit: &dyn Emit = &e;
    let mut cts: BTreeMap<ValueId, V> = BTreeMap::new();
    cts.insert(y, emit.splat_like(1.0, e.opaque(y)));
    for (_, node) in nodes.iter().rev() {
        let Some(ct) = node.results.first().and_then(|r| cts.get(r)).copied() else { continue };
        let operands: Vec<V> = node.operands.iter().map(|v| e.opaque(*v)).collect();
        let args =
            VjpArgs { operands: &operands, out: e.opaque(node.results[0]), ct, attrs: &node.attrs };
        for (i, operand) in node.operands.iter().enumerate() {
            if !active.contains(operand) || !emit.ty(operands[i]).dtype.is_float() {
                continue;
            }
            let part = match node.op.def().grad {
                Grad::Vjp(vjp) => vjp(emit, &args, i),
                Grad::Zero(_) => None,
                Grad::Undefined(why) => panic!("{}: {why}", node.op.name()),
                Grad::Structural => panic!("{} in a gradient", node.op.name()),
            };
            let Some(part) = part else { continue };
            assert_eq!(
                emit.ty(part),
                emit.ty(operands[i]),
                "type of the gradient of {}",
                node.op.name()
            );
            let sum = match cts.get(operand) {
                Some(old) => emit.add(*old, part),
                None => part,
            };
            cts.insert(*operand, sum);
        }
    }
    let grads: Vec<ValueId> = wrt
        .iter()
        .map(|v| {
            let g = cts.get(v).copied().unwrap_or_else(|| emit.splat_like(0.0, e.opaque(*v)));
            e.value(g)
        })
        .collect();
    e.finish().unwrap_or_else(|err| panic!("{err:?}"));
    grads
}

fn run(case: &Case, feeds: &[Tensor]) -> Vec<Tensor> {
    let mut state = State::zeros(&case.graph).unwrap();
    interp::run(&case.graph, "f", feeds, &mut state).unwrap_or_else(|e| panic!("{e}"))
}

/// Compares result `of + 1 ..` with central differences of the scalar `of`.
fn compare(case: &Case, of: usize, what: &str) {
    let results = run(case, &case.feeds);
    for (i, &param) in case.floats.iter().enumerate() {
        let Def::Param(_, at) = case.graph.entries[0].values[param].def else { unreachable!() };
        let at = at as usize;
        let point = case.feeds[at].to_f64();
        let exact = results[of + 1 + i].to_f64();
        assert_eq!(exact.len(), point.len());
        for j in 0..point.len() {
            let step = 1e-5 * point[j].abs().max(1.0);
            let value = |x: f64| {
                let mut moved = point.clone();
                moved[j] = x;
                let mut feeds = case.feeds.clone();
                feeds[at] = Tensor::from_f64(DType::F64, feeds[at].shape().to_vec(), moved);
                run(case, &feeds)[of].to_f64()[0]
            };
            let slope = (value(point[j] + step) - value(point[j] - step)) / (2.0 * step);
            let error = (slope - exact[j]).abs();
            let bound = 1e-6 * (slope.abs() + exact[j].abs()).max(1e-2);
            assert!(
                error <= bound,
                "{what}, operand {i}, element {j}: {} by formula, {slope} by differences",
                exact[j]
            );
        }
    }
}

#[test]
fn every_gradient_has_a_row() {
    let covered: BTreeSet<Op> = rows().iter().map(|r| r.op).collect();
    let missing: Vec<&str> = Op::ALL
        .iter()
        .filter(|op| matches!(op.def().grad, Grad::Vjp(_)) && !covered.contains(op))
        .map(|op| op.name())
        .collect();
    assert!(
        missing.is_empty(),
        "add a row with inputs for the gradient check to `rows()` in ir/tests/rows/mod.rs: {missing:?}"
    );
}

#[test]
fn gradients_agree_with_differences() {
    for (i, row) in rows().iter().enumerate() {
        for round in 0..2 {
            let mut random = Random(1000 * i as u64 + round);
            let case = build(row, DType::F64, &mut random, true);
            let name = format!("{} (row {i}, round {round})", row.op.name());
            compare(&case, 0, &name);
            compare(&case, 1 + case.floats.len(), &format!("second derivative of {name}"));
        }
    }
}

#[test]
fn gradients_type_check_in_every_float_type() {
    for row in rows() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let case = build(&row, dtype, &mut Random(7), true);
            run(&case, &case.feeds);
        }
    }
}

/// Run-time dims that turn out to be zero: formulas still have shapes.
#[test]
fn gradients_of_empty_tensors() {
    let none = |_: &str| Some(0);
    for row in rows() {
        let case = build(&row, DType::F64, &mut Random(7), true);
        let func = &case.graph.entries[0];
        let feed = |(v, old): (&ValueId, &Tensor)| {
            let ty = func.ty(*v);
            if ty.static_shape().is_some() {
                return old.clone();
            }
            let shape = ty.shape.iter().map(|d| d.eval(&none).unwrap() as usize).collect();
            Tensor::splat(ty.dtype, shape, 1.0)
        };
        let feeds: Vec<Tensor> = func.params().iter().zip(&case.feeds).map(feed).collect();
        let results = run(&case, &feeds);
        for (i, v) in case.floats.iter().enumerate() {
            let shape: Vec<i64> = results[1 + i].shape().iter().map(|d| *d as i64).collect();
            let want: Vec<i64> = func.ty(*v).shape.iter().map(|d| d.eval(&none).unwrap()).collect();
            assert_eq!(shape, want, "{}", row.op.name());
        }
    }
}

/// The documented choice where a derivative has several sides, and values at
/// which formulas could divide by zero.
#[test]
fn subgradients_at_kinks() {
    let check = |row: Row, want: &[&[f64]]| {
        let mut case = build(&row, DType::F64, &mut Random(0), false);
        // The weights: plain sums of the result.
        let weights = &mut case.feeds[1 + row.inputs.len()];
        *weights = Tensor::splat(DType::F64, weights.shape().to_vec(), 1.0);
        let got: Vec<Vec<f64>> = run(&case, &case.feeds)[1..].iter().map(Tensor::to_f64).collect();
        assert_eq!(got, want, "{}", row.op.name());
    };
    let inf = f64::INFINITY;
    let one = |op: Op, at: &[f64]| row(op, vec![floats(at)]);
    check(one(Op::Relu, &[-1.0, -0.0, 0.0, 1.0]), &[&[0.0, 0.0, 0.0, 1.0]]);
    check(one(Op::Abs, &[-2.0, 0.0, 3.0]), &[&[-1.0, 0.0, 1.0]]);
    check(one(Op::Sqrt, &[0.0, 4.0]), &[&[inf, 0.25]]);
    for op in [Op::Maximum, Op::Minimum] {
        let max = (op == Op::Maximum) as u8 as f64;
        check(
            row(op, vec![floats(&[1.0, 2.0, 3.0]), floats(&[1.0, 3.0, 2.0])]),
            &[&[0.5, 1.0 - max, max], &[0.5, max, 1.0 - max]],
        );
    }
    let bounds = || vec![floats(&[-1.0, 0.0, 1.0, 2.0, 3.0]), floats(&[0.0; 5]), floats(&[2.0; 5])];
    check(
        row(Op::Clamp, bounds()),
        &[&[0.0, 1.0, 1.0, 1.0, 0.0], &[1.0, 0.0, 0.0, 0.0, 0.0], &[0.0, 0.0, 0.0, 0.0, 1.0]],
    );
    // An empty interval: the result is the upper end.
    check(
        row(Op::Clamp, vec![floats(&[0.0]), floats(&[2.0]), floats(&[1.0])]),
        &[&[0.0], &[0.0], &[1.0]],
    );
    check(
        row(Op::Pow, vec![floats(&[0.0, 0.0, 0.0, -2.0]), floats(&[0.0, 1.0, 2.0, 2.0])]),
        &[&[0.0, 1.0, 0.0, -4.0], &[0.0; 4]],
    );
    check(one(Op::ReduceMax, &[1.0, 4.0, 4.0, 2.0]).ints("axes", &[0]), &[&[0.0, 0.5, 0.5, 0.0]]);
    check(
        one(Op::ReduceMin, &[1.0, 1.0, 4.0, 1.0]).ints("axes", &[0]),
        &[&[1.0 / 3.0, 1.0 / 3.0, 0.0, 1.0 / 3.0]],
    );
    // The first of equal elements of a window; each window by itself.
    let image = Tensor::from_f64(DType::F64, vec![1, 1, 2, 3], [5.0, 5.0, 1.0, 5.0, 2.0, 1.0]);
    let pooled = row(Op::MaxPool, vec![In::Given(image)])
        .ints("window", &[2, 2])
        .ints("stride", &[1, 1])
        .ints("pad", &[0, 0, 0, 0]);
    check(pooled, &[&[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]);
    check(one(Op::Prod, &[2.0, 0.0, 3.0]).ints("axes", &[0]), &[&[0.0, 6.0, 0.0]]);
    check(one(Op::Prod, &[0.0, 0.0, 3.0]).ints("axes", &[0]), &[&[0.0, 0.0, 0.0]]);
    let truth = Tensor::from_i64(DType::Bool, vec![2], [1, 0]);
    check(
        row(Op::Select, vec![In::Given(truth), floats(&[1.0, f64::NAN]), floats(&[f64::NAN, 2.0])]),
        &[&[1.0, 0.0], &[0.0, 1.0]],
    );
}

/// Ops whose reference says which side a derivative takes are in the test above.
#[test]
fn every_documented_choice_is_checked() {
    let checked = [
        Op::Abs,
        Op::Clamp,
        Op::MaxPool,
        Op::Maximum,
        Op::Minimum,
        Op::Pow,
        Op::ReduceMax,
        Op::ReduceMin,
        Op::Relu,
    ];
    let says = |op: &&Op| {
        let summary = op.def().summary;
        matches!(op.def().grad, Grad::Vjp(_))
            && ["derivative", "gradient"].iter().any(|w| summary.contains(w))
            // Linear, and part of another op's gradient.
            && !op.name().contains("_grad")
            && **op != Op::MaxPoolTake
    };
    let missing: Vec<&str> = Op::ALL
        .iter()
        .filter(says)
        .filter(|op| !checked.contains(op))
        .map(|op| op.name())
        .collect();
    assert!(missing.is_empty(), "no kink of {missing:?} is checked");
}

/// Zeros where a quotient would hide a second derivative.
#[test]
fn products_with_zeros_differentiate_twice() {
    for row in [
        row(Op::Prod, vec![floats(&[2.0, 0.0, 3.0, 0.0])]).ints("axes", &[0]),
        row(Op::CumProd, vec![floats(&[2.0, 0.0, 3.0, 0.0])]).int("axis", 0),
    ] {
        let case = build(&row, DType::F64, &mut Random(3), true);
        compare(&case, 0, row.op.name());
        compare(&case, 1 + case.floats.len(), row.op.name());
    }
}

/// `select(x > 0, log(x), 0)` must not be poisoned by the branch not taken.
#[test]
fn guarded_branches_do_not_leak() {
    let mut graph = Graph::default();
    let mut func = Func::new("f");
    let mut b = Builder::new(&mut func, &graph.vars);
    let p = b.param(TensorType::new(DType::F64, vec![n(3)]), None);
    let e = GraphEmit::new(&mut b);
    let emit: &dyn Emit = &e;
    let v = e.opaque(p);
    let (zero, one) = (emit.splat_like(0.0, v), emit.splat_like(1.0, v));
    let positive = emit.binary(Op::Gt, v, zero);
    let log = emit.unary(Op::Log, emit.select(positive, v, one));
    let y = e.value(emit.sum(emit.select(positive, log, zero), &[0]));
    e.finish().unwrap();
    let g = differentiate(&mut b, y, &[p])[0];
    func.result_names = vec!["g".into()];
    func.regions[func.body].results = vec![g];
    graph.entries.push(func);
    let feed = Tensor::from_f64(DType::F64, vec![3], [-1.0, 0.0, 4.0]);
    let mut state = State::zeros(&graph).unwrap();
    let got = interp::run(&graph, "f", &[feed], &mut state).unwrap();
    assert_eq!(got[0].to_f64(), [0.0, 0.0, 0.25]);
}
