//! Who waits for whom: a program all of whose threads wait has come to a stop,
//! and says so instead of hanging.
//!
//! Everybody who uses the queues of a program alone (see [`Queues::use_alone`]) is
//! known: the runners at work, and the thread that calls entries. When the last
//! of them begins to wait and none of the things waited for is there, none will
//! ever be: nobody is left to bring it.
//!
//! Invariant: the crowd's lock is taken before a queue's, never while one is held.

use super::{Queue, Queues};
use crate::call::CallOptions;
use crate::error::{Error, Result, list};
use std::sync::{Mutex, PoisonError};

/// Somebody about to wait.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'a> {
    /// The entry or runner.
    pub entry: &'a str,
    pub runner: bool,
    /// Where in the source, if known.
    pub place: &'a str,
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    Elements(usize),
    Room,
}

#[derive(Default)]
pub(super) struct Crowd(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    alone: bool,
    runners: usize,
    waiting: Vec<Waiting>,
    next: u64,
}

struct Waiting {
    id: u64,
    queue: usize,
    want: Want,
    entry: String,
    runner: bool,
    place: String,
}

impl Crowd {
    pub(super) fn use_alone(&self) {
        self.lock().alone = true;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// Waits until what is wanted of a queue may be there.
    pub fn wait(
        &self,
        queue: usize,
        want: Want,
        who: &Waiter<'_>,
        options: &CallOptions,
    ) -> Result<()> {
        let q = self.get(queue)?;
        let mut crowd = self.crowd.lock();
        let mut id = None;
        if crowd.alone {
            crowd.next += 1;
            id = Some(crowd.next);
            let waiting = Waiting {
                id: crowd.next,
                queue,
                want,
                entry: who.entry.to_owned(),
                runner: who.runner,
                place: who.place.to_owned(),
            };
            crowd.waiting.push(waiting);
            self.look(&crowd);
        }
        drop(crowd);
        let result = match want {
            Want::Elements(count) => q.wait_to_take(count, options),
            Want::Room => q.wait_to_put(who.runner, options),
        };
        if id.is_some() {
            self.crowd.lock().waiting.retain(|w| Some(w.id) != id);
        }
        result
    }

    /// Notes that a runner is at work, or no more.
    pub(super) fn runner(&self, starts: bool) {
        let mut crowd = self.crowd.lock();
        if starts {
            crowd.runners += 1;
        } else {
            crowd.runners = crowd.runners.saturating_sub(1);
            self.look(&crowd);
        }
    }

    /// Stops the queues if everybody waits for what nobody is left to bring.
    fn look(&self, crowd: &Inner) {
        // The runners, and the thread that calls.
        if !crowd.alone || crowd.waiting.len() <= crowd.runners {
            return;
        }
        // One that was woken, but has not come back yet, will go on. Those who take
        // first: what they drop of a resumed run makes room.
        let stuck = |w: &&Waiting| self.list.get(w.queue).is_some_and(|q| q.stuck(w.want));
        let (put, take): (Vec<&Waiting>, Vec<&Waiting>) =
            crowd.waiting.iter().partition(|w| w.want == Want::Room);
        if take.iter().all(stuck) && put.iter().all(stuck) {
            self.stop(&self.standstill(&crowd.waiting));
        }
    }

    fn standstill(&self, waiting: &[Waiting]) -> Error {
        let callers = waiting.iter().filter(|w| !w.runner);
        let runners = waiting.iter().filter(|w| w.runner);
        let sorted = || {
            let mut all: Vec<&Waiting> = callers.clone().chain(runners.clone()).collect();
            all.sort_by_key(|w| (w.runner, w.entry.clone(), w.queue));
            all
        };
        let names = list(sorted().iter().map(|w| w.entry.as_str()));
        let what = match waiting.len() {
            1 => format!("this would wait forever: nobody is left that {names} could wait for"),
            _ => format!("this would wait forever: {names} wait for each other"),
        };
        let mut e = Error::data("E0562", what);
        for w in sorted() {
            let who = if w.runner { "the runner " } else { "" };
            let q = &self.list[w.queue];
            let (name, len) = (&q.info.name, q.len());
            let holds = if len == 0 { "nothing".to_owned() } else { format!("{len}") };
            let want = match w.want {
                Want::Room => format!("room in `{name}`, which is full with {len}"),
                Want::Elements(1) => format!("an element of `{name}`, which holds {holds}"),
                Want::Elements(n) => format!("{n} elements of `{name}`, which holds {holds}"),
            };
            let at = if w.place.is_empty() { String::new() } else { format!(" at {}", w.place) };
            e = e.note(format!("{who}`{}` waits{at} for {want}", w.entry));
        }
        // A full queue that nobody empties is what most often is wrong.
        let full = waiting.iter().filter(|w| w.want == Want::Room).map(|w| w.queue);
        let nobody_takes = |q: &usize| {
            let taken = |w: &Waiting| w.queue == *q && matches!(w.want, Want::Elements(_));
            self.list[*q].lock().takers == 0 && !waiting.iter().any(taken)
        };
        match full.clone().find(nobody_takes) {
            Some(q) => {
                let name = &self.list[q].info.name;
                e.help(format!(
                    "take from `{name}` as often as it is filled, or fill it by a runner of its own"
                ))
            }
            None => e.help("an element must be in the circle before the first one is taken"),
        }
    }
}

impl Queue {
    /// Whether a wait for this would go on now.
    fn stuck(&self, want: Want) -> bool {
        let mut inner = self.lock();
        if inner.stopped.is_some() {
            return false;
        }
        match want {
            Want::Elements(count) => matches!(self.ready(&mut inner, count), Ok(false)),
            Want::Room => !inner.closed && inner.line.len() >= self.capacity,
        }
    }
}
