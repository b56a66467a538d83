//! The order steps run in.
//!
//! Fusion has left groups; they and the reads of variables are the units here. Units
//! keep the order of the graph, with four moves.
//! - What uses a variable's old value goes before the kernel that computes its new
//!   one, which can then store it straight into the variable. So does what uses a
//!   carried value before the kernel that stores over part of it.
//! - An update runs as a whole as soon as it can ([`super::updates`]). What it reads is
//!   then free early, instead of living to the end of the step.
//! - An exchange with other processes begins as soon as it can: it runs beside what comes
//!   after it.
//! - A write is deferred to the end if the old value is used by something that stands
//!   after it in the text.
//!
//! Invariants
//! - Operands come before users; effects on one variable, prints and asserts
//!   keep their order; `after` edges hold.
//! - A print, assert or queue effect before a write in the text stays before it:
//!   an assertion that fails has kept the writes after it from happening.
//! - Reads and writes of variables do not cross a wait for a queue: others may
//!   have the variables meanwhile.

use super::fuse::{GroupKind, KernelGroup, deep_operands, stored_over};
use super::hazards::{hazards, is_plain_assign};
use super::lives::inputs;
use super::updates::updates;
use cranelift_entity::SecondaryMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::{Func, Graph, Node, NodeId, RegionId, ValueId, VarId};

/// What is ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// A read of a variable: where it stands matters if it is a copy.
    Read(NodeId),
    /// A group, by its number.
    Group(usize),
}

/// The units of a region and what lies between them, by the number of the unit.
pub(crate) struct Units<'a> {
    pub func: &'a Func,
    pub groups: &'a [KernelGroup],
    pub list: Vec<Unit>,
    /// The values each leaves in memory.
    pub outputs: Vec<Vec<ValueId>>,
    /// The unit that leaves a value in memory.
    producer: BTreeMap<ValueId, u32>,
    /// The units that read a value from memory, in ascending order.
    pub users: BTreeMap<ValueId, Vec<u32>>,
}

/// What must come before what.
struct Edges {
    to: Vec<Vec<u32>>,
    waits: Vec<u32>,
}

pub(crate) fn order(
    graph: &Graph,
    func: &Func,
    region: RegionId,
    groups: &[KernelGroup],
) -> Vec<Unit> {
    let units = Units::new(func, region, groups);
    let mut edges = units.data_edges();
    let versions = units.hazard_edges(graph, region, &mut edges);
    let overwrites = units.overwrites(region, &mut edges);
    // What a loop carries is no result: its place is taken in every iteration.
    let results = if region == func.body { func.results() } else { &[] };
    let mut soft = vec![];
    for version in &versions {
        units.before_write(version, &mut edges, &mut soft);
    }
    let mut update = updates(&units, results, &soft, &BTreeSet::new());
    let deferred = versions.iter().filter(|v| units.used_later(v, &update)).map(|v| v.writer);
    let deferred: BTreeSet<u32> = deferred.collect();
    if !deferred.is_empty() {
        update = updates(&units, results, &soft, &deferred);
    }
    let late = |i: u32| {
        let write = units.step(i).is_some_and(|n| n.op.def().effect == Effect::Write);
        write || overwrites.contains(&i)
    };
    let rank = |i: u32| match (units.list[i as usize], update[i as usize]) {
        (Unit::Read(_), _) => Rank::Leaf,
        _ if units.step(i).is_some_and(exchanges) => Rank::Exchange,
        (_, Some(_)) if late(i) => Rank::UpdateWrite,
        (_, Some(_)) => Rank::Update,
        (_, None) if late(i) => Rank::Late,
        (_, None) => Rank::Plain,
    };
    let order = topological(&edges, &update, &rank);
    order.into_iter().map(|i| units.list[i as usize]).collect()
}

/// A write of a variable, and what there is of its old value.
struct Version {
    writer: u32,
    /// Reads of the old value.
    reads: Vec<u32>,
}

impl<'a> Units<'a> {
    fn new(func: &'a Func, region: RegionId, groups: &'a [KernelGroup]) -> Units<'a> {
        let mut list: Vec<(u32, Unit)> =
            groups.iter().enumerate().map(|(i, g)| (g.exec, Unit::Group(i))).collect();
        for (position, &id) in func.regions[region].nodes.iter().enumerate() {
            if is_read(&func.nodes[id]) {
                list.push((position as u32, Unit::Read(id)));
            }
        }
        list.sort_by_key(|(position, _)| *position);
        let list: Vec<Unit> = list.into_iter().map(|(_, unit)| unit).collect();
        let outputs: Vec<Vec<ValueId>> = list
            .iter()
            .map(|unit| match unit {
                Unit::Read(id) => func.nodes[*id].results.clone(),
                Unit::Group(g) => match groups[*g].kind {
                    GroupKind::Step(id) => func.nodes[id].results.clone(),
                    _ => groups[*g].outputs.iter().map(|(v, _)| *v).collect(),
                },
            })
            .collect();
        let mut producer = BTreeMap::new();
        for (i, values) in outputs.iter().enumerate() {
            producer.extend(values.iter().map(|v| (*v, i as u32)));
        }
        let users = BTreeMap::new();
        let mut units = Units { func, groups, list, outputs, producer, users };
        for (i, unit) in units.list.iter().enumerate() {
            let Unit::Group(g) = unit else { continue };
            let read = match groups[*g].kind {
                GroupKind::Step(id) => deep_operands(func, &func.nodes[id]),
                _ => inputs(func, &groups[*g]),
            };
            for value in read {
                let users = units.users.entry(in_memory(func, value)).or_default();
                if users.last() != Some(&(i as u32)) {
                    users.push(i as u32);
                }
            }
        }
        units
    }

    /// The node of a unit that is a step of its own.
    pub fn step(&self, i: u32) -> Option<&'a Node> {
        match self.list[i as usize] {
            Unit::Group(g) => match self.groups[g].kind {
                GroupKind::Step(id) => Some(&self.func.nodes[id]),
                _ => None,
            },
            Unit::Read(_) => None,
        }
    }

    /// The units that read what a unit leaves.
    pub fn users_of(&self, i: u32) -> BTreeSet<u32> {
        self.outputs[i as usize].iter().flat_map(|v| self.users_of_value(*v, i)).collect()
    }

    /// The units that read a value, but for the one that computes it.
    fn users_of_value(&self, v: ValueId, from: u32) -> impl Iterator<Item = u32> {
        self.users.get(&v).into_iter().flatten().copied().filter(move |u| *u != from)
    }

    fn data_edges(&self) -> Edges {
        let mut edges =
            Edges { to: vec![vec![]; self.list.len()], waits: vec![0; self.list.len()] };
        for i in 0..self.list.len() as u32 {
            for user in self.users_of(i) {
                edges.add(i, user);
            }
        }
        edges
    }

    /// Effects keep the order of the text. Returns what is written, in that order.
    fn hazard_edges(&self, graph: &Graph, region: RegionId, edges: &mut Edges) -> Vec<Version> {
        let func = self.func;
        let mut unit_of: SecondaryMap<NodeId, u32> = SecondaryMap::with_default(u32::MAX);
        for (i, unit) in self.list.iter().enumerate() {
            match unit {
                Unit::Read(id) => unit_of[*id] = i as u32,
                Unit::Group(g) => {
                    if let GroupKind::Step(id) = self.groups[*g].kind {
                        unit_of[id] = i as u32;
                    }
                }
            }
        }
        let mut last_write: BTreeMap<VarId, u32> = BTreeMap::new();
        let mut reads_since: BTreeMap<VarId, Vec<u32>> = BTreeMap::new();
        let (mut last_io, mut last_wait): (Option<u32>, Option<u32>) = (None, None);
        let mut since_wait: Vec<u32> = vec![];
        let mut versions = vec![];
        for &id in &func.regions[region].nodes {
            let (i, node) = (unit_of[id], &func.nodes[id]);
            if i == u32::MAX {
                continue;
            }
            for &before in node.after.iter().filter(|b| unit_of[**b] != u32::MAX) {
                edges.add(unit_of[before], i);
            }
            let found = hazards(graph, func, node);
            if !found.reads.is_empty() || !found.writes.is_empty() {
                last_wait.inspect(|wait| edges.add(*wait, i));
                since_wait.push(i);
            }
            if found.waits {
                since_wait.drain(..).for_each(|before| edges.add(before, i));
                last_wait = Some(i);
            }
            for v in found.reads.iter().chain(&found.writes) {
                last_write.get(v).inspect(|write| edges.add(**write, i));
            }
            if !found.writes.is_empty() {
                last_io.inspect(|io| edges.add(*io, i));
            }
            for &v in &found.writes {
                let reads = reads_since.remove(&v).unwrap_or_default();
                reads.iter().for_each(|read| edges.add(*read, i));
                versions.push(Version { writer: i, reads });
                last_write.insert(v, i);
            }
            for &v in &found.reads {
                reads_since.entry(v).or_default().push(i);
            }
            if found.io {
                last_io.inspect(|io| edges.add(*io, i));
                last_io = Some(i);
            }
        }
        versions
    }

    /// The units that use the old value of what is written.
    fn old_users(&self, version: &Version) -> BTreeSet<u32> {
        let reads = version.reads.iter().filter(|r| self.is_read(**r));
        reads.flat_map(|r| self.users_of(*r)).filter(|u| *u != version.writer).collect()
    }

    fn is_read(&self, i: u32) -> bool {
        matches!(self.list[i as usize], Unit::Read(_))
    }

    /// The unit that computes the new value of a variable, if only its write reads that.
    fn source(&self, version: &Version) -> Option<u32> {
        let node = self.step(version.writer).filter(|n| is_plain_assign(n))?;
        let value = in_memory(self.func, *node.operands.first()?);
        let from = *self.producer.get(&value)?;
        let alone = self.users_of_value(value, from).all(|u| u == version.writer);
        alone.then_some(from)
    }

    /// Where it can be had, what uses the old value runs before the write, and if it
    /// stands before it in the text, before the new value is computed. `soft` gets the
    /// pairs.
    fn before_write(&self, version: &Version, edges: &mut Edges, soft: &mut Vec<(u32, u32)>) {
        let source = self.source(version);
        for user in self.old_users(version).into_iter().filter(|u| Some(*u) != source) {
            if edges.add_unless_cycle(user, version.writer) {
                soft.push((user, version.writer));
            }
            if let Some(source) = source.filter(|_| user < version.writer)
                && edges.add_unless_cycle(user, source)
            {
                soft.push((user, source));
            }
        }
    }

    /// Whether something that stands after a write in the text uses the old value, and
    /// is no part of the update.
    fn used_later(&self, version: &Version, update: &[Option<u32>]) -> bool {
        let source = self.source(version);
        let own = update[version.writer as usize];
        let later =
            |u: &u32| *u > version.writer && Some(*u) != source && update[*u as usize] != own;
        own.is_some() && self.old_users(version).iter().any(later)
    }

    /// Units that change part of a value that a loop carries run after what uses it.
    fn overwrites(&self, region: RegionId, edges: &mut Edges) -> BTreeSet<u32> {
        let mut out = BTreeSet::new();
        for (i, unit) in self.list.iter().enumerate() {
            let Unit::Group(g) = unit else { continue };
            let (GroupKind::Update(id) | GroupKind::Step(id)) = self.groups[*g].kind else {
                continue;
            };
            let node = &self.func.nodes[id];
            let Some(base) = overwritten(self.func, region, node) else { continue };
            out.insert(i as u32);
            for &user in self.users.get(&base).into_iter().flatten() {
                edges.add_unless_cycle(user, i as u32);
            }
        }
        out
    }
}

impl Edges {
    fn add(&mut self, from: u32, to: u32) {
        if from != to {
            self.to[from as usize].push(to);
            self.waits[to as usize] += 1;
        }
    }

    fn add_unless_cycle(&mut self, from: u32, to: u32) -> bool {
        let possible = from != to && !self.leads(to, from);
        if possible {
            self.add(from, to);
        }
        possible
    }

    /// Whether `to` must come after `from`.
    fn leads(&self, from: u32, to: u32) -> bool {
        let mut seen = BTreeSet::from([from]);
        let mut stack = vec![from];
        while let Some(at) = stack.pop() {
            if at == to {
                return true;
            }
            stack.extend(self.to[at as usize].iter().copied().filter(|n| seen.insert(*n)));
        }
        false
    }
}

/// Of the units that can run, those of the least rank do, in text order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// No step of its own: nothing should wait for it.
    Leaf,
    /// Others wait for it, and nothing here does before it must.
    Exchange,
    Update,
    UpdateWrite,
    Plain,
    Late,
}

/// An order along the edges, which do not circle. The units of an update run once all
/// it needs from elsewhere is there; of updates that wait for each other, the first
/// begins without the rest.
fn topological(edges: &Edges, update: &[Option<u32>], rank: &dyn Fn(u32) -> Rank) -> Vec<u32> {
    let mut waits = edges.waits.clone();
    let count = update.iter().flatten().max().map_or(0, |most| *most as usize + 1);
    let mut members: Vec<Vec<u32>> = vec![vec![]; count];
    let mut missing = vec![0u32; count];
    let other = |from: u32, to: u32| {
        update[to as usize].filter(|u| update[from as usize] != Some(*u)).map(|u| u as usize)
    };
    for (i, own) in update.iter().enumerate() {
        if let Some(u) = own {
            members[*u as usize].push(i as u32);
        }
        for &to in &edges.to[i] {
            if let Some(u) = other(i as u32, to) {
                missing[u] += 1;
            }
        }
    }
    let mut open: Vec<bool> = missing.iter().map(|m| *m == 0).collect();
    let key = |i: u32| Reverse((rank(i), i));
    let may = |i: u32, open: &[bool]| update[i as usize].is_none_or(|u| open[u as usize]);
    let mut ready: BinaryHeap<_> = (0..waits.len() as u32)
        .filter(|i| waits[*i as usize] == 0 && may(*i, &open))
        .map(key)
        .collect();
    let mut out = Vec::with_capacity(waits.len());
    loop {
        while let Some(Reverse((_, i))) = ready.pop() {
            out.push(i);
            for &to in &edges.to[i as usize] {
                waits[to as usize] -= 1;
                if waits[to as usize] == 0 && may(to, &open) {
                    ready.push(key(to));
                }
                let Some(u) = other(i, to) else { continue };
                missing[u] -= 1;
                if missing[u] == 0 && !open[u] {
                    open[u] = true;
                    let free = members[u].iter().filter(|m| waits[**m as usize] == 0);
                    ready.extend(free.map(|m| key(*m)));
                }
            }
        }
        let begun = |u: &usize| members[*u].iter().any(|m| waits[*m as usize] == 0);
        let Some(u) = (0..count).find(|u| !open[*u] && begun(u)) else { break };
        open[u] = true;
        ready.extend(members[u].iter().filter(|m| waits[**m as usize] == 0).map(|m| key(*m)));
    }
    assert_eq!(out.len(), waits.len(), "steps wait for each other");
    out
}

fn exchanges(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Step(StepKind::Exchange))
}

fn is_read(node: &Node) -> bool {
    node.op.def().effect == Effect::Read
}

/// The value whose bytes a value is: reshapes are other names.
pub(crate) fn in_memory(func: &Func, mut value: ValueId) -> ValueId {
    while let Some(def) = func.def(value).map(|d| &func.nodes[d])
        && matches!(def.op.def().lower, Lower::Reshape)
    {
        value = def.operands[0];
    }
    value
}

/// The carried value that a node changes a part of.
fn overwritten(func: &Func, region: RegionId, node: &Node) -> Option<ValueId> {
    let scatters = matches!(node.op.def().lower, Lower::AddRows);
    let base = *node.operands.first().filter(|_| scatters || stored_over(func, node))?;
    let base = in_memory(func, base);
    (region != func.body && func.regions[region].params.contains(&base)).then_some(base)
}
