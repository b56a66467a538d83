//! Operands packed before the product, once for all rectangles of it.

use super::driver::grow;
use super::kernel::{Kernels, Real};
use super::pack::{Operand, Packed, pack_whole};
use crate::mem::Bytes;
use crate::pool::Pool;
use std::cell::RefCell;

thread_local! {
    /// Memory of the last [`Wholes`] of this thread.
    static SPARE: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
}

/// Elements packed in a nanosecond, roughly.
const PACKED_PER_NS: usize = 2;

/// Operands of several products, for one call.
pub struct Wholes<T> {
    bytes: Bytes,
    parts: Vec<(Packed<T>, usize)>,
}

// SAFETY: written before it is shared, then only read.
unsafe impl<T: Sync> Sync for Wholes<T> {}

impl<T: Real> Wholes<T> {
    /// Room for `count` operands, of `size(i)` lanes and steps.
    pub fn new(count: usize, size: impl Fn(usize) -> (usize, usize), width: usize) -> Wholes<T> {
        let mut bytes = SPARE.take();
        let lens = (0..count).map(|i| Packed::<T>::len(size(i).0, size(i).1, width));
        grow(&mut bytes, lens.sum::<usize>() * size_of::<T>());
        let mut start = bytes.as_ptr().cast::<T>().cast_const();
        let mut parts = Vec::with_capacity(count);
        for (lanes, k) in (0..count).map(size) {
            parts.push((Packed { start, lanes, width }, k));
            start = start.wrapping_add(Packed::<T>::len(lanes, k, width));
        }
        Wholes { bytes, parts }
    }

    /// Packs them; `operand(i, use)` hands operand `i` to `use`.
    ///
    /// # Safety
    /// The operands have the lanes and steps they were announced with.
    pub unsafe fn pack(
        &mut self,
        pool: &Pool,
        kernels: &Kernels<T>,
        operand: &(dyn Fn(usize, &mut dyn FnMut(&dyn Operand<T>)) + Sync),
    ) {
        // Panels of all operands, in order.
        let mut ends = Vec::with_capacity(self.parts.len());
        for (part, _) in &self.parts {
            ends.push(ends.last().copied().unwrap_or(0) + part.lanes.div_ceil(part.width));
        }
        let panels = ends.last().copied().unwrap_or(0);
        let work = self.parts.iter().map(|(p, k)| p.lanes * k).sum::<usize>() / PACKED_PER_NS;
        let threads = pool.parts_for(panels, i64::try_from(work).unwrap_or(i64::MAX));
        let parts = &*self;
        pool.ranges(panels, 1, threads, &|lo, hi| {
            let mut panel = lo;
            while panel < hi {
                let i = ends.partition_point(|end| *end <= panel);
                let (part, k) = &parts.parts[i];
                let first = ends[i] - part.lanes.div_ceil(part.width);
                let from = (panel - first) * part.width;
                let to = ((hi.min(ends[i]) - first) * part.width).min(part.lanes);
                // SAFETY: the caller's promise; ranges of panels are disjoint.
                operand(i, &mut |op| unsafe {
                    pack_whole(kernels, op, (from, to - from), *k, part);
                });
                panel = hi.min(ends[i]);
            }
        });
    }

    pub fn get(&self, i: usize) -> Option<Packed<T>> {
        self.parts.get(i).map(|(packed, _)| *packed)
    }
}

impl<T> Drop for Wholes<T> {
    fn drop(&mut self) {
        SPARE.set(std::mem::take(&mut self.bytes));
    }
}
