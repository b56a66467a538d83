//! How many instructions compiled kernels take, and the compiler itself: counted by
//! valgrind, so that neither the machine nor what else it does has a part in it, and
//! compared with what is on record in `counts/record.txt`. Above 5 % more is an error.
//!
//! `UPDATE=1 cargo test -p tfc --test counts` records what it counts. Kernels are those
//! for AVX2, since valgrind knows no AVX-512; the compiler is counted as development
//! builds have it, in which tests run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Percent.
const ALLOWED: u64 = 5;

const KERNELS: [&str; 10] = [
    "elementwise",
    "functions",
    "softmax",
    "layer_norm",
    "rows",
    "columns",
    "turned",
    "pooled",
    "largest",
    "update",
];

const GRAPHS: [&str; 3] = ["mlp", "convnet", "rnn"];

#[test]
fn neither_kernels_nor_the_compiler_take_more_instructions() {
    if !valgrind() || !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/counts");
    let file = here.join("record.txt");
    let dir = tempfile::tempdir().unwrap();
    let mut counted = BTreeMap::new();
    for (name, count) in kernels(&here, dir.path()) {
        counted.insert(format!("kernel {name}"), count);
    }
    // Another profile is another compiler.
    if cfg!(debug_assertions) {
        for graph in GRAPHS {
            counted.insert(format!("compile {graph}"), compile(graph, dir.path()));
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        // What this build does not count stays.
        let old = std::fs::read_to_string(&file).unwrap_or_default();
        for (name, count) in old.lines().filter_map(|line| line.rsplit_once(' ')) {
            counted.entry(name.to_string()).or_insert(count.parse().unwrap());
        }
        let lines = counted.iter().fold(String::new(), |mut text, (name, count)| {
            let _ = writeln!(text, "{name} {count}");
            text
        });
        std::fs::write(&file, lines).unwrap();
        return;
    }
    let record = std::fs::read_to_string(&file).unwrap();
    let mut more = vec![];
    for (name, count) in &counted {
        let line = record.lines().find_map(|l| l.strip_prefix(name.as_str())?.trim().parse().ok());
        let known: u64 = line.unwrap_or_else(|| panic!("`{name}` is not on record"));
        let change = 100.0 * (*count as f64 / known as f64 - 1.0);
        println!("{name}: {count} instructions, {change:+.2} %");
        if *count > known + known * ALLOWED / 100 {
            more.push(format!("{name}: {known} on record, {count} now, {change:+.1} %"));
        }
    }
    assert!(
        more.is_empty(),
        "more than {ALLOWED} % more instructions:\n{}\nif that is as it should be: \
         `UPDATE=1 cargo test -p tfc --test counts`",
        more.join("\n")
    );
}

/// Whether there is a valgrind. In CI there must be.
fn valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "there is no valgrind: `.ci/package valgrind valgrind` installs it"
    );
    println!("left out: there is no valgrind; `.ci/package valgrind valgrind` installs it");
    false
}

/// Instructions of one call of each entry, in kernels alone.
fn kernels(here: &Path, dir: &Path) -> Vec<(&'static str, u64)> {
    let graph = here.join("kernels.graph");
    let mut tfc = Command::new(env!("CARGO_BIN_EXE_tfc"));
    tfc.arg("compile").arg(graph).args(["--symbols", "-o", "kernels"]).current_dir(dir);
    let made = tfc.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    feed(&dir.join("x.npy"));
    KERNELS
        .into_iter()
        .map(|entry| {
            let mut program = callgrind(dir, &["--toggle-collect=kernel*"], &dir.join("kernels"));
            program.args([entry, "--feed", "x=x.npy", "--threads", "1"]).env("TFC_CPU", "avx2");
            if entry != "update" {
                program.args(["--out", "y=y.npy"]);
            }
            (entry, count(program))
        })
        .collect()
}

/// Instructions of a whole compilation.
fn compile(graph: &str, dir: &Path) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/{graph}.graph"));
    let mut tfc = callgrind(dir, &[], &PathBuf::from(env!("CARGO_BIN_EXE_tfc")));
    tfc.arg("compile").arg(path).args(["--emit", "obj", "-o", "compiled"]);
    count(tfc)
}

fn callgrind(dir: &Path, options: &[&str], program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(options);
    command.arg(program).current_dir(dir).stdin(Stdio::null());
    command
}

#[track_caller]
fn count(mut command: Command) -> u64 {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let collected = said.lines().find_map(|l| l.split_once("Collected :")?.1.trim().parse().ok());
    collected.unwrap_or_else(|| panic!("valgrind counts nothing: {said}"))
}

/// 256x512 numbers between -4 and 4, as an .npy file.
fn feed(path: &Path) {
    let mut header = "{'descr': '<f4', 'fortran_order': False, 'shape': (256, 512), }".to_string();
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    let number = |i: u32| ((i.wrapping_mul(2_654_435_761) >> 16) % 8000) as f32 / 1000.0 - 4.0;
    bytes.extend((0..256 * 512).flat_map(|i| number(i).to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}
