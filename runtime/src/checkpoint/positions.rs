//! Where a program's readers and queues are in their data, among the positions
//! of a checkpoint: `data.NAME.0`, `data.NAME.1`, and so on.

use super::Manifest;
use crate::error::Result;
use crate::model::Model;
use std::collections::BTreeMap;

/// Adds where the model is in its data.
pub(super) fn add_positions(model: &Model, positions: &mut BTreeMap<String, i64>) {
    for (name, numbers) in model.queues().positions() {
        for (i, n) in numbers.into_iter().enumerate() {
            positions.insert(format!("data.{name}.{i}"), n);
        }
    }
}

/// Takes readers and queues to where they were when a checkpoint was saved.
pub fn go_to_positions(model: &Model, manifest: &Manifest) -> Result<()> {
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
