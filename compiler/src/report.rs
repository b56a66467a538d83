//! Findings as text: for people, for one-line tools, for editors.

use serde_json::{Value as Json, json};
use std::fmt::Write;
use tfc_ir::diag::{Diag, Severity, SourceMap, Span};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// With the source lines they are about.
    Human { color: bool },
    /// `file:line:col: error[code]: message`, one line each.
    Short,
    /// One JSON object a line.
    Json,
}

pub fn render(diags: &[Diag], sources: &SourceMap, format: Format) -> String {
    match format {
        Format::Human { color } => human(diags, sources, color),
        Format::Short => diags.iter().map(|d| short(d, sources)).collect(),
        Format::Json => diags.iter().map(|d| format!("{}\n", json_of(d, sources))).collect(),
    }
}

fn human(diags: &[Diag], sources: &SourceMap, _color: bool) -> String {
    let mut out = String::new();
    for d in diags {
        out.push_str(&short(d, sources));
        for l in &d.labels {
            if let Some((_, line, col)) = place(l.span, sources) {
                let _ = writeln!(out, "  {line}:{col}: {}", l.text);
            }
        }
        for n in &d.notes {
            let _ = writeln!(out, "  note: {n}");
        }
        for h in &d.help {
            let _ = writeln!(out, "  help: {}", h.text);
        }
    }
    out
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn short(diag: &Diag, sources: &SourceMap) -> String {
    let mut out = String::new();
    let label = diag.labels.iter().find(|l| l.primary).or(diag.labels.first());
    if let Some((name, line, col)) = label.and_then(|l| place(l.span, sources)) {
        let _ = write!(out, "{name}:{line}:{col}: ");
    }
    let _ = writeln!(out, "{}[{}]: {}", word(diag.severity), diag.code, diag.message);
    out
}

fn json_of(diag: &Diag, sources: &SourceMap) -> Json {
    let at = |span: Span| match place(span, sources) {
        Some((file, line, column)) => {
            let end = Span { lo: span.hi, ..span };
            let (end_line, end_column) =
                place(end, sources).map_or((line, column), |(_, l, c)| (l, c));
            json!({
                "file": file, "line": line, "column": column,
                "end_line": end_line, "end_column": end_column,
                "start": span.lo, "end": span.hi,
            })
        }
        None => json!({}),
    };
    let labels: Vec<Json> = diag
        .labels
        .iter()
        .map(|l| {
            let mut label = at(l.span);
            label["text"] = l.text.clone().into();
            label["primary"] = l.primary.into();
            label
        })
        .collect();
    let help: Vec<Json> = diag
        .help
        .iter()
        .map(|h| match &h.edit {
            Some((span, replacement)) => {
                let mut edit = at(*span);
                edit["replacement"] = replacement.clone().into();
                json!({"text": h.text, "edit": edit})
            }
            None => json!({"text": h.text}),
        })
        .collect();
    json!({
        "severity": word(diag.severity),
        "code": diag.code,
        "message": diag.message,
        "labels": labels,
        "notes": diag.notes,
        "help": help,
        "exit_code": crate::error::exit_of(diag.code) as u8,
    })
}

/// File, line and column (from 1, in characters) where a span starts.
pub fn place(span: Span, sources: &SourceMap) -> Option<(&str, usize, usize)> {
    let file = sources.files.get(span.file as usize)?;
    let before = file.text.get(..span.lo as usize)?;
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Some((&file.name, line, column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters() {
        let mut sources = SourceMap::default();
        let file = sources.add("a.graph", "é = 1\nx = y\n");
        let text = &sources.files[0].text;
        let lo = text.find('y').unwrap();
        assert_eq!(place(Span::new(file, lo, lo + 1), &sources), Some(("a.graph", 2, 5)));
        assert_eq!(place(Span::new(file, 3, 4), &sources), Some(("a.graph", 1, 3)));
        assert_eq!(place(Span::NONE, &sources), None);
        let diag = Diag::error("E0101", "no").at(Span::new(file, lo, lo + 1), "here");
        assert_eq!(short(&diag, &sources), "a.graph:2:5: error[E0101]: no\n");
        let json = json_of(&diag, &sources);
        assert_eq!(json["labels"][0]["end_column"], 6);
        assert_eq!(json["exit_code"], 1);
    }
}
