//! Broken graphs: what is said, where, and under which code.
//!
//! A line that is wrong ends in `//~ E0203`. The rendered findings are
//! snapshots beside the cases.

use tfc_ir::diag::{Diag, Severity, SourceMap, Style, render};
use tfc_testdata::corpus::{self, Case};

/// Codes by line (from 1), as the case announces them.
fn announced(case: &Case) -> Vec<(usize, String)> {
    let mut out = vec![];
    for (i, line) in case.text.lines().enumerate() {
        let Some((_, marks)) = line.split_once("//~") else { continue };
        out.extend(marks.split_whitespace().map(|code| (i + 1, code.to_string())));
    }
    out
}

/// Codes by line, as found.
fn found(diags: &[Diag], sources: &SourceMap) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = diags
        .iter()
        .map(|d| {
            let label = d.labels.iter().find(|l| l.primary).or(d.labels.first());
            let line = label.and_then(|l| {
                let text = &sources.files.get(l.span.file as usize)?.text;
                Some(text.get(..l.span.lo as usize)?.matches('\n').count() + 1)
            });
            (line.unwrap_or(0), d.code.to_string())
        })
        .collect();
    out.sort();
    out
}

/// Everything the compiler has to say about a case.
fn diagnose(case: &Case) -> (Vec<Diag>, SourceMap) {
    let name = format!("{}.graph", case.name);
    let files = tfc::load::Files::in_dir(case.path.parent().unwrap());
    match tfc::load::parse_as(&name, &case.text, &files) {
        Err(e) => (e.diags, e.sources),
        Ok(loaded) => {
            let mut diags = loaded.warnings;
            let options = tfc::Options::default();
            let mut timings = tfc::driver::Timings::default();
            let compiled =
                tfc::driver::compile(&loaded.graph, &loaded.sources, &options, &mut timings);
            if let Err(e) = compiled {
                diags.extend(e.diags);
            }
            (diags, loaded.sources)
        }
    }
}

#[test]
fn codes_and_lines_are_as_announced() {
    let mut wrong = vec![];
    let cases = corpus::cases("error");
    for case in &cases {
        let (diags, sources) = diagnose(case);
        let mut want = announced(case);
        want.sort();
        let got = found(&diags, &sources);
        if want != got || want.is_empty() {
            wrong.push(format!("{}: announced {want:?}, found {got:?}", case.path.display()));
        }
        // A warning's case may compile; an error's must not.
        let fails = diags.iter().any(|d| d.severity == Severity::Error);
        let warns = case.directive().verb == "warning";
        if fails == warns {
            wrong.push(format!("{}: fails = {fails}", case.path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn findings_read_well() {
    insta::glob!("../error", "*.graph", |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case = Case { path: path.to_path_buf(), name, text };
        let (diags, sources) = diagnose(&case);
        let rendered = render(&diags, &sources, Style::Plain);
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../error/snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.bind(|| insta::assert_snapshot!(rendered));
    });
}

#[test]
fn short_and_json_forms_name_the_place() {
    let case = Case {
        path: "x.graph".into(),
        name: "x".into(),
        text: "//! error\ngraph g\nentry e(x: f32[2]) { return nope }\n".into(),
    };
    let (diags, sources) = diagnose(&case);
    assert!(!diags.is_empty());
    let short = render(&diags, &sources, Style::Short);
    assert!(short.starts_with("x.graph:3:"), "{short}");
    assert!(short.contains("error[E01"), "{short}");
    for line in render(&diags, &sources, Style::Json).lines() {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(json["severity"], "error");
        assert_eq!(json["labels"][0]["line"], 3, "{json}");
        assert!(json["code"].as_str().unwrap().starts_with("E01"));
    }
}
