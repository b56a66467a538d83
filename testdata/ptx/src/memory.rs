//! Memory: bounds, what has been written, and who touched what.
//!
//! Each byte remembers its last write and its last reads within a launch. Two
//! accesses, one of them a write, race unless the same thread made both, or a
//! barrier of their block lies between them, or a barrier of their warp.

use std::collections::BTreeMap;

/// An address in the device's memory.
pub type Ptr = u64;

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions, counted once for a warp.
    pub instructions: u64,
    /// Loads and stores of global memory, counted once for a warp.
    pub global_accesses: u64,
    /// Those of 16 bytes a thread.
    pub wide_accesses: u64,
    pub barriers: u64,
}

/// Who does an access. `epoch` counts the barriers of the block, `warp_epoch`
/// those of the warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub block: u32,
    pub thread: u32,
    pub epoch: u32,
    pub warp_epoch: u32,
}

const NONE: u32 = u32::MAX;
const MANY: u32 = u32::MAX - 1;
/// Added to the number of a warp: several of its threads.
const WARP: u32 = 1 << 16;

/// The warp of a thread, or of several threads.
fn warp_of(thread: u32) -> u32 {
    if thread >= WARP { thread - WARP } else { thread / 32 }
}

/// The accesses to one granule that a later one could race with.
#[derive(Clone, Copy)]
struct Shadow {
    write: Who,
    read: Who,
}

const NOBODY: Who = Who { block: NONE, thread: NONE, epoch: 0, warp_epoch: 0 };

/// Whether nothing orders `earlier` before `now`.
fn unordered(earlier: Who, now: Who) -> bool {
    if earlier.block == NONE {
        return false;
    }
    if earlier.block != now.block {
        return true;
    }
    if earlier.epoch != now.epoch {
        return false;
    }
    if earlier.thread == MANY {
        return true;
    }
    earlier.thread != now.thread
        && (warp_of(earlier.thread) != now.thread / 32 || earlier.warp_epoch == now.warp_epoch)
}

/// A copy is on its way.
const COMING: u8 = 2;

/// Bytes with their history.
#[derive(Default)]
pub(crate) struct Region {
    pub bytes: Vec<u8>,
    /// 1 where something has been written, [`COMING`] where it will be.
    written: Vec<u8>,
    /// One for each `granule` bytes; empty until the first access of a launch.
    shadow: Vec<Shadow>,
    granule: usize,
}

impl Region {
    pub fn new(len: usize) -> Region {
        Region { bytes: vec![0; len], written: vec![0; len], shadow: vec![], granule: 4 }
    }

    /// Forgets who touched what: a launch has ended.
    fn settle(&mut self) {
        self.shadow.clear();
        self.granule = 4;
    }

    fn shadows(&mut self, at: usize, len: usize) -> std::ops::Range<usize> {
        if self.shadow.is_empty() {
            let n = self.bytes.len().div_ceil(self.granule);
            self.shadow.resize(n, Shadow { write: NOBODY, read: NOBODY });
        }
        if len < self.granule {
            let old = std::mem::take(&mut self.shadow);
            self.shadow = old.iter().flat_map(|s| [*s; 4]).collect();
            self.granule = 1;
        }
        at / self.granule..(at + len).div_ceil(self.granule)
    }

    /// Checks and records a load of bytes within the region.
    pub fn load(&mut self, at: usize, len: usize, who: Who) -> Result<&[u8], String> {
        self.is_there(at, len)?;
        if self.written[at..at + len].contains(&0) {
            return Err(format!("reads {len} bytes of which some were never written"));
        }
        for i in self.shadows(at, len) {
            let s = &mut self.shadow[i];
            if unordered(s.write, who) {
                return Err(race("reads", "was written", s.write));
            }
            let r = &mut s.read;
            if r.block == NONE {
                *r = who;
            } else if r.block != who.block {
                r.block = MANY;
            } else if r.epoch != who.epoch {
                *r = who;
            } else if r.thread == MANY {
            } else if warp_of(r.thread) != who.thread / 32 {
                r.thread = MANY;
            } else if r.warp_epoch != who.warp_epoch {
                // Reads of the warp before its last barrier are behind it.
                *r = who;
            } else if r.thread != who.thread {
                r.thread = WARP + who.thread / 32;
            }
        }
        Ok(&self.bytes[at..at + len])
    }

    /// Checks and records a store of bytes within the region.
    pub fn store(&mut self, at: usize, from: &[u8], who: Who) -> Result<(), String> {
        self.claim(at, from.len(), who)?;
        self.bytes[at..at + from.len()].copy_from_slice(from);
        self.written[at..at + from.len()].fill(1);
        Ok(())
    }

    /// Checks and records that bytes will be written.
    pub fn promise(&mut self, at: usize, len: usize, who: Who) -> Result<(), String> {
        self.claim(at, len, who)?;
        self.written[at..at + len].fill(COMING);
        Ok(())
    }

    /// What was promised has been written, by `who` now.
    pub fn keep_promise(&mut self, at: usize, from: &[u8], who: Who) {
        for i in self.shadows(at, from.len()) {
            self.shadow[i].write = who;
        }
        self.bytes[at..at + from.len()].copy_from_slice(from);
        self.written[at..at + from.len()].fill(1);
    }

    fn is_there(&self, at: usize, len: usize) -> Result<(), String> {
        if self.written[at..at + len].contains(&COMING) {
            return Err(format!("touches {len} bytes that a copy is still to write"));
        }
        Ok(())
    }

    /// Checks and records a write of bytes within the region.
    fn claim(&mut self, at: usize, len: usize, who: Who) -> Result<(), String> {
        self.is_there(at, len)?;
        for i in self.shadows(at, len) {
            let s = &mut self.shadow[i];
            if unordered(s.write, who) {
                return Err(race("writes", "was written", s.write));
            }
            if unordered(s.read, who) {
                return Err(race("writes", "was read", s.read));
            }
            s.write = who;
        }
        Ok(())
    }
}

fn race(does: &str, was: &str, other: Who) -> String {
    let by = match (other.block, other.thread) {
        (MANY, _) => "threads of several blocks".to_string(),
        (block, MANY) => format!("several threads of block {block}"),
        (block, warp) if warp >= WARP => {
            format!("several threads of warp {} of block {block}", warp - WARP)
        }
        (block, thread) => format!("thread {thread} of block {block}"),
    };
    format!("a race: {does} what {was} by {by} with no barrier between")
}

/// Distance between the ends of allocations, so that an index that is somewhat
/// off meets nothing.
const GAP: u64 = 4096;
const ALIGN: u64 = 256;

#[derive(Default)]
pub(crate) struct Global {
    regions: BTreeMap<Ptr, Region>,
    /// Base and length of what was freed.
    freed: BTreeMap<Ptr, usize>,
    next: Ptr,
}

impl Global {
    pub fn alloc(&mut self, len: usize) -> Ptr {
        let base = self.next.max(0x7000_0000_0000);
        self.next = (base + len as u64 + GAP).next_multiple_of(ALIGN);
        self.regions.insert(base, Region::new(len));
        base
    }

    pub fn live(&self) -> usize {
        self.regions.len()
    }

    pub fn free(&mut self, ptr: Ptr) -> Result<(), String> {
        match self.regions.remove(&ptr) {
            Some(r) => {
                self.freed.insert(ptr, r.bytes.len());
                Ok(())
            }
            None if self.freed.contains_key(&ptr) => Err(format!("{ptr:#x} is freed twice")),
            None => Err(format!("{ptr:#x} is freed but was never allocated")),
        }
    }

    /// The region `len` bytes at `at` are in, and where in it.
    pub fn find(&mut self, at: Ptr, len: usize) -> Result<(&mut Region, usize), String> {
        let missing = |freed: &BTreeMap<Ptr, usize>| match freed.range(..=at).next_back() {
            Some((base, size)) if at < base + *size as u64 => {
                format!("{at:#x} is in memory that was freed")
            }
            _ => format!("{at:#x} is in no allocation"),
        };
        let Some((base, region)) = self.regions.range_mut(..=at).next_back() else {
            return Err(missing(&self.freed));
        };
        let (offset, size) = ((at - base) as usize, region.bytes.len());
        if offset >= size && offset as u64 >= size as u64 + GAP {
            return Err(missing(&self.freed));
        }
        if offset + len > size {
            return Err(format!(
                "{len} bytes at offset {offset} are outside an allocation of {size} bytes"
            ));
        }
        Ok((region, offset))
    }

    pub fn write(&mut self, ptr: Ptr, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (region, at) = self.find(ptr, bytes.len())?;
        region.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        region.written[at..at + bytes.len()].fill(1);
        Ok(())
    }

    pub fn read(&self, ptr: Ptr, len: usize) -> Result<Vec<u8>, String> {
        if len == 0 {
            return Ok(vec![]);
        }
        let Some((base, region)) = self.regions.range(..=ptr).next_back() else {
            return Err(format!("{ptr:#x} is in no allocation"));
        };
        let at = (ptr - base) as usize;
        if at + len > region.bytes.len() {
            return Err(format!("{len} bytes at {ptr:#x} are outside their allocation"));
        }
        if let Some(i) = region.written[at..at + len].iter().position(|w| *w == 0) {
            return Err(format!("byte {i} of {len} at {ptr:#x} was never written"));
        }
        Ok(region.bytes[at..at + len].to_vec())
    }

    /// A launch has ended.
    pub fn settle(&mut self) {
        for region in self.regions.values_mut() {
            region.settle();
        }
    }
}
