//! Rust call sites as places of diagnostics.
//!
//! A mistake in a built graph is shown in the Rust file it was made in. The file
//! is read when an error is reported; where it is not at hand (a deployed
//! program), the place is named instead of shown.

use super::Site;
use crate::error::Error;
use std::path::{Path, PathBuf};
use tfc_ir::diag::{Diag, Label, SourceMap, Span};

/// Where a mistake was made, and what else to point at.
#[derive(Clone, Debug)]
pub(super) struct Sites {
    pub at: Site,
    pub text: String,
    pub also: Vec<(Site, String)>,
}

impl Sites {
    pub fn one(at: Site) -> Sites {
        Sites { at, text: String::new(), also: vec![] }
    }
}

/// The error for mistakes of Rust code.
pub(super) fn error(mistakes: &[(Diag, Sites)]) -> Error {
    let mut sources = SourceMap::default();
    let diags = mistakes
        .iter()
        .map(|(diag, sites)| {
            let mut diag = diag.clone();
            diag.labels.clear();
            // Edits are of the text the builder wrote, not of the Rust that is shown.
            diag.help.iter_mut().for_each(|h| h.edit = None);
            let places = std::iter::once((sites.at, &sites.text, true))
                .chain(sites.also.iter().map(|(at, text)| (*at, text, false)));
            for (at, text, primary) in places {
                match span(&mut sources, at) {
                    Some(span) => diag.labels.push(Label { span, text: text.clone(), primary }),
                    None if text.is_empty() => diag.notes.push(format!("at {at}")),
                    None => diag.notes.push(format!("at {at}: {text}")),
                }
            }
            diag
        })
        .collect();
    Error::new(diags, sources)
}

/// The call at a Rust location, if its file can be read.
fn span(sources: &mut SourceMap, at: Site) -> Option<Span> {
    let file = match sources.files.iter().position(|f| f.name == at.file()) {
        Some(index) => index as u32,
        None => {
            let text = std::fs::read_to_string(find(at.file())?).ok()?;
            sources.add(at.file(), text)
        }
    };
    let text = &sources.files.get(file as usize)?.text;
    let line_start = if at.line() == 1 {
        0
    } else {
        text.match_indices('\n').nth(at.line() as usize - 2).map(|(i, _)| i + 1)?
    };
    let line = text.get(line_start..)?.lines().next()?;
    let column = line.char_indices().nth(at.column() as usize - 1).map_or(line.len(), |(i, _)| i);
    let width = line[column..]
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '&'))
        .unwrap_or(line.len() - column)
        .max(1);
    let lo = line_start + column;
    Some(Span::new(file, lo, (lo + width).min(text.len())))
}

/// Rust paths are relative to the workspace the code was built in, which is the
/// current directory or above it.
fn find(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.is_absolute() {
        return path.exists().then(|| path.to_path_buf());
    }
    let here = std::env::current_dir().ok()?;
    here.ancestors().take(4).map(|dir| dir.join(path)).find(|p| p.exists())
}
