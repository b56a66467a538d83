//! The state of a run between two steps.
//!
//! A step that waits for data can be stopped in the middle, when it has taken a
//! part of its elements and perhaps written some variables; the data may end or
//! turn out wrong there, or an `assert` or another check fail. What is saved then is what the last
//! whole step left: how far the data was used is noted before every step, and the
//! variables that a step may write before such a place are copied. Most entries
//! wait first and write last, and need no copies.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::tensor::TensorBuf;
use std::collections::BTreeSet;
use tfc_abi::plan::{Entry, Home, Step};

pub(super) struct Boundary {
    /// Variables to copy, and the copies.
    vars: Vec<(usize, Option<TensorBuf>)>,
    positions: Vec<(String, Vec<i64>)>,
}

impl Boundary {
    pub(super) fn new(model: &Model, entry: usize) -> Boundary {
        let vars = model.plan().entries.get(entry).map(written_before_a_wait).unwrap_or_default();
        let vars = vars.into_iter().map(|v| (v as usize, None)).collect();
        Boundary { vars, positions: vec![] }
    }

    /// Notes where the run is; a step begins.
    pub(super) fn mark(&mut self, model: &Model) -> Result<()> {
        for (var, copy) in &mut self.vars {
            *copy = Some(model.read_var(*var)?);
        }
        self.positions = model.queues().positions();
        Ok(())
    }

    /// Undoes what a step that was not finished did to variables.
    pub(super) fn go_back(&self, model: &Model) -> Result<()> {
        for (var, copy) in &self.vars {
            if let Some(copy) = copy {
                model.write_var(*var, copy.view())?;
            }
        }
        Ok(())
    }

    /// How far the data was used before the step.
    pub(super) fn positions(&self) -> &[(String, Vec<i64>)] {
        &self.positions
    }
}

/// Whether an error came from one of those places, so that going back leaves whole
/// steps.
pub(super) fn undone(e: &Error) -> bool {
    // Files that readers read; assertions, indices and losses; queues and
    // readers; other processes.
    let code = e.code().number();
    matches!(code, 804 | 511 | 512 | 514 | 515 | 519 | 509 | 510 | 533 | 535 | 560..=571 | 701..=704)
}

/// Variables that may have been written when a call waits for a queue, finds that
/// its input has ended, or fails.
fn written_before_a_wait(entry: &Entry) -> BTreeSet<u32> {
    let mut walk = Walk { entry, touched: BTreeSet::new(), at_risk: BTreeSet::new() };
    walk.steps(&entry.steps);
    walk.at_risk
}

struct Walk<'a> {
    entry: &'a Entry,
    touched: BTreeSet<u32>,
    at_risk: BTreeSet<u32>,
}

impl Walk<'_> {
    fn steps(&mut self, steps: &[Step]) {
        steps.iter().for_each(|s| self.step(s));
    }

    /// What a kernel does with a buffer the plan does not say: one that it has
    /// and the entry writes, it may write.
    fn touch(&mut self, bufs: &[u32]) {
        for b in bufs {
            if let Some(Home::Var(v)) = self.entry.buffers.get(*b as usize).map(|b| b.home)
                && self.entry.writes.contains(&v)
            {
                self.touched.insert(v);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Launch(l) => self.touch(&l.bufs),
            Step::MatMul(m) => {
                self.touch(&[m.c]);
                self.touch(m.epilogue.as_ref().map_or(&[], |e| &e.bufs));
            }
            Step::Conv(c) => {
                self.touch(&[c.out]);
                self.touch(c.epilogue.as_ref().map_or(&[], |e| &e.bufs));
            }
            Step::Copy { dst, .. } | Step::Pop { dst, .. } => self.touch(&[*dst]),
            Step::Assert { .. }
            | Step::CheckIndex(_)
            | Step::CheckFinite(_)
            | Step::Save { .. } => self.at_risk.extend(&self.touched),
            Step::Restore { buf, .. } => {
                self.at_risk.extend(&self.touched);
                self.touch(&[*buf]);
            }
            Step::Call(c) => {
                // What it refuses, it refuses before the first write.
                if c.func.signature().may_fail {
                    self.at_risk.extend(&self.touched);
                }
                self.touch(&c.bufs);
            }
            Step::If { then, otherwise, .. } => {
                self.steps(then);
                self.steps(otherwise);
            }
            Step::While { head, body, .. } => {
                // Twice: what the end of the body writes, its start waits after.
                for _ in 0..2 {
                    self.steps(head);
                    self.steps(body);
                }
            }
            Step::Exchange(x) => {
                self.touch(&x.bufs);
                self.at_risk.extend(&self.touched);
            }
            Step::Send(m) | Step::Recv(m) => {
                self.touch(m.buf.as_slice());
                self.at_risk.extend(&self.touched);
            }
            Step::Queue(q) if q.action.takes() || q.action.gives() => {
                // A reader may end in the middle of a batch.
                self.touch(&q.bufs);
                self.at_risk.extend(&self.touched);
            }
            _ => {}
        }
    }
}
