//! Every code shows itself, and every fix works.

use tfc_ir::diag::{SourceMap, Style, render};
use tfc_ir::text::{Loader, Refusal, load};
use tfc_ir::{DType, Tensor, codes};

/// Two files and nothing else.
struct Files;

impl Loader for Files {
    fn tensor(&self, path: &str, _key: Option<&str>) -> Result<Tensor, Refusal> {
        match path {
            "float_2.npy" => Ok(Tensor::splat(DType::F32, vec![2], 1.0)),
            "int_2.npy" => Ok(Tensor::splat(DType::I32, vec![2], 1.0)),
            _ => Err("no such file".to_string().into()),
        }
    }

    fn source(&self, _path: &str) -> Result<String, Refusal> {
        Err("no such file".to_string().into())
    }
}

#[test]
fn examples_of_codes_fail_and_fixes_work() {
    let mut wrong = vec![];
    // Those of commands are run with the compiler.
    for code in codes::all().filter(|c| !c.late) {
        assert!(code.fails.is_some() && code.fixed.is_some(), "{}", code.code);
        let run = |text: &str| {
            let mut sources = SourceMap::default();
            let file = sources.add("example.graph", text);
            let (_, diags) = load(&mut sources, file, &Files);
            let shown = render(&diags, &sources, Style::Plain);
            (diags, shown)
        };
        if let Some(text) = code.fails {
            let (diags, shown) = run(text);
            if diags.len() != 1 || diags[0].code != code.code {
                wrong.push(format!("{} should fail with itself alone:\n{shown}", code.code));
            }
        }
        if let Some(text) = code.fixed {
            let (diags, shown) = run(text);
            if !diags.is_empty() {
                wrong.push(format!("the fix of {} fails:\n{shown}", code.code));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn broken_graphs_say_what_and_where() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/error");
    let mut paths: Vec<_> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "graph"));
    paths.sort();
    let mut wrong = vec![];
    // What passes find is compared where there are passes.
    let late = |code: &str| codes::all().any(|c| c.code == code && c.late);
    for path in &paths {
        let text = std::fs::read_to_string(path).expect("readable");
        let mut want = vec![];
        for (i, line) in text.lines().enumerate() {
            let Some((_, marks)) = line.split_once("//~") else { continue };
            let marks = marks.split_whitespace().filter(|code| !late(code));
            want.extend(marks.map(|code| (i + 1, code.to_string())));
        }
        let mut sources = SourceMap::default();
        let file = sources.add("case.graph", text.clone());
        let (_, diags) = load(&mut sources, file, &Files);
        let mut got: Vec<(usize, String)> = diags
            .iter()
            .map(|d| {
                let at = d.labels.iter().find(|l| l.primary).map_or(0, |l| l.span.lo as usize);
                (text[..at.min(text.len())].matches('\n').count() + 1, d.code.to_string())
            })
            .collect();
        got.sort();
        if want != got {
            let shown = render(&diags, &sources, Style::Plain);
            wrong.push(format!("{}: {want:?} wanted, found:\n{shown}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(paths.len() >= 60, "{}", paths.len());
}
