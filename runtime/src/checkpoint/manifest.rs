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

const FORMAT: &str = "tfc-checkpoint-1";
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
    /// The data file, beside the manifest.
    pub file: String,
    pub bytes: u64,
    pub hash: String,
}

impl Manifest {
    pub fn text(&self) -> String {
        let positions: Vec<String> =
            self.positions.iter().map(|(k, v)| format!("{}: {v}", quote(k))).collect();
        let run: Vec<String> =
            self.run.iter().map(|(k, v)| format!("{}: {}", quote(k), quote(v))).collect();
        let head = format!(
            "{{\n  \"format\": \"{FORMAT}\",\n  \"step\": {},\n  \"graph\": {},\n  \
             \"graph_hash\": {},\n  \"tfc\": {},\n  \"time\": {},\n  \"positions\": {{{}}},\n  \
             \"run\": {{{}}},\n  \"file\": {},\n  \"bytes\": {},\n  \"hash\": {},\n",
            self.step,
            quote(&self.graph),
            quote(&self.graph_hash),
            quote(&self.version),
            self.time,
            positions.join(", "),
            run.join(", "),
            quote(&self.file),
            self.bytes,
            quote(&format!("blake2b-256:{}", self.hash)),
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
        if format != FORMAT {
            return Err(format!("its format is `{format}`, this program reads `{FORMAT}`"));
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
        let file = string("file")?;
        if Path::new(&file).file_name().is_none_or(|name| name != file.as_str()) {
            return Err("its `file` is not the name of a file beside it".into());
        }
        let hash = string("hash")?;
        let hash = hash.strip_prefix("blake2b-256:").ok_or("its hash is of an unknown kind")?;
        Ok(Manifest {
            step: number("step")?,
            graph: string("graph")?,
            graph_hash: string("graph_hash")?,
            version: string("tfc")?,
            time: number("time")?,
            positions,
            run,
            file,
            bytes: number("bytes")?,
            hash: hash.to_owned(),
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
    pub fn data(&self, manifest: &Path) -> PathBuf {
        manifest.with_file_name(&self.file)
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
    let data = manifest.data(path);
    let fault = |why: String| torn(path).note(format!("`{}`: {why}", data.display()));
    let file = match File::open(&data) {
        Ok(file) => file,
        Err(e) => return Err(fault(format!("it cannot be read: {}", io_reason(&e)))),
    };
    // A link to a device has no end.
    let mut file = file.take(manifest.bytes.saturating_add(1));
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
            Err(e) => return Err(fault(format!("it cannot be read: {}", io_reason(&e)))),
        }
    }
    if bytes < manifest.bytes {
        return Err(fault(format!("it is cut short: {bytes} of {} bytes", manifest.bytes)));
    }
    if bytes > manifest.bytes {
        return Err(fault(format!("it has more than its {} bytes", manifest.bytes)));
    }
    if hex(&hasher.finish()) != manifest.hash {
        return Err(fault("it does not match its hash: it was changed or damaged".into()));
    }
    Ok(manifest)
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
            file: "step-000000000120.safetensors".into(),
            bytes: 77,
            hash: "abcd".into(),
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
