//! Memory of a GPU, and memory of the CPU that the GPU can reach.

use super::Gpu;
use super::driver::DevicePtr;
use crate::device::Memory;
use crate::error::Result;
use crate::mem::human_bytes;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Arc;

/// Bytes of a GPU.
pub(super) struct Block {
    gpu: Arc<Gpu>,
    ptr: DevicePtr,
    len: usize,
}

impl Block {
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Block> {
        gpu.make_current()?;
        let (mut ptr, len) = (0, bytes.max(MIN));
        // SAFETY: the driver writes an address.
        let status = unsafe { (gpu.driver.alloc)(&raw mut ptr, len) };
        let what = || format!("allocating {}", human_bytes(len as u64));
        gpu.driver.check(status, &what()).map_err(|e| match gpu.free_memory() {
            Some((free, total)) => e.note(format!(
                "{} of its {} are free",
                human_bytes(free as u64),
                human_bytes(total as u64)
            )),
            None => e,
        })?;
        Ok(Block { gpu: gpu.clone(), ptr, len })
    }

    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }
}

/// Of an empty buffer, too, the first bytes may be read.
const MIN: usize = 64;

impl Memory for Block {
    fn start(&self) -> *mut u8 {
        // Never followed here: it is an address of another memory.
        without_provenance_mut(self.ptr as usize)
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A GPU that is lost has nothing left to free.
        if self.gpu.make_current().is_ok() {
            // SAFETY: the driver gave the address, and nothing uses it any more.
            unsafe { (self.gpu.driver.free)(self.ptr) };
        }
    }
}

/// Memory of the CPU that stays where it is ("pinned"), so that copies need not wait.
pub(super) struct Pinned {
    gpu: Arc<Gpu>,
    ptr: *mut c_void,
    len: usize,
}

// SAFETY: it owns its memory, as `Vec<u8>` does.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Pinned> {
        gpu.make_current()?;
        let (mut ptr, len) = (std::ptr::null_mut(), bytes.max(MIN));
        // SAFETY: the driver writes an address.
        let status = unsafe { (gpu.driver.host_alloc)(&raw mut ptr, len) };
        gpu.driver
            .check(status, &format!("getting {} to copy through", human_bytes(len as u64)))?;
        Ok(Pinned { gpu: gpu.clone(), ptr, len })
    }
}

impl Memory for Pinned {
    fn start(&self) -> *mut u8 {
        self.ptr.cast()
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.gpu.make_current().is_ok() {
            // SAFETY: the driver gave the address, and nothing uses it any more.
            unsafe { (self.gpu.driver.host_free)(self.ptr) };
        }
    }
}
