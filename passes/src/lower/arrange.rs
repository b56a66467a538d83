//! Which steps there are, and in what order: before any kernel is made or memory
//! given out.
//!
//! Every region is ordered and fused. Then the life of each value read from a
//! variable is compared with the writes to it ([`super::lives`]). Where a write comes
//! too early it is deferred; where that does not help, the parts taken of the old
//! value are stored before the write; only then is the old value copied.
//!
//! Invariant: what comes out needs no other order later. A read of a variable that is
//! not in `copied` sees the variable unchanged at each of its uses.

use super::fuse::{self, Group, Kind};
use super::lives::late_reads;
use super::schedule;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tfc_ir::{Func, Graph, NodeId, RegionId, ValueId, VarId};

/// The steps of a function.
#[derive(Default)]
pub(crate) struct Arranged {
    pub regions: BTreeMap<RegionId, Steps>,
    /// Reads of variables that must be copies.
    pub copied: BTreeSet<NodeId>,
}

/// The steps of a region.
pub(crate) struct Steps {
    pub order: Vec<NodeId>,
    /// In the order they run; each after the node at its `exec`.
    pub groups: Vec<Group>,
}

pub(crate) fn arrange(graph: &Graph, func: &Func) -> Arranged {
    let mut deferred: BTreeSet<VarId> = BTreeSet::new();
    // Nodes with kernels of their own, so that they are done before a write.
    let mut apart: BTreeSet<NodeId> = BTreeSet::new();
    let mut arranged = Arranged::default();
    // Each time a write more is deferred, a part more is stored or a read more is
    // copied, so this ends.
    loop {
        arranged.regions.clear();
        order_and_fuse(graph, func, func.body, &deferred, &apart, &mut arranged.regions);
        let late = late_reads(graph, func, &arranged);
        if late.is_empty() {
            return arranged;
        }
        let known = deferred.clone();
        for (node, var, waited) in late {
            // To wait with the write helps against our own writes only.
            if !waited && (deferred.insert(var) || !known.contains(&var)) {
                continue;
            }
            let parts = fuse::parts_taken(func, func.nodes[node].results[0]);
            if parts.is_subset(&apart) {
                arranged.copied.insert(node);
            }
            apart.extend(parts);
        }
    }
}

fn order_and_fuse(
    graph: &Graph,
    func: &Func,
    region: RegionId,
    deferred: &BTreeSet<VarId>,
    apart: &BTreeSet<NodeId>,
    out: &mut BTreeMap<RegionId, Steps>,
) {
    let order = schedule::order(graph, func, region, deferred);
    let escapes: BTreeSet<ValueId> = func.regions[region].results.iter().copied().collect();
    let groups = fuse::fuse(func, &order, &escapes, apart).groups;
    for id in &order {
        for &inner in &func.nodes[*id].regions {
            order_and_fuse(graph, func, inner, deferred, apart, out);
        }
    }
    out.insert(region, Steps { order, groups });
}

/// The steps as text: what each computes, of what, and what it stores.
pub(crate) fn text(func: &Func, arranged: &Arranged) -> String {
    let mut out = format!("{} {{\n", func.name);
    region_text(func, func.body, arranged, 1, &mut out);
    out += "}\n";
    out
}

fn region_text(func: &Func, region: RegionId, arranged: &Arranged, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    let name = |v: &ValueId| match &func.values[*v].name {
        Some(name) if !name.is_empty() => name.to_string(),
        _ => v.to_string(),
    };
    let names = |list: &[ValueId]| list.iter().map(name).collect::<Vec<_>>().join(", ");
    let Some(steps) = arranged.regions.get(&region) else { return };
    for id in &arranged.copied {
        if steps.order.contains(id) {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{pad}copy {}", names(&func.nodes[*id].results));
        }
    }
    for g in &steps.groups {
        let ops: Vec<&str> = g.members.iter().map(|id| func.nodes[*id].op.name()).collect();
        let head = match g.kind {
            Kind::Kernel => "kernel".to_string(),
            Kind::Scan(_) => "scan".to_string(),
            Kind::Contract(id) => format!("{} then", func.nodes[id].op.name()),
            Kind::Update(_) => "update".to_string(),
            Kind::Step(id) => func.nodes[id].op.name().to_string(),
        };
        let inputs: BTreeSet<ValueId> = super::lives::inputs(func, g).into_iter().collect();
        let inputs: Vec<ValueId> = inputs.into_iter().collect();
        let stored: Vec<ValueId> = g.outputs.iter().map(|(v, _)| *v).collect();
        let _ = write!(out, "{pad}{head} {}({})", ops.join(" "), names(&inputs));
        let _ = writeln!(out, " -> {}", names(&stored));
        if let Kind::Step(id) = g.kind {
            for &inner in &func.nodes[id].regions {
                let _ = writeln!(out, "{pad}{{");
                region_text(func, inner, arranged, depth + 1, out);
                let _ = writeln!(out, "{pad}}}");
            }
        }
    }
}
