//! What carries out steps: the CPU of the process, and devices with memory of their own.
//!
//! The executor decides what runs when; a device only does what it is told. [`Cpu`] is
//! given one step at a time or, from several threads, several. An [`Accelerator`] is given
//! all steps between two that need the CPU at once ([`Task`]), with what waits for what,
//! and makes of them something that can be run again and again ([`Sequence`]). Kernels go
//! by their number in the plan, so that each device has code of its own for them.

use crate::calls;
use crate::conv::{self, ConvArgs};
use crate::error::{Error, Result};
use crate::gemm::{self, MatMulArgs};
use crate::mem::Bytes;
use crate::net::collective::Reduce;
use crate::net::direct::{Engine, Hindrance};
use crate::pool::Pool;
use std::sync::Arc;
use std::time::Instant;
use tfc_abi::plan::{BufId, DeviceId, Func};
use tfc_abi::{DType, KernelFn};

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

/// Devices besides the CPU, numbered as in the plan from 1.
pub(crate) trait Accelerator: Send + Sync {
    /// Memory of at least so many bytes. Its address means nothing to the CPU.
    fn allocate(&self, device: DeviceId, bytes: usize) -> Result<Box<dyn Memory>>;

    /// Memory of the CPU that copies from and to devices go through.
    fn staging(&self, bytes: usize) -> Result<Box<dyn Memory>>;

    /// Where empty buffers are: a few bytes that may be read.
    fn nothing(&self, device: DeviceId) -> *mut u8;

    /// Whether it can carry out a routine on these element types.
    fn runs(&self, func: Func, dtype: DType, ids: DType) -> bool;

    /// Copies to a device, and waits for it.
    ///
    /// # Safety
    /// The memory is the device's, has as many bytes, and nothing else uses it.
    unsafe fn write(&self, device: DeviceId, src: &[u8], dst: *mut u8) -> Result<()>;

    /// Copies from a device, and waits for it.
    ///
    /// # Safety
    /// As [`Accelerator::write`]; others may read.
    unsafe fn read(&self, device: DeviceId, src: *const u8, dst: &mut [u8]) -> Result<()>;

    /// Copies within a device, and waits for it.
    ///
    /// # Safety
    /// Both are memory of the device with as many bytes, apart from each other, and nothing
    /// else writes them or uses the second.
    unsafe fn copy(
        &self,
        device: DeviceId,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
    ) -> Result<()>;

    /// What of it could combine tensors over processes, or why it has nothing that could.
    fn engine(&self) -> std::result::Result<Arc<dyn Engine>, Hindrance>;

    /// Whether it combines tensors over processes by itself, as all of them have agreed:
    /// exchanges are tasks then.
    fn exchanges(&self) -> bool;

    /// Makes tasks ready to run, at these run-time dims of the program.
    fn sequence(&self, tasks: &[Task], dims: &[i64]) -> Result<Box<dyn Sequence>>;
}

/// Tasks that follow one another without the CPU.
pub(crate) trait Sequence: Send {
    /// Runs them, and waits for the last.
    fn run(&mut self) -> Result<()>;

    /// Runs one after the other, and says of each when it was begun, once it is done.
    fn run_each(&mut self, done: &mut dyn FnMut(usize, Instant)) -> Result<()>;
}

/// What a device besides the CPU is to do.
#[derive(Clone)]
pub(crate) struct Task {
    pub device: DeviceId,
    pub what: What,
    /// Earlier tasks of the sequence that must be done before.
    pub after: Vec<u32>,
}

/// Addresses are the device's own, but for those on the CPU's side of a copy, which are in
/// memory from [`Accelerator::staging`].
#[derive(Clone)]
pub(crate) enum What {
    Kernel {
        kernel: u32,
        bufs: Vec<*mut u8>,
        dims: Vec<i64>,
    },
    /// The factors, then the product or the epilogue's buffers. The product is named as in
    /// the plan that the program carries.
    Contraction {
        entry: u32,
        product: BufId,
        bufs: Vec<*mut u8>,
    },
    Routine {
        func: Func,
        dtype: DType,
        ids: DType,
        bufs: Vec<*mut u8>,
        ints: Vec<i64>,
    },
    /// With zeros.
    Fill {
        at: *mut u8,
        bytes: usize,
    },
    /// To the device.
    Up {
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
    },
    /// From the device.
    Down {
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
    },
    /// From a device, which may be the same.
    Copy {
        from: DeviceId,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
    },
    /// Each tensor becomes its combination over all processes, see
    /// [`Accelerator::exchanges`]. Before it is known to have come to a good end, nothing
    /// that is run may write a variable.
    Exchange {
        tensors: Vec<(DType, *mut u8, usize)>,
        how: Reduce,
        /// In the user's words, and where in the source.
        name: String,
        place: String,
    },
}

/// The CPU of the process: its memory, its threads, compiled kernels.
pub(crate) struct Cpu {
    pub pool: Arc<Pool>,
    pub kernels: Vec<KernelFn>,
    /// What convolves, if the program does.
    pub conv: Option<&'static conv::Entry>,
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

/// # Safety
/// Of all the methods that are unsafe: buffers are valid for what the step does with
/// them, and nothing that runs at the same time writes what it touches or touches what it
/// writes.
impl Cpu {
    pub fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Bytes::zeroed(bytes)?))
    }

    /// # Safety
    /// As said above.
    pub unsafe fn launch(&self, call: &KernelCall, range: Range) -> Result<()> {
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

    /// # Safety
    /// As said above.
    pub unsafe fn matmul(
        &self,
        args: &MatMulArgs<'_>,
        epilogue: Option<&KernelCall>,
    ) -> Result<()> {
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

    /// # Safety
    /// As said above.
    pub unsafe fn conv(&self, args: &ConvArgs<'_>, epilogue: Option<&KernelCall>) -> Result<()> {
        let Some(entry) = self.conv else {
            return Err(Error::bug("a program that convolves was linked without convolution"));
        };
        // SAFETY: as for the matrix product.
        unsafe {
            match epilogue {
                Some(call) => (entry.conv)(
                    &self.pool,
                    args,
                    Some(&|r0, r1, c0, c1| self.run(call, [r0, r1, c0, c1].map(|x| x as i64))),
                ),
                None => (entry.conv)(&self.pool, args, None),
            }
        }
        Ok(())
    }

    /// # Safety
    /// As said above.
    pub unsafe fn call(&self, func: Func, args: &calls::Args) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { calls::call(func, args) }
    }

    /// # Safety
    /// As said above.
    pub unsafe fn copy(&self, src: *const u8, dst: *mut u8, bytes: usize) -> Result<()> {
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
}
