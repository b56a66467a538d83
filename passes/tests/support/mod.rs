//! Runs programs without code generation, slowly and with every check on.
//!
//! Memory is laid out as the plan says, so a step that overwrites something
//! still needed shows as a wrong number. Ranged loops run in several pieces,
//! last piece first: no kernel may depend on how its range is split. Steps run
//! out of order where the plan says that they may.
#![allow(dead_code)]

use std::collections::BTreeMap;
use tfc_abi::BUFFER_ALIGN;
use tfc_abi::plan::{Conv, ConvKind, Entry, Epilogue, Func, Home, MatMul, Step, Steps};
use tfc_ir::interp::State;
use tfc_ir::kernel::{Ix, Kernel, Loop, Reg, Scalar, ScalarOp, ScalarType, Stmt};
use tfc_ir::program::Program;
use tfc_ir::{DType, Dim, Graph, Tensor};

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Val {
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    Bool(bool),
}

impl Val {
    fn f64(self) -> f64 {
        match self {
            Val::F32(v) => v as f64,
            Val::F64(v) => v,
            Val::I32(v) => v as f64,
            Val::I64(v) => v as f64,
            Val::Bool(v) => v as u8 as f64,
        }
    }
    fn i64(self) -> i64 {
        match self {
            Val::F32(v) => v as i64,
            Val::F64(v) => v as i64,
            Val::I32(v) => v as i64,
            Val::I64(v) => v,
            Val::Bool(v) => v as i64,
        }
    }
    fn bool(self) -> bool {
        match self {
            Val::Bool(b) => b,
            other => panic!("{other:?} is not a truth value"),
        }
    }
}

/// The bytes of a program's variables.
pub struct Machine {
    pub vars: Vec<Vec<u8>>,
}

struct Memory {
    /// One block of bytes per home; the arena is one.
    blocks: BTreeMap<(u8, u32), Vec<u8>>,
    /// Where in the arena slots begin.
    slots: Vec<usize>,
}

impl Memory {
    /// The block of a home, and where in it that begins.
    fn place(&self, home: Home) -> ((u8, u32), usize) {
        match home {
            Home::Param(i) => ((0, i), 0),
            Home::Result(i) => ((1, i), 0),
            Home::Var(i) => ((2, i), 0),
            Home::Const(i) => ((3, i), 0),
            Home::Slot(i, _) => ((4, 0), self.slots[i as usize]),
        }
    }
}

impl Machine {
    pub fn new(program: &Program) -> Machine {
        let vars = program
            .plan
            .vars
            .iter()
            .map(|v| vec![0; v.shape.iter().product::<i64>() as usize * v.dtype.size()])
            .collect();
        let mut m = Machine { vars };
        if let Some(i) = program.plan.init {
            m.run(program, &program.plan.entries[i as usize], &[]);
        }
        m
    }

    pub fn call(&mut self, program: &Program, entry: &str, feeds: &[Tensor]) -> Vec<Tensor> {
        let entry = program.plan.entries.iter().find(|e| e.name == entry).expect("an entry");
        self.run(program, entry, feeds)
    }

    fn run(&mut self, program: &Program, entry: &Entry, feeds: &[Tensor]) -> Vec<Tensor> {
        program.plan.check().expect("a valid plan");
        let mut dims = vec![0i64; program.plan.dims.len()];
        for (port, feed) in entry.params.iter().zip(feeds) {
            for (e, size) in port.shape.iter().zip(feed.shape()) {
                if let [tfc_abi::plan::ExprOp::Dim(d)] = entry.exprs[*e as usize].0.as_slice() {
                    dims[*d as usize] = *size as i64;
                }
            }
        }
        let values: Vec<i64> = entry.exprs.iter().map(|e| e.eval(&dims).expect("a size")).collect();
        let mut memory = Memory { blocks: BTreeMap::new(), slots: vec![] };
        for (i, feed) in feeds.iter().enumerate() {
            memory.blocks.insert((0, i as u32), feed.bytes().to_vec());
        }
        for (i, r) in entry.results.iter().enumerate() {
            let len: i64 = r.shape.iter().map(|e| values[*e as usize]).product();
            memory.blocks.insert((1, i as u32), vec![0xAA; len as usize * r.dtype.size()]);
        }
        for (i, v) in self.vars.iter().enumerate() {
            memory.blocks.insert((2, i as u32), v.clone());
        }
        for (i, c) in program.plan.consts.iter().enumerate() {
            let bytes = &program.consts[c.offset as usize..(c.offset + c.len) as usize];
            memory.blocks.insert((3, i as u32), bytes.to_vec());
        }
        let mut arena = 0;
        for s in &entry.slots {
            memory.slots.push(arena);
            arena += (values[*s as usize] as usize).next_multiple_of(BUFFER_ALIGN);
        }
        memory.blocks.insert((4, 0), vec![0xAA; arena]);
        let size = |e: u32| values[e as usize] as u64;
        for b in entry.buffers.iter().filter(|b| matches!(b.home, Home::Slot(..))) {
            let mut room = 0;
            entry.in_slots(b, size, |_, bytes| room += bytes);
            assert_eq!(room, size(b.len) * b.dtype.size() as u64, "{b:?} does not fit");
        }
        let stacks = BTreeMap::new();
        let mut cx = Call { program, entry, values, memory, stacks, dims };
        cx.steps(&entry.steps);
        for (i, v) in self.vars.iter_mut().enumerate() {
            *v = cx.memory.blocks[&(2, i as u32)].clone();
        }
        entry
            .results
            .iter()
            .enumerate()
            .map(|(i, r)| {
                let shape = r.shape.iter().map(|e| cx.values[*e as usize] as usize).collect();
                let bytes = cx.memory.blocks[&(1, i as u32)].clone();
                Tensor::from_bytes(r.dtype, shape, bytes.into()).expect("a result")
            })
            .collect()
    }
}

struct Call<'a> {
    program: &'a Program,
    entry: &'a Entry,
    values: Vec<i64>,
    memory: Memory,
    stacks: BTreeMap<u32, Vec<Vec<Val>>>,
    dims: Vec<i64>,
}

impl Call<'_> {
    /// As far from the order of the list as what the steps wait for allows: the
    /// last step that may run comes first.
    fn steps(&mut self, steps: &Steps) {
        let mut done = vec![false; steps.len()];
        for _ in 0..steps.len() {
            let ready = |i: &usize| {
                !done[*i] && steps.dispatch()[*i].after.iter().all(|a| done[*a as usize])
            };
            let next = (0..steps.len()).rev().find(ready).expect("a step that may run");
            self.step(&steps[next]);
            done[next] = true;
        }
    }

    fn v(&self, e: u32) -> i64 {
        self.values[e as usize]
    }

    fn get(&self, buf: u32, at: i64) -> Val {
        let b = &self.entry.buffers[buf as usize];
        assert!(at >= 0 && at < self.v(b.len).max(1), "load {at} of {}", self.v(b.len));
        if self.v(b.len) == 0 {
            return zero(b.dtype);
        }
        let (block, start) = self.memory.place(b.home);
        let size = b.dtype.size();
        let bytes = &self.memory.blocks[&block][start + at as usize * size..][..size];
        let t = Tensor::from_bytes(b.dtype, vec![], bytes.into()).expect("an element");
        match b.dtype {
            DType::F64 => Val::F64(t.to_f64()[0]),
            d if d.is_float() => Val::F32(t.to_f64()[0] as f32),
            DType::Bool => Val::Bool(t.to_i64()[0] != 0),
            DType::I64 => Val::I64(t.to_i64()[0]),
            _ => Val::I32(t.to_i64()[0] as i32),
        }
    }

    fn set(&mut self, buf: u32, at: i64, v: Val) {
        let b = &self.entry.buffers[buf as usize];
        assert!(at >= 0 && at < self.v(b.len), "store {at} of {}", self.v(b.len));
        assert!(!matches!(b.home, Home::Param(_) | Home::Const(_)), "store to {:?}", b.home);
        let t = match b.dtype {
            d if d.is_float() => Tensor::from_f64(d, vec![], [v.f64()]),
            d => Tensor::from_i64(d, vec![], [v.i64()]),
        };
        let size = b.dtype.size();
        let (block, start) = self.memory.place(b.home);
        let block = self.memory.blocks.get_mut(&block).expect("a block");
        block[start + at as usize * size..][..size].copy_from_slice(t.bytes());
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Launch(l) => {
                let kernel = &self.program.kernels[l.kernel as usize];
                let extent = self.v(l.extent);
                let third = extent / 3;
                for (lo, hi) in [(2 * third, extent), (third, 2 * third), (0, third)] {
                    if lo < hi || (extent == 1 && lo == 0 && hi == 1) {
                        self.kernel(kernel, &l.bufs, &l.dims, [lo, hi, 0, 0]);
                    }
                }
            }
            Step::MatMul(m) => self.matmul(m),
            Step::Conv(c) => self.conv(c),
            Step::Copy { src, dst } => {
                let n = self.v(self.entry.buffers[*dst as usize].len);
                for i in 0..n {
                    let v = self.get(*src, i);
                    self.set(*dst, i, v);
                }
            }
            Step::Call(c) => match c.func {
                Func::Zero => {
                    let n = self.v(self.entry.buffers[c.bufs[0] as usize].len);
                    let z = zero(self.entry.buffers[c.bufs[0] as usize].dtype);
                    (0..n).for_each(|i| self.set(c.bufs[0], i, z));
                }
                Func::ArgSort => {
                    let [outer, len, inner, down] =
                        [c.ints[0], c.ints[1], c.ints[2], c.ints[3]].map(|e| self.v(e));
                    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
                        let at = |k: i64| (o * len + k) * inner + i;
                        let key = |k: i64| self.get(c.bufs[1], at(k)).f64();
                        let mut order: Vec<i64> = (0..len).collect();
                        // NaN last, either way; equal ones in their order.
                        order.sort_by(|a, b| {
                            let (x, y) = (key(*a), key(*b));
                            let upward = x.partial_cmp(&y).unwrap_or(std::cmp::Ordering::Equal);
                            let upward = if down != 0 { upward.reverse() } else { upward };
                            x.is_nan().cmp(&y.is_nan()).then(upward)
                        });
                        let places: Vec<(i64, i64)> = (0..len).map(at).zip(order).collect();
                        for (place, from) in places {
                            self.set(c.bufs[0], place, Val::I32(from as i32));
                        }
                    }
                }
                f => {
                    let (count, width) = (self.v(c.ints[1]), self.v(c.ints[2]));
                    for i in 0..count {
                        let row = self.get(c.bufs[1], i).i64();
                        for j in 0..width {
                            let u = self.get(c.bufs[2], i * width + j);
                            let v = match f {
                                Func::ScatterSetRows => u,
                                _ => binary(ScalarOp::Add, self.get(c.bufs[0], row * width + j), u),
                            };
                            self.set(c.bufs[0], row * width + j, v);
                        }
                    }
                }
            },
            Step::Save { .. } | Step::Restore { .. } => panic!("no files here"),
            Step::Print { .. } | Step::Exchange(_) => {}
            Step::Send(_) | Step::Recv(_) => panic!("nobody else is here"),
            Step::Assert { cond, message, .. } => {
                let n = self.v(self.entry.buffers[*cond as usize].len);
                assert!((0..n).all(|i| self.get(*cond, i).bool()), "{message}");
            }
            Step::CheckFinite(c) => {
                let n = self.v(self.entry.buffers[c.bufs[0] as usize].len);
                let finite = |i| self.get(c.bufs[0], i).f64().is_finite();
                assert!((0..n).all(finite), "`{}` is not finite", c.name);
            }
            Step::CheckIndex(c) => {
                let n = self.v(self.entry.buffers[c.ids as usize].len);
                let last = self.v(c.size) - self.v(c.width);
                let inside = |i| (0..=last).contains(&self.get(c.ids, i).i64());
                assert!((0..n).all(inside), "an index is out of range");
            }
            Step::Push { stack, src } => {
                let n = self.v(self.entry.buffers[*src as usize].len);
                let item: Vec<_> = (0..n).map(|i| self.get(*src, i)).collect();
                self.stacks.entry(*stack).or_default().push(item);
            }
            Step::Pop { stack, dst, name } => {
                let item = self.stacks.get_mut(stack).and_then(Vec::pop);
                let item = item.unwrap_or_else(|| panic!("nothing is left on {name}"));
                (0i64..).zip(item).for_each(|(i, v)| self.set(*dst, i, v));
            }
            Step::If { cond, then, otherwise } => {
                let branch = if self.get(*cond, 0).bool() { then } else { otherwise };
                self.steps(branch);
            }
            Step::While { head, cond, body } => loop {
                self.steps(head);
                if !self.get(*cond, 0).bool() {
                    break;
                }
                self.steps(body);
            },
            // The corpus runs these, in threads and in one.
            Step::Queue(_) => panic!("this machine has no queues"),
        }
    }

    /// Blocks of the upper rows by the kernel, of the lower ones by the statements on
    /// the accumulator.
    fn epilogue(&mut self, e: &Epilogue, product: u32, rows: i64, cols: i64) {
        let entries = &self.program.plan.entries;
        let entry = entries.iter().position(|e| std::ptr::eq(e, self.entry)).expect("an entry");
        let contraction = &self.program.contractions[&(entry as u32, product)];
        let kernel = &self.program.kernels[e.kernel as usize];
        let body = contraction.epilogue.as_ref().expect("an epilogue");
        assert_eq!(body.kernel, e.kernel);
        let inlined = body.on_block(kernel).expect("two loops");
        tfc_ir::kernel::verify::verify(&inlined).expect("a kernel");
        let (r, c) = (rows / 2, cols / 2);
        for (kernel, lo, hi) in [(kernel, r, rows), (&inlined, 0, r)] {
            for (l1, h1) in [(0, c), (c, cols)] {
                self.kernel(kernel, &e.bufs, &e.dims, [lo, hi, l1, h1]);
            }
        }
    }

    fn matmul(&mut self, s: &MatMul) {
        let (m, n, k, batch) = (self.v(s.m), self.v(s.n), self.v(s.k), self.v(s.batch));
        let mut out = vec![];
        for b in 0..batch {
            for i in 0..m {
                for j in 0..n {
                    let mut sum = zero(self.entry.buffers[s.c as usize].dtype);
                    for x in 0..k {
                        let a = if s.trans_a { x * m + i } else { i * k + x };
                        let bb = if s.trans_b { j * k + x } else { x * n + j };
                        let a = self.get(s.a, b * self.v(s.a_stride) + a);
                        let bb = self.get(s.b, b * self.v(s.b_stride) + bb);
                        sum = binary(ScalarOp::Add, sum, binary(ScalarOp::Mul, a, bb));
                    }
                    out.push(sum);
                }
            }
        }
        // As the real one: reads while it writes, so no operand may be `c`.
        for buf in [s.a, s.b] {
            let [from, to] = [buf, s.c].map(|b| self.entry.buffers[b as usize].home);
            assert!(!from.meets(to), "a product over its own operand");
        }
        for (i, v) in out.into_iter().enumerate() {
            self.set(s.c, i as i64, v);
        }
        if let Some(e) = &s.epilogue {
            for buf in [s.a, s.b] {
                let home = self.entry.buffers[buf as usize].home;
                let kernel = &self.program.kernels[e.kernel as usize];
                for (b, k) in e.bufs.iter().zip(&kernel.bufs) {
                    assert!(
                        !k.written || !self.entry.buffers[*b as usize].home.meets(home),
                        "an epilogue over an operand of its product"
                    );
                }
            }
            self.epilogue(e, s.c, batch * m, n);
        }
    }

    fn conv(&mut self, c: &Conv) {
        let (n, ci, h, w) =
            (self.v(c.batch), self.v(c.in_channels), self.v(c.in_h), self.v(c.in_w));
        let (co, oh, ow) = (self.v(c.out_channels), self.v(c.out_h), self.v(c.out_w));
        let g = c.groups as i64;
        let (cig, cog) = (ci / g, co / g);
        let [kh, kw] = c.kernel.map(|x| x as i64);
        let (image, filter, output) = match c.kind {
            ConvKind::Forward => (c.lhs, c.rhs, c.out),
            ConvKind::GradInput => (c.out, c.rhs, c.lhs),
            ConvKind::GradFilter => (c.lhs, c.out, c.rhs),
        };
        let len = self.v(self.entry.buffers[c.out as usize].len);
        let mut sums = vec![0f64; len as usize];
        for b in 0..n {
            for o in 0..co {
                for y in 0..oh {
                    for x in 0..ow {
                        for i in 0..cig {
                            for ky in 0..kh {
                                for kx in 0..kw {
                                    let iy = y * c.stride[0] as i64 + ky * c.dilation[0] as i64
                                        - c.pad[0] as i64;
                                    let ix = x * c.stride[1] as i64 + kx * c.dilation[1] as i64
                                        - c.pad[1] as i64;
                                    if iy < 0 || iy >= h || ix < 0 || ix >= w {
                                        continue;
                                    }
                                    let ia = ((b * ci + (o / cog) * cig + i) * h + iy) * w + ix;
                                    let fa = ((o * cig + i) * kh + ky) * kw + kx;
                                    let oa = ((b * co + o) * oh + y) * ow + x;
                                    let (at, p, q) = match c.kind {
                                        ConvKind::Forward => (oa, (image, ia), (filter, fa)),
                                        ConvKind::GradInput => (ia, (output, oa), (filter, fa)),
                                        ConvKind::GradFilter => (fa, (image, ia), (output, oa)),
                                    };
                                    sums[at as usize] +=
                                        self.get(p.0, p.1).f64() * self.get(q.0, q.1).f64();
                                }
                            }
                        }
                    }
                }
            }
        }
        for (i, v) in sums.into_iter().enumerate() {
            self.set(c.out, i as i64, Val::F64(v));
        }
        if let Some(e) = &c.epilogue {
            self.epilogue(e, c.out, n * co, oh * ow);
        }
    }

    fn kernel(&mut self, kernel: &Kernel, bufs: &[u32], dims: &[u32], range: [i64; 4]) {
        for (b, k) in bufs.iter().zip(&kernel.bufs) {
            assert_eq!(self.entry.buffers[*b as usize].dtype, k.dtype, "in {}", kernel.name);
        }
        // As a CPU has it.
        let mut placed = kernel.clone();
        tfc_ir::kernel::locals::place(&mut placed);
        let kernel = &placed;
        let names: BTreeMap<String, i64> =
            kernel.dims.iter().zip(dims).map(|(n, e)| (n.to_string(), self.v(*e))).collect();
        let mut run = KernelRun {
            regs: vec![None; kernel.regs.len()],
            vars: vec![0; kernel.loops as usize],
            names,
            bufs: bufs.to_vec(),
            range,
            ranged: 0,
            kernel,
        };
        run.stmts(self, &kernel.body);
    }
}

struct KernelRun<'k> {
    kernel: &'k Kernel,
    regs: Vec<Option<Val>>,
    vars: Vec<i64>,
    names: BTreeMap<String, i64>,
    bufs: Vec<u32>,
    range: [i64; 4],
    ranged: usize,
}

fn index<E: cranelift_entity::EntityRef>(e: E) -> usize {
    e.index()
}

impl KernelRun<'_> {
    fn dim(&self, d: &Dim) -> i64 {
        d.eval(&|n| self.names.get(n).copied()).expect("a dim of the kernel")
    }

    fn reg(&self, r: Reg) -> Val {
        self.regs[index(r)].unwrap_or_else(|| panic!("{r} is not set in {}", self.kernel.name))
    }

    fn ix(&self, ix: &Ix) -> i64 {
        let mut at = self.dim(&ix.offset);
        for (v, s) in &ix.terms {
            at += self.vars[index(*v)] * self.dim(s);
        }
        for (r, s) in &ix.regs {
            at += self.reg(*r).i64() * self.dim(s);
        }
        at
    }

    fn stmts(&mut self, cx: &mut Call<'_>, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Const { dst, value } => {
                    self.regs[index(*dst)] = Some(match *value {
                        Scalar::F32(b) => Val::F32(f32::from_bits(b)),
                        Scalar::F64(b) => Val::F64(f64::from_bits(b)),
                        Scalar::I32(v) => Val::I32(v),
                        Scalar::I64(v) => Val::I64(v),
                        Scalar::Bool(v) => Val::Bool(v),
                    });
                }
                Stmt::Op { dst, op, args } => {
                    let args: Vec<Val> = args.iter().map(|r| self.reg(*r)).collect();
                    let ty = self.kernel.regs[*dst];
                    self.regs[index(*dst)] = Some(scalar(*op, &args, ty));
                }
                Stmt::Index { dst, ix } => self.regs[index(*dst)] = Some(Val::I64(self.ix(ix))),
                Stmt::Load { dst, buf, at } => {
                    let v = cx.get(self.bufs[*buf as usize], self.ix(at));
                    self.regs[index(*dst)] = Some(v);
                }
                Stmt::Store { buf, at, value } => {
                    let at = self.ix(at);
                    cx.set(self.bufs[*buf as usize], at, self.reg(*value));
                }
                Stmt::Loop(l) => self.run_loop(cx, l),
            }
        }
    }

    fn run_loop(&mut self, cx: &mut Call<'_>, l: &Loop) {
        let (mut lo, mut hi) = (0, self.dim(&l.extent));
        if l.ranged {
            (lo, hi) = (self.range[2 * self.ranged], self.range[2 * self.ranged + 1]);
            self.ranged += 1;
        }
        for c in &l.carried {
            self.regs[index(c.acc)] = Some(self.reg(c.init));
        }
        for i in lo..hi {
            self.vars[index(l.var)] = i;
            self.stmts(cx, &l.body);
            let next: Vec<Val> = l.carried.iter().map(|c| self.reg(c.next)).collect();
            for (c, v) in l.carried.iter().zip(next) {
                self.regs[index(c.acc)] = Some(v);
            }
        }
        for c in &l.carried {
            self.regs[index(c.result)] = self.regs[index(c.acc)];
        }
        if l.ranged {
            self.ranged -= 1;
        }
    }
}

fn zero(dtype: DType) -> Val {
    match ScalarType::of(dtype) {
        ScalarType::F32 => Val::F32(0.0),
        ScalarType::F64 => Val::F64(0.0),
        ScalarType::I32 => Val::I32(0),
        ScalarType::I64 => Val::I64(0),
        ScalarType::Bool => Val::Bool(false),
    }
}

fn from_f64(ty: ScalarType, v: f64) -> Val {
    match ty {
        ScalarType::F32 => Val::F32(v as f32),
        ScalarType::F64 => Val::F64(v),
        ScalarType::I32 => Val::I32(v as i32),
        ScalarType::I64 => Val::I64(v as i64),
        ScalarType::Bool => Val::Bool(v != 0.0),
    }
}

fn binary(op: ScalarOp, a: Val, b: Val) -> Val {
    let ty = match a {
        Val::F32(_) => ScalarType::F32,
        Val::F64(_) => ScalarType::F64,
        Val::I32(_) => ScalarType::I32,
        Val::I64(_) => ScalarType::I64,
        Val::Bool(_) => ScalarType::Bool,
    };
    scalar(op, &[a, b], ty)
}

fn scalar(op: ScalarOp, a: &[Val], ty: ScalarType) -> Val {
    use ScalarOp::*;
    match op {
        Select => return if a[0].bool() { a[1] } else { a[2] },
        Convert => {
            return match (a[0], ty) {
                (Val::I64(v), ScalarType::I32) => Val::I32(v as i32),
                (Val::I32(v), ScalarType::I64) => Val::I64(v as i64),
                (v, t) => from_f64(t, v.f64()),
            };
        }
        Bitcast => {
            return match (a[0], ty) {
                (Val::F32(v), ScalarType::I32) => Val::I32(v.to_bits() as i32),
                (Val::I32(v), ScalarType::F32) => Val::F32(f32::from_bits(v as u32)),
                (Val::F64(v), ScalarType::I64) => Val::I64(v.to_bits() as i64),
                (Val::I64(v), ScalarType::F64) => Val::F64(f64::from_bits(v as u64)),
                other => panic!("bitcast {other:?}"),
            };
        }
        _ => {}
    }
    let float = |f: &dyn Fn(f64) -> f64| from_f64(ty, f(a[0].f64()));
    match (a[0], a.get(1).copied()) {
        (Val::F32(_) | Val::F64(_), b) => {
            let (x, y) = (a[0].f64(), b.map_or(0.0, Val::f64));
            match op {
                Add => from_f64(ty, x + y),
                Sub => from_f64(ty, x - y),
                Mul => from_f64(ty, x * y),
                Div => from_f64(ty, x / y),
                Neg => from_f64(ty, -x),
                Abs => from_f64(ty, x.abs()),
                Min if x.is_nan() || y.is_nan() => from_f64(ty, f64::NAN),
                Max if x.is_nan() || y.is_nan() => from_f64(ty, f64::NAN),
                Min => from_f64(ty, x.min(y)),
                Max => from_f64(ty, x.max(y)),
                Fma => from_f64(ty, x.mul_add(y, a[2].f64())),
                Eq => Val::Bool(x == y),
                Ne => Val::Bool(x != y),
                Lt => Val::Bool(x < y),
                Le => Val::Bool(x <= y),
                Sqrt => float(&f64::sqrt),
                Floor => float(&f64::floor),
                Ceil => float(&f64::ceil),
                RoundEven => float(&f64::round_ties_even),
                Trunc => float(&f64::trunc),
                RoundF16 | RoundBF16 => {
                    let d = if op == RoundF16 { DType::F16 } else { DType::BF16 };
                    from_f64(ty, Tensor::from_f64(d, vec![], [x]).to_f64()[0])
                }
                Elementary(function) => {
                    from_f64(ty, (function.def().reference)(&[x, y][..function.def().arity]))
                }
                other => panic!("{other:?} on floats"),
            }
        }
        (Val::Bool(x), b) => {
            let y = b.is_some_and(|b| b.bool());
            Val::Bool(match op {
                And => x && y,
                Or => x || y,
                Xor | Ne => x != y,
                Eq => x == y,
                Not => !x,
                Max => x | y,
                Min => x & y,
                other => panic!("{other:?} on bool"),
            })
        }
        (x, b) => {
            let (x, y) = (x.i64(), b.map_or(0, Val::i64));
            let wide = matches!(a[0], Val::I64(_));
            let wrap = |v: i64| if wide { Val::I64(v) } else { Val::I32(v as i32) };
            match op {
                Add => wrap(x.wrapping_add(y)),
                Sub => wrap(x.wrapping_sub(y)),
                Mul => wrap(x.wrapping_mul(y)),
                Div => wrap(if y == 0 { 0 } else { x.wrapping_div(y) }),
                Rem => wrap(if y == 0 { 0 } else { x.wrapping_rem(y) }),
                Neg => wrap(x.wrapping_neg()),
                Abs => wrap(x.wrapping_abs()),
                Min => wrap(x.min(y)),
                Max => wrap(x.max(y)),
                And => wrap(x & y),
                Or => wrap(x | y),
                Xor => wrap(x ^ y),
                Not => wrap(!x),
                Shl => wrap(if wide { x << (y & 63) } else { ((x as i32) << (y & 31)) as i64 }),
                ShrArith => {
                    wrap(if wide { x >> (y & 63) } else { ((x as i32) >> (y & 31)) as i64 })
                }
                ShrLogic => wrap(if wide {
                    ((x as u64) >> (y & 63)) as i64
                } else {
                    ((x as u32) >> (y & 31)) as i64
                }),
                Eq => Val::Bool(x == y),
                Ne => Val::Bool(x != y),
                Lt => Val::Bool(x < y),
                Le => Val::Bool(x <= y),
                WrapI8 => wrap(x as i8 as i64),
                WrapU8 => wrap(x as u8 as i64),
                other => panic!("{other:?} on integers"),
            }
        }
    }
}

/// By its power series: good to the last digits for small arguments.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// Deterministic feed data in about -2..2 (floats) or 0..3 (integers).
pub fn feed(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let n: usize = shape.iter().product();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let values: Vec<f64> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let unit = (state >> 33) as f64 / (1u64 << 31) as f64;
            if dtype.is_float() { unit * 4.0 - 2.0 } else { (unit * 3.0).floor() }
        })
        .collect();
    Tensor::from_f64(dtype, shape.to_vec(), values)
}

pub fn close(a: &Tensor, b: &Tensor, tolerance: f64) -> Result<(), String> {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return Err(format!("{}{:?} and {}{:?}", a.dtype(), a.shape(), b.dtype(), b.shape()));
    }
    for (i, (x, y)) in a.to_f64().into_iter().zip(b.to_f64()).enumerate() {
        let same = x == y || (x.is_nan() && y.is_nan());
        if !same && (x - y).abs() > tolerance * (1.0 + x.abs().max(y.abs())) {
            return Err(format!("element {i}: {x} and {y}"));
        }
    }
    Ok(())
}

/// Compiles a graph and compares every entry with the interpreter, three calls
/// in a row so that state counts.
pub fn check(graph: &Graph, sizes: &[(&str, usize)]) -> Program {
    let options = tfc_passes::PassOptions::default();
    let program = match tfc_passes::compile(graph, &options) {
        Ok(p) => p,
        Err(diags) => panic!("{:?}", diags.iter().map(|d| &d.message).collect::<Vec<_>>()),
    };
    check_program(graph, &program, sizes);
    program
}

pub fn check_program(graph: &Graph, program: &Program, sizes: &[(&str, usize)]) {
    // Gradients must be gone for the interpreter.
    let oracle =
        tfc_passes::run_passes(graph, &["differentiate"]).unwrap_or_else(|d| panic!("{d:?}"));
    let mut state = State::new(&oracle).expect("initial state");
    let mut machine = Machine::new(program);
    for round in 0..3 {
        for func in &oracle.entries {
            let feeds: Vec<Tensor> = func
                .params()
                .iter()
                .enumerate()
                .map(|(i, p)| {
                    let ty = func.ty(*p);
                    let shape: Vec<usize> = ty
                        .shape
                        .iter()
                        .map(|d| {
                            d.eval(&|n| sizes.iter().find(|s| s.0 == n).map(|s| s.1 as i64))
                                .expect("a size") as usize
                        })
                        .collect();
                    feed(ty.dtype, &shape, (round * 17 + i) as u64)
                })
                .collect();
            let want = tfc_ir::interp::run(&oracle, &func.name, &feeds, &mut state)
                .unwrap_or_else(|e| panic!("interpreter: {e}"));
            let got = machine.call(program, &func.name, &feeds);
            for (i, (w, g)) in want.iter().zip(&got).enumerate() {
                let tolerance =
                    if w.dtype() == DType::F16 || w.dtype() == DType::BF16 { 2e-2 } else { 1e-4 };
                if let Err(e) = close(w, g, tolerance) {
                    panic!(
                        "{}: result {i}, round {round}: {e}\n{}",
                        func.name,
                        program.plan_text()
                    );
                }
            }
            for (id, var) in graph.vars.iter() {
                let want = state.get(id).expect("a variable");
                let shape = want.shape().to_vec();
                let bytes = machine.vars[index(id)].clone();
                let got = Tensor::from_bytes(var.ty.dtype, shape, bytes.into()).expect("bytes");
                if let Err(e) = close(&want, &got, 1e-4) {
                    panic!("variable {}, round {round}: {e}\n{}", var.name, program.plan_text());
                }
            }
        }
    }
}
