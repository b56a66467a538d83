//! What carries out steps: a device with memory of its own.
//!
//! The executor decides what runs when; a device only does what it is told, one
//! step at a time or, from several threads, several. It may return before a step
//! is done, as long as the steps it was given later see the results: whoever else
//! wants them calls [`Device::synchronise`] first.
//!
//! [`Cpu`] is the first of them. A GPU, or a task in another process, would be
//! others: kernels go by their number in the plan, so that each device has code of
//! its own for them, and copies are steps.

use crate::calls;
use crate::conv::{self, ConvArgs};
use crate::error::Result;
use crate::gemm::{self, MatMulArgs};
use crate::mem::Bytes;
use crate::pool::Pool;
use std::sync::Arc;
use tfc_abi::KernelFn;
use tfc_abi::plan::Func;

/// Bytes a core copies in a nanosecond, roughly.
pub(crate) const COPIED_PER_NS: i64 = 8;

/// Memory of a device.
pub(crate) trait Memory: Send + Sync {
    /// Its first byte, aligned to [`tfc_abi::BUFFER_ALIGN`].
    fn start(&self) -> *mut u8;

    /// How many bytes it has.
    fn len(&self) -> usize;
}

impl Memory for Bytes {
    fn start(&self) -> *mut u8 {
        self.as_ptr()
    }

    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
}

/// A kernel by its number in the plan, and its arguments.
#[derive(Clone, Copy)]
pub(crate) struct KernelCall {
    pub kernel: u32,
    pub bufs: *const *mut u8,
    pub dims: *const i64,
}

// SAFETY: a kernel's calls over disjoint ranges may run at the same time; that
// is what its range parameter is for.
unsafe impl Sync for KernelCall {}

/// How a kernel is gone through.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub extent: usize,
    /// Nanoseconds for all of it, roughly.
    pub work: i64,
    /// Parts may run at the same time.
    pub splits: bool,
}

/// # Safety
/// Of all the methods that are unsafe: buffers are this device's, valid for what
/// the step does with them, and nothing that runs at the same time writes what it
/// touches or touches what it writes.
pub(crate) trait Device: Send + Sync {
    /// Memory of at least so many bytes.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>>;

    /// # Safety
    /// As said for the trait.
    unsafe fn launch(&self, call: &KernelCall, range: Range) -> Result<()>;

    /// # Safety
    /// As said for the trait.
    unsafe fn matmul(&self, args: &MatMulArgs<'_>, epilogue: Option<&KernelCall>) -> Result<()>;

    /// # Safety
    /// As said for the trait.
    unsafe fn conv(&self, args: &ConvArgs<'_>, epilogue: Option<&KernelCall>) -> Result<()>;

    /// # Safety
    /// As said for the trait.
    unsafe fn call(&self, func: Func, args: &calls::Args) -> Result<()>;

    /// Copies between this device and itself or the CPU. Both places may be one;
    /// else they do not overlap.
    ///
    /// # Safety
    /// As said for the trait; one side may be the CPU's.
    unsafe fn copy(&self, src: *const u8, dst: *mut u8, bytes: usize) -> Result<()>;

    /// Waits until all it was given is done.
    fn synchronise(&self) -> Result<()>;
}

/// The CPU of the process: its memory, its threads, compiled kernels.
pub(crate) struct Cpu {
    pub pool: Arc<Pool>,
    pub kernels: Vec<KernelFn>,
}

impl Cpu {
    /// # Safety
    /// The arguments are those the kernel was compiled for, and the range is
    /// inside its loops.
    unsafe fn run(&self, call: &KernelCall, range: [i64; 4]) {
        let kernel = self.kernels[call.kernel as usize];
        // SAFETY: the caller's promise.
        unsafe { kernel(call.bufs, call.dims, range.as_ptr()) }
    }
}

impl Device for Cpu {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Bytes::zeroed(bytes)?))
    }

    unsafe fn launch(&self, call: &KernelCall, range: Range) -> Result<()> {
        let Range { extent, work, splits } = range;
        let threads = if splits { self.pool.parts_for(extent, work) } else { 1 };
        if threads == 1 {
            // SAFETY: the caller's promise.
            unsafe { self.run(call, [0, extent as i64, 0, 0]) };
            return Ok(());
        }
        // Sixteen elements, when there are many: a part starts on a cache line.
        let grain = if extent >= 64 * 16 * threads { 16 } else { 1 };
        self.pool.ranges(extent, grain, threads, &|lo, hi| {
            // SAFETY: the caller's promise; ranges are disjoint.
            unsafe { self.run(call, [lo as i64, hi as i64, 0, 0]) }
        });
        Ok(())
    }

    unsafe fn matmul(&self, args: &MatMulArgs<'_>, epilogue: Option<&KernelCall>) -> Result<()> {
        // SAFETY: the caller's promise; the epilogue's range is inside the result.
        unsafe {
            match epilogue {
                Some(call) => gemm::matmul(
                    &self.pool,
                    args,
                    Some(&|r0, r1, c0, c1| self.run(call, [r0, r1, c0, c1].map(|x| x as i64))),
                ),
                None => gemm::matmul(&self.pool, args, None),
            }
        }
        Ok(())
    }

    unsafe fn conv(&self, args: &ConvArgs<'_>, epilogue: Option<&KernelCall>) -> Result<()> {
        // SAFETY: as for the matrix product.
        unsafe {
            match epilogue {
                Some(call) => conv::conv(
                    &self.pool,
                    args,
                    Some(&|r0, r1, c0, c1| self.run(call, [r0, r1, c0, c1].map(|x| x as i64))),
                ),
                None => conv::conv(&self.pool, args, None),
            }
        }
        Ok(())
    }

    unsafe fn call(&self, func: Func, args: &calls::Args) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { calls::call(func, args) }
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, bytes: usize) -> Result<()> {
        if src == dst.cast_const() {
            return Ok(());
        }
        struct Ends(*const u8, *mut u8);
        // SAFETY: parts of a copy do not overlap.
        unsafe impl Sync for Ends {}
        impl Ends {
            /// # Safety
            /// The range is inside both.
            unsafe fn copy(&self, lo: usize, hi: usize) {
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy(self.0.add(lo), self.1.add(lo), hi - lo) }
            }
        }
        let ends = Ends(src, dst);
        let threads = self.pool.parts_for(bytes >> 12, bytes as i64 / COPIED_PER_NS);
        self.pool.ranges(bytes, 1 << 12, threads, &|lo, hi| {
            // SAFETY: the caller's promise; two buffers are one or apart.
            unsafe { ends.copy(lo, hi) }
        });
        Ok(())
    }

    fn synchronise(&self) -> Result<()> {
        Ok(())
    }
}
