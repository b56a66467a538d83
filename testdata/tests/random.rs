//! Random graphs give the same numbers in every way of running them.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tfc_testdata::corpus::Case;
use tfc_testdata::ways::{Subject, scratch};

/// One statement. Every value is `f32[B, 4]` and stays around 1, so any statement
/// may follow any other; nothing jumps where rounding could decide.
#[derive(Clone, Debug)]
struct Step {
    form: usize,
    a: usize,
    b: usize,
}

const FORMS: &[&str] = &[
    "tanh({a} + {b})",
    "sigmoid({a}) * {b}",
    "{a} - mean({a}, axes: [1], keep: true)",
    "relu({a}) - 0.25 * {b}",
    "exp(min_of({a}, 1.0)) * 0.3",
    "sin({a}) * cos({b})",
    "tanh({a} @ w)",
    "tanh(transpose(transpose({a}, perm: [1, 0]), perm: [1, 0]) @ w + v)",
    "{a} / (1.0 + abs({b}))",
    "sqrt(abs({a}) + 0.5)",
    "log(abs({a}) + 1.5)",
    "select({b} < 0.0, {a}, {a} * 0.5)",
    "concat(slice({a}, starts: [0, 1], ends: [B, 4], strides: [1, 1]), slice({b}, starts: [0, 0], ends: [B, 1], strides: [1, 1]), axis: 1)",
    "reverse({a}, axes: [1])",
    "tanh(cumsum({a}, axis: 1))",
    "reshape(reshape({a}, shape: [4 * B]), shape: [B, 4])",
    "{a} / (sum(exp({a} - max({a}, axes: [1], keep: true)), axes: [1], keep: true) + 1.0)",
    "softmax_of({a})",
    "{a} - 0.5 * mean({b}, axes: [0], keep: true)",
    "erf({a}) + rsqrt({b} * {b} + 1.0)",
    "maximum({a}, {b} * 0.7)",
    "pad(slice({a}, starts: [0, 0], ends: [B, 3], strides: [1, 1]), low: [0, 1], high: [0, 0], value: 0.5)",
];

fn entry(index: usize, steps: &[Step]) -> String {
    let mut text = format!(
        "entry e{index}(x: f32[B, 4], y: f32[B, 4]) -> (out: f32[B, 4], total: f32[]) {{\n"
    );
    let name = |i: usize| match i {
        0 => "x".to_string(),
        1 => "y".to_string(),
        i => format!("s{i}"),
    };
    for (i, step) in steps.iter().enumerate() {
        let known = i + 2;
        let form = FORMS[step.form % FORMS.len()];
        let text_of = form
            .replace("min_of(", "minimum(")
            .replace("softmax_of({a})", "exp({a} - max({a}, axes: [1], keep: true)) / sum(exp({a} - max({a}, axes: [1], keep: true)), axes: [1], keep: true)")
            .replace("{a}", &name(step.a % known))
            .replace("{b}", &name(step.b % known));
        text.push_str(&format!("  s{known} = {text_of}\n"));
    }
    let last = name(steps.len() + 1);
    text.push_str(&format!("  return {last}, sum({last} * {last})\n}}\n"));
    text
}

fn graph(entries: &[Vec<Step>]) -> String {
    let mut text = String::from(
        "//! run; B = 3,1,0,9; tol = 1e-4\ngraph random\ndim B\n\
         var w: f32[4, 4] = f32[4, 4](0.5, -0.25, 0.1, 0.3, -0.4, 0.2, 0.6, -0.1, 0.05, 0.7, -0.3, 0.2, 0.1, -0.2, 0.4, 0.35)\n\
         var v: f32[4] = f32[4](0.1, -0.2, 0.3, 0.0)\n",
    );
    for (i, steps) in entries.iter().enumerate() {
        text.push_str(&entry(i, steps));
    }
    text
}

/// The same entries, with gradients by everything there is.
fn with_gradients(entries: &[Vec<Step>]) -> String {
    let end = "  return {last}, sum({last} * {last})\n";
    let mut text = graph(&[]);
    for (i, steps) in entries.iter().enumerate() {
        let last = format!("s{}", steps.len() + 1);
        let own = "  total = sum({last} * {last}) + 0.1 * (sum(x * y) + sum(w * w) + sum(v * v))\n  \
                   (dx, dy, dw, dv) = grad(total, wrt: [x, y, w, v])\n  \
                   w -= 0.1 * dw\n  return total, dx, dy, dv\n";
        let body = entry(i, steps)
            .replace(&end.replace("{last}", &last), &own.replace("{last}", &last))
            .replace(
                "-> (out: f32[B, 4], total: f32[])",
                "-> (total: f32[], dx: f32[B, 4], dy: f32[B, 4], dv: f32[4])",
            );
        text.push_str(&body);
    }
    text
}

/// Gradients and updates of random graphs, in f64, as they are and optimised.
#[test]
fn optimised_random_graphs_have_the_same_gradients() {
    use std::collections::BTreeMap;
    use tfc_ir::interp::{self, State};
    use tfc_passes::egraph::{self, FloatMode};
    use tfc_passes::pipeline::{PASSES, Pass, run_each, run_passes};
    let cases = std::env::var("TFC_RANDOM").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    let step =
        (0..FORMS.len(), 0usize..32, 0usize..32).prop_map(|(form, a, b)| Step { form, a, b });
    let entries = prop::collection::vec(prop::collection::vec(step, 1..14), 1..4);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&entries, |entries| {
        let text = with_gradients(&entries);
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{text}"));
        let (graph, diags, _) = tfc_ir::text::load_str("random.graph", &text);
        let graph = graph.ok_or_else(|| fail(format!("{diags:?}")))?;
        let graph = tfc_passes::probe::widen(&graph);
        let plain = run_passes(&graph, &["differentiate"]).map_err(|d| fail(format!("{d:?}")))?;
        for (mode, tol) in
            [(FloatMode::Strict, 1e-12), (FloatMode::Rounding, 1e-12), (FloatMode::Fast, 1e-11)]
        {
            let egraph = egraph::Options { mode, ..egraph::Options::default() };
            let options = tfc_passes::Options { egraph, ..Default::default() };
            let passes: Vec<&Pass> = PASSES.iter().collect();
            let out = run_each(graph.clone(), &passes, &options, &mut |_, _| {})
                .map_err(|d| fail(format!("{d:?}")))?;
            for (func, size) in plain.entries.iter().zip([3, 1, 5]) {
                let dims = BTreeMap::from([("B".to_string(), size)]);
                let feeds: Vec<_> = tfc_testdata::feeds::feeds(func, &Default::default(), &dims)
                    .into_iter()
                    .map(|(_, t)| t)
                    .collect();
                let run = |graph: &tfc_ir::Graph| {
                    let mut state = State::new(graph)?;
                    let mut out = interp::run(graph, &func.name, &feeds, &mut state)?;
                    out.extend(graph.vars.keys().filter_map(|v| state.get(v)));
                    Ok::<_, interp::Error>(out)
                };
                let want = run(&plain).map_err(|e| fail(e.to_string()))?;
                let got = run(&out).map_err(|e| fail(e.to_string()))?;
                prop_assert_eq!(want.len(), got.len());
                for (w, g) in want.iter().zip(&got) {
                    if let Some(how) = tfc_testdata::compare::difference(w, g, tol) {
                        return Err(fail(format!("{mode:?}, {}: {how}", func.name)));
                    }
                }
            }
        }
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}

#[test]
fn three_ways_agree_on_random_graphs() {
    let cases = std::env::var("TFC_RANDOM").ok().and_then(|n| n.parse().ok()).unwrap_or(16);
    let step =
        (0..FORMS.len(), 0usize..32, 0usize..32).prop_map(|(form, a, b)| Step { form, a, b });
    let entries = prop::collection::vec(prop::collection::vec(step, 1..14), 1..5);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let dir = scratch();
    let result = runner.run(&entries, |entries| {
        let text = graph(&entries);
        let case = Case { path: "random.graph".into(), name: "random".into(), text };
        let subject = Subject::new(&case, dir.path())
            .map_err(|e| TestCaseError::fail(format!("{e}\n{}", case.text)))?;
        let calls =
            subject.agree().map_err(|e| TestCaseError::fail(format!("{e}\n{}", case.text)))?;
        prop_assert!(calls >= entries.len());
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}
