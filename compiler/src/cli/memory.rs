//! `tfc inspect --memory`: the memory of a call, as a picture.
//!
//! Steps run from left to right; a slot of the arena is as high as it is large. A
//! rectangle is the life of a tensor: from the step that makes it to the last that uses
//! it. What is empty is memory that nothing needs at that time. A branch or a loop is
//! one step: all that it uses lives through it.

use crate::error::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use tfc_abi::plan::{Entry, ExprId, Home};
use tfc_ir::diag::Diag;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 48.0;
const COLORS: [&str; 6] = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2"];

/// The memory of one entry at given sizes.
pub struct Memory {
    steps: usize,
    /// Bytes of each slot.
    slots: Vec<i64>,
    lives: Vec<Life>,
}

/// One tensor in the arena.
#[derive(Debug, PartialEq)]
struct Life {
    /// What it takes of its first slot, and of those behind it.
    slot: usize,
    taken: Vec<i64>,
    /// Such as `f32[64, 10]`.
    ty: String,
    /// The steps that touch it first and last.
    first: usize,
    last: usize,
}

impl Life {
    fn bytes(&self) -> i64 {
        self.taken.iter().fold(0, |n, b| n.saturating_add(*b))
    }
}

impl Memory {
    /// `dims` has the sizes of all run-time dims, in the order of the plan.
    pub fn of(entry: &Entry, dims: &[i64]) -> Result<Memory> {
        let size = |id: ExprId| {
            let value = entry.exprs.get(id as usize).and_then(|e| e.eval(dims));
            value.ok_or_else(|| Diag::error("E0914", "these sizes are too large to count"))
        };
        let slots =
            entry.slots.iter().map(|s| size(*s)).collect::<std::result::Result<_, Diag>>()?;
        let mut touched: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (at, step) in entry.steps.iter().enumerate() {
            step.buffers(&mut |buf, _| {
                touched.entry(buf).and_modify(|(_, last)| *last = at).or_insert((at, at));
            });
        }
        let mut lives = vec![];
        for (buf, (first, last)) in touched {
            let buffer = &entry.buffers[buf as usize];
            let Home::Slot(slot, _) = buffer.home else { continue };
            let len = size(buffer.len)?;
            let value = |e| if e == buffer.len { len } else { size(e).unwrap_or(0) }.max(0) as u64;
            let mut taken = vec![];
            entry.in_slots(buffer, value, |_, bytes| taken.push(bytes as i64));
            let shape: Vec<String> = buffer
                .shape
                .iter()
                .map(|d| size(*d).map(|n| n.to_string()))
                .collect::<std::result::Result<_, Diag>>()?;
            lives.push(Life {
                slot: slot as usize,
                taken,
                ty: format!("{}[{}]", buffer.dtype, shape.join(", ")),
                first,
                last,
            });
        }
        Ok(Memory { steps: entry.steps.len(), slots, lives })
    }

    /// Bytes of all slots.
    pub fn total(&self) -> i64 {
        self.slots.iter().fold(0, |n, s| n.saturating_add(*s))
    }

    /// The most that is alive at one step, and that step: no plan can do with less. Where
    /// one tensor takes another's place within a step, the larger counts.
    pub fn peak(&self) -> (i64, usize) {
        let mut best = (0, 0);
        for step in 0..self.steps {
            let mut live: BTreeMap<usize, i64> = BTreeMap::new();
            for life in self.lives.iter().filter(|l| (l.first..=l.last).contains(&step)) {
                for (slot, bytes) in (life.slot..).zip(&life.taken) {
                    let most = live.entry(slot).or_default();
                    *most = (*most).max(*bytes);
                }
            }
            let all = live.values().fold(0i64, |n, b| n.saturating_add(*b));
            if all > best.0 {
                best = (all, step);
            }
        }
        best
    }
}

/// Entries with their memory, one below the other.
pub fn svg(entries: &[(String, Memory)]) -> String {
    let height = (TOP + HEIGHT + TOP) * entries.len().max(1) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        LEFT + WIDTH + 20.0
    );
    for (i, (name, memory)) in entries.iter().enumerate() {
        let top = (TOP + HEIGHT + TOP) * i as f64 + TOP;
        one(&mut out, name, memory, top);
    }
    out + "</svg>\n"
}

fn one(out: &mut String, name: &str, memory: &Memory, top: f64) {
    let total = memory.total();
    let across = |step: usize| LEFT + WIDTH * step as f64 / memory.steps.max(1) as f64;
    let tall = |bytes: i64| HEIGHT * bytes as f64 / total.max(1) as f64;
    let (peak, at) = memory.peak();
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}: {} in {} slots, {} alive at most \
         (step {at} of {})</text>",
        top - 16.0,
        escaped(name),
        bytes(total),
        memory.slots.len(),
        bytes(peak),
        memory.steps
    );
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#f2f2f2\"/>"
    );
    let mut starts = vec![];
    let mut below = 0.0;
    for size in &memory.slots {
        starts.push(top + below);
        below += tall(*size);
    }
    for (i, life) in memory.lives.iter().enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.2}\" fill=\"{}\" \
             stroke=\"white\" stroke-width=\"0.3\"><title>{}, {}, steps {} to {}</title></rect>",
            across(life.first),
            starts[life.slot],
            across(life.last + 1) - across(life.first),
            tall(life.bytes()),
            COLORS[i % COLORS.len()],
            life.ty,
            bytes(life.bytes()),
            life.first,
            life.last
        );
    }
    let x = (across(at) + across(at + 1)) / 2.0;
    let _ = writeln!(
        out,
        "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"black\" \
         stroke-dasharray=\"3 3\"/>",
        top + HEIGHT
    );
    for (text, y) in [(bytes(0), top + 10.0), (bytes(total), top + HEIGHT)] {
        let x = LEFT - 6.0;
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>");
    }
    let (x, y) = (LEFT + WIDTH, top + HEIGHT + 16.0);
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">steps</text>");
}

fn bytes(n: i64) -> String {
    super::inspect::bytes(n)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(slot: usize, bytes: i64, first: usize, last: usize) -> Life {
        Life { slot, taken: vec![bytes], ty: "f32[]".into(), first, last }
    }

    #[test]
    fn what_is_alive_at_once() {
        let lives =
            vec![life(0, 40, 0, 1), life(1, 100, 1, 1), life(0, 60, 2, 4), life(1, 8, 4, 5)];
        let memory = Memory { steps: 6, slots: vec![60, 100], lives };
        assert_eq!((memory.total(), memory.peak()), (160, (140, 1)));
        // In place: one slot at one step, counted once.
        let lives = vec![life(0, 40, 0, 1), life(0, 40, 1, 2)];
        assert_eq!(Memory { steps: 3, slots: vec![40], lives }.peak(), (40, 0));
        // One after the other within one step, where they have a slot in common.
        let two = |slot, taken: [i64; 2]| Life { taken: taken.to_vec(), ..life(slot, 0, 0, 0) };
        let lives = vec![two(0, [10, 20]), two(1, [20, 5])];
        assert_eq!(Memory { steps: 1, slots: vec![10, 20, 5], lives }.peak(), (35, 0));
        let lives = vec![life(0, 40, 0, 1), life(0, 40, 1, 2)];
        let memory = Memory { steps: 3, slots: vec![40], lives };
        let picture = svg(&[("a<b".into(), memory)]);
        assert!(picture.contains("a&lt;b: 40 B in 1 slots, 40 B alive at most"), "{picture}");
        assert_eq!(picture.matches("<title>").count(), 2);
    }
}
