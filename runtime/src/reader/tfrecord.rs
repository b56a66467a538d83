//! TFRecord files: a length, its checksum, the bytes, their checksum, and again.
//!
//! Checksums are CRC-32C, masked. Without keys a record's bytes are its one
//! part; with keys they are a `tf.train.Example`, and parts are features of it.

use super::{Source, example};
use crate::error::{Error, Result};
use crate::io::{cannot_read, crc};
use crate::sandbox::Sandbox;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use tfc_abi::plan::Part;

/// Bytes read before a longer record is believed.
const CHUNK: usize = 1 << 20;

pub struct TfRecords {
    files: std::vec::IntoIter<PathBuf>,
    sandbox: Sandbox,
    parts: Vec<Part>,
    keys: Vec<String>,
    open: Option<(PathBuf, BufReader<File>)>,
    /// Where the record at hand starts in its file.
    offset: u64,
    next_offset: u64,
    /// Of the file.
    size: u64,
    record: Vec<u8>,
}

impl TfRecords {
    pub fn new(
        files: Vec<PathBuf>,
        parts: &[Part],
        keys: &[String],
        sandbox: &Sandbox,
    ) -> TfRecords {
        TfRecords {
            files: files.into_iter(),
            sandbox: sandbox.clone(),
            parts: parts.to_vec(),
            keys: keys.to_vec(),
            open: None,
            offset: 0,
            next_offset: 0,
            size: 0,
            record: vec![],
        }
    }

    fn wrong(&self, why: &str) -> Error {
        let path = self.open.as_ref().map_or_else(String::new, |(p, _)| p.display().to_string());
        Error::data("E0566", format!("`{path}` is not a valid TFRecord file"))
            .note(format!("in the record at byte {}: {why}", self.offset))
    }

    /// Finds the next record; its length, or none after the last file.
    fn head(&mut self) -> Result<Option<usize>> {
        loop {
            if self.open.is_none() {
                let Some(path) = self.files.next() else { return Ok(None) };
                let file = self.sandbox.open_stream(&path)?;
                self.size = file.metadata().map_err(|e| cannot_read(&path, &e))?.len();
                self.open = Some((path, BufReader::with_capacity(1 << 16, file)));
                self.next_offset = 0;
            }
            self.offset = self.next_offset;
            let mut head = [0; 12];
            match self.fill(&mut head)? {
                0 => {
                    self.open = None;
                    continue;
                }
                12 => {}
                _ => return Err(self.wrong("the file ends in its length")),
            }
            let length = u64::from_le_bytes(head[..8].try_into().unwrap_or_default());
            let sum = u32::from_le_bytes(head[8..].try_into().unwrap_or_default());
            if crc::masked_crc32c(&head[..8]) != sum {
                return Err(self.wrong("the checksum of its length is wrong"));
            }
            let length = usize::try_from(length).ok().filter(|n| *n < usize::MAX - 16);
            let Some(length) = length else {
                return Err(self.wrong("it is too long"));
            };
            self.next_offset = self.offset.saturating_add(16 + length as u64);
            return Ok(Some(length));
        }
    }

    /// Reads the next record; false after the last file.
    fn advance(&mut self) -> Result<bool> {
        let Some(length) = self.head()? else { return Ok(false) };
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        while record.len() < length {
            let from = record.len();
            record.resize(length.min(from + CHUNK), 0);
            let wanted = record.len() - from;
            if self.fill(&mut record[from..])? < wanted {
                return Err(self.wrong("the file ends in its data"));
            }
        }
        let mut tail = [0; 4];
        if self.fill(&mut tail)? < 4 {
            return Err(self.wrong("the file ends before its checksum"));
        }
        self.record = record;
        if crc::masked_crc32c(&self.record) != u32::from_le_bytes(tail) {
            return Err(self.wrong("the checksum of its data is wrong"));
        }
        Ok(true)
    }

    /// Goes past the data of the record just found.
    fn pass(&mut self, length: usize) -> Result<()> {
        if self.next_offset > self.size {
            return Err(self.wrong("the file ends in its data"));
        }
        let Some((path, file)) = &mut self.open else { return Ok(()) };
        // No longer than the file.
        file.seek_relative(length as i64 + 4).map_err(|e| cannot_read(path, &e))
    }

    /// Reads as many bytes as there are, up to the whole.
    fn fill(&mut self, out: &mut [u8]) -> Result<usize> {
        let Some((path, file)) = &mut self.open else { return Ok(0) };
        let mut done = 0;
        while done < out.len() {
            match file.read(&mut out[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(cannot_read(path, &e)),
            }
        }
        Ok(done)
    }
}

impl Source for TfRecords {
    fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool> {
        if !self.advance()? {
            return Ok(false);
        }
        if let ([], [out]) = (&self.keys[..], &mut *parts) {
            if out.len() != self.record.len() {
                return Err(self.wrong(&format!(
                    "it has {} bytes, but {} are wanted",
                    self.record.len(),
                    out.len()
                )));
            }
            out.copy_from_slice(&self.record);
            return Ok(true);
        }
        for ((part, key), out) in self.parts.iter().zip(&self.keys).zip(parts) {
            if let Err(why) = example::feature(&self.record, key, part, out) {
                return Err(self.wrong(&why));
            }
        }
        Ok(true)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        for done in 0..count {
            let Some(length) = self.head()? else { return Ok(done) };
            self.pass(length)?;
        }
        Ok(count)
    }
}
