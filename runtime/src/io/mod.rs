//! Data files: what a program is fed and what it writes.
//!
//! | kind | read | written |
//! |---|---|---|
//! | `.npy` | versions 1 to 3, C and Fortran order, both byte orders | version 1 |
//! | `.npz` | stored and deflated members, zip64 | stored |
//! | `.safetensors` | yes | yes |
//! | any other, for `u8` | its bytes, as one row | |
//! | literals | `1.5`, `true`, `[[1, 2], [3, 4]]` | |
//!
//! Invariants
//! - A malformed file is an [`Error`] with a code; no byte of a file is trusted
//!   for an allocation: sizes are compared with what the file holds first.
//! - Files are written whole or not at all (`files`).
//!
//! bf16 has no NumPy descriptor of its own. It is written as `<V2`, which is what
//! `ml_dtypes` writes; `np.load(f).view(ml_dtypes.bfloat16)` reads it. `<u2` is
//! accepted for bf16 as raw bits.

mod array;
pub mod crc;
pub mod inflate;
pub mod json;
pub mod literal;
pub mod npy;
pub mod npz;
mod rows;
pub mod safetensors;
mod table;

use crate::error::{Error, ErrorCode, Result, closest, list};
use crate::files;
use crate::tensor::TensorBuf;
pub use array::{Array, Contents};
pub use rows::ArrayRows;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
pub use table::{Data, lazy_feed};
use tfc_abi::DType;

/// Why a file is refused, before its name is known.
pub type Reason<T> = std::result::Result<T, Fault>;

#[derive(Debug)]
pub enum Fault {
    /// The bytes are wrong.
    Malformed(String),
    /// Well formed, but not something we can use.
    Unsupported(String),
    Io(std::io::Error),
    /// A finished error from further down.
    Other(Error),
}

impl From<std::io::Error> for Fault {
    fn from(e: std::io::Error) -> Fault {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            Fault::Malformed("the file ends too early".into())
        } else {
            Fault::Io(e)
        }
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::Other(e)
    }
}

pub fn malformed<T>(why: impl Into<String>) -> Reason<T> {
    Err(Fault::Malformed(why.into()))
}

impl Fault {
    /// The error a user sees about this file.
    pub fn about(self, path: &Path, what: Format) -> Error {
        let name = path.display();
        match self {
            Fault::Malformed(why) => {
                Error::data(what.code(), format!("`{name}` is not a valid {} file", what.name()))
                    .note(why)
            }
            Fault::Unsupported(why) => {
                Error::data("E0519", format!("`{name}` holds data that cannot be used")).note(why)
            }
            Fault::Io(e) => cannot_read(path, &e),
            Fault::Other(e) => e.note(format!("while reading `{name}`")),
        }
    }
}

pub fn cannot_read(path: &Path, e: &std::io::Error) -> Error {
    Error::io("E0804", format!("cannot read `{}`: {}", path.display(), io_reason(e)))
}

pub fn cannot_write(path: &Path, e: &std::io::Error) -> Error {
    Error::io("E0803", format!("cannot write `{}`: {}", path.display(), io_reason(e)))
}

/// An operating system's message without its number.
pub(crate) fn io_reason(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Npy,
    Npz,
    Safetensors,
}

impl Format {
    pub const fn name(self) -> &'static str {
        match self {
            Format::Npy => ".npy",
            Format::Npz => ".npz",
            Format::Safetensors => ".safetensors",
        }
    }

    const fn code(self) -> &'static str {
        match self {
            Format::Npy => "E0511",
            Format::Npz => "E0512",
            Format::Safetensors => "E0601",
        }
    }

    pub fn of_path(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "npy" => Some(Format::Npy),
            "npz" => Some(Format::Npz),
            "safetensors" => Some(Format::Safetensors),
            _ => None,
        }
    }

    /// From the first bytes of a file.
    fn of_bytes(head: &[u8]) -> Option<Format> {
        if head.starts_with(npy::MAGIC) {
            Some(Format::Npy)
        } else if head.starts_with(b"PK") {
            Some(Format::Npz)
        } else if head.get(8) == Some(&b'{') {
            Some(Format::Safetensors)
        } else {
            None
        }
    }
}

/// The value of a feed as given on a command line: a literal, a file, or
/// `archive:member`.
pub fn feed(name: &str, dtype: DType, text: &str) -> Result<TensorBuf> {
    if literal::looks_like(text) {
        return literal::parse(name, dtype, text);
    }
    let (path, member) = split_member(text);
    // A word is more likely a slip in a number than a file without an ending.
    if member.is_none() && !text.contains(['.', '/', '\\']) && !path.exists() {
        return Err(Error::io(
            "E0804",
            format!("`{text}` is no value for feed `{name}`, and there is no file of that name"),
        )
        .help("a number is written `0.1`, a list `[1, 2, 3]`, a file with its ending: `x.npy`"));
    }
    tensor_file(&path, member, name, Some(dtype))
}

/// `data.npz:images` is member `images` of `data.npz`, unless a file of the
/// whole name exists.
fn split_member(text: &str) -> (PathBuf, Option<&str>) {
    if let Some((file, member)) = text.rsplit_once(':')
        && matches!(Format::of_path(Path::new(file)), Some(Format::Npz | Format::Safetensors))
        && !Path::new(text).exists()
    {
        return (file.into(), Some(member));
    }
    (text.into(), None)
}

/// A tensor from a file. Of an archive it is `member`, or the one called `name`,
/// or the only one.
pub fn tensor_file(
    path: &Path,
    member: Option<&str>,
    name: &str,
    want: Option<DType>,
) -> Result<TensorBuf> {
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    tensor_in(path, file, member, name, want)
}

/// As [`tensor_file`], of a file that was opened under this path.
pub fn tensor_in(
    path: &Path,
    mut file: File,
    member: Option<&str>,
    name: &str,
    want: Option<DType>,
) -> Result<TensorBuf> {
    let mut head = vec![];
    let format = match Format::of_path(path).map_or_else(|| sniff(path, &file, &mut head), Ok) {
        Ok(format) => format,
        // Bytes are bytes, whatever the file is: a text, above all.
        Err(e) if e.code() == ErrorCode::UNKNOWN_FILE_KIND && want == Some(DType::U8) => {
            return raw(path, head, file);
        }
        Err(e) => return Err(e),
    };
    if !head.is_empty() {
        file.seek(SeekFrom::Start(0)).map_err(|e| cannot_read(path, &e))?;
    }
    let about = |f: Fault| f.about(path, format);
    match format {
        Format::Npy => npy::read(&mut file, want).map_err(about),
        Format::Npz => {
            let archive = npz::Archive::open(file).map_err(about)?;
            let at = choose(path, member, name, &archive.names())?;
            archive.read(at, want).map_err(about)
        }
        Format::Safetensors => {
            let mut archive = safetensors::Archive::open(file).map_err(about)?;
            let names: Vec<&str> = archive.tensors.iter().map(|t| t.name.as_str()).collect();
            let at = choose(path, member, name, &names)?;
            archive.read(at).map_err(about)
        }
    }
}

/// The rows of a tensor in a file, read as they are asked for; otherwise as
/// [`tensor_in`].
pub fn rows_in(
    path: &Path,
    mut file: File,
    member: Option<&str>,
    name: &str,
    want: DType,
) -> Result<(ArrayRows, Format)> {
    let mut head = vec![];
    let found = Format::of_path(path).map_or_else(|| sniff(path, &file, &mut head), Ok);
    let wrong = |e: std::io::Error| cannot_read(path, &e);
    let format = match found {
        Err(e) if e.code() == ErrorCode::UNKNOWN_FILE_KIND && want == DType::U8 => {
            let len = file.metadata().map_err(wrong)?.len();
            let shape = vec![usize::try_from(len).unwrap_or(usize::MAX)];
            let rows = ArrayRows::plain(file, 0, DType::U8, shape);
            return Ok((rows.map_err(|f| f.about(path, Format::Npy))?, Format::Npy));
        }
        found => found?,
    };
    file.seek(SeekFrom::Start(0)).map_err(wrong)?;
    let about = |f: Fault| f.about(path, format);
    let rows = match format {
        Format::Npy => ArrayRows::npy(file, Some(want)),
        Format::Npz => {
            let archive = npz::Archive::open(file).map_err(about)?;
            let at = choose(path, member, name, &archive.names())?;
            archive.rows(at, Some(want))
        }
        Format::Safetensors => {
            let archive = safetensors::Archive::open(file).map_err(about)?;
            let names: Vec<&str> = archive.tensors.iter().map(|t| t.name.as_str()).collect();
            let at = choose(path, member, name, &names)?;
            archive.rows(at)
        }
    };
    Ok((rows.map_err(about)?, format))
}

/// All bytes of a file, of which some were read, as one row.
fn raw(path: &Path, mut bytes: Vec<u8>, mut file: File) -> Result<TensorBuf> {
    file.read_to_end(&mut bytes).map_err(|e| cannot_read(path, &e))?;
    let shape = [bytes.len()];
    TensorBuf::from_bytes(DType::U8, &shape, &bytes)
        .ok_or_else(|| Error::data("E0519", format!("`{}` is too large", path.display())))
}

/// The kind of a file by its first bytes, which end up in `head`.
fn sniff(path: &Path, file: &File, head: &mut Vec<u8>) -> Result<Format> {
    file.take(16).read_to_end(head).map_err(|e| cannot_read(path, &e))?;
    Format::of_bytes(head).ok_or_else(|| {
        Error::data("E0514", format!("`{}` is not a kind of data file we know", path.display()))
            .help("use .npy, .npz or .safetensors, or write small values on the command line")
    })
}

/// Which member of an archive is meant.
fn choose(path: &Path, member: Option<&str>, name: &str, names: &[&str]) -> Result<usize> {
    let wanted = member.unwrap_or(name);
    if let Some(at) = names.iter().position(|n| *n == wanted) {
        return Ok(at);
    }
    if member.is_none() && names.len() == 1 {
        return Ok(0);
    }
    let e = Error::data("E0515", format!("`{}` has no array `{wanted}`", path.display()));
    let e = if names.len() <= 20 {
        e.note(format!("it has {}", list(names.iter().copied())))
    } else {
        e.note(format!("it has {} arrays", names.len()))
    };
    Err(match closest(wanted, names.iter().copied()) {
        Some(near) => e.help(format!("did you mean `{}:{near}`?", path.display())),
        None => e.help(format!("name one as `{}:ARRAY`", path.display())),
    })
}

/// Writes tensors to one file, whose name says how.
pub fn write_tensors(path: &Path, tensors: &[(&str, &TensorBuf)]) -> Result<()> {
    let arrays: Vec<Array<'_>> = tensors.iter().map(|(name, t)| Array::of(name, t)).collect();
    write_arrays(path, &arrays)
}

/// As [`write_tensors`], of arrays that may lie in files: those are copied a bit
/// at a time.
pub fn write_arrays(path: &Path, arrays: &[Array<'_>]) -> Result<()> {
    let format = output_format(path, arrays.len())?;
    files::replace(path, |out| match (format, arrays) {
        (Format::Npy, [t, ..]) => {
            out.write_all(&npy::header_bytes(t.dtype, t.shape))?;
            t.for_each(&mut |bytes| out.write_all(bytes))
        }
        (Format::Npy, []) => Ok(()),
        (Format::Npz, _) => npz::write(out, arrays),
        (Format::Safetensors, _) => safetensors::write_arrays(out, arrays, &[]),
    })
}

/// The kind of file that so many results make under this name.
pub fn output_format(path: &Path, results: usize) -> Result<Format> {
    let format = Format::of_path(path).ok_or_else(|| {
        Error::usage("E0514", format!("`{}` does not say how to write it", path.display()))
            .help("end the name in .npy, .npz or .safetensors")
    })?;
    if format == Format::Npy && results != 1 {
        return Err(Error::usage(
            "E0914",
            format!("`{}` can hold one result, not {results}", path.display()),
        )
        .help("write several results to a .npz or .safetensors file"));
    }
    Ok(format)
}

/// Swaps bytes of each element when the file's order is not this machine's.
pub(crate) fn fix_order(data: &mut [u8], size: usize, little: bool) {
    if size > 1 && little != cfg!(target_endian = "little") {
        data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// Any byte but zero is true; kernels want exactly 0 or 1.
pub(crate) fn normalise_bools(dtype: DType, data: &mut [u8]) {
    if dtype == DType::Bool {
        data.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
}
