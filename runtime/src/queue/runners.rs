//! Runners: entries that fill queues on threads of their own.
//!
//! A runner is called again and again until its own input ends; then the queues
//! it fills are closed, unless another runner still fills them. A runner that
//! fails stops all queues with its error, so whoever waits hears of it.
//!
//! Invariants
//! - Only the runners whose queues an entry needs are started, directly or
//!   through other runners.
//! - When [`Runners`] is gone, so are its threads.

use super::uses_queue;
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tfc_abi::plan::{Plan, QueueAction};

/// Runners at work; they stop when this is dropped.
pub struct Runners {
    model: Arc<Model>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// The runners an entry needs, by index, in the order of the plan.
pub fn needed(plan: &Plan, entry: usize) -> Vec<usize> {
    let taken = |q: &usize| takes(plan, entry, *q);
    closure(plan, (0..plan.queues.len()).filter(taken).collect())
}

/// The runners that fill a queue, directly or through other queues.
pub fn fillers(plan: &Plan, queue: usize) -> Vec<usize> {
    closure(plan, vec![queue])
}

fn takes(plan: &Plan, entry: usize, queue: usize) -> bool {
    let entry = plan.entries.get(entry);
    entry.is_some_and(|e| uses_queue(e, queue as u32, QueueAction::takes))
}

/// The runners that fill these queues, and those they take from in turn.
fn closure(plan: &Plan, mut open: Vec<usize>) -> Vec<usize> {
    let mut needed: Vec<usize> = vec![];
    while let Some(queue) = open.pop() {
        for (i, e) in plan.entries.iter().enumerate() {
            let fills = e.runner && uses_queue(e, queue as u32, QueueAction::gives);
            if fills && !needed.contains(&i) {
                needed.push(i);
                open.extend((0..plan.queues.len()).filter(|q| takes(plan, i, *q)));
            }
        }
    }
    needed.sort_unstable();
    needed
}

/// Whether an entry's input comes from runners or readers, so that calling it
/// again and again ends by itself.
pub fn streams(model: &Model, entry: usize) -> bool {
    let Some(e) = model.plan().entries.get(entry) else { return false };
    let takes = |q: usize| uses_queue(e, q as u32, QueueAction::takes);
    !needed(model.plan(), entry).is_empty()
        || model.queues().list().iter().enumerate().any(|(i, q)| q.is_reader() && takes(i))
}

/// Names of the readers an entry takes from, itself or through runners.
pub fn readers(model: &Model, entry: usize) -> Vec<String> {
    let plan = model.plan();
    let mut users = needed(plan, entry);
    users.push(entry);
    let users: Vec<_> = users.iter().filter_map(|u| plan.entries.get(*u)).collect();
    let queues = model.queues().list().iter().enumerate().filter(|(_, q)| q.is_reader());
    let taken = |i: usize| users.iter().any(|e| uses_queue(e, i as u32, QueueAction::takes));
    queues.filter(|(i, _)| taken(*i)).map(|(_, q)| q.info().name.clone()).collect()
}

impl Runners {
    /// Starts the runners an entry needs; none if it needs none.
    pub fn start(model: &Arc<Model>, entry: usize) -> Result<Runners> {
        let mut runners = Runners::none(model);
        runners.add(&needed(model.plan(), entry))?;
        Ok(runners)
    }

    /// No runners, for now.
    pub fn none(model: &Arc<Model>) -> Runners {
        Runners { model: model.clone(), threads: vec![], shared: Arc::default() }
    }

    /// Starts further runners, none of which is at work.
    pub fn add(&mut self, indices: &[usize]) -> Result<()> {
        for &i in indices {
            count(&self.model, i, true);
        }
        for (at, &i) in indices.iter().enumerate() {
            let (model, shared) = (self.model.clone(), self.shared.clone());
            let name = model.plan().entries[i].name.clone();
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                run(&model, i, &shared);
                count(&model, i, false);
            });
            match thread {
                Ok(thread) => self.threads.push(thread),
                Err(e) => {
                    indices[at..].iter().for_each(|i| count(&self.model, *i, false));
                    return Err(Error::io("E0571", format!("cannot start a runner: {e}")));
                }
            }
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Stops the runners and waits for them. Gives the error of the one that
    /// failed, if one did.
    pub fn finish(mut self) -> Result<()> {
        self.stop();
        match self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Tells the runners to stop but does not wait for them: one may be in the
    /// middle of a slow read. For processes that are about to end.
    pub fn leave(mut self) -> Result<()> {
        self.shared.stopping.store(true, Ordering::Release);
        self.model.queues().stop(&stopped());
        self.threads.clear();
        self.finish()
    }

    fn stop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.model.queues().stop(&stopped());
        for thread in self.threads.drain(..) {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
        self.model.queues().resume();
    }
}

impl Drop for Runners {
    fn drop(&mut self) {
        self.stop();
    }
}

fn stopped() -> Error {
    Error::data("E0571", "the runners were stopped")
}

/// Nobody wants more.
fn ended(e: &Error) -> bool {
    [ErrorCode::QUEUE_CLOSED, ErrorCode::RUNNERS_STOPPED].contains(&e.code())
}

/// Calls a runner until its input ends.
fn run(model: &Model, runner: usize, shared: &Shared) {
    while !shared.stopping.load(Ordering::Acquire) {
        match model.run(runner, &[], &mut []) {
            Ok(()) => {}
            // A queue that was closed wants no more: as good as an end.
            Err(e) if e.is_end_of_input() || ended(&e) => return,
            Err(e) => {
                let name = &model.plan().entries[runner].name;
                let e = e.note(format!("in the runner `{name}`"));
                model.queues().stop(&e);
                let mut failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(e);
                return;
            }
        }
    }
}

/// Notes that a runner is at work, or no more: the last one that fills a queue
/// closes it.
fn count(model: &Model, runner: usize, starts: bool) {
    let entry = &model.plan().entries[runner];
    for (i, q) in model.queues().list().iter().enumerate() {
        let fills = uses_queue(entry, i as u32, QueueAction::gives);
        let takes = uses_queue(entry, i as u32, QueueAction::takes);
        if q.is_reader() || !fills && !takes {
            continue;
        }
        let mut inner = q.lock();
        if starts {
            inner.fillers += usize::from(fills);
            inner.takers += usize::from(takes);
        } else {
            inner.fillers -= usize::from(fills);
            inner.takers -= usize::from(takes);
            inner.closed |= fills && inner.fillers == 0 && inner.stopped.is_none();
        }
        drop(inner);
        q.wake();
    }
    model.queues().runner(starts);
}
