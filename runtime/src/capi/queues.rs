//! Queues, readers and the runners that fill them.
//!
//! A call starts the runners it needs, as a program does: none waits for what
//! nobody brings. They go on until the model is freed or they are stopped; after
//! that the next call starts them again.

use super::call::{dtype_of, memory, with_feeds};
use super::{Handle, Tensor, guard, items, limit, model, null, number, text};
use crate::error::{Error, Result, closest, list};
use crate::model::Model;
use crate::queue::Queue;
use crate::queue::runners::{self, Runners};
use crate::tensor::type_text;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};
use tfc_abi::plan::Part;

/// The runners of a model that are at work.
pub struct Working {
    /// What each entry, and whoever takes from each queue, needs.
    entries: Vec<Vec<usize>>,
    queues: Vec<Vec<usize>>,
    started: Mutex<Started>,
}

#[derive(Default)]
struct Started {
    which: BTreeSet<usize>,
    /// All in one: they stop together, for stopping one stops all queues.
    threads: Option<Runners>,
}

impl Working {
    pub fn new(model: &Model) -> Working {
        let plan = model.plan();
        Working {
            entries: (0..plan.entries.len()).map(|e| runners::needed(plan, e)).collect(),
            queues: (0..plan.queues.len()).map(|q| runners::fillers(plan, q)).collect(),
            started: Mutex::default(),
        }
    }

    /// Starts what an entry needs and what is not at work yet.
    pub fn start(&self, model: &Arc<Model>, entry: usize) -> Result<()> {
        self.start_all(model, self.entries.get(entry).map_or(&[], |e| e))
    }

    fn start_all(&self, model: &Arc<Model>, needed: &[usize]) -> Result<()> {
        if needed.is_empty() {
            return Ok(());
        }
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<usize> =
            needed.iter().copied().filter(|r| !started.which.contains(r)).collect();
        if !new.is_empty() {
            started.threads.get_or_insert_with(|| Runners::none(model)).add(&new)?;
            started.which.extend(new);
        }
        Ok(())
    }

    /// Stops all and waits for them; the error of the first that failed.
    pub fn stop(&self) -> Result<()> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.which.clear();
        started.threads.take().map_or(Ok(()), Runners::finish)
    }
}

/// Number of the queue or reader of this name, or -1.
///
/// # Safety
/// `handle` is live, `name` a string.
pub unsafe extern "C" fn queue_index(handle: *const Handle, name: *const c_char) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let (m, name) = unsafe { (model(handle)?, text(name, "the name")?) };
        let queues = m.model.queues().list();
        let names = || queues.iter().map(|q| q.info().name.as_str());
        let unknown = || {
            let e = Error::usage("E0570", format!("there is no queue `{name}`"));
            match closest(name, names()) {
                Some(near) => e.help(format!("did you mean `{near}`?")),
                None if queues.is_empty() => e.note("the graph has no queues"),
                None => e.note(format!("there are {}", list(names()))),
            }
        };
        Ok(names().position(|n| n == name).ok_or_else(unknown)? as c_int)
    })
}

fn queue(m: &Handle, queue: c_int) -> Result<&Queue> {
    let found = usize::try_from(queue).ok().and_then(|i| m.model.queues().list().get(i));
    found.ok_or_else(|| Error::usage("E0570", format!("there is no queue number {queue}")))
}

/// Puts an element into a queue, waiting while that is full.
///
/// # Safety
/// `handle` is live; `parts` has `count` tensors as large as they say.
pub unsafe extern "C" fn queue_put(
    handle: *const Handle,
    index: c_int,
    parts: *const super::Feed,
    count: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let m = unsafe { model(handle) }?;
        let q = queue(m, index)?;
        if q.is_reader() {
            let message = format!("`{}` is a reader: its records come from files", q.info().name);
            return Err(Error::usage("E0569", message));
        }
        // SAFETY: as above.
        unsafe {
            with_feeds(parts, count, |views| {
                let wanted = &q.info().parts;
                let fits = |(v, p): (&crate::FeedView<'_>, &Part)| {
                    v.dtype == p.dtype && v.shape.iter().map(|d| *d as i64).eq(p.shape.clone())
                };
                if views.len() != wanted.len() || !views.iter().zip(wanted).all(fits) {
                    let given: Vec<String> = views.iter().map(|v| v.type_text()).collect();
                    return Err(no_element(q).note(format!("given was ({})", given.join(", "))));
                }
                let bytes: Vec<&[u8]> = views.iter().map(|v| v.data).collect();
                if wanted.iter().zip(&bytes).any(|(p, b)| p.bytes() != Some(b.len())) {
                    return Err(no_element(q).note("the memory given is too small"));
                }
                q.put(&bytes, &limit::options())
            })
        }
    })
}

fn no_element(q: &Queue) -> Error {
    let sizes = |p: &Part| p.shape.iter().map(|d| *d as usize).collect::<Vec<_>>();
    let parts: Vec<String> = q.info().parts.iter().map(|p| type_text(p.dtype, &sizes(p))).collect();
    Error::data("E0569", format!("this is not an element of `{}`", q.info().name))
        .note(format!("its elements are ({})", parts.join(", ")))
}

/// Takes `count` elements, waiting for them: of each part so many side by side.
/// Nothing is taken when fewer are left; then the status is [`super::END`].
///
/// # Safety
/// `handle` is live; `parts` has `part_count` tensors as large as they say.
pub unsafe extern "C" fn queue_take(
    handle: *const Handle,
    index: c_int,
    count: usize,
    parts: *mut Tensor,
    part_count: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let m = unsafe { model(handle) }?;
        let q = queue(m, index)?;
        // SAFETY: as above.
        let parts = unsafe { items(parts.cast_const(), part_count, "the array of parts") }?;
        let wanted = &q.info().parts;
        if parts.len() != wanted.len() {
            return Err(no_element(q).note(format!("given was memory for {part_count} parts")));
        }
        for (t, p) in parts.iter().zip(wanted) {
            let need = p.bytes().and_then(|b| b.checked_mul(count)).unwrap_or(usize::MAX);
            if dtype_of(t.dtype)? != p.dtype || t.bytes < need {
                return Err(
                    no_element(q).note(format!("the memory given does not hold {count} of them"))
                );
            }
            if need > 0 && t.data.is_null() {
                return Err(null("the memory for a part"));
            }
        }
        m.runners.start_all(&m.model, &m.runners.queues[index as usize])?;
        // SAFETY: as above.
        let mut views = unsafe { memory(parts) };
        let places: Vec<_> =
            views.iter_mut().map(|v| (v.data.as_mut_ptr(), v.data.len())).collect();
        // SAFETY: each has room for so many elements, as was checked.
        unsafe { q.take(count, &places, &limit::options()) }
    })
}

/// Says that nothing more comes; what is in the queue can still be taken.
///
/// # Safety
/// `handle` is live.
pub unsafe extern "C" fn queue_close(handle: *const Handle, index: c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        queue(unsafe { model(handle) }?, index)?.close();
        Ok(())
    })
}

/// How many elements are in a queue, or -1.
///
/// # Safety
/// `handle` is live.
pub unsafe extern "C" fn queue_size(handle: *const Handle, index: c_int) -> i64 {
    // SAFETY: the caller's promise.
    number(|| Ok(queue(unsafe { model(handle) }?, index)?.len() as i64))
}

/// Where the reader of this name gets its records instead. To be called before
/// anything is read.
///
/// # Safety
/// `handle` is live, `reader` a string, `paths` an array of `count` strings.
pub unsafe extern "C" fn reader_paths(
    handle: *const Handle,
    reader: *const c_char,
    paths: *const *const c_char,
    count: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let (m, reader) = unsafe { (model(handle)?, text(reader, "the name")?) };
        // SAFETY: as above.
        let paths = unsafe { items(paths, count, "the array of paths") }?
            .iter()
            // SAFETY: as above.
            .map(|p| unsafe { text(*p, "a path") }.map(String::from))
            .collect::<Result<Vec<_>>>()?;
        m.model.queues().set_paths(reader, paths)
    })
}

/// Starts the runners an entry needs before its first call would.
///
/// # Safety
/// `handle` is live.
pub unsafe extern "C" fn runners_start(handle: *const Handle, entry: c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let m = unsafe { model(handle) }?;
        let entry = usize::try_from(entry).unwrap_or(usize::MAX);
        if m.model.plan().entries.get(entry).is_none() {
            return Err(Error::usage("E0911", format!("there is no entry number {entry}")));
        }
        m.runners.start(&m.model, entry)
    })
}

/// Stops all runners and waits for them. Calls that wait fail. The status is
/// that of the first runner that failed, if one did.
///
/// # Safety
/// `handle` is live.
pub unsafe extern "C" fn runners_stop(handle: *const Handle) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| unsafe { model(handle) }?.runners.stop())
}
