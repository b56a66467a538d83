//! Writing a checkpoint, and removing old ones.

use super::{DATA, DataFile, MANIFEST, Manifest, list, path_of, positions};
use crate::error::Result;
use crate::files::{Links, replace_with, sync_dir};
use crate::hash::{Hasher, hex};
use crate::io::{cannot_write, safetensors};
use crate::model::Model;
use crate::tensor::FeedView;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tfc_abi::plan::Plan;

/// What to save besides the variables.
#[derive(Clone, Debug, Default)]
pub struct Save {
    pub step: u64,
    pub positions: BTreeMap<String, i64>,
    /// What must be the same when the run is resumed.
    pub run: BTreeMap<String, String>,
    /// Older checkpoints beyond this number are removed.
    pub keep: usize,
}

/// One at a time: the files of a checkpoint are of one save.
static SAVING: Mutex<()> = Mutex::new(());

/// Writes a checkpoint; returns its manifest's path. Variables are as some whole
/// number of calls left them: nothing writes them meanwhile.
pub fn save(model: &Model, dir: &Path, what: &Save) -> Result<PathBuf> {
    let _saving = SAVING.lock().unwrap_or_else(PoisonError::into_inner);
    if !dir.is_dir() {
        let made = std::fs::create_dir_all(dir).and_then(|()| sync_dir(dir));
        made.map_err(|e| cannot_write(dir, &e))?;
    }
    let name = file_name(what.step, None);
    let data = model.with_vars_to_save(|vars| {
        let pieces = vars.iter().map(|(name, view)| Piece { name, view: *view, part: None });
        save_part(model.plan(), dir, &name, what.step, &pieces.collect::<Vec<_>>())
    })?;
    finish(model, dir, what, vec![data])
}

/// Some rows of a tensor, or all.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    pub name: &'a str,
    pub view: FeedView<'a>,
    /// The number of the first, and of how many.
    pub part: Option<(usize, usize)>,
}

/// What a file of data is called: the only one of its checkpoint, or that of a process.
/// Each save of one has a word of its own, so that none writes over what another did.
pub(crate) fn file_name(step: u64, part: Option<(&str, &str)>) -> String {
    match part {
        None => format!("step-{step:012}.{DATA}"),
        Some((who, word)) => format!("step-{step:012}.{who}.{word}.{DATA}"),
    }
}

/// Writes a file of data of a checkpoint.
pub fn save_part(
    plan: &Plan,
    dir: &Path,
    file: &str,
    step: u64,
    pieces: &[Piece<'_>],
) -> Result<DataFile> {
    let mut hasher = Hasher::default();
    let mut bytes = 0;
    let step = step.to_string();
    let metadata = safetensors::metadata_of(plan);
    let mut metadata: Vec<(String, String)> =
        metadata.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    metadata.push(("step".into(), step));
    for p in pieces {
        let part = p.part.map(|(first, total)| format!("{first}/{total}"));
        metadata.extend(part.map(|text| (format!("{}{}", super::source::PART, p.name), text)));
    }
    let metadata: Vec<(&str, &str)> =
        metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let tensors: Vec<(&str, FeedView<'_>)> = pieces.iter().map(|p| (p.name, p.view)).collect();
    replace_with(&dir.join(file), Links::Replace, |out| {
        let mut out = Hashed { out, hasher: &mut hasher, bytes: &mut bytes };
        safetensors::write(&mut out, &tensors, &metadata)
    })?;
    Ok(DataFile { file: file.to_owned(), bytes, hash: hex(&hasher.finish()) })
}

/// Completes a checkpoint whose data is on disk: writes its manifest, whose path is
/// returned, and removes older ones.
pub fn finish(model: &Model, dir: &Path, what: &Save, files: Vec<DataFile>) -> Result<PathBuf> {
    let plan = model.plan();
    let path = path_of(dir, what.step, MANIFEST);
    let mut positions = what.positions.clone();
    positions::add_positions(model, &mut positions);
    let manifest = Manifest {
        step: what.step,
        graph: plan.name.clone(),
        graph_hash: hex(&plan.graph_hash),
        version: env!("CARGO_PKG_VERSION").into(),
        time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        positions,
        run: what.run.clone(),
        files,
    };
    replace_with(&path, Links::Replace, |out| out.write_all(manifest.text().as_bytes()))?;
    remove_old(dir, what);
    Ok(path)
}

struct Hashed<'a> {
    out: &'a mut dyn Write,
    hasher: &'a mut Hasher,
    bytes: &'a mut u64,
}

impl Write for Hashed<'_> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(buf)?;
        self.hasher.update(&buf[..n]);
        *self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Removes what is no longer needed. Failing to is no reason to stop a run: it
/// is tried again at the next save.
///
/// Only checkpoints that could be used count as kept: of this step or an earlier
/// one, with a sound manifest and data of the right length. Later ones are left
/// alone: they are what a resumed run fell back from.
fn remove_old(dir: &Path, what: &Save) {
    let Ok(listing) = list(dir) else { return };
    let mut kept = 0;
    for (step, path) in listing.checkpoints.iter().rev().filter(|c| c.0 <= what.step) {
        if kept >= what.keep.max(1) {
            // The manifest first: without it the data is no checkpoint.
            if std::fs::remove_file(path).is_ok() {
                for (_, data) in listing.data.iter().filter(|d| d.0 == *step) {
                    let _ = std::fs::remove_file(data);
                }
            }
        } else if Manifest::read(path).is_ok_and(|m| m.has_its_files(path)) {
            kept += 1;
        }
    }
    for (_, path) in listing.unfinished.iter().filter(|c| c.0 < what.step) {
        let _ = std::fs::remove_file(path);
    }
    for path in &listing.temporary {
        let _ = std::fs::remove_file(path);
    }
}
