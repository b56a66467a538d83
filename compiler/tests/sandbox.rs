//! `--sandbox DIR`: what a graph that is not trusted may reach, from the command line,
//! from Rust and from C.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tfc::{ErrorCode, Options};

const OUTSIDE: &str = "E0810";

/// `box/` is what may be reached; beside it lie a secret in every form, and links to
/// them are in the box.
fn folders() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    fs::create_dir_all(at("box/data")).unwrap();
    fs::create_dir(at("out")).unwrap();
    let make = "graph make\nentry w() -> (w: f32[2]) { return f32[2]([1, 2]) }\n";
    fs::write(at("make.graph"), make).unwrap();
    for place in ["box", "out"] {
        let to = |ending: &str| format!("w={place}/w.{ending}");
        for ending in ["npy", "safetensors"] {
            assert_ok(&tfc(dir.path(), &["run", "make.graph", "w", "--out", &to(ending)]));
        }
        fs::write(at(&format!("{place}/lib.graph")), "func twice(x) { return x * 2 }\n").unwrap();
        fs::write(at(&format!("{place}/rows.csv")), "1,2\n").unwrap();
    }
    fs::write(at("box/data/a.csv"), "3,4\n").unwrap();
    symlink("../out/w.npy", at("box/link.npy")).unwrap();
    symlink("../out/w.safetensors", at("box/link.safetensors")).unwrap();
    symlink("../out/lib.graph", at("box/link.graph")).unwrap();
    symlink("../out", at("box/folder")).unwrap();
    dir
}

fn tfc(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tfc")).args(args).current_dir(dir).output().unwrap()
}

#[track_caller]
fn assert_ok(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The command is refused, and says what, where and by which line.
#[track_caller]
fn assert_refused(output: &Output, path: &str, line: &str) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    for text in [OUTSIDE, path, "outside the sandbox `box`", line] {
        assert!(err.contains(text), "`{text}` is missing: {err}");
    }
}

/// Writes a graph into the box.
fn graph(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("box/m.graph");
    fs::write(&path, text).unwrap();
    path
}

/// What a graph names when it is compiled: (as it names it inside, outside, the rest).
#[test]
fn files_and_sources_of_a_graph() {
    let dir = folders();
    let at = dir.path();
    let data = |path: &str| {
        format!(
            "graph m\nvar w: f32[2] = file(\"{path}\")\nentry f() -> (w: f32[2]) {{ return w }}\n"
        )
    };
    let library = |path: &str| {
        format!(
            "graph m\nuse \"{path}\" as lib\nentry f() -> (y: f32[]) {{ return lib.twice(f32[](2)) }}\n"
        )
    };
    let absolute = |p: &str| at.join(p).to_str().unwrap().to_string();
    let commands: [&[&str]; 5] = [
        &["check", "box/m.graph", "--sandbox", "box"],
        &["compile", "box/m.graph", "--sandbox", "box", "-o", "m"],
        &["run", "--sandbox", "box", "box/m.graph", "f"],
        &["run", "box/m.graph", "f", "--sandbox", "box"],
        &["bench", "box/m.graph", "f", "--sandbox", "box", "--calls", "1"],
    ];
    let (npy, lib) = (absolute("box/w.npy"), absolute("box/lib.graph"));
    for text in
        [data("w.npy"), data(&npy), data("data/../w.npy"), library("lib.graph"), library(&lib)]
    {
        graph(at, &text);
        for command in commands {
            assert_ok(&tfc(at, command));
        }
    }
    let (npy, lib) = (absolute("out/w.npy"), absolute("out/lib.graph"));
    let outside = [
        (data("../out/w.npy"), "out/w.npy"),
        (data(&npy), "out/w.npy"),
        (data("link.npy"), "link.npy"),
        (data("folder/w.npy"), "folder/w.npy"),
        (data("../out/none.npy"), "out/none.npy"),
        (library("../out/lib.graph"), "out/lib.graph"),
        (library(&lib), "out/lib.graph"),
        (library("link.graph"), "link.graph"),
        (library("folder/lib.graph"), "folder/lib.graph"),
    ];
    for (text, path) in outside {
        graph(at, &text);
        for command in commands {
            assert_refused(&tfc(at, command), path, "m.graph:2:");
        }
    }
    // Without a sandbox, all of them may be read.
    graph(at, &data("link.npy"));
    assert_ok(&tfc(at, &["check", "box/m.graph"]));
}

/// What it names when it runs.
#[test]
fn saves_restores_and_readers_of_a_program() {
    let dir = folders();
    let at = dir.path();
    // Paths of a program are relative to where it is started.
    let outside = ["out/w", "box/../out/w", "box/link", "box/folder/w", "box/folder/none/w"];
    let absolute = at.join("out/w");
    let outside = outside.iter().copied().chain([absolute.to_str().unwrap()]);
    let text = |path: &str| {
        format!(
            "graph m\nvar w: f32[2] = 0\nentry put() {{\n  save(w, path: \"{path}\")\n}}\n\
             entry get() -> (w: f32[2]) {{\n  restore(w, path: \"{path}\")\n  return w\n}}\n"
        )
    };
    for (i, path) in outside.enumerate() {
        graph(at, &text(path));
        let sandbox = ["--sandbox", "box"];
        for (entry, line) in [("put", "m.graph:4:"), ("get", "m.graph:7:")] {
            let run = [&["run", "box/m.graph", entry][..], &sandbox].concat();
            assert_refused(&tfc(at, &run), path, line);
        }
        // The executable is the same program: once is enough.
        if i == 0 {
            assert_ok(&tfc(at, &["compile", "box/m.graph", "-o", "m"]));
            let run = |args: &[&str]| {
                Command::new(at.join("m")).args(args).current_dir(at).output().unwrap()
            };
            assert_refused(&run(&["put", "--sandbox", "box"]), path, "m.graph:4:");
            assert_refused(&run(&["get", "--sandbox=box"]), path, "m.graph:7:");
            assert!(assert_ok(&run(&["get"])).contains('2'));
            let bad = run(&["get", "--sandbox", "none"]);
            assert!(String::from_utf8_lossy(&bad.stderr).contains("E0804"));
        }
    }
    let names: Vec<_> = fs::read_dir(at.join("out")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(names.len(), 4, "nothing was written: {names:?}");

    graph(at, &text("box/new/w"));
    for entry in ["put", "get"] {
        assert_ok(&tfc(at, &["run", "box/m.graph", entry, "--sandbox", "box"]));
    }
    assert!(at.join("box/new/w.safetensors").exists());
}

#[test]
fn readers_and_patterns() {
    let dir = folders();
    let at = dir.path();
    let text = |path: &str| {
        format!(
            "graph m\nreader r: csv(\"{path}\", f32[2])\n\
             entry next() -> (x: f32[2]) {{\n  return dequeue(r)\n}}\n"
        )
    };
    let run = |args: &[&str]| {
        tfc(at, &[&["run", "box/m.graph", "next", "--sandbox", "box"], args].concat())
    };
    for path in ["box/data/a.csv", "box/data/*.csv", "box/data", "out/../box/data/?.csv"] {
        graph(at, &text(path));
        assert_ok(&run(&[]));
    }
    for path in
        ["out/rows.csv", "out/*.csv", "out", "box/folder/*.csv", "box/*/rows.csv", "*/*.csv"]
    {
        graph(at, &text(path));
        assert_refused(&run(&[]), "", "m.graph:4:");
    }
    // A match that leads out is an error, not less data.
    symlink("../../out/rows.csv", at.join("box/data/b.csv")).unwrap();
    for path in ["box/data/*.csv", "box/data", "box/data/b.csv"] {
        graph(at, &text(path));
        assert_refused(&run(&[]), "b.csv", "m.graph:4:");
    }
    // What the user names is the user's own.
    assert_ok(&run(&["--data", "r=out/rows.csv"]));
    for (reader, path) in [
        ("npy", "out/w.npy"),
        ("npz", "out/none.npz"),
        ("idx", "out/none.idx"),
        ("tfrecord", "out/none.rec"),
        ("files", "out/*"),
    ] {
        let part = if reader == "npy" { "f32[]" } else { "f32[2]" };
        let keys = if reader == "npz" { ", keys: [\"w\"]" } else { "" };
        let text = format!(
            "graph m\nreader r: {reader}(\"{path}\", {part}{keys})\n\
             entry next() -> (x: {part}) {{\n  return dequeue(r)\n}}\n"
        );
        graph(at, &text);
        assert_refused(&run(&[]), "out", "m.graph:4:");
    }
}

/// State, checkpoints, feeds and results are where the user says.
#[test]
fn paths_of_the_user_are_not_confined() {
    let dir = folders();
    let at = dir.path();
    graph(
        at,
        "graph m\nvar w: f32[2] = 0\nentry add(x: f32[2]) -> (w: f32[2]) {\n  w += x\n  return w\n}\n",
    );
    let args = [
        "run",
        "box/m.graph",
        "add",
        "--sandbox",
        "box",
        "--feed",
        "x=out/w.npy",
        "--out",
        "w=out/y.npy",
        "--state",
        "out/state.safetensors",
    ];
    assert_ok(&tfc(at, &args));
    let args = [
        "run",
        "box/m.graph",
        "add",
        "--sandbox",
        "box",
        "--feed",
        "x=out/w.npy",
        "--steps",
        "1",
        "--checkpoint-dir",
        "out/ckpt",
    ];
    assert_ok(&tfc(at, &args));
    assert!(at.join("out/state.safetensors").exists() && at.join("out/ckpt").exists());
}

#[test]
fn from_rust() {
    let dir = folders();
    let at = dir.path();
    let text = |path: &str| {
        let path = at.join(path);
        let path = path.display();
        format!(
            "graph m\nvar w: f32[2] = 1\nreader r: csv(\"{path}.csv\", f32[2])\n\
             entry put() {{ save(w, path: \"{path}\") }}\nentry get() {{ restore(w, path: \"{path}\") }}\n\
             entry next() -> (x: f32[2]) {{ return dequeue(r) }}\n"
        )
    };
    let options = Options::new().sandbox(at.join("box"));
    let module =
        |path: &str| tfc::compile_with(&tfc::parse(&text(path)).unwrap(), &options).unwrap();
    let (inside, outside) = (module("box/rows"), module("box/folder/rows"));
    for entry in ["put", "get", "next"] {
        inside.call(entry, ()).unwrap();
        let error = outside.call(entry, ()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OUTSIDE_SANDBOX, "{error}");
    }
    assert!(!at.join("out/rows.safetensors").exists());
    // Checkpoints are where the caller says.
    inside.save_checkpoint(at.join("out/ckpt"), 1).unwrap();

    let file =
        "graph m\nvar w: f32[2] = file(\"out/w.npy\")\nentry f() -> (w: f32[2]) { return w }\n";
    fs::write(at.join("m.graph"), file).unwrap();
    assert_eq!(
        tfc::load_inside(at.join("m.graph"), at.join("box")).unwrap_err().code(),
        ErrorCode::OUTSIDE_SANDBOX
    );
    tfc::load_inside(at.join("m.graph"), at).unwrap();
    let absolute = file.replace("out/w.npy", at.join("out/w.npy").to_str().unwrap());
    let error = tfc::parse_inside(&absolute, at.join("box")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OUTSIDE_SANDBOX, "{error}");
    tfc::parse_inside(&absolute, at).unwrap();
    let nowhere = Options::new().sandbox(at.join("none"));
    let error = tfc::compile_with(&tfc::parse(&text("x")).unwrap(), &nowhere).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UNREADABLE_FILE);
}

/// The command that `docs/security.md` shows.
#[test]
fn the_documented_command_works() {
    let dir = tempfile::tempdir().unwrap();
    let page = include_str!("../../docs/security.md");
    let line = page.lines().find(|l| l.starts_with("tfc run ")).unwrap();
    let text = "graph model\nvar w: f32[] = 1\nentry train() {\n  w += 1\n  save(w, path: \"work/w\")\n}\n";
    fs::write(dir.path().join("model.graph"), text).unwrap();
    fs::create_dir(dir.path().join("work")).unwrap();
    let args: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert_ok(&tfc(dir.path(), &args));
    assert!(dir.path().join("work/w.safetensors").exists());
}
