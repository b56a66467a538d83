//! How much memory a call may take: the limit of `--max-memory`.
//!
//! What counts is the variables of the program and the working memory of the entry at
//! the sizes of the call. Feeds and results are the caller's.

use crate::error::{Error, Result};
use crate::mem::human_bytes;
use std::collections::BTreeMap;
use tfc_abi::BUFFER_ALIGN;
use tfc_abi::parts::Part;
use tfc_abi::plan::{Entry, Plan, Step};

/// Whether an entry keeps to the plan's limit, if there is one. `values` are those of
/// its expressions at the sizes of a call.
pub fn check(plan: &Plan, entry: &Entry, values: &[i64]) -> Result<()> {
    if plan.max_memory == 0 {
        return Ok(());
    }
    let value = |e: u32| values.get(e as usize).map_or(0, |v| (*v).max(0) as u64);
    let rounded = |n: u64| n.checked_next_multiple_of(BUFFER_ALIGN as u64).unwrap_or(u64::MAX);
    let working = entry.slots.iter().fold(0u64, |n, s| n.saturating_add(rounded(value(*s))));
    let variables = plan.vars.iter().fold(0u64, |sum, v| {
        let sizes = v
            .shape
            .iter()
            .fold(v.dtype.size() as u64, |n, d| n.saturating_mul(u64::try_from(*d).unwrap_or(0)));
        sum.saturating_add(sizes)
    });
    let needed = working.saturating_add(variables);
    if needed <= plan.max_memory {
        return Ok(());
    }
    let mut error = Error::data(
        "E0594",
        format!(
            "entry `{}` needs {} of memory, more than the {} that are allowed",
            entry.name,
            human_bytes(needed),
            human_bytes(plan.max_memory)
        ),
    )
    .note(format!(
        "variables take {}, working memory {}",
        human_bytes(variables),
        human_bytes(working)
    ));
    if let Some((step, alive)) = peak(entry, values) {
        let name = match &entry.steps[step] {
            Step::Launch(l) => plan.kernels.get(l.kernel as usize).map(String::as_str),
            Step::MatMul(_) => Some("matmul"),
            Step::Conv(_) => Some("conv2d"),
            Step::While { .. } => Some("while"),
            Step::If { .. } => Some("if"),
            _ => None,
        };
        let name = name.map_or(String::new(), |name| format!(", in `{name}`"));
        let line = match entry.steps.dispatch()[step].line {
            0 => String::new(),
            line => format!(" at {}:{line}", plan.source),
        };
        let place = format!("{line}{name}");
        error = error.note(format!(
            "most working memory is in use{}: {}",
            if place.is_empty() { format!(" in step {step}") } else { place },
            human_bytes(alive)
        ));
    }
    let again = match trains(plan, entry) && !plan.recompute {
        true => ", compile with `--recompute`, which saves memory in training steps,",
        false => "",
    };
    Err(error.help(format!("compute on less at a time{again} or allow more with `--max-memory`")))
}

/// Whether an entry may be a training step, or a worker's part of one.
fn trains(plan: &Plan, entry: &Entry) -> bool {
    let init = plan.init.and_then(|i| plan.entries.get(i as usize));
    let writes = !entry.writes.is_empty() && !init.is_some_and(|i| std::ptr::eq(i, entry));
    writes || matches!(Part::of(&entry.name), Some((_, Part::Gradients)))
}

/// The step at which most bytes of working memory are in use, and how many. Where one
/// tensor takes another's place within a step, the larger counts; a branch or a loop is
/// one step.
fn peak(entry: &Entry, values: &[i64]) -> Option<(usize, u64)> {
    let mut lives: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (at, step) in entry.steps.iter().enumerate() {
        step.buffers(&mut |buf, _| {
            lives.entry(buf).and_modify(|(_, last)| *last = at).or_insert((at, at));
        });
    }
    // By step and slot, what is there.
    let mut alive: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); entry.steps.len()];
    for (buf, (first, last)) in lives {
        let value = |e: u32| values.get(e as usize).map_or(0, |v| (*v).max(0) as u64);
        entry.in_slots(&entry.buffers[buf as usize], value, |slot, bytes| {
            for step in &mut alive[first..=last] {
                let most = step.entry(slot).or_default();
                *most = (*most).max(bytes);
            }
        });
    }
    let sums = alive.iter().map(|slots| slots.values().fold(0u64, |n, b| n.saturating_add(*b)));
    // The first of equals.
    sums.enumerate().rev().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
}
