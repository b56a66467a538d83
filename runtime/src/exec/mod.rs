//! Calls: from feeds to results.
//!
//! | file | job |
//! |---|---|
//! | [`context`] | binds the dims of a call, lays out its memory |
//! | [`idle`] | keeps contexts between calls |
//! | [`schedule`] | at these dims: which steps run side by side, which get all threads |
//! | [`frame`] | carries out a step that computes, on its device |
//! | [`group`] | runs small steps at the same time |
//! | [`batch`] | hands steps to devices besides the CPU, all between two of the CPU's at once |
//! | [`exchange`] | begins exchanges with other processes, and waits for them |
//! | [`step`] | all other steps: what the graph shows, checks, keeps and waits for |
//!
//! A call takes its variables, goes through the stages of its schedule, and gives
//! the variables back ([`Run`]).
//!
//! Invariants, established by `prepare` and `place` and relied upon by every
//! step
//! - `values[e]` is the value of expression `e` under `dims`.
//! - `ptrs[b]` is valid for `lens[b]` elements of buffer `b`'s dtype, and aligned
//!   to them.
//! - Every contraction, copy and call stays inside its buffers (`geometry`).
//! - Steps that run at the same time do not wait for each other by the plan, and
//!   a checked plan has all conflicting steps wait for each other.

mod batch;
mod context;
mod exchange;
mod frame;
mod group;
mod idle;
mod schedule;
mod step;

pub use context::Context;
pub(crate) use idle::Idle;

use crate::call::CallOptions;
use crate::error::{Error, ErrorCode, Result};
use crate::mem::Bytes;
use crate::model::{EntryState, Model};
use crate::net::Begun;
use crate::profile::{Profile, Sizes};
use crate::state::Held;
use frame::Frame;
use schedule::{Schedule, Stage};
use std::sync::Arc;
use std::time::Instant;
use tfc_abi::plan::{Entry, Step, Steps};

/// One call in progress.
pub(crate) struct Run<'a> {
    model: &'a Model,
    entry: &'a Entry,
    ctx: &'a mut Context,
    state: &'a EntryState,
    options: &'a CallOptions,
    /// The entry's variables; given back while the call waits for a queue.
    held: Option<Held<'a>>,
    /// What it reads instead, if it may.
    _images: Vec<Arc<Bytes>>,
    /// There is something to look out for.
    may_stop: bool,
    /// It has written variables since it took them.
    dirty: bool,
    /// The variables it writes as they were when it took them, in case they have
    /// to be put back.
    undo: Vec<Bytes>,
    /// Exchanges that go on, of the list it is at and the lists around it.
    begun: Vec<Begun>,
}

/// Gives the context its schedule back.
struct Lent<'r, 'a> {
    run: &'r mut Run<'a>,
    schedule: Option<Box<Schedule>>,
}

impl Drop for Lent<'_, '_> {
    fn drop(&mut self) {
        self.run.abandon();
        self.run.ctx.schedule = self.schedule.take();
    }
}

impl<'a> Run<'a> {
    #[inline]
    pub(crate) fn new(
        model: &'a Model,
        entry: &'a Entry,
        ctx: &'a mut Context,
        state: &'a EntryState,
        options: &'a CallOptions,
    ) -> Result<Run<'a>> {
        let may_stop = options.may_stop();
        if may_stop {
            options.check()?;
        }
        let mut run = Run {
            model,
            entry,
            ctx,
            state,
            options,
            held: None,
            _images: vec![],
            may_stop,
            dirty: false,
            undo: vec![],
            begun: vec![],
        };
        // Images are the CPU's; elsewhere a call takes its turn.
        if options.stale_ok && !state.vars.is_empty() && model.accelerator.is_none() {
            run.use_images()?;
        } else {
            run.hold()?;
        }
        Ok(run)
    }

    /// Takes the variables.
    #[inline]
    fn hold(&mut self) -> Result<()> {
        let (state, vars) = (self.state, &self.model.state);
        if state.vars.is_empty() {
            return Ok(());
        }
        self.held = Some(vars.hold(&state.reads, &state.writes, self.options)?);
        self.dirty = false;
        if self.ctx.moves != vars.moves() {
            self.ctx.point_at_vars(self.model, state, &[]);
        }
        if !state.writes.is_empty() && (state.restores || self.may_stop && state.loops) {
            for v in &state.writes {
                self.undo.push(Bytes::from_slice(&vars.contents(*v as usize)?)?);
            }
        }
        Ok(())
    }

    /// Puts the variables back to where they were when they were taken.
    fn revert(&mut self) {
        if self.held.is_none() {
            return;
        }
        let vars = &self.model.state;
        for (v, old) in self.state.writes.iter().zip(self.undo.drain(..)) {
            // Of a device that fails there is nothing to put back.
            let _ = vars.put(*v as usize, &old);
        }
    }

    #[cold]
    fn use_images(&mut self) -> Result<()> {
        let state = self.state;
        if !state.writes.is_empty() {
            let message =
                format!("`{}` writes variables: it cannot run on old ones", self.entry.name);
            return Err(Error::usage(ErrorCode::STALE_WRITER, message)
                .help("call it without `stale_ok`; only entries that write nothing may run so"));
        }
        self._images = self.model.state.images(&state.reads, self.options)?;
        self.ctx.point_at_vars(self.model, state, &self._images);
        Ok(())
    }

    /// Runs all steps.
    #[inline]
    pub(crate) fn all(&mut self) -> Result<()> {
        // Out of the context while it is gone through, so that steps may change
        // the rest; back again also when one panics.
        let schedule = self.ctx.schedule.take();
        let lent = Lent { run: self, schedule };
        match &lent.schedule {
            Some(schedule) => lent.run.list(&lent.run.entry.steps, schedule),
            None => Err(Error::bug("a call without a schedule")),
        }
    }

    /// Whether to stop here: as long as nothing is written, or what is can be
    /// put back.
    #[inline]
    fn check_stop(&mut self) -> Result<()> {
        if !self.may_stop || self.dirty && self.undo.is_empty() {
            return Ok(());
        }
        self.options.check().inspect_err(|_| self.revert())
    }

    fn list(&mut self, steps: &Steps, schedule: &Schedule) -> Result<()> {
        let outer = self.begun.len();
        for (at, stage) in schedule.stages.iter().enumerate() {
            self.check_stop()?;
            self.finish(outer, schedule.waits[at])?;
            match stage {
                Stage::One(i) => {
                    let i = *i as usize;
                    let started = self.clock();
                    self.dirty |= schedule.steps[i].writes_variables;
                    match frame::computes(&steps[i]) {
                        true => self.frame().step(&steps[i], &schedule.steps[i])?,
                        false => self.step(&steps[i])?,
                    }
                    self.ended(&steps[i], started);
                }
                Stage::Group(group) => {
                    self.dirty |= group.writes_variables;
                    let frame = self.frame();
                    let ended = self.recorder();
                    group.run(&self.model.pool, &|i| {
                        let (step, info) = (&steps[i as usize], &schedule.steps[i as usize]);
                        let Some((profile, sizes)) = ended else { return frame.step(step, info) };
                        let started = Instant::now();
                        let result = frame.step(step, info);
                        profile.record(step, sizes, started);
                        result
                    })?;
                }
                Stage::Exchange(i, detour) => {
                    let i = *i as usize;
                    let Step::Exchange(x) = &steps[i] else { continue };
                    let own = schedule.steps[i].exchanges + 1;
                    let next = schedule.waits.get(at + 1).is_none_or(|first| *first >= own);
                    self.begin(&steps[i], x, next, detour)?;
                }
                Stage::Elsewhere(batch) => {
                    self.dirty |= batch.writes_variables;
                    batch.run(self, steps)?;
                }
                Stage::Inner(i, inner) => {
                    self.control(&steps[*i as usize], inner)?;
                }
            }
        }
        let all = self.begun.len() - outer;
        self.finish(outer, all as u32)?;
        self.begun.truncate(outer);
        Ok(())
    }

    /// When a step begins, if that is of interest.
    #[inline]
    fn clock(&self) -> Option<Instant> {
        self.options.profile.is_some().then(Instant::now)
    }

    #[inline]
    fn ended(&self, step: &Step, started: Option<Instant>) {
        if let (Some(started), Some((profile, sizes))) = (started, self.recorder()) {
            profile.record(step, sizes, started);
        }
    }

    /// Where the call leaves what steps took, if it does, and what to tell of them.
    #[inline]
    fn recorder(&self) -> Option<(&Profile, Sizes<'_>)> {
        let profile = self.options.profile.as_deref()?;
        let (plan, entry) = (self.model.plan(), self.entry);
        Some((profile, Sizes { plan, entry, values: &self.ctx.values, lens: &self.ctx.lens }))
    }

    #[inline]
    fn frame(&self) -> Frame<'_> {
        // Images are of versions of their own.
        let steady = if self.held.is_some() { &*self.state.steady } else { &[] };
        Frame::new(self.model, self.entry, self.ctx, steady)
    }

    fn control(&mut self, step: &Step, [a, b]: &[Schedule; 2]) -> Result<()> {
        match step {
            Step::If { cond, then, otherwise } => match self.truth(*cond)? {
                true => self.list(then, a),
                false => self.list(otherwise, b),
            },
            Step::While { head, cond, body } => loop {
                self.check_stop()?;
                self.list(head, a)?;
                if !self.truth(*cond)? {
                    return Ok(());
                }
                self.list(body, b)?;
            },
            _ => Err(context::inconsistent(self.entry, "a step has lists that it cannot have")),
        }
    }
}
