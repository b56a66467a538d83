//! What tests of several processes have in common: commands and state files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) fn tfc(dir: &Path, line: &str) -> Output {
    command(dir, env!("CARGO_BIN_EXE_tfc"), line).output().unwrap()
}

pub(crate) fn run(dir: &Path, line: &str) -> Output {
    let (program, rest) = line.split_once(' ').unwrap();
    command(dir, program, rest).output().unwrap()
}

pub(crate) fn command(dir: &Path, program: &str, line: &str) -> Command {
    let mut command = Command::new(program);
    command.args(line.split_whitespace()).current_dir(dir).stdin(Stdio::null());
    for name in [
        "TFC_RANK",
        "TFC_SIZE",
        "TFC_COORDINATOR",
        "TFC_TOKEN",
        "TFC_THREADS",
        "TFC_SERVERS",
        "TFC_ROLE",
    ] {
        command.env_remove(name);
    }
    command
}

#[track_caller]
pub(crate) fn ok(out: Output) -> String {
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{:?}: {err}", out.status);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(crate) const TRAIN: &str =
    "./m train --feed x=x.npy --feed y=y.npy --batch 24 --epochs 13 --shuffle 3";

/// The variables in a state file, by name.
pub(crate) fn variables(path: PathBuf) -> Vec<(String, Vec<f32>)> {
    let file = std::fs::File::open(path).unwrap();
    let Ok(mut archive) = tfc_runtime::io::safetensors::Archive::open(file) else {
        panic!("no state file");
    };
    let all: Vec<(usize, String)> =
        archive.tensors.iter().map(|t| t.name.clone()).enumerate().collect();
    let mut out = vec![];
    for (at, name) in all {
        let Ok(tensor) = archive.read(at) else { panic!("{name} cannot be read") };
        if tensor.dtype == tfc_abi::DType::F32 {
            let floats = tensor.bytes().chunks_exact(4);
            let floats = floats.map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            out.push((name, floats.collect()));
        }
    }
    out
}

#[track_caller]
pub(crate) fn close(a: &[(String, Vec<f32>)], b: &[(String, Vec<f32>)]) {
    assert_eq!(a.len(), b.len());
    assert!(a.len() >= 3);
    for ((name, x), (other, y)) in a.iter().zip(b) {
        assert_eq!(name, other);
        let scale = x.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
        for (p, q) in x.iter().zip(y) {
            assert!((p - q).abs() <= 1e-5 * scale, "{name}: {p} and {q}");
        }
    }
}
