//! The walk backwards, region by region.
//!
//! A region is walked backwards into a region of its own: the backward pass of an
//! `if` is an `if` on the same condition, that of a `while` is a `while` that
//! counts its iterations down. What blocks use from outside gets its gradient as a
//! result of the backward pass; in a loop it is carried along and added to, so that
//! its cost is that of one iteration.
//!
//! While a backward pass is built it uses values of the forward pass as if they were
//! in scope. [`super::save`] makes that true when the region is finished.
//!
//! Invariants
//! - A node of the backward pass stands where everything around the node it belongs
//!   to can be used.
//! - If a stack is differentiated, every `stack_pop` of it puts one gradient on
//!   the stack's own stack of gradients, and every `stack_push` takes one off.

use super::walk::{self, Walk};
use super::{Record, errors, scattered};
use crate::util::Stop;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::{GraphEmit, NodeSpec, Origin, Rewriter};
use tfc_ir::graph::{Def, Region, Value};
use tfc_ir::op::{Effect, Grad, Stage};
use tfc_ir::vjp::{Emit, V, VjpArgs, term_attrs};
use tfc_ir::{Attr, Attrs, DType, Node, NodeId, Op, RegionId, Tensor, TensorType, ValueId, VarId};

/// Contributions to the gradient of each value.
pub(super) type Parts = BTreeMap<ValueId, Vec<ValueId>>;

pub(super) struct Reverse<'r, 'a> {
    pub r: &'r mut Rewriter<'a>,
    pub record: &'r mut Record,
    pub walk: Walk,
    pub y: ValueId,
    /// The `grad` node, for messages.
    pub grad: &'r Node,
    /// Leave gradient terms for the e-graph; never inside regions, where what a
    /// term might need would have to be kept.
    pub terms: bool,
    pub parts: Parts,
    pub totals: BTreeMap<ValueId, ValueId>,
    /// Stacks of gradients, by the stack whose items they are of.
    pub stacks: BTreeMap<String, String>,
    /// Variables written before the backward pass, or in a loop around it.
    pub written: BTreeSet<VarId>,
}

impl Reverse<'_, '_> {
    /// The backward pass of one node of the region `at`.
    pub fn node(&mut self, at: RegionId, id: NodeId) -> Result<(), Stop> {
        let node = self.r.new.nodes[id].clone();
        match node.op {
            Op::If => return self.branch(id),
            Op::While => return self.repeat(at, id),
            Op::StackPush => return self.unpush(&node),
            Op::StackPop => return self.unpop(&node),
            // Reads of a variable are one value: the last to be reached has all.
            _ if node.op.def().effect == Effect::Read => return Ok(()),
            _ => {}
        }
        let [out] = node.results[..] else { return Ok(()) };
        let Some(ct) = self.take(out)? else { return Ok(()) };
        match &node.op.def().grad {
            Grad::Zero(_) => {}
            Grad::Structural if node.op == Op::CustomGrad => {
                let mut args = node.operands.clone();
                args.extend([out, ct]);
                let given = self.r.inline(node.regions[1], &args)?;
                let floats: Vec<ValueId> = node
                    .operands
                    .iter()
                    .filter(|v| self.r.new.ty(**v).dtype.is_float())
                    .copied()
                    .collect();
                for (operand, part) in floats.into_iter().zip(given) {
                    self.add(operand, part);
                }
            }
            Grad::Structural => {}
            Grad::Undefined(why) => {
                if node.operands.iter().any(|v| self.walk.varies(*v)) {
                    return Err(errors::undefined(self, out, why));
                }
            }
            Grad::Vjp(vjp) => {
                for (i, &operand) in node.operands.iter().enumerate() {
                    if !self.walk.varies(operand) || !self.r.new.ty(operand).dtype.is_float() {
                        continue;
                    }
                    // An op that is gone after this pass is no term for later ones.
                    let terms = self.terms && node.op.def().stage == Stage::Core;
                    let part = self.emit(&node.origin(), &mut |e| {
                        let operands: Vec<V> = node.operands.iter().map(|v| e.opaque(*v)).collect();
                        let (o, c) = (e.opaque(out), e.opaque(ct));
                        if terms {
                            let mut all = operands.clone();
                            all.extend([o, c]);
                            return Some(e.emit(
                                Op::Vjp,
                                &all,
                                term_attrs(node.op, i, &node.attrs),
                            ));
                        }
                        let args =
                            VjpArgs { operands: &operands, out: o, ct: c, attrs: &node.attrs };
                        vjp(e, &args, i)
                    })?;
                    if let Some(part) = part {
                        self.add(operand, part);
                    }
                }
            }
        }
        Ok(())
    }

    /// Builds with the shorthands of gradients.
    pub fn emit(
        &mut self,
        at: &Origin,
        build: &mut dyn FnMut(&GraphEmit<'_, '_>) -> Option<V>,
    ) -> Result<Option<ValueId>, Stop> {
        let mut b = self.r.builder(at);
        let e = GraphEmit::new(&mut b);
        let v = build(&e).map(|v| e.value(v));
        e.finish()?;
        Ok(v)
    }

    /// A contribution to the gradient of `v`, if it has one.
    fn add(&mut self, v: ValueId, part: ValueId) {
        if self.walk.varies(v) && self.r.new.ty(v).dtype.is_float() {
            self.parts.entry(self.walk.canonical(v)).or_default().push(part);
        }
    }

    /// The gradient that arrived at `v`: all of it, as its uses were before.
    fn take(&mut self, v: ValueId) -> Result<Option<ValueId>, Stop> {
        let key = self.walk.canonical(v);
        let Some(list) = self.parts.remove(&key) else { return Ok(None) };
        let at = self.r.def(v).map(Node::origin).unwrap_or_default();
        let total = self.sum(&at, list)?;
        self.totals.insert(key, total);
        Ok(Some(total))
    }

    pub fn sum(&mut self, at: &Origin, list: Vec<ValueId>) -> Result<ValueId, Stop> {
        let mut list = list.into_iter();
        let Some(mut total) = list.next() else { unreachable!("a value without contributions") };
        for part in list {
            total = self.r.builder(at).emit(Op::Add, &[total, part], Attrs::none())?;
        }
        Ok(total)
    }

    pub fn zeros(&mut self, at: &Origin, ty: &TensorType) -> Result<ValueId, Stop> {
        let zeros = self.emit(at, &mut |e| {
            let e: &dyn Emit = e;
            Some(e.splat(0.0, ty.dtype, &ty.shape))
        })?;
        Ok(zeros.unwrap_or_else(|| unreachable!("zeros are always made")))
    }

    pub fn ones(&mut self, at: &Origin, like: ValueId) -> Result<ValueId, Stop> {
        let ty = self.r.new.ty(like).clone();
        let ones = self.emit(at, &mut |e| {
            let e: &dyn Emit = e;
            Some(e.splat(1.0, ty.dtype, &ty.shape))
        })?;
        Ok(ones.unwrap_or_else(|| unreachable!("ones are always made")))
    }

    fn count(&mut self, at: &Origin, value: f64) -> Result<ValueId, Stop> {
        let t = Tensor::splat(DType::I64, vec![], value);
        let attrs = Attrs::none().with("value", Attr::Tensor(t.into()));
        Ok(self.r.builder(at).emit(Op::Const, &[], attrs)?)
    }

    /// A new region, entered; gives it and the one around.
    fn enter(&mut self) -> (RegionId, RegionId) {
        let new = self.r.new.regions.push(Region::default());
        (new, std::mem::replace(&mut self.r.region, new))
    }

    /// Whether a node works on stacks whose gradients are wanted.
    fn stacked(&self, id: NodeId) -> bool {
        let mut found = false;
        walk::deep(&self.r.new, id, &mut |_, node| {
            found |= tfc_ir::stacks::name(node).is_some_and(|s| self.walk.stacks.contains(s));
        });
        found
    }

    /// Walks a region backwards into the current one, with these gradients of
    /// some values in it; gives what is left: contributions to its parameters
    /// and to values from outside.
    fn region(&mut self, of: RegionId, seeds: &[(ValueId, ValueId)]) -> Result<Parts, Stop> {
        let outer = std::mem::take(&mut self.parts);
        let totals = std::mem::take(&mut self.totals);
        let terms = std::mem::replace(&mut self.terms, false);
        for (v, ct) in seeds {
            self.add(*v, *ct);
        }
        for id in self.r.new.regions[of].nodes.clone().into_iter().rev() {
            self.node(of, id)?;
        }
        (self.terms, self.totals) = (terms, totals);
        Ok(std::mem::replace(&mut self.parts, outer))
    }

    /// The branch taken is the one to go back through.
    fn branch(&mut self, id: NodeId) -> Result<(), Stop> {
        let node = self.r.new.nodes[id].clone();
        let mut cts = vec![];
        for &v in &node.results {
            cts.push(self.take(v)?);
        }
        if cts.iter().all(Option::is_none) && !self.stacked(id) {
            return Ok(());
        }
        let mut sides = vec![];
        for &of in &node.regions {
            let (back, outer) = self.enter();
            let results = self.r.new.regions[of].results.clone();
            let seeds: Vec<(ValueId, ValueId)> =
                results.into_iter().zip(&cts).filter_map(|(v, ct)| Some((v, (*ct)?))).collect();
            let left = self.region(of, &seeds)?;
            self.r.region = outer;
            sides.push((of, back, left));
        }
        let keys: BTreeSet<ValueId> =
            sides.iter().flat_map(|(_, _, left)| left.keys().copied()).collect();
        let mut regions = vec![];
        for (of, back, mut left) in sides {
            let outer = std::mem::replace(&mut self.r.region, back);
            let mut results = vec![];
            for k in &keys {
                results.push(match left.remove(k) {
                    Some(list) => self.sum(&node.origin(), list)?,
                    None => {
                        let ty = self.r.new.ty(*k).clone();
                        self.zeros(&node.origin(), &ty)?
                    }
                });
            }
            self.r.new.regions[back].results = results;
            self.r.region = outer;
            self.finish(of, back)?;
            regions.push(back);
        }
        let mut spec = NodeSpec::new(Op::If, &node.operands, Attrs::none(), node.span);
        spec.regions = regions;
        let back = self.r.builder(&node.origin()).node(spec)?;
        let results = self.r.new.nodes[back].results.clone();
        for (k, v) in keys.into_iter().zip(results) {
            self.parts.entry(k).or_default().push(v);
        }
        Ok(())
    }

    /// The iterations, last first.
    fn repeat(&mut self, at: RegionId, id: NodeId) -> Result<(), Stop> {
        let node = self.r.new.nodes[id].clone();
        let reached = node.results.iter().any(|v| self.parts.contains_key(v));
        if !reached && !self.stacked(id) {
            return Ok(());
        }
        let every = self.every(id);
        let trips = self.trips(at, id)?;
        let kept = match every {
            Some(every) => self.checkpoint(id, every)?,
            None => vec![],
        };
        let node = self.r.new.nodes[id].clone();
        let body = node.regions[1];
        // Carried values that have a gradient, and those gradients.
        let varying: Vec<usize> = (0..node.results.len())
            .filter(|i| {
                let v = node.results[*i];
                self.walk.varies(v) && self.r.new.ty(v).dtype.is_float()
            })
            .collect();
        let mut start = vec![trips];
        for &i in &varying {
            let ty = self.r.new.ty(node.results[i]).clone();
            start.push(match self.take(node.results[i])? {
                Some(ct) => ct,
                None => self.zeros(&node.origin(), &ty)?,
            });
        }
        // What the iterations add to, in the order of the results after `start`.
        let mut back = Back::new(self, &node.origin(), &start)?;
        let params = back.params.clone();
        let outer = std::mem::replace(&mut self.r.region, back.body);
        let one = self.count(&node.origin(), 1.0)?;
        let (left_over, mut left) = match every {
            None => {
                let next = self.r.new.regions[body].results.clone();
                let seeds: Vec<_> =
                    varying.iter().zip(&params[1..]).map(|(i, ct)| (next[*i], *ct)).collect();
                let fewer = self.r.builder(&node.origin()).emit(
                    Op::Sub,
                    &[params[0], one],
                    Attrs::none(),
                )?;
                (fewer, self.region(body, &seeds)?)
            }
            Some(every) => {
                let cts: Vec<_> = varying.iter().copied().zip(params[1..].to_vec()).collect();
                self.segment(&node, params[0], (every, &kept), &cts)?
            }
        };
        let mut results = vec![left_over];
        for (n, &i) in varying.iter().enumerate() {
            let param = self.r.new.regions[body].params[i];
            let list = left.remove(&param).unwrap_or_default();
            results.push(if list.is_empty() {
                let ty = self.r.new.ty(params[1 + n]).clone();
                self.zeros(&node.origin(), &ty)?
            } else {
                scattered::total(self, &node.origin(), list)?
            });
        }
        // What is used from outside: carried along and added to.
        let mut sums = vec![];
        for (key, list) in left {
            sums.extend(scattered::accumulate(self, &mut back, &node.origin(), key, list, outer)?);
        }
        results.extend(sums.iter().map(|s| s.next));
        let operands: Vec<ValueId> =
            start.iter().copied().chain(sums.iter().map(|s| s.start)).collect();
        self.r.new.regions[back.body].results = results;
        self.r.region = outer;
        self.finish(body, back.body)?;
        let mut spec = NodeSpec::new(Op::While, &operands, Attrs::none(), node.span);
        spec.regions = vec![back.cond, back.body];
        let done = self.r.builder(&node.origin()).node(spec)?;
        let results = self.r.new.nodes[done].results.clone();
        for (n, &i) in varying.iter().enumerate() {
            self.add(node.operands[i], results[1 + n]);
        }
        for (sum, &v) in sums.iter().zip(&results[start.len()..]) {
            let v = sum.restore(self, &node.origin(), v)?;
            self.parts.entry(sum.key).or_default().push(v);
        }
        Ok(())
    }

    /// How many iterations a loop made: counted along from now on.
    fn trips(&mut self, at: RegionId, id: NodeId) -> Result<ValueId, Stop> {
        if let Some(v) = self.record.trips.get(&id) {
            return Ok(*v);
        }
        let node = self.r.new.nodes[id].clone();
        let place = self.r.new.regions[at].nodes.iter().position(|n| *n == id).unwrap_or(0);
        let outer = std::mem::replace(&mut self.r.region, at);
        let zero = self.count(&node.origin(), 0.0)?;
        let added = self.r.new.regions[at].nodes.pop();
        self.r.new.regions[at].nodes.splice(place..place, added);
        let [cond, body] = node.regions[..] else { unreachable!("`while` has two regions") };
        let ty = TensorType::scalar(DType::I64);
        self.r.region = cond;
        self.r.builder(&node.origin()).param(ty.clone(), None);
        self.r.region = body;
        let count = self.r.builder(&node.origin()).param(ty.clone(), None);
        let one = self.count(&node.origin(), 1.0)?;
        let next = self.r.builder(&node.origin()).emit(Op::Add, &[count, one], Attrs::none())?;
        self.r.new.regions[body].results.push(next);
        self.r.region = outer;
        let def = Def::Node(id, node.results.len() as u32);
        let trips = self.r.new.values.push(Value { ty, def, name: None });
        self.r.new.nodes[id].operands.push(zero);
        self.r.new.nodes[id].results.push(trips);
        self.record.trips.insert(id, trips);
        Ok(trips)
    }

    /// After how many rounds to keep the carried values, if rounds are to be
    /// computed again: only what nobody can notice may be.
    fn every(&self, id: NodeId) -> Option<i64> {
        if self.record.plain.contains(&id) {
            return None;
        }
        let mut again = true;
        walk::deep(&self.r.new, id, &mut |_, node| {
            again &= match node.op.def().effect {
                Effect::Pure | Effect::Regions => true,
                Effect::Read => node.var.is_some_and(|v| !self.written.contains(&v)),
                _ => false,
            };
        });
        again.then(|| self.record.every(&self.r.new, self.r.new.nodes[id].regions[1])).flatten()
    }

    /// Keeps the carried values of every so many iterations; gives their stacks.
    fn checkpoint(&mut self, id: NodeId, every: i64) -> Result<Vec<String>, Stop> {
        let node = self.r.new.nodes[id].clone();
        let body = node.regions[1];
        let params = self.r.new.regions[body].params.clone();
        let Some((count, carried)) = params.split_last() else { return Ok(vec![]) };
        let outer = std::mem::replace(&mut self.r.region, body);
        let before = self.r.new.regions[body].nodes.len();
        let (k, zero) =
            (self.count(&node.origin(), every as f64)?, self.count(&node.origin(), 0.0)?);
        let rest = self.r.builder(&node.origin()).emit(Op::Rem, &[*count, k], Attrs::none())?;
        let due = self.r.builder(&node.origin()).emit(Op::Eq, &[rest, zero], Attrs::none())?;
        let (then, _) = self.enter();
        let mut names = vec![];
        for &v in carried {
            let name = self.record.stack(&self.r.new, "iteration", v);
            self.push(&name, v, &node.origin())?;
            names.push(name);
        }
        let otherwise = self.r.new.regions.push(Region::default());
        self.r.region = body;
        let mut spec = NodeSpec::new(Op::If, &[due], Attrs::none(), node.span);
        spec.regions = vec![then, otherwise];
        self.r.builder(&node.origin()).node(spec)?;
        self.r.region = outer;
        let nodes = &mut self.r.new.regions[body].nodes;
        let added = nodes.len() - before;
        nodes.rotate_right(added);
        Ok(names)
    }

    /// Computes the iterations since the last kept one again and goes back through
    /// them. Gives the iterations that remain, and the contributions by the
    /// parameters of the original body.
    fn segment(
        &mut self,
        node: &Node,
        iterations: ValueId,
        (every, names): (i64, &[String]),
        cts: &[(usize, ValueId)],
    ) -> Result<(ValueId, Parts), Stop> {
        let at = &node.origin();
        let here = self.r.region;
        let body = node.regions[1];
        let binary = |s: &mut Self, op: Op, a: ValueId, b: ValueId| {
            s.r.builder(at).emit(op, &[a, b], Attrs::none())
        };
        let (one, k) = (self.count(at, 1.0)?, self.count(at, every as f64)?);
        let last = binary(self, Op::Sub, iterations, one)?;
        let within = binary(self, Op::Rem, last, k)?;
        let first = binary(self, Op::Sub, last, within)?;
        let length = binary(self, Op::Sub, iterations, first)?;
        let params = self.r.new.regions[body].params.clone();
        let mut kept = vec![];
        for (name, &v) in names.iter().zip(&params) {
            let ty = self.r.new.ty(v).clone();
            let back = self.pop(name, &ty, at)?;
            self.walk.copied(v, back);
            kept.push(back);
        }
        // The same loop again, for this many iterations; the count starts anew.
        let zero = self.count(at, 0.0)?;
        let mut operands = kept.clone();
        operands.push(zero);
        let (cond, _) = self.enter();
        let mut count = None;
        for &v in &params {
            let ty = self.r.new.ty(v).clone();
            count = Some(self.r.builder(at).param(ty, None));
        }
        let Some(count) = count else { unreachable!("a counted loop carries its count") };
        let more = binary(self, Op::Lt, count, length)?;
        self.r.new.regions[cond].results = vec![more];
        let again = self.r.new.regions.push(Region::default());
        self.r.region = again;
        let mut fresh = vec![];
        for &v in &params {
            let ty = self.r.new.ty(v).clone();
            fresh.push(self.r.builder(at).param(ty, None));
        }
        let mut map = BTreeMap::new();
        let results = self.r.inline_into(body, &fresh, &mut map)?;
        self.forget_pushes(again, names);
        self.r.new.regions[again].results = results;
        self.r.region = here;
        for (from, to) in &map {
            self.walk.copied(*from, *to);
        }
        let mut spec = NodeSpec::new(Op::While, &operands, Attrs::none(), at.span);
        spec.regions = vec![cond, again];
        let copy = self.r.builder(at).node(spec)?;
        for (from, to) in node.results.iter().zip(self.r.new.nodes[copy].results.clone()) {
            self.walk.copied(*from, to);
        }
        self.record.trips.insert(copy, length);
        self.record.plain.insert(copy);
        let outer = std::mem::take(&mut self.parts);
        let totals = std::mem::take(&mut self.totals);
        let terms = std::mem::replace(&mut self.terms, false);
        for &(i, ct) in cts {
            let v = self.r.new.nodes[copy].results[i];
            self.add(v, ct);
        }
        self.repeat(here, copy)?;
        (self.terms, self.totals) = (terms, totals);
        let mut left = std::mem::replace(&mut self.parts, outer);
        for (value, param) in kept.iter().zip(&params) {
            if let Some(list) = left.remove(value) {
                left.insert(*param, list);
            }
        }
        Ok((first, left))
    }

    /// Iterations computed again keep nothing of the kind they start from.
    fn forget_pushes(&mut self, region: RegionId, names: &[String]) {
        let func = &self.r.new;
        let ours = |id: &NodeId| {
            let mut found = false;
            walk::deep(func, *id, &mut |_, node| {
                found |= tfc_ir::stacks::name(node).is_some_and(|s| names.iter().any(|n| n == s));
            });
            found
        };
        let nodes: Vec<NodeId> =
            func.regions[region].nodes.iter().copied().filter(|n| !ours(n)).collect();
        self.r.new.regions[region].nodes = nodes;
    }

    /// What was put on the stack gets the gradient of what was taken off.
    fn unpush(&mut self, node: &Node) -> Result<(), Stop> {
        let name = node.attrs.str("stack");
        if !self.walk.stacks.contains(name) {
            return Ok(());
        }
        let (name, x) = (self.gradients_of(name), node.operands[0]);
        let ty = self.r.new.ty(x).clone();
        let ct = self.pop(&name, &ty, &node.origin())?;
        self.add(x, ct);
        Ok(())
    }

    fn unpop(&mut self, node: &Node) -> Result<(), Stop> {
        let name = node.attrs.str("stack");
        let ct = self.take(node.results[0])?;
        if !self.walk.stacks.contains(name) {
            return Ok(());
        }
        let ct = match ct {
            Some(ct) => ct,
            None => {
                let ty = self.r.new.ty(node.results[0]).clone();
                self.zeros(&node.origin(), &ty)?
            }
        };
        let name = self.gradients_of(name);
        self.push(&name, ct, &node.origin())
    }

    fn gradients_of(&mut self, stack: &str) -> String {
        if let Some(name) = self.stacks.get(stack) {
            return name.clone();
        }
        let name = self.record.unique(&self.r.new, &format!("{stack}.grad"));
        self.stacks.insert(stack.to_string(), name.clone());
        name
    }

    pub fn push(&mut self, stack: &str, v: ValueId, at: &Origin) -> Result<(), Stop> {
        let attrs = Attrs::none().with("stack", Attr::Str(stack.to_string()));
        self.r.builder(at).node(NodeSpec::new(Op::StackPush, &[v], attrs, at.span))?;
        Ok(())
    }

    pub fn pop(&mut self, stack: &str, ty: &TensorType, at: &Origin) -> Result<ValueId, Stop> {
        let attrs = Attrs::none()
            .with("stack", Attr::Str(stack.to_string()))
            .with("shape", Attr::Shape(ty.shape.to_vec()))
            .with("dtype", Attr::DType(ty.dtype));
        let node = self.r.builder(at).node(NodeSpec::new(Op::StackPop, &[], attrs, at.span))?;
        Ok(self.r.new.nodes[node].results[0])
    }
}

/// The regions of a loop that goes back, while they are built.
pub(super) struct Back {
    pub cond: RegionId,
    pub body: RegionId,
    /// Parameters of the body: the iterations that remain, gradients, sums.
    pub params: Vec<ValueId>,
}

impl Back {
    /// Starts from the number of iterations and the gradients of carried values.
    fn new(s: &mut Reverse<'_, '_>, at: &Origin, start: &[ValueId]) -> Result<Back, Stop> {
        let cond = s.r.new.regions.push(Region::default());
        let body = s.r.new.regions.push(Region::default());
        let mut back = Back { cond, body, params: vec![] };
        for v in start {
            let ty = s.r.new.ty(*v).clone();
            back.param(s, at, ty);
        }
        let outer = std::mem::replace(&mut s.r.region, cond);
        let iterations = s.r.new.regions[cond].params[0];
        let zero = s.count(at, 0.0)?;
        let more = s.r.builder(at).emit(Op::Gt, &[iterations, zero], Attrs::none())?;
        s.r.region = outer;
        s.r.new.regions[cond].results = vec![more];
        Ok(back)
    }

    /// One more carried value; gives the parameter of the body.
    pub fn param(&mut self, s: &mut Reverse<'_, '_>, at: &Origin, ty: TensorType) -> ValueId {
        let outer = std::mem::replace(&mut s.r.region, self.cond);
        s.r.builder(at).param(ty.clone(), None);
        s.r.region = self.body;
        let v = s.r.builder(at).param(ty, None);
        s.r.region = outer;
        self.params.push(v);
        v
    }
}
