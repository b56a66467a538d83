//! Feeds that stay in their files: a batch is read when its turn comes.
//!
//! Only what lies in a file byte for byte as it does in memory can stay there. What is
//! compressed, in column-major order or of another byte order is read whole, as is what
//! is small.

use super::{ArrayRows, cannot_read, feed, literal, rows_in, split_member};
use crate::error::Result;
use crate::files;
use crate::tensor::{TensorBuf, byte_len, type_text};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tfc_abi::DType;

/// Bytes that are not worth leaving in a file.
const SMALL: usize = 1 << 26;

/// The value of a feed.
pub enum Data {
    Whole(TensorBuf),
    Table(Table),
}

/// An array in a file.
pub struct Table {
    path: PathBuf,
    file: File,
    /// Of its first byte.
    start: u64,
    dtype: DType,
    shape: Vec<usize>,
}

/// The value of a feed as given on a command line; a large array stays in its file.
pub fn lazy_feed(name: &str, dtype: DType, text: &str) -> Result<Data> {
    // Whatever stands in the way, reading it whole tells.
    match Table::of(name, dtype, text) {
        Some(table) => Ok(Data::Table(table)),
        None => feed(name, dtype, text).map(Data::Whole),
    }
}

impl Table {
    fn of(name: &str, dtype: DType, text: &str) -> Option<Table> {
        if literal::looks_like(text) {
            return None;
        }
        let (path, member) = split_member(text);
        // Not a pipe, which gives its bytes once.
        let file = files::open(&path).ok()?;
        let large = file.metadata().ok()?.len() > SMALL as u64;
        if !large {
            return None;
        }
        let (rows, _) = rows_in(&path, file, member, name, dtype).ok()?;
        Table::of_rows(&path, rows).filter(|t| t.len() > SMALL)
    }

    pub(super) fn of_rows(path: &Path, rows: ArrayRows) -> Option<Table> {
        let (dtype, shape) = (rows.dtype, rows.shape.clone());
        byte_len(dtype, &shape)?;
        let (file, start) = rows.into_file()?;
        Some(Table { path: path.to_path_buf(), file, start, dtype, shape })
    }

    /// Bytes.
    fn len(&self) -> usize {
        byte_len(self.dtype, &self.shape).unwrap_or(0)
    }

    fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, out, self.start + at as u64).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                cannot_read(&self.path, &io::Error::other("it became shorter while it was read"))
            }
            _ => cannot_read(&self.path, &e),
        })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(out)
}

impl Data {
    pub fn dtype(&self) -> DType {
        match self {
            Data::Whole(t) => t.dtype,
            Data::Table(t) => t.dtype,
        }
    }

    pub fn shape(&self) -> &[usize] {
        match self {
            Data::Whole(t) => &t.shape,
            Data::Table(t) => &t.shape,
        }
    }

    pub fn type_text(&self) -> String {
        type_text(self.dtype(), self.shape())
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match self {
            Data::Whole(t) => t.bytes().len(),
            Data::Table(t) => t.len(),
        }
    }

    /// Bytes from `at` on: lent, or read into `room`.
    pub fn bytes<'a>(&'a self, at: usize, len: usize, room: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        match self {
            Data::Whole(t) => Ok(&t.bytes()[at..at + len]),
            Data::Table(t) => {
                room.resize(len, 0);
                t.read(at, room)?;
                Ok(room)
            }
        }
    }

    /// Adds bytes from `at` on.
    pub fn append(&self, at: usize, len: usize, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Data::Whole(t) => out.extend_from_slice(&t.bytes()[at..at + len]),
            Data::Table(t) => {
                let before = out.len();
                out.resize(before + len, 0);
                t.read(at, &mut out[before..])?;
            }
        }
        Ok(())
    }

    /// All of it in memory.
    pub fn whole(self) -> Result<TensorBuf> {
        match self {
            Data::Whole(t) => Ok(t),
            Data::Table(t) => {
                let mut out = TensorBuf::zeros(t.dtype, &t.shape)?;
                t.read(0, out.bytes_mut())?;
                Ok(out)
            }
        }
    }
}
