//! Steps of devices besides the CPU: all between two of the CPU's at once.
//!
//! What a batch is made of is worked out when it first runs, and again when variables have
//! got other memory; until then a run is one call. Copies between the CPU's memory and a
//! device's go through memory of the batch, so that no address that a device sees ever
//! changes: before the batch runs, what goes up is put there, and after it, what came down
//! is taken from there.

use super::Run;
use super::context::{Context, inconsistent};
use super::exchange::how;
use crate::device::{Memory, Sequence, Task, What};
use crate::error::{Error, Result};
use std::sync::{Mutex, PoisonError};
use tfc_abi::BUFFER_ALIGN;
use tfc_abi::plan::{BufId, Entry, Epilogue, Func, HOST, Home, Step, Steps};

pub(super) struct Batch {
    /// Steps of one list, ascending.
    steps: Vec<u32>,
    pub writes_variables: bool,
    /// As it is run at the dims of the context; a context is in one call at a time.
    made: Mutex<Option<Made>>,
}

struct Made {
    /// [`crate::state::State::moves`] when it was made.
    moves: u64,
    sequence: Box<dyn Sequence>,
    staging: Option<Box<dyn Memory>>,
    /// Buffers of the CPU, and where in the staging they are.
    up: Vec<(BufId, usize)>,
    down: Vec<(BufId, usize)>,
}

impl Batch {
    pub fn new(steps: Vec<u32>, writes_variables: bool) -> Batch {
        Batch { steps, writes_variables, made: Mutex::new(None) }
    }

    pub fn steps(&self) -> &[u32] {
        &self.steps
    }

    /// Whether a step cannot be in one batch with these, which it waits for: it takes to
    /// a device what one of them brings from a device, or writes a variable behind an
    /// exchange. Whether that has failed is known when the batch has been waited for.
    pub fn must_end(step: &Step, entry: &Entry, steps: &Steps, batch: &[u32]) -> bool {
        let buffer = |b: BufId| &entry.buffers[b as usize];
        if batch.iter().any(|i| matches!(steps[*i as usize], Step::Exchange(_))) {
            let mut writes = false;
            step.buffers(&mut |b, w| writes |= w && matches!(buffer(b).home, Home::Var(_)));
            if writes {
                return true;
            }
        }
        let Step::Copy { src, .. } = step else { return false };
        buffer(*src).device == HOST
            && batch.iter().any(|i| match &steps[*i as usize] {
                Step::Copy { dst, .. } => buffer(*dst).home == buffer(*src).home,
                _ => false,
            })
    }

    pub fn run(&self, run: &Run<'_>, steps: &Steps) -> Result<()> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let moves = run.ctx.moves;
        if made.as_ref().is_none_or(|m| m.moves != moves) {
            *made = None;
            *made = Some(self.make(run, steps, moves)?);
        }
        let Some(made) = &mut *made else { return Ok(()) };
        let start = made.staging.as_ref().map_or(std::ptr::null_mut(), |s| s.start());
        for (buf, at) in &made.up {
            let len = byte_len(run.ctx, run.entry, *buf);
            // SAFETY: the buffer has this many bytes, as has its place in the staging.
            unsafe { start.add(*at).copy_from_nonoverlapping(run.ctx.ptrs[*buf as usize], len) };
        }
        match run.recorder() {
            None => made.sequence.run()?,
            Some((profile, sizes)) => made.sequence.run_each(&mut |i, started| {
                profile.record(&steps[self.steps[i] as usize], sizes, started);
            })?,
        }
        for (buf, at) in &made.down {
            let len = byte_len(run.ctx, run.entry, *buf);
            // SAFETY: as above; nobody else uses the buffer meanwhile.
            unsafe { run.ctx.ptrs[*buf as usize].copy_from_nonoverlapping(start.add(*at), len) };
        }
        Ok(())
    }

    fn make(&self, run: &Run<'_>, steps: &Steps, moves: u64) -> Result<Made> {
        let (ctx, entry) = (&*run.ctx, run.entry);
        let Some(accelerator) = &run.model.accelerator else {
            return Err(inconsistent(entry, "a step is on a device that is not there"));
        };
        let device = |b: BufId| entry.buffers[b as usize].device;
        // Where each copy between the CPU and a device goes through.
        let (mut up, mut down, mut total) = (vec![], vec![], 0usize);
        for i in &self.steps {
            let Step::Copy { src, dst } = &steps[*i as usize] else { continue };
            let list = match (device(*src), device(*dst)) {
                (HOST, _) => &mut up,
                (_, HOST) => &mut down,
                _ => continue,
            };
            let buf = if device(*src) == HOST { *src } else { *dst };
            list.push((*i, buf, total));
            let bytes = byte_len(ctx, entry, buf).next_multiple_of(BUFFER_ALIGN);
            total = total.checked_add(bytes).ok_or_else(|| Error::bug("copies too large"))?;
        }
        let staging = if total == 0 { None } else { Some(accelerator.staging(total)?) };
        let start = staging.as_ref().map_or(std::ptr::null_mut(), |s| s.start());
        let place = |list: &[(u32, BufId, usize)], i: u32| {
            let at = list.iter().find(|(step, _, _)| *step == i).map_or(0, |(_, _, at)| *at);
            start.wrapping_add(at)
        };
        let mut tasks = vec![];
        for i in &self.steps {
            let dispatch = &steps.dispatch()[*i as usize];
            let after = dispatch.after.iter().filter_map(|a| self.steps.binary_search(a).ok());
            let what = match &steps[*i as usize] {
                Step::Copy { src, dst } if device(*src) == HOST => {
                    let (bytes, dst) = (byte_len(ctx, entry, *dst), ctx.ptrs[*dst as usize]);
                    What::Up { src: place(&up, *i), dst, bytes }
                }
                Step::Copy { src, dst } if device(*dst) == HOST => {
                    let (bytes, src) = (byte_len(ctx, entry, *src), ctx.ptrs[*src as usize]);
                    What::Down { src, dst: place(&down, *i), bytes }
                }
                step => what(run, step)?,
            };
            let after = after.map(|a| a as u32).collect();
            tasks.push(Task { device: dispatch.device, what, after });
        }
        let sequence = accelerator.sequence(&tasks, &ctx.dims)?;
        let buffers = |list: Vec<(u32, BufId, usize)>| {
            list.into_iter().map(|(_, buf, at)| (buf, at)).collect::<Vec<_>>()
        };
        Ok(Made { moves, sequence, staging, up: buffers(up), down: buffers(down) })
    }
}

fn byte_len(ctx: &Context, entry: &Entry, buf: BufId) -> usize {
    ctx.lens[buf as usize] * entry.buffers[buf as usize].dtype.size()
}

/// A step all of whose buffers are on devices.
fn what(run: &Run<'_>, step: &Step) -> Result<What> {
    let (ctx, entry) = (&*run.ctx, run.entry);
    let ptr = |b: &BufId| ctx.ptrs[*b as usize];
    let values = |list: &[u32]| list.iter().map(|e| ctx.values[*e as usize]).collect::<Vec<_>>();
    let contraction = |factors: [BufId; 2], product: BufId, epilogue: &Option<Epilogue>| {
        let rest = epilogue.as_ref().map_or(std::slice::from_ref(&product), |e| &e.bufs);
        let number = run.model.entry_number(entry);
        let origin = run.model.origin(number, product);
        let bufs = factors.iter().chain(rest).map(ptr).collect();
        What::Contraction { entry: number, product: origin, bufs }
    };
    Ok(match step {
        Step::Launch(l) => What::Kernel {
            kernel: l.kernel,
            bufs: l.bufs.iter().map(ptr).collect(),
            dims: values(&l.dims),
        },
        Step::MatMul(m) => contraction([m.a, m.b], m.c, &m.epilogue),
        Step::Conv(c) => contraction([c.lhs, c.rhs], c.out, &c.epilogue),
        Step::Copy { src, dst } => What::Copy {
            from: entry.buffers[*src as usize].device,
            src: ptr(src),
            dst: ptr(dst),
            bytes: byte_len(ctx, entry, *src),
        },
        Step::Call(c) if c.func == Func::Zero => {
            What::Fill { at: ptr(&c.bufs[0]), bytes: byte_len(ctx, entry, c.bufs[0]) }
        }
        Step::Call(c) => {
            let dtype = |i: usize| entry.buffers[c.bufs[i.min(c.bufs.len() - 1)] as usize].dtype;
            What::Routine {
                func: c.func,
                dtype: dtype(0),
                ids: dtype(1),
                bufs: c.bufs.iter().map(ptr).collect(),
                ints: values(&c.ints),
            }
        }
        Step::Exchange(x) => {
            let tensor =
                |b: &BufId| (entry.buffers[*b as usize].dtype, ptr(b), byte_len(ctx, entry, *b));
            What::Exchange {
                tensors: x.bufs.iter().map(tensor).filter(|t| t.2 > 0).collect(),
                how: how(x.combine),
                name: x.name.clone(),
                place: x.place.clone(),
            }
        }
        _ => return Err(inconsistent(entry, "a step is on a device that cannot do it")),
    })
}
