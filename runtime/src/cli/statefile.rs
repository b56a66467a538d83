//! Variables in a safetensors file: `--state`.

use crate::error::{Error, Result, list};
use crate::io::safetensors::{self, Archive};
use crate::io::{Format, atomically, cannot_read};
use crate::model::Model;
use crate::tensor::{TensorBuf, type_text};
use std::fs::File;
use std::path::Path;

/// Overwrites every variable with the file's. Returns the names of tensors in
/// the file that are not variables. Nothing is changed unless everything fits.
pub fn load(model: &Model, path: &Path) -> Result<Vec<String>> {
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    let about = |f: crate::io::Fault| f.about(path, Format::Safetensors);
    let mut archive = Archive::open(file).map_err(about)?;
    let vars = &model.plan().vars;
    let mut places = Vec::with_capacity(vars.len());
    let mut missing = vec![];
    for v in vars {
        let Some(at) = archive.tensors.iter().position(|t| t.name == v.name) else {
            missing.push(v.name.as_str());
            continue;
        };
        let t = &archive.tensors[at];
        let same_shape = t.shape.len() == v.shape.len()
            && t.shape.iter().zip(&v.shape).all(|(a, b)| i64::try_from(*a) == Ok(*b));
        if t.dtype != Some(v.dtype) || !same_shape {
            let shape: Vec<usize> =
                v.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
            let found = match t.dtype {
                Some(d) => type_text(d, &t.shape),
                None => format!("{}{:?}", t.dtype_text, t.shape),
            };
            return Err(Error::data(
                "E0604",
                format!(
                    "variable `{}` is {}, but `{}` has {found} for it",
                    v.name,
                    type_text(v.dtype, &shape),
                    path.display()
                ),
            )
            .help("use the state of this graph, or start without `--state`"));
        }
        places.push(at);
    }
    if !missing.is_empty() {
        let graph = archive.metadata.iter().find(|(k, _)| k == "graph");
        let e = Error::data(
            "E0603",
            format!("`{}` lacks variable {}", path.display(), list(missing.iter().copied())),
        );
        return Err(match graph {
            Some((_, g)) if *g != model.plan().name => {
                e.note(format!("it was written by graph `{g}`, this is `{}`", model.plan().name))
            }
            _ => e,
        });
    }
    for (i, at) in places.iter().enumerate() {
        let t = archive.read(*at).map_err(about)?;
        model.write_var(i, t.view())?;
    }
    let is_var = |n: &str| vars.iter().any(|v| v.name == n);
    Ok(archive.tensors.iter().map(|t| &t.name).filter(|n| !is_var(n)).cloned().collect())
}

/// Writes every variable, atomically.
pub fn save(model: &Model, path: &Path) -> Result<()> {
    let vars = &model.plan().vars;
    let tensors = (0..vars.len()).map(|i| model.read_var(i)).collect::<Result<Vec<TensorBuf>>>()?;
    let named: Vec<(&str, &TensorBuf)> =
        vars.iter().map(|v| v.name.as_str()).zip(&tensors).collect();
    let hash: String = model.plan().graph_hash.iter().map(|b| format!("{b:02x}")).collect();
    let metadata =
        [("format", "tfc-state-1"), ("graph", &model.plan().name), ("graph_hash", &hash)];
    atomically(path, |out| safetensors::write(out, &named, &metadata))
}
