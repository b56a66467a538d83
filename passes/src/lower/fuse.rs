//! Fusion: which nodes share a kernel. A side table; the graph stays as it is.
//!
//! Nodes are visited backwards. A node whose users all sit in one group joins
//! it, if computing it there repeats no work; a cheap node is copied into each
//! group that uses it; any other node starts a group of its own, or becomes a
//! further output of the first group that runs among its users.
//!
//! Invariants
//! - The groups could run in the order of the graph: each at `exec`, the position of
//!   its last node, and plain assignments last where nothing waits for them. A group's
//!   inputs come from groups (or nodes) with a smaller `exec`: a node only becomes an
//!   output of the first group among its users. So no two groups wait for each other,
//!   and [`super::order`] may choose any order that keeps operands before users.
//! - A reduction is only computed inside a group whose loops have its kept axes
//!   outside and its reduced axes inside, so it runs once per row.
//! - A value that is not inlined everywhere it is used has a buffer.

use super::group::{match_axes, splat_scalar};
use super::hazards::{hazards, is_plain_assign};
use super::placement;
use crate::cost_model::{CHEAP, MAX_COPIES, MAX_MEMBERS, MAX_PULLS, SMALL_REDUCTION, repeats};
use crate::devices::Local;
use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::element::{Asks, ElementCost, asks, element_cost};
use tfc_ir::graph::Def;
use tfc_ir::lower::{Contraction, Lower};
use tfc_ir::op::{Effect, Moves};
use tfc_ir::{Dim, Func, Graph, Node, NodeId, Op, RegionId, TensorType, ValueId, VarId};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupId(pub u32);

/// How a value's axes lie in its group's loops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rel {
    /// The group axis of each axis; none for an index that does not move.
    Axes(Vec<Option<usize>>),
    /// Some other index; `repeat` when elements may be asked for repeatedly.
    Other { repeat: bool },
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum GroupKind {
    /// Loops over `space`.
    Kernel,
    /// A prefix combination; producers may be inlined.
    Scan(NodeId),
    /// A contraction, and what is computed on its result while in cache.
    Contract(NodeId),
    /// A box stored over a value that a loop carries.
    Update(NodeId),
    /// An effect, a node with regions, or a routine: a step of its own.
    Step(NodeId),
}

#[derive(Clone, Debug)]
pub(crate) struct KernelGroup {
    pub exec: u32,
    pub kind: GroupKind,
    pub space: Vec<Dim>,
    pub root_rank: usize,
    pub reduced: Vec<usize>,
    pub members: BTreeSet<NodeId>,
    /// Values with buffers, and their axes in `space`.
    pub outputs: Vec<(ValueId, Vec<Option<usize>>)>,
    /// Some member is pulled at an index other than the loops'.
    irregular: bool,
    /// Where it was placed, in a graph that is on several devices.
    pub device: Option<Local>,
}

/// A bit for each nesting of reductions an element is asked for from: bit 0 for
/// the stores, bit 1 for the reductions they need, bit 2 for what those need.
/// Each phase is a loop of its own, so an element is computed once per bit.
pub(crate) type Phases = u8;

/// The different indices a value is asked for at inside a group, by a number for
/// each: equal numbers stand for equal indices, which share the code.
pub(crate) type Pulls = BTreeSet<u64>;

/// How a group computes a value.
#[derive(Clone, Debug)]
pub(crate) struct Inlined {
    pub group: GroupId,
    pub rel: Rel,
    pub phases: Phases,
    pub pulls: Pulls,
}

/// What became of a node.
#[derive(Clone, Debug, Default)]
struct Fused {
    /// Groups that compute it, and how.
    pub inlined: Vec<Inlined>,
    /// The group that stores it.
    pub stored: Option<GroupId>,
    /// No work: shares its operand's bytes (reshape) or is data (constants,
    /// reads); needs a buffer all the same.
    pub alias: bool,
    /// When its value must exist, for aliases.
    needed: u32,
    /// Cost of computing it wherever it is used, for copied nodes.
    copied: u32,
}

struct Fuser<'a> {
    func: &'a Func,
    position: &'a SecondaryMap<NodeId, u32>,
    /// Assignments that may come after all else.
    free_assigns: BTreeSet<NodeId>,
    users: &'a SecondaryMap<ValueId, Vec<NodeId>>,
    groups: Vec<KernelGroup>,
    fused: SecondaryMap<NodeId, Fused>,
    /// The graph is on several devices, which kernels are not.
    apart: bool,
}

/// Where a use of a value is.
enum Use {
    In(Inlined),
    /// Needs the buffer at this position.
    Buffer(u32),
}

/// Position of what comes after all nodes of a region.
const LAST: u32 = u32::MAX;

/// Groups the nodes of one region, in the order of the graph.
pub(crate) fn fuse(graph: &Graph, func: &Func, region: RegionId) -> Vec<KernelGroup> {
    let nodes = &func.regions[region].nodes;
    let escapes: BTreeSet<ValueId> = func.regions[region].results.iter().copied().collect();
    let mut position = SecondaryMap::new();
    let mut users: SecondaryMap<ValueId, Vec<NodeId>> = SecondaryMap::new();
    for (i, &id) in nodes.iter().enumerate() {
        position[id] = i as u32;
        for value in deep_operands(func, &func.nodes[id]) {
            if users[value].last() != Some(&id) {
                users[value].push(id);
            }
        }
    }
    let mut f = Fuser {
        func,
        position: &position,
        free_assigns: free_assigns(graph, func, nodes),
        users: &users,
        groups: vec![],
        fused: SecondaryMap::new(),
        apart: !placement::asked(graph).is_empty(),
    };
    for &id in nodes.iter().rev() {
        f.visit(id, &escapes);
    }
    let mut groups = f.groups;
    groups.sort_by_key(|g| g.exec);
    groups
}

/// Plain assignments that nothing in the region waits for: they may come last, so an
/// optimizer's slots and the variable it moves can be results of one kernel.
fn free_assigns(graph: &Graph, func: &Func, nodes: &[NodeId]) -> BTreeSet<NodeId> {
    let mut touched: BTreeSet<VarId> = BTreeSet::new();
    let mut named: BTreeSet<NodeId> = BTreeSet::new();
    let mut out = BTreeSet::new();
    for &id in nodes.iter().rev() {
        let node = &func.nodes[id];
        let found = hazards(graph, func, node);
        // What is written before a wait is there for others during it.
        if found.waits {
            return out;
        }
        let free = node.var.is_some_and(|v| !touched.contains(&v)) && !named.contains(&id);
        if free && is_plain_assign(node) {
            out.insert(id);
        }
        touched.extend(found.reads);
        touched.extend(found.writes);
        named.extend(&node.after);
    }
    out
}

/// Stores a value in a kernel of its own, instead of in those that use it: as a kernel
/// that takes part of a variable can then run before the variable is written. Returns
/// whether that changed anything.
pub(crate) fn set_apart(func: &Func, groups: &mut Vec<KernelGroup>, id: NodeId) -> bool {
    let value = func.nodes[id].results[0];
    let stores = |g: &KernelGroup, v: ValueId| g.outputs.iter().any(|(o, _)| *o == v);
    let apart = |g: &KernelGroup| stores(g, value) && g.outputs.len() == 1;
    let Some(exec) = groups.iter().filter(|g| g.members.contains(&id)).map(|g| g.exec).min() else {
        return false;
    };
    if groups.iter().any(apart) {
        return false;
    }
    // What is computed on the way to it comes along, but for what is in memory.
    let around: BTreeSet<NodeId> = groups
        .iter()
        .filter(|g| g.members.contains(&id))
        .flat_map(|g| &g.members)
        .copied()
        .collect();
    let of = groups.iter().find(|g| g.members.contains(&id));
    let around_device = of.and_then(|g| g.device);
    let mut members = BTreeSet::from([id]);
    let mut stack = func.nodes[id].operands.clone();
    while let Some(v) = stack.pop() {
        let in_memory = groups.iter().any(|g| stores(g, v));
        let Some(def) = func.def(v).filter(|d| around.contains(d) && !in_memory) else { continue };
        if matches!(func.nodes[def].op.def().lower, Lower::Reduce(_)) {
            return false;
        }
        if members.insert(def) {
            stack.extend(&func.nodes[def].operands);
        }
    }
    for g in groups.iter_mut() {
        if g.members.remove(&id) {
            g.outputs.retain(|(v, _)| *v != value);
            g.drop_unused(func);
        }
    }
    groups.retain(|g| matches!(g.kind, GroupKind::Step(_)) || !g.outputs.is_empty());
    let space = func.ty(value).shape.clone();
    let at = groups.partition_point(|g| g.exec < exec);
    let group = KernelGroup {
        exec,
        kind: GroupKind::Kernel,
        root_rank: space.len(),
        outputs: vec![(value, unit_free(&space))],
        space,
        reduced: vec![],
        members,
        irregular: false,
        device: around_device,
    };
    groups.insert(at, group);
    true
}

impl KernelGroup {
    /// Members that no output needs any longer leave.
    fn drop_unused(&mut self, func: &Func) {
        let mut needed = BTreeSet::new();
        let mut stack: Vec<ValueId> = self.outputs.iter().map(|(v, _)| *v).collect();
        while let Some(v) = stack.pop() {
            if let Some(def) = func.def(v).filter(|d| self.members.contains(d))
                && needed.insert(def)
            {
                stack.extend(&func.nodes[def].operands);
            }
        }
        self.members = needed;
    }
}

/// Whether a node replaces part of what a loop carries: the rest is best left
/// where it is, and need not be touched.
pub(crate) fn stored_over(func: &Func, node: &Node) -> bool {
    if node.op.def().facts.moves != Moves::Replaced {
        return false;
    }
    let (x, update) = (func.ty(node.operands[0]), func.ty(node.operands[1]));
    let carried = match func.values[node.operands[0]].def {
        Def::Param(region, _) => region != func.body,
        Def::Node(id, _) => stored_over(func, &func.nodes[id]),
    };
    carried && x.shape != update.shape
}

/// The nodes that take rows or a box out of a value. To store what they take is
/// less than to copy the value.
pub(crate) fn parts_taken(func: &Func, value: ValueId) -> BTreeSet<NodeId> {
    let mut out = BTreeSet::new();
    func.walk(&mut |id, node| {
        let takes = node.op.def().facts.moves.takes_part();
        if takes && node.operands.first() == Some(&value) {
            out.insert(id);
        }
    });
    out
}

/// Operands of a node and everything its regions use from outside.
pub(crate) fn deep_operands(func: &Func, node: &Node) -> Vec<ValueId> {
    let mut out = node.operands.clone();
    if super::operands::is_matmul(node) {
        let (a, b) = super::operands::contract_operands(func, node);
        out = vec![a.0, b.0];
    }
    for &r in &node.regions {
        collect_region(func, r, &mut out);
    }
    out
}

fn collect_region(func: &Func, region: tfc_ir::RegionId, out: &mut Vec<ValueId>) {
    let r = &func.regions[region];
    for &id in &r.nodes {
        out.extend(deep_operands(func, &func.nodes[id]));
    }
    out.extend(&r.results);
}

impl Fuser<'_> {
    fn visit(&mut self, id: NodeId, escapes: &BTreeSet<ValueId>) {
        let func = self.func;
        let node = &func.nodes[id];
        let def = node.op.def();
        match (&def.lower, def.effect) {
            (Lower::Step(_), Effect::Read) => {
                self.fused[id].alias = true;
                return;
            }
            (Lower::Step(_), _) => {
                self.own_group(id, GroupKind::Step(id));
                return;
            }
            _ if def.effect != Effect::Pure => {
                self.own_group(id, GroupKind::Step(id));
                return;
            }
            _ => {}
        }
        let value = node.results[0];
        let uses = self.uses(value, escapes);
        if uses.is_empty() {
            return;
        }
        if stored_over(func, node) {
            self.own_group(id, GroupKind::Update(id));
            return;
        }
        match &def.lower {
            Lower::Constant => self.fused[id].alias = true,
            Lower::Reshape => self.visit_reshape(id, uses),
            Lower::Contract(kind) => self.visit_contract(id, *kind, uses),
            Lower::Scan(_) => self.own_group(id, GroupKind::Scan(id)),
            Lower::Call(..) | Lower::AddRows => self.own_group(id, GroupKind::Step(id)),
            _ => self.visit_loops(id, uses),
        }
    }

    fn uses(&self, value: ValueId, escapes: &BTreeSet<ValueId>) -> Vec<Use> {
        let mut out = vec![];
        if escapes.contains(&value) {
            out.push(Use::Buffer(LAST));
        }
        for &user in &self.users[value] {
            let fused = &self.fused[user];
            let node = &self.func.nodes[user];
            for here in &fused.inlined {
                let reduces = matches!(node.op.def().lower, Lower::Reduce(_));
                let phases = if reduces { here.phases << 1 } else { here.phases };
                // A group computes the node, so it asks for the operand.
                for (i, operand) in node.operands.iter().enumerate() {
                    if *operand == value {
                        let rel = self.operand_rel(node, i, &here.rel, here.group);
                        let pulls = self.operand_pulls(user, i, &rel, &here.pulls);
                        out.push(match self.meets(value, here.group) {
                            true => Use::In(Inlined { group: here.group, rel, phases, pulls }),
                            false => Use::Buffer(self.groups[here.group.0 as usize].exec),
                        });
                    }
                }
            }
            if fused.alias {
                out.push(Use::Buffer(fused.needed));
            } else if fused.inlined.is_empty() {
                let free = self.free_assigns.contains(&user);
                out.push(Use::Buffer(if free { LAST } else { self.position[user] }));
            }
        }
        out
    }

    fn device(&self, id: NodeId) -> Option<Local> {
        Local::of(self.func.nodes[id].device.as_deref()).filter(|_| self.apart)
    }

    /// Whether a value and a group are on one device, or one of them on none.
    fn meets(&self, value: ValueId, group: GroupId) -> bool {
        let value = self.func.def(value).and_then(|d| self.device(d));
        let group = self.groups[group.0 as usize].device;
        value.is_none() || group.is_none() || value == group
    }

    /// The indices an operand is asked for at, given those of the node.
    fn operand_pulls(&self, user: NodeId, i: usize, rel: &Rel, pulls: &Pulls) -> Pulls {
        let node = &self.func.nodes[user];
        if let Rel::Axes(axes) = rel {
            // The index is the loops' own.
            let axis = |h: u64, a: &Option<usize>| mix(h, a.map_or(0, |a| a as u64 + 1));
            return Pulls::from([axes.iter().fold(1, axis)]);
        }
        if matches!(node.op.def().lower, Lower::Map(_)) {
            return pulls.clone();
        }
        let sites = asks_of(self.func, node, i).sites.max(1);
        let mut out = Pulls::new();
        for pull in pulls {
            for site in 0..sites {
                // One too many says enough.
                if out.len() > MAX_PULLS {
                    return out;
                }
                let step = mix(mix(*pull, user.as_u32() as u64), i as u64);
                out.insert(mix(step, site as u64));
            }
        }
        out
    }

    /// How an operand lies in the group, given how the node does.
    fn operand_rel(&self, node: &Node, i: usize, rel: &Rel, group: GroupId) -> Rel {
        let func = self.func;
        let operand = func.ty(node.operands[i]);
        let result = func.ty(node.results[0]);
        let repeat = match rel {
            Rel::Other { repeat } => *repeat,
            Rel::Axes(axes) => self.repeats(axes, group),
        };
        let Rel::Axes(axes) = rel else {
            return match &node.op.def().lower {
                Lower::Map(_) | Lower::Reshape | Lower::Scan(_) => rel.clone(),
                _ => Rel::Other { repeat: repeat || grows(func, node, i) },
            };
        };
        if let Some(along) = (node.op.def().facts.axes)(&node.attrs, operand, result) {
            return Rel::Axes(along.iter().map(|to| to.and_then(|to| axes[to])).collect());
        }
        match &node.op.def().lower {
            Lower::Map(_) | Lower::Scan(_) => rel.clone(),
            Lower::Reshape => {
                // Only added or removed ones: axes stay what they are.
                let mut out = vec![None; operand.rank()];
                match match_axes(&result.shape, &operand.shape) {
                    Some(pairs) if pairs.iter().all(|(a, b)| a.len() == 1 && b.len() == 1) => {
                        for (a, b) in pairs {
                            out[b[0]] = axes[a[0]];
                        }
                        Rel::Axes(out)
                    }
                    _ => Rel::Other { repeat },
                }
            }
            Lower::Reduce(_) => {
                let reduced = &self.groups[group.0 as usize].reduced;
                let over: Vec<usize> = reduction_axes(node);
                let keep = node.attrs.bool("keep");
                let (mut kept, mut inner) = (0, reduced.iter());
                Rel::Axes(
                    (0..operand.rank())
                        .map(|a| {
                            if over.contains(&a) {
                                if operand.shape[a].is_one() { None } else { inner.next().copied() }
                            } else {
                                let at = if keep { a } else { kept };
                                kept += 1;
                                axes[at]
                            }
                        })
                        .collect(),
                )
            }
            _ => Rel::Other { repeat: repeat || grows(func, node, i) },
        }
    }

    /// Whether computing a value with these axes in the group repeats work: it
    /// sits inside a loop it does not depend on.
    fn repeats(&self, axes: &[Option<usize>], group: GroupId) -> bool {
        let g = &self.groups[group.0 as usize];
        let order = loop_order(g);
        let on: BTreeSet<usize> = axes.iter().flatten().copied().collect();
        match order.iter().rposition(|a| on.contains(a)) {
            Some(deepest) => {
                order[..deepest].iter().any(|a| !on.contains(a) && !g.space[*a].is_one())
            }
            None => false,
        }
    }

    fn own_group(&mut self, id: NodeId, kind: GroupKind) {
        let node = &self.func.nodes[id];
        let group = GroupId(self.groups.len() as u32);
        let space = match (&kind, node.results.first()) {
            (GroupKind::Step(_), _) | (_, None) => vec![],
            (_, Some(v)) => self.func.ty(*v).shape.clone(),
        };
        let identity: Vec<Option<usize>> = unit_free(&space);
        let outputs = match &kind {
            GroupKind::Step(_) => vec![],
            _ => vec![(node.results[0], identity.clone())],
        };
        let mut members = BTreeSet::new();
        if !matches!(kind, GroupKind::Step(_)) {
            self.fused[id].stored = Some(group);
        }
        if matches!(kind, GroupKind::Kernel | GroupKind::Scan(_)) {
            let own = Pulls::from([0]);
            self.fused[id].inlined.push(Inlined {
                group,
                rel: Rel::Axes(identity),
                phases: 1,
                pulls: own,
            });
            members.insert(id);
        }
        self.groups.push(KernelGroup {
            exec: self.position[id],
            kind,
            root_rank: space.len(),
            space,
            reduced: vec![],
            members,
            outputs,
            irregular: false,
            device: self.device(id),
        });
    }

    fn visit_reshape(&mut self, id: NodeId, uses: Vec<Use>) {
        let mut needed: Option<u32> = None;
        for u in &uses {
            if let Use::Buffer(at) = u {
                needed = Some(needed.map_or(*at, |n| n.min(*at)));
            }
        }
        for here in by_group(&uses) {
            let group = &self.groups[here.group.0 as usize];
            if group.members.len() >= MAX_MEMBERS || here.pulls.len() > MAX_PULLS {
                let at = group.exec;
                needed = Some(needed.map_or(at, |n| n.min(at)));
                continue;
            }
            self.join(id, here);
        }
        if let Some(at) = needed {
            self.fused[id].alias = true;
            self.fused[id].needed = at;
        }
    }

    fn visit_contract(&mut self, id: NodeId, kind: Contraction, uses: Vec<Use>) {
        if let Some(Inlined { group: g, rel: Rel::Axes(axes), .. }) = single_group(&uses) {
            let group = &self.groups[g.0 as usize];
            let full = axes == unit_free(&group.space) && group.root_rank == group.space.len();
            let same = self.func.ty(self.func.nodes[id].results[0]).shape == group.space;
            let plain = group.kind == GroupKind::Kernel
                && group.reduced.is_empty()
                && !group.irregular
                && kind != Contraction::Conv2dGradInput
                && kind != Contraction::Conv2dGradFilter;
            let outputs = group.outputs.iter().all(|(_, a)| *a == unit_free(&group.space));
            if full && same && plain && outputs {
                let exec = group.exec;
                let device = self.device(id);
                let group = &mut self.groups[g.0 as usize];
                group.device = group.device.or(device);
                group.kind = GroupKind::Contract(id);
                self.fused[id].stored = Some(g);
                self.fused[id].needed = exec;
                group.outputs.push((self.func.nodes[id].results[0], axes));
                return;
            }
        }
        self.own_group(id, GroupKind::Contract(id));
    }

    /// Elementwise, movement, reductions.
    fn visit_loops(&mut self, id: NodeId, uses: Vec<Use>) {
        let node = &self.func.nodes[id];
        let (operands, result) = types(self.func, node);
        let cost = element_cost(node.op, &node.attrs, &operands, result);
        if let Some(here) = single_group(&uses) {
            if self.may_join(id, &here, &cost) {
                self.join(id, here);
                return;
            }
            self.own_group(id, GroupKind::Kernel);
            self.extend_for_reduce(id);
            return;
        }
        // Cheap: computed again in every group that uses it.
        let reduces = matches!(node.op.def().lower, Lower::Reduce(_));
        let above = self.users[node.results[0]].iter().map(|u| self.fused[*u].copied).max();
        let total = cost.ops.saturating_add(above.unwrap_or(0)).saturating_add(1);
        let groups = by_group(&uses);
        let nothing = self.reads_nothing(id, CHEAP) && cost.ops <= CHEAP;
        let little = total <= CHEAP && groups.len() <= MAX_COPIES;
        if !reduces && !cost.loops && (nothing || little) {
            let fits = groups.iter().all(|here| self.may_join(id, here, &cost));
            if fits && !uses.iter().any(|u| matches!(u, Use::Buffer(_))) {
                self.fused[id].copied = total;
                for here in groups {
                    self.join(id, here);
                }
                return;
            }
        }
        // A further output of the first group that needs it.
        let first = groups.iter().min_by_key(|here| self.groups[here.group.0 as usize].exec);
        if let Some(here) = first
            && let Rel::Axes(axes) = &here.rel
        {
            let g = here.group;
            let exec = self.groups[g.0 as usize].exec;
            let earliest = uses.iter().all(|u| match u {
                Use::In(other) => {
                    other.group == g || self.groups[other.group.0 as usize].exec > exec
                }
                Use::Buffer(at) => *at > exec,
            });
            let joins = self.may_join(id, here, &cost);
            if earliest && joins && self.may_store(id, &here.rel, axes, g) {
                let axes = axes.clone();
                // It is stored besides.
                self.join(id, Inlined { phases: here.phases | 1, ..here.clone() });
                self.fused[id].stored = Some(g);
                self.groups[g.0 as usize].outputs.push((node.results[0], axes));
                return;
            }
        }
        self.own_group(id, GroupKind::Kernel);
        self.extend_for_reduce(id);
    }

    /// Whether a value is made of literals, indices and single elements alone:
    /// masks, scales. No number of users makes it worth storing.
    fn reads_nothing(&self, id: NodeId, depth: u32) -> bool {
        let node = &self.func.nodes[id];
        let small = |v: &ValueId| {
            self.func.ty(*v).elements().is_one()
                || self.func.def(*v).is_some_and(|d| depth > 0 && self.reads_nothing(d, depth - 1))
        };
        let made = matches!(node.op.def().lower, Lower::Map(_) | Lower::Index(_) | Lower::Reshape);
        node.op.def().effect == Effect::Pure
            && (is_splat(node) || made && node.operands.iter().all(small))
    }

    /// Whether a group that a node may join can store its value: one per
    /// iteration of all its loops, or one per row.
    fn may_store(&self, id: NodeId, rel: &Rel, axes: &[Option<usize>], g: GroupId) -> bool {
        let group = &self.groups[g.0 as usize];
        let node = &self.func.nodes[id];
        // Rows are what reductions leave: those there are, or this one.
        let reduced = match node.op.def().lower {
            Lower::Reduce(_) => self.reduce_fits(node, g, rel).unwrap_or_default(),
            _ => group.reduced.clone(),
        };
        let on: Vec<usize> = axes.iter().flatten().copied().collect();
        let real = |keep: &dyn Fn(&usize) -> bool| -> Vec<usize> {
            (0..group.root_rank).filter(|a| !group.space[*a].is_one() && keep(a)).collect()
        };
        match &group.kind {
            GroupKind::Kernel => {
                on == real(&|_| true)
                    || (!reduced.is_empty() && on == real(&|a| !reduced.contains(a)))
            }
            GroupKind::Contract(_) => axes == unit_free(&group.space),
            _ => false,
        }
    }

    fn may_join(&self, id: NodeId, here: &Inlined, cost: &ElementCost) -> bool {
        let Inlined { group: g, rel, phases, pulls } = here;
        let (g, phases) = (*g, *phases);
        let group = &self.groups[g.0 as usize];
        let node = &self.func.nodes[id];
        if group.members.len() >= MAX_MEMBERS
            || pulls.len() > MAX_PULLS
            || matches!(group.kind, GroupKind::Step(_))
        {
            return false;
        }
        let repeat = match rel {
            Rel::Other { repeat } => *repeat,
            Rel::Axes(axes) => self.repeats(axes, g),
        };
        if matches!(node.op.def().lower, Lower::Reduce(_)) {
            // Its kept axes become the outer loops, so it runs once per row.
            // Two nestings at most: what a reduction needs is computed again in
            // the loop of each.
            return phases & !0b11 == 0 && self.reduce_fits(node, g, rel).is_some();
        }
        if matches!(group.kind, GroupKind::Contract(_)) && !matches!(rel, Rel::Axes(_)) {
            return false;
        }
        // Work that would be repeated must be little.
        let repeat = repeat || phases.count_ones() > 2;
        !repeat || repeats(cost)
    }

    /// The group axes a reduction would run over, if it can run once per row.
    fn reduce_fits(&self, node: &Node, g: GroupId, rel: &Rel) -> Option<Vec<usize>> {
        let group = &self.groups[g.0 as usize];
        let Rel::Axes(axes) = rel else { return None };
        if group.kind != GroupKind::Kernel || group.irregular {
            return None;
        }
        let from = self.func.ty(node.operands[0]);
        let over: Vec<Dim> = reduction_axes(node)
            .into_iter()
            .map(|a| from.shape[a].clone())
            .filter(|d| !d.is_one())
            .collect();
        let kept: BTreeSet<usize> = axes.iter().flatten().copied().collect();
        let result = self.func.ty(node.results[0]);
        // Every real axis of the result must move with a loop.
        let moving = result.shape.iter().filter(|d| !d.is_one()).count();
        if moving != kept.len() || moving != axes.iter().flatten().count() {
            return None;
        }
        let rest: Vec<usize> = (0..group.space.len())
            .filter(|a| !kept.contains(a) && !group.space[*a].is_one())
            .collect();
        if rest.is_empty() && group.reduced.is_empty() {
            // The group's loops are exactly the rows: the reduced axes are new.
            let first = group.space.len();
            return Some((first..first + over.len()).collect());
        }
        let sizes: Vec<Dim> = rest.iter().map(|a| group.space[*a].clone()).collect();
        if sizes != over || (!group.reduced.is_empty() && group.reduced != rest) {
            return None;
        }
        if kept.is_empty() && group.root_rank > 0 {
            let small = from.elements().as_const().is_some_and(|n| n <= SMALL_REDUCTION);
            if !small {
                return None;
            }
        }
        Some(rest)
    }

    /// A reduction that starts a group adds its reduced axes to the loops.
    fn extend_for_reduce(&mut self, id: NodeId) {
        let node = &self.func.nodes[id];
        if !matches!(node.op.def().lower, Lower::Reduce(_)) {
            return;
        }
        if let Some(here) = self.fused[id].inlined.first().cloned()
            && let Some(reduced) = self.reduce_fits(node, here.group, &here.rel)
        {
            self.set_reduced(id, here.group, reduced);
        }
    }

    fn set_reduced(&mut self, id: NodeId, g: GroupId, reduced: Vec<usize>) {
        let node = &self.func.nodes[id];
        let from = self.func.ty(node.operands[0]);
        let group = &mut self.groups[g.0 as usize];
        if reduced.first().is_some_and(|a| *a >= group.space.len()) {
            let over = reduction_axes(node).into_iter().map(|a| from.shape[a].clone());
            group.space.extend(over.filter(|d| !d.is_one()));
        }
        group.reduced = reduced;
    }

    fn join(&mut self, id: NodeId, here: Inlined) {
        let node = &self.func.nodes[id];
        let g = here.group;
        if matches!(node.op.def().lower, Lower::Reduce(_))
            && let Some(reduced) = self.reduce_fits(node, g, &here.rel)
        {
            self.set_reduced(id, g, reduced);
        }
        let device = self.device(id);
        let group = &mut self.groups[g.0 as usize];
        group.device = group.device.or(device);
        group.irregular |= matches!(here.rel, Rel::Other { .. });
        group.members.insert(id);
        self.fused[id].inlined.push(here);
    }
}

/// KernelGroup axes in the order their loops nest.
pub(crate) fn loop_order(g: &KernelGroup) -> Vec<usize> {
    let root = 0..g.root_rank;
    let mut order: Vec<usize> = root.clone().filter(|a| !g.reduced.contains(a)).collect();
    order.extend(root.filter(|a| g.reduced.contains(a)));
    order.extend(g.root_rank..g.space.len());
    order
}

pub(crate) fn reduction_axes(node: &Node) -> Vec<usize> {
    if node.attrs.get("axes").is_none() {
        return vec![node.attrs.int("axis").max(0) as usize];
    }
    let axes: BTreeSet<usize> = node.attrs.ints("axes").iter().map(|a| *a as usize).collect();
    axes.into_iter().collect()
}

/// The identity, with axes of size one standing still.
fn unit_free(shape: &[Dim]) -> Vec<Option<usize>> {
    shape.iter().enumerate().map(|(i, d)| (!d.is_one()).then_some(i)).collect()
}

/// Whether an op may ask for more elements than its operand has: windows that
/// overlap ask for each several times.
fn grows(func: &Func, node: &Node, i: usize) -> bool {
    let each = asks_of(func, node, i).elements.max(1);
    let (from, to) = (func.ty(node.operands[i]).elements(), func.ty(node.results[0]).elements());
    match (from.as_const(), to.as_const()) {
        (Some(a), Some(b)) => b.saturating_mul(each) > a,
        _ => from != to * Dim::constant(each),
    }
}

/// Types of the operands and the result.
fn types<'f>(func: &'f Func, node: &Node) -> (Vec<TensorType>, &'f TensorType) {
    let operands = node.operands.iter().map(|v| func.ty(*v).clone()).collect();
    (operands, func.ty(node.results[0]))
}

/// How an element of a node asks for an operand.
fn asks_of(func: &Func, node: &Node, i: usize) -> Asks {
    let (operands, result) = types(func, node);
    asks(node.op, &node.attrs, &operands, result).get(i).copied().unwrap_or_default()
}

/// Numbers for indices: equal steps from equal numbers give equal numbers.
fn mix(h: u64, by: u64) -> u64 {
    let x = (h ^ by.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(27);
    x.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (x >> 29)
}

fn merge(rels: Vec<Rel>) -> Rel {
    let mut rels = rels.into_iter();
    let Some(first) = rels.next() else { return Rel::Other { repeat: true } };
    if rels.all(|r| r == first) { first } else { Rel::Other { repeat: true } }
}

fn by_group(uses: &[Use]) -> Vec<Inlined> {
    let mut map: BTreeMap<GroupId, (Vec<Rel>, Phases, Pulls)> = BTreeMap::new();
    for u in uses {
        if let Use::In(here) = u {
            let (rels, phases, pulls) = map.entry(here.group).or_default();
            rels.push(here.rel.clone());
            *phases |= here.phases;
            pulls.extend(&here.pulls);
        }
    }
    let joined =
        |(group, (rels, phases, pulls))| Inlined { group, rel: merge(rels), phases, pulls };
    map.into_iter().map(joined).collect()
}

fn single_group(uses: &[Use]) -> Option<Inlined> {
    if uses.iter().any(|u| matches!(u, Use::Buffer(_))) {
        return None;
    }
    let mut groups = by_group(uses);
    if groups.len() == 1 { groups.pop() } else { None }
}

/// Whether a constant is one repeated value, so that kernels need no buffer.
pub(crate) fn is_splat(node: &Node) -> bool {
    node.op == Op::Const && node.attrs.tensor("value").is_some_and(|t| splat_scalar(t).is_some())
}
