//! Each pass alone on small graphs, as text; the plan and the kernels of a few.
//!
//! The first line of a case says what it shows: `//! pass; NAME`, `//! plan`,
//! `//! fused`, `//! steps`, `//! kernels`, or `//! explain; MODE` for what the e-graph leaves and by which
//! rules. What it must look like stands beside it with the ending
//! `.txt`; `UPDATE=1 cargo test` writes those files anew.

use std::path::{Path, PathBuf};
use tfc_ir::op::Stage;
use tfc_ir::{Graph, interp, text, verify};
use tfc_passes::egraph::{self, FloatMode};
use tfc_passes::pipeline::{Details, PASSES, Pass, run_each};
use tfc_passes::{PassOptions, compile, run_passes};

fn load(path: &Path) -> Graph {
    let source = std::fs::read_to_string(path).expect("a case");
    let (graph, diags, _) = text::load_str(&path.display().to_string(), &source);
    let found: Vec<String> = diags.iter().map(|d| d.message.clone()).collect();
    graph.unwrap_or_else(|| panic!("{}: {found:?}", path.display()))
}

fn cases(dirs: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata");
    let mut out = vec![];
    for dir in dirs {
        let entries = std::fs::read_dir(root.join(dir)).expect("a folder of cases");
        out.extend(
            entries
                .filter_map(|e| Some(e.ok()?.path()))
                .filter(|p| p.extension().is_some_and(|e| e == "graph")),
        );
    }
    out.sort();
    out
}

const DIRS: &[&str] = &[
    "canonicalize",
    "fold",
    "cse",
    "dce",
    "diff",
    "egraph",
    "fuse",
    "partition",
    "replicas",
    "steps",
    "plan",
    "products",
];

#[test]
fn stages_look_as_they_should() {
    let mut wrong = vec![];
    let cases = cases(DIRS);
    assert!(cases.len() >= 8);
    for path in cases {
        let graph = load(&path);
        let source = std::fs::read_to_string(&path).expect("a case");
        let first = source.lines().next().unwrap_or("").trim_start_matches("//!").trim();
        let shown = match first.split_once(';') {
            Some(("pass", name)) => {
                let out = run_passes(&graph, &[name.trim()])
                    .unwrap_or_else(|d| panic!("{}: {d:?}", path.display()));
                text::print(&out)
            }
            None if first == "replicas" => {
                let named = |p: &&Pass| ["differentiate", "replicas"].contains(&p.name);
                let passes: Vec<&Pass> = PASSES.iter().filter(named).collect();
                let options = PassOptions { replicas: true, ..PassOptions::default() };
                let out = run_each(graph.clone(), &passes, &options, &mut |_, _| {})
                    .unwrap_or_else(|d| panic!("{}: {d:?}", path.display()));
                text::print(&out)
            }
            None if first == "partition" => {
                let passes = ["canonicalize", "differentiate", "replicas", "expand", "simplify"];
                let graph = run_passes(&graph, &passes).expect("passes");
                let named = |p: &&Pass| ["dce", "place", "partition"].contains(&p.name);
                let passes: Vec<&Pass> = PASSES.iter().filter(named).collect();
                let cluster = Some(tfc_passes::cluster::Cluster::of("a", 3));
                let options = PassOptions { cluster, ..PassOptions::default() };
                let out = run_each(graph, &passes, &options, &mut |_, _| {})
                    .unwrap_or_else(|d| panic!("{}: {d:?}", path.display()));
                let shown = text::print(&out);
                let (back, diags, _) = text::load_str("printed", &shown);
                let back = back.unwrap_or_else(|| panic!("{diags:?}\n{shown}"));
                text::same(&out, &back).unwrap_or_else(|e| panic!("{e}\n{shown}"));
                shown
            }
            Some(("explain", mode)) => explained(&path, &source, mode.trim()),
            None if first == "fused" || first == "steps" => {
                let graph = tfc_passes::optimize(&graph, &PassOptions::default())
                    .unwrap_or_else(|d| panic!("{}: {d:?}", path.display()));
                match first {
                    "fused" => tfc_passes::fused_text(&graph),
                    _ => tfc_passes::steps_text(&graph),
                }
            }
            _ => {
                let program = compile(&graph, &PassOptions::default())
                    .unwrap_or_else(|d| panic!("{}: {d:?}", path.display()));
                match first {
                    "plan" => program.plan_text(),
                    _ => program.kernels_text(),
                }
            }
        };
        let expected = path.with_extension("txt");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&expected, &shown).expect("writing");
        } else if std::fs::read_to_string(&expected).ok().as_deref() != Some(&shown) {
            wrong.push(format!("{}:\n{shown}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What ARCHITECTURE.md shows of its training step is what happens.
#[test]
fn the_walk_through_the_stages_is_true() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let block = |kind: &str| {
        let (_, rest) = page.split_once(&format!("```{kind}\n")).expect("a block");
        rest.split_once("```").expect("its end").0.to_string()
    };
    let (graph, diags, _) = text::load_str("step.graph", &block("graph"));
    assert!(diags.is_empty(), "{diags:?}");
    let graph = graph.expect("a graph");
    let options = PassOptions::default();
    let program = compile(&graph, &options).expect("a program");
    let fused = tfc_passes::fused_text(&tfc_passes::optimize(&graph, &options).expect("a graph"));
    let stages =
        [("fused", fused), ("kernels", program.kernels_text()), ("plan", program.plan_text())];
    for (kind, shown) in stages {
        assert!(shown.contains(&block(kind)), "the page shows other {kind} than these:\n{shown}");
    }
}

/// The graph after the e-graph, and where its nodes came from.
fn explained(path: &Path, source: &str, mode: &str) -> String {
    let name = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let (graph, _, sources) = text::load_str(&name, source);
    let mode = match mode {
        "fast" => FloatMode::Fast,
        "strict" => FloatMode::Strict,
        _ => FloatMode::Rounding,
    };
    let egraph = egraph::Rewriting { mode, explain: true, ..egraph::Rewriting::default() };
    let options = PassOptions { egraph, ..PassOptions::default() };
    let until = PASSES.iter().position(|p| p.name == "egraph").expect("the pass");
    let passes: Vec<&Pass> = PASSES[..=until].iter().collect();
    let mut shown = String::new();
    let out = run_each(graph.expect("a graph"), &passes, &options, &mut |ran, _| {
        if let Details::Egraph(report) = &ran.details {
            shown = egraph::explain::text(&report.explanations, &sources);
        }
    });
    let out = run_passes(&out.expect("passes"), &["dce"]).expect("passes");
    format!("{}\n{shown}", text::print(&out))
}

/// Passes say truly whether they changed anything, and leave graphs well-formed.
#[test]
fn passes_tell_the_truth() {
    let mut all = cases(DIRS);
    all.extend(cases(&["ops", "devices"]));
    all.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/mlp.graph"));
    let passes: Vec<&Pass> = PASSES.iter().collect();
    let mut changes = 0;
    for path in all {
        let graph = load(&path);
        let mut before = text::print(&graph);
        let done = run_each(graph, &passes, &PassOptions::default(), &mut |ran, after| {
            let found = verify::verify(after, Stage::Source);
            assert!(found.is_empty(), "{} after {}: {found:?}", path.display(), ran.name);
            let now = text::print(after);
            assert_eq!(ran.changed, now != before, "{} in {}", ran.name, path.display());
            changes += ran.changed as usize;
            before = now;
        });
        let done = done.unwrap_or_else(|d| panic!("{}: {d:?}", path.display()));
        let found = verify::verify(&done, Stage::Core);
        assert!(found.is_empty(), "{} at the end: {found:?}", path.display());
    }
    assert!(changes > 20);
}

/// Any pass can run alone, on a graph as it was read, and again on what it made;
/// it says truly whether that changed anything. What is left can be run by all
/// passes and means what it meant.
#[test]
fn every_pass_runs_alone_and_tells_the_truth() {
    let mut all = cases(DIRS);
    all.extend(cases(&["ops", "devices"]));
    all.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/mlp.graph"));
    let mut changes = std::collections::BTreeMap::new();
    for path in all {
        let graph = load(&path);
        for pass in PASSES {
            let mut before = text::print(&graph);
            let mut graph = graph.clone();
            for _ in 0..2 {
                graph = run_each(graph, &[pass], &PassOptions::default(), &mut |ran, after| {
                    let now = text::print(after);
                    assert_eq!(ran.changed, now != before, "{} in {}", ran.name, path.display());
                    *changes.entry(ran.name).or_insert(0) += ran.changed as usize;
                    before = now;
                })
                .unwrap_or_else(|d| panic!("{} in {}: {d:?}", pass.name, path.display()));
                let found = verify::verify(&graph, Stage::Source);
                assert!(found.is_empty(), "{} after {}: {found:?}", path.display(), pass.name);
            }
        }
    }
    // Nearly all find something to do in one graph or another, even alone; `numerics` and
    // `recompute` only when they are asked to, `place` and `partition` only for a cluster.
    let asked = ["numerics", "recompute", "place", "partition"];
    let idle = |p: &&str| changes[p] == 0 && !asked.contains(p);
    let idle: Vec<&str> = PASSES.iter().map(|p| p.name).filter(idle).collect();
    assert!(idle.len() <= 2, "{idle:?}");
}

/// Ten times the ops cost at most about twelve times the time.
#[test]
fn compile_time_is_linear() {
    let graph = |n: usize| {
        let mut body = String::from("  v0 = x\n");
        for i in 0..n / 4 {
            body.push_str(&format!(
                "  a{i} = v{i} * 1.5 + x\n  b{i} = tanh(a{i})\n  v{} = b{i} + sum(a{i}, axes: [1], keep: true)\n",
                i + 1
            ));
        }
        let text = format!(
            "graph g\ndim B\nentry f(x: f32[B, 8]) -> (y: f32[B, 8]) {{\n{body}  return v{}\n}}\n",
            n / 4
        );
        let (graph, diags, _) = text::load_str("g.graph", &text);
        graph.unwrap_or_else(|| panic!("{diags:?}"))
    };
    let time = |g: &Graph, times: usize| {
        let start = cpu_ticks();
        for _ in 0..times {
            let p = compile(g, &PassOptions::default()).expect("compiles");
            assert!(!p.kernels.is_empty());
        }
        (cpu_ticks() - start) as f64 / times as f64
    };
    let (small, large) = (graph(400), graph(4000));
    let (a, b) = (time(&small, 8), time(&large, 1));
    assert!(b / a < 25.0, "400 ops: {a} ticks, 4000 ops: {b} ticks");
}

/// What this thread has used of a CPU, in ticks of the system's clock: other programs
/// make no difference to it.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name")..].split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    ticks(12) + ticks(13)
}

/// A step counter, a flag, a table: whatever a variable is initialised with, it
/// is read when the program runs.
#[test]
fn variables_are_never_constants() {
    let source = "graph g\n\
        var step: i32[] = 0\n\
        var rate: f32[] = 0.5\n\
        var on: bool[] = true\n\
        entry tick() -> (decay: f32[], now: i32[], kept: f32[2]) {\n\
          step += 1\n\
          scaled = rate ** cast(step, to: f32)\n\
          kept = select(on, f32[2](1, 2), f32[2](3, 4))\n\
          rate *= 0.9\n\
          return scaled, step, kept\n\
        }\n\
        entry off() { assign(on, false) }\n";
    let (graph, diags, _) = text::load_str("g.graph", source);
    let graph = graph.unwrap_or_else(|| panic!("{diags:?}"));
    for mode in [FloatMode::Strict, FloatMode::Rounding, FloatMode::Fast] {
        let egraph = egraph::Rewriting { mode, ..egraph::Rewriting::default() };
        let options = PassOptions { egraph, ..PassOptions::default() };
        let passes: Vec<&Pass> = PASSES.iter().collect();
        let out = run_each(graph.clone(), &passes, &options, &mut |_, _| {}).expect("passes");
        let mut reads = 0;
        out.entries[0].walk(&mut |_, n| reads += (n.op == tfc_ir::Op::Read) as usize);
        assert_eq!(reads, 3, "{}", text::print(&out));
        let mut state = interp::State::new(&out).expect("initialised");
        let mut tick = || interp::run(&out, "tick", &[], &mut state).expect("runs");
        let (first, second) = (tick(), tick());
        assert_eq!((first[0].to_f64(), first[1].to_i64()), (vec![0.5], vec![1]));
        assert_eq!(second[1].to_i64(), [2]);
        assert!((second[0].to_f64()[0] - 0.45f64.powi(2)).abs() < 1e-6);
        assert_eq!(second[2].to_f64(), [1.0, 2.0]);
        interp::run(&out, "off", &[], &mut state).expect("runs");
        let third = interp::run(&out, "tick", &[], &mut state).expect("runs");
        assert_eq!(third[2].to_f64(), [3.0, 4.0]);
    }
}
