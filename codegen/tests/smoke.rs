//! The smallest programs, end to end through JIT and object file.

use std::sync::Arc;
use tfc_codegen::schedule::Schedule;
use tfc_codegen::{Cpu, Exports, ObjectOptions, asm_text, clif_text, jit, object};
use tfc_kernel::program::Program;
use tfc_kernel::*;
use tfc_kernel::{DType, Dim};

/// `y[i] = x[i] * x[i] + 1`, over `N`.
fn square() -> Kernel {
    let mut regs = cranelift_entity::PrimaryMap::new();
    let x = regs.push(ScalarType::F32);
    let one = regs.push(ScalarType::F32);
    let y = regs.push(ScalarType::F32);
    let i = LoopVar::from_u32(0);
    let n = Dim::sym("N");
    Kernel {
        name: "square".into(),
        bufs: vec![
            KernelBuf::new(DType::F32, n.clone(), false),
            KernelBuf::new(DType::F32, n.clone(), true),
        ],
        locals: vec![],
        dims: vec![Arc::from("N")],
        regs,
        loops: 1,
        body: vec![Stmt::Loop(Loop {
            var: i,
            extent: n,
            kind: LoopKind::Parallel,
            ranged: true,
            carried: vec![],
            body: vec![
                Stmt::Load { dst: x, buf: 0, at: Ix::var(i) },
                Stmt::Const { dst: one, value: Scalar::of(ScalarType::F32, 1.0) },
                Stmt::Op { dst: y, op: ScalarOp::Fma, args: vec![x, x, one] },
                Stmt::Store { buf: 1, at: Ix::var(i), value: y },
            ],
        })],
    }
}

fn program() -> Program {
    let mut program = Program { kernels: vec![square()], ..Program::default() };
    program.plan.kernels = vec!["square".into()];
    program.plan.name = "smoke".into();
    program
}

#[test]
fn jit_runs_every_tail() {
    let jit = jit(&program()).unwrap();
    let kernel = jit.kernels()[0];
    for n in 0..40usize {
        let mut x: Vec<f32> = (0..n).map(|i| i as f32 - 3.5).collect();
        let mut y = vec![-1f32; n + 1];
        let bufs = [x.as_mut_ptr().cast::<u8>(), y.as_mut_ptr().cast()];
        let (dims, range) = ([n as i64], [0, n as i64, 0, 0]);
        // SAFETY: both arrays hold `n` elements.
        unsafe { kernel(bufs.as_ptr(), dims.as_ptr(), range.as_ptr()) };
        for i in 0..n {
            assert_eq!(y[i], x[i] * x[i] + 1.0, "element {i} of {n}");
        }
        assert_eq!(y[n], -1.0, "wrote past the end for {n}");
    }
}

#[test]
fn objects_are_deterministic() {
    for cpu in [Cpu::Portable, Cpu::Baseline] {
        let exports = Exports::Main { function: "tfc_main".into() };
        let options = ObjectOptions {
            exports,
            cpu,
            triple: None,
            gpu: None,
            conv: "tfc_conv".into(),
            jobs: "tfc_jobs".into(),
        };
        let bytes = object(&program(), &options).unwrap();
        assert!(bytes.starts_with(b"\x7fELF") || !cfg!(target_os = "linux"));
        assert_eq!(bytes, object(&program(), &options).unwrap());
    }
}

#[test]
fn code_prints() {
    assert!(clif_text(&program()).unwrap().contains("fma"));
    assert!(asm_text(&program()).unwrap().contains("ret"));
}

/// A change of these is a change of the vectoriser: read it, then accept it.
#[test]
fn clif_snapshots() {
    let mut squares = program();
    insta::assert_snapshot!("square_kernel", squares.kernels[0].to_string());
    insta::assert_snapshot!("square_clif", clif_text(&squares).unwrap());
    insta::assert_snapshot!("square_schedule", Schedule::new(&squares.kernels[0], 4).to_string());
    // The same for so few elements that vectors do not pay.
    let Stmt::Loop(l) = &mut squares.kernels[0].body[0] else { panic!("a loop is there") };
    l.extent = Dim::constant(3);
    insta::assert_snapshot!("square_serial_clif", clif_text(&squares).unwrap());
}
