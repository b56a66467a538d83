//! The order of passes, in one list.
//!
//! A pass is a free function from graph to graph. It says whether it changed
//! anything, and tests hold it to that.

use crate::canonicalize::canonicalize;
use crate::checks::checks;
use crate::cse::cse;
use crate::dce::dce;
use crate::devices::devices;
use crate::differentiate::differentiate;
use crate::expand::expand;
use crate::fold::fold;
use crate::mincut::mincut;
use crate::numerics::numerics;
use crate::partition::partition;
use crate::place::place;
use crate::products::products;
use crate::recompute::recompute;
use crate::replicas::replicas;
use crate::sparse::sparse;
use crate::split::split;
use std::time::{Duration, Instant};
use tfc_ir::Graph;
use tfc_ir::diag::{Diag, SourceMap};
use tfc_ir::op::Stage;
use tfc_ir::program::Program;

/// What a pass did.
pub struct Passed {
    pub graph: Graph,
    pub changed: bool,
    pub details: Details,
}

/// What a pass has to say beyond the graph it leaves.
#[derive(Clone, Debug, Default)]
pub enum Details {
    #[default]
    None,
    Egraph(Box<crate::egraph::Report>),
    /// Bytes kept for the backward pass, by entry.
    Saved(Vec<crate::mincut::Saved>),
    /// What was placed where, and why.
    Placed(Vec<crate::place::Reason>),
}

impl Passed {
    pub fn new(graph: Graph, changed: bool) -> Passed {
        Passed { graph, changed, details: Details::None }
    }
}

pub struct Pass {
    pub name: &'static str,
    pub description: &'static str,
    pub run: fn(Graph, &PassOptions) -> Result<Passed, Vec<Diag>>,
}

/// How to compile.
#[derive(Clone, Debug, Default)]
pub struct PassOptions {
    /// How the e-graph rewrites.
    pub egraph: crate::egraph::Rewriting,
    /// Leave gradients as `vjp` terms for the e-graph to write out. [`run_each`]
    /// decides: it is so where the e-graph comes later.
    pub gradient_terms: bool,
    /// Bytes the gradient of a loop may keep of its iterations at a time; none for
    /// all iterations. Above that, iterations are computed again in the backward pass.
    pub loop_memory: Option<u64>,
    /// How many eighths of the forward pass of a training step may be computed a second time
    /// to save memory.
    pub recompute: u8,
    /// Leave out checks of indices: those out of range are clamped or dropped.
    pub unchecked: bool,
    /// Check every result for NaN and infinities.
    pub check_numerics: bool,
    /// Also make the versions of entries that several processes run together.
    pub replicas: bool,
    /// The processes to cut the graph for.
    pub cluster: Option<crate::cluster::Cluster>,
    /// The program is for GPUs too.
    pub gpus: bool,
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
    Pass {
        name: "checks",
        description: "check indices where they are not certain to be in range",
        run: checks,
    },
    Pass { name: "differentiate", description: "write gradients out", run: differentiate },
    Pass {
        name: "replicas",
        description: "what several processes combine, for one of them and for several",
        run: replicas,
    },
    Pass {
        name: "egraph",
        description: "rewrite for cost, forward and backward together",
        run: egraph,
    },
    Pass {
        name: "sparse",
        description: "update the rows that change instead of the table",
        run: sparse,
    },
    Pass { name: "expand", description: "write composite ops out in simpler ones", run: expand },
    Pass {
        name: "numerics",
        description: "check every result for NaN and infinities, if asked to",
        run: numerics,
    },
    Pass {
        name: "simplify",
        description: "canonicalize, fold and merge what gradients and expansions brought",
        run: simplify,
    },
    Pass {
        name: "mincut",
        description: "compute again, after the turn to the backward pass, what is cheaper than kept",
        run: mincut,
    },
    Pass {
        name: "recompute",
        description: "compute the forward pass again, piece by piece, to save memory, if asked to",
        run: recompute,
    },
    Pass {
        name: "products",
        description: "make one product of a sum of small ones",
        run: products,
    },
    Pass {
        name: "split",
        description: "reduce large tensors to a scalar by rows, join many tensors a few at a time",
        run: split,
    },
    Pass { name: "dce", description: "drop what nothing needs", run: dce },
    Pass {
        name: "place",
        description: "say which task of a cluster computes what, if there is a cluster",
        run: place,
    },
    Pass {
        name: "partition",
        description: "cut entries into a part for each task, joined by messages",
        run: partition,
    },
    Pass {
        name: "devices",
        description: "say which device of a process computes what, with copies between them, \
                      if `on` names one",
        run: devices,
    },
];

fn egraph(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let (graph, report) = crate::egraph::optimize(&graph, &options.egraph);
    let changed = report.changed;
    Ok(Passed { graph, changed, details: Details::Egraph(Box::new(report)) })
}

fn simplify(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let mut changed = false;
    let mut graph = graph;
    for pass in [canonicalize, fold, cse] {
        let passed = pass(graph, options)?;
        changed |= passed.changed;
        graph = passed.graph;
    }
    Ok(Passed::new(graph, changed))
}

/// What one pass of a run did and how long it took.
pub struct Ran {
    pub name: &'static str,
    pub changed: bool,
    pub time: Duration,
    pub details: Details,
}

/// Runs passes in the order given; `after` sees the graph after each. Builds
/// with debug assertions verify every graph on the way.
pub fn run_each(
    mut graph: Graph,
    passes: &[&Pass],
    options: &PassOptions,
    after: &mut dyn FnMut(&Ran, &Graph),
) -> Result<Graph, Vec<Diag>> {
    tfc_ir::require::keep(&mut graph);
    run_rest(graph, passes, 0, options, after)
}

/// Runs the passes from the one at `first` on: those before it have run.
pub fn run_rest(
    mut graph: Graph,
    passes: &[&Pass],
    first: usize,
    options: &PassOptions,
    after: &mut dyn FnMut(&Ran, &Graph),
) -> Result<Graph, Vec<Diag>> {
    for (i, pass) in passes.iter().enumerate().skip(first) {
        let start = Instant::now();
        let gradient_terms = passes[i..].iter().any(|p| p.name == "egraph");
        let passed = (pass.run)(graph, &PassOptions { gradient_terms, ..options.clone() })?;
        let Passed { graph: new, changed, details } = passed;
        let ran = Ran { name: pass.name, changed, time: start.elapsed(), details };
        graph = new;
        if cfg!(debug_assertions) {
            // No pass brings back what these have rewritten.
            let ran = |name: &str| passes[..=i].iter().any(|p| p.name == name);
            let core = ran("differentiate") && ran("expand");
            let stage = if core { Stage::Core } else { Stage::Source };
            tfc_ir::verify::assert_valid(&graph, stage, pass.name);
        }
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
    run_each(graph.clone(), &passes, &PassOptions::default(), &mut |_, _| {})
}

/// The whole way: all passes, then lowering.
pub fn compile(graph: &Graph, options: &PassOptions) -> Result<Program, Vec<Diag>> {
    crate::lower(&optimize(graph, options)?, &options.sources)
}

/// The graph after all passes, as it is lowered.
pub fn optimize(graph: &Graph, options: &PassOptions) -> Result<Graph, Vec<Diag>> {
    let passes: Vec<&Pass> = PASSES.iter().collect();
    run_each(graph.clone(), &passes, options, &mut |_, _| {})
}
