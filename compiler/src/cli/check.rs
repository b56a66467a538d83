//! `tfc check`: everything wrong with the given graphs.

use super::{Done, args};
use crate::driver::{self, Options, Timings};
use crate::error::{Error, Result};
use std::fmt::Write;
use tfc_ir::diag::{Severity, SourceMap};

pub fn run(args: &args::Check) -> Result<Done> {
    let mut failed: Option<Error> = None;
    let mut out = String::new();
    for path in &args.graphs {
        match check(path, args) {
            Ok(summary) => {
                let _ = writeln!(out, "{}: {summary}", path.display());
            }
            Err(error) => match &mut failed {
                // Each file's findings keep their own texts: shift them over.
                Some(all) => all.append(error),
                None => failed = Some(error),
            },
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(out.into()),
    }
}

fn check(path: &std::path::Path, args: &args::Check) -> Result<String> {
    let loaded = super::load(path, &args.source)?;
    // What only later stages find (gradients that do not exist, limits) counts.
    let options = Options::default();
    driver::compile(&loaded.graph, &loaded.sources, &options, &mut Timings::default())?;
    if !loaded.warnings.is_empty() {
        if args.deny_warnings {
            return Err(Error::new(loaded.warnings, loaded.sources));
        }
        super::warn(&loaded.warnings, &loaded.sources);
    }
    let graph = &loaded.graph;
    let entries: Vec<&str> =
        graph.entries.iter().filter(|e| !e.runner).map(|e| e.name.as_str()).collect();
    let warnings = loaded.warnings.iter().filter(|d| d.severity == Severity::Warning).count();
    let mut text = format!("ok, entries {}", entries.join(", "));
    if warnings > 0 {
        let _ = write!(text, ", {warnings} warning{}", if warnings == 1 { "" } else { "s" });
    }
    Ok(text)
}

impl Error {
    /// Adds another file's findings.
    fn append(&mut self, other: Error) {
        let shift = self.sources.files.len() as u32;
        let SourceMap { files, .. } = other.sources;
        self.sources.files.extend(files);
        for mut diag in other.diags {
            for label in &mut diag.labels {
                if !label.span.is_none() {
                    label.span.file += shift;
                }
            }
            for help in &mut diag.help {
                if let Some((span, _)) = &mut help.edit
                    && !span.is_none()
                {
                    span.file += shift;
                }
            }
            self.diags.push(diag);
        }
    }
}
