//! Combining values over processes: for a program that runs by itself, and for several.
//!
//! Which of the two a program is, is known when it is started. So an entry with an
//! `all_reduce` is there twice from here on. In the entry itself combining is the
//! identity, and gone: a single process pays nothing for it. In the *replica*, which
//! processes run together, neighbouring `all_reduce`s become one `exchange`, so that
//! many small tensors travel as one message. For jobs with parameter servers it is
//! there in parts, too ([`crate::servers`]).
//!
//! Invariants
//! - No `all_reduce` is left.
//! - An `exchange` is an effect: every process does the same ones in the same order.

use crate::pipeline::{PassOptions, Passed};
use crate::servers;
use crate::util::{Stop, rewrite};
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::{NodeSpec, Rewriter};
use tfc_ir::diag::Diag;
use tfc_ir::{Func, Graph, Node, NodeId, Op, RegionId, ValueId};

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

/// Several processes: groups of `all_reduce`s become exchanges.
fn exchanged(graph: &Graph, func: &Func) -> Result<Func, Stop> {
    let mut groups: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for region in func.regions.keys() {
        group(func, region, &mut groups);
    }
    let members: BTreeSet<NodeId> = groups.values().flatten().copied().collect();
    let mut made: BTreeMap<NodeId, ValueId> = BTreeMap::new();
    rewrite(graph, func, &mut |r, id| {
        let Some(all) = groups.get(&id) else {
            // The rest of a group is made with its first.
            return Ok(match members.contains(&id) {
                true => made.get(&id).map(|v| vec![*v]),
                false => None,
            });
        };
        let results = exchange(r, all)?;
        made.extend(all.iter().copied().zip(results));
        Ok(made.get(&id).map(|v| vec![*v]))
    })
}

/// Groups neighbours, by the first of each group. What a group combines is computed
/// before the first of it, as the order of a region has it.
fn group(func: &Func, region: RegionId, groups: &mut BTreeMap<NodeId, Vec<NodeId>>) {
    let mut open: Option<NodeId> = None;
    for &id in &func.regions[region].nodes {
        let node = &func.nodes[id];
        if node.op != Op::AllReduce {
            open = None;
            continue;
        }
        let of = |id: &NodeId| func.nodes[*id].attrs.str("op");
        match open.filter(|first| of(first) == of(&id)) {
            Some(first) if !uses(func, node, &groups[&first]) => {
                groups.entry(first).or_default().push(id);
            }
            _ => {
                open = Some(id);
                groups.insert(id, vec![id]);
            }
        }
    }
}

fn uses(func: &Func, node: &Node, of: &[NodeId]) -> bool {
    node.operands.iter().any(|v| func.def(*v).is_some_and(|d| of.contains(&d)))
}

fn exchange(r: &mut Rewriter<'_>, all: &[NodeId]) -> Result<Vec<ValueId>, Stop> {
    let first = &r.old.nodes[all[0]];
    let operands: Vec<ValueId> = all.iter().map(|id| r.get(r.old.nodes[*id].operands[0])).collect();
    let spec = NodeSpec::new(Op::Exchange, &operands, first.attrs.clone(), first.span);
    let node = r.builder(&first.origin()).node(spec)?;
    Ok(r.new.nodes[node].results.clone())
}
