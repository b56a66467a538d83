//! The manifest of a checkpoint: JSON that ends in a hash of itself.

use super::MANIFEST;
use crate::error::{Error, Result};
use crate::hash::{Hasher, hash, hex};
use crate::io::json::{Json, quote};
use crate::io::{cannot_read, io_reason};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const FORMAT: &str = "tfc-checkpoint-2";
/// The format before: one file of data, whose fields are the manifest's own.
const ONE_FILE: &str = "tfc-checkpoint-1";
/// No manifest of ours is longer.
const MAX_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub step: u64,
    pub graph: String,
    /// Of the graph's text, in hexadecimal.
    pub graph_hash: String,
    /// Version of tfc that wrote it.
    pub version: String,
    /// Seconds since 1970, for people.
    pub time: u64,
    /// Where the run was in its data: epoch, next example, ...
    pub positions: BTreeMap<String, i64>,
    /// What the run was: its entry, its batches, fingerprints of its data. Nothing
    /// in checkpoints that were not made by a program's own command line.
    pub run: BTreeMap<String, String>,
    /// The data, beside the manifest: one file for each process that had some.
    pub files: Vec<DataFile>,
}

/// A file of tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    pub file: String,
    pub bytes: u64,
    /// In hexadecimal.
    pub hash: String,
}

impl DataFile {
    fn text(&self) -> String {
        let hash = quote(&format!("blake2b-256:{}", self.hash));
        format!("{{\"file\": {}, \"bytes\": {}, \"hash\": {hash}}}", quote(&self.file), self.bytes)
    }

    fn parse(json: &Json) -> std::result::Result<DataFile, String> {
        let text = |name: &str| {
            let value = json.get(name).and_then(Json::as_str);
            value.map(str::to_owned).ok_or(format!("its `{name}` is missing or malformed"))
        };
        let file = text("file")?;
        if Path::new(&file).file_name().is_none_or(|name| name != file.as_str()) {
            return Err("its `file` is not the name of a file beside it".into());
        }
        let hash = text("hash")?;
        let hash = hash.strip_prefix("blake2b-256:").ok_or("its hash is of an unknown kind")?;
        let bytes = json.get("bytes").and_then(Json::as_u64).ok_or("its `bytes` is malformed")?;
        Ok(DataFile { file, bytes, hash: hash.to_owned() })
    }
}

impl Manifest {
    pub fn text(&self) -> String {
        let positions: Vec<String> =
            self.positions.iter().map(|(k, v)| format!("{}: {v}", quote(k))).collect();
        let run: Vec<String> =
            self.run.iter().map(|(k, v)| format!("{}: {}", quote(k), quote(v))).collect();
        let files: Vec<String> = self.files.iter().map(DataFile::text).collect();
        let head = format!(
            "{{\n  \"format\": \"{FORMAT}\",\n  \"step\": {},\n  \"graph\": {},\n  \
             \"graph_hash\": {},\n  \"tfc\": {},\n  \"time\": {},\n  \"positions\": {{{}}},\n  \
             \"run\": {{{}}},\n  \"files\": [{}],\n",
            self.step,
            quote(&self.graph),
            quote(&self.graph_hash),
            quote(&self.version),
            self.time,
            positions.join(", "),
            run.join(", "),
            files.join(", "),
        );
        let tail = tail(&head);
        head + &tail
    }

    /// What is wrong is said without the file's name.
    fn parse(text: &str) -> std::result::Result<Manifest, String> {
        let at = text.rfind("  \"manifest_hash\"").ok_or("it is cut short")?;
        if text[at..] != tail(&text[..at]) {
            return Err("it does not match its own hash: it was changed or damaged".into());
        }
        let json = Json::parse(text)?;
        let field = |name: &str| json.get(name).ok_or(format!("it has no `{name}`"));
        let string = |name: &str| {
            let text = field(name)?.as_str().ok_or(format!("its `{name}` is malformed"))?;
            Ok::<String, String>(text.to_owned())
        };
        let number = |name: &str| field(name)?.as_u64().ok_or(format!("its `{name}` is malformed"));
        let format = string("format")?;
        let files = match format.as_str() {
            FORMAT => field("files")?.as_array().unwrap_or_default(),
            ONE_FILE => std::slice::from_ref(&json),
            _ => return Err(format!("its format is `{format}`, this program reads `{FORMAT}`")),
        };
        let files: Vec<DataFile> =
            files.iter().map(DataFile::parse).collect::<std::result::Result<_, String>>()?;
        if files.is_empty() {
            return Err("it names no files".into());
        }
        let mut positions = BTreeMap::new();
        for (name, value) in field("positions")?.as_object().unwrap_or_default() {
            let value = value.as_i64().ok_or(format!("its position `{name}` is malformed"))?;
            positions.insert(name.clone(), value);
        }
        let mut run = BTreeMap::new();
        for (name, value) in json.get("run").and_then(Json::as_object).unwrap_or_default() {
            let value = value.as_str().ok_or(format!("its fact `{name}` is malformed"))?;
            run.insert(name.clone(), value.to_owned());
        }
        Ok(Manifest {
            step: number("step")?,
            graph: string("graph")?,
            graph_hash: string("graph_hash")?,
            version: string("tfc")?,
            time: number("time")?,
            positions,
            run,
            files,
        })
    }

    pub fn read(path: &Path) -> Result<Manifest> {
        let file = crate::files::open(path)?;
        let mut bytes = vec![];
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|e| cannot_read(path, &e))?;
        let parsed = match String::from_utf8(bytes) {
            Ok(text) => Manifest::parse(&text),
            Err(_) => Err("it is not text".into()),
        };
        parsed.map_err(|why| torn(path).note(format!("`{}`: {why}", path.display())))
    }

    /// Where the data of the checkpoint with this manifest is.
    pub fn paths(&self, manifest: &Path) -> Vec<PathBuf> {
        self.files.iter().map(|f| manifest.with_file_name(&f.file)).collect()
    }

    /// Whether all files are there, and of the right length.
    pub(crate) fn has_its_files(&self, manifest: &Path) -> bool {
        self.files.iter().zip(self.paths(manifest)).all(|(known, path)| {
            std::fs::metadata(path).is_ok_and(|found| found.len() == known.bytes)
        })
    }

    /// Of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }
}

/// The end of a manifest that begins with `head`.
fn tail(head: &str) -> String {
    format!("  \"manifest_hash\": \"blake2b-256:{}\"\n}}\n", hex(&hash(head.as_bytes())))
}

fn torn(manifest: &Path) -> Error {
    let name = manifest.with_extension("");
    Error::data("E0580", format!("checkpoint `{}` is torn", name.display()))
}

/// Reads a manifest and holds the data against it: length and hash.
pub fn verify(path: &Path) -> Result<Manifest> {
    debug_assert!(path.extension().is_none_or(|e| e == MANIFEST));
    let manifest = Manifest::read(path)?;
    for (known, data) in manifest.files.iter().zip(manifest.paths(path)) {
        held_against(known, &data)
            .map_err(|why| torn(path).note(format!("`{}`: {why}", data.display())))?;
    }
    Ok(manifest)
}

/// What is wrong with a file of data.
fn held_against(known: &DataFile, path: &Path) -> std::result::Result<(), String> {
    let unreadable = |e: std::io::Error| format!("it cannot be read: {}", io_reason(&e));
    // A link to a device has no end.
    let mut file = File::open(path).map_err(unreadable)?.take(known.bytes.saturating_add(1));
    let mut hasher = Hasher::default();
    let mut bytes = 0u64;
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                bytes += n as u64;
                hasher.update(&buffer[..n]);
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(unreadable(e)),
        }
    }
    if bytes < known.bytes {
        return Err(format!("it is cut short: {bytes} of {} bytes", known.bytes));
    }
    if bytes > known.bytes {
        return Err(format!("it has more than its {} bytes", known.bytes));
    }
    match hex(&hasher.finish()) == known.hash {
        true => Ok(()),
        false => Err("it does not match its hash: it was changed or damaged".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_and_notices_every_change() {
        let manifest = Manifest {
            step: 120,
            graph: "a \"b\"".into(),
            graph_hash: "00ff".into(),
            version: "0.1.0".into(),
            time: 5,
            positions: [("epoch".into(), 3), ("seed".into(), -1)].into(),
            run: [("entry".into(), "train".into())].into(),
            files: ["step-000000000120.0.ab.safetensors", "step-000000000120.1.ab.safetensors"]
                .map(|file| DataFile { file: file.into(), bytes: 77, hash: "abcd".into() })
                .into(),
        };
        let text = manifest.text();
        assert_eq!(Manifest::parse(&text), Ok(manifest));
        for at in 0..text.len() {
            assert!(Manifest::parse(&text[..at]).is_err(), "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(Manifest::parse(&changed).is_err(), "changed at {at}");
            }
        }
    }
}
