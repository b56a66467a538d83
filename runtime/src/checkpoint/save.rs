//! Writing a checkpoint, and removing old ones.

use super::{DATA, MANIFEST, Manifest, list, path_of, positions};
use crate::error::Result;
use crate::files::{Links, replace_with, sync_dir};
use crate::hash::{Hasher, hex};
use crate::io::{cannot_write, safetensors};
use crate::model::Model;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// One at a time: the two files of a checkpoint are of one save.
static SAVING: Mutex<()> = Mutex::new(());

/// Writes a checkpoint; returns its manifest's path. Variables are as some whole
/// number of calls left them: nothing writes them meanwhile.
pub fn save(model: &Model, dir: &Path, what: &Save) -> Result<PathBuf> {
    let _saving = SAVING.lock().unwrap_or_else(PoisonError::into_inner);
    if !dir.is_dir() {
        let made = std::fs::create_dir_all(dir).and_then(|()| sync_dir(dir));
        made.map_err(|e| cannot_write(dir, &e))?;
    }
    let plan = model.plan();
    let data = path_of(dir, what.step, DATA);
    let path = path_of(dir, what.step, MANIFEST);
    let step = what.step.to_string();
    let mut hasher = Hasher::default();
    let mut bytes = 0;
    model.with_vars_to_save(|vars| {
        replace_with(&data, Links::Replace, |out| {
            let mut out = Hashed { out, hasher: &mut hasher, bytes: &mut bytes };
            let metadata = safetensors::metadata_of(plan);
            let mut metadata: Vec<(&str, &str)> =
                metadata.iter().map(|(k, v)| (*k, v.as_str())).collect();
            metadata.push(("step", &step));
            safetensors::write(&mut out, vars, &metadata)
        })
    })?;
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
        file: data.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        bytes,
        hash: hex(&hasher.finish()),
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
                let _ = std::fs::remove_file(path_of(dir, *step, DATA));
            }
        } else if Manifest::read(path)
            .is_ok_and(|m| std::fs::metadata(m.data(path)).is_ok_and(|meta| meta.len() == m.bytes))
        {
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
