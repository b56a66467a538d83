//! The memory and the sizes of one call at a time.
//!
//! A [`Context`] is kept between calls, and as long as dims stay the same a call
//! neither allocates nor evaluates anything.

use super::schedule::{Arguments, Schedule};
use crate::bind::Binding;
use crate::budget;
use crate::device::Memory;
use crate::error::{Error, ErrorCode, Result};
use crate::geometry;
use crate::guard::{self, Guard};
use crate::mem::{Bytes, human_bytes};
use crate::model::{EntryState, FixedFeed, Model};
use crate::stack::{self, Stack};
use crate::tensor::{FeedView, ResultView, type_text};
use std::collections::BTreeMap;
use std::sync::Arc;
use tfc_abi::BUFFER_ALIGN;
use tfc_abi::plan::{DeviceId, Entry, HOST, Home, Port};

#[derive(Default)]
pub struct Context {
    binding: Binding,
    /// Dims `values` was computed for, when `ready`.
    pub(super) dims: Vec<i64>,
    ready: bool,
    pub(crate) values: Vec<i64>,
    /// Working memory, one for each device that has slots.
    arenas: Vec<Option<Box<dyn Memory>>>,
    /// In tests, instead of the arena: memory of its own for every size that
    /// buffers of a slot have (see [`crate::guard`]).
    guard: Guard,
    /// Whether devices exchanged tensors by themselves when the schedule was made.
    direct: bool,
    apart: BTreeMap<((u32, u32), usize), Bytes>,
    /// Bytes of the arenas in use, and for how many calls that was far less than
    /// they have.
    needed: usize,
    kept: usize,
    spare: Spare,
    /// [`crate::state::State::moves`] when the variables' pointers were taken.
    pub(super) moves: u64,
    pub(crate) stacks: Vec<Stack>,
    /// Where in the arena of its device each slot begins.
    slots: Vec<usize>,
    pub(crate) lens: Vec<usize>,
    pub(crate) ptrs: Vec<*mut u8>,
    /// Aligned copies of feeds that were not.
    copies: Vec<Bytes>,
    /// What runs when, at these dims; a call in progress has it.
    pub(super) schedule: Option<Box<Schedule>>,
    pub(super) arguments: Arguments,
}

// SAFETY: the pointers are only used during a call, by the thread that makes it
// and the pool it waits for; between calls they are stale and never read.
unsafe impl Send for Context {}

impl Context {
    /// Binds dims and, if they changed, sizes everything anew.
    #[inline]
    pub(crate) fn prepare(
        &mut self,
        model: &Model,
        index: usize,
        entry: &Entry,
        state: &EntryState,
        feeds: &[FeedView<'_>],
    ) -> Result<()> {
        let guard = guard::mode();
        self.ready &= self.guard == guard && self.direct == model.exchanges_by_gpus();
        if self.ready && state.fixed.as_ref().is_some_and(|fixed| fits(fixed, feeds)) {
            return Ok(());
        }
        self.bind(model, index, entry, state, feeds, guard)
    }

    #[inline(never)]
    fn bind(
        &mut self,
        model: &Model,
        index: usize,
        entry: &Entry,
        state: &EntryState,
        feeds: &[FeedView<'_>],
        guard: Guard,
    ) -> Result<()> {
        self.binding.bind(&model.plan, entry, &state.used_dims, feeds)?;
        if self.ready && self.dims == self.binding.dims {
            return Ok(());
        }
        self.guard = guard;
        self.ready = false;
        self.dims.clone_from(&self.binding.dims);
        self.values.clear();
        for e in &entry.exprs {
            let v = e.eval(&self.dims).ok_or_else(|| {
                Error::data("E0516", "these sizes are too large: a tensor's size overflows")
            })?;
            self.values.push(v);
        }
        // Before anything is sized: buffers may only make sense if these hold.
        for c in &entry.conditions {
            if self.values[c.value as usize] < 0 {
                return Err(self.binding.broken(&model.plan, entry, feeds, c));
            }
        }
        self.size_slots(model, entry, state)?;
        self.lens.clear();
        for b in &entry.buffers {
            // Sizes beside an empty axis are multiplied like any others.
            let mut sizes = b.shape.iter().map(|e| self.values[*e as usize].max(1) as usize);
            if sizes.try_fold(b.dtype.size(), usize::checked_mul).is_none() {
                let what = "these sizes are too large: a tensor's size overflows";
                return Err(Error::data("E0516", what));
            }
            let len = usize::try_from(self.values[b.len as usize])
                .map_err(|_| inconsistent(entry, "a buffer's size is negative"))?;
            self.lens.push(len);
        }
        stack::size(entry, &self.lens, &mut self.stacks);
        geometry::check(model, index, self).map_err(|what| inconsistent(entry, &what))?;
        self.ptrs.clear();
        self.ptrs.resize(entry.buffers.len(), std::ptr::null_mut());
        for (b, ptr) in entry.buffers.iter().zip(&mut self.ptrs) {
            *ptr = match b.home {
                // Where they are is known when the call has them.
                Home::Param(_) | Home::Result(_) | Home::Var(_) => std::ptr::null_mut(),
                Home::Const(c) => model.constant(b.device, c),
                Home::Slot(s, _) => match &self.arenas[b.device as usize] {
                    Some(arena) => arena.start().wrapping_add(self.slots[s as usize]),
                    None => std::ptr::null_mut(),
                },
            };
        }
        self.apart.clear();
        if guard != Guard::Off {
            self.set_apart(entry)?;
        }
        let buffers = entry.buffers.iter().zip(&self.lens);
        for (ptr, (b, _)) in self.ptrs.iter_mut().zip(buffers).filter(|(_, (_, len))| **len == 0) {
            *ptr = nothing(model, b.device);
        }
        self.arguments = Arguments::default();
        let (values, pool) = (&self.values, &*model.pool);
        self.direct = model.exchanges_by_gpus();
        let (direct, arguments) = (self.direct, &mut self.arguments);
        let schedule = Schedule::new(&entry.steps, entry, values, pool, direct, arguments);
        self.schedule = Some(Box::new(schedule));
        self.moves = u64::MAX;
        self.ready = true;
        Ok(())
    }

    /// Gives the buffers of slots pages of their own. Buffers that stand for one
    /// another have one size, and share them.
    fn set_apart(&mut self, entry: &Entry) -> Result<()> {
        for (i, b) in entry.buffers.iter().enumerate() {
            let Home::Slot(first, count) = b.home else { continue };
            if b.device != HOST {
                continue;
            }
            let key = ((first, count), self.lens[i] * b.dtype.size());
            if let std::collections::btree_map::Entry::Vacant(place) = self.apart.entry(key) {
                place.insert(Bytes::zeroed(key.1)?);
            }
            self.ptrs[i] = self.apart[&key].as_ptr();
        }
        Ok(())
    }

    /// Lays the slots out in the arenas and makes those large enough.
    fn size_slots(&mut self, model: &Model, entry: &Entry, state: &EntryState) -> Result<()> {
        budget::check(&model.plan, entry, &self.values)?;
        self.slots.clear();
        let mut totals = vec![0usize; model.plan.devices.len()];
        for (s, device) in entry.slots.iter().zip(&state.slot_devices) {
            let total = &mut totals[*device as usize];
            self.slots.push(*total);
            *total = usize::try_from(self.values[*s as usize])
                .ok()
                .and_then(|size| size.checked_next_multiple_of(BUFFER_ALIGN))
                .and_then(|size| total.checked_add(size))
                .ok_or_else(|| Error::data("E0516", "these sizes need too much memory"))?;
        }
        self.needed = totals.iter().fold(0, |sum, n| sum.saturating_add(*n));
        self.arenas.resize_with(totals.len(), || None);
        for ((arena, device), total) in self.arenas.iter_mut().zip(0u32..).zip(totals) {
            if arena.as_ref().map_or(0, |a| a.len()) >= total {
                continue;
            }
            // Before the new one, not beside it.
            *arena = None;
            let memory = match &model.accelerator {
                Some(accelerator) if device != HOST => accelerator.allocate(device, total),
                _ => model.cpu.allocate(total),
            };
            *arena = Some(memory.map_err(|e| {
                e.note(format!(
                    "entry `{}` needs {} of working memory at these sizes",
                    entry.name,
                    human_bytes(total as u64)
                ))
            })?);
        }
        self.kept = self.arenas.iter().flatten().map(|a| a.len()).sum();
        Ok(())
    }

    /// Frees the arenas when the calls of late have needed little of them.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        if self.kept < KEPT || self.needed > self.kept / 4 {
            self.spare = Spare::default();
            return;
        }
        self.spare.calls += 1;
        if self.spare.calls == PATIENCE {
            self.spare = Spare::default();
            self.arenas.clear();
            (self.kept, self.ready) = (0, false);
        }
    }

    /// Bytes of working memory kept between calls.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Points buffers that are variables at the variables, which are held, or at
    /// images of those of `reads`.
    pub(super) fn point_at_vars(
        &mut self,
        model: &Model,
        state: &EntryState,
        images: &[Arc<Bytes>],
    ) {
        for (buf, var) in &state.vars {
            let image = state.reads.binary_search(var).ok().and_then(|i| images.get(i));
            let ptr = image.map_or_else(|| model.state.ptr(*var as usize), |i| i.as_ptr());
            // Where empty buffers are was settled before.
            if self.lens[*buf as usize] > 0 {
                self.ptrs[*buf as usize] = ptr;
            }
        }
        self.moves = if images.is_empty() { model.state.moves() } else { u64::MAX };
    }

    /// Bytes from the start of slot `first` to the end of the last of `count`.
    pub(crate) fn slot_len(&self, entry: &Entry, first: u32, count: u32) -> usize {
        let last = (first + count - 1) as usize;
        let len = usize::try_from(self.values[entry.slots[last] as usize]).unwrap_or(0);
        self.slots[last] - self.slots[first as usize] + len
    }

    /// A port's shape under the bound dims.
    pub(crate) fn shape(&self, port: &Port) -> Vec<usize> {
        port.shape.iter().map(|e| usize::try_from(self.values[*e as usize]).unwrap_or(0)).collect()
    }

    /// Points params and results at the caller's memory.
    #[inline]
    pub(crate) fn place(
        &mut self,
        entry: &Entry,
        state: &EntryState,
        feeds: &[FeedView<'_>],
        results: &mut [ResultView<'_>],
    ) -> Result<()> {
        debug_assert!(self.ready);
        self.stacks.iter_mut().for_each(Stack::clear);
        if results.len() != entry.results.len() {
            return Err(Error::data(
                "E0522",
                format!(
                    "entry `{}` has {} results, but memory for {} was given",
                    entry.name,
                    entry.results.len(),
                    results.len()
                ),
            ));
        }
        for &(i, p) in &state.params {
            let (i, data) = (i as usize, feeds[p as usize].data);
            self.ptrs[i] = if self.lens[i] == 0 {
                host_nothing()
            } else if data.as_ptr().align_offset(entry.buffers[i].dtype.size()) == 0 {
                data.as_ptr().cast_mut()
            } else {
                self.copies.resize_with(feeds.len(), Bytes::empty);
                let copy = &mut self.copies[p as usize];
                copy.reserve(data.len())?;
                copy[..data.len()].copy_from_slice(data);
                copy.as_ptr()
            };
        }
        for &(i, r) in &state.results {
            let i = i as usize;
            let size = entry.buffers[i].dtype.size();
            let data = &mut results[r as usize].data;
            let need = self.lens[i] * size;
            if data.len() < need || need > 0 && data.as_ptr().align_offset(size) != 0 {
                return Err(self.wrong_memory(&entry.results[r as usize], need, data.len()));
            }
            self.ptrs[i] = if need == 0 { host_nothing() } else { data.as_mut_ptr() };
        }
        Ok(())
    }

    #[cold]
    fn wrong_memory(&self, port: &Port, need: usize, given: usize) -> Error {
        let what = if given < need {
            format!(
                "result `{}` is {} here: {need} bytes, but memory for {given} was given",
                port.name,
                type_text(port.dtype, &self.shape(port)),
            )
        } else {
            format!("the memory for result `{}` is not aligned", port.name)
        };
        Error::data(ErrorCode::WRONG_RESULT_MEMORY, what)
    }
}

/// Whether feeds are what an entry without run-time dims needs.
fn fits(fixed: &[FixedFeed], feeds: &[FeedView<'_>]) -> bool {
    fixed.len() == feeds.len()
        && fixed.iter().zip(feeds).all(|(want, feed)| {
            want.dtype == feed.dtype && want.shape == feed.shape && want.bytes == feed.data.len()
        })
}

/// Calls in a row that needed little of the arena.
#[derive(Default)]
struct Spare {
    calls: u32,
}

/// An arena of less is never freed.
const KEPT: usize = 1 << 20;

/// After so many calls that needed less than a quarter, the arena is freed.
const PATIENCE: u32 = 32;

/// Where empty buffers point: kernels may load element 0 of one and drop the
/// value, but never store to it.
#[repr(align(64))]
struct Nothing([u8; 64]);

static NOTHING: Nothing = Nothing([0; 64]);

fn nothing(model: &Model, device: DeviceId) -> *mut u8 {
    match &model.accelerator {
        Some(accelerator) if device != HOST => accelerator.nothing(device),
        _ => host_nothing(),
    }
}

fn host_nothing() -> *mut u8 {
    guard::nothing().unwrap_or(NOTHING.0.as_ptr().cast_mut())
}

pub(super) fn inconsistent(entry: &Entry, what: &str) -> Error {
    Error::bug(format!("the plan of entry `{}` is inconsistent: {what}", entry.name))
}
