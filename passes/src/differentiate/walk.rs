//! What lies between `wrt` and `y`.
//!
//! Values flow through operands, through what blocks of `if` and `while` use
//! from outside, from one iteration of a loop to the next, and through stacks. They
//! do not flow through variables: a read is given.

use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::Rewriter;
use tfc_ir::graph::Def;
use tfc_ir::op::{Effect, Grad};
use tfc_ir::stacks;
use tfc_ir::{Func, Node, NodeId, Op, RegionId, ValueId, VarId};

pub(super) struct Walk {
    /// Nodes `y` is computed from that depend on some `wrt`, in order: those of
    /// the region `grad` stands in and the ones around it.
    pub nodes: Vec<(RegionId, NodeId)>,
    /// Values some `wrt` reaches.
    pub depends: BTreeSet<ValueId>,
    /// As above, but not through ops whose derivative is zero.
    pub varies: BTreeSet<ValueId>,
    /// For each value that varies, the value it varies by: a way to `wrt`.
    pub via: BTreeMap<ValueId, ValueId>,
    /// Stacks through which something that varies comes to `y`.
    pub stacks: BTreeSet<String>,
    /// Reads of one variable with no write between them, mapped to one of them.
    pub same: BTreeMap<ValueId, ValueId>,
    links: Links,
}

/// Ways of values other than operands.
struct Links {
    /// The node each region belongs to.
    owner: BTreeMap<RegionId, NodeId>,
    /// Values put on each stack.
    pushed: BTreeMap<String, Vec<ValueId>>,
}

impl Walk {
    /// `written` are variables that a loop around the `grad` writes.
    pub fn new(r: &Rewriter<'_>, y: ValueId, wrt: &[ValueId], written: &[BTreeSet<VarId>]) -> Walk {
        let func = &r.new;
        let open = r.open_regions();
        let same = same_reads(func, &open, written);
        let canonical = |v: ValueId| same.get(&v).copied().unwrap_or(v);
        let targets: BTreeSet<ValueId> = wrt.iter().map(|v| canonical(*v)).collect();
        let mut links = Links { owner: BTreeMap::new(), pushed: BTreeMap::new() };
        let mut pushers: BTreeMap<String, BTreeSet<NodeId>> = BTreeMap::new();
        let mut place: BTreeMap<NodeId, (usize, RegionId)> = BTreeMap::new();
        for &region in &open {
            for &id in &func.regions[region].nodes {
                place.insert(id, (place.len(), region));
                deep(func, id, &mut |inner, node| {
                    links.owner.extend(node.regions.iter().map(|r| (*r, inner)));
                    if let (Op::StackPush, Some(name)) = (node.op, stacks::name(node)) {
                        let name = name.to_string();
                        pushers.entry(name.clone()).or_default().insert(id);
                        links.pushed.entry(name).or_default().push(node.operands[0]);
                    }
                });
            }
        }
        let mut cone: BTreeSet<(usize, NodeId)> = BTreeSet::new();
        let mut popped: BTreeSet<String> = BTreeSet::new();
        let mut todo: Vec<NodeId> = func.def(y).into_iter().collect();
        while let Some(id) = todo.pop() {
            let Some((at, _)) = place.get(&id) else { continue };
            if !cone.insert((*at, id)) {
                continue;
            }
            todo.extend(captured(func, id).into_iter().filter_map(|v| func.def(v)));
            deep(func, id, &mut |_, node| {
                if let (Op::StackPop, Some(name)) = (node.op, stacks::name(node)) {
                    popped.insert(name.to_string());
                    todo.extend(pushers.get(name).into_iter().flatten());
                }
            });
        }
        let mut a = Activity {
            func,
            same: &same,
            depends: targets.clone(),
            varies: targets.clone(),
            via: BTreeMap::new(),
            stack_depends: BTreeSet::new(),
            stack_varies: BTreeSet::new(),
        };
        a.settle(&mut |a| cone.iter().for_each(|(_, id)| a.node(*id)));
        let (depends, varies, via) = (a.depends, a.varies, a.via);
        let stacks = a.stack_varies.intersection(&popped).cloned().collect();
        let nodes = cone
            .iter()
            .filter(|(_, id)| {
                let node = &func.nodes[*id];
                let on = captured(func, *id).iter().any(|v| depends.contains(&canonical(*v)));
                let itself = node.results.iter().any(|v| targets.contains(&canonical(*v)));
                on || itself
                    || node.results.iter().any(|v| depends.contains(v))
                    || reads(func, *id).iter().any(|v| depends.contains(&canonical(*v)))
            })
            .map(|(_, id)| (place[id].1, *id))
            .collect();
        Walk { nodes, depends, varies, via, stacks, same, links }
    }

    pub fn canonical(&self, v: ValueId) -> ValueId {
        self.same.get(&v).copied().unwrap_or(v)
    }

    pub fn varies(&self, v: ValueId) -> bool {
        self.varies.contains(&self.canonical(v))
    }

    /// A copy of a value is to the walk what the value is.
    pub fn copied(&mut self, from: ValueId, to: ValueId) {
        for set in [&mut self.depends, &mut self.varies] {
            if set.contains(&from) {
                set.insert(to);
            }
        }
        if let Some(class) = self.same.get(&from).copied() {
            self.same.insert(to, class);
        }
    }

    /// Whether `from` is computed from `target` at all.
    pub fn reaches(&self, func: &Func, from: ValueId, target: ValueId) -> bool {
        self.search(func, from, target, &|v| self.depends.contains(&v), &|_| true).is_some()
    }

    /// Values from `from` down to `target`, ops of zero derivative left out.
    pub fn path(&self, func: &Func, from: ValueId, target: ValueId) -> Option<Vec<ValueId>> {
        let through = |n: &Node| !matches!(n.op.def().grad, Grad::Zero(_));
        self.search(func, from, target, &|v| self.varies.contains(&v), &through)
    }

    fn search(
        &self,
        func: &Func,
        from: ValueId,
        target: ValueId,
        inside: &dyn Fn(ValueId) -> bool,
        through: &dyn Fn(&Node) -> bool,
    ) -> Option<Vec<ValueId>> {
        let mut came: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut stack = vec![self.canonical(from)];
        let mut seen: BTreeSet<ValueId> = stack.iter().copied().collect();
        while let Some(v) = stack.pop() {
            if v == target {
                let mut path = vec![v];
                let mut at = v;
                while let Some(up) = came.get(&at) {
                    path.push(*up);
                    at = *up;
                }
                path.reverse();
                return Some(path);
            }
            for o in self.inputs(func, v, through) {
                let o = self.canonical(o);
                if inside(o) && seen.insert(o) {
                    came.insert(o, v);
                    stack.push(o);
                }
            }
        }
        None
    }

    /// Values that `v` is made of.
    fn inputs(&self, func: &Func, v: ValueId, through: &dyn Fn(&Node) -> bool) -> Vec<ValueId> {
        match func.values[v].def {
            Def::Node(id, i) => {
                let node = &func.nodes[id];
                if !through(node) {
                    return vec![];
                }
                let results = |r: &RegionId| func.regions[*r].results.get(i as usize).copied();
                match node.op {
                    Op::StackPop => {
                        let name = stacks::name(node).unwrap_or_default();
                        self.links.pushed.get(name).cloned().unwrap_or_default()
                    }
                    // The condition decides, so the results depend on it too.
                    Op::If => {
                        let mut out = node.operands.clone();
                        out.extend(node.regions.iter().filter_map(results));
                        out
                    }
                    Op::While => {
                        let mut out = vec![node.operands[i as usize]];
                        out.extend(node.regions[1..].iter().filter_map(results));
                        out.extend(func.regions[node.regions[0]].results.first());
                        out
                    }
                    _ => node.operands.clone(),
                }
            }
            Def::Param(region, i) => match self.links.owner.get(&region) {
                Some(owner) if func.nodes[*owner].op == Op::While => {
                    let node = &func.nodes[*owner];
                    let body = &func.regions[node.regions[1]];
                    vec![node.operands[i as usize], body.results[i as usize]]
                }
                _ => vec![],
            },
        }
    }
}

/// A node and everything in its regions.
pub(super) fn deep(func: &Func, id: NodeId, visit: &mut dyn FnMut(NodeId, &Node)) {
    let node = &func.nodes[id];
    visit(id, node);
    for &region in &node.regions {
        for &inner in &func.regions[region].nodes {
            deep(func, inner, visit);
        }
    }
}

/// Operands of a node and what its regions use from outside. A function with its
/// own gradient is opaque.
fn captured(func: &Func, id: NodeId) -> Vec<ValueId> {
    let node = &func.nodes[id];
    if node.op == Op::CustomGrad || node.regions.is_empty() {
        return node.operands.clone();
    }
    let mut defined: BTreeSet<ValueId> = BTreeSet::new();
    let mut used = node.operands.clone();
    deep(func, id, &mut |_, node| {
        defined.extend(&node.results);
        used.extend(&node.operands);
        for &r in &node.regions {
            defined.extend(&func.regions[r].params);
            used.extend(&func.regions[r].results);
        }
    });
    used.retain(|v| !defined.contains(v));
    used
}

/// What a node and its regions read of variables.
fn reads(func: &Func, id: NodeId) -> Vec<ValueId> {
    let mut out = vec![];
    deep(func, id, &mut |_, node| {
        if node.op.def().effect == Effect::Read {
            out.extend(&node.results);
        }
    });
    out
}

/// Variables a node and its regions write.
pub(super) fn writes(func: &Func, id: NodeId) -> BTreeSet<VarId> {
    let mut out = BTreeSet::new();
    deep(func, id, &mut |_, node| {
        if node.op.def().effect == Effect::Write {
            out.extend(node.var);
        }
    });
    out
}

/// Reads of one variable with no write between them, mapped to the first.
fn same_reads(
    func: &Func,
    open: &[RegionId],
    written: &[BTreeSet<VarId>],
) -> BTreeMap<ValueId, ValueId> {
    let mut reads = Reads { func, current: BTreeMap::new(), out: BTreeMap::new() };
    for (depth, &region) in open.iter().enumerate() {
        // A loop around starts with what its last iteration left.
        if let Some(vars) = depth.checked_sub(1).and_then(|d| written.get(d)) {
            reads.current.retain(|v, _| !vars.contains(v));
        }
        reads.region(region);
    }
    reads.out
}

struct Reads<'f> {
    func: &'f Func,
    current: BTreeMap<VarId, ValueId>,
    out: BTreeMap<ValueId, ValueId>,
}

impl Reads<'_> {
    fn region(&mut self, region: RegionId) {
        let func = self.func;
        for &id in &func.regions[region].nodes {
            let node = &func.nodes[id];
            if let (Effect::Read, Some(v)) = (node.op.def().effect, node.var) {
                let value = node.results[0];
                self.out.insert(value, *self.current.entry(v).or_insert(value));
            }
            if node.regions.is_empty() && node.op.def().effect != Effect::Write {
                continue;
            }
            let written = writes(func, id);
            if node.op == Op::While {
                self.current.retain(|v, _| !written.contains(v));
            }
            for &inner in &node.regions {
                // What one branch writes, the other does not see.
                let before = (node.op == Op::If).then(|| self.current.clone());
                self.region(inner);
                if let Some(before) = before {
                    let read = std::mem::replace(&mut self.current, before);
                    for (v, value) in read.into_iter().filter(|(v, _)| !written.contains(v)) {
                        self.current.entry(v).or_insert(value);
                    }
                }
            }
            self.current.retain(|v, _| !written.contains(v));
        }
    }
}

/// What depends on the targets, found by going over the nodes until nothing
/// changes.
struct Activity<'f> {
    func: &'f Func,
    same: &'f BTreeMap<ValueId, ValueId>,
    depends: BTreeSet<ValueId>,
    varies: BTreeSet<ValueId>,
    via: BTreeMap<ValueId, ValueId>,
    stack_depends: BTreeSet<String>,
    stack_varies: BTreeSet<String>,
}

impl Activity<'_> {
    fn canonical(&self, v: ValueId) -> ValueId {
        self.same.get(&v).copied().unwrap_or(v)
    }

    fn settle(&mut self, iteration: &mut dyn FnMut(&mut Self)) {
        loop {
            let size = |a: &Self| {
                [a.depends.len(), a.varies.len(), a.stack_depends.len(), a.stack_varies.len()]
            };
            let before = size(self);
            iteration(self);
            if size(self) == before {
                return;
            }
        }
    }

    fn pass(&mut self, from: ValueId, to: ValueId) {
        let from = self.canonical(from);
        if self.depends.contains(&from) {
            self.depends.insert(to);
        }
        if self.varies.contains(&from) && self.varies.insert(to) {
            self.via.insert(to, from);
        }
    }

    /// `to` depends on a condition, but does not vary with it.
    fn decided(&mut self, by: ValueId, to: ValueId) {
        if self.depends.contains(&self.canonical(by)) {
            self.depends.insert(to);
        }
    }

    fn region(&mut self, region: RegionId) {
        for &id in &self.func.regions[region].nodes {
            self.node(id);
        }
    }

    fn node(&mut self, id: NodeId) {
        let func = self.func;
        let node = &func.nodes[id];
        match node.op {
            Op::If => {
                for &r in &node.regions {
                    self.region(r);
                    for (from, to) in func.regions[r].results.iter().zip(&node.results) {
                        self.pass(*from, *to);
                        self.decided(node.operands[0], *to);
                    }
                }
            }
            Op::While => {
                let next = &func.regions[node.regions[1]].results;
                self.settle(&mut |a| {
                    for &r in &node.regions {
                        for (i, to) in func.regions[r].params.iter().enumerate() {
                            a.pass(node.operands[i], *to);
                            a.pass(next[i], *to);
                        }
                        a.region(r);
                    }
                });
                let more = func.regions[node.regions[0]].results[0];
                for (i, to) in node.results.iter().enumerate() {
                    self.pass(node.operands[i], *to);
                    self.pass(next[i], *to);
                    self.decided(more, *to);
                }
            }
            Op::StackPush => {
                let (x, name) = (self.canonical(node.operands[0]), node.attrs.str("stack"));
                if self.depends.contains(&x) {
                    self.stack_depends.insert(name.to_string());
                }
                if self.varies.contains(&x) {
                    self.stack_varies.insert(name.to_string());
                }
            }
            Op::StackPop => {
                let name = node.attrs.str("stack");
                if self.stack_depends.contains(name) {
                    self.depends.extend(&node.results);
                }
                if self.stack_varies.contains(name) {
                    self.varies.extend(&node.results);
                }
            }
            _ => {
                let zero = matches!(node.op.def().grad, Grad::Zero(_));
                for &to in &node.results {
                    for &from in &node.operands {
                        if zero {
                            self.decided(from, to);
                        } else {
                            self.pass(from, to);
                        }
                    }
                }
            }
        }
    }
}
