//! Exchanges that go on beside the steps of a call.
//!
//! A call *begins* an exchange when its tensors are computed, and *finishes* it where
//! they are used. In between, a thread of the group carries it out; whoever finishes one
//! that nobody has started yet does so itself. Exchanges run one at a time, in the order
//! they were begun in.
//!
//! Invariants
//! - After [`Beside::finish`] nothing of the exchange runs any more, whether it failed or
//!   not.
//! - After one has failed none is started, and all that are finished later fail with the
//!   same error: no tensor is taken for combined that is not.

use crate::error::{Error, ErrorCode, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

type Task = Box<dyn FnOnce() -> Result<()> + Send>;

/// An exchange that was begun: its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Begun(u64);

#[derive(Default)]
struct Desk {
    waiting: VecDeque<Task>,
    /// Somebody is at one of them.
    busy: bool,
    begun: u64,
    done: u64,
    failed: Option<Error>,
    over: bool,
}

#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct Beside {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        self.changed.wait(desk).unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out the next one, which nobody is at.
    fn one<'a>(&'a self, mut desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        let Some(task) = desk.waiting.pop_front() else { return desk };
        desk.busy = true;
        drop(desk);
        let mut turn = Turn { shared: self, result: None };
        turn.result = Some(task());
        drop(turn);
        self.lock()
    }

    fn run(&self) {
        let mut desk = self.lock();
        while !desk.over {
            desk = match desk.busy || desk.waiting.is_empty() {
                true => self.wait(desk),
                false => self.one(desk),
            };
        }
    }
}

/// Somebody is at a task. At its end the others hear of it, also when it panics.
struct Turn<'a> {
    shared: &'a Shared,
    result: Option<Result<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut desk = self.shared.lock();
        desk.busy = false;
        desk.done += 1;
        match self.result.take() {
            Some(Ok(())) => {}
            Some(Err(e)) => desk.fail(e),
            None => desk.fail(Error::bug("an exchange ended in a panic")),
        }
        self.shared.changed.notify_all();
    }
}

impl Desk {
    /// What was to come later is not done at all.
    fn fail(&mut self, why: Error) {
        self.done += self.waiting.drain(..).count() as u64;
        self.failed.get_or_insert(why);
    }
}

impl Beside {
    /// Puts an exchange in line; if it is not `at_once` needed, a thread sees to it.
    pub(super) fn begin(&self, task: Task, at_once: bool) -> Begun {
        let mut desk = self.shared.lock();
        desk.begun += 1;
        let begun = Begun(desk.begun);
        match desk.failed {
            Some(_) => desk.done += 1,
            None => desk.waiting.push_back(task),
        }
        drop(desk);
        if !at_once {
            self.wake();
        }
        begun
    }

    fn wake(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new().name("tfc-exchange".into());
            // Without a thread, whoever finishes an exchange does it.
            *thread = started.spawn(move || shared.run()).ok();
        }
        self.shared.changed.notify_all();
    }

    /// Waits until an exchange and all before it are done, or does them.
    pub(super) fn finish(&self, until: Begun) -> Result<()> {
        let mut desk = self.shared.lock();
        while desk.done < until.0 {
            desk = match desk.busy || desk.waiting.is_empty() {
                true => self.shared.wait(desk),
                false => self.shared.one(desk),
            };
        }
        desk.failed.clone().map_or(Ok(()), Err)
    }

    /// What failed is over, and exchanges are begun again.
    pub(super) fn forgive(&self) {
        self.shared.lock().failed = None;
    }

    pub(super) fn is_done(&self, begun: Begun) -> bool {
        self.shared.lock().done >= begun.0
    }

    /// Drops what is not started, and waits for what is.
    pub(super) fn abandon(&self, until: Begun) {
        let mut desk = self.shared.lock();
        if desk.done < until.0 {
            let why = "this process gave up a step while it exchanged tensors with others";
            desk.fail(Error::peer(ErrorCode::PEER_LOST, why));
        }
        while desk.done < until.0 {
            desk = self.shared.wait(desk);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // It has nothing to say: what failed is in the desk.
        let _ = thread.map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;

    #[test]
    fn exchanges_run_in_order_whoever_does_them() {
        for at_once in [false, true] {
            let beside = Beside::default();
            let (give, take) = channel();
            let begun: Vec<Begun> = (0..100)
                .map(|i| {
                    let give = give.clone();
                    beside.begin(
                        Box::new(move || {
                            give.send(i).unwrap();
                            Ok(())
                        }),
                        at_once,
                    )
                })
                .collect();
            beside.finish(begun[50]).unwrap();
            assert!(take.try_iter().count() > 50);
            beside.finish(begun[99]).unwrap();
            drop((beside, give));
            assert!(take.try_iter().is_sorted());
        }
    }

    #[test]
    fn after_a_failure_nothing_is_started() {
        for at_once in [false, true] {
            let beside = Beside::default();
            let good = beside.begin(Box::new(|| Ok(())), at_once);
            beside.finish(good).unwrap();
            beside.begin(Box::new(|| Err(Error::bug("lost"))), at_once);
            let later: Vec<Begun> = (0..3)
                .map(|_| beside.begin(Box::new(|| unreachable!("after a failure")), at_once))
                .collect();
            for begun in later {
                assert!(beside.finish(begun).unwrap_err().to_string().contains("lost"));
            }
        }
    }

    #[test]
    fn what_is_given_up_does_not_run_later() {
        let beside = Beside::default();
        let (give, take) = channel::<()>();
        let running = beside.begin(
            Box::new(move || {
                take.recv().unwrap();
                Ok(())
            }),
            false,
        );
        let waiting = beside.begin(Box::new(|| unreachable!("it was given up")), false);
        while !beside.shared.lock().busy {
            std::thread::yield_now();
        }
        std::thread::scope(|s| {
            s.spawn(|| beside.abandon(waiting));
            give.send(()).unwrap();
        });
        assert!(beside.shared.lock().done == waiting.0 && running < waiting);
    }

    #[test]
    fn a_panic_is_no_hang() {
        let beside = Beside::default();
        let begun = beside.begin(Box::new(|| panic!("on purpose")), false);
        // Whoever does it: the thread, or this one.
        let first = catch_unwind(AssertUnwindSafe(|| beside.finish(begun)));
        assert!(!matches!(first, Ok(Ok(()))));
        assert!(beside.finish(begun).is_err());
    }
}
