//! How long values read from variables live, and which writes come too early.
//!
//! Steps are numbered in the order they run, those of branches and loops between
//! their neighbours. A value read from a variable lives from its read to the last
//! step that uses it, through reshapes; a write to the variable in between would
//! change it.

use super::arrange::Arranged;
use super::fuse::{GroupKind, KernelGroup};
use super::hazards::waits;
use super::operands::contract_operands;
use super::order::Unit;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::{Func, Graph, Node, NodeId, RegionId, ValueId, VarId};

/// Reads whose variable is written before the last use of their value, by this call
/// or by others while it waits.
pub(crate) fn late_reads(graph: &Graph, func: &Func, arranged: &Arranged) -> Vec<NodeId> {
    let mut lives = Lives {
        graph,
        func,
        arranged,
        time: 0,
        reads: vec![],
        uses: BTreeMap::new(),
        writes: BTreeMap::new(),
        scatters: BTreeSet::new(),
        loops: vec![],
        waits: vec![],
    };
    lives.region(func.body);
    for value in func.results() {
        lives.step([*value]);
    }
    lives.late()
}

/// The values a group reads from memory. Of a step with regions, its operands.
pub(crate) fn inputs(func: &Func, g: &KernelGroup) -> Vec<ValueId> {
    let mut out = vec![];
    match g.kind {
        GroupKind::Contract(id) => {
            let (lhs, rhs) = contract_operands(func, &func.nodes[id]);
            out.extend([lhs.0, rhs.0]);
        }
        GroupKind::Update(id) | GroupKind::Step(id) => return func.nodes[id].operands.clone(),
        GroupKind::Kernel | GroupKind::Scan(_) => {}
    }
    let computed = |v: &ValueId| func.def(*v).is_some_and(|d| g.members.contains(&d));
    for id in &g.members {
        out.extend(func.nodes[*id].operands.iter().filter(|v| !computed(v)));
    }
    out
}

struct Lives<'a> {
    graph: &'a Graph,
    func: &'a Func,
    arranged: &'a Arranged,
    time: u32,
    /// Reads in place, and the step before them.
    reads: Vec<(NodeId, VarId, u32)>,
    /// The last step that uses what a read gave.
    uses: BTreeMap<ValueId, u32>,
    writes: BTreeMap<VarId, Vec<u32>>,
    /// Steps that write rows of a variable while reading their operands.
    scatters: BTreeSet<u32>,
    /// First and last step of each loop.
    loops: Vec<(u32, u32)>,
    /// Steps at which others may change variables.
    waits: Vec<u32>,
}

impl Lives<'_> {
    /// The next step, which reads these values.
    fn step(&mut self, values: impl IntoIterator<Item = ValueId>) -> u32 {
        self.time += 1;
        for value in values {
            self.read(value);
        }
        self.time
    }

    /// The current step reads a value.
    fn read(&mut self, mut value: ValueId) {
        while let Some(def) = self.func.def(value) {
            let node = &self.func.nodes[def];
            if matches!(node.op.def().lower, Lower::Reshape) {
                value = node.operands[0];
                continue;
            }
            if node.op.def().effect == Effect::Read {
                self.uses.insert(value, self.time);
            }
            return;
        }
    }

    fn region(&mut self, region: RegionId) {
        let arranged = self.arranged;
        let Some(steps) = arranged.regions.get(&region) else { return };
        for unit in &steps.order {
            match *unit {
                Unit::Group(g) => self.group(&steps.groups[g]),
                Unit::Read(id) if arranged.copied.contains(&id) => {
                    self.step([]);
                }
                Unit::Read(id) => {
                    if let Some(v) = self.func.nodes[id].var {
                        self.reads.push((id, v, self.time));
                    }
                }
            }
        }
    }

    fn group(&mut self, g: &KernelGroup) {
        match g.kind {
            GroupKind::Kernel | GroupKind::Scan(_) | GroupKind::Contract(_) => {
                self.step(inputs(self.func, g));
            }
            GroupKind::Update(id) => self.changed_in_place(&self.func.nodes[id]),
            GroupKind::Step(id) => self.effect(&self.func.nodes[id]),
        }
    }

    /// The first operand is brought to the result's place, then changed there.
    fn changed_in_place(&mut self, node: &Node) {
        self.step([node.operands[0]]);
        self.step(node.operands[1..].to_vec());
    }

    fn effect(&mut self, node: &Node) {
        let kind = match node.op.def().lower {
            Lower::AddRows => return self.changed_in_place(node),
            Lower::Step(kind) => Some(kind),
            _ => None,
        };
        match kind {
            Some(StepKind::Branch) => self.branch(node),
            Some(StepKind::Loop) => self.repeat(node),
            _ => {
                if waits(self.graph, node) {
                    // Before the step proper, which reads and writes after its waits.
                    let wait = self.step([]);
                    self.waits.push(wait);
                }
                let time = self.step(node.operands.clone());
                if matches!(kind, Some(StepKind::ScatterRows { .. })) {
                    self.scatters.insert(time);
                }
                let variable = |v: &VarId| self.graph.vars[*v].symbol.is_variable();
                if let (Effect::Write, Some(v)) = (node.op.def().effect, node.var.filter(variable))
                {
                    self.writes.entry(v).or_default().push(time);
                }
            }
        }
    }

    fn branch(&mut self, node: &Node) {
        self.step([node.operands[0]]);
        for &r in &node.regions {
            self.region(r);
            for value in &self.func.regions[r].results {
                self.step([*value]);
            }
        }
    }

    fn repeat(&mut self, node: &Node) {
        for value in &node.operands {
            self.step([*value]);
        }
        let first = self.time + 1;
        for &r in &node.regions {
            self.region(r);
            for value in &self.func.regions[r].results {
                self.step([*value]);
            }
        }
        let last = self.step([]);
        self.loops.push((first, last));
    }

    fn late(&self) -> Vec<NodeId> {
        let mut out = vec![];
        for (node, var, time) in &self.reads {
            let value = self.func.nodes[*node].results[0];
            let Some(&(mut last)) = self.uses.get(&value) else { continue };
            // What a loop uses from outside, it uses in every iteration.
            for (first, end) in &self.loops {
                if time < first && *first <= last && last <= *end {
                    last = end + 1;
                }
            }
            let writes = self.writes.get(var).into_iter().flatten();
            // A write in the very step of the last use is the copy (or the
            // in-place update) that ends the old value's life.
            let scattered = self.scatters.contains(&last);
            let early = |w: &u32| w > time && (*w < last || (*w == last && scattered));
            let waited = self.waits.iter().any(|w| w > time && *w < last);
            if waited || writes.into_iter().any(early) {
                out.push(*node);
            }
        }
        out
    }
}
