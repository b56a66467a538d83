//! Gradients through `if` and `while`, against finite differences.
//!
//! `testdata/run/loop_gradients.graph` has each function as an entry `f` and its
//! gradient as an entry `f_grad`, with one result for each float parameter.

use std::path::Path;
use tfc_ir::op::Stage;
use tfc_ir::{DType, Func, Graph, Op, Tensor, interp, text, verify};
use tfc_passes::pipeline::{PASSES, Pass, run_each};
use tfc_passes::{PassOptions, run_passes};

#[path = "support/mod.rs"]
mod support;

fn load(name: &str) -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/run").join(name);
    let source = std::fs::read_to_string(&path).expect("a case");
    parse(&source)
}

fn parse(source: &str) -> Graph {
    let (graph, diags, _) = text::load_str("test", source);
    let found: Vec<String> = diags.iter().map(|d| d.message.clone()).collect();
    graph.unwrap_or_else(|| panic!("{found:?}"))
}

/// Numbers that are nowhere near a kink of the functions.
fn feeds(func: &Func, size: i64, iterations: f64) -> Vec<Tensor> {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as f64 / (1u64 << 31) as f64 * 1.4 - 0.5
    };
    func.params()
        .iter()
        .map(|p| {
            let ty = func.ty(*p);
            let shape: Vec<usize> =
                ty.shape.iter().map(|d| d.eval(&|_| Some(size)).unwrap() as usize).collect();
            match ty.dtype {
                DType::F64 => {
                    let n = shape.iter().product();
                    let values: Vec<u8> = (0..n).flat_map(|_| next().to_le_bytes()).collect();
                    Tensor::from_bytes(ty.dtype, shape, values.into()).unwrap()
                }
                _ => Tensor::splat(ty.dtype, shape, iterations),
            }
        })
        .collect()
}

fn run(graph: &Graph, entry: &str, feeds: &[Tensor]) -> Vec<f64> {
    let mut state = interp::State::new(graph).unwrap();
    let out =
        interp::run(graph, entry, feeds, &mut state).unwrap_or_else(|e| panic!("{entry}: {e}"));
    out.iter().flat_map(numbers).collect()
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.bytes().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
}

fn slopes(graph: &Graph, entry: &str, feeds: &[Tensor]) -> Vec<f64> {
    const H: f64 = 1e-5;
    let mut out = vec![];
    for (i, feed) in feeds.iter().enumerate().filter(|(_, f)| f.dtype() == DType::F64) {
        for at in 0..numbers(feed).len() {
            let moved = |by: f64| {
                let mut values = numbers(feed);
                values[at] += by;
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let mut all = feeds.to_vec();
                all[i] =
                    Tensor::from_bytes(DType::F64, feed.shape().to_vec(), bytes.into()).unwrap();
                run(graph, entry, &all)[0]
            };
            out.push((moved(H) - moved(-H)) / (2.0 * H));
        }
    }
    out
}

fn check(graph: &Graph, after: &Graph) -> usize {
    let mut checked = 0;
    for func in &graph.entries {
        let slope = format!("{}_grad", func.name);
        if !graph.entries.iter().any(|e| e.name == slope) {
            continue;
        }
        for (size, iterations) in [(2, 3.0), (3, 0.0), (1, 4.0), (4, 1.0)] {
            let feeds = feeds(func, size, iterations);
            let (got, want) = (run(after, &slope, &feeds), slopes(after, &func.name, &feeds));
            assert_eq!(got.len(), want.len(), "{slope}");
            for (g, w) in got.iter().zip(&want) {
                assert!(
                    (g - w).abs() <= 1e-6 * (1.0 + w.abs()),
                    "{slope} with size {size}, {iterations} iterations:\n{got:?}\n{want:?}"
                );
            }
            checked += got.len();
        }
    }
    checked
}

#[test]
fn gradients_agree_with_finite_differences() {
    let graph = load("loop_gradients.graph");
    let after = run_passes(&graph, &["differentiate"]).unwrap();
    verify::assert_valid(&after, Stage::Core, "differentiate");
    assert!(check(&graph, &after) > 150);
}

/// Bounded memory: iterations are computed again, a few at a time.
#[test]
fn gradients_agree_with_bounded_memory() {
    let graph = load("loop_gradients.graph");
    let passes: Vec<&Pass> = PASSES.iter().filter(|p| p.name == "differentiate").collect();
    let mut rounds_again = 0;
    for bytes in [1, 150, 100_000] {
        let options = PassOptions { loop_memory: Some(bytes), ..PassOptions::default() };
        let after = run_each(graph.clone(), &passes, &options, &mut |_, _| {}).unwrap();
        verify::assert_valid(&after, Stage::Core, "differentiate");
        assert!(check(&graph, &after) > 150);
        let text = text::print(&after);
        rounds_again += text.matches("iteration").count();
    }
    assert!(rounds_again > 20, "iterations are kept now and then: {rounds_again}");
}

#[test]
fn every_stage_prints_and_parses_back() {
    let mut graph = load("loop_gradients.graph");
    for pass in PASSES {
        graph = run_passes(&graph, &[pass.name]).unwrap();
        verify::assert_valid(&graph, Stage::Source, pass.name);
        let printed = text::print(&graph);
        assert_eq!(text::print(&parse(&printed)), printed, "after {}", pass.name);
    }
}

/// The plan, walked step by step, does what the graph means.
#[test]
fn plans_agree_with_the_interpreter() {
    let graph = load("loop_gradients.graph");
    let after = run_passes(&graph, &["differentiate"]).unwrap();
    let program = tfc_passes::compile(&graph, &PassOptions::default()).unwrap();
    for func in &after.entries {
        for (size, iterations) in [(2, 3.0), (3, 0.0)] {
            let feeds = feeds(func, size, iterations);
            let want = run(&after, &func.name, &feeds);
            let mut machine = support::Machine::new(&program);
            let got: Vec<f64> =
                machine.call(&program, &func.name, &feeds).iter().flat_map(numbers).collect();
            for (g, w) in got.iter().zip(&want) {
                assert!(
                    (g - w).abs() <= 1e-9 * (1.0 + w.abs()),
                    "{}: {got:?}\n{want:?}",
                    func.name
                );
            }
            assert_eq!(got.len(), want.len());
        }
    }
}

fn pushes(graph: &Graph, entry: &str) -> Vec<String> {
    let func = graph.entries.iter().find(|e| e.name == entry).unwrap();
    let mut out = vec![];
    func.walk(&mut |_, node| {
        if node.op == Op::StackPush {
            out.push(func.ty(node.operands[0]).to_string());
        }
    });
    out.sort();
    out
}

/// What does not change in a loop is not kept, nor what costs less to compute
/// again.
#[test]
fn only_what_changes_is_kept() {
    let graph = parse(
        "dim T\nvar w: f32[8, 8] = zeros\n\
         entry f(x: f32[T, 8], a: f32[8]) -> f32[8] {\n\
           (_t, h) = while (t = 0, h = a) t < T {\n\
             z = x[t] + h @ w\n\
             yield t + 1, relu(z * a + 1.0)\n\
           }\n\
           return grad(sum(h), wrt: a)\n\
         }\n",
    );
    let after = run_passes(&graph, &["cse", "differentiate"]).unwrap();
    // The product, or what follows from it: not w, not x, not both.
    assert_eq!(pushes(&after, "f"), ["f32[8]"]);
}

/// A loop over `x` costs its iterations what they use of `x`: nothing in an iteration
/// touches all of it, forward or back.
#[test]
fn rounds_do_not_cost_the_length_of_the_loop() {
    let graph = load("loop_gradients.graph");
    let program = tfc_passes::compile(&graph, &PassOptions::default()).unwrap();
    for name in ["recur_grad", "written", "written_grad"] {
        check_rounds(program.plan.entries.iter().find(|e| e.name == name).unwrap());
    }
}

fn check_rounds(entry: &tfc_abi::plan::Entry) {
    use tfc_abi::plan::Step;
    let fixed = |e: u32| entry.exprs[e as usize].as_const().is_some();
    let mut loops = 0;
    for step in &entry.steps {
        let Step::While { body, .. } = step else { continue };
        loops += 1;
        for step in body {
            match step {
                Step::Copy { dst, .. } => {
                    assert!(fixed(entry.buffers[*dst as usize].len), "{}: {step:?}", entry.name);
                }
                Step::Launch(l) => assert!(fixed(l.extent), "{}: {step:?}", entry.name),
                _ => {}
            }
        }
    }
    assert!(loops > 0);
}
