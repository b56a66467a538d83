//! Rules about the repository itself, kept by tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tfc_ir::Op;
use tfc_testdata::corpus::root;

/// Every file of ours below a directory, target and hidden directories left out.
fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" || name.starts_with("proptest-regressions") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

fn rust_files() -> Vec<PathBuf> {
    let mut out = vec![];
    files(&root(), &mut out);
    out.retain(|p| p.extension().is_some_and(|e| e == "rs"));
    out.sort();
    assert!(out.len() > 20, "the walk found the sources");
    out
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn files_stay_readable() {
    let long: Vec<String> = rust_files()
        .iter()
        .filter_map(|p| {
            let lines = fs::read_to_string(p).unwrap().lines().count();
            (lines > 900).then(|| format!("{} has {lines} lines", short(p)))
        })
        .collect();
    assert!(long.is_empty(), "split these: {long:#?}");
}

#[test]
fn modules_say_what_they_are() {
    let silent: Vec<String> = rust_files()
        .iter()
        .filter(|p| !fs::read_to_string(p).unwrap().trim_start().starts_with("//!"))
        .map(|p| short(p))
        .collect();
    assert!(silent.is_empty(), "start these with a module doc: {silent:#?}");
}

#[test]
fn nothing_is_unfinished() {
    // Split so that this file does not find itself.
    let banned = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("db", "g!("),
        concat!("#[ign", "ore"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    let mut found = vec![];
    for path in rust_files() {
        for (i, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if banned.iter().any(|b| line.contains(b)) {
                found.push(format!("{}:{}: {}", short(&path), i + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn crates_know_only_whom_they_may() {
    // Arrows of the architecture: a crate may depend on those listed, no other
    // crate of ours.
    let allowed: &[(&str, &[&str])] = &[
        ("runtime/abi", &[]),
        ("ir/kernel", &["tfc-abi"]),
        ("ir", &["tfc-abi", "tfc-kernel"]),
        ("runtime/compute", &["tfc-abi"]),
        ("runtime", &["tfc-abi", "tfc-compute"]),
        ("passes", &["tfc-abi", "tfc-ir"]),
        ("codegen", &["tfc-abi", "tfc-kernel"]),
        (
            "compiler",
            &["tfc-abi", "tfc-compute", "tfc-ir", "tfc-passes", "tfc-codegen", "tfc-runtime"],
        ),
    ];
    for (dir, allowed) in allowed {
        let manifest = fs::read_to_string(root().join(dir).join("Cargo.toml")).unwrap();
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            let ours = name == "tfc" || name.starts_with("tfc-");
            // Tests may look further; the code may not.
            if ours && section == "[dependencies]" {
                assert!(allowed.contains(&name), "`{dir}` must not depend on `{name}`");
            }
        }
    }
}

/// Where passes may know particular ops, which ones, and why.
const KNOWN_OPS: &[(&str, &[&str], &str)] = &[
    (
        "passes/src",
        &["Const", "Vjp", "Grad", "CustomGrad", "If", "While"],
        "the structure of a graph: literals, gradients, regions",
    ),
    ("passes/src/differentiate", &["*"], "the differentiation of regions and of scattered rows"),
    ("passes/src/checks.rs", &["Add", "Lt", "Gt", "Le", "Ge", "And", "DimSize"], "how loops count"),
    (
        "passes/src/sparse.rs",
        &["ScatterAdd", "Neg", "Mul", "Div", "Add", "Sub"],
        "what an update that is linear in scattered rows is made of",
    ),
    ("passes/src/products.rs", &["Add"], "sums of products are sums"),
    ("passes/src/replicas.rs", &["AllReduce"], "the pass is what the op means"),
    ("passes/src/servers", &["AllReduce"], "where an entry is cut"),
    (
        "passes/src/servers/rows.rs",
        &["Gather", "ScatterAdd", "Neg", "Mul", "Div", "Add", "Sub"],
        "rows of a table that are used, and what leaves the others as they are",
    ),
    ("passes/src/egraph/region.rs", &["Add"], "the parts of a gradient are summed with it"),
    ("passes/src/devices.rs", &["Copy"], "the pass is what the op means"),
    ("passes/src/probe", &["StopGradient"], "what finite differences must hold still"),
];

/// The ops that a line of code tells from others.
fn ops_matched(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or("");
    let mut out = vec![];
    for (at, _) in code.match_indices("Op::") {
        let before = &code[..at];
        if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name = &code[at + 4..];
        let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        let compared = before.ends_with("== ") || before.ends_with("!= ");
        let listed = code.contains("matches!(") || code.trim_start().starts_with("| Op::");
        let arm = after.contains("=>") || after.contains(" | Op::") || after.contains(") = (");
        let looked_for = before.ends_with("Kind::Op(");
        if name.starts_with(char::is_uppercase)
            && name != "ALL"
            && (compared || listed || arm || looked_for)
        {
            out.push(name);
        }
    }
    out
}

/// What an op means is in its record: a pass that tells ops apart would have to be
/// found and changed for every new one.
#[test]
fn passes_ask_records_instead_of_knowing_ops() {
    let mut found = vec![];
    for path in rust_files() {
        let name = short(&path);
        if !name.starts_with("passes/src") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        let known = |op: &str| {
            let entries = KNOWN_OPS.iter().filter(|(place, ..)| name.starts_with(place));
            entries.into_iter().any(|(_, ops, _)| ops.contains(&op) || ops.contains(&"*"))
        };
        for (i, line) in code.lines().enumerate() {
            if let Some(op) = ops_matched(line).into_iter().find(|op| !known(op)) {
                found.push(format!("{name}:{}: `Op::{op}`: {}", i + 1, line.trim()));
            }
            if ["name() == \"", "name() != \"", "matches!(node.op.name()"]
                .iter()
                .any(|c| line.contains(c))
            {
                found.push(format!("{name}:{}: by name: {}", i + 1, line.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "a pass tells ops apart. Ask the op's record instead (`op.def()`: `facts`, `indices`, \
         `lower`, `effect`, ..; see ir/src/op.rs and ir/src/facts.rs), and add a fact there if none \
         says it:\n{}",
        found.join("\n")
    );
}

#[test]
fn particular_ops_are_seen_where_passes_tell_them_apart() {
    for (line, ops) in [
        ("if node.op == Op::Sum {", &["Sum"][..]),
        ("Op::Gather | Op::Slice => true,", &["Gather", "Slice"]),
        ("    | Op::Slice", &["Slice"]),
        ("let takes = matches!(node.op, Op::Gather);", &["Gather"]),
        ("r.builder(at).emit(Op::Add, &[a, b], Attrs::none())?", &[]),
        ("ScalarOp::Add => 1,", &[]),
        ("// Op::Add => 1,", &[]),
    ] {
        assert_eq!(ops_matched(line), ops, "{line}");
    }
}

#[test]
fn every_op_has_a_case_and_every_case_an_op() {
    let dir = root().join("testdata/ops");
    let cases: BTreeSet<String> = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| {
            let path = e.path();
            let stem = path.file_stem()?.to_string_lossy().into_owned();
            (path.extension()? == "graph").then_some(stem)
        })
        .collect();
    let missing: Vec<&str> =
        Op::ALL.iter().map(|op| op.name()).filter(|n| !cases.contains(*n)).collect();
    assert!(
        missing.is_empty(),
        "add a graph that runs each of these on every element type, on empty and odd sizes, and \
         takes its gradient (testdata/ops/tanh.graph is an example): {}",
        missing.iter().map(|op| format!("testdata/ops/{op}.graph")).collect::<Vec<_>>().join(", ")
    );
}

#[test]
fn op_files_are_named_after_their_op() {
    for op in Op::ALL {
        let (name, dir) = (op.name(), root().join("ir/src/ops"));
        let named = dir.join(format!("{name}.rs"));
        // Two names are Rust keywords' neighbours and live under another.
        let known = named.exists()
            || rust_files().iter().any(|p| {
                p.starts_with(&dir)
                    && fs::read_to_string(p).unwrap().contains(&format!("name: \"{name}\""))
            });
        assert!(known, "`{name}` has no file in ir/src/ops");
    }
}

#[test]
fn snapshots_have_an_owner() {
    let mut all = vec![];
    files(&root(), &mut all);
    let mut orphans = vec![];
    for snap in all.iter().filter(|p| p.extension().is_some_and(|e| e == "snap")) {
        let text = fs::read_to_string(snap).unwrap();
        let input = text.lines().find_map(|l| l.strip_prefix("input_file: "));
        if let Some(input) = input
            && !root().join(input.trim_matches('"')).exists()
        {
            orphans.push(format!("{} (of {input})", short(snap)));
        }
    }
    assert!(orphans.is_empty(), "snapshots without their input: {orphans:#?}");
}

#[test]
fn corpus_files_have_directives() {
    for dir in tfc_testdata::corpus::directories() {
        for case in tfc_testdata::corpus::cases(&dir) {
            let directive = case.directive();
            assert!(!directive.verb.is_empty(), "{}", case.path.display());
        }
    }
}

#[test]
fn every_code_is_in_the_table() {
    let mut missing = BTreeSet::new();
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        // Codes are string literals: "E0203".
        for (at, _) in text.match_indices("\"E0") {
            let Some(code) = text.get(at + 1..at + 6) else { continue };
            let closed = text.get(at + 6..at + 7) == Some("\"");
            let digits = code[1..].bytes().all(|b| b.is_ascii_digit());
            if closed && digits && tfc_ir::codes::find(code).is_none() {
                missing.insert(format!("{code} in {}", short(&path)));
            }
        }
    }
    assert!(missing.is_empty(), "no `tfc explain` for: {missing:#?}");
}

/// The constants of `ErrorCode` are in the table.
#[test]
fn named_codes_are_in_the_table() {
    let known: BTreeSet<&str> = tfc_ir::codes::all().map(|c| c.code).collect();
    for code in tfc::ErrorCode::NAMED {
        assert!(known.contains(code.as_str()), "{code} is not in the table of codes");
    }
}

/// What a program does next never depends on the text of a code. (review 10)
#[test]
fn nothing_branches_on_the_text_of_a_code() {
    let mut found = vec![];
    for path in rust_files().iter().filter(|p| !short(p).contains("tests/")) {
        let text = fs::read_to_string(path).unwrap();
        let code = text
            .split("#[cfg(test)]")
            .next()
            .and_then(|t| t.split("#[cfg(all(test,").next())
            .unwrap_or("");
        for (i, line) in code.lines().enumerate().filter(|(_, l)| !l.trim().starts_with("//")) {
            let compares = ["code() == \"E", "code() != \"E", "code(), \"E", "code == \"E"];
            if compares.iter().any(|c| line.contains(c)) {
                found.push(format!("{}:{}: {}", short(path), i + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "use the constants of `ErrorCode`:\n{}", found.join("\n"));
}
