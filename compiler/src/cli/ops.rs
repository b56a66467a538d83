//! `tfc ops`: the reference of ops and of library functions.

use super::args;
use crate::error::Result;
use std::fmt::Write;
use tfc_ir::Op;
use tfc_ir::diag::Diag;
use tfc_ir::op::{Effect, Grad};
use tfc_ir::ops::doc;
use tfc_ir::text::library;

pub fn run(args: &args::Ops) -> Result<String> {
    match &args.name {
        Some(name) => match Op::from_name(name) {
            Some(op) if args.markdown => Ok(doc::entry(op)),
            Some(op) => Ok(describe(op)),
            None => library_text(name).ok_or_else(|| unknown(name).into()),
        },
        None if args.markdown => Ok(doc::reference()),
        None => Ok(list()),
    }
}

fn unknown(name: &str) -> Diag {
    let diag = Diag::error("E0902", format!("there is no op named `{name}`"));
    let functions = library::functions();
    let known = Op::ALL.iter().map(|op| op.name()).chain(functions.iter().map(|f| &*f.name));
    match crate::nearest(name, known) {
        Some(near) => diag.help(format!("did you mean `{near}`?")),
        None => diag.help("`tfc ops` lists them"),
    }
}

/// Ops by section, each with the first sentence about it.
fn list() -> String {
    let width = Op::ALL.iter().map(|op| op.name().len()).max().unwrap_or(0);
    let mut ops: Vec<Op> = Op::ALL.to_vec();
    ops.sort_by_key(|op| (doc::section(*op), op.name()));
    let mut out = String::new();
    let mut section = "";
    for op in ops {
        if doc::section(op) != section {
            section = doc::section(op);
            let gap = if out.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{gap}{section}");
        }
        let summary = op.def().summary.split_inclusive(". ").next().unwrap_or_default();
        let _ = writeln!(out, "  {:width$}  {}", op.name(), summary.trim_end());
    }
    let libraries: Vec<String> =
        tfc_ir::text::LIBRARIES.iter().map(|(name, _)| format!("`tfc ops {name}`")).collect();
    let _ = writeln!(out, "\nLibraries: {}", libraries.join(", "));
    out
}

/// The functions of a library (`nn`), or what one of them does (`nn.dense`).
fn library_text(name: &str) -> Option<String> {
    let functions = library::functions();
    if let Some(func) = functions.iter().find(|f| f.name == name) {
        return Some(format!("{}\n\n{}\n", func.signature, library::paragraph(&func.doc)));
    }
    let members: Vec<_> = functions.iter().filter(|f| f.library == name).collect();
    let width = members.iter().map(|f| f.name.len()).max()?;
    let mut out = format!("{}\n\n", library::paragraph(&library::about(name)));
    for func in members {
        let doc = library::paragraph(&func.doc);
        let summary = doc.split_inclusive(". ").next().unwrap_or_default();
        let _ = writeln!(out, "  {:width$}  {}", func.name, summary.trim_end());
    }
    Some(out)
}

/// The reference entry as plain text, with the gradient.
fn describe(op: Op) -> String {
    let def = op.def();
    let mut out = String::new();
    for line in doc::entry(op).lines() {
        let _ = writeln!(out, "{}", line.trim_start_matches("### ").replace('`', ""));
    }
    let effect = match def.effect {
        Effect::Pure => None,
        Effect::Read => Some("Reads a variable."),
        Effect::Write => Some("Writes a variable."),
        Effect::Stack => Some("Changes a stack of the call."),
        Effect::Io => Some("Is seen outside the program."),
        Effect::Regions => Some("Does what its regions do."),
    };
    if let Some(effect) = effect {
        let _ = writeln!(out, "\n{effect}");
    }
    if matches!(def.grad, Grad::Vjp(_) | Grad::Structural) {
        out.push_str("\nDifferentiable.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_is_listed_and_described() {
        let list = list();
        for op in Op::ALL {
            assert!(list.lines().any(|l| l.split_whitespace().next() == Some(op.name())));
            let text = describe(*op);
            assert!(
                text.starts_with(op.name()) && text.contains("ifferentiable")
                    || text.contains("Gradients stop here"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_misspelt_op_gets_a_suggestion() {
        let err = run(&args::Ops { name: Some("matmull".into()), markdown: false }).unwrap_err();
        assert_eq!(err.code(), "E0902");
        assert!(err.diags[0].help[0].text.contains("matmul"));
    }
}
