//! IDX files, the format of the MNIST data: a type, the sizes, big-endian
//! elements. Files compressed by gzip are read as they are.
//!
//! Rows are read one at a time. A file is checked when it is opened, a compressed
//! one by going through it once, so that no row of a damaged file is used.

use super::csv::push_int;
use super::gunzip::Gunzip;
use crate::error::{Error, Result};
use crate::io::cannot_read;
use crate::sandbox::Sandbox;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use tfc_abi::DType;

/// A file and the row it stands at.
pub struct IdxFile {
    path: PathBuf,
    input: Input,
    header: Header,
    want: DType,
    /// Sizes; the first is the number of rows.
    pub shape: Vec<usize>,
    row: usize,
    bytes: Vec<u8>,
}

enum Input {
    Plain(BufReader<File>),
    Packed(Gunzip),
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Input::Plain(file) => file.read(out),
            Input::Packed(file) => file.read(out),
        }
    }
}

#[derive(Clone, Copy)]
struct Header {
    /// Of the file's type.
    code: u8,
    name: &'static str,
    size: usize,
}

fn wrong(path: &Path, at: usize, why: String) -> Error {
    Error::data("E0565", format!("`{}` is not a valid IDX file", path.display()))
        .note(format!("at byte {at}: {why}"))
}

/// What reading ran into: the file system, or the compressed data.
fn cannot(path: &Path, e: &std::io::Error) -> Error {
    match e.raw_os_error() {
        Some(_) => cannot_read(path, e),
        None => Error::data("E0565", format!("`{}` does not decompress", path.display()))
            .note(e.to_string()),
    }
}

fn open(path: &Path, sandbox: &Sandbox) -> Result<Input> {
    let mut file = sandbox.open(path)?;
    let mut head = vec![];
    let read = Read::by_ref(&mut file).take(2).read_to_end(&mut head);
    read.and_then(|_| file.seek(SeekFrom::Start(0))).map_err(|e| cannot_read(path, &e))?;
    let file = BufReader::with_capacity(1 << 16, file);
    match head[..] {
        [0x1f, 0x8b] => Gunzip::new(file).map(Input::Packed).map_err(|e| cannot(path, &e)),
        _ => Ok(Input::Plain(file)),
    }
}

/// Reads as much as there is.
fn fill(input: &mut Input, path: &Path, out: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match input.read(&mut out[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(cannot(path, &e)),
        }
    }
    Ok(done)
}

impl IdxFile {
    /// Opens a file. Integers are widened to `want` where that loses nothing.
    pub fn open(path: &Path, want: DType, sandbox: &Sandbox) -> Result<IdxFile> {
        let mut input = open(path, sandbox)?;
        let (header, shape, start) = header(&mut input, path)?;
        let len = shape.iter().try_fold(header.size, |n: usize, d| n.checked_mul(*d));
        let follow = match &mut input {
            Input::Plain(file) => {
                let size = file.get_ref().metadata().map_err(|e| cannot_read(path, &e))?.len();
                size.saturating_sub(start as u64)
            }
            packed => {
                let all = std::io::copy(packed, &mut std::io::sink());
                all.map_err(|e| cannot(path, &e))?
            }
        };
        if len.map(|n| n as u64) != Some(follow) {
            let why = format!("{follow} bytes follow, but the sizes {shape:?} say otherwise");
            return Err(wrong(path, start, why));
        }
        if !holds(header.name, want) {
            let why = format!("it holds {}, which is not read as {want}", header.name);
            return Err(wrong(path, 2, why));
        }
        if let Input::Packed(_) = input {
            input = open(path, sandbox)?;
            self::header(&mut input, path)?;
        }
        let path = path.to_path_buf();
        Ok(IdxFile { path, input, header, want, shape, row: 0, bytes: vec![] })
    }

    /// Rows that are left.
    pub fn left(&self) -> usize {
        self.shape.first().map_or(0, |n| n - self.row)
    }

    fn row_elements(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// The elements of the next row, as `want`.
    pub fn next(&mut self, out: &mut [u8]) -> Result<()> {
        let size = self.header.size;
        self.bytes.resize(self.row_elements() * size, 0);
        let got = fill(&mut self.input, &self.path, &mut self.bytes)?;
        if got < self.bytes.len() {
            return Err(wrong(&self.path, got, "the file changed while it was read".into()));
        }
        self.row += 1;
        let mut row = Vec::with_capacity(out.len());
        for e in self.bytes.chunks_exact(size) {
            push(&mut row, self.header, self.want, e);
        }
        if row.len() == out.len() {
            out.copy_from_slice(&row);
        }
        Ok(())
    }

    /// Leaves out rows, of those that are left.
    pub fn skip(&mut self, rows: usize) -> Result<()> {
        let bytes = (rows * self.row_elements() * self.header.size) as u64;
        let skipped = match &mut self.input {
            Input::Plain(file) => file.seek_relative(bytes as i64),
            packed => std::io::copy(&mut packed.take(bytes), &mut std::io::sink()).map(|_| ()),
        };
        skipped.map_err(|e| cannot(&self.path, &e))?;
        self.row += rows;
        Ok(())
    }
}

/// The element type, the sizes, and how many bytes they took.
fn header(input: &mut Input, path: &Path) -> Result<(Header, Vec<usize>, usize)> {
    let mut at = 0;
    let mut word = |input: &mut Input| -> Result<[u8; 4]> {
        let mut b = [0; 4];
        let got = fill(input, path, &mut b)?;
        at += got;
        match got {
            4 => Ok(b),
            _ => Err(wrong(path, at, "the file ends in its header".into())),
        }
    };
    let [z0, z1, code, rank] = word(input)?;
    if [z0, z1] != [0, 0] {
        let why = format!("it starts with {z0:02x} {z1:02x}, not with two zeros");
        return Err(wrong(path, 0, why));
    }
    let (name, size) = match code {
        0x08 => ("u8", 1),
        0x09 => ("i8", 1),
        0x0b => ("i16", 2),
        0x0c => ("i32", 4),
        0x0d => ("f32", 4),
        0x0e => ("f64", 8),
        other => {
            return Err(wrong(path, 2, format!("{other:#04x} is no element type of the format")));
        }
    };
    let mut shape = vec![];
    for _ in 0..rank {
        shape.push(u32::from_be_bytes(word(input)?) as usize);
    }
    Ok((Header { code, name, size }, shape, 4 + 4 * usize::from(rank)))
}

/// Whether every value of the file's type is one of `want`.
fn holds(name: &str, want: DType) -> bool {
    match (name, want) {
        _ if want.name() == name => true,
        ("f32", DType::F64) => true,
        ("u8", d) => !matches!(d, DType::I8 | DType::Bool | DType::F16 | DType::BF16),
        ("i8", d) => matches!(d, DType::I32 | DType::I64 | DType::F32 | DType::F64),
        ("i16", d) => matches!(d, DType::I32 | DType::I64 | DType::F32 | DType::F64),
        ("i32", d) => matches!(d, DType::I64 | DType::F64),
        _ => false,
    }
}

/// Adds an element of the file.
fn push(out: &mut Vec<u8>, header: Header, want: DType, e: &[u8]) {
    if matches!(header.name, "f32" | "f64") {
        let v = match <[u8; 4]>::try_from(e) {
            Ok(b) => f64::from(f32::from_be_bytes(b)),
            Err(_) => f64::from_be_bytes(e.try_into().unwrap_or_default()),
        };
        return match want {
            DType::F32 => out.extend((v as f32).to_ne_bytes()),
            _ => out.extend(v.to_ne_bytes()),
        };
    }
    let v = match *e {
        [b] if header.code == 0x09 => i64::from(b as i8),
        [b] => i64::from(b),
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        _ => i64::from(i32::from_be_bytes(e.try_into().unwrap_or_default())),
    };
    push_int(out, want, v);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], want: DType) -> Result<(Vec<usize>, Vec<u8>)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.idx");
        std::fs::write(&path, bytes).unwrap();
        let mut file = IdxFile::open(&path, want, &Sandbox::default())?;
        let shape = file.shape.clone();
        let mut out = vec![];
        while file.left() > 0 {
            let mut row = vec![0; file.row_elements() * want.size()];
            file.next(&mut row)?;
            out.extend(row);
        }
        Ok((shape, out))
    }

    #[test]
    fn reads_and_widens_and_refuses() {
        let labels = [0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 255];
        let ints: Vec<u8> = [7i32, 0, 255].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(all(&labels, DType::I32).unwrap(), (vec![3], ints));
        let short = [0, 0, 0x0b, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xfe, 0, 5];
        let floats: Vec<u8> = [-2f32, 5.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(all(&short, DType::F32).unwrap(), (vec![1, 2], floats));
        assert!(all(&labels, DType::I8).is_err());
        for cut in 0..labels.len() {
            assert_eq!(all(&labels[..cut], DType::U8).unwrap_err().code(), "E0565", "{cut}");
        }
        let huge = [0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(all(&huge, DType::U8).is_err());
    }

    /// faults 11: a compressed file was expanded three times over in memory.
    #[test]
    fn a_compressed_file_is_not_expanded_in_memory() {
        // A hundred million zeros in a hundred thousand rows.
        let mut plain = vec![0, 0, 8, 2, 0, 1, 0x86, 0xa0, 0, 0, 3, 0xe8];
        plain.resize(12 + 100_000_000, 0);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.idx.gz");
        let mut gz = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        gz.extend(miniz_oxide::deflate::compress_to_vec(&plain, 1));
        gz.extend(crate::io::crc::crc32(&plain).to_le_bytes());
        gz.extend((plain.len() as u32).to_le_bytes());
        drop(plain);
        std::fs::write(&path, gz).unwrap();
        let mut file = IdxFile::open(&path, DType::U8, &Sandbox::default()).unwrap();
        assert_eq!(file.shape, [100_000, 1000]);
        file.skip(99_999).unwrap();
        file.next(&mut [1; 1000]).unwrap();
        assert_eq!(file.left(), 0);
        // What it holds on to is a row.
        assert!(file.bytes.capacity() <= 4096);
    }
}
