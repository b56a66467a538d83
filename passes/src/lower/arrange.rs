//! Which steps there are, and in what order: before any kernel is made or memory
//! given out.
//!
//! Every region is fused ([`super::fuse`]) and its groups are put in order
//! ([`super::order`]). Then the life of each value read from a variable is compared
//! with the writes to it ([`super::lives`]). Where a write comes too early, the parts
//! taken of the old value are stored before it; where that does not help, the old
//! value is copied.
//!
//! Invariant: what comes out needs no other order later. A read of a variable that is
//! not in `copied` sees the variable unchanged at each of its uses.

use super::fuse::{self, GroupKind, KernelGroup};
use super::lives::{inputs, late_reads};
use super::order::{self, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tfc_ir::{Func, Graph, NodeId, RegionId, ValueId};

/// The steps of a function.
#[derive(Default)]
pub(crate) struct Arranged {
    pub regions: BTreeMap<RegionId, Steps>,
    /// Reads of variables that must be copies.
    pub copied: BTreeSet<NodeId>,
}

/// The steps of a region.
pub(crate) struct Steps {
    pub groups: Vec<KernelGroup>,
    /// Its groups and reads in the order they run.
    pub order: Vec<Unit>,
}

pub(crate) fn arrange(graph: &Graph, func: &Func) -> Arranged {
    let mut arranged = Arranged::default();
    fuse_regions(graph, func, func.body, &mut arranged.regions);
    arranged.order(graph, func);
    let late = late_reads(graph, func, &arranged);
    let mut stored = false;
    for read in &late {
        for part in fuse::parts_taken(func, func.nodes[*read].results[0]) {
            for steps in arranged.regions.values_mut() {
                stored |= fuse::set_apart(func, &mut steps.groups, part);
            }
        }
    }
    if stored {
        arranged.order(graph, func);
    }
    if !late.is_empty() {
        arranged.copied = late_reads(graph, func, &arranged).into_iter().collect();
    }
    arranged
}

impl Arranged {
    fn order(&mut self, graph: &Graph, func: &Func) {
        for (region, steps) in &mut self.regions {
            steps.order = order::order(graph, func, *region, &steps.groups);
        }
    }
}

fn fuse_regions(graph: &Graph, func: &Func, region: RegionId, out: &mut BTreeMap<RegionId, Steps>) {
    let groups = fuse::fuse(graph, func, region);
    let order = (0..groups.len()).map(Unit::Group).collect();
    for id in &func.regions[region].nodes {
        for &inner in &func.nodes[*id].regions {
            fuse_regions(graph, func, inner, out);
        }
    }
    out.insert(region, Steps { groups, order });
}

/// What fusion makes of a function, as text: its groups, in the order of the graph.
pub(crate) fn fused_text(graph: &Graph, func: &Func) -> String {
    let mut arranged = Arranged::default();
    fuse_regions(graph, func, func.body, &mut arranged.regions);
    text(func, &arranged)
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
    for unit in &steps.order {
        let g = match unit {
            Unit::Group(g) => &steps.groups[*g],
            Unit::Read(id) => {
                if arranged.copied.contains(id) {
                    // Writing to a string does not fail.
                    let _ = writeln!(out, "{pad}copy {}", names(&func.nodes[*id].results));
                }
                continue;
            }
        };
        let ops: Vec<&str> = g.members.iter().map(|id| func.nodes[*id].op.name()).collect();
        let head = match g.kind {
            GroupKind::Kernel => "kernel".to_string(),
            GroupKind::Scan(_) => "scan".to_string(),
            GroupKind::Contract(id) => format!("{} then", func.nodes[id].op.name()),
            GroupKind::Update(_) => "update".to_string(),
            GroupKind::Step(id) => func.nodes[id].op.name().to_string(),
        };
        let read: BTreeSet<ValueId> = inputs(func, g).into_iter().collect();
        let read: Vec<ValueId> = read.into_iter().collect();
        let stored: Vec<ValueId> = match g.kind {
            GroupKind::Step(id) => func.nodes[id].results.clone(),
            _ => g.outputs.iter().map(|(v, _)| *v).collect(),
        };
        let _ = write!(out, "{pad}{head} {}({})", ops.join(" "), names(&read));
        let _ = writeln!(out, " -> {}", names(&stored));
        if let GroupKind::Step(id) = g.kind {
            for &inner in &func.nodes[id].regions {
                let _ = writeln!(out, "{pad}{{");
                region_text(func, inner, arranged, depth + 1, out);
                let _ = writeln!(out, "{pad}}}");
            }
        }
    }
}
