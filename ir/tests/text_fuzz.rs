//! Valid graphs, damaged byte by byte: nothing may panic, and what still loads
//! must print, parse back and format.
//!
//! `TFC_FUZZ=100000 cargo test -p tfc-ir --test text_fuzz` runs longer.

use std::fs;
use std::path::Path;
use tfc_ir::diag::{SourceMap, Style, render};
use tfc_ir::text::{NoFiles, fmt, lib_source, load, print, same};

/// A small fixed generator: the same damage on every machine.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut out = vec![];
    for dir in ["examples", "testdata/parse", "testdata/error", "testdata/ops"] {
        let mut paths: Vec<_> = fs::read_dir(root.join(dir))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .collect();
        paths.sort();
        for path in paths {
            if path.extension().is_some_and(|e| e == "graph") {
                out.push(fs::read(&path).expect("readable"));
            }
        }
    }
    for name in ["nn", "optim", "init"] {
        let text = lib_source(name).expect("a library");
        out.push(format!("{text}\nentry f(x: f32[3]) -> f32[3] {{ return x }}\n").into_bytes());
    }
    assert!(out.len() > 10);
    out
}

const WORDS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "..",
    "->",
    "=",
    "+=",
    "-",
    "*",
    "**",
    "@",
    "!",
    "\"",
    "//",
    "\n",
    "_",
    "-1",
    "0",
    "1e999",
    "99999999999999999999",
    "nan",
    "f32[",
    "i32",
    "bool",
    "dim ",
    "var ",
    "func f(x) {",
    "entry e() {",
    "return ",
    "yield ",
    "if ",
    "while (",
    "minimize ",
    "grad(",
    "wrt: ",
    "axis: ",
    "shape: ",
    "after(",
    "on \"/cpu:0\"",
    "zeros",
    "read(",
    "assign(",
    "split(",
    "B",
    "..S",
    "T[",
    "use nn\n",
    "bytes \"AA\"",
    "\u{fe0f}",
    "\0",
    "\u{e9}",
    "init {",
    "let a = ",
];

fn damage(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        let len = rng.below(12).min(bytes.len() - at);
        match rng.below(6) {
            0 if at < bytes.len() => bytes[at] = rng.next() as u8,
            1 => drop(bytes.drain(at..at + len)),
            2 => {
                let copy = bytes[at..at + len].to_vec();
                let to = rng.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            3 | 4 => {
                let word = WORDS[rng.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
            _ => {
                let word = WORDS[rng.below(WORDS.len())];
                bytes.splice(at..at + len, word.bytes());
            }
        }
    }
    bytes
}

/// Everything the front end does with a text.
fn exercise(text: &str) {
    let mut sources = SourceMap::default();
    let file = sources.add("fuzz.graph", text);
    let (graph, diags) = load(&mut sources, file, &NoFiles);
    assert_eq!(graph.is_none(), !diags.is_empty());
    if !diags.is_empty() {
        for style in [Style::Plain, Style::Short, Style::Json] {
            assert!(!render(&diags, &sources, style).is_empty());
        }
    }
    if let Ok(once) = fmt(&sources, file) {
        let mut sources = SourceMap::default();
        let file = sources.add("fuzz.graph", once.clone());
        assert_eq!(fmt(&sources, file).as_ref(), Ok(&once), "formatting is stable");
        let (again, _) = load(&mut sources, file, &NoFiles);
        if let (Some(a), Some(b)) = (&graph, &again) {
            assert_eq!(same(a, b), Ok(()), "formatting keeps the meaning");
        }
        assert_eq!(graph.is_some(), again.is_some(), "formatting keeps the meaning");
    }
    if let Some(graph) = graph {
        let printed = print(&graph);
        let mut sources = SourceMap::default();
        let file = sources.add("printed.graph", printed.clone());
        let (again, diags) = load(&mut sources, file, &NoFiles);
        let shown = render(&diags, &sources, Style::Plain);
        let again =
            again.unwrap_or_else(|| panic!("what is printed must load:\n{printed}\n{shown}"));
        assert_eq!(same(&graph, &again), Ok(()), "{printed}");
    }
}

#[test]
fn damaged_graphs_never_panic() {
    let tries = std::env::var("TFC_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000);
    let seeds = seeds();
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    for i in 0..tries {
        let bytes = damage(&mut rng, &seeds[i % seeds.len()]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let result = std::panic::catch_unwind(|| exercise(&text));
        assert!(result.is_ok(), "try {i} failed on:\n{text}");
    }
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("!", ""), ("exp(", ")")] {
        let body = format!("{}x{}", open.repeat(100_000), close.repeat(100_000));
        exercise(&format!("entry f(x: f32[]) -> f32[] {{\n  return {body}\n}}\n"));
    }
    let ifs = "y = if c {\n".repeat(20_000);
    exercise(&format!("entry f(x: f32[], c: bool[]) {{\n{ifs}"));
    exercise(&format!("entry f(x: f32[{}B]) {{}}", "(".repeat(50_000)));
    // A chain of calls of different functions.
    let mut text = String::from("func g0(x) { return x }\n");
    for i in 1..3000 {
        text.push_str(&format!("func g{i}(x) {{ return g{}(x) + 1 }}\n", i - 1));
    }
    exercise(&format!("{text}entry e(x: f32[]) -> f32[] {{ return g2999(x) }}\n"));
    // Functions that double at every step.
    let mut text = String::from("func g0(x) { return x + 1 }\n");
    for i in 1..40 {
        text.push_str(&format!("func g{i}(x) {{ return g{0}(g{0}(x)) }}\n", i - 1));
    }
    let mut sources = SourceMap::default();
    let file =
        sources.add("big.graph", format!("{text}entry e(x: f32[]) -> f32[] {{ return g39(x) }}\n"));
    let (graph, diags) = load(&mut sources, file, &NoFiles);
    assert!(graph.is_none());
    assert!(diags.iter().any(|d| matches!(d.code, "E0106" | "E0119" | "E0151")), "{diags:?}");
}

#[test]
fn long_graphs_load_in_linear_time() {
    let mut text = String::from("dim B\nentry f(x0: f32[B, 8]) -> f32[B, 8] {\n");
    for i in 0..10_000 {
        text.push_str(&format!("  x{} = relu(x{i} + {i}) * x{}\n", i + 1, i / 2));
    }
    text.push_str("  return x10000\n}\n");
    let start = std::time::Instant::now();
    let mut sources = SourceMap::default();
    let file = sources.add("long.graph", text);
    let (graph, diags) = load(&mut sources, file, &NoFiles);
    assert!(diags.is_empty(), "{:?}", diags.first());
    let graph = graph.expect("no error");
    let loaded = start.elapsed();
    let printed = print(&graph);
    println!("50,000 nodes: load {loaded:?}, print {:?}", start.elapsed() - loaded);
    assert!(printed.lines().count() > 50_000);
    // One sum of 50,000 terms is flat.
    let sum = vec!["x"; 50_000].join(" + ");
    exercise(&format!("entry f(x: f32[]) -> f32[] {{\n  return {sum}\n}}\n"));
}
