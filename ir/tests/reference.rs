//! `docs/ops.md` says what the op table says.

use std::collections::BTreeSet;
use tfc_ir::{Op, ops::doc};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ops.md");

#[test]
fn the_op_reference_is_up_to_date() {
    let want = doc::reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PATH, &want).unwrap();
    }
    let have = std::fs::read_to_string(PATH).unwrap_or_default();
    let differs = want.lines().zip(have.lines()).position(|(a, b)| a != b);
    assert!(
        have == want,
        "docs/ops.md differs from the op table (line {}): run UPDATE_DOCS=1 cargo test -p tfc-ir \
         --test reference",
        differs.map_or(0, |i| i + 1)
    );
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
