//! What the forward pass keeps for the backward pass.
//!
//! The backward pass of a region uses values of that region, which are gone by then
//! (and may have had many values, one in each iteration). Of these a smallest set is
//! put on stacks by the forward pass and taken off by the backward pass; the others
//! are computed again from them. The set is a minimum cut, by bytes, between
//! what cannot be computed again and what is used.
//!
//! Invariants
//! - Values from around the region are in scope of the backward pass as well, and are
//!   never kept: what does not change in a loop is there anyway.
//! - Conditions are kept as they were, so that both ways take the same branch.

use super::Record;
use super::reverse::Reverse;
use crate::mincut::{Flow, SINK, SOURCE, bytes, cheap};
use crate::util::Stop;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::{NodeSpec, Origin};
use tfc_ir::op::{Effect, Moves};
use tfc_ir::{DType, Func, Node, NodeId, RegionId, ValueId};

impl Reverse<'_, '_> {
    /// Makes the region `back` well-formed: it uses values of the region `of`,
    /// whose backward pass it is.
    pub fn finish(&mut self, of: RegionId, back: RegionId) -> Result<(), Stop> {
        sweep(&mut self.r.new, back);
        let func = &self.r.new;
        let source = func.regions[of].clone();
        let mut inside: BTreeSet<ValueId> = source.params.iter().copied().collect();
        inside.extend(source.nodes.iter().flat_map(|n| &func.nodes[*n].results));
        let mut used = BTreeSet::new();
        uses(func, back, &mut used);
        let needed: BTreeSet<ValueId> = used.intersection(&inside).copied().collect();
        if needed.is_empty() {
            return Ok(());
        }
        let values = self.reachable(&inside, &needed);
        let keep = self.cut(&values, &needed);
        let first = self.r.new.regions[back].nodes.len();
        let outer = std::mem::replace(&mut self.r.region, back);
        let mut map = BTreeMap::new();
        for &v in &keep {
            let name = self.record.stack(&self.r.new, "save", v);
            let (ty, at) = (self.r.new.ty(v).clone(), self.origin(v));
            let value = self.pop(&name, &ty, &at)?;
            map.insert(v, value);
            self.keep(of, v, &name)?;
        }
        let again = again(&self.r.new, &values, &needed, &keep);
        for id in source.nodes {
            let node = self.r.new.nodes[id].clone();
            let Some(&v) = node.results.first().filter(|v| again.contains(v)) else { continue };
            let operands: Vec<ValueId> =
                node.operands.iter().map(|o| map.get(o).copied().unwrap_or(*o)).collect();
            let origin = node.origin();
            let mut spec = NodeSpec::new(node.op, &operands, node.attrs, node.span);
            spec.var = node.var;
            let copy = self.r.builder(&origin).node(spec)?;
            map.insert(v, self.r.new.nodes[copy].results[0]);
        }
        self.r.region = outer;
        let nodes = &mut self.r.new.regions[back].nodes;
        let added = nodes.len() - first;
        nodes.rotate_right(added);
        replace(&mut self.r.new, back, &map);
        Ok(())
    }

    /// Needed values and all that could be computed again on the way to them.
    fn reachable(
        &self,
        inside: &BTreeSet<ValueId>,
        needed: &BTreeSet<ValueId>,
    ) -> BTreeSet<ValueId> {
        let mut values = BTreeSet::new();
        let mut stack: Vec<ValueId> = needed.iter().copied().collect();
        while let Some(v) = stack.pop() {
            if inside.contains(&v)
                && values.insert(v)
                && let Some(node) = self.repeatable(v)
            {
                stack.extend(&node.operands);
            }
        }
        values
    }

    /// The node to compute a value again with, if that is allowed and cheap.
    fn repeatable(&self, v: ValueId) -> Option<&Node> {
        let node = self.r.def(v)?;
        // The ways must agree on every decision to the last bit.
        let ty = self.r.new.ty(v);
        let decision = ty.dtype == DType::Bool && ty.rank() == 0;
        let looks_up = node.op.def().facts.moves == Moves::Picked;
        let unchanged = node.op.def().effect == Effect::Read
            && node.var.is_some_and(|var| !self.written.contains(&var));
        (!decision && (cheap(node) || looks_up || unchanged)).then_some(node)
    }

    fn cut(&self, values: &BTreeSet<ValueId>, needed: &BTreeSet<ValueId>) -> BTreeSet<ValueId> {
        let number: BTreeMap<ValueId, usize> =
            values.iter().enumerate().map(|(i, v)| (*v, 2 + 2 * i)).collect();
        let mut flow = Flow::new(2 + 2 * values.len());
        for (v, &at) in &number {
            flow.edge(at, at + 1, bytes(&self.r.new, *v).max(1));
            match self.repeatable(*v) {
                Some(node) => {
                    for from in node.operands.iter().filter_map(|o| number.get(o)) {
                        flow.edge(from + 1, at, i64::MAX);
                    }
                }
                None => flow.edge(SOURCE, at, i64::MAX),
            }
            if needed.contains(v) {
                flow.edge(at + 1, SINK, i64::MAX);
            }
        }
        flow.run();
        let near = flow.reaches_sink();
        number.iter().filter(|(_, at)| near[**at + 1] && !near[**at]).map(|(v, _)| *v).collect()
    }

    /// Puts a value on a stack where it is made.
    fn keep(&mut self, of: RegionId, v: ValueId, name: &str) -> Result<(), Stop> {
        let at = self.origin(v);
        let def = self.r.new.def(v);
        let outer = std::mem::replace(&mut self.r.region, of);
        self.push(name, v, &at)?;
        self.r.region = outer;
        let nodes = &mut self.r.new.regions[of].nodes;
        let place = nodes.iter().position(|n| Some(*n) == def).map_or(0, |p| p + 1);
        nodes[place..].rotate_right(1);
        Ok(())
    }

    fn origin(&self, v: ValueId) -> Origin {
        self.r.def(v).unwrap_or(self.grad).origin()
    }
}

impl Record {
    /// A new stack for the values of `v`.
    pub fn stack(&mut self, func: &Func, kind: &str, v: ValueId) -> String {
        match &func.values[v].name {
            Some(name) => self.unique(func, &format!("{kind}.{name}")),
            None => self.unique(func, kind),
        }
    }

    /// A name no stack of the function has.
    pub fn unique(&mut self, func: &Func, base: &str) -> String {
        if self.names.is_empty() {
            for node in func.nodes.values() {
                self.names.extend(tfc_ir::stacks::name(node).map(str::to_string));
            }
        }
        let mut n = 1;
        let mut name = base.to_string();
        while !self.names.insert(name.clone()) {
            n += 1;
            name = format!("{base}.{n}");
        }
        name
    }

    /// How many iterations may be kept at a time, if memory is bounded.
    pub fn every(&self, func: &Func, body: RegionId) -> Option<i64> {
        let budget = i64::try_from(self.loop_memory?).unwrap_or(i64::MAX);
        let mut iteration = 0i64;
        let mut add = |v: ValueId| iteration = iteration.saturating_add(bytes(func, v));
        func.regions[body].params.iter().for_each(|v| add(*v));
        for &id in &func.regions[body].nodes {
            super::walk::deep(func, id, &mut |_, node| {
                if !cheap(node) && node.op.def().effect == Effect::Pure {
                    node.results.iter().for_each(|v| add(*v));
                }
            });
        }
        Some((budget / iteration.max(1)).max(1))
    }
}

/// Values needed that are not kept, and what they are computed from.
fn again(
    func: &Func,
    values: &BTreeSet<ValueId>,
    needed: &BTreeSet<ValueId>,
    keep: &BTreeSet<ValueId>,
) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    let mut stack: Vec<ValueId> = needed.iter().copied().collect();
    while let Some(v) = stack.pop() {
        if values.contains(&v)
            && !keep.contains(&v)
            && out.insert(v)
            && let Some(def) = func.def(v)
        {
            stack.extend(&func.nodes[def].operands);
        }
    }
    out
}

/// Drops nodes of a region that nothing uses.
fn sweep(func: &mut Func, region: RegionId) {
    let mut used: BTreeSet<ValueId> = func.regions[region].results.iter().copied().collect();
    let mut kept: Vec<NodeId> = vec![];
    for &id in func.regions[region].nodes.iter().rev() {
        let mut acts = false;
        super::walk::deep(func, id, &mut |_, node| {
            acts |= !matches!(node.op.def().effect, Effect::Pure | Effect::Regions | Effect::Read);
        });
        if acts || func.nodes[id].results.iter().any(|v| used.contains(v)) {
            node_uses(func, id, &mut used);
            kept.push(id);
        }
    }
    kept.reverse();
    func.regions[region].nodes = kept;
}

fn uses(func: &Func, region: RegionId, used: &mut BTreeSet<ValueId>) {
    used.extend(&func.regions[region].results);
    for &id in &func.regions[region].nodes {
        node_uses(func, id, used);
    }
}

fn node_uses(func: &Func, id: NodeId, used: &mut BTreeSet<ValueId>) {
    used.extend(&func.nodes[id].operands);
    for &region in &func.nodes[id].regions {
        uses(func, region, used);
    }
}

fn replace(func: &mut Func, region: RegionId, map: &BTreeMap<ValueId, ValueId>) {
    let swap = |v: &mut ValueId| {
        if let Some(new) = map.get(v) {
            *v = *new;
        }
    };
    func.regions[region].results.iter_mut().for_each(swap);
    for id in func.regions[region].nodes.clone() {
        func.nodes[id].operands.iter_mut().for_each(swap);
        for inner in func.nodes[id].regions.clone() {
            replace(func, inner, map);
        }
    }
}
