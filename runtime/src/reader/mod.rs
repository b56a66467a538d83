//! Readers: records from data files, one after the other.
//!
//! | format | a record is | files |
//! |---|---|---|
//! | `npy`, `idx` | a row of each array | one path for each part |
//! | `npz` | a row of the arrays `keys` names | archives, one after the other |
//! | `csv` | a line | one after the other |
//! | `tfrecord` | the bytes of a record, or features of a `tf.train.Example` | one after the other |
//! | `files` | a file | all that match |
//!
//! A path may be a file, a folder (all files in it) or a pattern; what matches
//! is gone through in the order of the names.
//!
//! Invariants
//! - A reader opens nothing before its first record is asked for.
//! - Malformed files are errors with the file and the place in it; no size in a
//!   file is trusted before the bytes are there.
//! - The position is (epoch, record); from it the same records follow.

mod csv;
mod example;
mod files;
mod glob;
mod idx;
mod rows;
mod tfrecord;

use crate::error::{Error, Result};
use std::path::PathBuf;
use tfc_abi::plan::{Format, Part, ReaderInfo};

/// A reader and where it stands.
pub struct Reader {
    name: String,
    info: ReaderInfo,
    parts: Vec<Part>,
    source: Option<Box<dyn Source>>,
    epoch: u64,
    /// Records of this epoch already read.
    record: u64,
}

/// The records of one epoch.
trait Source: Send {
    /// Fills in the parts of the next record; false after the last one.
    fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool>;
}

impl Reader {
    pub fn new(name: &str, info: &ReaderInfo, parts: &[Part]) -> Reader {
        Reader {
            name: name.to_owned(),
            info: info.clone(),
            parts: parts.to_vec(),
            source: None,
            epoch: 0,
            record: 0,
        }
    }

    /// Fills in the parts of the next record; false when all epochs are over.
    pub fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool> {
        loop {
            if self.info.epochs != 0 && self.epoch >= self.info.epochs {
                return Ok(false);
            }
            let mut source = match self.source.take() {
                Some(source) => source,
                None => self.open()?,
            };
            if source.next(parts)? {
                self.source = Some(source);
                self.record += 1;
                return Ok(true);
            }
            if self.record == 0 {
                // Going on would never end.
                return Ok(false);
            }
            self.epoch += 1;
            self.record = 0;
        }
    }

    /// Epoch and record.
    pub fn position(&self) -> Vec<i64> {
        vec![self.epoch as i64, self.record as i64]
    }

    /// Back to the first record of the first epoch.
    pub fn rewind(&mut self) {
        self.source = None;
        (self.epoch, self.record) = (0, 0);
    }

    /// To a position of [`Reader::position`].
    pub fn seek(&mut self, epoch: u64, record: u64) -> Result<()> {
        self.rewind();
        self.epoch = epoch;
        let mut scratch: Vec<Vec<u8>> =
            self.parts.iter().map(|p| vec![0; p.bytes().unwrap_or(0)]).collect();
        while self.record < record {
            let mut parts: Vec<&mut [u8]> = scratch.iter_mut().map(Vec::as_mut_slice).collect();
            if !self.next(&mut parts)? || self.epoch != epoch {
                return Err(Error::data(
                    "E0568",
                    format!("the reader `{}` has no record {record} to go on from", self.name),
                )
                .note("its files have fewer records than when the position was saved"));
            }
        }
        Ok(())
    }

    /// Reads other files from now on, from the start.
    pub fn set_paths(&mut self, paths: Vec<String>) -> Result<()> {
        if paths.is_empty() || self.info.format.path_per_part() && paths.len() != self.parts.len() {
            return Err(Error::usage(
                "E0570",
                format!(
                    "the reader `{}` has {} parts with a path each, but {} were given",
                    self.name,
                    self.parts.len(),
                    paths.len()
                ),
            ));
        }
        self.info.paths = paths;
        self.rewind();
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn Source>> {
        let info = &self.info;
        let about = |e: Error| e.note(format!("in the reader `{}`", self.name));
        let one = || -> Result<Vec<PathBuf>> {
            let mut all = vec![];
            for path in &info.paths {
                all.extend(glob::expand(path).map_err(about)?);
            }
            Ok(all)
        };
        Ok(match info.format {
            Format::Csv => Box::new(csv::Csv::new(one()?, &self.parts, info.skip)),
            Format::TfRecord => Box::new(tfrecord::TfRecords::new(one()?, &self.parts, &info.keys)),
            Format::Files => Box::new(files::Files::new(one()?, &self.parts)?),
            Format::Npz => {
                let files = one()?;
                let columns = info.keys.iter().map(|k| (files.clone(), Some(k.clone()))).collect();
                Box::new(rows::Rows::new(info.format, columns, &self.parts))
            }
            Format::Npy | Format::Idx => {
                let columns = info
                    .paths
                    .iter()
                    .map(|p| Ok((glob::expand(p).map_err(about)?, None)))
                    .collect::<Result<Vec<_>>>()?;
                Box::new(rows::Rows::new(info.format, columns, &self.parts))
            }
        })
    }
}
