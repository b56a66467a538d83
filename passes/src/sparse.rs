//! Turns updates of a whole table that change a few rows into updates of those
//! rows.
//!
//! The gradient of a table that is only gathered from is zero but for the rows
//! that were used: `scatter_add(zeros, ids, rows)`. Then
//!
//! ```text
//! table -= lr * scatter_add(zeros, ids, rows)
//! ```
//!
//! is `scatter_assign_add(table, ids, -(lr * rows))`, which costs by the rows, not
//! by the table.
//!
//! Where no index repeats, every bit is the same. Repeated rows are added to the
//! table one by one instead of to each other first, which may round differently.

use crate::egraph::FloatMode;
use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, is_zero, rewrite};
use tfc_ir::build::{NodeSpec, Rewriter};
use tfc_ir::diag::Diag;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Moves;
use tfc_ir::ops::bounds;
use tfc_ir::{Attr, Attrs, Func, Graph, NodeId, Op, ValueId};

pub fn sparse(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    if options.egraph.mode == FloatMode::Strict {
        return Ok(Passed::new(graph, false));
    }
    each_func(graph, run)
}

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut changed = false;
    let new = rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        let Lower::Step(StepKind::Update(op)) = node.op.def().lower else { return Ok(None) };
        let mut factors = vec![];
        if op == Op::Sub {
            factors.push(Factor::Minus);
        }
        let mut rows = vec![];
        if !collect(r, r.get(node.operands[0]), &factors, &mut rows) {
            return Ok(None);
        }
        update(r, id, &rows)?;
        changed = true;
        Ok(Some(vec![]))
    })?;
    Ok((new, changed))
}

/// Rows of a sum of scattered rows.
struct Rows {
    ids: ValueId,
    updates: ValueId,
    /// The innermost last.
    factors: Vec<Factor>,
}

#[derive(Clone, Copy)]
enum Factor {
    Minus,
    Times(ValueId),
    Over(ValueId),
}

/// Takes a value apart into scattered rows; false when it is anything else too.
fn collect(r: &Rewriter<'_>, value: ValueId, factors: &[Factor], out: &mut Vec<Rows>) -> bool {
    let Some(node) = r.def(value) else { return false };
    let with = |factor: Factor| [factors, &[factor]].concat();
    match (node.op, node.operands.as_slice()) {
        // A variable's rows are updated at indices that were checked.
        (Op::ScatterAdd, &[base, ids, updates]) if !bounds::drops(&node.attrs) => {
            if !is_zero(&r.new, base) && !collect(r, base, factors, out) {
                return false;
            }
            out.push(Rows { ids, updates, factors: factors.to_vec() });
            true
        }
        (Op::Neg, &[x]) => collect(r, x, &with(Factor::Minus), out),
        (Op::Mul, &[a, b]) => match (scalar(r, a), scalar(r, b)) {
            (Some(s), _) => collect(r, b, &with(Factor::Times(s)), out),
            (None, Some(s)) => collect(r, a, &with(Factor::Times(s)), out),
            _ => false,
        },
        (Op::Div, &[a, b]) => {
            scalar(r, b).is_some_and(|s| collect(r, a, &with(Factor::Over(s)), out))
        }
        (Op::Add, &[a, b]) => collect(r, a, factors, out) && collect(r, b, factors, out),
        (Op::Sub, &[a, b]) => {
            collect(r, a, factors, out) && collect(r, b, &with(Factor::Minus), out)
        }
        _ => false,
    }
}

/// The number a value repeats.
fn scalar(r: &Rewriter<'_>, value: ValueId) -> Option<ValueId> {
    let node = r.def(value)?;
    let from = *node.operands.first()?;
    (node.op.def().facts.moves == Moves::Repeated && r.new.ty(from).rank() == 0).then_some(from)
}

fn update(r: &mut Rewriter<'_>, id: NodeId, rows: &[Rows]) -> Result<(), Stop> {
    let node = &r.old.nodes[id];
    let after: Vec<NodeId> = node.after.iter().filter_map(|n| r.node(*n)).collect();
    for Rows { ids, updates, factors } in rows {
        let mut value = *updates;
        for factor in factors.iter().rev() {
            value = scaled(r, id, value, *factor)?;
        }
        let spec = NodeSpec {
            var: node.var,
            device: node.device.clone(),
            after: after.clone(),
            ..NodeSpec::new(Op::ScatterAssignAdd, &[*ids, value], Attrs::none(), node.span)
        };
        let new = r.builder(&node.origin()).node(spec)?;
        r.replace_node(id, new);
    }
    Ok(())
}

fn scaled(
    r: &mut Rewriter<'_>,
    id: NodeId,
    value: ValueId,
    factor: Factor,
) -> Result<ValueId, Stop> {
    let shape = r.new.ty(value).shape.clone();
    let mut builder = r.builder(&r.old.nodes[id].origin());
    let (op, by) = match factor {
        Factor::Minus => return Ok(builder.emit(Op::Neg, &[value], Attrs::none())?),
        Factor::Times(by) => (Op::Mul, by),
        Factor::Over(by) => (Op::Div, by),
    };
    let attrs = Attrs::none().with("shape", Attr::Shape(shape)).with("axes", Attr::Ints(vec![]));
    let by = builder.emit(Op::Broadcast, &[by], attrs)?;
    Ok(builder.emit(op, &[value, by], Attrs::none())?)
}

#[cfg(test)]
mod tests {
    use crate::pipeline::{self, PASSES};
    use std::collections::BTreeMap;

    /// The graph after all passes.
    fn optimized(body: &str) -> tfc_ir::Graph {
        let text = format!(
            "graph g\nuse optim\ndim B\nvar t: f32[100, 4] = ones\nvar u: f32[100, 4] = ones\n\
             entry f(i: i32[B], j: i32[B], x: f32[B, 4]) {{\n{body}\n}}\n"
        );
        let (graph, diags, _) = tfc_ir::text::load_str("g.graph", &text);
        let graph = graph.unwrap_or_else(|| panic!("{diags:?}"));
        let passes: Vec<_> = PASSES.iter().collect();
        let options = Default::default();
        pipeline::run_each(graph, &passes, &options, &mut |_, _| {}).unwrap()
    }

    /// How often each op is left after all passes.
    fn ops(body: &str) -> BTreeMap<&'static str, usize> {
        let mut out = BTreeMap::new();
        optimized(body).entries[0]
            .walk(&mut |_, node| *out.entry(node.op.name()).or_default() += 1);
        out
    }

    #[test]
    fn sparse_update() {
        let cases = [
            "minimize sum((gather(t, i) - x) ** 2) over [t] with optim.sgd(lr: 0.1)",
            "t -= 0.1 * grad(sum(gather(t, i) * x), wrt: t)",
            "t += -grad(sum(gather(t, i) * x), wrt: t) / 3.0",
            "t -= mean(x) * grad(sum(gather(t, i) * x), wrt: t)",
            "t += scatter_add(zeros_like(t), i, x)",
        ];
        for body in cases {
            let ops = ops(body);
            assert_eq!(ops.get("scatter_assign_add"), Some(&1), "{body}: {ops:?}");
            assert!(!ops.contains_key("assign") && !ops.contains_key("scatter_add"), "{body}");
        }
        // Rows of two gathers are two updates.
        let two = ops("t -= 0.1 * grad(sum(gather(t, i) * gather(t, j)), wrt: t)");
        assert_eq!(two.get("scatter_assign_add"), Some(&2), "{two:?}");
        assert!(!two.contains_key("scatter_add"), "{two:?}");
    }

    #[test]
    fn other_updates_stay() {
        let cases = [
            // Every row changes.
            "t -= 0.1 * (grad(sum(gather(t, i) * x), wrt: t) + 0.01 * t)",
            "t -= 0.1 * grad(sum(gather(t, i) * x) + sum(t * t), wrt: t)",
            // Not one number for all rows.
            "t -= u * grad(sum(gather(t, i) * x), wrt: t)",
            "t += scatter_add(u, i, x)",
        ];
        for body in cases {
            let ops = ops(body);
            assert_eq!(ops.get("scatter_assign_add"), None, "{body}: {ops:?}");
            assert_eq!(ops.get("assign"), Some(&1), "{body}: {ops:?}");
        }
    }

    /// What is computed of the old rows comes before the rows change.
    #[test]
    fn tables_are_not_copied() {
        let loss = "loss = mean((gather(t, i) - x) ** 2)\n";
        let cases = [
            format!("{loss}minimize loss over [t] with optim.sgd(lr: 0.1)\nprint(loss)"),
            format!("{loss}scatter_assign_add(t, i, gather(t, j))\nprint(loss)"),
            "scatter_assign(t, i, x)\nprint(sum(gather(t, j)))".to_string(),
        ];
        for body in cases {
            let program = crate::lower(&optimized(&body), &Default::default()).unwrap();
            let entry = program.plan.entries.iter().find(|e| e.name == "f").unwrap();
            let copied = entry.steps.iter().any(|s| matches!(s, tfc_abi::plan::Step::Copy { .. }));
            assert!(!copied, "{body}: {:?}", entry.steps);
        }
    }
}
