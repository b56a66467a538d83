//! Walking the steps of an entry.
//!
//! A [`Context`] holds what one call at a time needs: the bound dims, the value
//! of every size expression, the arena, the address of every buffer. It is kept
//! between calls, and as long as dims stay the same a call neither allocates nor
//! evaluates anything.
//!
//! Invariants, established by `prepare` and `place` and relied upon by every
//! step
//! - `values[e]` is the value of expression `e` under `dims`.
//! - `ptrs[b]` is valid for `lens[b]` elements of buffer `b`'s dtype, and aligned
//!   to them.
//! - Every contraction, copy and call stays inside its buffers (`geometry`).

use crate::bind::Binding;
use crate::call::CallOptions;
use crate::error::{Error, ErrorCode, Result};
use crate::gemm::{self, MatMulArgs};
use crate::guard::{self, Guard};
use crate::mem::{Bytes, human_bytes};
use crate::model::{EntryState, FixedFeed, Model};
use crate::queue::{Place, Queue, Turn, Waiter, Want};
use crate::stack::{self, Stack};
use crate::state::Held;
use crate::tensor::{FeedView, ResultView, type_text};
use crate::{calls, checkpoint, conv, geometry, indices, numerics, show};
use std::collections::BTreeMap;
use std::sync::Arc;
use tfc_abi::plan::{
    CheckIndex, Entry, Epilogue, Home, Launch, Port, QueueAction, QueueStep, Step,
};
use tfc_abi::{BUFFER_ALIGN, KernelFn};

#[derive(Default)]
pub struct Context {
    binding: Binding,
    /// Dims `values` was computed for, when `ready`.
    dims: Vec<i64>,
    ready: bool,
    pub(crate) values: Vec<i64>,
    arena: Bytes,
    /// In tests, instead of the arena: memory of its own for every size that
    /// buffers of a slot have (see [`crate::guard`]).
    guard: Guard,
    apart: BTreeMap<(u32, usize), Bytes>,
    /// Bytes of the arena in use, and for how many calls that was far less than
    /// it has.
    needed: usize,
    spare: Spare,
    /// [`crate::state::State::moves`] when the variables' pointers were taken.
    moves: u64,
    pub(crate) stacks: Vec<Stack>,
    slots: Vec<usize>,
    pub(crate) lens: Vec<usize>,
    ptrs: Vec<*mut u8>,
    /// Aligned copies of feeds that were not.
    copies: Vec<Bytes>,
    /// Arguments of the kernel being launched.
    bufs: Vec<*mut u8>,
    ints: Vec<i64>,
}

// SAFETY: the pointers are only used during a call, by the thread that makes it
// and the pool it waits for; between calls they are stale and never read.
unsafe impl Send for Context {}

impl Context {
    /// Binds dims and, if they changed, sizes everything anew.
    pub(crate) fn prepare(
        &mut self,
        model: &Model,
        index: usize,
        entry: &Entry,
        state: &EntryState,
        feeds: &[FeedView<'_>],
    ) -> Result<()> {
        let guard = guard::mode();
        self.ready &= self.guard == guard;
        if self.ready && state.fixed.as_ref().is_some_and(|fixed| fits(fixed, feeds)) {
            return Ok(());
        }
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
        self.size_slots(entry)?;
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
                Home::Const(c) => {
                    model.consts.ptr(c, model.plan.consts[c as usize].offset).cast_mut()
                }
                Home::Slot(s) => self.arena.as_ptr().wrapping_add(self.slots[s as usize]),
            };
        }
        self.apart.clear();
        if guard != Guard::Off {
            self.set_apart(entry)?;
        }
        for (ptr, _) in self.ptrs.iter_mut().zip(&self.lens).filter(|(_, len)| **len == 0) {
            *ptr = nothing();
        }
        self.moves = u64::MAX;
        self.ready = true;
        Ok(())
    }

    /// Gives the buffers of slots pages of their own. Buffers that stand for one
    /// another have one size, and share them.
    fn set_apart(&mut self, entry: &Entry) -> Result<()> {
        for (i, b) in entry.buffers.iter().enumerate() {
            let Home::Slot(s) = b.home else { continue };
            let key = (s, self.lens[i] * b.dtype.size());
            if let std::collections::btree_map::Entry::Vacant(place) = self.apart.entry(key) {
                place.insert(Bytes::zeroed(key.1)?);
            }
            self.ptrs[i] = self.apart[&key].as_ptr();
        }
        Ok(())
    }

    /// Lays the slots out in the arena and makes it large enough.
    fn size_slots(&mut self, entry: &Entry) -> Result<()> {
        self.slots.clear();
        let mut total = 0usize;
        for s in &entry.slots {
            self.slots.push(total);
            total = usize::try_from(self.values[*s as usize])
                .ok()
                .and_then(|size| size.checked_next_multiple_of(BUFFER_ALIGN))
                .and_then(|size| total.checked_add(size))
                .ok_or_else(|| Error::data("E0516", "these sizes need too much memory"))?;
        }
        self.needed = total;
        self.arena.reserve(total).map_err(|e| {
            e.note(format!(
                "entry `{}` needs {} of working memory at these sizes",
                entry.name,
                human_bytes(total as u64)
            ))
        })
    }

    /// Frees the arena when the calls of late have needed little of it.
    pub(crate) fn shrink(&mut self) {
        if self.arena.len() < KEPT || self.needed > self.arena.len() / 4 {
            self.spare = Spare::default();
            return;
        }
        self.spare.calls += 1;
        if self.spare.calls == PATIENCE {
            self.spare = Spare::default();
            self.arena = Bytes::empty();
            self.ready = false;
        }
    }

    /// Bytes of working memory kept between calls.
    pub fn kept(&self) -> usize {
        self.arena.len()
    }

    /// Points buffers that are variables at the variables, which are held, or at
    /// images of those of `reads`.
    fn point_at_vars(&mut self, model: &Model, state: &EntryState, images: &[Arc<Bytes>]) {
        for (buf, var) in &state.vars {
            let image = state.reads.binary_search(var).ok().and_then(|i| images.get(i));
            let ptr = image.map_or_else(|| model.state.ptr(*var as usize), |i| i.as_ptr());
            let empty = self.lens[*buf as usize] == 0;
            self.ptrs[*buf as usize] = if empty { nothing() } else { ptr };
        }
        self.moves = if images.is_empty() { model.state.moves() } else { u64::MAX };
    }

    /// Bytes from the start of slot `s` to its end.
    pub(crate) fn slot_len(&self, entry: &Entry, s: u32) -> i64 {
        self.values[entry.slots[s as usize] as usize]
    }

    /// A port's shape under the bound dims.
    pub(crate) fn shape(&self, port: &Port) -> Vec<usize> {
        port.shape.iter().map(|e| usize::try_from(self.values[*e as usize]).unwrap_or(0)).collect()
    }

    /// Points params and results at the caller's memory.
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
                nothing()
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
            self.ptrs[i] = if need == 0 { nothing() } else { data.as_mut_ptr() };
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

fn nothing() -> *mut u8 {
    guard::nothing().unwrap_or(NOTHING.0.as_ptr().cast_mut())
}

fn inconsistent(entry: &Entry, what: &str) -> Error {
    Error::bug(format!("the plan of entry `{}` is inconsistent: {what}", entry.name))
}

/// A kernel and its arguments; callable from the pool's threads.
#[derive(Clone, Copy)]
struct KernelCall {
    kernel: KernelFn,
    bufs: *const *mut u8,
    dims: *const i64,
}

// SAFETY: a kernel's calls over disjoint ranges may run at the same time; that
// is what its range parameter is for.
unsafe impl Sync for KernelCall {}

impl KernelCall {
    /// # Safety
    /// The arguments are those the kernel was compiled for, and the range is
    /// inside its loops.
    unsafe fn run(&self, range: [i64; 4]) {
        // SAFETY: the caller's promise.
        unsafe { (self.kernel)(self.bufs, self.dims, range.as_ptr()) }
    }
}

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
    /// Look whether to stop: between steps, before iterations.
    stops: (bool, bool),
    /// The variables it writes as they were when it took them, in case they have
    /// to be put back.
    undo: Vec<Bytes>,
}

impl<'a> Run<'a> {
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
        let stops = (may_stop && state.writes.is_empty(), may_stop);
        let mut run = Run {
            model,
            entry,
            ctx,
            state,
            options,
            held: None,
            _images: vec![],
            stops,
            undo: vec![],
        };
        if options.stale_ok && !state.vars.is_empty() {
            run.use_images()?;
        } else {
            run.hold()?;
        }
        Ok(run)
    }

    /// Takes the variables.
    fn hold(&mut self) -> Result<()> {
        let (state, vars) = (self.state, &self.model.state);
        if state.vars.is_empty() {
            return Ok(());
        }
        self.held = Some(vars.hold(&state.reads, &state.writes, self.options)?);
        if self.ctx.moves != vars.moves() {
            self.ctx.point_at_vars(self.model, state, &[]);
        }
        if !state.writes.is_empty() && (state.restores || self.stops.1 && state.loops) {
            for v in &state.writes {
                let (ptr, len) = (vars.ptr(*v as usize), vars.byte_len(*v as usize));
                // SAFETY: the variable is held, and has this many bytes.
                let bytes = unsafe { std::slice::from_raw_parts(ptr, len) };
                self.undo.push(Bytes::from_slice(bytes)?);
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
            // SAFETY: the variable is held exclusively and has as many bytes.
            unsafe { vars.ptr(*v as usize).copy_from_nonoverlapping(old.as_ptr(), old.len()) };
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
    pub(crate) fn all(mut self) -> Result<()> {
        self.steps(&self.entry.steps)
    }

    fn steps(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            if self.stops.0 {
                self.options.check()?;
            }
            self.step(step)?;
        }
        Ok(())
    }

    fn value(&self, e: u32) -> i64 {
        self.ctx.values[e as usize]
    }

    fn size(&self, e: u32) -> usize {
        // `geometry` refused negative sizes.
        self.value(e) as usize
    }

    fn ptr(&self, buf: u32) -> *mut u8 {
        self.ctx.ptrs[buf as usize]
    }

    /// The elements of a buffer, as bytes.
    fn bytes(&self, buf: u32) -> &[u8] {
        let len = self.ctx.lens[buf as usize] * self.entry.buffers[buf as usize].dtype.size();
        if len == 0 {
            return &[];
        }
        // SAFETY: the invariant of `ptrs`; no kernel runs while steps read.
        unsafe { std::slice::from_raw_parts(self.ptr(buf), len) }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Launch(l) => self.launch(l),
            Step::MatMul(m) => {
                let args = MatMulArgs {
                    dtype: m.dtype,
                    a: self.ptr(m.a),
                    b: self.ptr(m.b),
                    c: self.ptr(m.c),
                    m: self.size(m.m),
                    n: self.size(m.n),
                    k: self.size(m.k),
                    batch: self.size(m.batch),
                    a_stride: self.size(m.a_stride),
                    b_stride: self.size(m.b_stride),
                    trans_a: m.trans_a,
                    trans_b: m.trans_b,
                    accumulate: m.accumulate,
                };
                let epilogue = self.epilogue(m.epilogue.as_ref());
                // SAFETY: `geometry` checked that the operands are inside their
                // buffers; the epilogue's range is inside the result.
                unsafe {
                    match epilogue {
                        Some(call) => gemm::matmul(
                            &self.model.pool,
                            &args,
                            Some(&|r0, r1, c0, c1| call.run([r0, r1, c0, c1].map(|x| x as i64))),
                        ),
                        None => gemm::matmul(&self.model.pool, &args, None),
                    }
                }
                Ok(())
            }
            Step::Conv(c) => {
                let args = conv::ConvArgs::new(c, |e| self.size(e), |b| self.ptr(b));
                let epilogue = self.epilogue(c.epilogue.as_ref());
                // SAFETY: as for the matrix product.
                unsafe {
                    match epilogue {
                        Some(call) => conv::conv(
                            &self.model.pool,
                            &args,
                            Some(&|r0, r1, c0, c1| call.run([r0, r1, c0, c1].map(|x| x as i64))),
                        ),
                        None => conv::conv(&self.model.pool, &args, None),
                    }
                }
                Ok(())
            }
            Step::Copy { src, dst } => {
                let len = self.bytes(*src).len();
                // SAFETY: both buffers have `len` bytes; they may be the same.
                unsafe { std::ptr::copy(self.ptr(*src), self.ptr(*dst), len) };
                Ok(())
            }
            Step::Call(c) => {
                let dtype = |b: u32| self.entry.buffers[b as usize].dtype;
                let mut args = calls::Args::of(self.bytes(c.bufs[0]).len());
                for (arg, b) in args.bufs.iter_mut().zip(&c.bufs) {
                    *arg = (self.ptr(*b), dtype(*b));
                }
                for (int, e) in args.ints.iter_mut().zip(&c.ints) {
                    *int = self.size(*e);
                }
                // SAFETY: `geometry` checked the sizes of all operands.
                unsafe { calls::call(c.func, &args) }
            }
            Step::Save { path, names, bufs, place } => {
                let shapes: Vec<Vec<usize>> = bufs.iter().map(|b| self.shape(*b)).collect();
                let tensors: Vec<(&str, FeedView<'_>)> = (names.iter().zip(bufs).zip(&shapes))
                    .map(|((name, b), shape)| {
                        let dtype = self.entry.buffers[*b as usize].dtype;
                        (name.as_str(), FeedView { dtype, shape, data: self.bytes(*b) })
                    })
                    .collect();
                checkpoint::save_tensors(self.model, path, place, &tensors)
            }
            Step::Restore { path, key, buf, place } => {
                let (dtype, shape) = (self.entry.buffers[*buf as usize].dtype, self.shape(*buf));
                let value = checkpoint::read_tensor(self.model, (path, key), place, dtype, &shape)
                    .inspect_err(|_| self.revert())?;
                let bytes = value.bytes();
                // SAFETY: `ptrs` has the buffer's elements, and the value has
                // its type; nothing else uses the buffer while a step runs.
                unsafe { self.ptr(*buf).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                Ok(())
            }
            Step::Print { label, buf } => {
                let b = &self.entry.buffers[*buf as usize];
                let shape = self.shape(*buf);
                let colon = if label.is_empty() { "" } else { ": " };
                let text = show::tensor(b.dtype, &shape, self.bytes(*buf));
                self.model.print(&format!("{label}{colon}{text}"));
                Ok(())
            }
            Step::Assert { cond, message, place } => {
                match self.bytes(*cond).iter().position(|b| *b == 0) {
                    None => Ok(()),
                    Some(at) => Err(self.assertion(*cond, at, message, place)),
                }
            }
            Step::CheckFinite(c) => {
                if c.user.is_empty() && self.model.allows_nan() {
                    return Ok(());
                }
                let tensors: Vec<numerics::Tensor<'_>> =
                    c.bufs.iter().map(|b| self.tensor(*b)).collect();
                numerics::check(c, &tensors).map_or(Ok(()), Err)
            }
            Step::CheckIndex(c) => {
                let dtype = self.entry.buffers[c.ids as usize].dtype;
                let [size, width] = [self.value(c.size), self.value(c.width)];
                let ids = self.bytes(c.ids);
                match indices::first_bad(&self.model.pool, dtype, ids, size, width) {
                    None => Ok(()),
                    Some((at, id)) => Err(self.out_of_range(c, id, at)),
                }
            }
            Step::Push { stack, src } => {
                let item = self.ptr(*src);
                // SAFETY: `geometry` checked that the buffer has an item's bytes.
                unsafe { self.ctx.stacks[*stack as usize].push(item) }
            }
            Step::Pop { stack, dst, name } => {
                let place = self.ptr(*dst);
                // SAFETY: as above.
                unsafe { self.ctx.stacks[*stack as usize].pop(place, name) }
            }
            Step::If { cond, then, otherwise } => {
                let steps = if self.truth(*cond)? { then } else { otherwise };
                self.steps(steps)
            }
            Step::While { head, cond, body } => loop {
                if self.stops.1 {
                    self.options.check().inspect_err(|_| self.revert())?;
                }
                self.steps(head)?;
                if !self.truth(*cond)? {
                    return Ok(());
                }
                self.steps(body)?;
            },
            Step::Queue(s) => self.queue(s),
        }
    }

    fn queue(&mut self, s: &QueueStep) -> Result<()> {
        let queue = self.model.queues().get(s.queue as usize)?;
        let count = self.size(s.count);
        let at = |e: Error| {
            let said = |note: &String| note.contains(&s.place);
            match e.is_end_of_input() || s.place.is_empty() || e.notes().iter().any(said) {
                false => e.note(format!("at {}", s.place)),
                true => e,
            }
        };
        let entry = self.entry;
        let who = Waiter { entry: &entry.name, runner: entry.runner, place: &s.place };
        let queues = self.model.queues();
        let options = self.options;
        let wait = |want: Want| queues.wait(s.queue as usize, want, &who, options);
        match s.action {
            QueueAction::Enqueue | QueueAction::EnqueueMany => {
                for row in 0..count {
                    while self.put_row(queue, &s.bufs, row, count).map_err(at)? == Turn::Wait {
                        self.wait(|| wait(Want::Room)).map_err(at)?;
                    }
                }
                Ok(())
            }
            QueueAction::Dequeue | QueueAction::DequeueMany => {
                loop {
                    // Anew each time: variables may have moved during a wait.
                    let places: Vec<Place> =
                        s.bufs.iter().map(|b| (self.ptr(*b), self.bytes(*b).len())).collect();
                    // SAFETY: `geometry` checked that the buffers hold `count`
                    // elements, and the variables among them are held.
                    if unsafe { queue.try_take(count, &places) }.map_err(at)? == Turn::Done {
                        return Ok(());
                    }
                    self.wait(|| wait(Want::Elements(count))).map_err(at)?;
                }
            }
            QueueAction::Close => {
                queue.close();
                Ok(())
            }
            QueueAction::Size => {
                let len = queue.len() as i64;
                // SAFETY: the result is one i64 of this call's own.
                unsafe { self.ptr(s.bufs[0]).cast::<i64>().write_unaligned(len) };
                Ok(())
            }
        }
    }

    /// Puts row `row` of `count` in line.
    fn put_row(&self, queue: &Queue, bufs: &[u32], row: usize, count: usize) -> Result<Turn> {
        let row_of = |b: &u32| {
            let bytes = self.bytes(*b);
            let size = bytes.len() / count;
            &bytes[row * size..(row + 1) * size]
        };
        let parts: Vec<&[u8]> = bufs.iter().map(row_of).collect();
        queue.try_put(&parts)
    }

    /// Waits with the variables given back: others may need them for what is
    /// waited for.
    fn wait(&mut self, wait: impl FnOnce() -> Result<()>) -> Result<()> {
        // What was written so far is there for all to see: it stays.
        self.undo.clear();
        let held = self.held.take().is_some();
        wait()?;
        if held { self.hold() } else { Ok(()) }
    }

    fn shape(&self, buf: u32) -> Vec<usize> {
        self.entry.buffers[buf as usize].shape.iter().map(|e| self.size(*e)).collect()
    }

    fn truth(&self, cond: u32) -> Result<bool> {
        match self.bytes(cond) {
            [b] => Ok(*b != 0),
            _ => Err(inconsistent(self.entry, "a condition is not a scalar")),
        }
    }

    /// Fills the argument arrays of a kernel.
    fn arguments(&mut self, kernel: u32, bufs: &[u32], dims: &[u32]) -> KernelCall {
        let ctx = &mut *self.ctx;
        ctx.bufs.clear();
        ctx.bufs.extend(bufs.iter().map(|b| ctx.ptrs[*b as usize]));
        ctx.ints.clear();
        ctx.ints.extend(dims.iter().map(|e| ctx.values[*e as usize]));
        KernelCall {
            kernel: self.model.kernels[kernel as usize],
            bufs: ctx.bufs.as_ptr(),
            dims: ctx.ints.as_ptr(),
        }
    }

    fn epilogue(&mut self, e: Option<&Epilogue>) -> Option<KernelCall> {
        e.map(|e| self.arguments(e.kernel, &e.bufs, &e.dims))
    }

    fn launch(&mut self, l: &Launch) -> Result<()> {
        let extent = self.value(l.extent);
        let total = extent.saturating_mul(self.value(l.cost));
        let pool = &*self.model.pool;
        let parts = pool.parts_for(extent as usize, total);
        let call = self.arguments(l.kernel, &l.bufs, &l.dims);
        // Sixteen elements, when there are many: a part starts on a cache line.
        let grain = if extent as usize >= 64 * parts { 16 } else { 1 };
        pool.ranges(extent as usize, grain, parts, &|lo, hi| {
            // SAFETY: the compiler made the kernel for these arguments, and
            // `geometry` checked the buffers; ranges are disjoint.
            unsafe { call.run([lo as i64, hi as i64, 0, 0]) }
        });
        Ok(())
    }

    fn tensor(&self, buf: u32) -> numerics::Tensor<'_> {
        let dtype = self.entry.buffers[buf as usize].dtype;
        numerics::Tensor { dtype, shape: self.shape(buf), bytes: self.bytes(buf) }
    }

    #[cold]
    fn out_of_range(&self, check: &CheckIndex, id: i64, at: usize) -> Error {
        let feed = match self.entry.buffers[check.ids as usize].home {
            Home::Param(p) => self.entry.params.get(p as usize).map(|p| p.name.as_str()),
            _ => None,
        };
        let at = self.position(check.ids, at);
        let bounds = [self.value(check.size), self.value(check.width)];
        indices::out_of_range(check, id, bounds, &at, feed)
    }

    /// The index of element number `at` of a buffer.
    fn position(&self, buf: u32, at: usize) -> Vec<usize> {
        let mut rest = at;
        let mut index: Vec<usize> = self.entry.buffers[buf as usize]
            .shape
            .iter()
            .rev()
            .map(|e| {
                let d = self.size(*e).max(1);
                let i = rest % d;
                rest /= d;
                i
            })
            .collect();
        index.reverse();
        index
    }

    #[cold]
    fn assertion(&self, cond: u32, at: usize, message: &str, place: &str) -> Error {
        let shape = &self.entry.buffers[cond as usize].shape;
        let mut e = Error::data("E0509", format!("assertion failed: {message}"));
        if !shape.is_empty() {
            let index: Vec<String> = self.position(cond, at).iter().map(usize::to_string).collect();
            e = e.note(format!("first false at [{}]", index.join(", ")));
        }
        if place.is_empty() { e } else { e.note(format!("at {place}")) }
    }
}
