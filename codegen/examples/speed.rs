//! Speed of compiled kernels: `cargo run --release -p tfc-codegen --example speed`.
//!
//! - `ew`: `gelu(1.25 x - 0.5) * sigmoid(x) + x` over 64 K f32;
//! - `softmax`, `layernorm`: rows of 1024 f32, 256 of them;
//! - `column sum`: 1024 rows of 1024 f32, summed over rows.

use cranelift_entity::PrimaryMap;
use std::time::Instant;
use tfc_codegen::{asm_text, jit};
use tfc_kernel::program::Program;
use tfc_kernel::*;
use tfc_kernel::{DType, Dim};

struct Code {
    regs: PrimaryMap<Reg, ScalarType>,
    out: Vec<Stmt>,
}

impl Code {
    fn new() -> Code {
        Code { regs: PrimaryMap::new(), out: vec![] }
    }

    fn reg(&mut self) -> Reg {
        self.regs.push(ScalarType::F32)
    }

    fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        let dst = self.reg();
        self.out.push(Stmt::Op { dst, op, args: args.to_vec() });
        dst
    }

    fn c(&mut self, v: f64) -> Reg {
        let dst = self.reg();
        self.out.push(Stmt::Const { dst, value: Scalar::of(ScalarType::F32, v) });
        dst
    }

    fn load(&mut self, buf: u32, at: Ix) -> Reg {
        let dst = self.reg();
        self.out.push(Stmt::Load { dst, buf, at });
        dst
    }

    fn store(&mut self, buf: u32, at: Ix, value: Reg) {
        self.out.push(Stmt::Store { buf, at, value });
    }

    fn take(&mut self) -> Vec<Stmt> {
        std::mem::take(&mut self.out)
    }

    /// Closes the statements since `before` into a loop.
    fn close(&mut self, before: Vec<Stmt>, var: u32, n: i64, vector: bool, carried: Vec<Carried>) {
        let body = std::mem::replace(&mut self.out, before);
        let reduce = LoopKind::Reduce { partials: vector };
        let kind = if carried.is_empty() { LoopKind::Parallel } else { reduce };
        let ranged = var == 0;
        let var = LoopVar::from_u32(var);
        self.out.push(Stmt::Loop(Loop {
            var,
            extent: Dim::constant(n),
            kind,
            ranged,
            carried,
            body,
        }));
    }

    fn kernel(self, name: &str, lens: &[i64]) -> Kernel {
        let bufs = lens
            .iter()
            .map(|n| KernelBuf::new(DType::F32, Dim::constant(*n), true))
            .enumerate()
            .map(|(i, mut b)| {
                b.written = i + 1 == lens.len();
                b
            })
            .collect();
        let name = name.into();
        Kernel {
            name,
            bufs,
            locals: vec![],
            dims: vec![],
            regs: self.regs,
            loops: 8,
            body: self.out,
        }
    }
}

fn at(var: u32) -> Ix {
    Ix::var(LoopVar::from_u32(var))
}

fn elementwise(n: i64) -> Kernel {
    use ScalarOp::*;
    let mut k = Code::new();
    let x = k.load(0, at(0));
    let (s, b) = (k.c(1.25), k.c(-0.5));
    let t = k.op(Mul, &[x, s]);
    let y = k.op(Add, &[t, b]);
    // gelu, tanh form
    let y2 = k.op(Mul, &[y, y]);
    let y3 = k.op(Mul, &[y2, y]);
    let c = k.c(0.044715);
    let t = k.op(Mul, &[y3, c]);
    let t = k.op(Add, &[y, t]);
    let c = k.c((2.0 / std::f64::consts::PI).sqrt());
    let t = k.op(Mul, &[t, c]);
    let t = k.op(ScalarOp::Elementary(tfc_kernel::Elementary::Tanh), &[t]);
    let (one, half) = (k.c(1.0), k.c(0.5));
    let t = k.op(Add, &[t, one]);
    let t = k.op(Mul, &[t, y]);
    let t = k.op(Mul, &[t, half]);
    let s = k.op(ScalarOp::Elementary(tfc_kernel::Elementary::Sigmoid), &[x]);
    let t = k.op(Mul, &[t, s]);
    let t = k.op(Add, &[t, x]);
    k.store(1, at(0), t);
    k.close(vec![], 0, n, true, vec![]);
    k.kernel("ew", &[n, n])
}

fn unary(op: ScalarOp, n: i64) -> Kernel {
    let mut k = Code::new();
    let x = k.load(0, at(0));
    let y = k.op(op, &[x]);
    k.store(1, at(0), y);
    k.close(vec![], 0, n, true, vec![]);
    k.kernel(&format!("{op:?}").to_lowercase(), &[n, n])
}

fn reduce(
    k: &mut Code,
    var: u32,
    n: i64,
    combine: Combine,
    init: f64,
    f: &dyn Fn(&mut Code) -> Reg,
) -> Reg {
    let init = k.c(init);
    let acc = k.reg();
    let before = k.take();
    let item = f(k);
    let op = match combine {
        Combine::Max => ScalarOp::Max,
        _ => ScalarOp::Add,
    };
    let next = k.op(op, &[acc, item]);
    let result = k.reg();
    k.close(before, var, n, true, vec![Carried { init, acc, next, result, combine }]);
    result
}

fn row(var: u32, cols: i64) -> Ix {
    at(0).scale(&Dim::constant(cols)).plus(&at(var))
}

fn softmax(rows: i64, cols: i64) -> Kernel {
    use ScalarOp::*;
    let mut k = Code::new();
    let max =
        reduce(&mut k, 1, cols, Combine::Max, f64::NEG_INFINITY, &|k| k.load(0, row(1, cols)));
    let sum = reduce(&mut k, 2, cols, Combine::Sum, 0.0, &|k| {
        let x = k.load(0, row(2, cols));
        let d = k.op(Sub, &[x, max]);
        let e = k.op(ScalarOp::Elementary(tfc_kernel::Elementary::Exp), &[d]);
        k.store(1, row(2, cols), e);
        e
    });
    let one = k.c(1.0);
    let inv = k.op(Div, &[one, sum]);
    let before = k.take();
    let e = k.load(1, row(3, cols));
    let y = k.op(Mul, &[e, inv]);
    k.store(1, row(3, cols), y);
    k.close(before, 3, cols, true, vec![]);
    k.close(vec![], 0, rows, false, vec![]);
    k.kernel("softmax", &[rows * cols, rows * cols])
}

fn layernorm(rows: i64, cols: i64) -> Kernel {
    use ScalarOp::*;
    let mut k = Code::new();
    let sum = reduce(&mut k, 1, cols, Combine::Sum, 0.0, &|k| k.load(0, row(1, cols)));
    let n = k.c(1.0 / cols as f64);
    let mean = k.op(Mul, &[sum, n]);
    let var = reduce(&mut k, 2, cols, Combine::Sum, 0.0, &|k| {
        let x = k.load(0, row(2, cols));
        let d = k.op(Sub, &[x, mean]);
        k.op(Mul, &[d, d])
    });
    let var = k.op(Mul, &[var, n]);
    let eps = k.c(1e-5);
    let var = k.op(Add, &[var, eps]);
    let inv = k.op(ScalarOp::Elementary(tfc_kernel::Elementary::Rsqrt), &[var]);
    let before = k.take();
    let x = k.load(0, row(3, cols));
    let d = k.op(Sub, &[x, mean]);
    let y = k.op(Mul, &[d, inv]);
    let (g, b) = (k.load(1, at(3)), k.load(2, at(3)));
    let y = k.op(Mul, &[y, g]);
    let y = k.op(Add, &[y, b]);
    k.store(3, row(3, cols), y);
    k.close(before, 3, cols, true, vec![]);
    k.close(vec![], 0, rows, false, vec![]);
    k.kernel("layernorm", &[rows * cols, cols, cols, rows * cols])
}

fn column_sum(rows: i64, cols: i64) -> Kernel {
    let mut k = Code::new();
    let init = k.c(0.0);
    let acc = k.reg();
    let before = k.take();
    let x = k.load(0, at(1).scale(&Dim::constant(cols)).plus(&at(0)));
    let next = k.op(ScalarOp::Add, &[acc, x]);
    let result = k.reg();
    let combine = Combine::Sum;
    k.close(before, 1, rows, false, vec![Carried { init, acc, next, result, combine }]);
    k.store(1, at(0), result);
    k.close(vec![], 0, cols, true, vec![]);
    k.kernel("column sum", &[rows * cols, cols])
}

fn main() {
    let n = 1 << 16;
    let mut kernels =
        vec![elementwise(n), softmax(256, 1024), layernorm(256, 1024), column_sum(1024, 1024)];
    for op in [
        ScalarOp::Elementary(Elementary::Exp),
        ScalarOp::Elementary(Elementary::Log),
        ScalarOp::Elementary(Elementary::Tanh),
        ScalarOp::Elementary(Elementary::Sigmoid),
        ScalarOp::Elementary(Elementary::Erf),
        ScalarOp::Elementary(Elementary::Sin),
        ScalarOp::Sqrt,
    ] {
        kernels.push(unary(op, n));
    }
    let mut program = Program { kernels, ..Program::default() };
    program.plan.kernels = program.kernels.iter().map(|k| k.name.clone()).collect();
    if std::env::args().any(|a| a == "--asm") {
        println!("{}", asm_text(&program).unwrap_or_else(|e| e.to_string()));
        return;
    }
    let start = Instant::now();
    let jit = match jit(&program) {
        Ok(jit) => jit,
        Err(e) => return eprintln!("{e}"),
    };
    println!("compiled in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for (kernel, code) in program.kernels.iter().zip(jit.kernels()) {
        let mut bufs: Vec<Vec<f32>> = kernel
            .bufs
            .iter()
            .map(|b| {
                let n = b.len.as_const().unwrap_or(0);
                (0..n).map(|i| ((i * 7919) % 2003) as f32 / 200.0 - 5.0).collect()
            })
            .collect();
        let pointers: Vec<*mut u8> = bufs.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let Some(Stmt::Loop(outer)) = kernel.body.first() else { continue };
        let range = [0, outer.extent.as_const().unwrap_or(0), 0, 0];
        let mut best = f64::INFINITY;
        for _ in 0..200 {
            let start = Instant::now();
            // SAFETY: the buffers are as long as the kernel says.
            unsafe { code(pointers.as_ptr(), [].as_ptr(), range.as_ptr()) };
            best = best.min(start.elapsed().as_secs_f64());
        }
        let elements = kernel.bufs[0].len.as_const().unwrap_or(1) as f64;
        println!(
            "{:12} {:8.4} ms  {:6.3} ns/element",
            kernel.name,
            best * 1e3,
            best * 1e9 / elements
        );
    }
}
