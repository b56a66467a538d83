//! Every code shows itself, and every fix works.

use tfc_ir::diag::{SourceMap, Style, render};
use tfc_ir::text::{Loader, load};
use tfc_ir::{DType, Tensor, codes};

/// Two files and nothing else.
struct Files;

impl Loader for Files {
    fn tensor(&self, path: &str, _key: Option<&str>) -> Result<Tensor, String> {
        match path {
            "float_2.npy" => Ok(Tensor::splat(DType::F32, vec![2], 1.0)),
            "int_2.npy" => Ok(Tensor::splat(DType::I32, vec![2], 1.0)),
            _ => Err("no such file".to_string()),
        }
    }

    fn source(&self, _path: &str) -> Result<String, String> {
        Err("no such file".to_string())
    }
}

#[test]
fn examples_of_codes_fail_and_fixes_work() {
    let mut wrong = vec![];
    for code in codes::all() {
        assert!(code.late == code.fails.is_none(), "{}", code.code);
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
