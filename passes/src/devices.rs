//! Which device of the process computes what, and copies between devices as nodes.
//!
//! There is something to say where `on` names a GPU, or the CPU in a program for GPUs; a
//! graph without is left as it is.
//!
//! What `on` says is kept. A variable is read and written where it is: where it was
//! placed, or else where it is first computed with. What only the CPU does stays there:
//! params, results, queues and readers, `print` and checks, files, messages, what a loop
//! keeps for its gradient. Any other node is where its largest operand on a GPU is, or
//! where it is used, or on the first GPU. A literal is nowhere: each device has its own
//! (inside loops and branches it says which).
//!
//! Loops and branches may be on several devices. What a loop carries, and what a branch
//! gives, is on the device of the `while` or `if` itself; the CPU asks the condition. What
//! a loop only reads is copied before it.
//!
//! Invariants
//! - Afterwards every variable and every node that is no literal has a device, and all
//!   operands of a node but a `copy` are on its own.
//! - A tensor is copied to a device once, unless in branches that exclude each other.

use crate::lower::placement;
use crate::pipeline::{PassOptions, Passed};
use crate::place::{is_everywhere, nominal, uses};
use crate::util::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::diag::Diag;
use tfc_ir::graph::Def;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::text::device;
use tfc_ir::{Attrs, Func, Graph, Node, NodeId, Op, RegionId, ValueId, VarId};

/// A device of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Local {
    Cpu,
    Gpu(u32),
}

/// Where what nothing places goes.
const FIRST: Local = Local::Gpu(0);

impl Local {
    /// The device that a name says, if it says one.
    pub fn of(name: Option<&str>) -> Option<Local> {
        let (kind, number) = match device::local(name?)?.split_once(':') {
            Some((kind, number)) => (kind, number.parse().ok()?),
            None => (device::local(name?)?, 0),
        };
        match kind {
            "/gpu" => Some(Local::Gpu(number)),
            _ => Some(Local::Cpu),
        }
    }

    pub fn name(self) -> String {
        match self {
            Local::Cpu => "/cpu:0".into(),
            Local::Gpu(number) => format!("/gpu:{number}"),
        }
    }

    fn gpu(self) -> Option<Local> {
        Some(self).filter(|l| *l != Local::Cpu)
    }
}

pub fn devices(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let named = placement::named(&graph);
    let gpus = named.iter().any(|d| *d != Local::Cpu);
    let apart = gpus || options.gpus && !named.is_empty();
    // Lowering says what is wrong with a placement that nothing can honour.
    if !apart || !placement::check(&graph).is_empty() {
        return Ok(Passed::new(graph, false));
    }
    let mut placer = Placer::new(&graph);
    placer.settle();
    let vars: BTreeMap<VarId, Local> =
        graph.vars.keys().map(|v| (v, placer.vars.get(&v).copied().unwrap_or(FIRST))).collect();
    let mut changed = false;
    let mut out = graph.clone();
    for (index, func) in out.entries.iter_mut().chain([&mut out.init]).enumerate() {
        let at = &placer.funcs[index].at;
        for (id, node) in func.nodes.iter_mut() {
            match at.get(&id) {
                Some(At::Undecided) => _ = rename(&mut node.device, FIRST),
                Some(At::Device(device)) => _ = rename(&mut node.device, *device),
                Some(At::Nowhere) => node.device = None,
                None => {}
            }
        }
        let owner = placer.funcs[index].owner.clone();
        Copies { vars: &graph.vars, func, owner }.entry().map_err(|Stop(diags)| diags)?;
        literals(func);
        changed |= graph.entries.iter().chain([&graph.init]).nth(index).is_some_and(|before| {
            let devices = |f: &Func| f.nodes.values().map(|n| n.device.clone()).collect::<Vec<_>>();
            let orders = |f: &Func| f.regions.values().map(|r| r.nodes.clone()).collect::<Vec<_>>();
            devices(before) != devices(func) || orders(before) != orders(func)
        });
    }
    for (id, var) in out.vars.iter_mut().filter(|(_, v)| v.symbol.is_variable()) {
        changed |= rename(&mut var.device, vars[&id]);
    }
    Ok(Passed::new(out, changed))
}

/// In a loop or branch, a node without `on` is where the loop or branch is. A literal is to
/// be where it is used: it says so there, or is made outside if that is in several places.
fn literals(func: &mut Func) {
    let mut order = vec![];
    func.walk(&mut |id, _| order.push(id));
    let body = func.body;
    let home: BTreeMap<NodeId, RegionId> = func
        .regions
        .iter()
        .filter(|(r, _)| *r != body)
        .flat_map(|(r, region)| region.nodes.iter().map(move |id| (*id, r)))
        .collect();
    let mut asked: BTreeMap<ValueId, BTreeSet<Option<Arc<str>>>> = BTreeMap::new();
    let on_cpu = |device: &Option<Arc<str>>| {
        let mut device = device.clone();
        rename(&mut device, Local::Cpu);
        device
    };
    for id in &order {
        let node = &func.nodes[*id];
        let step = &node.op.def().lower;
        for (i, region) in node.regions.iter().enumerate() {
            let condition = i == 0 && matches!(step, Lower::Step(StepKind::Loop));
            let device = if condition { on_cpu(&node.device) } else { node.device.clone() };
            for v in &func.regions[*region].results {
                asked.entry(*v).or_default().insert(device.clone());
            }
        }
    }
    let mut outside = vec![];
    for id in order.into_iter().rev() {
        let node = &func.nodes[id];
        let literal = node.device.is_none() && is_everywhere(func, node);
        let mut device = node.device.clone();
        if literal && home.contains_key(&id) {
            let users: BTreeSet<Option<Arc<str>>> =
                node.results.iter().filter_map(|v| asked.get(v)).flatten().cloned().collect();
            match users.iter().next() {
                Some(one @ Some(_)) if users.len() == 1 => device = one.clone(),
                // What is made outside takes only what is.
                _ => outside.push(id),
            }
        } else if matches!(node.op.def().lower, Lower::Step(StepKind::Branch)) {
            device = on_cpu(&device);
        }
        for v in &node.operands {
            asked.entry(*v).or_default().insert(device.clone());
        }
        if literal {
            func.nodes[id].device = device;
        }
    }
    for id in &outside {
        if let Some(region) = home.get(id) {
            func.regions[*region].nodes.retain(|n| n != id);
        }
        // From the last to the first, each before those that take it.
        func.regions[body].nodes.insert(0, *id);
    }
}

/// Gives something a device, on the task it is on; whether that is new.
fn rename(name: &mut Option<Arc<str>>, here: Local) -> bool {
    let old = name.as_deref().unwrap_or("");
    let task = device::local(old).map_or(old, |local| &old[..old.len() - local.len()]);
    let new = format!("{task}{}", here.name());
    let changed = old != new;
    *name = Some(Arc::from(new));
    changed
}

/// Where a node is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Made by every device that needs it.
    Nowhere,
    Undecided,
    Device(Local),
}

impl At {
    fn gpu(self) -> Option<Local> {
        match self {
            At::Device(local) => local.gpu(),
            _ => None,
        }
    }
}

/// What a node has to do with a variable, and where it may be.
enum Kind {
    /// With its variable.
    Var,
    /// Only the CPU does it.
    Kept,
    Free,
}

fn kind(node: &Node) -> Kind {
    match node.op.def().lower {
        Lower::Step(
            StepKind::Read | StepKind::Assign | StepKind::Update(_) | StepKind::ScatterRows { .. },
        ) => Kind::Var,
        Lower::Step(StepKind::Branch | StepKind::Loop) => Kind::Free,
        Lower::Step(_) | Lower::Call(..) => Kind::Kept,
        _ => Kind::Free,
    }
}

/// A function: its nodes in order, those of regions too, and who uses what.
struct Placed<'a> {
    func: &'a Func,
    order: Vec<NodeId>,
    at: BTreeMap<NodeId, At>,
    /// The node that a region belongs to.
    owner: BTreeMap<RegionId, NodeId>,
    users: BTreeMap<ValueId, Vec<NodeId>>,
}

impl Placed<'_> {
    fn value(&self, v: ValueId) -> At {
        match self.func.values[v].def {
            Def::Node(id, _) => self.at.get(&id).copied().unwrap_or(At::Nowhere),
            Def::Param(region, _) => match self.owner.get(&region) {
                Some(owner) => self.at.get(owner).copied().unwrap_or(At::Undecided),
                None => At::Device(Local::Cpu),
            },
        }
    }
}

struct Placer<'a> {
    graph: &'a Graph,
    vars: BTreeMap<VarId, Local>,
    /// Entries, then the initialiser.
    funcs: Vec<Placed<'a>>,
}

impl<'a> Placer<'a> {
    fn new(graph: &'a Graph) -> Placer<'a> {
        let vars = graph.vars.iter().filter_map(|(id, var)| {
            let kept = (!var.symbol.is_variable()).then_some(Local::Cpu);
            Some((id, kept.or(Local::of(var.device.as_deref()))?))
        });
        let vars = vars.collect();
        let funcs = graph.entries.iter().chain([&graph.init]).map(|func| {
            let (at, owner, users) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let mut placed = Placed { func, order: vec![], at, owner, users };
            func.walk(&mut |id, node| {
                placed.order.push(id);
                for region in &node.regions {
                    placed.owner.insert(*region, id);
                    for v in &func.regions[*region].results {
                        placed.users.entry(*v).or_default().push(id);
                    }
                }
                for v in &node.operands {
                    placed.users.entry(*v).or_default().push(id);
                }
                let said = Local::of(node.device.as_deref());
                let at = match (kind(node), said) {
                    _ if is_everywhere(func, node) => At::Nowhere,
                    (Kind::Kept, _) => At::Device(Local::Cpu),
                    (Kind::Free, Some(local)) => At::Device(local),
                    _ => At::Undecided,
                };
                placed.at.insert(id, at);
            });
            placed
        });
        Placer { graph, vars, funcs: funcs.collect() }
    }

    /// Decides what follows from what is decided, until nothing more does: along the
    /// graph first, and against it only where that leaves something open.
    fn settle(&mut self) {
        loop {
            let mut changed = false;
            for f in 0..self.funcs.len() {
                for i in 0..self.funcs[f].order.len() {
                    changed |= self.forward(f, self.funcs[f].order[i]);
                }
            }
            if changed {
                continue;
            }
            for f in 0..self.funcs.len() {
                for i in (0..self.funcs[f].order.len()).rev() {
                    changed |= self.backward(f, self.funcs[f].order[i]);
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn forward(&mut self, f: usize, id: NodeId) -> bool {
        let placed = &self.funcs[f];
        let node = &placed.func.nodes[id];
        let open = placed.at[&id] == At::Undecided;
        let gpu = || {
            let size = |v: &ValueId| nominal(self.graph, &placed.func.ty(*v).elements());
            let there = |v: &ValueId| Some((size(v), placed.value(*v).gpu()?));
            let found = node.operands.iter().filter_map(there);
            // Of equal ones the first.
            found.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, local)| local)
        };
        match (kind(node), node.var) {
            (Kind::Var, Some(var)) => {
                let said = || Local::of(node.device.as_deref()).and_then(Local::gpu);
                if !self.vars.contains_key(&var)
                    && let Some(local) = gpu().or_else(said)
                {
                    self.vars.insert(var, local);
                }
                match self.vars.get(&var) {
                    Some(local) if open => self.decide(f, id, *local),
                    _ => false,
                }
            }
            _ if open => gpu().is_some_and(|local| self.decide(f, id, local)),
            _ => false,
        }
    }

    fn backward(&mut self, f: usize, id: NodeId) -> bool {
        let placed = &self.funcs[f];
        if placed.at[&id] != At::Undecided {
            return false;
        }
        let node = &placed.func.nodes[id];
        let users = node.results.iter().flat_map(|v| placed.users.get(v).into_iter().flatten());
        let there =
            users.filter_map(|user| match (kind(&placed.func.nodes[*user]), placed.at[user]) {
                // What a variable is given is computed where it is.
                (Kind::Var, At::Device(local)) => Some(local),
                (_, at) => at.gpu(),
            });
        let Some(local) = there.min_by_key(|l| (*l == Local::Cpu, *l)) else { return false };
        if let (Kind::Var, Some(var)) = (kind(node), node.var) {
            self.vars.entry(var).or_insert(local);
        }
        self.decide(f, id, local)
    }

    fn decide(&mut self, f: usize, id: NodeId, local: Local) -> bool {
        self.funcs[f].at.insert(id, At::Device(local));
        true
    }
}

/// Puts copies where operands are elsewhere.
struct Copies<'a> {
    vars: &'a cranelift_entity::PrimaryMap<VarId, tfc_ir::graph::Var>,
    func: &'a mut Func,
    owner: BTreeMap<RegionId, NodeId>,
}

/// What stands for a value on a device.
type Known = BTreeMap<(ValueId, Local), ValueId>;

impl Copies<'_> {
    fn entry(&mut self) -> Result<(), Stop> {
        let body = self.func.body;
        let mut known = Known::new();
        self.region(body, &mut known)?;
        let wanted = vec![Local::Cpu; self.func.regions[body].results.len()];
        self.results(body, &wanted, &mut known)
    }

    /// Where a value is; nothing for a literal.
    fn place(&self, v: ValueId) -> Option<Local> {
        match self.func.values[v].def {
            Def::Node(id, _) => Local::of(self.func.nodes[id].device.as_deref()),
            Def::Param(region, _) => match self.owner.get(&region) {
                Some(owner) => Local::of(self.func.nodes[*owner].device.as_deref()),
                None => Some(Local::Cpu),
            },
        }
    }

    fn region(&mut self, region: RegionId, known: &mut Known) -> Result<(), Stop> {
        for id in std::mem::take(&mut self.func.regions[region].nodes) {
            let here = Local::of(self.func.nodes[id].device.as_deref());
            let step = match self.func.nodes[id].op.def().lower {
                Lower::Step(step) => Some(step),
                _ => None,
            };
            // A literal takes only literals, and a copy whatever there is.
            if let Some(here) = here
                && self.func.nodes[id].op != Op::Copy
            {
                let wanted = if step == Some(StepKind::Branch) { Local::Cpu } else { here };
                for i in 0..self.func.nodes[id].operands.len() {
                    let v = self.func.nodes[id].operands[i];
                    let v = self.at(v, wanted, region, id, known)?;
                    self.func.nodes[id].operands[i] = v;
                }
                if step == Some(StepKind::Loop) {
                    self.hoist(id, region, known)?;
                }
                for (i, inner) in self.func.nodes[id].regions.clone().into_iter().enumerate() {
                    let mut inside = known.clone();
                    self.region(inner, &mut inside)?;
                    let asked = step == Some(StepKind::Loop) && i == 0;
                    let wanted = if asked { Local::Cpu } else { here };
                    let wanted = vec![wanted; self.func.regions[inner].results.len()];
                    self.results(inner, &wanted, &mut inside)?;
                }
            }
            self.func.regions[region].nodes.push(id);
        }
        Ok(())
    }

    /// Copies what a loop only reads before it.
    fn hoist(&mut self, id: NodeId, region: RegionId, known: &mut Known) -> Result<(), Stop> {
        let outside = uses(self.func, &self.func.nodes[id]);
        let mut inside: Vec<(ValueId, Local)> = vec![];
        let mut stack = self.func.nodes[id].regions.clone();
        while let Some(r) = stack.pop() {
            for inner in &self.func.regions[r].nodes {
                let node = &self.func.nodes[*inner];
                let here = Local::of(node.device.as_deref()).filter(|_| node.op != Op::Copy);
                let operands = node.operands.iter().filter(|v| outside.contains(v));
                inside
                    .extend(here.into_iter().flat_map(|h| operands.clone().map(move |v| (*v, h))));
                stack.extend(&node.regions);
            }
        }
        inside.sort();
        for (v, here) in inside {
            self.at(v, here, region, id, known)?;
        }
        Ok(())
    }

    fn results(
        &mut self,
        region: RegionId,
        wanted: &[Local],
        known: &mut Known,
    ) -> Result<(), Stop> {
        for (i, wanted) in wanted.iter().enumerate() {
            let v = self.func.regions[region].results[i];
            let Some(from) = self.func.def(v).or_else(|| self.any(region)) else { continue };
            let v = self.at(v, *wanted, region, from, known)?;
            self.func.regions[region].results[i] = v;
        }
        Ok(())
    }

    /// Some node of a region, for its place in the text.
    fn any(&self, region: RegionId) -> Option<NodeId> {
        self.func.regions[region].nodes.last().copied()
    }

    /// A value on a device, copied if it is elsewhere; `from` is who asks.
    fn at(
        &mut self,
        v: ValueId,
        wanted: Local,
        region: RegionId,
        from: NodeId,
        known: &mut Known,
    ) -> Result<ValueId, Stop> {
        let Some(place) = self.place(v).filter(|p| *p != wanted) else { return Ok(v) };
        if let Some(copy) = known.get(&(v, wanted)) {
            return Ok(*copy);
        }
        debug_assert_ne!(place, wanted);
        let mut origin = self.func.nodes[from].origin();
        rename(&mut origin.device, wanted);
        let spec = NodeSpec::new(Op::Copy, &[v], Attrs::none(), origin.span);
        let mut builder = Builder { func: self.func, vars: self.vars, region, origin };
        let node = builder.node(spec)?;
        let copy = self.func.nodes[node].results[0];
        known.insert((v, wanted), copy);
        Ok(copy)
    }
}
