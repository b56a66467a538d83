//! Programs for other machines, and programs that bring all they need.
//!
//! Each test is skipped, with a word, where a tool it takes is missing.

use std::path::Path;
use std::process::{Command, Output};

const GRAPH: &str = "graph m
dim B
var n: i32[] = 0
entry f(x: f32[B, 3], w: f32[3, 2]) -> (y: f32[2]) {
  n += 1
  return sum(tanh(x @ w), axis: 0)
}
";
const ARGS: [&str; 5] = [
    "f",
    "--feed",
    "x=[[1, 2, 3], [4, 5, 6]]",
    "--feed",
    "w=[[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]]",
];

fn has_std(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    out.is_ok_and(|o| {
        let dir = String::from_utf8_lossy(&o.stdout).trim().to_string();
        std::fs::read_dir(dir).is_ok_and(|files| {
            files.flatten().any(|f| f.file_name().to_string_lossy().starts_with("libstd-"))
        })
    })
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn compile(dir: &Path, args: &[&str]) -> Output {
    std::fs::write(dir.join("m.graph"), GRAPH).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tfc"))
        .args(["compile", "m.graph"])
        .args(args)
        // Runtimes that were made are kept from test to test.
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .current_dir(dir)
        .output()
        .unwrap()
}

#[track_caller]
fn ok(out: Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// What the program for this machine prints.
fn expected(dir: &Path) -> String {
    ok(compile(dir, &["-o", "here"]));
    ok(Command::new(dir.join("here")).args(ARGS).output().unwrap())
}

/// Whether an ELF file asks for a dynamic linker.
fn is_dynamic(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (start, size) = (word(0x20), 0x38);
    let count = u16::from_le_bytes(bytes[0x38..0x3a].try_into().unwrap()) as usize;
    (0..count).any(|i| bytes[start + i * size..][..4] == [3, 0, 0, 0])
}

#[test]
fn static_executables_need_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let want = expected(dir);
    assert!(is_dynamic(&dir.join("here")));
    let out = compile(dir, &["-o", "whole", "--static"]);
    if !out.status.success() && String::from_utf8_lossy(&out.stderr).contains("-lc") {
        return eprintln!("no static C library here: not linked");
    }
    ok(out);
    assert!(!is_dynamic(&dir.join("whole")));
    assert_eq!(ok(Command::new(dir.join("whole")).args(ARGS).output().unwrap()), want);
    let refused = compile(dir, &["--emit", "shared", "--static"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("E0914"));
}

#[test]
fn musl() {
    let target = "x86_64-unknown-linux-musl";
    if !has_std(target) || !cfg!(target_arch = "x86_64") {
        return eprintln!("no Rust library for {target} here: not compiled");
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let want = expected(dir);
    ok(compile(dir, &["-o", "whole", "--target", target]));
    assert!(!is_dynamic(&dir.join("whole")));
    assert_eq!(ok(Command::new(dir.join("whole")).args(ARGS).output().unwrap()), want);
    let refused = compile(dir, &["--emit", "shared", "--target", target]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("E0809"));
}

#[test]
fn arm64_under_qemu() {
    let target = "aarch64-unknown-linux-gnu";
    if !has_std(target) {
        return eprintln!("no Rust library for {target} here: not compiled");
    }
    if !has("aarch64-linux-gnu-gcc") {
        return eprintln!("no aarch64-linux-gnu-gcc here: not linked");
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let want = expected(dir);
    ok(compile(dir, &["-o", "arm", "--target", target]));
    assert_eq!(std::fs::read(dir.join("arm")).unwrap()[0x12], 0xb7, "an aarch64 program");
    // embedding 15: cross builds made no libraries.
    ok(compile(dir, &["--emit", "lib,shared,header", "--target", target]));
    let c = "#include \"m.h\"\n#include <stdio.h>\n\
             int main(void) {\n\
             \x20   float x[6] = {1, 2, 3, 4, 5, 6}, w[6] = {0.1f, 0.2f, 0.3f, -0.4f, 0.5f, 0.6f}, y[2];\n\
             \x20   m_model *m = m_load();\n\
             \x20   if (m_f(m, 2, x, w, y)) { puts(m_error()); return 1; }\n\
             \x20   printf(\"%.4f %.4f\\n\", y[0], y[1]);\n\
             \x20   return 0;\n}\n";
    std::fs::write(dir.join("main.c"), c).unwrap();
    for (library, name) in [("libm.a", "fixed"), ("libm.so", "loose")] {
        let library = format!("./{library}");
        let mut cc = Command::new("aarch64-linux-gnu-gcc");
        cc.args(["main.c", &library, "-o", name, "-lpthread", "-ldl", "-lm"]);
        ok(cc.current_dir(dir).output().unwrap());
    }
    if !has("qemu-aarch64") {
        return eprintln!("no qemu-aarch64 here: compiled but not run");
    }
    let qemu = |program: &str| {
        let mut qemu = Command::new("qemu-aarch64");
        qemu.args(["-L", "/usr/aarch64-linux-gnu", "-E", "LD_LIBRARY_PATH=."]);
        qemu.arg(dir.join(program)).current_dir(dir);
        qemu
    };
    assert_eq!(ok(qemu("arm").args(ARGS).output().unwrap()), want);
    for name in ["fixed", "loose"] {
        assert_eq!(ok(qemu(name).output().unwrap()), "1.9756 1.8173\n", "{name}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let text = |out: Output| String::from_utf8_lossy(&out.stderr).into_owned();
    let error = text(compile(dir.path(), &["-o", "m", "--target", "riscv64gc-unknown-linux-gnu"]));
    assert!(error.contains("E0809") && error.contains("aarch64"), "{error}");
    // A Rust without the target's library, and none at all.
    std::fs::write(dir.path().join("m.graph"), GRAPH).unwrap();
    let with_rustc = |rustc: &str| {
        let mut tfc = Command::new(env!("CARGO_BIN_EXE_tfc"));
        tfc.args(["compile", "m.graph", "-o", "m", "--target", "aarch64-unknown-linux-musl"]);
        tfc.env("RUSTC", rustc).env("XDG_CACHE_HOME", dir.path()).current_dir(dir.path());
        text(tfc.output().unwrap())
    };
    let error = with_rustc("true");
    assert!(error.contains("rustup target add aarch64-unknown-linux-musl"), "{error}");
    let error = with_rustc("no-such-rustc");
    assert!(error.contains("takes a Rust compiler"), "{error}");
}

#[test]
fn processors() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let want = expected(dir);
    for cpu in ["baseline", "native"] {
        ok(compile(dir, &["-o", cpu, "--cpu", cpu]));
        assert_eq!(ok(Command::new(dir.join(cpu)).args(ARGS).output().unwrap()), want, "{cpu}");
    }
    let size = |name: &str| std::fs::metadata(dir.join(name)).unwrap().len();
    assert!(size("baseline") <= size("here"));
}
