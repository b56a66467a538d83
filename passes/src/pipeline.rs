//! The order of passes, in one list.
//!
//! A pass is a free function from graph to graph. It says whether it changed
//! anything, and tests hold it to that.

use crate::canonicalize::canonicalize;
use crate::cse::cse;
use crate::dce::dce;
use crate::differentiate::differentiate;
use crate::expand::expand;
use crate::fold::fold;
use std::time::{Duration, Instant};
use tfc_ir::Graph;
use tfc_ir::diag::{Diag, SourceMap};
use tfc_ir::program::Program;

/// What a pass did.
pub struct Passed {
    pub graph: Graph,
    pub changed: bool,
}

pub struct Pass {
    pub name: &'static str,
    pub description: &'static str,
    pub run: fn(Graph, &Options) -> Result<Passed, Vec<Diag>>,
}

/// How to compile.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Leave gradients as `vjp` terms for the e-graph to write out.
    pub gradient_terms: bool,
    /// Bytes the gradient of a loop may keep of its rounds at a time; none for
    /// all rounds. Above that, rounds are computed again on the way back.
    pub loop_memory: Option<u64>,
    /// How the e-graph rewrites; none to leave the graph as it is.
    pub egraph: Option<crate::egraph::Options>,
    /// For places in run-time messages.
    pub sources: SourceMap,
}

/// Every pass, in the order they run, each once.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "canonicalize",
        description: "drop ops that do nothing, merge chains of movement",
        run: canonicalize,
    },
    Pass { name: "fold", description: "compute what depends on literals alone", run: fold },
    Pass { name: "cse", description: "compute equal things once", run: cse },
    Pass { name: "differentiate", description: "write gradients out", run: differentiate },
    Pass {
        name: "egraph",
        description: "rewrite for cost, forward and backward together",
        run: egraph,
    },
    Pass { name: "expand", description: "write composite ops out in simpler ones", run: expand },
    Pass {
        name: "simplify",
        description: "canonicalize, fold and merge what gradients and expansions brought",
        run: simplify,
    },
    Pass { name: "dce", description: "drop what nothing needs", run: dce },
];

/// Gradient terms are written out even when nothing is rewritten.
fn egraph(graph: Graph, options: &Options) -> Result<Passed, Vec<Diag>> {
    let mut terms = false;
    for func in std::iter::once(&graph.init).chain(&graph.entries) {
        func.walk(&mut |_, node| terms |= node.op == tfc_ir::Op::Vjp);
    }
    let only_terms = || crate::egraph::Options { expand_only: true, ..Default::default() };
    let settings = match &options.egraph {
        Some(settings) => settings.clone(),
        None if terms => only_terms(),
        None => return Ok(Passed { graph, changed: false }),
    };
    let (graph, report) = crate::egraph::optimize(&graph, &settings);
    Ok(Passed { graph, changed: terms || report.changed })
}

fn simplify(graph: Graph, options: &Options) -> Result<Passed, Vec<Diag>> {
    let mut changed = false;
    let mut graph = graph;
    for pass in [canonicalize, fold, cse] {
        let passed = pass(graph, options)?;
        changed |= passed.changed;
        graph = passed.graph;
    }
    Ok(Passed { graph, changed })
}

/// What one pass of a run did and how long it took.
pub struct Ran {
    pub name: &'static str,
    pub changed: bool,
    pub time: Duration,
}

/// Runs passes in the order given; `after` sees the graph after each.
pub fn run_each(
    mut graph: Graph,
    passes: &[&Pass],
    options: &Options,
    after: &mut dyn FnMut(&Ran, &Graph),
) -> Result<Graph, Vec<Diag>> {
    for pass in passes {
        let start = Instant::now();
        let passed = (pass.run)(graph, options)?;
        let ran = Ran { name: pass.name, changed: passed.changed, time: start.elapsed() };
        graph = passed.graph;
        after(&ran, &graph);
    }
    Ok(graph)
}

/// Runs passes by name.
pub fn run_passes(graph: &Graph, names: &[&str]) -> Result<Graph, Vec<Diag>> {
    let mut passes = vec![];
    for name in names {
        match PASSES.iter().find(|p| p.name == *name) {
            Some(p) => passes.push(p),
            None => {
                let known: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
                return Err(vec![
                    Diag::error("E0901", format!("there is no pass `{name}`"))
                        .help(format!("the passes are: {}", known.join(", "))),
                ]);
            }
        }
    }
    run_each(graph.clone(), &passes, &Options::default(), &mut |_, _| {})
}

/// The whole way: all passes, then lowering.
pub fn compile(graph: &Graph, options: &Options) -> Result<Program, Vec<Diag>> {
    let passes: Vec<&Pass> = PASSES.iter().collect();
    let graph = run_each(graph.clone(), &passes, options, &mut |_, _| {})?;
    crate::lower(&graph, &options.sources)
}
