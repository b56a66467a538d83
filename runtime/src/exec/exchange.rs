//! Exchanges with other processes: begun where they stand, finished where something
//! waits for them.
//!
//! Tensors of a device that does not exchange them by itself go through memory of the CPU
//! that the exchange keeps.

use super::Run;
use crate::device::{Accelerator, Memory};
use crate::error::{Error, Result};
use crate::net::collective::Reduce;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tfc_abi::plan::{Combine, DeviceId, Exchange, HOST, Step};
use tfc_abi::{BUFFER_ALIGN, DType};

pub(super) fn how(combine: Combine) -> Reduce {
    match combine {
        Combine::Mean => Reduce::Mean,
        Combine::Sum => Reduce::Sum,
        Combine::Max => Reduce::Max,
        Combine::Min => Reduce::Min,
    }
}

/// Where tensors of a device are while they are exchanged; made when it is first needed.
#[derive(Default)]
pub(super) struct Detour(Mutex<Option<Box<dyn Memory>>>);

/// One tensor that is exchanged.
struct Part<'a> {
    dtype: DType,
    /// In the CPU's memory.
    bytes: &'a mut [u8],
    /// Where it comes from, and goes back to, if that is a device.
    there: *mut u8,
}

// SAFETY: addresses of devices mean nothing to threads; the memory is the exchange's while
// it goes on.
unsafe impl Send for Part<'_> {}

/// The device that the tensors are on, if it is not the CPU.
#[derive(Clone, Copy)]
struct Away<'a> {
    accelerator: &'a dyn Accelerator,
    device: DeviceId,
}

impl Away<'_> {
    fn bring(&self, parts: &mut [Part<'_>]) -> Result<()> {
        for part in parts {
            // SAFETY: the memory is the device's, with as many bytes, and what wrote it is
            // done.
            unsafe { self.accelerator.read(self.device, part.there, part.bytes) }?;
        }
        Ok(())
    }

    fn take_back(&self, parts: &[Part<'_>]) -> Result<()> {
        for part in parts {
            // SAFETY: as above; what uses it waits for the exchange.
            unsafe { self.accelerator.write(self.device, part.bytes, part.there) }?;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Without other processes the tensors stay what they are.
    pub(super) fn begin(
        &mut self,
        step: &Step,
        x: &Exchange,
        at_once: bool,
        detour: &Detour,
    ) -> Result<()> {
        let Some(group) = self.model.group() else { return Ok(()) };
        let op = how(x.combine);
        let buffer = |b: &u32| &self.entry.buffers[*b as usize];
        let size = |b: &u32| self.ctx.lens[*b as usize] * buffer(b).dtype.size();
        let used: Vec<u32> = x.bufs.iter().copied().filter(|b| size(b) > 0).collect();
        let device = used.first().map_or(HOST, |b| buffer(b).device);
        let mut away = None;
        let mut start = std::ptr::null_mut();
        if device != HOST {
            let Some(accelerator) = self.model.accelerator.as_deref() else {
                return Err(Error::bug("tensors are on a device that is not there"));
            };
            away = Some(Away { accelerator, device });
            let mut memory = detour.0.lock().unwrap_or_else(PoisonError::into_inner);
            let needed = used.iter().map(|b| size(b).next_multiple_of(BUFFER_ALIGN)).sum();
            let memory = match &mut *memory {
                Some(memory) => memory,
                none => none.insert(accelerator.staging(needed)?),
            };
            start = memory.start();
        }
        let mut parts: Vec<Part<'_>> = vec![];
        for b in &used {
            let (dtype, there, len) = (buffer(b).dtype, self.ptr(*b), size(b));
            let ptr = if away.is_some() { start } else { there };
            start = start.wrapping_add(len.next_multiple_of(BUFFER_ALIGN));
            // SAFETY: the invariant of `ptrs`, or there is as much room for each; the
            // results of one step are apart from each other, and what else uses them waits
            // for the exchange.
            let bytes = unsafe { std::slice::from_raw_parts_mut(ptr, len) };
            parts.push(Part { dtype, bytes, there });
        }
        let profile = self.recorder();
        let task = move || {
            let started = Instant::now();
            let mut exchange = || {
                away.map_or(Ok(()), |away| away.bring(&mut parts))?;
                let mut tensors: Vec<(DType, &mut [u8])> =
                    parts.iter_mut().map(|p| (p.dtype, &mut *p.bytes)).collect();
                group.all_reduce(&mut tensors, op, &x.name, &x.place)?;
                away.map_or(Ok(()), |away| away.take_back(&parts))
            };
            let result = exchange();
            if let Some((profile, sizes)) = profile {
                profile.record(step, sizes, started);
            }
            result
        };
        // SAFETY: the call finishes its exchanges, or abandons them, before it ends; until
        // then its context, its schedule, its plan and the group stay where they are. The
        // steps that use the tensors wait for the exchange (`Schedule::waits`).
        let begun = unsafe { group.begin(Box::new(task), at_once) };
        self.begun.push(begun);
        Ok(())
    }

    /// Waits for the first exchanges of the list whose exchanges begin at `outer`.
    #[inline]
    pub(super) fn finish(&mut self, outer: usize, first: u32) -> Result<()> {
        // Without other processes none was begun.
        match (first as usize).min(self.begun.len() - outer).checked_sub(1) {
            None => Ok(()),
            Some(last) => self.wait_for(outer + last),
        }
    }

    fn wait_for(&mut self, last: usize) -> Result<()> {
        let Some(group) = self.model.group() else { return Ok(()) };
        let started = self.clock().filter(|_| !group.is_done(self.begun[last]));
        let result = group.finish(self.begun[last]);
        if let (Some(started), Some((profile, _))) = (started, self.recorder()) {
            profile.note("waiting for an exchange", started);
        }
        result
    }

    /// Ends what a call that fails has begun.
    pub(super) fn abandon(&mut self) {
        if let (Some(group), Some(last)) = (self.model.group(), self.begun.pop()) {
            group.abandon(last);
        }
        self.begun.clear();
    }
}
