//! Mutated graphs never make the compiler panic.
//!
//! `TFC_FUZZ=100000 cargo test -p tfc-testdata --test fuzz` tries harder.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tfc_ir::text;
use tfc_testdata::corpus;
use tfc_testdata::feeds::Rng;

const TRIES: usize = 4_000;

/// One to four edits: bytes changed, removed, doubled, moved, or words spliced in
/// from the language.
fn mutate(rng: &mut Rng, text: &str) -> String {
    const WORDS: &[&str] = &[
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "->",
        "=",
        "+=",
        "..",
        "-1",
        "0",
        "1e999",
        "9999999999",
        "9223372036854775807",
        "f32",
        "bool",
        "i64",
        "B",
        "entry",
        "func",
        "var",
        "dim",
        "return",
        "if",
        "else",
        "while",
        "do",
        "yield",
        "grad",
        "minimize",
        "over",
        "with",
        "use",
        "graph",
        "after",
        "on",
        "file(\"x\")",
        "\"",
        "//",
        "///",
        "\n",
        "é",
        "\u{0}",
        "@",
        "**",
        "_",
        ".",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + rng.below(4) {
        let n = bytes.len() as u64;
        let at = rng.below(n + 1) as usize;
        let len = rng.below(12) as usize;
        let end = (at + len).min(bytes.len());
        match rng.below(6) {
            0 if at < bytes.len() => bytes[at] = rng.below(256) as u8,
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let piece: Vec<u8> = bytes.drain(at..end).collect();
                let to = rng.below(bytes.len() as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
            4 => bytes.truncate(at),
            _ => {
                let word = WORDS[rng.below(WORDS.len() as u64) as usize];
                bytes.splice(at..at, word.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn mutated_graphs_give_errors_not_panics() {
    let tries = std::env::var("TFC_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(TRIES);
    let cases = corpus::valid();
    let mut rng = Rng::named("mutations");
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..tries {
        let case = &cases[rng.below(cases.len() as u64) as usize];
        let mutant = mutate(&mut rng, &case.text);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (graph, diags, sources) = text::load_str("mutant", &mutant);
            // What is reported can be shown, and what is accepted can be printed.
            let _ = tfc_ir::diag::render(&diags, &sources, tfc_ir::diag::Style::Plain);
            match graph {
                Some(graph) => {
                    let printed = text::print(&graph);
                    let (back, diags, _) = text::load_str("printed", &printed);
                    assert!(back.is_some(), "printed graph is refused: {diags:#?}\n{printed}");
                    true
                }
                None => {
                    assert!(!diags.is_empty(), "refused without a reason");
                    false
                }
            }
        }));
        match outcome {
            Ok(true) => accepted += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("a panic on this text (from {}):\n{mutant}", case.name),
        }
    }
    // Both kinds must occur, or the mutations test nothing.
    assert!(accepted > 0 && refused > tries / 2, "{accepted} accepted, {refused} refused");
}
