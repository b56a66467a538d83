//! What passes share.

use crate::pipeline::Passed;
use tfc_ir::build::{Rewriter, Visit};
use tfc_ir::diag::Diag;
use tfc_ir::lower::Lower;
use tfc_ir::op::{InferError, Moves};
use tfc_ir::{Func, Graph, Node, ValueId};

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

/// Whether a node is a literal, or one repeated: part of the code of whoever uses it.
pub(crate) fn is_literal(func: &Func, node: &Node) -> bool {
    let literal = |n: &Node| matches!(n.op.def().lower, Lower::Constant);
    let repeats = node.op.def().facts.moves == Moves::Repeated;
    literal(node) || repeats && func.def(node.operands[0]).is_some_and(|d| literal(&func.nodes[d]))
}

/// Whether a value is all zero bits by how it is made.
pub(crate) fn is_zero(func: &Func, value: ValueId) -> bool {
    let Some(node) = func.def(value).map(|d| &func.nodes[d]) else { return false };
    if let Lower::Constant = node.op.def().lower {
        return node.attrs.tensor("value").is_some_and(|t| t.bytes().iter().all(|b| *b == 0));
    }
    node.op.def().facts.moves.is_move() && is_zero(func, node.operands[0])
}
