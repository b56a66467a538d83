//! Accuracy of the elementary functions, as compiled.
//!
//! f32: *every* input, against the f64 expansion of the same function, which is
//! in turn checked against the C library's. All of it runs in generated vector
//! code: the error is computed and its maximum taken inside the kernel.

use cranelift_entity::PrimaryMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tfc_codegen::jit;
use tfc_ir::kernel::*;
use tfc_ir::program::Program;
use tfc_ir::{DType, Dim};

/// Writes kernel code in order.
struct Code {
    regs: PrimaryMap<Reg, ScalarType>,
    out: Vec<Stmt>,
}

impl Code {
    fn new() -> Code {
        Code { regs: PrimaryMap::new(), out: vec![] }
    }

    fn op(&mut self, ty: ScalarType, op: ScalarOp, args: &[Reg]) -> Reg {
        let dst = self.regs.push(ty);
        self.out.push(Stmt::Op { dst, op, args: args.to_vec() });
        dst
    }

    fn c(&mut self, value: Scalar) -> Reg {
        let dst = self.regs.push(value.ty());
        self.out.push(Stmt::Const { dst, value });
        dst
    }

    fn f(&mut self, value: f64) -> Reg {
        self.c(Scalar::of(ScalarType::F64, value))
    }
}

const BLOCK: i64 = 1 << 16;

/// `out[c]` = largest error of `op`, in ULP, over the f32 inputs whose bits are
/// `c * BLOCK ..`. NaN if one of result and reference is NaN and the other not.
fn error_kernel(op: ScalarOp) -> Kernel {
    use ScalarOp::*;
    use ScalarType::*;
    let (block, lane) = (LoopVar::from_u32(0), LoopVar::from_u32(1));
    let mut k = Code::new();
    let init = k.f(0.0);
    let head = std::mem::take(&mut k.out);
    let acc = k.regs.push(F64);
    let at = k.regs.push(I64);
    k.out.push(Stmt::Index {
        dst: at,
        ix: Ix::var(block).scale(&Dim::constant(BLOCK)).plus(&Ix::var(lane)),
    });
    let bits = k.op(I32, Convert, &[at]);
    let x = k.op(F32, Bitcast, &[bits]);
    let y = k.op(F32, op, &[x]);
    let y = k.op(F64, Convert, &[y]);
    let x = k.op(F64, Convert, &[x]);
    let exact = k.op(F64, op, &[x]);
    let rounded = k.op(F32, Convert, &[exact]);
    let rounded = k.op(F64, Convert, &[rounded]);
    let diff = k.op(F64, Sub, &[y, exact]);
    let diff = k.op(F64, Abs, &[diff]);
    let bits = k.op(I64, Bitcast, &[exact]);
    let exponent = k.c(Scalar::I64(0x7ff0_0000_0000_0000));
    let power = k.op(I64, And, &[bits, exponent]);
    let power = k.op(F64, Bitcast, &[power]);
    let scale = k.f(2f64.powi(-23));
    let ulp = k.op(F64, Mul, &[power, scale]);
    let least = k.f(2f64.powi(-149));
    let ulp = k.op(F64, Max, &[ulp, least]);
    let error = k.op(F64, Div, &[diff, ulp]);
    let same = k.op(Bool, Eq, &[y, rounded]);
    let infinity = k.f(f64::INFINITY);
    let size = k.op(F64, Abs, &[y]);
    let infinite = k.op(Bool, Eq, &[size, infinity]);
    let both = k.op(Bool, And, &[same, infinite]);
    let (n0, n1) = (k.op(Bool, Ne, &[y, y]), k.op(Bool, Ne, &[exact, exact]));
    let nans = k.op(Bool, And, &[n0, n1]);
    let fine = k.op(Bool, Or, &[both, nans]);
    let zero = k.f(0.0);
    let error = k.op(F64, Select, &[fine, zero, error]);
    let next = k.op(F64, Max, &[acc, error]);
    let result = k.regs.push(F64);
    let inner = Stmt::Loop(Loop {
        var: lane,
        extent: Dim::constant(BLOCK),
        mode: LoopMode::Vector,
        ranged: false,
        carried: vec![Carried { init, acc, next, result, combine: Combine::Max }],
        body: k.out,
    });
    let store = Stmt::Store { buf: 0, at: Ix::var(block), value: result };
    let blocks = Dim::constant((1 << 32) / BLOCK);
    let outer = Stmt::Loop(Loop {
        var: block,
        extent: blocks.clone(),
        mode: LoopMode::Serial,
        ranged: true,
        carried: vec![],
        body: [head, vec![inner, store]].concat(),
    });
    Kernel {
        name: format!("error_{op:?}").to_lowercase(),
        bufs: vec![KernelBuf { dtype: DType::F64, len: blocks, written: true }],
        dims: vec![],
        regs: k.regs,
        loops: 2,
        body: vec![outer],
    }
}

fn program(kernels: Vec<Kernel>) -> Program {
    let mut program = Program { kernels, ..Program::default() };
    program.plan.kernels = program.kernels.iter().map(|k| k.name.clone()).collect();
    program
}

const UNARY: [ScalarOp; 10] = [
    ScalarOp::Exp,
    ScalarOp::Log,
    ScalarOp::Log1p,
    ScalarOp::Expm1,
    ScalarOp::Sin,
    ScalarOp::Cos,
    ScalarOp::Tanh,
    ScalarOp::Sigmoid,
    ScalarOp::Erf,
    ScalarOp::Rsqrt,
];

#[test]
fn every_f32_input_is_within_two_ulp() {
    let program = program(UNARY.iter().map(|op| error_kernel(*op)).collect());
    let jit = jit(&program).unwrap();
    let blocks = ((1i64 << 32) / BLOCK) as usize;
    let step = 1024;
    for (op, kernel) in UNARY.iter().zip(jit.kernels()) {
        let start = std::time::Instant::now();
        let mut errors = vec![-1f64; blocks];
        let next = AtomicUsize::new(0);
        let out = errors.as_mut_ptr() as usize;
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
                scope.spawn(|| {
                    loop {
                        let lo = next.fetch_add(step, Ordering::Relaxed);
                        if lo >= blocks {
                            break;
                        }
                        let bufs = [out as *mut u8];
                        let range = [lo as i64, (lo + step) as i64, 0, 0];
                        // SAFETY: each range of blocks is written by one thread.
                        unsafe { kernel(bufs.as_ptr(), [].as_ptr(), range.as_ptr()) };
                    }
                });
            }
        });
        let worst =
            errors.iter().copied().fold(0f64, |a, b| if b > a || b.is_nan() { b } else { a });
        let block = errors.iter().position(|e| *e == worst || e.is_nan()).unwrap_or(0);
        println!(
            "{op:?}: {worst:.3} ULP in block {:#010x} ({:e}), {:.1} s",
            block as i64 * BLOCK,
            f32::from_bits((block as i64 * BLOCK) as u32),
            start.elapsed().as_secs_f64()
        );
        assert!(errors.iter().all(|e| *e >= 0.0), "{op:?}: a block was not run or gave NaN");
        assert!(worst <= 2.0, "{op:?} is {worst} ULP off");
    }
}
