//! Where a program's readers and queues are in their data, among the positions
//! of a checkpoint: `data.NAME.0`, `data.NAME.1`, and so on.

use super::Manifest;
use crate::error::Result;
use crate::model::Model;
use crate::queue::replay::variables_of_runners;
use std::collections::BTreeMap;
use std::path::Path;

/// Adds where the model is in its data.
pub(super) fn add_positions(model: &Model, positions: &mut BTreeMap<String, i64>) {
    for (name, numbers) in model.queues().positions() {
        for (i, n) in numbers.into_iter().enumerate() {
            // Unless the caller knows better: a step may have been stopped.
            positions.entry(format!("data.{name}.{i}")).or_insert(n);
        }
    }
}

/// Brings variables, readers and queues to where they were when a checkpoint was
/// saved, which must have been verified.
pub fn resume(model: &Model, manifest: &Manifest, path: &Path) -> Result<()> {
    resume_some(model, manifest, path, |_| true)
}

/// As [`resume`], where only some of the variables are `here`.
pub fn resume_some(
    model: &Model,
    manifest: &Manifest,
    path: &Path,
    here: impl Fn(usize) -> bool,
) -> Result<()> {
    // What runners keep for themselves begins anew, as their work does.
    let own = variables_of_runners(model.plan());
    if !own.is_empty() {
        match model.is_bare() {
            true => own.iter().try_for_each(|v| model.start(*v as usize))?,
            false => model.init()?,
        }
    }
    let needed = |v: usize| !own.contains(&(v as u32));
    let mut fit = super::fit_exactly(model.plan(), path, needed)?;
    fit.take(model, |v| here(v) && needed(v))?;
    let mut positions: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    // In the order of names, which is that of the numbers of one name.
    for (key, n) in &manifest.positions {
        if let Some((name, _)) = key.strip_prefix("data.").and_then(|k| k.rsplit_once('.')) {
            positions.entry(name.to_owned()).or_default().push(*n);
        }
    }
    let positions: Vec<(String, Vec<i64>)> = positions.into_iter().collect();
    model.queues().set_positions(&positions)
}
