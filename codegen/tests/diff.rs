//! Generated kernels, run by the kernel interpreter and as compiled code, for new
//! and for old CPUs: the same bytes must come out, of sums of floats too.

use cranelift_entity::PrimaryMap;
use proptest::prelude::*;
use std::sync::Arc;
use tfc_codegen::{Cpu, jit_for};
use tfc_kernel::program::Program;
use tfc_kernel::*;
use tfc_kernel::{DType, Dim};

/// Decisions of a generated kernel, taken from a list so that it can shrink.
struct Choices<'a> {
    from: &'a [u32],
    at: usize,
}

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        let v = self.from.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        v as usize % n.max(1)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

const INPUTS: usize = 4;
const OUTPUTS: usize = 3;
const ROWS: i64 = 3;

struct Gen<'a> {
    c: Choices<'a>,
    regs: PrimaryMap<Reg, ScalarType>,
    bufs: Vec<KernelBuf>,
    /// Registers usable at the current place.
    pool: Vec<Reg>,
}

impl Gen<'_> {
    fn reg(&mut self, ty: ScalarType) -> Reg {
        self.regs.push(ty)
    }

    fn op(&mut self, out: &mut Vec<Stmt>, ty: ScalarType, op: ScalarOp, args: &[Reg]) -> Reg {
        let dst = self.reg(ty);
        out.push(Stmt::Op { dst, op, args: args.to_vec() });
        self.pool.push(dst);
        dst
    }

    fn constant(&mut self, out: &mut Vec<Stmt>, ty: ScalarType) -> Reg {
        let value = self.c.pick(&[0.0, 1.0, -1.0, 0.5, 3.0, 7.25, -2.0, 100.0]);
        let dst = self.reg(ty);
        out.push(Stmt::Const { dst, value: Scalar::of(ty, value) });
        self.pool.push(dst);
        dst
    }

    /// Some register of the type, made if there is none.
    fn some(&mut self, out: &mut Vec<Stmt>, ty: ScalarType) -> Reg {
        let fit: Vec<Reg> = self.pool.iter().copied().filter(|r| self.regs[*r] == ty).collect();
        if fit.is_empty() || self.c.below(8) == 0 {
            if !self.pool.is_empty() && self.c.below(2) == 0 {
                let from = self.pool[self.c.below(self.pool.len())];
                return self.op(out, ty, ScalarOp::Convert, &[from]);
            }
            return self.constant(out, ty);
        }
        fit[self.c.below(fit.len())]
    }

    /// An in-bounds index; buffers hold `2 * ROWS * N + 8` elements.
    fn index(&mut self, out: &mut Vec<Stmt>, vars: &[(LoopVar, Dim)]) -> Ix {
        let n = Dim::sym("N");
        let mut ix = Ix::constant(self.c.below(5) as i64);
        for (var, extent) in vars {
            let is_row = extent.as_const().is_some();
            match self.c.below(if is_row { 3 } else { 5 }) {
                0 | 1 => {
                    let stride = if is_row { n.clone() } else { Dim::constant(1) };
                    ix = ix.plus(&Ix::var(*var).scale(&stride));
                }
                2 => {}
                3 => {
                    // Backwards.
                    ix = ix.plus(&Ix::var(*var).scale(&Dim::constant(-1)));
                    ix.offset = ix.offset + n.clone() - Dim::constant(1);
                }
                _ => ix = ix.plus(&Ix::var(*var).scale(&Dim::constant(2))),
            }
        }
        if self.c.below(6) == 0 {
            // Gather: any number, wrapped into 0..4.
            let v = self.some(out, ScalarType::I64);
            let three = self.reg(ScalarType::I64);
            out.push(Stmt::Const { dst: three, value: Scalar::I64(3) });
            let v = self.op(out, ScalarType::I64, ScalarOp::And, &[v, three]);
            ix = ix.plus(&Ix::reg(v));
        }
        ix
    }

    fn load(&mut self, out: &mut Vec<Stmt>, vars: &[(LoopVar, Dim)]) {
        let buf = self.c.below(INPUTS) as u32;
        let at = self.index(out, vars);
        let dst = self.reg(ScalarType::of(self.bufs[buf as usize].dtype));
        out.push(Stmt::Load { dst, buf, at });
        self.pool.push(dst);
    }

    fn arithmetic(&mut self, out: &mut Vec<Stmt>) {
        use ScalarOp::*;
        use ScalarType::*;
        let ty = self.c.pick(&[F32, F32, F64, I32, I64, Bool]);
        let float = [
            Add, Sub, Mul, Div, Neg, Abs, Min, Max, Fma, Sqrt, Floor, Ceil, RoundEven, Trunc, Eq,
            Ne, Lt, Le, Select, Bitcast,
        ];
        let functions = tfc_kernel::Elementary::ALL.iter().map(|f| ScalarOp::Elementary(*f));
        let float: Vec<ScalarOp> = float.into_iter().chain(functions).collect();
        let int = [
            Add, Sub, Mul, Div, Rem, Neg, Abs, Min, Max, And, Or, Xor, Not, Shl, ShrArith,
            ShrLogic, Eq, Ne, Lt, Le, Select, Bitcast,
        ];
        let mut op = match ty {
            F32 | F64 => self.c.pick(&float),
            I32 | I64 => self.c.pick(&int),
            Bool => self.c.pick(&[And, Or, Xor, Not, Eq, Ne, Select]),
        };
        if self.c.below(12) == 0 {
            op = Convert;
        }
        if ty == F32 && self.c.below(15) == 0 {
            op = self.c.pick(&[RoundF16, RoundBF16]);
        }
        if ty == I32 && self.c.below(15) == 0 {
            op = self.c.pick(&[WrapI8, WrapU8]);
        }
        let a = self.some(out, ty);
        match op {
            ScalarOp::Elementary(function) => {
                let b = self.some(out, ty);
                self.op(out, ty, op, &[a, b][..function.def().arity]);
            }
            Neg | Abs | Sqrt | Floor | Ceil | RoundEven | Trunc | Not | RoundF16 | RoundBF16
            | WrapI8 | WrapU8 => {
                self.op(out, ty, op, &[a]);
            }
            Convert => {
                let to = self.c.pick(&[F32, F64, I32, I64, Bool]);
                self.op(out, to, op, &[a]);
            }
            Bitcast => {
                let to = match ty {
                    F32 => I32,
                    I32 => F32,
                    F64 => I64,
                    _ => F64,
                };
                self.op(out, to, op, &[a]);
            }
            Eq | Ne | Lt | Le => {
                let b = self.some(out, ty);
                self.op(out, Bool, op, &[a, b]);
            }
            Select => {
                let (c, b) = (self.some(out, Bool), self.some(out, ty));
                self.op(out, ty, op, &[c, a, b]);
            }
            Fma => {
                let (b, c) = (self.some(out, ty), self.some(out, ty));
                self.op(out, ty, op, &[a, b, c]);
            }
            _ => {
                let b = self.some(out, ty);
                self.op(out, ty, op, &[a, b]);
            }
        }
    }

    fn work(&mut self, out: &mut Vec<Stmt>, vars: &[(LoopVar, Dim)]) {
        for _ in 0..1 + self.c.below(2) {
            self.load(out, vars);
        }
        for _ in 0..self.c.below(8) {
            self.arithmetic(out);
        }
        if self.c.below(4) == 0 {
            let ix = self.index(out, vars);
            let dst = self.reg(ScalarType::I64);
            out.push(Stmt::Index { dst, ix });
            self.pool.push(dst);
        }
    }

    /// Stores to `b` at the place of this iteration alone.
    fn store(&mut self, out: &mut Vec<Stmt>, which: usize, at: Ix) {
        let buf = INPUTS + which;
        let ty = ScalarType::of(self.bufs[buf].dtype);
        let value = self.some(out, ty);
        out.push(Stmt::Store { buf: buf as u32, at, value });
    }

    /// A loop that combines something over `var`, with its initial value before. It
    /// may leave a value per iteration in the local buffer `keep`.
    fn reduction(
        &mut self,
        out: &mut Vec<Stmt>,
        var: LoopVar,
        extent: Dim,
        kind: LoopKind,
        vars: &[(LoopVar, Dim)],
        keep: Option<(u32, DType)>,
    ) {
        use ScalarType::*;
        let (combine, op, ty) = self.c.pick(&[
            (Combine::Sum, ScalarOp::Add, I32),
            (Combine::Sum, ScalarOp::Add, I64),
            (Combine::Prod, ScalarOp::Mul, I32),
            (Combine::Prod, ScalarOp::Mul, I64),
            (Combine::Sum, ScalarOp::Add, F32),
            (Combine::Sum, ScalarOp::Add, F64),
            (Combine::Prod, ScalarOp::Mul, F32),
            (Combine::Max, ScalarOp::Max, F32),
            (Combine::Min, ScalarOp::Min, F64),
            (Combine::Max, ScalarOp::Max, I32),
            (Combine::Min, ScalarOp::Min, I64),
            (Combine::And, ScalarOp::And, Bool),
            (Combine::Or, ScalarOp::Or, I32),
        ]);
        let init = self.some(out, ty);
        let outer = self.pool.clone();
        let acc = self.reg(ty);
        let mut body = vec![];
        self.work(&mut body, vars);
        if let Some((buf, dtype)) = keep {
            let value = self.some(&mut body, ScalarType::of(dtype));
            body.push(Stmt::Store { buf, at: Ix::var(var), value });
        }
        let item = self.some(&mut body, ty);
        let next = self.reg(ty);
        body.push(Stmt::Op { dst: next, op, args: vec![acc, item] });
        self.pool = outer;
        let result = self.reg(ty);
        let carried = vec![Carried { init, acc, next, result, combine }];
        out.push(Stmt::Loop(Loop { var, extent, kind, ranged: false, carried, body }));
        self.pool.push(result);
    }
}

fn generate(choices: &[u32]) -> Kernel {
    let mut g = Gen {
        c: Choices { from: choices, at: 0 },
        regs: PrimaryMap::new(),
        bufs: vec![],
        pool: vec![],
    };
    let n = Dim::sym("N");
    let rows = Dim::constant(ROWS);
    let len = Dim::constant(2 * ROWS) * n.clone() + Dim::constant(8);
    for i in 0..INPUTS + OUTPUTS {
        let dtype = g.c.pick(&DType::ALL);
        g.bufs.push(KernelBuf::new(dtype, len.clone(), i >= INPUTS));
    }
    let (a, b) = (LoopVar::from_u32(0), LoopVar::from_u32(1));
    let whole = LoopKind::Reduce { partials: true };
    let in_order = LoopKind::Reduce { partials: false };
    let reduce = g.c.pick(&[whole, whole, in_order, LoopKind::Scan, LoopKind::Sequential]);
    let parallel = LoopKind::Parallel;
    let map = g.c.pick(&[parallel, parallel, LoopKind::Sequential]);
    let mut locals = vec![];
    let mut out = vec![];
    let mut body = vec![];
    let one_loop = |var, extent, kind, ranged, body| {
        Stmt::Loop(Loop { var, extent, kind, ranged, carried: vec![], body })
    };
    match g.c.below(4) {
        // Elementwise.
        0 => {
            let vars = [(a, n.clone())];
            g.work(&mut body, &vars);
            let stride = g.c.pick(&[1, 1, 2]);
            g.store(&mut body, 0, Ix::var(a).scale(&Dim::constant(stride)));
            let mut back = Ix::var(a).scale(&Dim::constant(-1));
            back.offset = n.clone() + Dim::constant(3);
            g.store(&mut body, 1, back);
            out.push(one_loop(a, n, parallel, true, body));
        }
        // Rows, reduced, then mapped.
        1 => {
            let vars = [(a, rows.clone()), (b, n.clone())];
            let home = INPUTS as u32 + 1;
            let dtype = g.bufs[home as usize].dtype;
            let keep = (g.c.below(3) == 0).then_some(((INPUTS + OUTPUTS) as u32, dtype));
            if keep.is_some() {
                let base = Ix::var(a).scale(&n);
                let home = Home { buf: home, base, stride: Dim::constant(1) };
                locals.push(Local { dtype, len: n.clone(), within: Some(a), home });
            }
            g.reduction(&mut body, b, n.clone(), reduce, &vars, keep);
            g.store(&mut body, 0, Ix::var(a));
            let c = LoopVar::from_u32(2);
            let vars = [(a, rows.clone()), (c, n.clone())];
            let mut inner = vec![];
            let pool = g.pool.clone();
            if let Some((buf, dtype)) = keep {
                let dst = g.reg(ScalarType::of(dtype));
                inner.push(Stmt::Load { dst, buf, at: Ix::var(c) });
                g.pool.push(dst);
            }
            g.work(&mut inner, &vars);
            g.store(&mut inner, 1, Ix::var(a).scale(&n).plus(&Ix::var(c)));
            g.pool = pool;
            body.push(one_loop(c, n.clone(), map, false, inner));
            out.push(one_loop(a, rows, parallel, true, body));
        }
        // Columns: a loop in order inside a vector loop.
        2 => {
            let vars = [(a, n.clone())];
            g.work(&mut body, &vars);
            let vars = [(a, n.clone()), (b, rows.clone())];
            let kind = if reduce == whole { in_order } else { reduce };
            g.reduction(&mut body, b, rows, kind, &vars, None);
            for _ in 0..g.c.below(4) {
                g.arithmetic(&mut body);
            }
            g.store(&mut body, 2, Ix::var(a));
            out.push(one_loop(a, n, parallel, true, body));
        }
        // A block of a matrix.
        _ => {
            let vars = [(a, rows.clone()), (b, n.clone())];
            g.work(&mut body, &vars);
            g.store(&mut body, 0, Ix::var(a).scale(&n).plus(&Ix::var(b)));
            let inner = one_loop(b, n, parallel, true, body);
            out.push(one_loop(a, rows, parallel, true, vec![inner]));
        }
    }
    Kernel {
        name: "generated".into(),
        bufs: g.bufs,
        locals,
        dims: vec![Arc::from("N")],
        regs: g.regs,
        loops: 3,
        body: out,
    }
}

fn program(kernel: &Kernel) -> Program {
    let mut program = Program { kernels: vec![kernel.clone()], ..Program::default() };
    program.plan.kernels = vec![kernel.name.clone()];
    program
}

/// Bytes that are interesting as any of the dtypes.
fn fill(dtype: DType, len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 3e38, -1e9, 0.5];
    let mut out = vec![];
    for _ in 0..len {
        let raw = next();
        let odd = raw % 16 == 0;
        let float = if odd {
            special[(raw / 16) as usize % special.len()]
        } else {
            (raw % 2001) as f32 / 100.0 - 10.0
        };
        let int = if odd { (raw << 8) as i32 } else { (raw % 23) as i32 - 11 };
        match dtype {
            DType::F32 => out.extend(float.to_le_bytes()),
            DType::F64 => out.extend(f64::from(float).to_le_bytes()),
            DType::F16 => out.extend(half::f16::from_f32(float).to_le_bytes()),
            DType::BF16 => out.extend(half::bf16::from_f32(float).to_le_bytes()),
            DType::I8 | DType::U8 => out.push(int as u8),
            DType::I32 => out.extend(int.to_le_bytes()),
            DType::I64 => out.extend(i64::from(int).to_le_bytes()),
            DType::Bool => out.push(u8::from(raw % 3 == 0)),
        }
    }
    out
}

fn is_nan(dtype: DType, b: &[u8]) -> bool {
    match (dtype, b) {
        (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).is_nan(),
        (DType::F64, b) => b.try_into().is_ok_and(|b| f64::from_le_bytes(b).is_nan()),
        (DType::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).is_nan(),
        (DType::BF16, &[a, b]) => half::bf16::from_le_bytes([a, b]).is_nan(),
        _ => false,
    }
}

/// The versions of code this machine can run.
fn cpus() -> Vec<Cpu> {
    let mut cpus = vec![Cpu::Baseline];
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        if has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2") {
            cpus.push(Cpu::Avx2);
        }
        if has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl") {
            cpus.push(Cpu::Avx512);
        }
    }
    cpus
}

/// Runs the kernel both ways for every `n` and compares all buffers.
fn check(kernel: &Kernel, sizes: &[i64]) -> Result<(), TestCaseError> {
    verify::verify(kernel).map_err(TestCaseError::fail)?;
    let mut expanded = kernel.clone();
    math::expand(&mut expanded);
    verify::verify(&expanded).map_err(TestCaseError::fail)?;
    for cpu in cpus() {
        let jit = jit_for(&program(kernel), cpu).map_err(|e| TestCaseError::fail(e.to_string()))?;
        for &n in sizes {
            let dims: Vec<i64> = kernel.dims.iter().map(|_| n).collect();
            let mut want: Vec<Vec<u8>> = kernel
                .bufs
                .iter()
                .enumerate()
                .map(|(i, b)| {
                    let len = b.len.eval(&|_| Some(n)).unwrap_or(0) as usize;
                    fill(b.dtype, len, i as u32)
                })
                .collect();
            let mut got = want.clone();
            let outer = match kernel.body.last() {
                Some(Stmt::Loop(l)) => l.extent.eval(&|_| Some(n)).unwrap_or(0),
                _ => 0,
            };
            // Two calls, as the pool would cut.
            let cut = outer / 3;
            for (lo, hi) in [(0, cut), (cut, outer)] {
                let range = [lo, hi, 0, n];
                interp::run(&expanded, &mut want, &dims, range)
                    .map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
                let bufs: Vec<*mut u8> = got.iter_mut().map(|b| b.as_mut_ptr()).collect();
                // SAFETY: the interpreter has just shown that all accesses with
                // these sizes are in bounds.
                unsafe { jit.kernels()[0](bufs.as_ptr(), dims.as_ptr(), range.as_ptr()) };
            }
            for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                let dtype = kernel.bufs[i].dtype;
                let elements = want.chunks(dtype.size()).zip(got.chunks(dtype.size()));
                for (at, (w, g)) in elements.enumerate() {
                    let same = w == g || (is_nan(dtype, w) && is_nan(dtype, g));
                    prop_assert!(
                        same,
                        "{cpu:?}, N = {n}: b{i}[{at}] is {g:?}, not {w:?}\n{kernel}"
                    );
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_kernels_agree(choices in prop::collection::vec(any::<u32>(), 40..160)) {
        check(&generate(&choices), &[0, 1, 2, 3, 5, 8, 17, 39, 78])?;
    }
}

/// The wide versions would prove nothing if they were left out.
#[test]
fn generated_kernels_have_wide_versions() {
    let mut state = 1u32;
    let (mut all, mut wide) = (0, 0);
    for _ in 0..200 {
        let choices: Vec<u32> = (0..100)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 8
            })
            .collect();
        let program = program(&generate(&choices));
        let [coverage] = tfc_codegen::coverage(&program).unwrap()[..] else { panic!("one kernel") };
        for version in [coverage.avx2, coverage.avx512] {
            all += usize::from(version != Err("no vector loop"));
            wide += usize::from(version.is_ok());
            if let Err(why) = version {
                println!("{why}");
            }
        }
    }
    assert!(wide * 10 > all * 9, "{wide} of {all}");
}

/// `out[0] = sum of x`, over a vector loop: with whole numbers it is exact.
fn total(dtype: DType, combine: Combine, op: ScalarOp) -> Kernel {
    let ty = ScalarType::of(dtype);
    let mut regs = PrimaryMap::new();
    let [init, acc, x, next, result] = std::array::from_fn(|_| regs.push(ty));
    let (outer, i) = (LoopVar::from_u32(0), LoopVar::from_u32(1));
    let n = Dim::sym("N");
    let inner = Stmt::Loop(Loop {
        var: i,
        extent: n.clone(),
        kind: LoopKind::Reduce { partials: true },
        ranged: false,
        carried: vec![Carried { init, acc, next, result, combine }],
        body: vec![
            Stmt::Load { dst: x, buf: 0, at: Ix::var(i) },
            Stmt::Op { dst: next, op, args: vec![acc, x] },
        ],
    });
    Kernel {
        name: "total".into(),
        bufs: vec![KernelBuf::new(dtype, n, false), KernelBuf::new(dtype, Dim::constant(1), true)],
        locals: vec![],
        dims: vec![Arc::from("N")],
        regs,
        loops: 2,
        body: vec![Stmt::Loop(Loop {
            var: outer,
            extent: Dim::constant(1),
            kind: LoopKind::Parallel,
            ranged: true,
            carried: vec![],
            body: vec![
                Stmt::Const { dst: init, value: Scalar::of(ty, 0.0) },
                inner,
                Stmt::Store { buf: 1, at: Ix::constant(0), value: result },
            ],
        })],
    }
}

#[test]
fn float_sums_are_exact_where_they_can_be() {
    for n in 0..=70i64 {
        for cpu in cpus() {
            let jit =
                jit_for(&program(&total(DType::F32, Combine::Sum, ScalarOp::Add)), cpu).unwrap();
            let x: Vec<f32> = (0..n).map(|i| (i * i) as f32).collect();
            let mut out = [f32::NAN];
            let bufs = [x.as_ptr().cast_mut().cast::<u8>(), out.as_mut_ptr().cast()];
            // SAFETY: the arrays hold `n` and one elements.
            unsafe { jit.kernels()[0](bufs.as_ptr(), [n].as_ptr(), [0, 1, 0, 0].as_ptr()) };
            assert_eq!(out[0], (0..n).map(|i| (i * i) as f32).sum::<f32>(), "N = {n}");
        }
    }
}

/// As `total` of f32, with so much else in the loop that it is unrolled less.
/// The loop's size is known if there is one.
fn heavy_total(extra: usize, size: Option<i64>) -> Kernel {
    let mut kernel = total(DType::F32, Combine::Sum, ScalarOp::Add);
    let Stmt::Loop(outer) = &mut kernel.body[0] else { panic!("a loop") };
    let Stmt::Loop(inner) = &mut outer.body[1] else { panic!("a loop inside") };
    let Stmt::Load { dst: x, .. } = inner.body[0] else { panic!("a load") };
    inner.extent = size.map_or(Dim::sym("N"), Dim::constant);
    let mut y = x;
    for _ in 0..extra {
        let dst = kernel.regs.push(ScalarType::F32);
        inner.body.push(Stmt::Op { dst, op: ScalarOp::Mul, args: vec![y, x] });
        y = dst;
    }
    kernel.bufs.push(KernelBuf::new(DType::F32, Dim::sym("N"), true));
    inner.body.push(Stmt::Store { buf: 2, at: Ix::var(inner.var), value: y });
    kernel
}

// review 3: the number of partial sums followed the weight of the loop's body.
#[test]
fn a_sum_has_the_same_bits_whatever_else_its_loop_does() {
    for n in (0..=70i64).chain([1000, 1003]) {
        let x: Vec<f32> = (0..n).map(|i| 1.0 / (i + 3) as f32).collect();
        let mut sums = vec![];
        for (extra, size) in [0, 14, 40].into_iter().flat_map(|e| [(e, None), (e, Some(n))]) {
            for cpu in cpus() {
                let jit = jit_for(&program(&heavy_total(extra, size)), cpu).unwrap();
                let (mut out, mut rest) = ([f32::NAN], vec![0f32; n as usize]);
                let bufs = [
                    x.as_ptr().cast_mut().cast::<u8>(),
                    out.as_mut_ptr().cast(),
                    rest.as_mut_ptr().cast(),
                ];
                // SAFETY: the arrays hold `n`, one and `n` elements.
                unsafe { jit.kernels()[0](bufs.as_ptr(), [n].as_ptr(), [0, 1, 0, 0].as_ptr()) };
                sums.push(out[0]);
            }
        }
        // The order that `PARTIALS` describes.
        let (groups, rest) = x.split_at(n as usize / 4 * 4);
        let mut partials = [-0f32; 16];
        groups.iter().enumerate().for_each(|(i, v)| partials[i % 16] += v);
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|p| partials[p] += partials[p + half]);
        }
        let want = rest.iter().fold(0.0 + partials[0], |sum, v| sum + v);
        assert!(sums.iter().all(|s| s.to_bits() == want.to_bits()), "N = {n}: {sums:?} {want}");
    }
}

#[test]
fn nan_goes_through_maxima() {
    for at in 0..40usize {
        let jit = jit_for(&program(&total(DType::F32, Combine::Max, ScalarOp::Max)), Cpu::Native)
            .unwrap();
        let mut x = vec![1f32; 40];
        x[at] = f32::NAN;
        let mut out = [0f32];
        let bufs = [x.as_mut_ptr().cast::<u8>(), out.as_mut_ptr().cast()];
        // SAFETY: the arrays hold 40 and one elements.
        unsafe { jit.kernels()[0](bufs.as_ptr(), [40i64].as_ptr(), [0, 1, 0, 0].as_ptr()) };
        assert!(out[0].is_nan(), "lost the NaN at {at}");
    }
}

#[test]
fn malformed_kernels_are_errors() {
    let good = total(DType::F32, Combine::Sum, ScalarOp::Add);
    assert_eq!(verify::verify(&good), Ok(()));
    type Breakage = fn(&mut Kernel);
    let bad: [(&str, Breakage); 8] = [
        ("no dim", |k| k.dims.clear()),
        ("not marked as written", |k| k.bufs[1].written = false),
        ("no buffer", |k| k.bufs.truncate(1)),
        ("not this loop's own", |k| k.loops = 1),
        ("used before", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            l.body.remove(0);
        }),
        ("is not parallel", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            l.kind = LoopKind::Sequential;
        }),
        ("carries values", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            let Stmt::Loop(l) = &mut l.body[1] else { return };
            l.kind = LoopKind::Parallel;
        }),
        ("not a plain reduction", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            let Stmt::Loop(l) = &mut l.body[1] else { return };
            l.carried[0].combine = Combine::Max;
        }),
    ];
    for (message, spoil) in bad {
        let mut kernel = good.clone();
        spoil(&mut kernel);
        let error = verify::verify(&kernel).unwrap_err();
        assert!(error.contains(message), "{error}");
        assert!(jit_for(&program(&kernel), Cpu::Native).is_err());
    }
}
