//! Tensors in files: in one, or in the files of a checkpoint that several processes
//! wrote, each its rows.
//!
//! A file that has some rows of a tensor says which in its metadata: `part:NAME` is the
//! number of the first, and of how many.

use super::{MANIFEST, Manifest, manifest_of};
use crate::error::{Error, Result};
use crate::io::safetensors::Archive;
use crate::io::{Fault, Format, cannot_read};
use crate::tensor::{TensorBuf, byte_len};
use std::fs::File;
use std::path::{Path, PathBuf};
use tfc_abi::DType;

/// How metadata begin that say which rows a file has.
pub(super) const PART: &str = "part:";

#[derive(Debug)]
pub struct Source {
    files: Vec<(PathBuf, Archive)>,
    pub tensors: Vec<Stored>,
    pub metadata: Vec<(String, String)>,
}

/// A tensor of a source. The dtype is `None` when we have no such type.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub name: String,
    pub dtype: Option<DType>,
    pub dtype_text: String,
    pub shape: Vec<usize>,
    /// In the order of the rows.
    pieces: Vec<Piece>,
}

/// Neighbouring rows, in one file.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    file: usize,
    at: usize,
    first: usize,
    rows: usize,
}

impl Source {
    /// Opens a file of tensors, or all files of a checkpoint if it is one's manifest or
    /// part.
    pub fn open(path: &Path) -> Result<Source> {
        let manifest = match path.extension().is_some_and(|e| e == MANIFEST) {
            true => Some(path.to_path_buf()),
            false => manifest_of(path),
        };
        let paths = match manifest {
            Some(manifest) => Manifest::read(&manifest)?.paths(&manifest),
            None => vec![path.to_path_buf()],
        };
        let mut out = Source { files: vec![], tensors: vec![], metadata: vec![] };
        for path in paths {
            out.add(path)?;
        }
        for t in &mut out.tensors {
            t.pieces.sort_by_key(|p| p.first);
            let mut next = 0;
            let joined = t.pieces.iter().all(|p| {
                let fits = p.first == next;
                next = p.first + p.rows;
                fits
            });
            if !joined || next != t.shape.first().copied().unwrap_or(1) {
                let text = format!("`{}` has only some rows of `{}`", path.display(), t.name);
                return Err(Error::data("E0580", text)
                    .note("its other files are not there, or not of the same checkpoint"));
            }
        }
        Ok(out)
    }

    fn add(&mut self, path: PathBuf) -> Result<()> {
        let file = File::open(&path).map_err(|e| cannot_read(&path, &e))?;
        let archive = Archive::open(file).map_err(|f| f.about(&path, Format::Safetensors))?;
        let number = self.files.len();
        for (at, t) in archive.tensors.iter().enumerate() {
            let part = archive.metadata.iter().find(|(k, _)| k.strip_prefix(PART) == Some(&t.name));
            let rows = t.shape.first().copied().unwrap_or(1);
            let (first, total) = match part {
                None => (0, rows),
                Some((_, text)) => {
                    let numbers = text.split_once('/');
                    let numbers =
                        numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                    numbers
                        .filter(|(first, total): &(usize, usize)| {
                            first.checked_add(rows).is_some_and(|end| end <= *total)
                        })
                        .ok_or_else(|| {
                            let why = format!("it does not say which rows of `{}` it has", t.name);
                            Fault::Malformed(why).about(&path, Format::Safetensors)
                        })?
                }
            };
            let mut shape = t.shape.clone();
            if let Some(rows) = shape.first_mut() {
                *rows = total;
            }
            let piece = Piece { file: number, at, first, rows };
            match self.tensors.iter_mut().find(|s| s.name == t.name) {
                Some(known) if known.dtype_text == t.dtype_text && known.shape == shape => {
                    known.pieces.push(piece);
                }
                Some(_) => {
                    let why = format!("another file has another type for `{}`", t.name);
                    return Err(Fault::Malformed(why).about(&path, Format::Safetensors));
                }
                None => self.tensors.push(Stored {
                    name: t.name.clone(),
                    dtype: t.dtype,
                    dtype_text: t.dtype_text.clone(),
                    shape,
                    pieces: vec![piece],
                }),
            }
        }
        if self.metadata.is_empty() {
            self.metadata = archive.metadata.clone();
        }
        self.files.push((path, archive));
        Ok(())
    }

    /// All of a tensor.
    pub fn tensor(&mut self, at: usize) -> Result<TensorBuf> {
        let t = self.tensors.get(at).ok_or_else(|| Error::bug("no such tensor"))?;
        let Some(dtype) = t.dtype else {
            let what = format!("the elements of `{}` are {}", t.name, t.dtype_text);
            let path = self.files.first().map_or(Path::new(""), |(p, _)| p);
            return Err(Fault::Unsupported(what).about(path, Format::Safetensors));
        };
        let mut out = TensorBuf::zeros(dtype, &t.shape)?;
        self.read_into(at, 0, out.bytes_mut())?;
        Ok(out)
    }

    /// Reads bytes of a tensor whose elements have a type of ours, from byte `from` on.
    /// They begin and end with whole elements.
    pub fn read_into(&mut self, at: usize, from: usize, out: &mut [u8]) -> Result<()> {
        let Some(t) = self.tensors.get(at) else { return Err(Error::bug("no such tensor")) };
        let width = t.dtype.and_then(|d| byte_len(d, t.shape.get(1..).unwrap_or(&[])));
        let Some(width) = width else { return Err(Error::bug("a tensor of an unknown type")) };
        let (mut from, mut out) = (from, out);
        for p in &t.pieces {
            let (begin, end) = (p.first * width, (p.first + p.rows) * width);
            if from >= end || out.is_empty() || begin > from {
                continue;
            }
            let (now, rest) = out.split_at_mut((end - from).min(out.len()));
            let (path, archive) = &mut self.files[p.file];
            archive
                .read_at(p.at, from - begin, now)
                .map_err(|f| f.about(path, Format::Safetensors))?;
            from += now.len();
            out = rest;
        }
        match out.is_empty() {
            true => Ok(()),
            false => Err(Error::bug("a tensor is shorter than it says")),
        }
    }
}
