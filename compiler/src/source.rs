//! Reading graph text: what may be read, how much of it, and what a file is that
//! holds no graph.

use crate::error::{diag_of, reason};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use tfc_ir::diag::Diag;
use tfc_ir::text;
use tfc_runtime::Sandbox;

/// Bytes of one graph file: what does not fit belongs in data files.
pub const MAX_SOURCE: u64 = 256 << 20;

/// Why a file gives no text.
pub enum Refusal {
    /// It cannot be read.
    Unreadable(String),
    /// It is something else: what, and what to do with it.
    Other(&'static str, &'static str),
    /// It is not text, from this byte on.
    Binary(usize),
    /// It lies outside the sandbox.
    Outside(tfc_runtime::Error),
}

impl Refusal {
    /// As the finding about a file named on the command line.
    pub fn into_diag(self, name: &str) -> Diag {
        match self {
            Refusal::Unreadable(why) => {
                Diag::error("E0804", format!("cannot read `{name}`: {why}"))
            }
            Refusal::Other(what, help) => {
                Diag::error("E0153", format!("`{name}` is {what}, not a graph")).help(help)
            }
            Refusal::Binary(at) => {
                Diag::error("E0153", format!("`{name}` is not text: byte {at} is not UTF-8"))
                    .help("a graph is a text file; `tfc new NAME` makes one to start from")
            }
            Refusal::Outside(error) => diag_of(&error),
        }
    }

    /// As the front end wants it, about a file that a graph calls `path`.
    pub fn in_graph(self, path: &str) -> text::Refusal {
        let why = match self {
            Refusal::Outside(error) => return text::Refusal::Finding(Box::new(diag_of(&error))),
            Refusal::Unreadable(why) => format!("cannot read `{path}`: {why}"),
            Refusal::Other(what, _) => format!("`{path}` is {what}, not a graph"),
            Refusal::Binary(at) => format!("`{path}` is not text: byte {at} is not UTF-8"),
        };
        why.into()
    }
}

/// The text of a graph file that must lie in the sandbox.
pub fn read_inside(path: &Path, sandbox: &Sandbox) -> Result<String, Refusal> {
    sandbox.admit(path).map_err(Refusal::Outside)?;
    read_opened(path, &|file| sandbox.confirm(path, file).map_err(Refusal::Outside))
}

/// The text of a graph file.
pub fn read_file(path: &Path) -> Result<String, Refusal> {
    read_opened(path, &|_| Ok(()))
}

fn read_opened(
    path: &Path,
    look: &dyn Fn(&File) -> Result<(), Refusal>,
) -> Result<String, Refusal> {
    let unreadable = |e: io::Error| Refusal::Unreadable(reason(&e));
    // Looked at before it is opened: opening a pipe or a device may wait or act.
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(Refusal::Unreadable("it is a directory".into()));
    }
    if !kind.is_file() && !is_pipe(kind) {
        return Err(Refusal::Unreadable("it is a device, not a file".into()));
    }
    let file = File::open(path).map_err(unreadable)?;
    look(&file)?;
    text_of(path, read_limited(file)?)
}

/// The text of standard input.
pub fn read_stdin() -> Result<String, Refusal> {
    let bytes = read_limited(io::stdin().lock())?;
    text_of(Path::new(""), bytes)
}

#[cfg(unix)]
fn is_pipe(kind: fs::FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(not(unix))]
fn is_pipe(_: fs::FileType) -> bool {
    false
}

fn read_limited(from: impl Read) -> Result<Vec<u8>, Refusal> {
    let mut bytes = vec![];
    let read = from.take(MAX_SOURCE + 1).read_to_end(&mut bytes);
    match read {
        Err(e) => Err(Refusal::Unreadable(reason(&e))),
        Ok(n) if n as u64 > MAX_SOURCE => Err(Refusal::Unreadable(format!(
            "it is larger than {} MiB; large constants belong in .npy or .safetensors files",
            MAX_SOURCE >> 20
        ))),
        Ok(_) => Ok(bytes),
    }
}

fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, Refusal> {
    if let Some((what, help)) = other(path, &bytes) {
        return Err(Refusal::Other(what, help));
    }
    String::from_utf8(bytes).map_err(|e| Refusal::Binary(e.utf8_error().valid_up_to()))
}

const WRITE_IT: &str = "write the model in the graph language (`tfc new NAME` makes one to start \
                        from); weights come from .safetensors or .npz files, with `--restore FILE` \
                        or `file(\"w.safetensors\", key: \"w\")`";
const WEIGHTS: &str = "it holds weights and no model: give it to a program with `--restore FILE`, or \
                       read an array in a graph with `file(\"w.safetensors\", key: \"w\")`";
const PYTORCH: &str = "save its weights with `safetensors.torch.save_file(model.state_dict(), \
                       \"w.safetensors\")`; they are read with `--restore` or `file(..)`. The model \
                       is written in the graph language: `tfc new NAME` makes one to start from";
const DATA: &str = "data is fed to an entry: `tfc run model.graph ENTRY --feed x=FILE`";

/// What a file is that plainly holds no graph, by its first bytes or its name.
fn other(path: &Path, bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    let by_bytes = if starts(b"\x7fELF") || starts(b"\xcf\xfa\xed\xfe") || starts(b"MZ") {
        Some(("a compiled program", "run it: `./PROGRAM --help`"))
    } else if starts(b"!<arch>\n") {
        Some(("a library", "compile the graph it was made from"))
    } else if starts(b"\x93NUMPY") {
        Some(("a NumPy array", DATA))
    } else if starts(b"PK\x03\x04") && ending == "npz" {
        Some(("a NumPy archive", DATA))
    } else if starts(b"PK\x03\x04") && ending == "keras" {
        Some(("a Keras model", WRITE_IT))
    } else if starts(b"PK\x03\x04") || (bytes.len() > 2 && bytes[0] == 0x80 && bytes[1] <= 5) {
        match ending.as_str() {
            "pt" | "pth" | "bin" | "ckpt" => Some(("a PyTorch checkpoint", PYTORCH)),
            _ if starts(b"PK") => Some(("a zip archive", "unpack it first")),
            _ => Some(("a Python pickle", PYTORCH)),
        }
    } else if starts(b"\x89HDF\r\n") {
        Some(("an HDF5 file", WRITE_IT))
    } else if bytes.get(4..8) == Some(b"TFL3") {
        Some(("a TensorFlow Lite model", WRITE_IT))
    } else if starts(b"GGUF") {
        Some(("a GGUF model", WRITE_IT))
    } else if starts(b"\x1f\x8b") {
        Some(("compressed", "unpack it first: `gunzip FILE`"))
    } else if bytes.get(8) == Some(&b'{') && bytes.get(6..8) == Some(&[0, 0]) {
        Some(("a file of weights (safetensors)", WEIGHTS))
    } else if ending == "onnx" || is_onnx(bytes) {
        Some(("an ONNX model", WRITE_IT))
    } else {
        None
    };
    by_bytes.or(match ending.as_str() {
        "py" | "pyi" => Some(("a Python program", WRITE_IT)),
        "ipynb" => Some(("a notebook", WRITE_IT)),
        "rs" | "c" | "h" | "cc" | "cpp" | "hpp" | "cu" | "js" | "ts" | "jl" => {
            Some(("a program in another language", WRITE_IT))
        }
        "csv" | "tsv" | "parquet" | "tfrecord" | "tfrecords" => Some(("a data file", DATA)),
        "pb" | "pbtxt" => Some(("a TensorFlow graph", WRITE_IT)),
        "pt" | "pth" => Some(("a PyTorch checkpoint", PYTORCH)),
        "safetensors" => Some(("a file of weights (safetensors)", WEIGHTS)),
        _ => None,
    })
}

/// A protobuf that starts with `ir_version` (field 1, a small number) and goes on
/// with a string or the version of the opset.
fn is_onnx(bytes: &[u8]) -> bool {
    matches!(bytes, [0x08, 1..=20, 0x12 | 0x1a | 0x22 | 0x3a | 0x42, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_no_graph_are_named() {
        let what = |name: &str, bytes: &[u8]| other(Path::new(name), bytes).map(|(what, _)| what);
        assert_eq!(what("m.onnx", b"\x08\x07\x12\x07pytorch"), Some("an ONNX model"));
        assert_eq!(what("model", b"\x08\x07\x12\x07pytorch"), Some("an ONNX model"));
        assert_eq!(what("m.pt", b"PK\x03\x04..."), Some("a PyTorch checkpoint"));
        assert_eq!(what("m.npz", b"PK\x03\x04..."), Some("a NumPy archive"));
        assert_eq!(what("w", b"\x40\0\0\0\0\0\0\0{\"w\""), Some("a file of weights (safetensors)"));
        assert_eq!(what("x.npy", b"\x93NUMPY\x01"), Some("a NumPy array"));
        assert_eq!(what("m", b"\x7fELF\x02"), Some("a compiled program"));
        assert_eq!(what("train.py", b"import torch\n"), Some("a Python program"));
        assert_eq!(what("m.graph", b"graph m\n"), None);
        assert_eq!(what("m.txt", b"graph m\n"), None);
        assert_eq!(what("m", b""), None);
    }
}
