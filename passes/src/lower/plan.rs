//! From a function to the steps that run it.
//!
//! [`super::arrange`] says which steps there are; here they become kernels, values
//! get storages, copies are coalesced and storages put into slots. Buffers refer to
//! storages until the very end, when homes are known.
//!
//! Invariants
//! - A read of a variable is the variable's own storage, but for those that are to be
//!   copied.
//! - A call that waits for a queue gives its variables back, so a wait counts as
//!   a write to every variable: what was read before it and is used after it is
//!   copied, and no value lives in a variable's memory across it.
//! - Steps are numbered in execution order; see [`super::storage`].

mod contract;
mod effects;
mod queue;

use super::arrange::{Arranged, arrange};
use super::exprs::Exprs;
use super::fuse::{GroupKind, KernelGroup};
use super::group::{self, Lowered};
use super::order::Unit;
use super::storage::{Copy, StorageId, Storages};
use super::{Build, depend, kernel_cost::kernel_cost};
use crate::util::is_zero;
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::BTreeMap;
use tfc_abi::plan::{
    BufId, Buffer, Call, Condition, Entry, ExprId, Func as Routine, HOST, Home, Launch, Port, Step,
    Steps,
};
use tfc_ir::diag::Diag;
use tfc_ir::kernel::Kernel;
use tfc_ir::kernel::contract::Contraction;
use tfc_ir::lower::Lower;
use tfc_ir::op::Effect;
use tfc_ir::ops::bounds;
use tfc_ir::require::requirements;
use tfc_ir::{DType, Dim, Func, Graph, Node, NodeId, Op, RegionId, TensorType, ValueId, VarId};

/// Plans one function, entry `number` of the program.
pub(crate) fn entry(
    graph: &Graph,
    func: &Func,
    number: u32,
    build: &mut Build,
) -> Result<Entry, Vec<Diag>> {
    let arranged = arrange(graph, func);
    let mut p = Planner::new(graph, func, build, &arranged);
    let steps = p.body()?;
    let found = std::mem::take(&mut p.contractions);
    p.build.contractions.extend(found.into_iter().map(|(b, c)| ((number, b), c)));
    Ok(p.finish(steps))
}

struct Planner<'a> {
    graph: &'a Graph,
    func: &'a Func,
    build: &'a mut Build,
    arranged: &'a Arranged,
    exprs: Exprs,
    storages: Storages,
    storage_of: SecondaryMap<ValueId, Option<StorageId>>,
    vars: BTreeMap<VarId, StorageId>,
    consts: BTreeMap<u32, StorageId>,
    /// (storage, shape) of each buffer.
    buffers: Vec<(StorageId, Vec<ExprId>, DType, ExprId)>,
    buffer_ids: BTreeMap<(StorageId, Vec<ExprId>), BufId>,
    time: u32,
    copies: Vec<Copy>,
    shares: Vec<(StorageId, StorageId, u32)>,
    /// Numbers of the stacks, by name.
    stacks: BTreeMap<String, u32>,
    /// By the buffer of the product.
    contractions: BTreeMap<BufId, Contraction>,
    /// Steps at which others may change variables.
    waits: Vec<u32>,
    params: Vec<Port>,
    results: Vec<Port>,
}

impl<'a> Planner<'a> {
    fn new(
        graph: &'a Graph,
        func: &'a Func,
        build: &'a mut Build,
        arranged: &'a Arranged,
    ) -> Planner<'a> {
        Planner {
            graph,
            func,
            build,
            arranged,
            exprs: Exprs::default(),
            storages: Storages::default(),
            storage_of: SecondaryMap::new(),
            vars: BTreeMap::new(),
            consts: BTreeMap::new(),
            buffers: vec![],
            buffer_ids: BTreeMap::new(),
            time: 0,
            copies: vec![],
            shares: vec![],
            stacks: BTreeMap::new(),
            contractions: BTreeMap::new(),
            waits: vec![],
            params: vec![],
            results: vec![],
        }
    }

    fn body(&mut self) -> Result<Steps, Vec<Diag>> {
        let func = self.func;
        for (i, &value) in func.params().iter().enumerate() {
            let ty = func.ty(value).clone();
            let s =
                self.storages.new_storage(ty.dtype, ty.elements(), Some(Home::Param(i as u32)), 0);
            self.storage_of[value] = Some(s);
            let name = func.values[value].name.as_deref().unwrap_or("");
            let name = if name.is_empty() { format!("arg{i}") } else { name.to_string() };
            let port = self.port(name, &ty, s);
            self.params.push(port);
        }
        let mut steps = self.region(func.body)?;
        for (i, &value) in func.results().iter().enumerate() {
            let ty = func.ty(value).clone();
            let s =
                self.storages.new_storage(ty.dtype, ty.elements(), Some(Home::Result(i as u32)), 0);
            let name = func.result_names.get(i).cloned().unwrap_or_else(|| format!("out{i}"));
            let port = self.port(name, &ty, s);
            self.results.push(port);
            let src = self.value(value);
            steps.push(self.copy(src, s, &ty, func.body));
        }
        Ok(steps)
    }

    fn port(&mut self, name: String, ty: &TensorType, s: StorageId) -> Port {
        let buf = self.buffer(s, ty);
        let shape = self.shape(&ty.shape);
        Port { name, dtype: ty.dtype, shape, buf, text: ty.to_string() }
    }

    fn dim(&mut self, d: &Dim) -> ExprId {
        self.exprs.dim(d, &mut self.build.dims)
    }

    fn shape(&mut self, shape: &[Dim]) -> Vec<ExprId> {
        shape.iter().map(|d| self.dim(d)).collect()
    }

    fn buffer(&mut self, s: StorageId, ty: &TensorType) -> BufId {
        let shape = self.shape(&ty.shape);
        if let Some(id) = self.buffer_ids.get(&(s, shape.clone())) {
            return *id;
        }
        let len = self.dim(&ty.elements());
        let id = self.buffers.len() as BufId;
        self.buffers.push((s, shape.clone(), ty.dtype, len));
        self.buffer_ids.insert((s, shape), id);
        id
    }

    /// A new step; what it touches is recorded by [`Planner::reads`] and
    /// [`Planner::writes`].
    fn tick(&mut self) -> u32 {
        self.time += 1;
        self.time
    }

    /// The storage of a value that has one.
    fn value(&mut self, value: ValueId) -> StorageId {
        if let Some(s) = self.storage_of[value] {
            return s;
        }
        let func = self.func;
        let ty = func.ty(value);
        let s = match func.def(value).map(|d| (d, &func.nodes[d])) {
            Some((_, node)) if matches!(node.op.def().lower, Lower::Reshape) => {
                self.value(node.operands[0])
            }
            Some((_, node)) if node.op == Op::Const => {
                let index = self.build.constant(node);
                match self.consts.get(&index) {
                    Some(s) => *s,
                    None => {
                        let home = Some(Home::Const(index));
                        let s = self.storages.new_storage(ty.dtype, ty.elements(), home, 0);
                        self.consts.insert(index, s);
                        s
                    }
                }
            }
            Some((_, node)) if node.op.def().effect == Effect::Read => match node.var {
                Some(v) => self.variable(v),
                None => self.storages.new_storage(ty.dtype, ty.elements(), None, 0),
            },
            _ => self.storages.new_storage(ty.dtype, ty.elements(), None, 0),
        };
        self.storage_of[value] = Some(s);
        s
    }

    fn variable(&mut self, v: VarId) -> StorageId {
        if let Some(s) = self.vars.get(&v) {
            return *s;
        }
        let ty = &self.graph.vars[v].ty;
        let home = Some(Home::Var(self.build.symbol(v)));
        let s = self.storages.new_storage(ty.dtype, ty.elements(), home, 0);
        self.vars.insert(v, s);
        s
    }

    /// The buffer of a value, read by the step at `time`.
    fn read(&mut self, value: ValueId, time: u32) -> BufId {
        let s = self.value(value);
        self.storages.touch(s, time, false);
        self.buffer(s, &self.func.ty(value).clone())
    }

    fn write(&mut self, value: ValueId, time: u32, region: RegionId) -> BufId {
        let s = self.value(value);
        self.storages.list[s.0 as usize].region = region.index() as u32;
        self.storages.touch(s, time, true);
        self.buffer(s, &self.func.ty(value).clone())
    }

    fn copy(&mut self, src: StorageId, dst: StorageId, ty: &TensorType, region: RegionId) -> Step {
        let time = self.tick();
        self.storages.touch(src, time, false);
        self.storages.touch(dst, time, true);
        self.copies.push(Copy { time, src, dst, region: region.index() as u32 });
        Step::Copy { src: self.buffer(src, ty), dst: self.buffer(dst, ty) }
    }

    fn region(&mut self, region: RegionId) -> Result<Steps, Vec<Diag>> {
        let func = self.func;
        let arranged = self.arranged;
        let mut steps = Steps::default();
        let Some(list) = arranged.regions.get(&region) else { return Ok(steps) };
        for unit in &list.order {
            let id = match *unit {
                Unit::Group(g) => {
                    let first = steps.len();
                    self.group(&list.groups[g], region, &mut steps)?;
                    let asked = self.build.asked(list.groups[g].device);
                    let line = self.line(&list.groups[g]);
                    for dispatch in &mut steps.dispatch_mut()[first..] {
                        dispatch.asked = asked;
                        dispatch.line = line;
                    }
                    continue;
                }
                Unit::Read(id) => id,
            };
            let node = &func.nodes[id];
            if let (true, Some(v)) = (arranged.copied.contains(&id), node.var) {
                let src = self.variable(v);
                let ty = func.ty(node.results[0]).clone();
                let dst =
                    self.storages.new_storage(ty.dtype, ty.elements(), None, region.index() as u32);
                self.storage_of[node.results[0]] = Some(dst);
                let time = self.tick();
                self.storages.touch(src, time, false);
                self.storages.touch(dst, time, true);
                let (src, dst) = (self.buffer(src, &ty), self.buffer(dst, &ty));
                steps.push(Step::Copy { src, dst });
            }
        }
        Ok(steps)
    }

    fn group(
        &mut self,
        g: &KernelGroup,
        region: RegionId,
        steps: &mut Steps,
    ) -> Result<(), Vec<Diag>> {
        match &g.kind {
            GroupKind::Kernel => {
                let shape = group::Shape {
                    space: &g.space,
                    root_rank: g.root_rank,
                    reduced: &g.reduced,
                    outputs: &g.outputs,
                };
                let lowered = group::kernel(self.func, &g.members, &shape, self.kernel_name(g));
                let step = self.launch(lowered, region);
                steps.push(step);
            }
            GroupKind::Scan(id) => {
                let Lower::Scan(combine) = self.func.nodes[*id].op.def().lower else {
                    return Ok(());
                };
                let name = self.kernel_name(g);
                let lowered = group::scan(self.func, &g.members, *id, combine, name);
                let step = self.launch(lowered, region);
                steps.push(step);
            }
            GroupKind::Contract(id) => self.contract(g, *id, region, steps),
            GroupKind::Update(id) => self.update(*id, region, steps),
            GroupKind::Step(id) => self.effect(*id, region, steps)?,
        }
        Ok(())
    }

    /// The line of the text that a group is about: of its contraction or step, or of what
    /// it computes last.
    fn line(&self, g: &KernelGroup) -> u32 {
        let main = match g.kind {
            GroupKind::Contract(id) | GroupKind::Update(id) => Some(id),
            GroupKind::Scan(id) | GroupKind::Step(id) => Some(id),
            GroupKind::Kernel => None,
        };
        let nodes = main.into_iter().chain(g.members.iter().rev().copied());
        self.build.line(nodes.map(|id| self.func.nodes[id].span))
    }

    /// Op names of what the kernel stores, for symbols and profiles.
    fn kernel_name(&self, g: &KernelGroup) -> String {
        let mut names: Vec<&str> = vec![];
        for id in g.members.iter().rev() {
            let name = self.func.nodes[*id].op.name();
            if !names.contains(&name) && !["broadcast", "reshape", "copy"].contains(&name) {
                names.push(name);
            }
            if names.len() == 3 {
                break;
            }
        }
        names.reverse();
        if names.is_empty() { "copy".to_string() } else { names.join("_") }
    }

    fn launch(&mut self, lowered: Lowered, region: RegionId) -> Step {
        let time = self.tick();
        let (bufs, dims) = self.kernel_args(&lowered, time, region, &[]);
        let (cost, splits) = kernel_cost(&lowered.kernel);
        let (extent, cost) = (self.dim(&lowered.extent), self.dim(&cost));
        let outputs = outputs(&lowered.kernel);
        let kernel = self.build.kernel(lowered.kernel);
        Step::Launch(Launch { kernel, bufs, outputs, dims, extent, cost, splits, partial: false })
    }

    /// Buffers and dims of a kernel call; `fixed` are values whose bytes no
    /// output may take over.
    fn kernel_args(
        &mut self,
        lowered: &Lowered,
        time: u32,
        region: RegionId,
        fixed: &[ValueId],
    ) -> (Vec<BufId>, Vec<ExprId>) {
        let mut bufs = vec![];
        for (value, buf) in lowered.bufs.iter().zip(&lowered.kernel.bufs) {
            bufs.push(if buf.written {
                self.write(*value, time, region)
            } else {
                self.read(*value, time)
            });
        }
        let fixed: Vec<StorageId> = fixed.iter().map(|v| self.value(*v)).collect();
        // A storage read under several names must be free under all of them.
        let storages: Vec<StorageId> = lowered.bufs.iter().map(|v| self.value(*v)).collect();
        let legal = lowered.in_place();
        for &(o, i) in &legal {
            let input = storages[i];
            let all = storages.iter().enumerate().all(|(k, s)| {
                *s != input
                    || k == i
                    || (!lowered.kernel.bufs[k].written && legal.contains(&(o, k)))
            });
            if all && !fixed.contains(&input) {
                self.storages.allow_in_place(time, storages[o], input);
            }
        }
        let dims = lowered.kernel.dims.iter().map(|n| Dim::sym(n)).collect::<Vec<_>>();
        (bufs, self.shape(&dims))
    }

    /// The base is brought into the result's place, then rows are added.
    fn add_rows(&mut self, node: &Node, region: RegionId, steps: &mut Steps) {
        let func = self.func;
        let (base, ids, updates, result) =
            (node.operands[0], node.operands[1], node.operands[2], node.results[0]);
        let ty = func.ty(result).clone();
        let dst = self.value(result);
        self.storages.list[dst.0 as usize].region = region.index() as u32;
        if is_zero(func, base) {
            let time = self.tick();
            let buf = self.write(result, time, region);
            steps.push(Step::Call(Call { func: Routine::Zero, bufs: vec![buf], ints: vec![] }));
        } else {
            let src = self.value(base);
            steps.push(self.copy(src, dst, &ty, region));
            // Where the base is not needed again the rows are added in place.
            self.storages.allow_in_place(self.time, dst, src);
        }
        let drop = bounds::drops(&node.attrs);
        let step = self.scatter(Routine::ScatterAddRows, dst, &ty, (ids, updates), drop);
        steps.push(step);
    }

    /// The base is brought into the result's place, then the box is stored.
    fn update(&mut self, id: NodeId, region: RegionId, steps: &mut Steps) {
        let node = &self.func.nodes[id];
        let (base, result) = (node.operands[0], node.results[0]);
        let ty = self.func.ty(result).clone();
        let (src, dst) = (self.value(base), self.value(result));
        self.storages.list[dst.0 as usize].region = region.index() as u32;
        steps.push(self.copy(src, dst, &ty, region));
        self.storages.allow_in_place(self.time, dst, src);
        let lowered = group::update(self.func, node);
        let mut step = self.launch(lowered, region);
        if let Step::Launch(launch) = &mut step {
            launch.partial = true;
        }
        steps.push(step);
    }

    fn scatter(
        &mut self,
        routine: Routine,
        dst: StorageId,
        ty: &TensorType,
        (ids, updates): (ValueId, ValueId),
        drop: bool,
    ) -> Step {
        let time = self.tick();
        let (i, u) = (self.read(ids, time), self.read(updates, time));
        self.storages.touch(dst, time, true);
        let d = self.buffer(dst, ty);
        let rows = ty.shape[0].clone();
        let width = Dim::product(&ty.shape[1..]);
        let count = self.func.ty(ids).elements();
        let mut ints = vec![rows, count, width];
        if routine == Routine::ScatterAddRows {
            ints.push(Dim::constant(drop.into()));
        }
        let ints = self.shape(&ints);
        Step::Call(Call { func: routine, bufs: vec![d, i, u], ints })
    }

    /// Both branches bring their values to the same places.
    fn branch(
        &mut self,
        node: &Node,
        region: RegionId,
        steps: &mut Steps,
    ) -> Result<(), Vec<Diag>> {
        let time = self.tick();
        let cond = self.read(node.operands[0], time);
        for &v in &node.results {
            let s = self.value(v);
            self.storages.list[s.0 as usize].region = region.index() as u32;
        }
        let mut sides = vec![];
        for &r in &node.regions {
            let mut list = self.region(r)?;
            let from = self.func.regions[r].results.clone();
            for (src, dst) in from.into_iter().zip(&node.results) {
                list.push(self.bring(src, *dst, r));
            }
            sides.push(list);
        }
        let (Some(otherwise), Some(then)) = (sides.pop(), sides.pop()) else { return Ok(()) };
        steps.push(Step::If { cond, then, otherwise });
        Ok(())
    }

    fn bring(&mut self, src: ValueId, dst: ValueId, region: RegionId) -> Step {
        let ty = self.func.ty(dst).clone();
        let (s, d) = (self.value(src), self.value(dst));
        self.copy(s, d, &ty, region)
    }

    /// Carried values have one place each, for all rounds and afterwards.
    fn repeat(
        &mut self,
        node: &Node,
        region: RegionId,
        steps: &mut Steps,
    ) -> Result<(), Vec<Diag>> {
        let func = self.func;
        let [cond, body] = *node.regions else { return Ok(()) };
        let mut carried = vec![];
        for (&from, &to) in node.operands.iter().zip(&node.results) {
            let s = self.value(to);
            self.storages.list[s.0 as usize].region = region.index() as u32;
            carried.push(s);
            steps.push(self.bring(from, to, region));
        }
        for r in [cond, body] {
            for (&p, &s) in func.regions[r].params.iter().zip(&carried) {
                self.storage_of[p] = Some(s);
            }
        }
        let first = self.time + 1;
        let head = self.region(cond)?;
        let time = self.tick();
        let test = self.read(func.regions[cond].results[0], time);
        let mut list = self.region(body)?;
        let next = func.regions[body].results.clone();
        // A value that moves to another place is taken aside before any place
        // is overwritten.
        let mut sources = vec![];
        for (i, &v) in next.iter().enumerate() {
            let s = self.value(v);
            let moved = s != carried[i] && carried.contains(&s);
            if moved {
                let ty = func.ty(v).clone();
                let aside =
                    self.storages.new_storage(ty.dtype, ty.elements(), None, body.index() as u32);
                let step = self.copy(s, aside, &ty, body);
                // Must stay a copy.
                self.copies.pop();
                list.push(step);
                sources.push(aside);
            } else {
                sources.push(s);
            }
        }
        for (i, &v) in next.iter().enumerate() {
            if sources[i] != carried[i] {
                let ty = func.ty(v).clone();
                list.push(self.copy(sources[i], carried[i], &ty, body));
            }
        }
        let last = self.tick();
        self.storages.add_loop(first, last);
        steps.push(Step::While { head, cond: test, body: list });
        Ok(())
    }

    fn finish(mut self, mut steps: Steps) -> Entry {
        for &variable in self.vars.values() {
            for &wait in &self.waits {
                self.storages.touch(variable, wait, true);
            }
        }
        // Variables first: an update in place beats a result in place.
        let (vars, rest): (Vec<Copy>, Vec<Copy>) = std::mem::take(&mut self.copies)
            .into_iter()
            .partition(|c| matches!(self.storages.home(c.dst), Some(Home::Var(_))));
        for c in vars.iter().chain(&rest) {
            self.storages.coalesce(c);
        }
        for (inner, outer, time) in std::mem::take(&mut self.shares) {
            self.storages.share_result(inner, outer, time);
        }
        let order = depend::Order::of(&steps, &|b| {
            let id = self.storages.resolve(self.buffers[b as usize].0);
            (id, self.storages.home(id))
        });
        let slots = self.storages.assign(&order);
        let slots: Vec<ExprId> =
            slots.iter().map(|sizes| self.exprs.max(sizes, &mut self.build.dims)).collect();
        let homes: Vec<Home> = self
            .buffers
            .iter()
            .map(|(s, ..)| match self.storages.home(*s) {
                Some(home) => home,
                None => unreachable!("a buffer of `{}` was given no memory", self.func.name),
            })
            .collect();
        drop_copies(&mut steps, &homes);
        let buffers = self
            .buffers
            .iter()
            .zip(&homes)
            .map(|((_, shape, dtype, len), home)| Buffer {
                dtype: *dtype,
                len: *len,
                shape: shape.clone(),
                home: *home,
                device: HOST,
            })
            .collect();
        let steps = depend::dispatch(steps, &|b| homes[b as usize]);
        let mut writes: Vec<u32> = vec![];
        self.func.walk(&mut |_, node| {
            if let (Effect::Write, Some(v)) = (node.op.def().effect, node.var)
                && self.graph.vars[v].symbol.is_variable()
            {
                writes.push(self.build.symbol(v));
            }
        });
        writes.sort();
        writes.dedup();
        let conditions = requirements(self.func, &self.graph.dims)
            .into_iter()
            .map(|r| Condition {
                value: self.exprs.dim(&r.value, &mut self.build.dims),
                message: r.message,
                place: self.build.place(r.span),
            })
            .collect();
        Entry {
            name: self.func.name.clone(),
            doc: self.func.doc.clone(),
            params: self.params,
            results: self.results,
            exprs: self.exprs.list,
            buffers,
            slots,
            steps,
            writes,
            conditions,
            runner: self.func.runner,
            replica_of: None,
            part: None,
        }
    }
}

fn not_compiled(node: &Node) -> Diag {
    Diag::error("E0490", format!("`{}` cannot be compiled yet", node.op.name()))
        .at(node.span, "used here")
}

/// Copies between two names of one place do nothing.
fn drop_copies(steps: &mut Steps, homes: &[Home]) {
    let kept = std::mem::take(steps).into_pairs().filter_map(|(mut step, dispatch)| {
        match &mut step {
            Step::Copy { src, dst } if homes[*src as usize] == homes[*dst as usize] => return None,
            Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } => {
                drop_copies(a, homes);
                drop_copies(b, homes);
            }
            _ => {}
        }
        Some((step, dispatch))
    });
    *steps = Steps::from_pairs(kept);
}

/// How many buffers of a kernel are written; they come first.
pub(super) fn outputs(kernel: &Kernel) -> u32 {
    let written = kernel.bufs.iter().take_while(|b| b.written).count();
    let rest = &kernel.bufs[written..];
    assert!(rest.iter().all(|b| !b.written), "`{}` has an output behind an input", kernel.name);
    written as u32
}
