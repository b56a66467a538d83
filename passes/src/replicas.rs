//! Combining values over processes: for a program that runs by itself, and for several.
//!
//! Which of the two a program is, is known when it is started. So an entry with an
//! `all_reduce` is there twice from here on. In the entry itself combining is the
//! identity, and gone: a single process pays nothing for it. In the *replica*, which
//! processes run together, neighbouring `all_reduce`s become a few `exchange`s: what is
//! computed first goes first, small tensors travel together, and each stands right where
//! the last of its tensors is computed, so that it can go on beside the rest of the
//! backward pass. For jobs with parameter servers the entry is there in parts, too
//! ([`crate::servers`]).
//!
//! Invariants
//! - No `all_reduce` is left.
//! - An `exchange` is an effect: every process does the same ones in the same order.

use crate::pipeline::{PassOptions, Passed};
use crate::servers;
use crate::util::{Stop, rewrite};
use std::collections::BTreeMap;
use tfc_ir::build::{NodeSpec, Rewriter};
use tfc_ir::diag::Diag;
use tfc_ir::{Attr, Func, Graph, Node, NodeId, Op, RegionId, ValueId};

pub fn replicas(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let mut entries = vec![];
    let mut extra = vec![];
    for func in &graph.entries {
        let mut combines = false;
        func.walk(&mut |_, node| combines |= node.op == Op::AllReduce);
        if !combines {
            entries.push(func.clone());
            continue;
        }
        if options.replicas && !func.runner && !func.replica {
            let copy = Func { replica: true, ..func.clone() };
            extra.push(exchanged(&graph, &copy).map_err(|Stop(diags)| diags)?);
            extra.extend(servers::divide(&graph, func).map_err(|Stop(diags)| diags)?);
        }
        entries.push(
            match func.replica {
                true => exchanged(&graph, func),
                false => alone(&graph, func),
            }
            .map_err(|Stop(diags)| diags)?,
        );
    }
    let changed = entries.len() + extra.len() != graph.entries.len()
        || entries.iter().zip(&graph.entries).any(|(a, b)| a.nodes.len() != b.nodes.len());
    entries.extend(extra);
    let mut dims = graph.dims;
    let elements = servers::elements_dim();
    if entries.iter().any(servers::takes_elements) && !dims.contains(&elements) {
        dims.push(elements);
    }
    Ok(Passed::new(Graph { entries, dims, ..graph }, changed))
}

/// One process: what is combined is what it has.
fn alone(graph: &Graph, func: &Func) -> Result<Func, Stop> {
    rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        Ok((node.op == Op::AllReduce).then(|| vec![r.get(node.operands[0])]))
    })
}

/// An exchange is made once its tensors come to so many bytes.
const BUCKET: i64 = 1 << 20;

/// Several processes: groups of `all_reduce`s become exchanges.
fn exchanged(graph: &Graph, func: &Func) -> Result<Func, Stop> {
    // By the node that they stand before.
    let mut due: BTreeMap<NodeId, Vec<Vec<NodeId>>> = BTreeMap::new();
    for region in func.regions.keys() {
        for group in groups(func, region) {
            for bucket in buckets(func, region, group) {
                due.entry(bucket.before).or_default().push(bucket.members);
            }
        }
    }
    let mut made: BTreeMap<NodeId, ValueId> = BTreeMap::new();
    rewrite(graph, func, &mut |r, id| {
        for members in due.get(&id).into_iter().flatten() {
            let results = exchange(r, members)?;
            made.extend(members.iter().copied().zip(results));
        }
        Ok(made.get(&id).map(|v| vec![*v]))
    })
}

/// Neighbours that are combined in the same way, and do not use each other.
fn groups(func: &Func, region: RegionId) -> Vec<Vec<NodeId>> {
    let mut out: Vec<Vec<NodeId>> = vec![];
    let mut open = false;
    for &id in &func.regions[region].nodes {
        let node = &func.nodes[id];
        if node.op != Op::AllReduce {
            open = false;
            continue;
        }
        let of = |id: NodeId| func.nodes[id].attrs.str("op");
        match out.last_mut().filter(|_| open) {
            Some(group) if of(group[0]) == of(id) && !uses(func, node, group) => group.push(id),
            _ => out.push(vec![id]),
        }
        open = true;
    }
    out
}

fn uses(func: &Func, node: &Node, of: &[NodeId]) -> bool {
    node.operands.iter().any(|v| func.def(*v).is_some_and(|d| of.contains(&d)))
}

/// What is exchanged at once.
struct Bucket {
    members: Vec<NodeId>,
    before: NodeId,
}

/// Cuts a group into exchanges, in the order in which what they combine is computed.
fn buckets(func: &Func, region: RegionId, group: Vec<NodeId>) -> Vec<Bucket> {
    let nodes = &func.regions[region].nodes;
    let places: BTreeMap<NodeId, usize> = nodes.iter().copied().zip(0..).collect();
    // The node after the one that computes it; what comes from outside is there before.
    let ready = |id: &NodeId| {
        let operand = func.nodes[*id].operands[0];
        func.def(operand).and_then(|d| places.get(&d)).map_or(0, |at| at + 1)
    };
    let mut members: Vec<(usize, NodeId)> = group.iter().map(|id| (ready(id), *id)).collect();
    members.sort_by_key(|(at, _)| *at);
    let mut out: Vec<Bucket> = vec![];
    let mut bytes = BUCKET;
    for (at, id) in members {
        let before = nodes[at];
        match out.last_mut().filter(|_| bytes < BUCKET) {
            Some(bucket) => {
                bucket.members.push(id);
                bucket.before = before;
            }
            None => {
                bytes = 0;
                out.push(Bucket { members: vec![id], before });
            }
        }
        bytes = bytes.saturating_add(size(func, func.nodes[id].operands[0]));
    }
    out
}

/// Bytes of a value; what is not known before the program runs counts as small.
fn size(func: &Func, value: ValueId) -> i64 {
    let ty = func.ty(value);
    let mut sizes = ty.shape.iter().map(|d| d.as_const());
    let elements = sizes.try_fold(1i64, |n, d| Some(n.saturating_mul(d?)));
    elements.unwrap_or(0).saturating_mul(ty.dtype.size() as i64)
}

fn exchange(r: &mut Rewriter<'_>, all: &[NodeId]) -> Result<Vec<ValueId>, Stop> {
    let first = &r.old.nodes[all[0]];
    let operands: Vec<ValueId> = all.iter().map(|id| r.get(r.old.nodes[*id].operands[0])).collect();
    let name = name(&all.iter().map(|id| r.old.nodes[*id].attrs.str("name")).collect::<Vec<_>>());
    let attrs = first.attrs.clone().with("name", Attr::Str(name));
    let spec = NodeSpec::new(Op::Exchange, &operands, attrs, first.span);
    let node = r.builder(&first.origin()).node(spec)?;
    Ok(r.new.nodes[node].results.clone())
}

/// What tensors are called together.
fn name(names: &[&str]) -> String {
    match names {
        _ if names.iter().any(|n| n.is_empty()) => String::new(),
        [] => String::new(),
        [one] => (*one).to_string(),
        [first, second] => format!("{first} and {second}"),
        [first, second, rest @ ..] => {
            let other = if rest.len() == 1 { "other" } else { "others" };
            format!("{first}, {second} and {} {other}", rest.len())
        }
    }
}
