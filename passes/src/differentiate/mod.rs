//! Writes `grad` nodes out.
//!
//! Each `grad` is replaced where it stands by a walk backwards from `y`: every
//! node that lies between `wrt` and `y` asks its op for the contribution to
//! each operand, and contributions to one value are summed. A `grad` of
//! something that used `grad` sees the inner one already written out, so
//! derivatives of any order need nothing more.
//!
//! Code map: [`walk`] finds what lies between; [`reverse`] goes back, through
//! `if` and `while` too; [`save`] decides what the forward pass keeps for it;
//! [`scattered`] adds up what a loop contributes; [`errors`] says what cannot be.
//!
//! Invariants
//! - Only nodes that depend on some `wrt` are differentiated.
//! - Reads of one variable with no write between them are one value here.
//! - A gradient that is zero by an op's own word (`Grad::Zero`) is zero; one
//!   that is not defined is an error showing the path.

mod errors;
mod reverse;
mod save;
mod scattered;
mod walk;

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use cranelift_entity::SecondaryMap;
use reverse::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::Rewriter;
use tfc_ir::diag::Diag;
use tfc_ir::{Func, Graph, NodeId, Op, ValueId, VarId};
use walk::Walk;

pub fn differentiate(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    each_func(graph, |graph, func| {
        let has = |func: &Func, op: Op| {
            let mut found = false;
            func.walk(&mut |_, node| found |= node.op == op);
            found
        };
        let mut changed = false;
        let mut func = func.clone();
        if has(&func, Op::Grad) {
            func = run(graph, &func, options)?;
            changed = true;
        }
        // A function's own gradient has had its say.
        while has(&func, Op::CustomGrad) {
            func = forward_only(graph, &func)?;
            changed = true;
        }
        Ok((func, changed))
    })
}

/// Puts the forward part of functions with their own gradient in their place.
fn forward_only(graph: &Graph, func: &Func) -> Result<Func, Stop> {
    rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        if node.op != Op::CustomGrad {
            return Ok(None);
        }
        let args: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
        Ok(Some(r.splice(node.regions[0], &args, &mut |_, _| Ok::<_, Stop>(None))?))
    })
}

fn run(graph: &Graph, func: &Func, options: &PassOptions) -> Result<Func, Stop> {
    let nested = differentiated_again(func);
    let mut record = Record { loop_memory: options.loop_memory, ..Record::default() };
    rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        if node.op != Op::Grad {
            return Ok(None);
        }
        let terms = options.gradient_terms && !nested.contains(&id);
        Ok(Some(gradients(r, id, terms, &mut record)?))
    })
}

/// What the gradients of one function share.
#[derive(Default)]
pub(crate) struct Record {
    /// Names of stacks in use.
    names: BTreeSet<String>,
    /// For loops that count their iterations, the number of them.
    trips: BTreeMap<NodeId, ValueId>,
    /// Loops that keep every iteration: those that compute iterations again.
    plain: BTreeSet<NodeId>,
    /// Bytes the iterations of a loop may take that are kept at a time.
    loop_memory: Option<u64>,
}

/// `grad` nodes that another `grad` differentiates: their terms must be
/// written out at once.
fn differentiated_again(func: &Func) -> BTreeSet<NodeId> {
    let mut tainted: SecondaryMap<ValueId, Vec<NodeId>> = SecondaryMap::new();
    let mut out = BTreeSet::new();
    let mut all = vec![];
    let mut structured = false;
    func.walk(&mut |id, node| {
        let mut from: Vec<NodeId> =
            node.operands.iter().flat_map(|v| tainted[*v].iter().copied()).collect();
        from.sort();
        from.dedup();
        if node.op == Op::Grad {
            out.extend(from.iter().copied());
            from = vec![id];
            all.push(id);
        }
        structured |= matches!(node.op, Op::If | Op::While);
        for &v in &node.results {
            tainted[v] = from.clone();
        }
    });
    // Through blocks the flow is not followed: all but the last may be.
    if structured {
        all.pop();
        out.extend(all);
    }
    out
}

fn gradients(
    r: &mut Rewriter<'_>,
    id: NodeId,
    terms: bool,
    record: &mut Record,
) -> Result<Vec<ValueId>, Stop> {
    let node = &r.old.nodes[id];
    let seeded = node.attrs.bool("seeded");
    let y = r.get(node.operands[0]);
    let first = 1 + seeded as usize;
    let wrt: Vec<ValueId> = node.operands[first..].iter().map(|v| r.get(*v)).collect();
    let around = loops_around(r.old, id);
    let walk = Walk::new(r, y, &wrt, &around);
    for (i, w) in wrt.iter().enumerate() {
        if !walk.reaches(&r.new, y, walk.canonical(*w)) {
            return Err(errors::independent(r, node, y, *w, node.operands[first + i]));
        }
    }
    let mut written: BTreeSet<VarId> = around.into_iter().flatten().collect();
    for region in r.open_regions() {
        for &id in &r.new.regions[region].nodes {
            written.extend(walk::writes(&r.new, id));
        }
    }
    let mut s = Reverse {
        r,
        record,
        walk,
        y,
        grad: node,
        terms,
        parts: BTreeMap::new(),
        totals: BTreeMap::new(),
        stacks: BTreeMap::new(),
        written,
    };
    let seed = if seeded { s.r.get(node.operands[1]) } else { s.ones(&node.origin(), y)? };
    s.parts.insert(s.walk.canonical(y), vec![seed]);
    for (at, id) in s.walk.nodes.clone().into_iter().rev() {
        s.node(at, id)?;
    }
    wrt.into_iter().map(|w| result(&mut s, w)).collect()
}

/// The gradient by one of `wrt`, after the walk.
fn result(s: &mut Reverse<'_, '_>, w: ValueId) -> Result<ValueId, Stop> {
    let (target, at) = (s.walk.canonical(w), &s.grad.origin());
    if let Some(ct) = s.totals.get(&target) {
        return Ok(*ct);
    }
    if let Some(list) = s.parts.remove(&target) {
        let total = s.sum(at, list)?;
        s.totals.insert(target, total);
        return Ok(total);
    }
    let y = s.walk.canonical(s.y);
    if target != y && s.walk.varies.contains(&y) && s.walk.path(&s.r.new, s.y, target).is_some() {
        return Err(errors::no_way(s, target));
    }
    let ty = s.r.new.ty(w).clone();
    s.zeros(at, &ty)
}

/// For each node around one, outermost first, the variables it writes again and
/// again: none unless it is a loop.
fn loops_around(func: &Func, id: NodeId) -> Vec<BTreeSet<VarId>> {
    fn find(func: &Func, at: NodeId, id: NodeId, path: &mut Vec<NodeId>) -> bool {
        if at == id {
            return true;
        }
        path.push(at);
        let inner = func.nodes[at].regions.iter().flat_map(|r| &func.regions[*r].nodes);
        let found = inner.into_iter().any(|n| find(func, *n, id, path));
        if !found {
            path.pop();
        }
        found
    }
    let mut path = vec![];
    func.regions[func.body].nodes.iter().any(|n| find(func, *n, id, &mut path));
    let writes = |n: NodeId| match func.nodes[n].op {
        Op::While => walk::writes(func, n),
        _ => BTreeSet::new(),
    };
    path.into_iter().map(writes).collect()
}
