//! Whether what a run is to write can be written: asked before the first step,
//! when nothing is lost yet.

use super::Session;
use crate::checkpoint;
use crate::error::{Error, Result};
use crate::files::{Links, Staged, is_special};
use crate::io::{self, Format};
use std::path::Path;

/// Checks `--state` and `--out`: the kind of file, and that it can be written.
pub(super) fn check(session: &Session<'_>) -> Result<()> {
    let a = session.args;
    if let Some(state) = a.state.as_deref().map(Path::new) {
        state_name(session, state)?;
        if !session.entry().writes.is_empty() {
            writable(state)?;
        }
    }
    if let Some(file) = &a.trace_job {
        writable(Path::new(file))?;
    }
    for (i, (_, file)) in a.outs.iter().enumerate() {
        let path = Path::new(file);
        if a.state.as_ref() == Some(file) {
            let text = format!("`{file}` is to be both the state and a result");
            return Err(Error::usage("E0914", text).help("write the result to another file"));
        }
        let shared = a.outs.iter().filter(|(_, f)| f == file).count();
        io::output_format(path, shared)?;
        if !a.outs[..i].iter().any(|(_, f)| f == file) {
            writable(path)?;
        }
    }
    Ok(())
}

/// A name that says what the file will be.
fn state_name(session: &Session<'_>, path: &Path) -> Result<()> {
    let writes = !session.entry().writes.is_empty();
    let shown = path.display();
    if path.is_dir() {
        let e = Error::usage("E0588", format!("`--state {shown}` is a directory"));
        let checkpoints = checkpoint::list(path).is_ok_and(|l| !l.checkpoints.is_empty());
        return Err(match (checkpoints, writes) {
            (true, false) => e.help(format!("take its newest checkpoint: `--restore {shown}`")),
            (true, true) => e.help(format!(
                "continue the run it holds: `--checkpoint-dir {shown} --resume`, or begin with \
                 its newest checkpoint: `--restore {shown}`"
            )),
            (false, _) => e.help(format!("name a file: `--state {shown}/state.safetensors`")),
        });
    }
    let known = match Format::of_path(path) {
        Some(Format::Safetensors) => true,
        Some(_) => false,
        // What was made elsewhere may be called anything.
        None => !writes || path.exists() || is_special(path),
    };
    if known {
        return Ok(());
    }
    let better = path.with_extension("safetensors");
    Err(Error::usage("E0588", format!("`{shown}` is not the name of a .safetensors file"))
        .note("variables are kept in that format")
        .help(format!("use `--state {}`", better.display())))
}

fn writable(path: &Path) -> Result<()> {
    if is_special(path) {
        return Ok(());
    }
    Staged::new(path, Links::Refuse).map(drop).map_err(|e| {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.exists());
        match parent {
            Some(parent) => {
                let shown = parent.display();
                let note = format!("there is no directory `{shown}`");
                e.note(note).help(format!("make it first: `mkdir -p {shown}`"))
            }
            None => e,
        }
    })
}
