//! Findings as text: for people, for one-line tools, for editors.

use tfc_ir::diag::{Diag, Severity, SourceMap};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Human { color: bool },
    Short,
    Json,
}

pub fn render(diags: &[Diag], sources: &SourceMap, format: Format) -> String {
    let _ = (sources, format);
    let mut out = String::new();
    for d in diags {
        let word = match d.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        out.push_str(&format!("{word}[{}]: {}\n", d.code, d.message));
        for note in &d.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        for help in &d.help {
            out.push_str(&format!("help: {}\n", help.text));
        }
    }
    out
}
