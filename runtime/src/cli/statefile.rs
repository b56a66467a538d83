//! Variables in a safetensors file: `--state`.

use crate::checkpoint::files::left;
use crate::error::{ErrorCode, Result};
use crate::files;
use crate::io::safetensors;
use crate::model::Model;
use std::path::Path;

/// Writes every variable, atomically.
pub fn save(model: &Model, path: &Path) -> Result<()> {
    let metadata = safetensors::metadata_of(model.plan());
    let metadata: Vec<(&str, &str)> = metadata.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let saved = model.with_vars_to_save(|vars| {
        files::replace(path, |out| safetensors::write(out, vars, &metadata))
    });
    saved.map_err(|e| if e.code() == ErrorCode::NOT_FINITE { left(e, path) } else { e })
}
