//! The e-graph pass: gradient terms are written out and the program is
//! rewritten, forward and backward together.
//!
//! Code map
//! - [`lang`]: e-nodes; [`analysis`]: types and known values of classes;
//!   [`range`]: what is proved of their elements;
//! - [`rules`]: the rule table made from the op records, and matching;
//! - [`saturate`]: applying rules, with limits that count;
//! - [`extract`]: choosing the cheapest program, with fusion in mind
//!   ([`crate::cost_model`]);
//! - [`region`]: between graphs and e-graphs; [`explore`]: reassociation, on
//!   small pieces;
//! - [`explain`]: which rules made which node.
//!
//! Invariants
//! - Only pure nodes with one result enter. Effects, variables, control flow
//!   and device boundaries stay outside, in order.
//! - The program that comes out is never more expensive than the one that went in,
//!   under the cost model, and is the same on every machine.
//! - No `vjp` node comes out.

pub mod analysis;
pub mod explain;
pub mod explore;
pub mod extract;
pub mod lang;
pub mod range;
pub mod region;
pub mod rules;
pub mod saturate;

use explain::Explanation;
use extract::Totals;
pub use rules::FloatMode;
use saturate::Stats;
use std::collections::BTreeSet;
use tfc_ir::{Func, Graph};

/// How to rewrite.
#[derive(Clone, Debug, Default)]
pub struct Rewriting {
    pub mode: FloatMode,
    /// Say where every node came from.
    pub explain: bool,
    /// Only write gradient terms out; rewrite nothing.
    pub expand_only: bool,
    pub model: crate::cost_model::CostModel,
    /// Rules not to use, by name.
    pub disabled: BTreeSet<String>,
}

/// What the pass did, for `--timings` and `--explain`.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Search over whole regions.
    pub stats: Stats,
    /// Search over pieces, with reassociation.
    pub explored: Stats,
    pub pieces: usize,
    /// Pieces answered by an earlier, equal one.
    pub repeated: usize,
    pub seed: usize,
    pub before: Totals,
    pub after: Totals,
    pub explanations: Vec<Explanation>,
    /// Unsound rules met; the regions they appeared in were left alone.
    pub conflicts: Vec<String>,
    pub changed: bool,
}

/// Rewrites every function of a graph.
pub fn optimize(graph: &Graph, options: &Rewriting) -> (Graph, Report) {
    let mut report = Report::default();
    let mut out = graph.clone();
    out.init = optimize_func(graph, &graph.init, options, &mut report);
    out.entries =
        graph.entries.iter().map(|f| optimize_func(graph, f, options, &mut report)).collect();
    (out, report)
}

fn optimize_func(graph: &Graph, func: &Func, options: &Rewriting, report: &mut Report) -> Func {
    let (mut out, mut traces) = match region::rewrite(graph, func, options, report) {
        Some(rewritten) => rewritten,
        None => (func.clone(), region::untouched(func)),
    };
    // Reassociation rounds differently in ways nobody can follow.
    if options.mode == FloatMode::Fast
        && !options.expand_only
        && let Some((again, more)) = explore::rewrite(graph, &out, options, report)
    {
        traces = explain::join(&traces, more);
        out = again;
    }
    if options.explain {
        explain::function(func, &out, &traces, &mut report.explanations);
    }
    out
}

impl Report {
    /// Adds up totals of another region.
    pub(crate) fn add_totals(&mut self, before: Totals, after: Totals) {
        for (sum, t) in [(&mut self.before, before), (&mut self.after, after)] {
            sum.cost += t.cost;
            sum.kernels += t.kernels;
            sum.ops += t.ops;
        }
    }

    /// Lines for `--timings`: sizes, why the search stopped, and what the
    /// dearest rules cost.
    pub fn timings(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        for (what, stats) in [("regions", &self.stats), ("pieces", &self.explored)] {
            if stats.rounds == 0 {
                continue;
            }
            let stops: Vec<String> =
                stats.stops.iter().map(|(s, n)| format!("{} x{n}", s.describe())).collect();
            let _ = writeln!(
                out,
                "{what}: {} e-nodes in {} classes, {} rounds, {:.1} ms; stopped: {}",
                stats.nodes,
                stats.classes,
                stats.rounds,
                stats.time.as_secs_f64() * 1e3,
                stops.join(", ")
            );
            let mut rules: Vec<_> = stats.rules.iter().filter(|(_, s)| s.found > 0).collect();
            rules.sort_by_key(|(id, s)| (std::cmp::Reverse(s.time), **id));
            for (id, s) in rules.iter().take(12) {
                let _ = writeln!(
                    out,
                    "  {:<34} {:>7} found {:>7} new {:>8.2} ms",
                    rules::name(**id),
                    s.found,
                    s.applied,
                    s.time.as_secs_f64() * 1e3
                );
            }
        }
        let _ = writeln!(
            out,
            "modelled: {} -> {} ops, {} -> {} kernels, {:.1} -> {:.1} us",
            self.before.ops,
            self.after.ops,
            self.before.kernels,
            self.after.kernels,
            self.before.cost / 1e3,
            self.after.cost / 1e3
        );
        out
    }
}
