//! `save` and `restore` of a graph: tensors in files the graph names.

use crate::error::{Error, Result};
use crate::io::safetensors::{self, Archive};
use crate::io::{Fault, Format};
use crate::model::Model;
use crate::numerics;
use crate::tensor::{FeedView, TensorBuf, type_text};
use std::path::{Path, PathBuf};
use tfc_abi::DType;

/// Writes tensors to the file a graph calls `path`, all or none. `place` is where it
/// does.
pub fn save_tensors(
    model: &Model,
    path: &str,
    place: &str,
    tensors: &[(&str, FeedView<'_>)],
) -> Result<()> {
    save(model, path, tensors).map_err(|e| at(e, place))
}

fn save(model: &Model, path: &str, tensors: &[(&str, FeedView<'_>)]) -> Result<()> {
    let path = place(model, path);
    // An infinity in a tensor may be meant, a NaN is not.
    let unfit = tensors.iter().find_map(|(name, t)| {
        let tensor = numerics::Tensor { dtype: t.dtype, shape: t.shape.to_vec(), bytes: t.data };
        numerics::unfit(name, &tensor, true)
    });
    match unfit {
        Some(e) if !model.allows_nan() => return Err(left(e, &path)),
        _ => {}
    }
    let metadata = safetensors::metadata_of(model.plan());
    let metadata: Vec<(&str, &str)> = metadata.iter().map(|(k, v)| (*k, v.as_str())).collect();
    model.sandbox().replace(&path, |out| safetensors::write(out, tensors, &metadata))
}

/// What the file a graph calls `path` has for a variable of this type.
pub fn read_tensor(
    model: &Model,
    (path, key): (&str, &str),
    place: &str,
    dtype: DType,
    shape: &[usize],
) -> Result<TensorBuf> {
    read(model, path, key, dtype, shape).map_err(|e| at(e, place))
}

fn read(model: &Model, path: &str, key: &str, dtype: DType, shape: &[usize]) -> Result<TensorBuf> {
    let path = place(model, path);
    let about = |f: Fault| f.about(&path, Format::Safetensors);
    let file = model.sandbox().open(&path)?;
    let mut archive = Archive::open(file).map_err(about)?;
    let Some(at) = archive.tensors.iter().position(|t| t.name == key) else {
        let text = format!("`{}` lacks variable `{key}`", path.display());
        return Err(Error::data("E0603", text));
    };
    let t = &archive.tensors[at];
    if t.dtype != Some(dtype) || t.shape != shape {
        let want = type_text(dtype, shape);
        let found = match t.dtype {
            Some(d) => type_text(d, &t.shape),
            None => format!("{}{:?}", t.dtype_text, t.shape),
        };
        let text = format!("`{key}` is {want}, but `{}` has {found} for it", path.display());
        return Err(Error::data("E0604", text));
    }
    archive.read(at).map_err(about)
}

fn at(e: Error, place: &str) -> Error {
    if place.is_empty() { e } else { e.note(format!("at {place}")) }
}

/// What an error that kept a file from being written says about the file.
pub(crate) fn left(e: Error, path: &Path) -> Error {
    match path.exists() {
        true => e.note(format!("`{}` was left as it was", path.display())),
        false => e.note(format!("`{}` was not written", path.display())),
    }
}

fn place(model: &Model, path: &str) -> PathBuf {
    let mut path = model.directory().join(path);
    if path.extension().is_none_or(|e| e != "safetensors") {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".safetensors");
        path = path.parent().unwrap_or(Path::new("")).join(name);
    }
    path
}
