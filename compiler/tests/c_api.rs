//! A C program uses a compiled model, linked statically and dynamically.

use std::path::{Path, PathBuf};
use std::process::Command;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/c")
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{err}");
    assert!(err.is_empty(), "{command:?}\n{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn compiled(emit: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let graph = sources().join("affine.graph");
    let mut tfc = Command::new(env!("CARGO_BIN_EXE_tfc"));
    run(tfc.arg("compile").arg(graph).args(["--emit", emit]).current_dir(dir.path()));
    dir
}

/// Strict C, so that the header is clean everywhere.
fn cc(dir: &Path, out: &str) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I."]);
    cc.arg("-o").arg(out).arg(sources().join("predict.c")).current_dir(dir);
    cc
}

#[test]
fn static_library() {
    let dir = compiled("lib");
    run(cc(dir.path(), "predict").args(["libaffine.a", "-lpthread", "-ldl", "-lm"]));
    assert_eq!(run(&mut Command::new(dir.path().join("predict"))), "ok\n");
}

#[test]
fn shared_library() {
    let dir = compiled("shared");
    run(cc(dir.path(), "predict").args(["-L.", "-laffine"]));
    let mut program = Command::new(dir.path().join("predict"));
    assert_eq!(run(program.env("LD_LIBRARY_PATH", dir.path())), "ok\n");
}

#[test]
fn the_header_is_cxx_too() {
    let dir = compiled("header");
    let Ok(out) = Command::new("c++")
        .args(["-x", "c++", "-fsyntax-only", "-Wall", "-Werror", "affine.h"])
        .current_dir(dir.path())
        .output()
    else {
        // Only a C compiler is promised.
        return;
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
