//! Hand-made programs for tests.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use tfc_abi::plan::*;
use tfc_abi::{ABI_VERSION, DType, KernelFn, ProgramDesc, Version};
use tfc_runtime::{Model, ModelOptions, Pool, Result};

/// Sizes in tests: a number, a dim, or a multiple of one.
#[derive(Clone, Copy)]
pub enum S {
    N(i64),
    D(u32),
    /// `dim * factor`.
    Times(u32, i64),
}

pub fn expr(s: S) -> Expr {
    match s {
        S::N(n) => Expr(vec![ExprOp::Const(n)]),
        S::D(d) => Expr(vec![ExprOp::Dim(d)]),
        S::Times(d, f) => Expr(vec![ExprOp::Dim(d), ExprOp::Const(f), ExprOp::Mul]),
    }
}

/// An entry under construction.
#[derive(Default)]
pub struct Make {
    pub entry: Entry,
}

impl Make {
    pub fn new(name: &str) -> Make {
        let entry = Entry { name: name.into(), doc: format!("Does {name}."), ..Entry::default() };
        Make { entry }
    }

    pub fn e(&mut self, e: Expr) -> ExprId {
        match self.entry.exprs.iter().position(|x| *x == e) {
            Some(i) => i as u32,
            None => {
                self.entry.exprs.push(e);
                self.entry.exprs.len() as u32 - 1
            }
        }
    }

    pub fn size(&mut self, s: S) -> ExprId {
        self.e(expr(s))
    }

    fn product(&mut self, shape: &[S], start: i64) -> ExprId {
        let mut ops = vec![ExprOp::Const(start)];
        for s in shape {
            ops.extend(expr(*s).0);
            ops.push(ExprOp::Mul);
        }
        self.e(Expr(ops))
    }

    pub fn buffer(&mut self, dtype: DType, shape: &[S], home: Home) -> BufId {
        let len = self.product(shape, 1);
        let shape = shape.iter().map(|s| self.size(*s)).collect();
        self.entry.buffers.push(Buffer { dtype, len, shape, home, device: HOST });
        self.entry.buffers.len() as u32 - 1
    }

    pub fn param(&mut self, name: &str, dtype: DType, shape: &[S], text: &str) -> BufId {
        let home = Home::Param(self.entry.params.len() as u32);
        let buf = self.buffer(dtype, shape, home);
        let shape = shape.iter().map(|s| self.size(*s)).collect();
        self.entry.params.push(Port { name: name.into(), dtype, shape, buf, text: text.into() });
        buf
    }

    pub fn result(&mut self, name: &str, dtype: DType, shape: &[S], text: &str) -> BufId {
        let home = Home::Result(self.entry.results.len() as u32);
        let buf = self.buffer(dtype, shape, home);
        let shape = shape.iter().map(|s| self.size(*s)).collect();
        self.entry.results.push(Port { name: name.into(), dtype, shape, buf, text: text.into() });
        buf
    }

    pub fn slot(&mut self, dtype: DType, shape: &[S]) -> BufId {
        let bytes = self.product(shape, dtype.size() as i64);
        self.entry.slots.push(bytes);
        let slot = self.entry.slots.len() as u32 - 1;
        self.buffer(dtype, shape, Home::slot(slot))
    }

    pub fn launch(
        &mut self,
        kernel: u32,
        bufs: &[BufId],
        dims: &[S],
        extent: S,
        cost: i64,
    ) -> Step {
        let dims = dims.iter().map(|s| self.size(*s)).collect();
        let (extent, cost) = (self.size(extent), self.size(S::N(cost)));
        Step::Launch(Launch {
            kernel,
            bufs: bufs.to_vec(),
            outputs: 1,
            dims,
            extent,
            cost,
            splits: cost > 0,
            partial: false,
        })
    }

    pub fn matmul(&mut self, [a, b, c]: [BufId; 3], [m, n, k]: [S; 3]) -> MatMul {
        let (m, n, k) = (self.size(m), self.size(n), self.size(k));
        let (one, zero) = (self.size(S::N(1)), self.size(S::N(0)));
        MatMul {
            dtype: DType::F32,
            a,
            b,
            c,
            m,
            n,
            k,
            batch: one,
            a_stride: zero,
            b_stride: zero,
            trans_a: false,
            trans_b: false,
            epilogue: None,
        }
    }

    pub fn step(&mut self, s: Step) {
        self.entry.steps.push(s);
    }
}

pub fn dim(name: &str, min: i64, max: i64) -> DimInfo {
    DimInfo { name: name.into(), min, max }
}

pub fn var(name: &str, shape: &[i64]) -> VarInfo {
    VarInfo {
        name: name.into(),
        dtype: DType::F32,
        shape: shape.to_vec(),
        user: true,
        random: false,
        zero: false,
        task: 0,
        asked: None,
    }
}

/// Memory a hand-made program lives in.
struct Program {
    plan: Vec<u8>,
    kernels: Vec<KernelFn>,
    version: Version,
    consts: Vec<u8>,
}

/// A descriptor of a plan; the memory is leaked, as a program's own is static.
pub fn describe(plan: &Plan, kernels: &[KernelFn], consts: &[u8]) -> &'static ProgramDesc {
    let kernels = kernels.to_vec();
    let version = Version { features: 0, reserved: 0, kernels: kernels.as_ptr() };
    let program: &'static Program = Box::leak(Box::new(Program {
        plan: plan.encode(),
        kernels,
        version,
        consts: consts.to_vec(),
    }));
    Box::leak(Box::new(ProgramDesc {
        version: ABI_VERSION,
        version_count: 1,
        plan: program.plan.as_ptr(),
        plan_len: program.plan.len(),
        versions: &raw const program.version,
        kernel_count: program.kernels.len(),
        consts: program.consts.as_ptr(),
        consts_len: program.consts.len(),
        gpu: std::ptr::null(),
        gpu_len: 0,
        gpu_driver: std::ptr::null(),
        conv: (&raw const tfc_runtime::conv::TFC_CONV).cast(),
        jobs: std::ptr::null(),
    }))
}

pub fn load(plan: &Plan, kernels: &[KernelFn], threads: usize) -> Result<Model> {
    let options =
        ModelOptions { pool: Some(Arc::new(Pool::new(threads))), ..ModelOptions::default() };
    // SAFETY: the descriptor is well formed and static; kernels match the plan.
    unsafe { Model::load_with(describe(plan, kernels, &[]), options) }
}

/// `out[i] = in[i] * 2` over a ranged loop. bufs: out, in (f32).
///
/// # Safety
/// As [`KernelFn`].
pub unsafe extern "C" fn double(bufs: *const *mut u8, _dims: *const i64, range: *const i64) {
    // SAFETY: two buffers, one range, as the plans below say.
    unsafe {
        let (dst, src) = ((*bufs).cast::<f32>(), (*bufs.add(1)).cast::<f32>());
        for i in *range..*range.add(1) {
            *dst.offset(i as isize) = *src.offset(i as isize) * 2.0;
        }
    }
}

/// `c[r, j] = max(c[r, j] + bias[j], 0)`. bufs: c, bias; dims: columns.
///
/// # Safety
/// As [`KernelFn`].
pub unsafe extern "C" fn bias_relu(bufs: *const *mut u8, dims: *const i64, range: *const i64) {
    // SAFETY: two buffers, one dim, two ranges.
    unsafe {
        let (c, bias) = ((*bufs).cast::<f32>(), (*bufs.add(1)).cast::<f32>());
        for r in *range..*range.add(1) {
            for j in *range.add(2)..*range.add(3) {
                let at = c.offset((r * *dims + j) as isize);
                *at = (*at + *bias.offset(j as isize)).max(0.0);
            }
        }
    }
}

/// `out = sum(in)`. bufs: out, in; dims: length.
///
/// # Safety
/// As [`KernelFn`].
pub unsafe extern "C" fn sum(bufs: *const *mut u8, dims: *const i64, _range: *const i64) {
    // SAFETY: two buffers and the length.
    unsafe {
        let (dst, src) = ((*bufs).cast::<f32>(), (*bufs.add(1)).cast::<f32>());
        *dst = (0..*dims).map(|i| *src.offset(i as isize)).sum();
    }
}

/// `w[i] = w[i] + by[0]`. bufs: w, by; the ranged loop is over w.
///
/// # Safety
/// As [`KernelFn`].
pub unsafe extern "C" fn add_scalar(bufs: *const *mut u8, _dims: *const i64, range: *const i64) {
    // SAFETY: two buffers, one range.
    unsafe {
        let (w, by) = ((*bufs).cast::<f32>(), (*bufs.add(1)).cast::<f32>());
        for i in *range..*range.add(1) {
            *w.offset(i as isize) += *by;
        }
    }
}

/// `flag = a < b`, scalars. bufs: flag (bool), a, b (f32).
///
/// # Safety
/// As [`KernelFn`].
pub unsafe extern "C" fn less(bufs: *const *mut u8, _dims: *const i64, _range: *const i64) {
    // SAFETY: three scalars.
    unsafe {
        let (a, b) = (*(*bufs.add(1)).cast::<f32>(), *(*bufs.add(2)).cast::<f32>());
        **bufs = u8::from(a < b);
    }
}

/// `w[i] = 1`, the initialiser. bufs: w.
///
/// # Safety
/// As [`KernelFn`].
pub unsafe extern "C" fn ones(bufs: *const *mut u8, _dims: *const i64, range: *const i64) {
    // SAFETY: one buffer, one range.
    unsafe {
        for i in *range..*range.add(1) {
            *(*bufs).cast::<f32>().offset(i as isize) = 1.0;
        }
    }
}

pub const KERNELS: [KernelFn; 6] = [double, bias_relu, sum, add_scalar, less, ones];
pub const DOUBLE: u32 = 0;
pub const BIAS_RELU: u32 = 1;
pub const SUM: u32 = 2;
pub const ADD_SCALAR: u32 = 3;
pub const LESS: u32 = 4;
pub const ONES: u32 = 5;

/// A small model with variables and three entries:
/// - `predict(x: f32[B, 4]) -> (y: f32[B, 3])` = relu(x @ w + b), w, b ones;
/// - `train(x: f32[B, 4], y: f32[B]) -> (loss: f32[])`: loss = sum(y), adds the
///   loss to every element of b;
/// - the initialiser.
pub fn small_plan() -> Plan {
    let (b, c4, c3) = (S::D(0), S::N(4), S::N(3));
    let mut predict = Make::new("predict");
    let x = predict.param("x", DType::F32, &[b, c4], "f32[B, 4]");
    let y = predict.result("y", DType::F32, &[b, c3], "f32[B, 3]");
    let w = predict.buffer(DType::F32, &[c4, c3], Home::Var(0));
    let bias = predict.buffer(DType::F32, &[c3], Home::Var(1));
    let columns = predict.size(c3);
    let mut mm = predict.matmul([x, w, y], [b, c3, c4]);
    mm.epilogue =
        Some(Epilogue { kernel: BIAS_RELU, bufs: vec![y, bias], outputs: 1, dims: vec![columns] });
    predict.step(Step::MatMul(mm));

    let mut train = Make::new("train");
    train.param("x", DType::F32, &[b, c4], "f32[B, 4]");
    let y = train.param("y", DType::F32, &[b], "f32[B]");
    let loss = train.result("loss", DType::F32, &[], "f32[]");
    let bias = train.buffer(DType::F32, &[c3], Home::Var(1));
    train.entry.writes.push(1);
    let s = train.launch(SUM, &[loss, y], &[b], S::N(1), 0);
    train.step(s);
    let s = train.launch(ADD_SCALAR, &[bias, loss], &[], c3, 1);
    train.step(s);

    let mut init = Make::new("init");
    init.entry.writes.extend([0, 1]);
    let w = init.buffer(DType::F32, &[c4, c3], Home::Var(0));
    let bias = init.buffer(DType::F32, &[c3], Home::Var(1));
    let s = init.launch(ONES, &[w], &[], S::N(12), 1);
    init.step(s);
    let s = init.launch(ONES, &[bias], &[], c3, 1);
    init.step(s);

    Plan {
        name: "small".into(),
        dims: vec![dim("B", 1, 100_000)],
        vars: vec![var("w", &[4, 3]), var("b", &[3])],
        kernels: (0..KERNELS.len()).map(|i| format!("k{i}")).collect(),
        entries: vec![predict.entry, train.entry, init.entry],
        init: Some(2),
        source: "small.graph".into(),
        ..Plan::default()
    }
}
