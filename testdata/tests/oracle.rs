//! The corpus without a compiler: every graph of it is well-formed, and means
//! the same by the interpreter before and after the passes, whichever float
//! rewrites are allowed: results, and what is left in variables. So it does with
//! every float widened to `f64`, to 1e-12.

use tfc_ir::interp::{self, State};
use tfc_ir::op::Stage;
use tfc_ir::{DType, Graph, Tensor, text, verify};
use tfc_passes::PassOptions;
use tfc_passes::egraph::{self, FloatMode};
use tfc_passes::pipeline::{PASSES, Pass, run_each, run_passes};
use tfc_testdata::directive::Directive;
use tfc_testdata::{compare, corpus, feeds};

fn load(case: &corpus::Case) -> Result<Graph, String> {
    let (graph, diags, _) = text::load_str(&case.name, &case.text);
    graph.ok_or_else(|| {
        let found: Vec<String> = diags
            .iter()
            .map(|d| {
                let at = d.labels.first().map_or(0, |l| l.span.lo as usize);
                let line = case.text[..at.min(case.text.len())].lines().count();
                format!("line {line}: {} {}", d.code, d.message)
            })
            .collect();
        found.join("; ")
    })
}

/// How many calls were compared.
fn check(case: &corpus::Case, wide: bool) -> Result<usize, String> {
    let graph = load(case)?;
    let graph = if wide { tfc_passes::probe::widen(&graph) } else { graph };
    let sound = |graph: &Graph, stage, when: &str| {
        let found = verify::verify(graph, stage);
        let text: Vec<&str> = found.iter().map(|d| d.message.as_str()).collect();
        if found.is_empty() { Ok(()) } else { Err(format!("{when}: {}", text.join("; "))) }
    };
    sound(&graph, Stage::Source, "as loaded")?;
    let passed = |names: &[&str]| {
        run_passes(&graph, names).map_err(|diags| {
            let text: Vec<&str> = diags.iter().map(|d| d.message.as_str()).collect();
            text.join("; ")
        })
    };
    let plain = passed(&["differentiate", "replicas"])?;
    sound(&plain, Stage::Core, "after replicas")?;
    let optimised = |mode: FloatMode| {
        let egraph = egraph::Rewriting { mode, ..egraph::Rewriting::default() };
        let options = PassOptions { egraph, ..PassOptions::default() };
        let passes: Vec<&Pass> = PASSES.iter().collect();
        let out = run_each(graph.clone(), &passes, &options, &mut |_, _| {});
        out.map_err(|diags| diags.iter().map(|d| d.message.as_str()).collect::<Vec<_>>().join("; "))
    };
    let modes = [FloatMode::Strict, FloatMode::Rounding, FloatMode::Fast];
    let programs = modes.map(|mode| (mode, optimised(mode)));
    // Only cases to run say at which sizes and on what.
    let directive = match Directive::parse(&case.text) {
        Ok(d) if d.verb == "run" => d,
        _ => Directive::default(),
    };
    let mut calls = 0;
    for func in plain.entries.iter().filter(|f| !f.runner) {
        // In f64 only the numbers differ, so two sizes are enough.
        let sizes = directive.assignments(&feeds::dims(func));
        for dims in sizes.iter().take(if wide { 2 } else { usize::MAX }) {
            let feeds: Vec<Tensor> =
                feeds::feeds(func, &directive, dims).into_iter().map(|(_, t)| t).collect();
            // The results, then the variables.
            let run = |graph: &Graph| {
                let mut state = State::new(graph)?;
                let mut out = interp::run(graph, &func.name, &feeds, &mut state)?;
                out.extend(graph.vars.keys().filter_map(|v| state.get(v)));
                Ok::<_, interp::Error>(out)
            };
            calls += 1;
            let context = |e: interp::Error| format!("{} with {dims:?}: {e}", func.name);
            let want = match run(&plain) {
                Ok(want) => want,
                // What fails as written fails in the same way optimised.
                Err(e) => {
                    for (mode, program) in &programs {
                        let program = program.as_ref().map_err(String::clone)?;
                        let code = run(program).err().map(|e| e.code);
                        if code != Some(e.code) {
                            return Err(format!("{mode:?}: {code:?}, not {}", context(e)));
                        }
                    }
                    continue;
                }
            };
            for (mode, program) in &programs {
                // Fast math promises nothing about infinities and NaN.
                let special =
                    |t: &Tensor| t.dtype().is_float() && t.to_f64().iter().any(|v| !v.is_finite());
                if *mode == FloatMode::Fast && want.iter().any(special) {
                    continue;
                }
                let program = program.as_ref().map_err(String::clone)?;
                let got = run(program).map_err(context)?;
                for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                    let tol = match (wide, want.dtype(), mode) {
                        // Sums are regrouped as well.
                        (true, DType::F64, FloatMode::Fast) => 1e-11,
                        (true, DType::F64, _) => 1e-12,
                        (_, dtype, _) => directive.tol.unwrap_or(compare::default_tolerance(dtype)),
                    };
                    if let Some(how) = compare::difference(want, got, tol) {
                        let name = &func.name;
                        return Err(format!("{name} with {dims:?}, {mode:?}, result {i}: {how}"));
                    }
                }
            }
        }
    }
    Ok(calls)
}

fn all_mean_the_same(wide: bool) {
    let mut failures = vec![];
    // Those of `parse` are there to be read; the examples take the interpreter
    // minutes, and `run.rs` has them.
    let dirs =
        ["canonicalize", "cse", "dce", "diff", "egraph", "fold", "fuse", "ops", "plan", "run"];
    let cases: Vec<corpus::Case> = dirs.iter().flat_map(|d| corpus::cases(d)).collect();
    assert!(cases.len() > 110, "{}", cases.len());
    let mut calls = 0;
    for case in &cases {
        match check(case, wide) {
            Ok(n) => calls += n,
            Err(why) => failures.push(format!("{}: {why}", case.path.display())),
        }
    }
    assert!(calls > 250, "{calls} calls");
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn graphs_mean_the_same_before_and_after_passes() {
    all_mean_the_same(false);
}

#[test]
fn graphs_mean_the_same_in_f64() {
    all_mean_the_same(true);
}
