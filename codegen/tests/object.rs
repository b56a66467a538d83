//! Object files, linked with a C compiler and run.
//!
//! The C program stands in for the runtime: it finds the descriptor and calls the
//! first kernel of every version. Skipped, with a word, where there is no `cc`.

use cranelift_entity::PrimaryMap;
use std::process::Command;
use std::sync::Arc;
use tfc_codegen::{Cpu, Exports, ObjectOptions, object};
use tfc_kernel::program::Program;
use tfc_kernel::*;
use tfc_kernel::{DType, Dim};

const C: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef void kernel(void **bufs, const int64_t *dims, const int64_t *range);
struct version { uint32_t features, reserved; kernel *const *kernels; };
struct desc {
  uint32_t version, version_count;
  const void *plan; size_t plan_len;
  const struct version *versions; size_t kernel_count;
  const void *consts; size_t consts_len;
};
static void run(kernel *k) {
  float x[21], y[21];
  for (int i = 0; i < 21; i++) x[i] = (float)i / 4;
  void *bufs[] = {x, y};
  int64_t dims[] = {21}, range[] = {0, 21, 0, 0};
  k(bufs, dims, range);
  for (int i = 0; i < 21; i++) { uint32_t b; memcpy(&b, &y[i], 4); printf("%08x ", b); }
  printf("\n");
}
int tfc_main(int argc, char **argv, const struct desc *d) {
  if (!d || argc != 2 || strcmp(argv[1], "hello")) return 10;
  if (d->kernel_count != 1 || d->version_count != 3 || d->consts_len != 3 || !d->plan_len) return 11;
  if (((uintptr_t)d->consts & 63) || memcmp(d->consts, "abc", 3)) return 12;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    run(d->versions[0].kernels[0]);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    run(d->versions[1].kernels[0]);
  run(d->versions[2].kernels[0]);
  return 7;
}
"#;

/// `y[i] = tanh(x[i])`.
fn program(dtype: DType) -> Program {
    let mut regs = PrimaryMap::new();
    let ty = ScalarType::of(dtype);
    let (x, y) = (regs.push(ty), regs.push(ty));
    let i = LoopVar::from_u32(0);
    let n = Dim::sym("N");
    let buf = |written| KernelBuf::new(dtype, n.clone(), written);
    let kernel = Kernel {
        name: "tanh of x".into(),
        bufs: vec![buf(false), buf(true)],
        locals: vec![],
        dims: vec![Arc::from("N")],
        regs,
        loops: 1,
        body: vec![Stmt::Loop(Loop {
            var: i,
            extent: n.clone(),
            kind: LoopKind::Parallel,
            ranged: true,
            carried: vec![],
            body: vec![
                Stmt::Load { dst: x, buf: 0, at: Ix::var(i) },
                Stmt::Op { dst: y, op: ScalarOp::Elementary(Elementary::Tanh), args: vec![x] },
                Stmt::Store { buf: 1, at: Ix::var(i), value: y },
            ],
        })],
    };
    let mut program =
        Program { kernels: vec![kernel], consts: b"abc".to_vec(), ..Program::default() };
    program.plan.kernels = vec!["tanh of x".into()];
    program
}

#[test]
fn a_linked_program_runs_every_version() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("no C compiler here: not linked");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let exports = Exports::Main { function: "tfc_main".into() };
    let options = ObjectOptions {
        exports,
        cpu: Cpu::Portable,
        triple: None,
        gpu: None,
        conv: "tfc_conv".into(),
        jobs: "tfc_jobs".into(),
    };
    std::fs::write(path("demo.o"), object(&program(DType::F32), &options).unwrap()).unwrap();
    std::fs::write(path("main.c"), C).unwrap();
    let cc = Command::new("cc")
        .args(["-O1", "-o"])
        .args([path("demo"), path("main.c"), path("demo.o")])
        .arg("-lm")
        .output()
        .unwrap();
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    let run = Command::new(path("demo")).arg("hello").output().unwrap();
    assert_eq!(run.status.code(), Some(7));
    let out = String::from_utf8(run.stdout).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert!(!lines.is_empty() && lines.iter().all(|l| *l == lines[0]), "{out}");
    let values: Vec<f32> = lines[0]
        .split_whitespace()
        .map(|b| f32::from_bits(u32::from_str_radix(b, 16).unwrap()))
        .collect();
    assert_eq!(values.len(), 21);
    for (i, v) in values.iter().enumerate() {
        assert!((v - (i as f32 / 4.0).tanh()).abs() < 1e-6, "element {i} is {v}");
    }
}

/// Without the instruction, an f64 fma is a call of the C library.
#[test]
fn objects_may_call_the_c_library() {
    let exports = Exports::Main { function: "tfc_main".into() };
    for cpu in [Cpu::Portable, Cpu::Baseline] {
        let options = ObjectOptions {
            exports: exports.clone(),
            cpu,
            triple: None,
            gpu: None,
            conv: "tfc_conv".into(),
            jobs: "tfc_jobs".into(),
        };
        assert!(object(&program(DType::F64), &options).is_ok());
    }
}
