//! Rows of results on their way to a file.
//!
//! A run in batches gives the rows of a result a few at a time, and all of them
//! may be more than memory holds. They go to a file: beside the one that `--out`
//! names, or in the checkpoint directory, from where a resumed run goes on with
//! them.

use crate::error::{Error, Result};
use crate::files::{Links, Staged};
use crate::io::{cannot_read, cannot_write};
use crate::tensor::{TensorBuf, byte_len};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tfc_abi::DType;

pub(super) struct Rows {
    place: Spool,
    out: BufWriter<File>,
    pub(super) dtype: DType,
    /// The first size is the number of rows so far; empty before the first ones.
    pub(super) shape: Vec<usize>,
}

enum Spool {
    /// Gone when the run ends, however it ends.
    Temporary(Staged),
    /// Stays until the result is written.
    Kept(PathBuf),
}

impl Rows {
    /// Rows for the file `target`.
    pub(super) fn beside(target: &Path, dtype: DType) -> Result<Rows> {
        let staged = Staged::new(target, Links::Refuse)?;
        let file = staged.file().try_clone().map_err(|e| cannot_write(target, &e))?;
        let out = BufWriter::with_capacity(1 << 16, file);
        Ok(Rows { place: Spool::Temporary(staged), out, dtype, shape: vec![] })
    }

    /// Rows of a run with checkpoints; `shape` are those that an earlier part of
    /// the run left there. None if they are not there.
    pub(super) fn kept(path: &Path, dtype: DType, shape: &[usize]) -> Result<Option<Rows>> {
        // A link that somebody put there is not followed.
        let here = std::fs::symlink_metadata(path).ok().filter(|m| m.is_file());
        let have = here.as_ref().map_or(0, |m| m.len());
        let need = if shape.is_empty() { Some(0) } else { byte_len(dtype, shape) };
        let Some(need) = need.map(|n| n as u64).filter(|n| *n <= have) else { return Ok(None) };
        let wrong = |e: std::io::Error| cannot_write(path, &e);
        if here.is_none() {
            // What is there now, if anything, is no file of ours.
            let _ = std::fs::remove_file(path);
        }
        let mut options = OpenOptions::new();
        options.write(true);
        if here.is_none() {
            options.create_new(true);
        }
        let mut file = options.open(path).map_err(wrong)?;
        // What came after the checkpoint comes again.
        file.set_len(need).map_err(wrong)?;
        file.seek(SeekFrom::End(0)).map_err(wrong)?;
        let out = BufWriter::with_capacity(1 << 16, file);
        let place = Spool::Kept(path.to_path_buf());
        Ok(Some(Rows { place, out, dtype, shape: shape.to_vec() }))
    }

    pub(super) fn path(&self) -> &Path {
        match &self.place {
            Spool::Temporary(staged) => staged.path(),
            Spool::Kept(path) => path,
        }
    }

    pub(super) fn add(&mut self, t: &TensorBuf) -> Result<()> {
        if self.shape.is_empty() {
            self.shape = t.shape.clone();
            self.shape[0] = 0;
        }
        if t.shape.get(1..) != self.shape.get(1..) {
            return Err(Error::data("E0523", "the rows of two batches have different shapes")
                .note(format!(
                    "one has rows of {:?}, the next of {:?}",
                    &self.shape[1..],
                    t.shape
                )));
        }
        self.out.write_all(t.bytes()).map_err(|e| cannot_write(self.path(), &e))?;
        self.shape[0] += t.shape[0];
        Ok(())
    }

    /// Everything so far is in the file, and stays there.
    pub(super) fn sync(&mut self) -> Result<()> {
        let done = self.out.flush().and_then(|()| self.out.get_ref().sync_data());
        done.map_err(|e| cannot_write(self.path(), &e))
    }

    /// The rows, to be read.
    pub(super) fn file(&mut self) -> Result<File> {
        self.out.flush().map_err(|e| cannot_write(self.path(), &e))?;
        File::open(self.path()).map_err(|e| cannot_read(self.path(), &e))
    }

    /// The result is written: the rows are not needed any more.
    pub(super) fn done(self) {
        if let Spool::Kept(path) = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }
}
