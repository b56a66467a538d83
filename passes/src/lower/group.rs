//! One fusion group becomes one kernel, by pulling.
//!
//! The group's outputs are asked for at the loop indices; each op asks for its
//! operands; a value of the group is computed on the spot, any other is loaded.
//! Where statements land is decided by [`super::emit`], so a per-row reduction
//! asked for from inside the row's loop is emitted once per row, before it.

use super::emit::{Accumulator, KernelBuilder, OpenLoop};
use super::fuse::reduction_axes;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::kernel::{Combine, Ix, Kernel, KernelBuf, LoopKind, Reg, Scalar, ScalarOp, ScalarType};
use tfc_ir::lower::{Lower, Pull, Reduction};
use tfc_ir::{Attrs, DType, Dim, Func, Node, NodeId, Op, Tensor, TensorType, ValueId};

/// A position in a tensor: by axis, by row-major offset, or both.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct At {
    pub multi: Option<Vec<Ix>>,
    pub linear: Option<Ix>,
}

impl At {
    pub fn multi(ixs: Vec<Ix>) -> At {
        At { multi: Some(ixs), linear: None }
    }
}

/// A kernel and, per kernel buffer, the value it stands for.
pub(crate) struct Lowered {
    pub kernel: Kernel,
    pub bufs: Vec<ValueId>,
    /// Iterations of the ranged loop; one when there is none.
    pub extent: Dim,
}

impl Lowered {
    /// Pairs `(output, input)` of buffers that may be one.
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        let of = |(o, b): (usize, &KernelBuf)| {
            b.alias.iter().map(|i| (o, *i as usize)).collect::<Vec<_>>()
        };
        self.kernel.bufs.iter().enumerate().flat_map(of).collect()
    }
}

pub(crate) struct GroupLower<'a> {
    func: &'a Func,
    /// Nodes computed inside the kernel.
    members: &'a BTreeSet<NodeId>,
    kb: KernelBuilder,
    bufs: Vec<ValueId>,
    loaded: BTreeMap<ValueId, u32>,
    memo: BTreeMap<(ValueId, At, BTreeSet<Dim>), Reg>,
    /// Sizes around the current request: if one is zero, what is asked for does
    /// not exist and is not used.
    guards: BTreeSet<Dim>,
    /// Reductions of the group by how many others they wait for.
    levels: BTreeMap<NodeId, u32>,
}

/// What a kernel group looks like from outside.
pub(crate) struct Shape<'a> {
    /// Sizes of the group's loops; the first `root_rank` are the root's axes.
    pub space: &'a [Dim],
    pub root_rank: usize,
    /// Axes of `space` that reductions run over.
    pub reduced: &'a [usize],
    /// Values to store, each with the group axis of each of its axes.
    pub outputs: &'a [(ValueId, Vec<Option<usize>>)],
}

/// A group of elementwise, movement and reduction nodes.
pub(crate) fn kernel(
    func: &Func,
    members: &BTreeSet<NodeId>,
    shape: &Shape<'_>,
    name: String,
) -> Lowered {
    let mut g = GroupLower::new(func, members);
    // Kept axes first: what is computed per row is then outside the row's loop.
    let root = 0..shape.root_rank;
    let mut order: Vec<usize> = root.clone().filter(|a| !shape.reduced.contains(a)).collect();
    let rows = order.iter().filter(|a| !shape.space[**a].is_one()).count();
    order.extend(root.filter(|a| shape.reduced.contains(a)));
    let splits = rows > 0 || shape.reduced.is_empty();
    let outputs: Vec<u32> = shape.outputs.iter().map(|(v, _)| g.output(*v)).collect();
    let mut at: Vec<Ix> = vec![Ix::constant(0); shape.space.len()];
    let mut open: Vec<OpenLoop> = vec![];
    let mut extent = Dim::constant(1);
    for axis in order {
        if shape.space[axis].is_one() {
            continue;
        }
        let ranged = open.is_empty() && splits;
        let l = g.kb.open(&shape.space[axis], ranged);
        at[axis] = Ix::var(l.var);
        if ranged {
            extent = shape.space[axis].clone();
        }
        open.push(l);
    }
    let innermost = g.kb.scope;
    let mut stores = vec![];
    for ((value, axes), buf) in shape.outputs.iter().zip(outputs) {
        let ixs: Vec<Ix> =
            axes.iter().map(|a| a.map_or(Ix::constant(0), |a| at[a].clone())).collect();
        g.kb.scope = g.kb.scope_of_all(&ixs);
        let address = linear(&ixs, &func.ty(*value).shape);
        let reg = g.value(*value, &At::multi(ixs));
        stores.push((g.kb.scope, buf, address, reg));
    }
    // Values first, stores last: an output may take the place of an input.
    for (scope, buf, address, reg) in stores {
        g.kb.scope = scope;
        g.kb.store(buf, &address, reg);
    }
    g.kb.scope = innermost;
    for l in open.into_iter().rev() {
        g.kb.close(l, vec![]);
    }
    let mut lowered = g.finish(name, extent);
    // Merging loops changes how many iterations the ranged one has.
    if let Some(e) = ranged_extent(&lowered.kernel) {
        lowered.extent = e;
    }
    lowered
}

/// Stores the update of a `dynamic_update_slice` where it goes in the result;
/// the rest of the result is there already.
pub(crate) fn update(func: &Func, node: &Node) -> Lowered {
    let members = BTreeSet::new();
    let mut g = GroupLower::new(func, &members);
    let (result, update) = (node.results[0], node.operands[1]);
    let out = g.output(result);
    let mut at = vec![];
    let mut open: Vec<OpenLoop> = vec![];
    let mut extent = Dim::constant(1);
    for size in &func.ty(update).shape {
        if size.is_one() {
            at.push(Ix::constant(0));
            continue;
        }
        let ranged = open.is_empty();
        let l = g.kb.open(size, ranged);
        at.push(Ix::var(l.var));
        if ranged {
            extent = size.clone();
        }
        open.push(l);
    }
    let innermost = g.kb.scope;
    let reg = g.value(update, &At::multi(at.clone()));
    let place = tfc_ir::ops::update_place(&mut Puller { group: &mut g, node, moved: vec![] }, &at);
    g.kb.scope = innermost;
    g.kb.store(out, &linear(&place, &func.ty(result).shape), reg);
    for l in open.into_iter().rev() {
        g.kb.close(l, vec![]);
    }
    let mut lowered = g.finish("update_slice".to_string(), extent);
    if let Some(e) = ranged_extent(&lowered.kernel) {
        lowered.extent = e;
    }
    lowered
}

/// Elementwise work on a contraction's result, block by block: two ranged
/// loops, over the rows of all batches and over columns.
pub(crate) fn epilogue(
    func: &Func,
    members: &BTreeSet<NodeId>,
    rows: &Dim,
    cols: &Dim,
    col_axes: usize,
    outputs: &[ValueId],
    name: String,
) -> Lowered {
    let mut g = GroupLower::new(func, members);
    let bufs: Vec<u32> = outputs.iter().map(|v| g.output(*v)).collect();
    let row = g.kb.open(rows, true);
    let col = g.kb.open(cols, true);
    let (r, c) = (Ix::var(row.var), Ix::var(col.var));
    let line = r.scale(cols).plus(&c);
    let mut stores = vec![];
    for (value, buf) in outputs.iter().zip(bufs) {
        let shape = &func.ty(*value).shape;
        let split = shape.len().saturating_sub(col_axes);
        let mut multi = g.delinearize(&r, &shape[..split]);
        multi.extend(g.delinearize(&c, &shape[split..]));
        let at = At { multi: Some(multi), linear: Some(line.clone()) };
        stores.push((buf, g.value(*value, &at)));
    }
    for (buf, reg) in stores {
        g.kb.store(buf, &line, reg);
    }
    g.kb.close(col, vec![]);
    g.kb.close(row, vec![]);
    g.finish(name, rows.clone())
}

/// A prefix combination along one axis, with its operand computed on the fly.
pub(crate) fn scan(
    func: &Func,
    members: &BTreeSet<NodeId>,
    node: NodeId,
    combine: Combine,
    name: String,
) -> Lowered {
    let mut g = GroupLower::new(func, members);
    let n = &func.nodes[node];
    let result = n.results[0];
    let ty = func.ty(result).clone();
    let axis = n.attrs.int("axis").clamp(0, ty.rank().saturating_sub(1) as i64) as usize;
    let (exclusive, reverse) = (n.attrs.bool("exclusive"), n.attrs.bool("reverse"));
    let buf = g.output(result);
    let mut at = vec![Ix::constant(0); ty.rank()];
    let mut open = vec![];
    let mut extent = Dim::constant(1);
    for (a, size) in ty.shape.iter().enumerate() {
        if a == axis || size.is_one() {
            continue;
        }
        let l = g.kb.open(size, open.is_empty());
        if open.is_empty() {
            extent = size.clone();
        }
        at[a] = Ix::var(l.var);
        open.push(l);
    }
    let init = g.identity(combine, ty.dtype);
    let along = g.kb.open_as(LoopKind::Scan, &ty.shape[axis], false);
    at[axis] = Ix::var(along.var);
    if reverse {
        let last =
            Ix { offset: ty.shape[axis].clone() - Dim::constant(1), terms: vec![], regs: vec![] };
        at[axis] = last.plus(&at[axis].scale(&Dim::constant(-1)));
    }
    let acc = g.kb.accumulator(init, combine);
    let x = g.value(n.operands[0], &At::multi(at.clone()));
    // The running value keeps the register's precision, as in other reductions;
    // the store rounds or wraps each result.
    let next = g.combine(combine, acc.acc, x);
    let stored = if exclusive { acc.acc } else { next };
    g.kb.store(buf, &linear(&at, &ty.shape), stored);
    g.kb.close(along, vec![(acc, next)]);
    for l in open.into_iter().rev() {
        g.kb.close(l, vec![]);
    }
    let mut lowered = g.finish(name, extent);
    if let Some(e) = ranged_extent(&lowered.kernel) {
        lowered.extent = e;
    }
    lowered
}

fn ranged_extent(kernel: &Kernel) -> Option<Dim> {
    kernel.body.iter().find_map(|s| match s {
        tfc_ir::kernel::Stmt::Loop(l) if l.ranged => Some(l.extent.clone()),
        _ => None,
    })
}

/// Row-major offset of a position.
pub(crate) fn linear(at: &[Ix], shape: &[Dim]) -> Ix {
    let mut stride = Dim::constant(1);
    let mut sum = Ix::constant(0);
    for (ix, size) in at.iter().zip(shape).rev() {
        if !size.is_one() {
            sum = sum.plus(&ix.scale(&stride));
        }
        stride = stride * size.clone();
    }
    sum
}

/// The one value of a constant, as the register it would be loaded into.
pub(crate) fn splat_scalar(t: &Tensor) -> Option<Scalar> {
    let size = t.dtype().size();
    let first = t.bytes().get(..size)?;
    if !t.bytes().chunks_exact(size).all(|e| e == first) {
        return None;
    }
    let one = Tensor::from_bytes(t.dtype(), vec![], first.into())?;
    let ty = ScalarType::of(t.dtype());
    if ty.is_float() {
        return Some(Scalar::of(ty, *one.to_f64().first()?));
    }
    let v = *one.to_i64().first()?;
    Some(match ty {
        ScalarType::I64 => Scalar::I64(v),
        ScalarType::Bool => Scalar::Bool(v != 0),
        _ => Scalar::I32(v as i32),
    })
}

impl<'a> GroupLower<'a> {
    fn new(func: &'a Func, members: &'a BTreeSet<NodeId>) -> GroupLower<'a> {
        let mut levels: BTreeMap<NodeId, u32> = BTreeMap::new();
        // Node ids grow along the order of a region after every rebuild, but
        // do not rely on it: resolve on demand, operands first.
        for &start in members {
            let mut stack = vec![(start, false)];
            while let Some((id, ready)) = stack.pop() {
                if levels.contains_key(&id) {
                    continue;
                }
                let node = &func.nodes[id];
                let inner = node
                    .operands
                    .iter()
                    .filter_map(|o| func.def(*o))
                    .filter(|d| members.contains(d));
                if !ready {
                    stack.push((id, true));
                    stack.extend(inner.filter(|d| !levels.contains_key(d)).map(|d| (d, false)));
                    continue;
                }
                let base = inner.filter_map(|d| levels.get(&d)).max().copied().unwrap_or(0);
                let own = matches!(node.op.def().lower, Lower::Reduce(_)) as u32;
                levels.insert(id, base + own);
            }
        }
        levels.retain(|id, _| matches!(func.nodes[*id].op.def().lower, Lower::Reduce(_)));
        GroupLower {
            func,
            members,
            kb: KernelBuilder::new(),
            bufs: vec![],
            loaded: BTreeMap::new(),
            memo: BTreeMap::new(),
            guards: BTreeSet::new(),
            levels,
        }
    }

    fn finish(self, name: String, extent: Dim) -> Lowered {
        Lowered { kernel: self.kb.finish(name), bufs: self.bufs, extent }
    }

    fn output(&mut self, value: ValueId) -> u32 {
        let ty = self.func.ty(value);
        self.bufs.push(value);
        self.kb.buffer(ty.dtype, ty.elements(), true)
    }

    /// Element `at` of a value.
    fn value(&mut self, value: ValueId, at: &At) -> Reg {
        // What was loaded where nothing guards it may be used anywhere.
        let mut key = (value, at.clone(), BTreeSet::new());
        if let Some(reg) = self.memo.get(&key) {
            return *reg;
        }
        if !self.guards.is_empty() {
            key.2 = self.guards.clone();
            if let Some(reg) = self.memo.get(&key) {
                return *reg;
            }
        }
        let saved = self.kb.scope;
        self.kb.scope = match (&at.multi, &at.linear) {
            (Some(ixs), line) => self.kb.scope_of_all(ixs.iter().chain(line)),
            (None, line) => self.kb.scope_of_all(line),
        };
        let reg = match self.func.def(value) {
            Some(id) if self.members.contains(&id) => self.compute(id, at),
            Some(id) => match self.constant_of(id) {
                Some(scalar) => self.kb.constant(scalar),
                None => self.load(value, at),
            },
            None => self.load(value, at),
        };
        self.kb.scope = saved;
        self.memo.insert(key, reg);
        reg
    }

    fn constant_of(&self, id: NodeId) -> Option<Scalar> {
        let node = &self.func.nodes[id];
        if node.op != Op::Const {
            return None;
        }
        splat_scalar(node.attrs.tensor("value")?)
    }

    fn load(&mut self, value: ValueId, at: &At) -> Reg {
        let ty = self.func.ty(value);
        let mut address = match (&at.linear, &at.multi) {
            (Some(ix), _) => ix.clone(),
            (None, Some(ixs)) => linear(ixs, &ty.shape),
            (None, None) => Ix::constant(0),
        };
        let inside = at
            .multi
            .as_ref()
            .is_some_and(|ixs| ixs.iter().zip(&ty.shape).all(|(ix, size)| self.kb.walks(ix, size)));
        if !inside {
            for size in &self.guards {
                // 1, or 0 for an empty axis: sizes are far below the divisor.
                address = address.scale(&size.ceil_div(1 << 62));
            }
        }
        let buf = match self.loaded.get(&value) {
            Some(buf) => *buf,
            None => {
                let buf = self.kb.buffer(ty.dtype, ty.elements(), false);
                self.bufs.push(value);
                self.loaded.insert(value, buf);
                buf
            }
        };
        self.kb.load(buf, &address)
    }

    fn compute(&mut self, id: NodeId, at: &At) -> Reg {
        let func = self.func;
        let node = &func.nodes[id];
        let ty = func.ty(node.results[0]);
        match &node.op.def().lower {
            Lower::Map(f) => {
                let args: Vec<Reg> = node.operands.iter().map(|o| self.value(*o, at)).collect();
                let reg = f(&mut Puller { group: self, node, moved: vec![] }, &args);
                self.narrow(reg, ty.dtype)
            }
            Lower::Index(f) => {
                let ixs = self.by_axis(at, &ty.shape);
                let mut puller = Puller { group: self, node, moved: vec![] };
                let reg = f(&mut puller, &ixs);
                // Elements that were only moved are exact already.
                if puller.moved.contains(&reg) { reg } else { self.narrow(reg, ty.dtype) }
            }
            Lower::Reshape => {
                let from = func.ty(node.operands[0]);
                let inner = self.through_reshape(at, &ty.shape, &from.shape, node.operands[0]);
                self.value(node.operands[0], &inner)
            }
            Lower::Reduce(_) => self.reduction(id, at),
            Lower::Constant => match self.constant_of(id) {
                Some(scalar) => self.kb.constant(scalar),
                None => self.load(node.results[0], at),
            },
            // Never members of a group.
            _ => self.load(node.results[0], at),
        }
    }

    /// Position in a reshape's operand.
    fn through_reshape(&mut self, at: &At, to: &[Dim], from: &[Dim], operand: ValueId) -> At {
        let inlined = self.func.def(operand).is_some_and(|d| self.members.contains(&d));
        let line = at.linear.clone().or_else(|| at.multi.as_ref().map(|m| linear(m, to)));
        if !inlined {
            return At { multi: None, linear: line };
        }
        let Some(ixs) = &at.multi else { return At { multi: None, linear: line } };
        let ixs = ixs.clone();
        match match_axes(to, from) {
            Some(pairs) => {
                let mut out = vec![Ix::constant(0); from.len()];
                for (to_axes, from_axes) in pairs {
                    let group: Vec<Ix> = to_axes.iter().map(|a| ixs[*a].clone()).collect();
                    let sizes: Vec<Dim> = to_axes.iter().map(|a| to[*a].clone()).collect();
                    let offset = linear(&group, &sizes);
                    let sizes: Vec<Dim> = from_axes.iter().map(|a| from[*a].clone()).collect();
                    let parts = self.delinearize(&offset, &sizes);
                    for (axis, ix) in from_axes.into_iter().zip(parts) {
                        out[axis] = ix;
                    }
                }
                At { multi: Some(out), linear: at.linear.clone() }
            }
            None => At { multi: None, linear: line },
        }
    }

    fn by_axis(&mut self, at: &At, shape: &[Dim]) -> Vec<Ix> {
        match (&at.multi, &at.linear) {
            (Some(ixs), _) => ixs.clone(),
            (None, Some(line)) => self.delinearize(&line.clone(), shape),
            (None, None) => vec![Ix::constant(0); shape.len()],
        }
    }

    /// Splits a row-major offset into one index per axis, by division.
    fn delinearize(&mut self, offset: &Ix, shape: &[Dim]) -> Vec<Ix> {
        let real: Vec<usize> = (0..shape.len()).filter(|a| !shape[*a].is_one()).collect();
        let mut out = vec![Ix::constant(0); shape.len()];
        let Some((&first, rest)) = real.split_first() else { return out };
        if rest.is_empty() {
            out[first] = offset.clone();
            return out;
        }
        let mut left = self.kb.index(offset);
        for &axis in rest.iter().rev() {
            let size = Ix { offset: shape[axis].clone(), terms: vec![], regs: vec![] };
            let size = self.kb.index(&size);
            let rem = self.kb.op(ScalarOp::Rem, &[left, size], ScalarType::I64);
            left = self.kb.op(ScalarOp::Div, &[left, size], ScalarType::I64);
            out[axis] = Ix::reg(rem);
        }
        out[first] = Ix::reg(left);
        out
    }

    fn narrow(&mut self, reg: Reg, dtype: DType) -> Reg {
        let op = match dtype {
            DType::F16 => ScalarOp::RoundF16,
            DType::BF16 => ScalarOp::RoundBF16,
            DType::I8 => ScalarOp::WrapI8,
            DType::U8 => ScalarOp::WrapU8,
            _ => return reg,
        };
        let ty = self.kb.ty(reg);
        self.kb.op(op, &[reg], ty)
    }

    fn identity(&mut self, combine: Combine, dtype: DType) -> Reg {
        let ty = ScalarType::of(dtype);
        let (low, high) = match dtype {
            DType::I8 => (Scalar::I32(i8::MIN as i32), Scalar::I32(i8::MAX as i32)),
            DType::U8 => (Scalar::I32(0), Scalar::I32(u8::MAX as i32)),
            DType::I32 => (Scalar::I32(i32::MIN), Scalar::I32(i32::MAX)),
            DType::I64 => (Scalar::I64(i64::MIN), Scalar::I64(i64::MAX)),
            DType::Bool => (Scalar::Bool(false), Scalar::Bool(true)),
            _ => (Scalar::of(ty, f64::NEG_INFINITY), Scalar::of(ty, f64::INFINITY)),
        };
        let scalar = match combine {
            Combine::Sum | Combine::Sequential => Scalar::of(ty, 0.0),
            Combine::Prod => Scalar::of(ty, 1.0),
            Combine::Max => low,
            Combine::Min => high,
            Combine::And => Scalar::Bool(true),
            Combine::Or => Scalar::Bool(false),
        };
        self.kb.constant(scalar)
    }

    fn combine(&mut self, combine: Combine, acc: Reg, x: Reg) -> Reg {
        let ty = self.kb.ty(acc);
        self.kb.op(combine.op(), &[acc, x], ty)
    }

    /// Element `at` of a reduction. Reductions of the same level over the same
    /// axes share the loop.
    fn reduction(&mut self, id: NodeId, at: &At) -> Reg {
        let func = self.func;
        let node = &func.nodes[id];
        let from = &func.ty(node.operands[0]).shape;
        let axes = reduction_axes(node);
        let kept: Vec<usize> = (0..from.len()).filter(|a| !axes.contains(a)).collect();
        let ixs = self.by_axis(at, &func.ty(node.results[0]).shape);
        let keep = node.attrs.bool("keep");
        let mut operand_at = vec![Ix::constant(0); from.len()];
        for (i, &axis) in kept.iter().enumerate() {
            operand_at[axis] = ixs[if keep { axis } else { i }].clone();
        }
        if let Lower::Reduce(kind @ (Reduction::ArgMax | Reduction::ArgMin)) = node.op.def().lower {
            return self.arg_reduction(node, kind, &axes, from, operand_at);
        }
        let level = self.levels.get(&id).copied();
        let mut joint = vec![id];
        joint.extend(
            self.levels
                .iter()
                .filter(|(n, l)| **n != id && Some(**l) == level)
                .map(|x| *x.0)
                .filter(|n| {
                    let other = &func.nodes[*n];
                    let argument = func.ty(other.operands[0]);
                    !matches!(
                        other.op.def().lower,
                        Lower::Reduce(Reduction::ArgMax | Reduction::ArgMin)
                    ) && argument.shape == *from
                        && reduction_axes(other) == axes
                }),
        );
        let combines: Vec<Combine> = joint.iter().map(|n| combine_of(&func.nodes[*n])).collect();
        let mut running: Vec<Reg> = vec![];
        for (n, combine) in joint.iter().zip(&combines) {
            let dtype = func.ty(func.nodes[*n].operands[0]).dtype;
            running.push(self.identity(*combine, dtype));
        }
        let mut open: Vec<(OpenLoop, Vec<Accumulator>)> = vec![];
        for &axis in axes.iter().collect::<BTreeSet<_>>() {
            if from[axis].is_one() {
                continue;
            }
            let l = self.kb.open_reduce(&from[axis]);
            operand_at[axis] = Ix::var(l.var);
            let accs: Vec<Accumulator> = running
                .iter()
                .zip(&combines)
                .map(|(init, c)| self.kb.accumulator(*init, *c))
                .collect();
            running = accs.iter().map(|a| a.acc).collect();
            open.push((l, accs));
        }
        let position = At::multi(operand_at);
        for (i, n) in joint.iter().enumerate() {
            let x = self.value(func.nodes[*n].operands[0], &position);
            running[i] = self.combine(combines[i], running[i], x);
        }
        for (l, accs) in open.into_iter().rev() {
            running = self.kb.close(l, accs.into_iter().zip(running).collect());
        }
        let mut result = running[0];
        for (i, n) in joint.iter().enumerate() {
            let other = &func.nodes[*n];
            let ty = func.ty(other.results[0]);
            let reg = match combines[i] {
                Combine::Sum | Combine::Prod => self.narrow(running[i], ty.dtype),
                _ => running[i],
            };
            if i == 0 {
                result = reg;
                continue;
            }
            let mut other_at = vec![];
            for axis in 0..from.len() {
                match (axes.contains(&axis), other.attrs.bool("keep")) {
                    (true, true) => other_at.push(Ix::constant(0)),
                    (true, false) => {}
                    (false, _) => {
                        let Some(at) = kept.iter().position(|k| *k == axis) else {
                            unreachable!("axis {axis} is neither reduced nor kept")
                        };
                        other_at.push(ixs[if keep { axis } else { at }].clone());
                    }
                }
            }
            let key = (other.results[0], At::multi(other_at), self.guards.clone());
            self.memo.entry(key).or_insert(reg);
        }
        result
    }

    /// Index of the first largest (smallest) element; the first NaN wins.
    fn arg_reduction(
        &mut self,
        node: &Node,
        kind: Reduction,
        axes: &[usize],
        from: &[Dim],
        mut at: Vec<Ix>,
    ) -> Reg {
        let func = self.func;
        let dtype = func.ty(node.operands[0]).dtype;
        let combine = if kind == Reduction::ArgMax { Combine::Max } else { Combine::Min };
        let best = self.identity(combine, dtype);
        let zero = self.kb.constant(Scalar::I64(0));
        let mut running = [best, zero];
        let mut open = vec![];
        let mut sizes = vec![];
        let mut inner = vec![];
        for &axis in axes.iter().collect::<BTreeSet<_>>() {
            sizes.push(from[axis].clone());
            if from[axis].is_one() {
                inner.push(Ix::constant(0));
                continue;
            }
            let l = self.kb.open_as(LoopKind::Sequential, &from[axis], false);
            at[axis] = Ix::var(l.var);
            inner.push(at[axis].clone());
            let accs = running.map(|r| self.kb.accumulator(r, Combine::Sequential));
            running = [accs[0].acc, accs[1].acc];
            open.push((l, accs));
        }
        let here = linear(&inner, &sizes);
        let x = self.value(node.operands[0], &At::multi(at));
        let [best, best_at] = running;
        let (a, b) = if kind == Reduction::ArgMax { (best, x) } else { (x, best) };
        let mut better = self.kb.op(ScalarOp::Lt, &[a, b], ScalarType::Bool);
        if dtype.is_float() {
            // NaN beats any number, and the first one stays.
            let nan = self.kb.op(ScalarOp::Ne, &[x, x], ScalarType::Bool);
            let number = self.kb.op(ScalarOp::Eq, &[best, best], ScalarType::Bool);
            let first_nan = self.kb.op(ScalarOp::And, &[nan, number], ScalarType::Bool);
            better = self.kb.op(ScalarOp::Or, &[better, first_nan], ScalarType::Bool);
        }
        let ty = self.kb.ty(best);
        let here = self.kb.index(&here);
        running = [
            self.kb.op(ScalarOp::Select, &[better, x, best], ty),
            self.kb.op(ScalarOp::Select, &[better, here, best_at], ScalarType::I64),
        ];
        for (l, accs) in open.into_iter().rev() {
            let done = self.kb.close(l, accs.into_iter().zip(running).collect());
            running = [done[0], done[1]];
        }
        let to = ScalarType::of(func.ty(node.results[0]).dtype);
        if to == ScalarType::I64 {
            return running[1];
        }
        self.kb.op(ScalarOp::Convert, &[running[1]], to)
    }
}

fn combine_of(node: &Node) -> Combine {
    match node.op.def().lower {
        Lower::Reduce(Reduction::Prod) => Combine::Prod,
        Lower::Reduce(Reduction::Max) => Combine::Max,
        Lower::Reduce(Reduction::Min) => Combine::Min,
        Lower::Reduce(Reduction::And) => Combine::And,
        Lower::Reduce(Reduction::Or) => Combine::Or,
        _ => Combine::Sum,
    }
}

/// Pairs up runs of axes with equal products; axes of size one belong to none.
/// `None` when the shapes do not line up symbolically.
pub(crate) fn match_axes(a: &[Dim], b: &[Dim]) -> Option<Vec<(Vec<usize>, Vec<usize>)>> {
    let real = |s: &[Dim]| -> Vec<usize> { (0..s.len()).filter(|i| !s[*i].is_one()).collect() };
    let (ra, rb) = (real(a), real(b));
    let (mut i, mut j) = (0, 0);
    let mut out = vec![];
    while i < ra.len() || j < rb.len() {
        let (mut ga, mut gb) = (vec![*ra.get(i)?], vec![*rb.get(j)?]);
        let (mut pa, mut pb) = (a[ga[0]].clone(), b[gb[0]].clone());
        (i, j) = (i + 1, j + 1);
        while pa != pb {
            // Extend the side that is a proper divisor of the other.
            if pb.div_exact(&pa).is_some() {
                let next = *ra.get(i)?;
                i += 1;
                pa = pa * a[next].clone();
                ga.push(next);
            } else {
                let next = *rb.get(j)?;
                j += 1;
                pb = pb * b[next].clone();
                gb.push(next);
            }
        }
        out.push((ga, gb));
    }
    Some(out)
}

/// Answers an op's requests.
struct Puller<'g, 'a> {
    group: &'g mut GroupLower<'a>,
    node: &'a Node,
    /// Registers handed out as operand elements.
    moved: Vec<Reg>,
}

impl Pull for Puller<'_, '_> {
    fn operand(&mut self, i: usize, at: &[Ix]) -> Reg {
        let Some(&value) = self.node.operands.get(i) else {
            return self.group.kb.constant(Scalar::I64(0));
        };
        let reg = self.group.value(value, &At::multi(at.to_vec()));
        self.moved.push(reg);
        reg
    }

    fn guarded(&mut self, i: usize, at: &[Ix], sizes: &[Dim]) -> Reg {
        let around = self.group.guards.clone();
        let more = sizes.iter().filter(|size| !self.never_empty(size)).cloned();
        let guards: BTreeSet<Dim> = around.iter().cloned().chain(more).collect();
        self.group.guards = guards;
        let reg = self.operand(i, at);
        self.group.guards = around;
        reg
    }

    fn operand_type(&self, i: usize) -> TensorType {
        match self.node.operands.get(i) {
            Some(v) => self.group.func.ty(*v).clone(),
            None => TensorType::scalar(DType::I64),
        }
    }

    fn operand_count(&self) -> usize {
        self.node.operands.len()
    }

    fn result_type(&self) -> TensorType {
        self.group.func.ty(self.node.results[0]).clone()
    }

    fn attrs(&self) -> &Attrs {
        &self.node.attrs
    }

    fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        let ty = match op {
            ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le => ScalarType::Bool,
            ScalarOp::Select => self.group.kb.ty(args[1]),
            _ => self.group.kb.ty(args[0]),
        };
        self.group.kb.op(op, args, ty)
    }

    fn convert(&mut self, x: Reg, to: ScalarType) -> Reg {
        if self.group.kb.ty(x) == to {
            return x;
        }
        self.group.kb.op(ScalarOp::Convert, &[x], to)
    }

    fn bitcast(&mut self, x: Reg, to: ScalarType) -> Reg {
        if self.group.kb.ty(x) == to {
            return x;
        }
        self.group.kb.op(ScalarOp::Bitcast, &[x], to)
    }

    fn constant(&mut self, value: Scalar) -> Reg {
        self.group.kb.constant(value)
    }

    fn reg_type(&self, x: Reg) -> ScalarType {
        self.group.kb.ty(x)
    }

    fn index(&mut self, ix: &Ix) -> Reg {
        self.group.kb.index(ix)
    }

    fn reduce(
        &mut self,
        combine: Combine,
        extents: &[Dim],
        body: &mut dyn FnMut(&mut dyn Pull, &[Ix]) -> Reg,
    ) -> Reg {
        // The element type is known only from the body; the result's fits all
        // ops that reduce this way.
        let dtype = self.group.func.ty(self.node.results[0]).dtype;
        let mut running = self.group.identity(combine, dtype);
        let mut open = vec![];
        let mut at = vec![];
        for extent in extents {
            if extent.is_one() {
                at.push(Ix::constant(0));
                continue;
            }
            let l = self.group.kb.open_reduce(extent);
            at.push(Ix::var(l.var));
            let acc = self.group.kb.accumulator(running, combine);
            running = acc.acc;
            open.push((l, acc));
        }
        let x = body(self, &at);
        running = self.group.combine(combine, running, x);
        for (l, acc) in open.into_iter().rev() {
            running = self.group.kb.close(l, vec![(acc, running)])[0];
        }
        running
    }
}
