//! The smallest part of an entry that still fails.

use super::check::{Failure, check_at, code};
use super::{Entry, Source, operands, print_graph};
use std::collections::BTreeSet;

/// Attempts before what is left is good enough.
const ATTEMPTS: usize = 300;

/// The failure and the smallest graph that has it, ready for a file.
pub fn report(entry: &Entry, failure: &Failure) -> String {
    let (entry, failure) = shrink(entry.clone(), failure.clone());
    let line = entry.directive(&failure.dims);
    format!(
        "seed {}, {:?} mode, {:?}: {}\n{line}\n{}",
        entry.seed,
        failure.mode,
        failure.dims,
        failure.what,
        print_graph(std::slice::from_ref(&entry))
    )
}

/// Tries ever smaller entries, as long as they fail in some way.
fn shrink(mut entry: Entry, mut failure: Failure) -> (Entry, Failure) {
    let mut left = ATTEMPTS;
    let mut smaller = true;
    while smaller && left > 0 {
        smaller = false;
        for candidate in candidates(&entry) {
            if left == 0 {
                break;
            }
            left -= 1;
            if let Some(found) = fails(&candidate, &failure) {
                (entry, failure) = (candidate, found);
                smaller = true;
                break;
            }
        }
    }
    (entry, failure)
}

fn fails(entry: &Entry, like: &Failure) -> Option<Failure> {
    let sizes = match like.dims.is_empty() {
        true => entry.assignments(1),
        false => vec![like.dims.clone()],
    };
    let failure = check_at(std::slice::from_ref(entry), &[like.mode], &[sizes]).err()?;
    (kind(&failure.what) == kind(&like.what)).then_some(failure)
}

/// What sort of failure a message is about: a smaller graph that fails in another way
/// is another matter.
fn kind(what: &str) -> (Option<&str>, Option<&str>) {
    let start = ["panic", "failed", "should"].into_iter().find(|k| what.starts_with(k));
    (start, code(what))
}

/// Entries with something less: fewer results, an effect dropped, a value cut off
/// from what computes it.
fn candidates(entry: &Entry) -> Vec<Entry> {
    let mut out = vec![];
    if entry.results.len() > 1 {
        for result in &entry.results {
            out.push(swept(Entry { results: vec![*result], ..entry.clone() }));
        }
        for skip in 0..entry.results.len() {
            let mut fewer = entry.clone();
            fewer.results.remove(skip);
            out.push(swept(fewer));
        }
    }
    let differentiated: BTreeSet<usize> = entry
        .stmts
        .iter()
        .filter_map(|s| match &s.source {
            Source::Expr(text) if text.starts_with("grad(") => Some(operands(text)),
            _ => None,
        })
        .flatten()
        .collect();
    for (i, stmt) in entry.stmts.iter().enumerate() {
        let mut less = entry.clone();
        match &stmt.source {
            Source::Effect(_) => {
                // It keeps its number, and says nothing.
                less.stmts[i].source = Source::Also(usize::MAX);
            }
            Source::Expr(text) => {
                let has_more =
                    entry.stmts.iter().any(|s| matches!(s.source, Source::Also(of) if of == i));
                if has_more || differentiated.contains(&i) || entry.results == [i] {
                    continue;
                }
                // An operand of the same type in its place, if there is one.
                for other in operands(text) {
                    if entry.stmts[other].value.ty() == stmt.value.ty() {
                        out.push(swept(replaced(entry, i, other)));
                    }
                }
                less.stmts[i].source = Source::Param;
                if stmt.value.is_float() && stmt.value.size() > 1e3 {
                    less.stmts[i].value.lo = -2.0;
                    less.stmts[i].value.hi = 2.0;
                }
            }
            _ => continue,
        }
        out.push(swept(less));
    }
    out
}

/// The entry with another value used in the place of one.
fn replaced(entry: &Entry, old: usize, new: usize) -> Entry {
    let mut out = entry.clone();
    for stmt in &mut out.stmts {
        if let Source::Expr(text) | Source::Effect(text) = &mut stmt.source {
            *text = text.replace(&format!("{{{old}}}"), &format!("{{{new}}}"));
        }
    }
    out.results.iter_mut().filter(|r| **r == old).for_each(|r| *r = new);
    out
}

/// Drops what no result and no effect needs.
pub(super) fn swept(mut entry: Entry) -> Entry {
    let mut used: BTreeSet<usize> = entry.results.iter().copied().collect();
    for i in (0..entry.stmts.len()).rev() {
        let effect = matches!(entry.stmts[i].source, Source::Effect(_));
        let also = (0..entry.stmts.len()).any(|j| {
            used.contains(&j) && matches!(entry.stmts[j].source, Source::Also(of) if of == i)
        });
        if effect || also {
            used.insert(i);
        }
        if used.contains(&i)
            && let Source::Expr(text) | Source::Effect(text) = &entry.stmts[i].source
        {
            used.extend(operands(text));
        }
    }
    for i in 0..entry.stmts.len() {
        let needed = match entry.stmts[i].source {
            // Names of one statement stay together.
            Source::Also(of) => used.contains(&of),
            _ => used.contains(&i),
        };
        if !needed {
            entry.stmts[i].source = Source::Also(usize::MAX);
        }
    }
    entry
}
