//! Aligned byte memory.

use crate::guard::{self, Guard, Pages};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use tfc_abi::BUFFER_ALIGN;

/// Bytes aligned for any kernel, zero when fresh.
///
/// The block behind them is a little larger and of the allocator's own
/// alignment: only then does it come as fresh pages of the system, which are
/// zero already and cost nothing until they are used.
///
/// Invariant: `ptr` is `skip` bytes into a block of `len + BUFFER_ALIGN` bytes
/// and aligned, or dangling but aligned when `len` is zero. In tests it may be
/// `skip` bytes into a mapping of `mapped` bytes instead (see [`crate::guard`]),
/// aligned only as far as `len` is.
pub struct Bytes {
    ptr: NonNull<u8>,
    len: usize,
    skip: usize,
    /// Zero for a block of the allocator.
    mapped: usize,
}

// SAFETY: `Bytes` owns its memory, as `Vec<u8>` does.
unsafe impl Send for Bytes {}
// SAFETY: as above; shared access is read only.
unsafe impl Sync for Bytes {}

impl Bytes {
    pub const fn empty() -> Bytes {
        // An aligned dangling pointer.
        Bytes { ptr: NonNull::without_provenance(ALIGN), len: 0, skip: 0, mapped: 0 }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Bytes, OutOfMemory> {
        if len == 0 {
            return Ok(Bytes::empty());
        }
        let mode = guard::mode();
        if mode != Guard::Off {
            let pages = guard::map(len, mode).ok_or(OutOfMemory(len))?;
            let ptr = NonNull::new(pages.ptr).ok_or(OutOfMemory(len))?;
            return Ok(Bytes { ptr, len, skip: pages.skip, mapped: pages.total });
        }
        let layout = layout(len).ok_or(OutOfMemory(len))?;
        // SAFETY: the layout is not empty.
        let block = unsafe { alloc_zeroed(layout) };
        let block = NonNull::new(block).ok_or(OutOfMemory(len))?;
        let skip = block.addr().get().next_multiple_of(BUFFER_ALIGN) - block.addr().get();
        // SAFETY: less than an alignment is skipped, by which the block is larger.
        let ptr = unsafe { block.add(skip) };
        ask_for_large_pages(ptr.addr().get(), len);
        Ok(Bytes { ptr, len, skip, mapped: 0 })
    }

    /// As [`Bytes::zeroed`], for memory of which little will be used: address space
    /// alone, as large as it may be, until somebody touches a page; and these pages are
    /// small ones.
    pub fn untouched(len: usize) -> Result<Bytes, OutOfMemory> {
        match guard::mode() == Guard::Off && len >= PAGE {
            true => match guard::untouched(len) {
                Some(pages) => {
                    let ptr = NonNull::new(pages.ptr).ok_or(OutOfMemory(len))?;
                    Ok(Bytes { ptr, len, skip: pages.skip, mapped: pages.total })
                }
                None => Err(OutOfMemory(len)),
            },
            false => Bytes::zeroed(len),
        }
    }

    /// Makes all bytes zero, and gives back the memory of those that
    /// [`Bytes::untouched`] made.
    pub fn forget(&mut self) {
        let given = self.mapped != 0 && guard::forget(self.as_ptr(), self.len);
        if !given {
            self.fill(0);
        }
    }

    pub fn from_slice(bytes: &[u8]) -> Result<Bytes, OutOfMemory> {
        let mut out = Bytes::zeroed(bytes.len())?;
        out.copy_from_slice(bytes);
        Ok(out)
    }

    /// Makes room for `len` bytes; what was there is lost.
    pub fn reserve(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if self.len < len {
            *self = Bytes::empty();
            *self = Bytes::zeroed(len)?;
        }
        Ok(())
    }

    /// The start, for a caller that keeps the borrow rules itself.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

/// Less than this is not worth a mapping.
const PAGE: usize = 1 << 16;

/// Tells the system that memory of many pages is used as a whole: products and
/// transposes walk it with strides larger than a page, and large pages save them a
/// table walk each time. Where the system has none, nothing changes.
#[cfg(target_os = "linux")]
fn ask_for_large_pages(start: usize, len: usize) {
    const LARGE: usize = 2 << 20;
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(addr: *mut std::ffi::c_void, len: usize, advice: i32) -> i32;
    }
    let (first, end) = (start.next_multiple_of(LARGE), (start + len) / LARGE * LARGE);
    if first < end && end - first >= LARGE {
        // SAFETY: the pages are inside a block of ours; the advice changes no
        // contents, and failing is no error.
        unsafe { madvise(std::ptr::without_provenance_mut(first), end - first, MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages(_: usize, _: usize) {}

/// Of the block behind `len` bytes.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.checked_add(BUFFER_ALIGN)?, align_of::<u128>()).ok()
}

const ALIGN: std::num::NonZeroUsize = std::num::NonZeroUsize::new(BUFFER_ALIGN).unwrap();

/// There was no memory of so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory(pub usize);

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot get {} of memory", human_bytes(self.0 as u64))
    }
}

impl std::error::Error for OutOfMemory {}

/// `1.5 MiB`.
pub fn human_bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "bytes";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "bytes" { format!("{n} bytes") } else { format!("{value:.1} {unit}") }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the invariant of `Bytes`; the bytes are initialised (zeroed).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::empty()
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if self.mapped != 0 {
            let pages = Pages { ptr: self.ptr.as_ptr(), skip: self.skip, total: self.mapped };
            // SAFETY: the mapping of `zeroed`.
            unsafe { guard::unmap(&pages) };
        } else if self.len != 0 {
            let Some(layout) = layout(self.len) else { return };
            // SAFETY: the block of `zeroed`, with the layout it has from there.
            unsafe { dealloc(self.ptr.sub(self.skip).as_ptr(), layout) };
        }
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes::from_slice(self)
            .unwrap_or_else(|_| std::alloc::handle_alloc_error(Layout::new::<[u8; BUFFER_ALIGN]>()))
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_zero() {
        for len in [0, 1, 63, 64, 1000] {
            let b = Bytes::zeroed(len).unwrap();
            assert_eq!(b.as_ptr() as usize % BUFFER_ALIGN, 0);
            assert_eq!(*b, vec![0; len][..]);
        }
        assert_eq!(Bytes::from_slice(b"abc").unwrap().clone()[..], *b"abc");
    }

    #[test]
    fn what_is_not_touched_is_zero_and_costs_nothing() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
            text.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0) * 4096
        };
        // More than most machines have.
        let Ok(mut b) = Bytes::untouched(1 << 42) else {
            // Some systems count what is reserved.
            assert!(Bytes::untouched(1 << 30).is_ok());
            return;
        };
        let before = resident();
        for i in 0..2000 {
            b[i * (1 << 30)] = 7;
        }
        b.forget();
        assert!((0..2000).all(|i| b[i * (1 << 30)] == 0));
        assert!(resident() < before + (64 << 20), "{before} and {}", resident());
        assert_eq!(b.as_ptr() as usize % BUFFER_ALIGN, 0);
        let mut small = Bytes::untouched(100).unwrap();
        small[3] = 1;
        small.forget();
        assert_eq!(small[..], [0; 100]);
    }

    #[test]
    fn absurd_sizes_are_errors() {
        for len in [usize::MAX, isize::MAX as usize] {
            assert_eq!(Bytes::zeroed(len).unwrap_err(), OutOfMemory(len));
        }
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(12), "12 bytes");
    }
}
