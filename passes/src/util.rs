//! What passes share.

use crate::pipeline::Passed;
use tfc_ir::build::{Rewriter, Visit};
use tfc_ir::diag::Diag;
use tfc_ir::op::InferError;
use tfc_ir::{Func, Graph};

/// Why a pass stopped: the user's graph cannot be compiled, or the pass built
/// something ill-typed (a bug).
pub(crate) struct Stop(pub Vec<Diag>);

impl From<InferError> for Stop {
    fn from(err: InferError) -> Stop {
        let labels: Vec<String> = err.labels.into_iter().map(|(_, text)| text).collect();
        let mut diag =
            Diag::error("E0998", format!("a pass built an ill-typed graph: {}", err.message));
        for text in labels {
            diag = diag.note(text);
        }
        Stop(vec![diag.note("this is a bug in tfc")])
    }
}

impl From<Diag> for Stop {
    fn from(diag: Diag) -> Stop {
        Stop(vec![diag])
    }
}

/// Applies a rewrite to the initialiser and every entry.
pub(crate) fn each_func(
    graph: Graph,
    mut rewrite: impl FnMut(&Graph, &Func) -> Result<(Func, bool), Stop>,
) -> Result<Passed, Vec<Diag>> {
    let mut changed = false;
    let mut diags = vec![];
    let mut run = |func: &Func| match rewrite(&graph, func) {
        Ok((new, c)) => {
            changed |= c;
            new
        }
        Err(Stop(list)) => {
            diags.extend(list);
            func.clone()
        }
    };
    let init = run(&graph.init);
    let entries = graph.entries.iter().map(&mut run).collect();
    if diags.is_empty() {
        Ok(Passed::new(Graph { init, entries, ..graph }, changed))
    } else {
        Err(diags)
    }
}

/// One visit of every node.
pub(crate) fn rewrite(
    graph: &Graph,
    func: &Func,
    visit: &mut Visit<'_, Stop>,
) -> Result<Func, Stop> {
    Rewriter::rewrite(func, &graph.vars, visit)
}
