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
mod gunzip;
mod idx;
mod rows;
mod tfrecord;

use crate::error::{Error, Result};
use crate::hash::{Hasher, hex};
use crate::io::cannot_read;
use crate::sandbox::Sandbox;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use tfc_abi::plan::{Format, Part, ReaderInfo};

/// A reader and where it stands.
pub struct Reader {
    name: String,
    info: ReaderInfo,
    parts: Vec<Part>,
    /// Where the paths may lead.
    sandbox: Sandbox,
    source: Option<Box<dyn Source>>,
    epoch: u64,
    /// Records of this epoch already read.
    record: u64,
}

/// The records of one epoch.
trait Source: Send {
    /// Fills in the parts of the next record; false after the last one.
    fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool>;

    /// Leaves out records without a look at what is in them; gives how many there
    /// were.
    fn skip(&mut self, count: u64) -> Result<u64>;
}

impl Reader {
    pub fn new(name: &str, info: &ReaderInfo, parts: &[Part], sandbox: &Sandbox) -> Reader {
        Reader {
            name: name.to_owned(),
            info: info.clone(),
            parts: parts.to_vec(),
            sandbox: sandbox.clone(),
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
        if record > 0 {
            let mut source = self.open()?;
            if source.skip(record)? < record {
                return Err(self.absent(record));
            }
            self.source = Some(source);
        }
        (self.epoch, self.record) = (epoch, record);
        Ok(())
    }

    /// To where so many records have been read, over all epochs.
    pub fn go_to(&mut self, records: u64) -> Result<()> {
        self.rewind();
        let mut source = self.open()?;
        let here = source.skip(records)?;
        if here == records {
            self.source = Some(source);
            self.record = records;
            return Ok(());
        }
        if here == 0 || self.info.epochs != 0 && records > here.saturating_mul(self.info.epochs) {
            return Err(self.absent(records));
        }
        self.seek(records / here, records % here)
    }

    /// Leaves out records, over the ends of epochs.
    pub fn advance(&mut self, mut records: u64) -> Result<()> {
        while records > 0 {
            if self.info.epochs != 0 && self.epoch >= self.info.epochs {
                return Err(self.absent(records));
            }
            let mut source = match self.source.take() {
                Some(source) => source,
                None => self.open()?,
            };
            let here = source.skip(records)?;
            self.record += here;
            records -= here;
            if records == 0 {
                self.source = Some(source);
                break;
            }
            let whole = self.record;
            if whole == 0 {
                return Err(self.absent(records));
            }
            // Epochs are alike.
            self.epoch += 1 + records / whole;
            self.record = 0;
            records %= whole;
            if self.info.epochs != 0 && self.epoch > self.info.epochs {
                return Err(self.absent(records));
            }
        }
        Ok(())
    }

    /// How many records there are in all epochs, as far as `wanted`. Nothing is
    /// left out by it.
    pub fn count(&mut self, wanted: u64) -> Result<u64> {
        let here = self.open()?.skip(wanted)?;
        Ok(match self.info.epochs {
            _ if here == wanted || here == 0 => here,
            0 => wanted,
            epochs => here.saturating_mul(epochs).min(wanted),
        })
    }

    fn absent(&self, record: u64) -> Error {
        let text = format!("the reader `{}` has no record {record} to go on from", self.name);
        Error::data("E0568", text)
            .note("its files have fewer records than when the position was saved")
    }

    /// The number and sizes of the files, and a hash of the first and last bytes of
    /// some of them.
    pub fn fingerprint(&self) -> Result<String> {
        const SOME: usize = 16;
        const BLOCK: u64 = 1 << 16;
        let mut files = vec![];
        for path in &self.info.paths {
            files.extend(glob::expand(path, &self.sandbox)?);
        }
        let mut hasher = Hasher::default();
        let mut total = 0;
        for (i, path) in files.iter().enumerate() {
            let wrong = |e: std::io::Error| cannot_read(path, &e);
            let meta = std::fs::metadata(path).map_err(wrong)?;
            hasher.update(&meta.len().to_le_bytes());
            total += meta.len();
            let looked_at = i.is_multiple_of(files.len().div_ceil(SOME));
            // A pipe gives its bytes once.
            if !looked_at || !meta.is_file() {
                continue;
            }
            let mut file = self.sandbox.open(path)?;
            let mut bytes = vec![];
            Read::by_ref(&mut file).take(BLOCK).read_to_end(&mut bytes).map_err(wrong)?;
            let end = meta.len().saturating_sub(BLOCK);
            file.seek(SeekFrom::Start(end)).map_err(wrong)?;
            file.take(BLOCK).read_to_end(&mut bytes).map_err(wrong)?;
            hasher.update(&bytes);
        }
        let count = files.len();
        let what = if count == 1 { "file" } else { "files" };
        Ok(format!("{count} {what} of {total} bytes {}", hex(&hasher.finish()[..16])))
    }

    /// Reads other files from now on, from the start. They are the caller's, not the
    /// graph's, and may lie anywhere.
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
        self.sandbox = Sandbox::default();
        self.rewind();
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn Source>> {
        let (info, sandbox) = (&self.info, &self.sandbox);
        let about = |e: Error| e.note(format!("in the reader `{}`", self.name));
        let one = || -> Result<Vec<PathBuf>> {
            let mut all = vec![];
            for path in &info.paths {
                all.extend(glob::expand(path, sandbox).map_err(about)?);
            }
            Ok(all)
        };
        Ok(match info.format {
            Format::Csv => Box::new(csv::Csv::new(one()?, &self.parts, info.skip, sandbox)),
            Format::TfRecord => {
                Box::new(tfrecord::TfRecords::new(one()?, &self.parts, &info.keys, sandbox))
            }
            Format::Files => Box::new(files::Files::new(one()?, &self.parts, sandbox)?),
            Format::Npz => {
                let files = one()?;
                let columns = info.keys.iter().map(|k| (files.clone(), Some(k.clone()))).collect();
                Box::new(rows::Rows::new(info.format, columns, &self.parts, sandbox))
            }
            Format::Npy | Format::Idx => {
                let columns = info
                    .paths
                    .iter()
                    .map(|p| Ok((glob::expand(p, sandbox).map_err(about)?, None)))
                    .collect::<Result<Vec<_>>>()?;
                Box::new(rows::Rows::new(info.format, columns, &self.parts, sandbox))
            }
        })
    }
}
