//! How a CPU runs the loops of a kernel: a table beside it.
//!
//! Kernel IR says which iterations are independent; here one loop of every nest is
//! chosen to run several of them side by side, and how many groups of them at once.
//! Whatever is chosen, the results have the same bits: a reduction keeps the partial
//! results that its loop's kind says.
//!
//! Every emitter for CPUs reads this table; a target with another kind of machine
//! has its own.

use std::collections::BTreeMap;
use std::fmt;
use tfc_kernel::order::runs_across;
use tfc_kernel::{GROUP, Kernel, Loop, LoopKind, LoopVar, PARTIALS, Stmt};

/// The vector loops of a kernel. Loops not in it run one iteration after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Iterations side by side in one group.
    pub lanes: u32,
    pub vectors: BTreeMap<LoopVar, Vector>,
}

/// How a vector loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// Groups of lanes in one iteration of the machine's loop.
    pub unroll: u32,
    /// Groups of lanes that hold the partial results of a reduction: all of them, or
    /// as many as a loop known to be short fills. 0 if nothing is reduced.
    pub accumulators: u32,
    /// The body is long: one group of it keeps the machine busy, and fills its
    /// registers.
    pub long: bool,
}

/// Elements of a window that is small.
const WINDOW: i64 = 128;

/// The weight of a body up to which several groups run side by side.
const SHORT: u32 = 32;

/// The weight of a body that only loads, combines and stores.
const TINY: u32 = 6;

/// Groups of a short body side by side.
pub(crate) const FEW: i64 = 4;

impl Schedule {
    /// For a machine with vectors of `lanes` values, at most [`PARTIALS`]. The kernel
    /// has its elementary functions expanded and its local buffers placed.
    pub fn new(kernel: &Kernel, lanes: u32) -> Schedule {
        let mut schedule = Schedule { lanes, vectors: BTreeMap::new() };
        schedule.choose_in(kernel, &kernel.body);
        schedule
    }

    /// How the loop runs, if it is a vector loop.
    pub fn vector(&self, var: LoopVar) -> Option<Vector> {
        self.vectors.get(&var).copied()
    }

    fn choose_in(&mut self, kernel: &Kernel, stmts: &[Stmt]) {
        for stmt in stmts {
            if let Stmt::Loop(l) = stmt {
                self.choose(kernel, l);
            }
        }
    }

    /// The innermost loop, or the one around it when that is the contiguous one
    /// (column reductions).
    fn choose(&mut self, kernel: &Kernel, l: &Loop) {
        let whole = |s: &Stmt| match s {
            Stmt::Loop(inner) => inner.kind == LoopKind::Reduce { partials: true },
            _ => false,
        };
        let chosen = if l.is_leaf() {
            // Terms that are combined in order are so in every vector too.
            let free = matches!(l.kind, LoopKind::Parallel | LoopKind::Reduce { partials: true });
            free && l.extent.as_const().is_none_or(|e| e >= GROUP)
        } else {
            (runs_across(kernel, l) && !l.body.iter().any(whole)) || (self.lanes > 4 && slides(l))
        };
        if chosen {
            let columns = !l.is_leaf() && runs_across(kernel, l);
            self.vectors.insert(l.var, self.plan(l, columns));
        } else {
            self.choose_in(kernel, &l.body);
        }
    }

    /// Short bodies need several groups to hide latency; long ones keep the machine
    /// busy alone and would only spill. Machines with vectors of 16 lanes have twice the
    /// registers.
    ///
    /// What goes down columns reads a piece of each row: the wider it is, the fewer times
    /// it goes over all pages. Half of the registers are accumulators then.
    fn plan(&self, l: &Loop, columns: bool) -> Vector {
        let weight = weight(&l.body);
        let lanes = i64::from(self.lanes);
        let mut unroll = match weight {
            0..=TINY
                if columns
                    && lanes >= 8
                    && l.extent.as_const().is_none_or(|n| n >= lanes * lanes) =>
            {
                lanes
            }
            0..=12 => FEW,
            13..=SHORT if lanes >= 16 => FEW,
            13..=SHORT => 2,
            _ => 1,
        };
        // A loop known to be short does not pay for code it never runs.
        if l.extent.as_const().is_some_and(|n| n < unroll * lanes) {
            unroll = 1;
        }
        let filled = match l.extent.as_const() {
            Some(n) if !l.ranged => (n / lanes).max(1),
            _ => PARTIALS,
        };
        let accumulators =
            if l.carried.is_empty() { 0 } else { filled.min((PARTIALS / lanes).max(1)) };
        Vector { unroll: unroll as u32, accumulators: accumulators as u32, long: weight > SHORT }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (var, v) in &self.vectors {
            write!(f, "{var}: {} lanes, {} at once", self.lanes, v.unroll)?;
            if v.accumulators > 0 {
                write!(f, ", {} accumulators", v.accumulators)?;
            }
            f.write_str(if v.long { ", long\n" } else { "\n" })?;
        }
        Ok(())
    }
}

/// Whether iterations go over windows that are small and lie one after the other
/// (pools): in vectors of results each step of a window is a few loads, where the
/// window itself is too small for vectors. Narrow vectors gain nothing: most of their
/// loads are made of single elements.
fn slides(l: &Loop) -> bool {
    fn small(stmts: &[Stmt], times: i64) -> bool {
        stmts.iter().all(|s| match s {
            Stmt::Loop(inner) => {
                let in_order = matches!(
                    inner.kind,
                    LoopKind::Reduce { partials: false } | LoopKind::Sequential
                );
                let times = inner.extent.as_const().map_or(i64::MAX, |n| n.saturating_mul(times));
                in_order && times <= WINDOW && small(&inner.body, times)
            }
            Stmt::Store { .. } => false,
            _ => true,
        })
    }
    let windows = l.body.iter().filter(|s| !matches!(s, Stmt::Store { .. }));
    let stored = l.body.iter().all(|s| match s {
        Stmt::Store { at, .. } => at.regs.is_empty() && at.stride(l.var).is_one(),
        _ => true,
    });
    let wide = l.extent.as_const().is_none_or(|n| n >= GROUP);
    let mut windows = windows.peekable();
    l.kind == LoopKind::Parallel
        && l.carried.is_empty()
        && wide
        && stored
        && windows.peek().is_some()
        && windows.all(|s| small(std::slice::from_ref(s), 1))
}

/// Statements of a body but constants, at any depth.
fn weight(stmts: &[Stmt]) -> u32 {
    stmts
        .iter()
        .map(|s| match s {
            Stmt::Const { .. } => 0,
            Stmt::Loop(l) => 1 + weight(&l.body),
            _ => 1,
        })
        .sum()
}
