//! Memory between pages that nobody may touch, for tests: an access outside a
//! buffer ends the process instead of going unnoticed.
//!
//! While a mode other than [`Guard::Off`] is set, every block of
//! [`crate::mem::Bytes`], every buffer of an entry's working memory and every
//! constant of a model loaded then has pages of its own.

use crate::mem::Bytes;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where in its pages a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guard {
    #[default]
    Off,
    /// Its last byte is the last of its pages: reading on is caught.
    End,
    /// Its first byte is the first of its pages: reading before it is caught.
    Start,
}

static MODE: AtomicU8 = AtomicU8::new(0);

/// Sets how buffers are allocated from now on, in the whole process.
pub fn set(mode: Guard) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

pub fn mode() -> Guard {
    match MODE.load(Ordering::Relaxed) {
        1 => Guard::End,
        2 => Guard::Start,
        _ => Guard::Off,
    }
}

/// One element of the largest type, for empty buffers to point at.
pub fn nothing() -> Option<*mut u8> {
    static NOTHING: [OnceLock<Option<Bytes>>; 2] = [OnceLock::new(), OnceLock::new()];
    let cell = match mode() {
        Guard::Off => return None,
        Guard::End => &NOTHING[0],
        Guard::Start => &NOTHING[1],
    };
    cell.get_or_init(|| Bytes::zeroed(8).ok()).as_ref().map(Bytes::as_ptr)
}

/// Bytes on either side that cannot be touched: more than a page of any
/// machine, so that a row or two too far is caught as well.
const MARGIN: usize = 1 << 20;

/// A mapping with `len` zero bytes in it.
pub(crate) struct Pages {
    /// The first of the bytes.
    pub ptr: *mut u8,
    /// Bytes from the start of the mapping to `ptr`.
    pub skip: usize,
    /// Bytes of the mapping.
    pub total: usize,
}

#[cfg(unix)]
mod system {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        pub fn mmap(
            addr: *mut c_void,
            len: usize,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            offset: i64,
        ) -> *mut c_void;
        pub fn mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int;
        pub fn munmap(addr: *mut c_void, len: usize) -> c_int;
        #[cfg(target_os = "linux")]
        pub fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int;
    }

    pub const PRIVATE: c_int = 2;
    #[cfg(target_os = "linux")]
    pub const ANONYMOUS: c_int = 0x20;
    #[cfg(not(target_os = "linux"))]
    pub const ANONYMOUS: c_int = 0x1000;
    pub const READ_WRITE: c_int = 3;
    /// Nothing is set aside for pages that may never be used.
    #[cfg(target_os = "linux")]
    pub const NO_RESERVE: c_int = 0x4000;
    #[cfg(not(target_os = "linux"))]
    pub const NO_RESERVE: c_int = 0;
    #[cfg(target_os = "linux")]
    pub const DONT_NEED: c_int = 4;
    #[cfg(target_os = "linux")]
    pub const NO_LARGE_PAGES: c_int = 15;
}

/// Maps `len` bytes as `mode` says; `None` where that cannot be had.
#[cfg(unix)]
pub(crate) fn map(len: usize, mode: Guard) -> Option<Pages> {
    let inner = len.checked_next_multiple_of(1 << 16)?;
    let total = inner.checked_add(2 * MARGIN)?;
    // SAFETY: a fresh mapping, of which only the middle may be touched.
    let base = unsafe {
        let flags = system::PRIVATE | system::ANONYMOUS;
        let base = system::mmap(std::ptr::null_mut(), total, 0, flags, -1, 0);
        if base.addr() == usize::MAX {
            return None;
        }
        if system::mprotect(base.byte_add(MARGIN), inner, system::READ_WRITE) != 0 {
            system::munmap(base, total);
            return None;
        }
        base.cast::<u8>()
    };
    let skip = if mode == Guard::End { MARGIN + inner - len } else { MARGIN };
    Some(Pages { ptr: base.wrapping_add(skip), skip, total })
}

#[cfg(not(unix))]
pub(crate) fn map(_len: usize, _mode: Guard) -> Option<Pages> {
    None
}

/// # Safety
/// `pages` is what [`map`] gave, and nothing uses it any more.
pub(crate) unsafe fn unmap(pages: &Pages) {
    #[cfg(unix)]
    // SAFETY: the caller's promise.
    unsafe {
        system::munmap(pages.ptr.sub(pages.skip).cast(), pages.total);
    }
    #[cfg(not(unix))]
    let _ = pages;
}

/// Address space without memory behind it until it is touched, page by page.
#[cfg(unix)]
pub(crate) fn untouched(len: usize) -> Option<Pages> {
    let total = len.checked_next_multiple_of(1 << 16)?;
    // SAFETY: a fresh mapping.
    let base = unsafe {
        let flags = system::PRIVATE | system::ANONYMOUS | system::NO_RESERVE;
        let base = system::mmap(std::ptr::null_mut(), total, system::READ_WRITE, flags, -1, 0);
        if base.addr() == usize::MAX {
            return None;
        }
        #[cfg(target_os = "linux")]
        system::madvise(base, total, system::NO_LARGE_PAGES);
        base.cast::<u8>()
    };
    Some(Pages { ptr: base, skip: 0, total })
}

#[cfg(not(unix))]
pub(crate) fn untouched(_len: usize) -> Option<Pages> {
    None
}

/// Gives back what [`untouched`] has had touched: it is zero again. False where the
/// system cannot.
pub(crate) fn forget(start: *mut u8, len: usize) -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: a private mapping of ours, from its start; the caller has it to itself.
    // Pages of a guarded block do not begin at its start, and are refused.
    return unsafe { system::madvise(start.cast(), len, system::DONT_NEED) == 0 };
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (start, len);
        false
    }
}
