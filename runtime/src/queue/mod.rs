//! Queues: where threads of a program hand elements to each other.
//!
//! An element is the bytes of its parts, one after the other. Which element is
//! next is [`tfc_abi::order`]'s; here are the waiting, the closing and the
//! stopping. A reader stands among the queues and is taken from like one.
//!
//! Invariants
//! - Waiting is on condition variables: a blocked program uses no processor.
//! - Taking a batch is one step: nobody gets a part of it, and what is too
//!   little for a batch stays in line.
//! - Every wait ends: with elements, with the end of the input (`E0560`), with
//!   the reason the queues were stopped for, or when the call is stopped. In a
//!   program, one such reason is that everybody waits (see [`waits`]).
//! - Nothing is written to a caller's memory before all of it is there.

pub mod replay;
pub mod runners;
mod waits;

use crate::call::{Bell, CallOptions};
use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::sandbox::Sandbox;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tfc_abi::order::Line;
use tfc_abi::plan::{Entry, Plan, QueueAction, QueueInfo, QueueKind, Step};
pub use waits::{Waiter, Want};

/// The queues and readers of a program, in the order of its plan.
pub struct Queues {
    list: Vec<Queue>,
    crowd: waits::Crowd,
    pipeline: replay::Pipeline,
}

pub struct Queue {
    info: QueueInfo,
    /// Bytes of each part.
    sizes: Vec<usize>,
    capacity: usize,
    core: Arc<Core>,
    /// Where records come from; its own lock, for reading takes long.
    reader: Option<Mutex<Reader>>,
    /// Who else uses it, for [`Queues::positions`].
    role: Role,
}

/// What calls wait at.
struct Core {
    inner: Mutex<Inner>,
    /// Something to take, or no more will come.
    filled: Condvar,
    /// Room, or no more is taken.
    emptied: Condvar,
}

impl Bell for Core {
    fn ring(&self) {
        drop(self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        self.filled.notify_all();
        self.emptied.notify_all();
    }
}

#[derive(Clone, Copy, Default)]
struct Role {
    runners_fill: bool,
    runners_take: bool,
}

struct Inner {
    line: Line<Box<[u8]>>,
    closed: bool,
    /// Why nobody waits any more.
    stopped: Option<Error>,
    /// Elements that were taken before the program was stopped and resumed.
    skip: u64,
    /// Runners at work that fill it, and that take from it.
    fillers: usize,
    takers: usize,
    /// Only runners and the calling thread use it: a wait for anybody else would
    /// never end.
    alone: bool,
    /// The fewest elements somebody waits for.
    wanted: usize,
}

/// Whether something was done, or would have to be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    Done,
    Wait,
}

/// Bytes of one part in the caller's memory: `count` elements side by side.
pub type PartBytes = (*mut u8, usize);

impl Queues {
    pub fn new(plan: &Plan, sandbox: &Sandbox) -> Result<Queues> {
        let uses = |queue: usize, what: fn(QueueAction) -> bool| {
            let runners = plan.entries.iter().filter(|e| e.runner);
            runners.into_iter().any(|e| uses_queue(e, queue as u32, what))
        };
        let list = plan
            .queues
            .iter()
            .enumerate()
            .map(|(i, info)| {
                let role = Role {
                    runners_fill: uses(i, QueueAction::gives),
                    runners_take: uses(i, QueueAction::takes),
                };
                Queue::new(info, role, sandbox)
            })
            .collect::<Result<Vec<_>>>()?;
        let pipeline = replay::Pipeline::new(plan);
        Ok(Queues { list, crowd: waits::Crowd::default(), pipeline })
    }

    pub fn list(&self) -> &[Queue] {
        &self.list
    }

    pub fn get(&self, queue: usize) -> Result<&Queue> {
        self.list.get(queue).ok_or_else(|| Error::bug(format!("there is no queue {queue}")))
    }

    pub fn find(&self, name: &str) -> Option<&Queue> {
        self.list.iter().find(|q| q.info.name == name)
    }

    /// Ends every wait with this error, now and from now on.
    pub fn stop(&self, why: &Error) {
        for q in &self.list {
            q.lock().stopped.get_or_insert_with(|| why.clone());
            q.wake();
        }
    }

    /// Lets waits be waits again.
    pub fn resume(&self) {
        self.list.iter().for_each(|q| q.lock().stopped = None);
    }

    /// Says that nobody but runners and the calling thread uses the queues: a
    /// wait that nobody could end becomes an error.
    pub fn use_alone(&self) {
        self.list.iter().for_each(|q| q.lock().alone = true);
        self.crowd.use_alone();
    }

    /// How far the data was used: for each reader that entries take from
    /// directly its epoch and record, for each queue that runners fill for
    /// entries how many elements were taken. Names are those of the graph.
    pub fn positions(&self) -> Vec<(String, Vec<i64>)> {
        let mut out = vec![];
        for q in self.list.iter().filter(|q| !q.role.runners_take) {
            let position = match &q.reader {
                Some(reader) => reader.lock().unwrap_or_else(PoisonError::into_inner).position(),
                None if q.role.runners_fill => {
                    let inner = q.lock();
                    vec![(inner.line.left() + inner.skip) as i64]
                }
                None => continue,
            };
            out.push((q.info.name.clone(), position));
        }
        out
    }

    /// Goes back to where [`Queues::positions`] were taken. Must be called while
    /// no runner runs: queues are emptied, and runners make again what is still
    /// needed (see [`replay`]): the very elements that would have come next, for
    /// the order of a pipeline does not depend on time.
    ///
    /// Names that are not queues of this program are ignored.
    pub fn set_positions(&self, positions: &[(String, Vec<i64>)]) -> Result<()> {
        self.set_positions_after(positions, &[])
    }

    /// As [`Queues::set_positions`], and so many elements further, by queue.
    pub fn set_positions_after(
        &self,
        positions: &[(String, Vec<i64>)],
        further: &[(usize, u64)],
    ) -> Result<()> {
        for q in &self.list {
            let mut inner = q.lock();
            inner.line.clear();
            inner.closed = false;
            inner.skip = 0;
            drop(inner);
            if let Some(reader) = &q.reader {
                reader.lock().unwrap_or_else(PoisonError::into_inner).rewind();
            }
        }
        if positions.is_empty() && further.is_empty() {
            return Ok(());
        }
        let mut taken: Vec<Option<u64>> = vec![None; self.list.len()];
        for (name, position) in positions {
            let Some(at) = self.list.iter().position(|q| q.info.name == *name) else { continue };
            let q = &self.list[at];
            match (&q.reader, position.as_slice()) {
                (Some(reader), [epoch, record]) if *epoch >= 0 && *record >= 0 => {
                    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                    reader.seek(*epoch as u64, *record as u64)?;
                }
                (None, [n]) if *n >= 0 => taken[at] = Some(*n as u64),
                _ => {
                    return Err(Error::data(
                        "E0568",
                        format!("the position {position:?} is not one of `{name}`"),
                    )
                    .note("the checkpoint was made by another program"));
                }
            }
        }
        for (at, more) in further.iter().filter(|(_, more)| *more > 0) {
            match &self.get(*at)?.reader {
                Some(reader) => {
                    reader.lock().unwrap_or_else(PoisonError::into_inner).advance(*more)?;
                }
                None => *taken[*at].get_or_insert(0) += more,
            }
        }
        self.go_on(&taken)
    }

    /// Where the reader of this name gets its records instead.
    pub fn set_paths(&self, name: &str, paths: Vec<String>) -> Result<()> {
        match self.find(name).and_then(|q| q.reader.as_ref()) {
            Some(reader) => reader.lock().unwrap_or_else(PoisonError::into_inner).set_paths(paths),
            None => {
                let readers = self.list.iter().filter(|q| q.reader.is_some());
                let names = crate::error::list(readers.map(|q| q.info.name.as_str()));
                Err(Error::usage("E0570", format!("there is no reader `{name}`"))
                    .note(format!("the readers are {names}")))
            }
        }
    }
}

impl Queue {
    fn new(info: &QueueInfo, role: Role, sandbox: &Sandbox) -> Result<Queue> {
        let sizes: Option<Vec<usize>> = info.parts.iter().map(|p| p.bytes()).collect();
        let sizes = sizes
            .ok_or_else(|| Error::bug(format!("elements of `{}` are too large", info.name)))?;
        let (capacity, reader) = match &info.kind {
            QueueKind::Fifo { capacity }
            | QueueKind::Priority { capacity }
            | QueueKind::Shuffle { capacity, .. } => (*capacity, None),
            QueueKind::Reader(r) => {
                let reader = Reader::new(&info.name, r, &info.parts, sandbox);
                (0, Some(Mutex::new(reader)))
            }
        };
        Ok(Queue {
            sizes,
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            core: Arc::new(Core {
                inner: Mutex::new(Inner {
                    line: Line::new(&info.kind),
                    closed: false,
                    stopped: None,
                    skip: 0,
                    fillers: 0,
                    takers: 0,
                    alone: false,
                    wanted: usize::MAX,
                }),
                filled: Condvar::new(),
                emptied: Condvar::new(),
            }),
            reader,
            role,
            info: info.clone(),
        })
    }

    pub fn info(&self) -> &QueueInfo {
        &self.info
    }

    pub fn is_reader(&self) -> bool {
        self.reader.is_some()
    }

    /// Elements in line.
    pub fn len(&self) -> usize {
        self.lock().line.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nothing more comes; what is in line can still be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake();
    }

    /// Takes `count` elements if they are there. Gives the bytes of the parts:
    /// for each part `count` elements side by side.
    ///
    /// # Safety
    /// Each place has room for `count` elements of its part.
    pub unsafe fn try_take(&self, count: usize, places: &[PartBytes]) -> Result<Turn> {
        // SAFETY: the caller's promise.
        unsafe { self.try_take_share(count, (0, 1), places) }
    }

    /// As [`Queue::try_take`], where `share.1` processes take `count` elements each, in
    /// the order of their ranks, out of queues that hold the same: those of others are
    /// dropped.
    ///
    /// # Safety
    /// As [`Queue::try_take`].
    pub unsafe fn try_take_share(
        &self,
        count: usize,
        share: (usize, usize),
        places: &[PartBytes],
    ) -> Result<Turn> {
        let (before, all) = (count * share.0, count * share.1);
        if let Some(reader) = &self.reader {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            let mut unused: Vec<Vec<u8>> = match share.1 {
                1 => vec![],
                _ => self.sizes.iter().map(|size| vec![0; *size]).collect(),
            };
            for i in 0..all {
                if !(before..before + count).contains(&i) {
                    let mut element: Vec<&mut [u8]> =
                        unused.iter_mut().map(|b| b.as_mut_slice()).collect();
                    if !reader.next(&mut element)? {
                        return Err(end_of_input(&self.info.name));
                    }
                    continue;
                }
                let i = i - before;
                let mut element: Vec<&mut [u8]> = places
                    .iter()
                    .zip(&self.sizes)
                    // SAFETY: the caller's promise; elements and parts are disjoint.
                    .map(|((ptr, _), size)| unsafe { bytes_at(*ptr, i * size, *size) })
                    .collect();
                if !reader.next(&mut element)? {
                    return Err(end_of_input(&self.info.name));
                }
            }
            return Ok(Turn::Done);
        }
        let mut inner = self.lock();
        inner.alive()?;
        if !self.ready(&mut inner, all)? {
            return Ok(Turn::Wait);
        }
        // Out of line first: copying is done without the lock.
        let elements: Vec<Box<[u8]>> = (0..all).map_while(|_| inner.line.pop()).collect();
        drop(inner);
        self.core.emptied.notify_all();
        for (i, element) in elements.iter().skip(before).take(count).enumerate() {
            let mut rest = &element[..];
            for ((ptr, _), size) in places.iter().zip(&self.sizes) {
                let (part, tail) = rest.split_at(*size);
                // SAFETY: the caller's promise.
                unsafe { bytes_at(*ptr, i * size, *size) }.copy_from_slice(part);
                rest = tail;
            }
        }
        Ok(Turn::Done)
    }

    /// Whether `count` elements can be taken; drops first what was taken before
    /// the program was resumed.
    fn ready(&self, inner: &mut Inner, count: usize) -> Result<bool> {
        while inner.skip > 0 && inner.line.ready(1, inner.closed) {
            inner.line.pop();
            inner.skip -= 1;
            self.core.emptied.notify_all();
        }
        if inner.skip == 0 && inner.line.ready(count, inner.closed) {
            return Ok(true);
        }
        if inner.closed {
            return Err(end_of_input(&self.info.name));
        }
        let most = inner.line.needed(count);
        if most > self.capacity {
            return Err(Error::data(
                "E0562",
                format!("`{}` can never hold {count} elements to take", self.info.name),
            )
            .note(format!(
                "its capacity is {}, and {most} would have to be there",
                self.capacity
            )));
        }
        Ok(false)
    }

    /// Waits until `count` elements may be there.
    pub fn wait_to_take(&self, count: usize, options: &CallOptions) -> Result<()> {
        let _watch = options.watch(&self.core);
        let mut inner = self.lock();
        loop {
            inner.alive()?;
            if self.ready(&mut inner, count)? {
                return Ok(());
            }
            if inner.alone && inner.fillers == 0 {
                return Err(self.without_end("has too few elements", "fills it"));
            }
            options.check()?;
            let needed = inner.line.needed(if inner.skip > 0 { 1 } else { count });
            inner.wanted = inner.wanted.min(needed);
            inner = options.wait(&self.core.filled, inner);
        }
    }

    /// Puts one element in line if there is room: its parts, as bytes.
    pub fn try_put(&self, parts: &[&[u8]]) -> Result<Turn> {
        let mut inner = self.lock();
        inner.alive()?;
        if inner.closed {
            return Err(self.is_closed());
        }
        if inner.line.len() >= self.capacity {
            return Ok(Turn::Wait);
        }
        let rank = match (&self.info.kind, parts.first().map(|p| <[u8; 8]>::try_from(*p))) {
            (QueueKind::Priority { .. }, Some(Ok(bytes))) => i64::from_ne_bytes(bytes),
            _ => 0,
        };
        inner.line.push(rank, parts.concat().into_boxed_slice());
        if inner.line.len() >= inner.wanted {
            inner.wanted = usize::MAX;
            drop(inner);
            self.core.filled.notify_all();
        }
        Ok(Turn::Done)
    }

    /// Waits until there may be room. A runner may wait for those who call.
    pub fn wait_to_put(&self, runner: bool, options: &CallOptions) -> Result<()> {
        let _watch = options.watch(&self.core);
        let mut inner = self.lock();
        loop {
            inner.alive()?;
            if inner.closed || inner.line.len() < self.capacity {
                return Ok(());
            }
            if inner.alone && !runner && inner.takers == 0 {
                return Err(self.without_end("is full", "takes from it"));
            }
            options.check()?;
            inner = options.wait(&self.core.emptied, inner);
        }
    }

    /// Takes elements, waiting for them. As [`Queue::try_take`] otherwise.
    ///
    /// # Safety
    /// As [`Queue::try_take`].
    pub unsafe fn take(
        &self,
        count: usize,
        places: &[PartBytes],
        options: &CallOptions,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.try_take(count, places) }? == Turn::Wait {
            self.wait_to_take(count, options)?;
        }
        Ok(())
    }

    /// Puts an element in line, waiting for room.
    pub fn put(&self, parts: &[&[u8]], options: &CallOptions) -> Result<()> {
        while self.try_put(parts)? == Turn::Wait {
            self.wait_to_put(false, options)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.core.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.core.filled.notify_all();
        self.core.emptied.notify_all();
    }

    fn is_closed(&self) -> Error {
        Error::data("E0561", format!("the queue `{}` is closed", self.info.name))
            .note("nothing can be put into it any more")
    }

    fn without_end(&self, state: &str, who: &str) -> Error {
        Error::data(
            "E0562",
            format!("this would wait forever: the queue `{}` {state}", self.info.name),
        )
        .note(format!("no runner that is still at work {who}"))
    }
}

impl Inner {
    fn alive(&self) -> Result<()> {
        match &self.stopped {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

/// What ends a run, rather than fails it.
pub fn end_of_input(name: &str) -> Error {
    Error::data("E0560", format!("the input from `{name}` has ended"))
}

/// Whether an entry does such a thing with a queue, in whichever branch.
pub(crate) fn uses_queue(entry: &Entry, queue: u32, what: fn(QueueAction) -> bool) -> bool {
    fn any(steps: &[Step], queue: u32, what: fn(QueueAction) -> bool) -> bool {
        steps.iter().any(|s| match s {
            Step::Queue(s) => s.queue == queue && what(s.action),
            Step::If { then, otherwise, .. } => {
                any(then, queue, what) || any(otherwise, queue, what)
            }
            Step::While { head, body, .. } => any(head, queue, what) || any(body, queue, what),
            _ => false,
        })
    }
    any(&entry.steps, queue, what)
}

/// # Safety
/// `ptr` has `offset + len` bytes that nobody else uses.
unsafe fn bytes_at<'a>(ptr: *mut u8, offset: usize, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(ptr.add(offset), len) }
}
