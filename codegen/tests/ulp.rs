//! Accuracy of the elementary functions, as compiled.
//!
//! f32: *every* input, against the f64 expansion of the same function, which is
//! in turn checked against the C library's. All of it runs in generated vector
//! code: the error is computed and its maximum taken inside the kernel.

use cranelift_entity::PrimaryMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tfc_codegen::jit;
use tfc_kernel::program::Program;
use tfc_kernel::*;
use tfc_kernel::{DType, Dim};

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

/// Inputs per block.
const BLOCK: i64 = 1 << 14;

/// Every how many-th f32 is tried: `TFC_ULP=all` tries each one.
fn stride() -> i64 {
    if std::env::var("TFC_ULP").is_ok_and(|v| v == "all") { 1 } else { 257 }
}

fn blocks(stride: i64) -> i64 {
    ((1i64 << 32) + BLOCK * stride - 1) / (BLOCK * stride)
}

/// `out[c]` = largest error of `op`, in ULP, over the f32 inputs whose bits are
/// `(c * BLOCK ..) * stride`. NaN if one of result and reference is NaN and the
/// other not.
fn error_kernel(function: Elementary, stride: i64) -> Kernel {
    let op = ScalarOp::Elementary(function);
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
        ix: Ix::var(block)
            .scale(&Dim::constant(BLOCK))
            .plus(&Ix::var(lane))
            .scale(&Dim::constant(stride)),
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
    let mut fine = k.op(Bool, Or, &[both, nans]);
    if function.def().end < f64::INFINITY {
        // The f64 versions end there; see `trigonometry_of_huge_f32`.
        let end = k.f(function.def().end);
        let size = k.op(F64, Abs, &[x]);
        let beyond = k.op(Bool, Lt, &[end, size]);
        fine = k.op(Bool, Or, &[fine, beyond]);
    }
    let zero = k.f(0.0);
    let error = k.op(F64, Select, &[fine, zero, error]);
    let next = k.op(F64, Max, &[acc, error]);
    let result = k.regs.push(F64);
    let inner = Stmt::Loop(Loop {
        var: lane,
        extent: Dim::constant(BLOCK),
        kind: LoopKind::Reduce { partials: true },
        ranged: false,
        carried: vec![Carried { init, acc, next, result, combine: Combine::Max }],
        body: k.out,
    });
    let store = Stmt::Store { buf: 0, at: Ix::var(block), value: result };
    let blocks = Dim::constant(blocks(stride));
    let outer = Stmt::Loop(Loop {
        var: block,
        extent: blocks.clone(),
        kind: LoopKind::Parallel,
        ranged: true,
        carried: vec![],
        body: [head, vec![inner, store]].concat(),
    });
    Kernel {
        name: format!("error_{}", function.name()),
        bufs: vec![KernelBuf::new(DType::F64, blocks, true)],
        locals: vec![],
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

/// The functions of one operand.
fn unary() -> impl Iterator<Item = Elementary> {
    Elementary::ALL.iter().copied().filter(|f| f.def().arity == 1)
}

#[test]
fn f32_functions_are_within_their_bounds() {
    let stride = stride();
    let program = program(unary().map(|f| error_kernel(f, stride)).collect());
    let jit = jit(&program).unwrap();
    let blocks = blocks(stride) as usize;
    let step = 64;
    let mut failures = vec![];
    for (function, kernel) in unary().zip(jit.kernels()) {
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
                        let range = [lo as i64, (lo + step).min(blocks) as i64, 0, 0];
                        // SAFETY: each range of blocks is written by one thread.
                        unsafe { kernel(bufs.as_ptr(), [].as_ptr(), range.as_ptr()) };
                    }
                });
            }
        });
        let worst = (0..blocks).max_by(|a, b| errors[*a].total_cmp(&errors[*b])).unwrap_or(0);
        let near = f32::from_bits((worst as i64 * BLOCK * stride) as u32);
        println!("| {} | {:.2} | near {near:e} |", function.name(), errors[worst]);
        assert!(
            errors.iter().all(|e| *e >= 0.0),
            "{function:?}: NaN only on one side, near {near:e}"
        );
        if errors[worst] > function.def().ulp {
            failures.push(format!("{function:?} is {} ULP off near {near:e}", errors[worst]));
        }
    }
    assert_eq!(failures, Vec::<String>::new());
}

/// `out[i] = op(args[i]..)`, run on arrays.
fn map<T: Copy + Default>(function: Elementary, dtype: DType, args: &[&[T]]) -> Vec<T> {
    map_op(ScalarOp::Elementary(function), dtype, args)
}

fn map_op<T: Copy + Default>(op: ScalarOp, dtype: DType, args: &[&[T]]) -> Vec<T> {
    let ty = ScalarType::of(dtype);
    let i = LoopVar::from_u32(0);
    let mut k = Code::new();
    let mut regs = vec![];
    for buf in 0..args.len() as u32 {
        let dst = k.regs.push(ty);
        k.out.push(Stmt::Load { dst, buf, at: Ix::var(i) });
        regs.push(dst);
    }
    let value = k.op(ty, op, &regs);
    k.out.push(Stmt::Store { buf: args.len() as u32, at: Ix::var(i), value });
    let n = args[0].len();
    let len = Dim::constant(n as i64);
    let buf = |written| KernelBuf::new(dtype, len.clone(), written);
    let kernel = Kernel {
        name: "map".to_string(),
        bufs: args.iter().map(|_| buf(false)).chain([buf(true)]).collect(),
        locals: vec![],
        dims: vec![],
        regs: k.regs,
        loops: 1,
        body: vec![Stmt::Loop(Loop {
            var: i,
            extent: len.clone(),
            kind: LoopKind::Parallel,
            ranged: false,
            carried: vec![],
            body: k.out,
        })],
    };
    let jit = jit(&program(vec![kernel])).unwrap();
    let mut out = vec![T::default(); n];
    let mut bufs: Vec<*mut u8> = args.iter().map(|a| a.as_ptr().cast_mut().cast()).collect();
    bufs.push(out.as_mut_ptr().cast());
    // SAFETY: all arrays have `n` elements of the dtype's size.
    unsafe { jit.kernels()[0](bufs.as_ptr(), [].as_ptr(), [0i64; 4].as_ptr()) };
    out
}

/// A small generator of bits, the same in every run.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = (state >> 22) ^ state;
        x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    }
}

const SPECIAL: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    3.0,
    -3.0,
    2.5,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1e300,
    -1e300,
];

fn close(got: f64, want: f64, tolerance: f64) -> bool {
    got == want
        || (got.is_nan() && want.is_nan())
        || (got - want).abs() <= tolerance * want.abs().max(f64::MIN_POSITIVE)
}

#[test]
fn f64_functions_agree_with_the_c_library() {
    let mut next = random(1);
    let mut inputs: Vec<f64> = SPECIAL.to_vec();
    inputs.extend([5e-324, -5e-324, 1e-310, 709.7, 709.8, -745.1, -745.2, -708.4]);
    for _ in 0..100_000 {
        // All exponents, and denser where the functions do something.
        let bits = next();
        inputs.push(f64::from_bits(bits));
        inputs.push((bits as i64 as f64) * 2f64.powi(-63) * 40.0);
        inputs.push((bits as i64 as f64) * 2f64.powi(-63));
        inputs.push((bits as i64 as f64) * 2f64.powi(-63) * 750.0);
    }
    for op in unary() {
        // Not in Rust's library; it has a test of its own.
        if op == Elementary::Erf {
            continue;
        }
        let out = map(op, DType::F64, &[&inputs]);
        let mut worst = 0f64;
        for (x, got) in inputs.iter().zip(&out) {
            let want = (op.def().reference)(&[*x]);
            if x.abs() > op.def().end {
                assert!(got.is_nan());
                continue;
            }
            assert!(close(*got, want, 2e-15), "{op:?}({x:e}) = {got:e}, not {want:e}");
            if *x == 0.0 && !want.is_nan() {
                assert_eq!(got.to_bits(), want.to_bits(), "{op:?}({x:?})");
            }
            if want.is_normal() {
                worst = worst.max((got - want).abs() / want.abs());
            }
        }
        println!("| {} | {worst:.1e} |", op.name());
    }
}

#[test]
fn f64_erf_is_the_integral_of_a_gaussian() {
    // Reference values from the series of erf, summed in twice the precision of
    // its terms' cancellation: exact for small x.
    let inputs: Vec<f64> = (1..=200).map(|i| f64::from(i) * 0.01).collect();
    let out = map(Elementary::Erf, DType::F64, &[&inputs]);
    for (x, got) in inputs.iter().zip(&out) {
        let (mut term, mut sum, mut n) = (*x, *x, 0.0);
        while term.abs() > 1e-19 {
            // exp(-x^2) times a series of positive terms: no cancellation.
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        let want = std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum;
        assert!(close(*got, want, 4e-15), "erf({x}) = {got:e}, not {want:e}");
    }
    let ends = [0.0, -0.0, 6.5, -30.0, f64::INFINITY, f64::NAN];
    let out = map(Elementary::Erf, DType::F64, &[&ends]);
    assert_eq!(out[..5], [0.0, 0.0, 1.0, -1.0, 1.0]);
    assert!(out[1].is_sign_negative() && out[5].is_nan());
}

#[test]
fn trigonometry_of_huge_f32() {
    let inputs: Vec<f32> = (50..128)
        .flat_map(|e| (0..1009u32).map(move |i| f32::from_bits(((e + 127) << 23) + i * 8311)))
        .collect();
    for op in unary().filter(|f| f.def().end < f64::INFINITY) {
        let out = map(op, DType::F32, &[&inputs]);
        for (x, got) in inputs.iter().zip(&out) {
            let want = (op.def().reference)(&[f64::from(*x)]) as f32;
            let ulps = (got.to_bits() as i32).abs_diff(want.to_bits() as i32);
            assert!(f64::from(ulps) <= op.def().ulp, "{op:?}({x:e}) = {got}, not {want}");
        }
    }
}

#[test]
fn pow_and_rem_agree_with_the_c_library() {
    let mut next = random(2);
    let (mut a, mut b) = (vec![], vec![]);
    for x in SPECIAL {
        for y in SPECIAL {
            a.push(x);
            b.push(y);
        }
    }
    for _ in 0..50_000 {
        let (p, q) = (next(), next());
        let unit = |v: u64| (v >> 11) as f64 * 2f64.powi(-53);
        a.push(unit(p) * 20.0);
        b.push(unit(q) * 40.0 - 20.0);
        a.push(f64::from_bits(p));
        b.push(unit(q) * 4.0 - 2.0);
    }
    for (x, got) in a.iter().zip(&b).zip(map(Elementary::Pow, DType::F64, &[&a, &b])) {
        let want = x.0.powf(*x.1);
        assert!(close(got, want, 3e-15), "pow{x:?} = {got:e}, not {want:e}");
    }
    let a32: Vec<f32> = a.iter().map(|v| *v as f32).collect();
    let b32: Vec<f32> = b.iter().map(|v| *v as f32).collect();
    for (x, got) in a32.iter().zip(&b32).zip(map(Elementary::Pow, DType::F32, &[&a32, &b32])) {
        let want = f64::from(*x.0).powf(f64::from(*x.1)) as f32;
        let near = (got.to_bits() as i32).abs_diff(want.to_bits() as i32) <= 1;
        assert!(near || (got.is_nan() && want.is_nan()), "pow{x:?} = {got:e}, not {want:e}");
    }
    for (x, got) in a32.iter().zip(&b32).zip(map(Elementary::RemFloat, DType::F32, &[&a32, &b32])) {
        let want = x.0 % x.1;
        let same = got.to_bits() == want.to_bits();
        assert!(same || (got.is_nan() && want.is_nan()), "{x:?}: {got:e}, not {want:e}");
    }
    for (x, got) in a.iter().zip(&b).zip(map(Elementary::RemFloat, DType::F64, &[&a, &b])) {
        let want = x.0 % x.1;
        let far = (x.0 / x.1).abs() > 2f64.powi(184);
        let same = got.to_bits() == want.to_bits();
        assert!(far || same || (got.is_nan() && want.is_nan()), "{x:?}: {got:e}, not {want:e}");
    }
}

#[test]
fn atan2_agrees_with_the_c_library() {
    let mut next = random(4);
    let (mut a, mut b) = (vec![], vec![]);
    for x in SPECIAL {
        for y in SPECIAL {
            a.push(x);
            b.push(y);
        }
    }
    for _ in 0..50_000 {
        let (p, q) = (next(), next());
        let unit = |v: u64| (v as i64 as f64) * 2f64.powi(-63);
        a.extend([unit(p), f64::from_bits(p)]);
        b.extend([unit(q), f64::from_bits(q)]);
    }
    let sign = |v: f64| v == 0.0 && v.is_sign_negative();
    for (x, got) in a.iter().zip(&b).zip(map(Elementary::Atan2, DType::F64, &[&a, &b])) {
        let want = x.0.atan2(*x.1);
        assert!(close(got, want, 2e-15), "atan2{x:?} = {got:e}, not {want:e}");
        assert_eq!(sign(got), sign(want), "atan2{x:?} = {got:e}, not {want:e}");
    }
    let a32: Vec<f32> = a.iter().map(|v| *v as f32).collect();
    let b32: Vec<f32> = b.iter().map(|v| *v as f32).collect();
    for (x, got) in a32.iter().zip(&b32).zip(map(Elementary::Atan2, DType::F32, &[&a32, &b32])) {
        let want = f64::from(*x.0).atan2(f64::from(*x.1)) as f32;
        let near = (got.to_bits() as i32).abs_diff(want.to_bits() as i32) <= 1;
        assert!(near || (got.is_nan() && want.is_nan()), "atan2{x:?} = {got:e}, not {want:e}");
    }
}

#[test]
fn narrow_types_round_to_even() {
    let mut next = random(3);
    let mut inputs: Vec<f32> = SPECIAL.iter().map(|v| *v as f32).collect();
    inputs.extend([65504.0, 65519.9, 65520.0, 65536.0, 1e-8, 5.96e-8, 2.98e-8, 8.94e-8, 6.1e-5]);
    inputs.extend((0..50_000).map(|_| f32::from_bits(next() as u32)));
    // Halfway cases.
    inputs.extend((0..60_000u32).map(|i| f32::from_bits(0x3800_0000 + (i << 12))));
    for (op, reference) in [
        (ScalarOp::RoundF16, (|x| half::f16::from_f32(x).to_f32()) as fn(f32) -> f32),
        (ScalarOp::RoundBF16, |x| half::bf16::from_f32(x).to_f32()),
    ] {
        for (x, got) in inputs.iter().zip(map_op(op, DType::F32, &[&inputs])) {
            let want = reference(*x);
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{op:?}({x:e}) = {got:e}, not {want:e}");
        }
    }
}
