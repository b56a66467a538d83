//! `tfc new`: what its README says works, and nothing is overwritten.

use std::path::Path;
use std::process::{Command, Output};

fn bash(command: &str, dir: &Path) -> Output {
    let tfc = Path::new(env!("CARGO_BIN_EXE_tfc")).parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("bash")
        .args(["-c", command])
        .env("PATH", format!("{}:{path}", tfc.display()))
        .current_dir(dir)
        .output()
        .expect("bash runs")
}

fn ok(command: &str, dir: &Path) -> String {
    let output = bash(command, dir);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{command}`: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes a project, runs every command of its README, and gives the accuracy it
/// reaches on data it has not seen.
fn accuracy(template: &str) -> f64 {
    let dir = tempfile::tempdir().expect("a directory");
    ok(&format!("tfc new my-net --template {template}"), dir.path());
    let project = dir.path().join("my-net");
    ok("tfc check my_net.graph && tfc fmt --check my_net.graph", &project);
    let readme = std::fs::read_to_string(project.join("README.md")).expect("a README");
    for left in ["NAME", "SUMMARY", "EPOCHS", "EXAMPLE", "LET="] {
        assert!(!readme.contains(left), "{left} in\n{readme}");
    }
    let commands: Vec<&str> = readme.lines().filter_map(|l| l.strip_prefix("$ ")).collect();
    assert!(commands.len() >= 6, "{readme}");
    let mut accuracy = 0.0;
    for command in commands {
        let out = ok(command, &project);
        if command.contains(" evaluate ") {
            accuracy = out.trim().rsplit(' ').next().unwrap_or_default().parse().expect(&out);
        } else if command.contains(" predict ") {
            assert!(out.contains("probability: f32["), "{out}");
        }
    }
    accuracy
}

#[test]
fn mlp() {
    assert!(accuracy("mlp") > 0.95);
}

#[test]
fn convnet() {
    assert!(accuracy("convnet") > 0.95);
}

#[test]
fn rnn() {
    assert!(accuracy("rnn") > 0.95);
}

#[test]
fn transformer() {
    assert!(accuracy("transformer") > 0.95);
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("empty")).expect("a directory");
    ok("tfc new empty", dir.path());
    let before = std::fs::read(dir.path().join("empty/README.md")).expect("a README");
    for (command, code, text) in [
        ("tfc new empty --template rnn", 2, "exists, and `tfc new` overwrites nothing"),
        ("tfc new 3d", 2, "cannot be the name of a project"),
        ("tfc new net --template gpt", 2, "transformer"),
        ("touch file && tfc new file", 2, "exists"),
    ] {
        let output = bash(command, dir.path());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command}: {error}");
        assert!(error.contains(text), "{command}: {error}");
    }
    assert_eq!(std::fs::read(dir.path().join("empty/README.md")).expect("a README"), before);
}
