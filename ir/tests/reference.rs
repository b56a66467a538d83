//! `docs/ops.md` says what the op table says, `docs/errors.md` what the table of
//! codes says, `docs/library.md` what the libraries say.

use std::collections::BTreeSet;
use tfc_ir::text::library;
use tfc_ir::{Op, codes, ops::doc};

#[test]
fn the_op_reference_is_up_to_date() {
    up_to_date("docs/ops.md", &doc::reference());
}

#[test]
fn the_error_reference_is_up_to_date() {
    up_to_date("docs/errors.md", &codes::reference());
}

#[test]
fn the_library_reference_is_up_to_date() {
    up_to_date("docs/library.md", &library::reference());
}

fn up_to_date(path: &str, want: &str) {
    let file = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, want).unwrap();
    }
    let have = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = want.lines().zip(have.lines()).position(|(a, b)| a != b);
    assert!(
        have == want,
        "{path} differs from its sources (line {}): run UPDATE_DOCS=1 cargo test -p tfc-ir --test \
         reference",
        differs.map_or(0, |i| i + 1)
    );
}

#[test]
fn library_functions_are_documented() {
    let functions = library::functions();
    assert!(functions.len() > 60);
    for func in functions {
        assert!(func.doc.ends_with(['.', ':']), "`{}`: a doc comment is sentences", func.name);
    }
}

#[test]
fn records_read_well() {
    let mut names = BTreeSet::new();
    for op in Op::ALL {
        let def = op.def();
        assert!(names.insert(def.name), "two ops are named `{}`", def.name);
        assert_eq!(Op::from_name(def.name), Some(*op));
        assert!(def.summary.ends_with('.'), "`{}`: a summary is a sentence", def.name);
        let variadic = def.operands.iter().position(|o| o.variadic);
        assert!(variadic.is_none_or(|i| i + 1 == def.operands.len()), "`{}`", def.name);
        let mut attrs = BTreeSet::new();
        for spec in def.attrs {
            assert!(attrs.insert(spec.name), "`{}` has two `{}`", def.name, spec.name);
            assert!(!spec.doc.is_empty() && !spec.doc.ends_with('.'), "`{}`", def.name);
            if let Some(default) = spec.default {
                assert!(spec.kind.holds(&default()), "default of `{}`", spec.name);
            }
        }
    }
}
