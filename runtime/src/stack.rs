//! Stacks of a call: what a loop's way back needs of each round.
//!
//! Items of one stack have one size. A stack keeps its memory between calls, so
//! that a call allocates only while it goes deeper than any before it. Its memory is on
//! the device that computes its items.

use crate::device::{Accelerator, Memory};
use crate::error::{Error, Result};
use crate::mem::{Bytes, human_bytes};
use tfc_abi::plan::{DeviceId, Entry, HOST, Step};

/// The devices besides the CPU, where there are any.
type Devices<'a> = Option<&'a dyn Accelerator>;

#[derive(Default)]
pub(crate) struct Stack {
    bytes: Option<Box<dyn Memory>>,
    device: DeviceId,
    used: usize,
    item: usize,
    /// Items on it; counted, because an item may have no bytes.
    depth: usize,
}

/// Makes the stacks an entry's steps use, sized for these buffers, and empty.
pub(crate) fn size(entry: &Entry, lens: &[usize], stacks: &mut Vec<Stack>) {
    let mut visit = |stack: u32, buf: u32| {
        let bytes = lens[buf as usize].saturating_mul(entry.buffers[buf as usize].dtype.size());
        if stacks.len() <= stack as usize {
            stacks.resize_with(stack as usize + 1, Stack::default);
        }
        stacks[stack as usize].item = bytes;
        stacks[stack as usize].device = entry.buffers[buf as usize].device;
    };
    each(&entry.steps, &mut visit);
}

fn each(steps: &[Step], visit: &mut dyn FnMut(u32, u32)) {
    for step in steps {
        match step {
            Step::Push { stack, src: buf } | Step::Pop { stack, dst: buf, .. } => {
                visit(*stack, *buf);
            }
            Step::If { then, otherwise, .. } => {
                each(then, visit);
                each(otherwise, visit);
            }
            Step::While { head, body, .. } => {
                each(head, visit);
                each(body, visit);
            }
            _ => {}
        }
    }
}

impl Stack {
    /// Bytes of one item.
    pub fn item(&self) -> usize {
        self.item
    }

    pub fn clear(&mut self) {
        (self.used, self.depth) = (0, 0);
    }

    /// The device whose memory it is in.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    fn room(&self) -> usize {
        self.bytes.as_ref().map_or(0, |b| b.len())
    }

    /// Where the item at `used` begins.
    fn top(&self) -> *mut u8 {
        let start = self.bytes.as_ref().map_or(std::ptr::null_mut(), |b| b.start());
        start.wrapping_add(self.used)
    }

    /// # Safety
    /// `src` is valid for the bytes of an item, in memory of the stack's device.
    pub unsafe fn push(&mut self, src: *const u8, devices: Devices<'_>) -> Result<()> {
        let end = self.used.checked_add(self.item);
        let end =
            end.ok_or_else(|| Error::io("E0551", "a loop keeps too much for its gradient"))?;
        if end > self.room() {
            self.grow(end, devices)?;
        }
        // SAFETY: the caller's promise; the stack has room up to `end`.
        unsafe { self.copy(src, self.top(), self.item, devices)? };
        (self.used, self.depth) = (end, self.depth + 1);
        Ok(())
    }

    /// # Safety
    /// `dst` is valid for the bytes of an item, in memory of the stack's device.
    pub unsafe fn pop(&mut self, dst: *mut u8, name: &str, devices: Devices<'_>) -> Result<()> {
        if self.depth == 0 {
            return Err(Error::data("E0550", format!("nothing is left on the stack `{name}`")));
        }
        (self.used, self.depth) = (self.used - self.item, self.depth - 1);
        // SAFETY: the caller's promise; an item begins at `used`.
        unsafe { self.copy(self.top(), dst, self.item, devices) }
    }

    /// # Safety
    /// Both are memory of the stack's device with as many bytes, apart from each other.
    unsafe fn copy(
        &self,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
        devices: Devices<'_>,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if self.device == HOST {
            // SAFETY: the caller's promise.
            unsafe { dst.copy_from_nonoverlapping(src, bytes) };
            return Ok(());
        }
        let devices = devices.ok_or_else(|| Error::bug("a stack is on a missing device"))?;
        // SAFETY: the caller's promise.
        unsafe { devices.copy(self.device, src, dst, bytes) }
    }

    /// At least doubles, so that pushing costs the same on average.
    fn grow(&mut self, end: usize, devices: Devices<'_>) -> Result<()> {
        let want = end.max(self.room().saturating_mul(2)).max(4096);
        let larger = self.allocate(want, devices).or_else(|_| self.allocate(end, devices));
        let larger = larger.map_err(|_| {
            Error::io(
                "E0551",
                format!(
                    "a loop keeps too much for its gradient: {} after {} rounds",
                    human_bytes(end as u64),
                    self.depth
                ),
            )
            .help(
                "compile with `--loop-memory`, which computes rounds again instead of keeping them",
            )
        })?;
        if let Some(old) = &self.bytes {
            // SAFETY: both have so many bytes, and are apart.
            unsafe { self.copy(old.start(), larger.start(), self.used, devices)? };
        }
        self.bytes = Some(larger);
        Ok(())
    }

    fn allocate(&self, bytes: usize, devices: Devices<'_>) -> Result<Box<dyn Memory>> {
        match devices {
            Some(devices) if self.device != HOST => devices.allocate(self.device, bytes),
            _ => Ok(Box::new(Bytes::zeroed(bytes)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_is_first_out_and_memory_stays() {
        let mut s = Stack { item: 8, ..Stack::default() };
        for round in 0..2 {
            for i in 0..2000u64 {
                // SAFETY: an item is eight bytes.
                unsafe { s.push((&raw const i).cast(), None).unwrap() };
            }
            let held = s.room();
            assert!((16_000..64_000).contains(&held), "{held}");
            let mut out = 0u64;
            for i in (if round == 0 { 1000 } else { 0 }..2000u64).rev() {
                // SAFETY: as above.
                unsafe { s.pop((&raw mut out).cast(), "s", None).unwrap() };
                assert_eq!(out, i);
            }
            if round == 0 {
                s.clear();
            }
            // SAFETY: as above.
            let e = unsafe { s.pop((&raw mut out).cast(), "s", None) }.unwrap_err();
            assert_eq!(e.code(), "E0550");
            assert_eq!(s.room(), held);
        }
    }

    #[test]
    fn items_without_bytes_are_counted() {
        let mut s = Stack::default();
        let mut nothing = [0u8; 1];
        // SAFETY: an item has no bytes.
        unsafe {
            s.push(nothing.as_ptr(), None).unwrap();
            s.pop(nothing.as_mut_ptr(), "s", None).unwrap();
            s.pop(nothing.as_mut_ptr(), "s", None).unwrap_err();
        }
    }
}
