//! Steps that do more than compute: what a graph shows, checks, saves, keeps for
//! the backward pass, and hands from thread to thread. The thread that makes the
//! call carries them out, one at a time and in the order of the text.

use super::Run;
use super::context::inconsistent;
use crate::error::{Error, Result};
use crate::queue::{PartBytes, Queue, Turn, Waiter, Want};
use crate::tensor::FeedView;
use crate::{checkpoint, indices, numerics, show};
use tfc_abi::plan::{CheckIndex, Home, QueueAction, QueueStep, Step};

impl Run<'_> {
    fn value(&self, e: u32) -> i64 {
        self.ctx.values[e as usize]
    }

    fn size(&self, e: u32) -> usize {
        // `geometry` refused negative sizes.
        self.value(e) as usize
    }

    pub(super) fn ptr(&self, buf: u32) -> *mut u8 {
        self.ctx.ptrs[buf as usize]
    }

    /// The elements of a buffer, as bytes.
    pub(super) fn bytes(&self, buf: u32) -> &[u8] {
        let len = self.ctx.lens[buf as usize] * self.entry.buffers[buf as usize].dtype.size();
        if len == 0 {
            return &[];
        }
        // SAFETY: the invariant of `ptrs`; no kernel runs while steps read.
        unsafe { std::slice::from_raw_parts(self.ptr(buf), len) }
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        match step {
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
                unsafe {
                    self.ctx.stacks[*stack as usize].push(item, self.model.accelerator.as_deref())
                }
            }
            Step::Pop { stack, dst, name } => {
                let place = self.ptr(*dst);
                let gpu = self.model.accelerator.as_deref();
                // SAFETY: as above.
                unsafe { self.ctx.stacks[*stack as usize].pop(place, name, gpu) }
            }
            Step::Queue(s) => self.queue(s),
            Step::Send(m) => self.model.post(m, m.buf.map_or(&[], |b| self.bytes(b))),
            Step::Recv(m) => {
                let (ptr, len) = match m.buf {
                    Some(b) => (self.ptr(b), self.bytes(b).len()),
                    None => (std::ptr::null_mut(), 0),
                };
                if len == 0 {
                    return self.model.take(m, &mut []);
                }
                let home = m.buf.map(|b| self.entry.buffers[b as usize].home);
                if matches!(home, Some(Home::Var(_))) {
                    // All of it or nothing.
                    let mut whole = vec![0; len];
                    self.model.take(m, &mut whole)?;
                    // SAFETY: `ptrs` has this many bytes, and the variable is held.
                    unsafe { ptr.copy_from_nonoverlapping(whole.as_ptr(), len) };
                    return Ok(());
                }
                // SAFETY: the invariant of `ptrs`; no kernel runs meanwhile.
                self.model.take(m, unsafe { std::slice::from_raw_parts_mut(ptr, len) })
            }
            // The schedule sends these elsewhere.
            Step::Exchange(_)
            | Step::Launch(_)
            | Step::MatMul(_)
            | Step::Conv(_)
            | Step::Copy { .. }
            | Step::Call(_)
            | Step::If { .. }
            | Step::While { .. } => Err(inconsistent(self.entry, "a step is not what it was")),
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
                // Every process has the same pipeline, and takes its share of what
                // comes out at the end.
                let share = if entry.runner { (0, 1) } else { self.model.data_share() };
                loop {
                    // Anew each time: variables may have moved during a wait.
                    let places: Vec<PartBytes> =
                        s.bufs.iter().map(|b| (self.ptr(*b), self.bytes(*b).len())).collect();
                    // SAFETY: `geometry` checked that the buffers hold `count`
                    // elements, and the variables among them are held.
                    let turn = unsafe { queue.try_take_share(count, share, &places) };
                    if turn.map_err(at)? == Turn::Done {
                        return Ok(());
                    }
                    self.wait(|| wait(Want::Elements(count * share.1))).map_err(at)?;
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

    pub(super) fn truth(&self, cond: u32) -> Result<bool> {
        match self.bytes(cond) {
            [b] => Ok(*b != 0),
            _ => Err(inconsistent(self.entry, "a condition is not a scalar")),
        }
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
