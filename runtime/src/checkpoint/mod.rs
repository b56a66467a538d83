//! Checkpoints: everything a training run needs to go on as if it had never
//! stopped.
//!
//! A checkpoint of step 120 is two files in a directory:
//!
//! | file | holds |
//! |---|---|
//! | `step-000000000120.safetensors` | every variable: parameters, optimizer slots, counters and keys of random numbers |
//! | `step-000000000120.json` | the manifest: step, data position, graph, version, length and hash of the other file, and a hash of itself |
//!
//! In a job with parameter servers each of them writes a file of its own, with the
//! variables or rows that it has, and so does the chief with what only workers have:
//! `step-000000000120.1.3f2a77c0.safetensors` is that of server 1. The manifest lists
//! them. Whoever reads a checkpoint sees whole tensors ([`Source`]), however many files
//! they are in.
//!
//! Invariants
//! - Files appear under their names only when complete and on disk, the manifest
//!   last. So a checkpoint with a manifest was finished, and one without never
//!   was.
//! - A checkpoint is used only if its manifest and its data match their hashes
//!   and its graph is this one. What is wrong with one that is not used is said.
//! - An older checkpoint is removed only after a newer one is complete, its
//!   manifest first.

pub(crate) mod files;
mod lock;
mod manifest;
mod positions;
mod restore;
mod save;
mod source;

pub(crate) use files::{read_tensor, save_tensors};
pub use lock::{Lock, lock};
pub use manifest::{DataFile, Manifest, verify};
pub use positions::{resume, resume_some};
pub use restore::{
    Fit, Matched, Newest, Rename, check_whole, fit_exactly, fit_some, load_exact, load_for,
    load_matching, load_needed, newest,
};
pub(crate) use save::file_name;
pub use save::{Piece, Save, finish, save, save_part};
pub use source::{Source, Stored};

use crate::error::{Error, Result};
use crate::io::cannot_read;
use std::path::{Path, PathBuf};

/// How many checkpoints are kept unless something else is asked for.
pub const DEFAULT_KEEP: usize = 5;

const DATA: &str = "safetensors";
const MANIFEST: &str = "json";

fn path_of(dir: &Path, step: u64, ending: &str) -> PathBuf {
    dir.join(format!("step-{step:012}.{ending}"))
}

/// The step in a name such as `step-000000000120.json`.
fn step_of(path: &Path, ending: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix("step-")?.strip_suffix(ending)?.strip_suffix('.')?;
    let all = digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_digit());
    if all { digits.parse().ok() } else { None }
}

/// The step in the name of a file of data, one of several or the only one.
fn data_step(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let (digits, rest) = name.strip_prefix("step-")?.split_once('.')?;
    let all = digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_digit());
    let ours = rest == DATA || rest.strip_suffix(DATA).is_some_and(|r| r.ends_with('.'));
    if all && ours { digits.parse().ok() } else { None }
}

/// The manifest of the checkpoint that a file of data belongs to, if it is there.
pub(crate) fn manifest_of(data: &Path) -> Option<PathBuf> {
    let manifest = path_of(data.parent()?, data_step(data)?, MANIFEST);
    manifest.exists().then_some(manifest)
}

/// What a directory holds, in order of steps.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Manifests.
    pub checkpoints: Vec<(u64, PathBuf)>,
    /// Data without a manifest: saves that were not finished.
    pub unfinished: Vec<(u64, PathBuf)>,
    /// All data.
    data: Vec<(u64, PathBuf)>,
    /// Temporary files of saves that were cut off.
    temporary: Vec<PathBuf>,
}

/// Lists a directory; one that does not exist holds nothing.
pub fn list(dir: &Path) -> Result<Listing> {
    let mut out = Listing::default();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(out),
        Err(e) => return Err(cannot_read(dir, &e)),
    };
    for entry in entries {
        let path = entry.map_err(|e| cannot_read(dir, &e))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if let Some(step) = step_of(&path, MANIFEST) {
            out.checkpoints.push((step, path));
        } else if let Some(step) = data_step(&path) {
            out.data.push((step, path));
        } else if name.starts_with("step-") && name.ends_with(".tmp") && !in_use(name) {
            out.temporary.push(path);
        }
    }
    out.checkpoints.sort();
    out.data.sort();
    let lacks =
        |(step, _): &&(u64, PathBuf)| out.checkpoints.binary_search_by_key(step, |c| c.0).is_err();
    out.unfinished = out.data.iter().filter(lacks).cloned().collect();
    Ok(out)
}

/// Whether a temporary file, whose name ends in `.PID-COUNT-CHANCE.tmp`, may be of a
/// save that is under way.
fn in_use(name: &str) -> bool {
    let pid = name.rsplit('.').nth(1).and_then(|unique| unique.split('-').next());
    let Some(pid) = pid.and_then(|p| p.parse::<u32>().ok()) else { return false };
    // Where processes cannot be asked for, those that save wait for each other. One that has
    // ended may still be listed, until its parent looks.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    pid == std::process::id() || state.is_some_and(|s| !matches!(s, 'Z' | 'X'))
}

/// Whether a file is the data of a checkpoint.
pub fn is_data(path: &Path) -> bool {
    manifest_of(path).is_some()
}

/// The manifest a user means: of a manifest, of its data file, or the newest of
/// a directory.
pub fn find(path: &Path) -> Result<PathBuf> {
    if path.is_dir() {
        let newest = list(path)?.checkpoints.pop();
        return newest.map(|(_, p)| p).ok_or_else(|| {
            Error::data("E0582", format!("there is no checkpoint in `{}`", path.display()))
        });
    }
    if let Some(step) = data_step(path) {
        return Ok(path_of(path.parent().unwrap_or(Path::new("")), step, MANIFEST));
    }
    if path.exists() && path.extension().is_none_or(|e| e != MANIFEST) {
        let e = Error::data("E0582", format!("`{}` is not a checkpoint", path.display()));
        return Err(e
            .note(format!("a checkpoint is a pair of files, step-N.{MANIFEST} and step-N.{DATA}"))
            .help("name one of them, or the directory they are in"));
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_their_step() {
        let dir = Path::new("d");
        assert_eq!(step_of(&path_of(dir, 120, MANIFEST), MANIFEST), Some(120));
        assert_eq!(data_step(&path_of(dir, 1 << 60, DATA)), Some(1 << 60));
        assert_eq!(data_step(Path::new("d/step-000000000120.3.ab12.safetensors")), Some(120));
        assert_eq!(data_step(Path::new("d/step-000000000120.xsafetensors")), None);
        for other in ["step-1.json", "step-000000000120.json.7.tmp", "best.json", "step-x.json"] {
            assert_eq!(step_of(Path::new(other), MANIFEST), None, "{other}");
        }
    }
}
