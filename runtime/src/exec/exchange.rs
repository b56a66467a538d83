//! Exchanges with other processes: begun where they stand, finished where something
//! waits for them.

use super::Run;
use crate::error::Result;
use crate::net::collective::Reduce;
use std::time::Instant;
use tfc_abi::DType;
use tfc_abi::plan::{Combine, Exchange, Step};

impl Run<'_> {
    /// Without other processes the tensors stay what they are.
    pub(super) fn begin(&mut self, step: &Step, x: &Exchange, at_once: bool) {
        let Some(group) = self.model.group() else { return };
        let op = match x.combine {
            Combine::Mean => Reduce::Mean,
            Combine::Sum => Reduce::Sum,
            Combine::Max => Reduce::Max,
            Combine::Min => Reduce::Min,
        };
        let mut parts: Vec<(DType, &mut [u8])> = vec![];
        for &b in &x.bufs {
            let (ptr, len) = (self.ptr(b), self.bytes(b).len());
            if len > 0 {
                // SAFETY: the invariant of `ptrs`; the results of one step are apart from
                // each other, and what else uses them waits for the exchange.
                let bytes = unsafe { std::slice::from_raw_parts_mut(ptr, len) };
                parts.push((self.entry.buffers[b as usize].dtype, bytes));
            }
        }
        let profile = self.recorder();
        let task = move || {
            let started = Instant::now();
            let result = group.all_reduce(&mut parts, op, &x.name, &x.place);
            if let Some((profile, sizes)) = profile {
                profile.record(step, sizes, started);
            }
            result
        };
        // SAFETY: the call finishes its exchanges, or abandons them, before it ends; until
        // then its context, its plan and the group stay where they are. The steps that use
        // the tensors wait for the exchange (`Schedule::waits`).
        let begun = unsafe { group.begin(Box::new(task), at_once) };
        self.begun.push(begun);
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
