//! Findings as text: for people, for one-line tools, for editors.
//!
//! Invariants
//! - Rendering never fails: spans outside their file, or between the bytes of a
//!   character, are moved to the nearest place that exists.
//! - Plain output is ASCII but for what the source itself holds; colour adds
//!   nothing that the text does not say.

use super::{Diag, Help, Severity, SourceMap, Span};
use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Patch, Renderer, Snippet};
use serde_json::{Value, json};
use std::fmt::Write;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Style {
    /// With the source lines they are about.
    #[default]
    Plain,
    /// The same, with terminal colours.
    Color,
    /// `file:line:col: error[code]: message`, one line each.
    Short,
    /// One JSON object a line.
    Json,
}

/// Findings shown before the rest is only counted.
pub const MAX_SHOWN: usize = 20;

/// All findings, errors counted at the end. JSON is not cut short.
pub fn render(diags: &[Diag], sources: &SourceMap, style: Style) -> String {
    let mut out = String::new();
    if style == Style::Json {
        for diag in diags {
            let _ = writeln!(out, "{}", to_json(diag, sources));
        }
        return out;
    }
    for diag in diags.iter().take(MAX_SHOWN) {
        match style {
            Style::Short => out.push_str(&short(diag, sources)),
            _ => {
                out.push_str(&one(diag, sources, style == Style::Color));
                out.push_str("\n\n");
            }
        }
    }
    if diags.len() > MAX_SHOWN {
        let _ = writeln!(out, "... and {} more", diags.len() - MAX_SHOWN);
    }
    out
}

/// One finding with its source lines, without a line break at the end.
pub fn one(diag: &Diag, sources: &SourceMap, color: bool) -> String {
    let level = match diag.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut main = Group::with_title(level.primary_title(clean(&diag.message)).id(diag.code));
    // The file of the primary label first, then the others as they come.
    let mut files: Vec<u32> = vec![];
    let first = diag.labels.iter().filter(|l| l.primary).chain(&diag.labels);
    for label in first {
        if !files.contains(&label.span.file)
            && sources.files.get(label.span.file as usize).is_some()
        {
            files.push(label.span.file);
        }
    }
    for file in files {
        let source = &sources.files[file as usize];
        let mut snippet = Snippet::source(source.text.as_str()).path(source.name.as_str());
        for label in diag.labels.iter().filter(|l| l.span.file == file) {
            let kind =
                if label.primary { AnnotationKind::Primary } else { AnnotationKind::Context };
            let span = range(label.span, &source.text);
            snippet = snippet.annotation(kind.span(span).label(clean(&label.text)));
        }
        main = main.element(snippet);
    }
    for note in &diag.notes {
        main = main.element(Level::NOTE.message(clean(note)));
    }
    let mut groups = vec![];
    let mut edits = vec![];
    for help in &diag.help {
        match edit(help, sources) {
            Some((text, path, span, new)) => edits.push(
                Level::HELP
                    .secondary_title(clean(&help.text))
                    .element(Snippet::source(text).path(path).patch(Patch::new(span, new))),
            ),
            None => main = main.element(Level::HELP.message(clean(&help.text))),
        }
    }
    groups.push(main);
    groups.append(&mut edits);
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    renderer.decor_style(DecorStyle::Ascii).render(&groups)
}

/// The parts of a help that changes the text, if it can be shown as a change.
fn edit<'a>(
    help: &'a Help,
    sources: &'a SourceMap,
) -> Option<(&'a str, &'a str, std::ops::Range<usize>, &'a str)> {
    let (span, new) = help.edit.as_ref()?;
    let source = sources.files.get(span.file as usize)?;
    Some((&source.text, &source.name, range(*span, &source.text), new))
}

/// The byte range, inside the text and on character boundaries.
fn range(span: Span, text: &str) -> std::ops::Range<usize> {
    let fit = |at: u32| {
        let mut at = (at as usize).min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (lo, hi) = (fit(span.lo), fit(span.hi));
    lo..hi.max(lo)
}

/// Messages are one line: control characters of hostile names do not reach a
/// terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// `file:line:col: error[code]: message`.
pub fn short(diag: &Diag, sources: &SourceMap) -> String {
    let mut out = String::new();
    let label = diag.labels.iter().find(|l| l.primary).or(diag.labels.first());
    if let Some((name, line, column)) = label.and_then(|l| place(l.span, sources)) {
        let _ = write!(out, "{name}:{line}:{column}: ");
    }
    let _ = writeln!(out, "{}[{}]: {}", word(diag.severity), diag.code, clean(&diag.message));
    out
}

/// For editors: everything, with edits that apply the help.
pub fn to_json(diag: &Diag, sources: &SourceMap) -> Value {
    let at = |span: Span| match place(span, sources) {
        Some((file, line, column)) => {
            let end = place(Span { lo: span.hi, ..span }, sources);
            let (end_line, end_column) = end.map_or((line, column), |(_, l, c)| (l, c));
            json!({
                "file": file, "line": line, "column": column,
                "end_line": end_line, "end_column": end_column,
                "start": span.lo, "end": span.hi,
            })
        }
        None => json!({}),
    };
    let labels: Vec<Value> = diag
        .labels
        .iter()
        .map(|l| {
            let mut label = at(l.span);
            label["text"] = l.text.clone().into();
            label["primary"] = l.primary.into();
            label
        })
        .collect();
    let help: Vec<Value> = diag
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
    })
}

/// File, line and column (from 1, in characters) where a span starts.
pub fn place(span: Span, sources: &SourceMap) -> Option<(&str, usize, usize)> {
    let file = sources.files.get(span.file as usize)?;
    let before = &file.text[..range(span, &file.text).start];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Some((&file.name, line, column))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> SourceMap {
        let mut sources = SourceMap::default();
        sources.add("a.graph", "graph a\nx = \u{e9} + y\n");
        sources.add("<nn>", "graph nn\n");
        sources
    }

    #[test]
    fn plain_text_shows_both_places_and_the_help() {
        let diag = Diag::error("E0203", "shapes differ")
            .at(Span::new(0, 12, 14), "this is f32[2]")
            .also(Span::new(0, 17, 18), "this is f32[3]")
            .also(Span::new(1, 6, 8), "in here")
            .note("a note")
            .fix("use z", Span::new(0, 17, 18), "z");
        let text = one(&diag, &sources(), false);
        for part in [
            "error[E0203]: shapes differ",
            "a.graph:2:5",
            "this is f32[2]",
            "<nn>",
            "a note",
            "use z",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(short(&diag, &sources()), "a.graph:2:5: error[E0203]: shapes differ\n");
        let json = to_json(&diag, &sources());
        assert_eq!(json["labels"][1]["column"], 9);
        assert_eq!(json["help"][0]["edit"]["replacement"], "z");
    }

    #[test]
    fn odd_spans_do_not_panic() {
        for (lo, hi) in [(0, 9999), (13, 13), (9999, 3), (13, 14), (19, 19), (18, 19)] {
            let span = Span { file: 0, lo, hi };
            let diag = Diag::error("E0101", "m\u{7}").at(span, "t\nu").fix("f", span, "g");
            assert!(!one(&diag, &sources(), true).is_empty());
            assert!(!short(&diag, &sources()).is_empty());
        }
        let lost = Diag::error("E0101", "m").at(Span::NONE, "t");
        assert!(one(&lost, &sources(), false).contains("error[E0101]: m"));
        let empty = SourceMap { files: vec![] };
        assert!(one(&lost.at(Span::new(7, 0, 0), ""), &empty, false).contains("E0101"));
    }
}
