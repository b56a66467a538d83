//! Every op, with its gradients and among neighbours it fuses with, computes
//! the same in a program as in the interpreter.

#[path = "../../ir/tests/rows/mod.rs"]
mod rows;
mod support;

use rows::{B, In, Row, T};
use support::{Machine, close, feed};
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::diag::Span;
use tfc_ir::graph::DimDecl;
use tfc_ir::interp::State;
use tfc_ir::op::Grad;
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Op, Tensor, TensorType, ValueId};

/// The op alone, with what it fuses with around it, and its gradients.
fn build(row: &Row, dtype: DType) -> (Graph, Vec<Tensor>) {
    let mut graph = Graph { name: "row".into(), ..Graph::default() };
    for (name, _) in [B, T] {
        graph.dims.push(DimDecl { name: name.into(), min: 0, max: i64::MAX, span: Span::NONE });
    }
    let mut func = Func::new("f");
    let mut feeds = vec![Tensor::splat(DType::Bool, vec![B.1 as usize, T.1 as usize], 0.0)];
    let vars = Default::default();
    let mut b = Builder::new(&mut func, &vars);
    b.param(TensorType::new(DType::Bool, vec![Dim::sym(B.0), Dim::sym(T.0)]), Some("dims".into()));
    let (mut operands, mut floats) = (vec![], vec![]);
    for (i, input) in row.inputs.iter().enumerate() {
        let tensor = match input {
            In::Random(shape, lo, hi) => {
                let sizes: Vec<usize> =
                    shape.iter().map(|d| d.eval(&rows::size).expect("a size") as usize).collect();
                let unit = feed(DType::F64, &sizes, i as u64 + 3).to_f64();
                let values = unit.into_iter().map(|v| lo + (v + 2.0) / 4.0 * (hi - lo));
                let t = Tensor::from_f64(dtype, sizes, values);
                let p = b.param(TensorType::new(dtype, shape.clone()), None);
                operands.push(p);
                t
            }
            In::Given(t) => {
                let shape: Vec<Dim> = t.shape().iter().map(|d| Dim::from(*d)).collect();
                let of = if t.dtype().is_float() { dtype } else { t.dtype() };
                operands.push(b.param(TensorType::new(of, shape), None));
                if of.is_float() {
                    Tensor::from_f64(of, t.shape().to_vec(), t.to_f64())
                } else {
                    t.clone()
                }
            }
        };
        feeds.push(tensor);
        if b.func.ty(operands[i]).dtype.is_float() {
            floats.push(operands[i]);
        }
    }
    let mut attrs = row.attrs.clone();
    if row.op == Op::Cast {
        attrs.set("to", Attr::DType(dtype));
    }
    let out = b.emit(row.op, &operands, attrs.clone()).unwrap_or_else(|e| panic!("{e:?}"));
    let mut results = vec![out];
    let ty = b.func.ty(out).clone();
    if ty.dtype.is_float() {
        // Producers and consumers to fuse with: negated operands, a square.
        let negated: Vec<ValueId> = operands
            .iter()
            .map(|o| match b.func.ty(*o).dtype.is_float() {
                true => {
                    let n = b.emit(Op::Neg, &[*o], Attrs::none()).expect("neg");
                    b.emit(Op::Neg, &[n], Attrs::none()).expect("neg")
                }
                false => *o,
            })
            .collect();
        let inner = b.emit(row.op, &negated, attrs).expect("the op again");
        let square = b.emit(Op::Mul, &[inner, inner], Attrs::none()).expect("mul");
        results.push(square);
        let axes = Attr::Ints((0..ty.rank() as i64).collect());
        let sum = b.emit(Op::Sum, &[square], Attrs::none().with("axes", axes)).expect("sum");
        results.push(sum);
        if matches!(row.op.def().grad, Grad::Vjp(_)) && !floats.is_empty() {
            let mut args = vec![sum];
            args.extend(&floats);
            let node = NodeSpec::new(Op::Grad, &args, Attrs::none(), Span::NONE);
            let node = b.node(node).expect("grad");
            results.extend(b.func.nodes[node].results.clone());
        }
    }
    let body = func.body;
    func.result_names = (0..results.len()).map(|i| format!("r{i}")).collect();
    func.regions[body].results = results;
    graph.entries.push(func);
    (graph, feeds)
}

fn check(row: &Row, dtype: DType, tolerance: f64) -> Result<(), String> {
    let (graph, feeds) = build(row, dtype);
    let oracle = tfc_passes::run_passes(&graph, &["differentiate"])
        .map_err(|d| format!("{:?}", d.iter().map(|d| &d.message).collect::<Vec<_>>()))?;
    let program = tfc_passes::compile(&graph, &tfc_passes::PassOptions::default())
        .map_err(|d| format!("{:?}", d.iter().map(|d| &d.message).collect::<Vec<_>>()))?;
    let mut state = State::new(&oracle).map_err(|e| e.to_string())?;
    let want = tfc_ir::interp::run(&oracle, "f", &feeds, &mut state).map_err(|e| e.to_string())?;
    let got = Machine::new(&program).call(&program, "f", &feeds);
    for (i, (w, g)) in want.iter().zip(&got).enumerate() {
        let tolerance = if w.dtype() == DType::F64 { tolerance } else { 1e-3 };
        close(w, g, tolerance).map_err(|e| format!("result {i}: {e}\n{}", program.plan_text()))?;
    }
    Ok(())
}

#[test]
fn ops_and_gradients_agree_with_the_interpreter() {
    let mut failures = vec![];
    let all: Vec<Row> = rows::rows().into_iter().chain(rows::other_rows()).collect();
    assert!(all.len() > 100);
    for row in &all {
        for (dtype, tolerance) in [(DType::F64, 1e-9), (DType::F32, 1e-3)] {
            let run = std::panic::catch_unwind(|| check(row, dtype, tolerance));
            let error = match run {
                Ok(Ok(())) => continue,
                Ok(Err(e)) => e,
                Err(_) => "panicked".to_string(),
            };
            failures.push(format!("{} {:?} {dtype}: {error}", row.op.name(), row.attrs));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// Every `vjp.<op>.<operand>` of the rule table writes out some gradient here.
#[test]
fn every_gradient_rule_applies() {
    use tfc_ir::op::ElementKind;
    use tfc_passes::egraph::rules::{self, Body};
    use tfc_passes::pipeline::{Details, PASSES, run_each};
    let mut found = std::collections::BTreeMap::new();
    let until = PASSES.iter().position(|p| p.name == "egraph").expect("the pass");
    let passes: Vec<_> = PASSES[..=until].iter().collect();
    let mut graphs: Vec<Graph> = rows::rows().iter().map(|r| build(r, DType::F64).0).collect();
    // The rows cast to the type that is there already.
    let cast = "entry f(x: f32[3]) -> f32[3] { return grad(sum(exp(cast(x, to: f64))), wrt: x) }";
    graphs.extend(tfc_ir::text::load_str("cast.graph", cast).0);
    for graph in graphs {
        let after = run_each(graph, &passes, &Default::default(), &mut |ran, _| {
            if let Details::Egraph(report) = &ran.details {
                for (rule, stats) in &report.stats.rules {
                    *found.entry(*rule).or_insert(0) += stats.found;
                }
            }
        });
        assert!(after.is_ok(), "{:?}", after.err());
    }
    let mut idle = vec![];
    for (i, rule) in rules::table().iter().enumerate() {
        if !matches!(rule.body, Body::Expand) {
            continue;
        }
        let tfc_passes::egraph::lang::NodeKind::Vjp(op, wrt) = rule.roots[0] else { continue };
        let operand = op.def().operands[usize::from(wrt).min(op.def().operands.len() - 1)];
        // Nothing flows to integers and truth values.
        let flows = !matches!(
            operand.kind,
            ElementKind::Int | ElementKind::Index | ElementKind::Bool | ElementKind::Key
        );
        let id = tfc_passes::egraph::analysis::RuleId(i as u16);
        if flows && found.get(&id).is_none_or(|n| *n == 0) {
            idle.push(&rule.name);
        }
    }
    assert!(
        idle.is_empty(),
        "no graph takes these gradients: add a row whose operand gets one to `rows()` in \
         ir/tests/rows/mod.rs: {idle:?}"
    );
}
