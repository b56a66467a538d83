//! Operands packed before the product: once for all rectangles of it, and, where
//! an operand stays the same from call to call, once for all calls.
//!
//! A model has one [`PackCache`]. Constants, and variables that an entry writes only
//! when no product needs them any more, are packed when a product reads the same version
//! of them for the second time; a write to the variable makes its pack void, and the next
//! one takes its memory. What is kept takes no more memory than the model allows, which is
//! about that of its variables and constants.

use super::driver::grow;
use super::kernel::{Kernels, Real};
use super::pack::{Operand, Packed, pack_whole};
use crate::mem::Bytes;
use crate::pool::Pool;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Memory of the last [`Wholes`] of this thread.
    static SPARE: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
}

/// Elements packed in a nanosecond, roughly.
const PACKED_PER_NS: usize = 2;
/// More memory than this is not kept for the next call.
const SPARE_BYTES: usize = 64 << 20;
/// Operands of fewer elements are packed in no time.
const WORTH_KEEPING: usize = 2048;

/// What packs of one tensor are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Layout {
    pub count: usize,
    pub lanes: usize,
    pub k: usize,
    pub width: usize,
    /// Whether it is the steps of a lane that lie side by side, not the lanes.
    pub turned: bool,
}

/// Packs kept between calls.
pub struct PackCache {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    packs: BTreeMap<(u64, Layout), Pack>,
}

/// The last version of a tensor that was asked for in some layout.
struct Pack {
    version: u64,
    /// How often it was asked for.
    uses: u32,
    bytes: Option<Arc<Bytes>>,
    /// The bytes are of an earlier version.
    void: bool,
}

/// An operand that is the same whenever `version` is.
#[derive(Clone, Copy)]
pub struct Stays<'a> {
    pub cache: &'a PackCache,
    pub tensor: u64,
    pub version: u64,
}

impl std::fmt::Debug for Stays<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tensor {} version {}", self.tensor, self.version)
    }
}

enum Found {
    Kept(Arc<Bytes>),
    /// To be packed and kept, in the memory of an earlier version if there is one.
    Wanted(Option<Bytes>),
    /// To be packed for this call.
    Unknown,
}

impl PackCache {
    /// Packs take at most `limit` bytes together.
    pub fn new(limit: usize) -> PackCache {
        PackCache { limit, kept: Mutex::default() }
    }

    /// Bytes of the packs kept.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Drops all packs.
    pub fn clear(&self) {
        *self.lock() = Kept::default();
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stays<'_> {
    fn find(&self, layout: Layout, len: usize) -> Found {
        let mut kept = self.cache.lock();
        let kept = &mut *kept;
        let new = Pack { version: self.version, uses: 0, bytes: None, void: false };
        let pack = kept.packs.entry((self.tensor, layout)).or_insert(new);
        if pack.version != self.version {
            (pack.version, pack.uses, pack.void) = (self.version, 0, true);
        }
        if let (Some(bytes), false) = (&pack.bytes, pack.void) {
            return Found::Kept(bytes.clone());
        }
        pack.uses = pack.uses.saturating_add(1);
        if pack.uses < 2 {
            return Found::Unknown;
        }
        // A call that still reads the old pack keeps it alive.
        let old = pack.bytes.take().and_then(|old| {
            kept.bytes -= old.len();
            Arc::into_inner(old)
        });
        let room = self.cache.limit.saturating_sub(kept.bytes) >= len;
        if room { Found::Wanted(old.filter(|b| b.len() == len)) } else { Found::Unknown }
    }

    /// Keeps a pack, unless another call was faster or took the room.
    fn keep(&self, layout: Layout, bytes: &Arc<Bytes>) {
        let mut kept = self.cache.lock();
        let kept = &mut *kept;
        let Some(pack) = kept.packs.get_mut(&(self.tensor, layout)) else { return };
        let room = self.cache.limit.saturating_sub(kept.bytes) >= bytes.len();
        if pack.version == self.version && pack.bytes.is_none() && room {
            kept.bytes += bytes.len();
            (pack.bytes, pack.void) = (Some(bytes.clone()), false);
        }
    }
}

/// Operands of several products, all of one size.
pub struct Wholes<T> {
    memory: Memory,
    sizes: Vec<(Packed<T>, usize)>,
}

enum Memory {
    /// For this call.
    Own(Bytes),
    Kept(Arc<Bytes>),
}

// SAFETY: written before it is shared, then only read.
unsafe impl<T: Sync> Sync for Wholes<T> {}

/// Hands operand number `i` to a function.
pub type Operands<'a, T> = &'a (dyn Fn(usize, &mut dyn FnMut(&dyn Operand<T>)) + Sync);

impl<T: Real> Wholes<T> {
    /// `count` operands of `size(i)` lanes and steps, packed.
    ///
    /// # Safety
    /// The operands have these lanes and steps.
    pub unsafe fn new(
        pool: &Pool,
        kernels: &Kernels<T>,
        count: usize,
        size: impl Fn(usize) -> (usize, usize),
        width: usize,
        operands: Operands<'_, T>,
    ) -> Wholes<T> {
        let mut bytes = SPARE.take();
        let lens = (0..count).map(|i| Packed::<T>::len(size(i).0, size(i).1, width));
        grow(&mut bytes, lens.sum::<usize>() * size_of::<T>());
        let sizes = places(bytes.as_ptr().cast(), (0..count).map(size), width);
        let out = Wholes { memory: Memory::Own(bytes), sizes };
        // SAFETY: the caller's promise; the memory is ours.
        unsafe { out.pack(pool, kernels, operands) };
        out
    }

    /// As [`Wholes::new`], for operands of one size that may be kept.
    ///
    /// # Safety
    /// As there; and the operands are the same whenever `stays` is.
    pub unsafe fn kept(
        pool: &Pool,
        kernels: &Kernels<T>,
        layout: Layout,
        stays: Option<Stays<'_>>,
        operands: Operands<'_, T>,
    ) -> Wholes<T> {
        // SAFETY: the caller's promise; the memory is ours.
        let pack = |wholes: &Wholes<T>| unsafe { wholes.pack(pool, kernels, operands) };
        Wholes::kept_by(layout, stays, &pack).unwrap_or_else(|| Wholes::by(layout, &pack))
    }

    /// Operands of one size that `fill` packs.
    pub fn by(layout: Layout, fill: &dyn Fn(&Wholes<T>)) -> Wholes<T> {
        let Layout { count, lanes, k, width, .. } = layout;
        let mut bytes = SPARE.take();
        grow(&mut bytes, count * Packed::<T>::len(lanes, k, width) * size_of::<T>());
        let sizes = places(bytes.as_ptr().cast(), (0..count).map(|_| (lanes, k)), width);
        let out = Wholes { memory: Memory::Own(bytes), sizes };
        fill(&out);
        out
    }

    /// As [`Wholes::kept`], but only if they are kept, or are from now on.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn only_kept(
        pool: &Pool,
        kernels: &Kernels<T>,
        layout: Layout,
        stays: Option<Stays<'_>>,
        operands: Operands<'_, T>,
    ) -> Option<Wholes<T>> {
        // SAFETY: the caller's promise; nobody else has the memory yet.
        Wholes::kept_by(layout, stays, &|w| unsafe { w.pack(pool, kernels, operands) })
    }

    /// As [`Wholes::only_kept`], packed by `fill`.
    pub fn kept_by(
        layout: Layout,
        stays: Option<Stays<'_>>,
        fill: &dyn Fn(&Wholes<T>),
    ) -> Option<Wholes<T>> {
        let Layout { count, lanes, k, width, .. } = layout;
        let stays = stays.filter(|_| count * lanes * k >= WORTH_KEEPING)?;
        let len = count * Packed::<T>::len(lanes, k, width) * size_of::<T>();
        let (bytes, fresh) = match stays.find(layout, len) {
            Found::Kept(bytes) => (bytes, false),
            Found::Wanted(Some(old)) => (Arc::new(old), true),
            Found::Wanted(None) => (Arc::new(Bytes::zeroed(len).ok()?), true),
            Found::Unknown => return None,
        };
        let sizes = places(bytes.as_ptr().cast(), (0..count).map(|_| (lanes, k)), width);
        let out = Wholes { memory: Memory::Kept(bytes), sizes };
        if fresh {
            fill(&out);
            if let Memory::Kept(bytes) = &out.memory {
                stays.keep(layout, bytes);
            }
        }
        Some(out)
    }

    /// # Safety
    /// As [`Wholes::new`]; nobody else uses the memory.
    unsafe fn pack(&self, pool: &Pool, kernels: &Kernels<T>, operands: Operands<'_, T>) {
        // Panels of all operands, in order.
        let mut ends = Vec::with_capacity(self.sizes.len());
        for (whole, _) in &self.sizes {
            ends.push(ends.last().copied().unwrap_or(0) + whole.lanes.div_ceil(whole.width));
        }
        let panels = ends.last().copied().unwrap_or(0);
        let elements = self.sizes.iter().map(|(whole, k)| whole.lanes * k).sum::<usize>();
        let work = i64::try_from(elements / PACKED_PER_NS).unwrap_or(i64::MAX);
        pool.ranges(panels, 1, pool.parts_for(panels, work), &|lo, hi| {
            let mut panel = lo;
            while panel < hi {
                let i = ends.partition_point(|end| *end <= panel);
                let (whole, k) = &self.sizes[i];
                let first = ends[i] - whole.lanes.div_ceil(whole.width);
                let from = (panel - first) * whole.width;
                let to = ((hi.min(ends[i]) - first) * whole.width).min(whole.lanes);
                // SAFETY: the caller's promise; ranges of panels are disjoint.
                operands(i, &mut |op| unsafe {
                    pack_whole(kernels, op, (from, to - from), *k, whole);
                });
                panel = hi.min(ends[i]);
            }
        });
    }

    pub fn get(&self, i: usize) -> Option<Packed<T>> {
        self.sizes.get(i).map(|(packed, _)| *packed)
    }
}

/// Operands one after another from `start` on, with their steps.
fn places<T>(
    start: *const T,
    sizes: impl Iterator<Item = (usize, usize)>,
    width: usize,
) -> Vec<(Packed<T>, usize)> {
    let mut start = start;
    let mut out = Vec::with_capacity(sizes.size_hint().0);
    for (lanes, k) in sizes {
        out.push((Packed { start, lanes, width }, k));
        start = start.wrapping_add(Packed::<T>::len(lanes, k, width));
    }
    out
}

impl<T> Drop for Wholes<T> {
    fn drop(&mut self) {
        if let Memory::Own(bytes) = &mut self.memory
            && bytes.len() <= SPARE_BYTES
        {
            SPARE.set(std::mem::take(bytes));
        }
    }
}
