//! The functions of the driver, under their names.
//!
//! Parameters are the driver's; see NVIDIA's CUDA Driver API for what each means.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

use crate::sim::{Command, INVALID_VALUE, NO_DEVICE, Status, Together, Work, sim};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

type Handle = *mut c_void;

thread_local! {
    /// The GPU whose context is current.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn handle(id: usize) -> Handle {
    std::ptr::without_provenance_mut(id)
}

fn status(done: Result<(), Status>) -> Status {
    done.err().unwrap_or(0)
}

/// Others may use the driver while other processes are waited for.
fn synchronise(stream: usize) -> Status {
    loop {
        let done = sim().synchronise(stream);
        match done {
            Ok(true) => return 0,
            Ok(false) => std::thread::sleep(std::time::Duration::from_millis(1)),
            Err(status) => return status,
        }
    }
}

/// Writes what a call gives, or its status.
unsafe fn give<T, U>(out: *mut T, made: Result<U, Status>, value: impl FnOnce(U) -> T) -> Status {
    match made {
        Ok(made) => {
            // SAFETY: the caller has room for it, as the driver's interface says.
            unsafe { out.write(value(made)) };
            0
        }
        Err(status) => status,
    }
}

macro_rules! driver {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> Status $body
    )*};
}

driver! {
    fn cuInit(_flags: c_uint) {
        if sim().fault == "no-device" { NO_DEVICE } else { 0 }
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        let old = sim().fault == "old-driver";
        // SAFETY: the caller's promise, here and below: what it points at is there.
        unsafe { version.write(if old { 8000 } else { 12040 }) };
        0
    }

    fn cuGetErrorName(code: Status, text: *mut *const c_char) {
        let name: &CStr = match code {
            1 => c"CUDA_ERROR_INVALID_VALUE",
            2 => c"CUDA_ERROR_OUT_OF_MEMORY",
            100 => c"CUDA_ERROR_NO_DEVICE",
            218 => c"CUDA_ERROR_INVALID_PTX",
            222 => c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            702 => c"CUDA_ERROR_LAUNCH_TIMEOUT",
            719 => c"CUDA_ERROR_LAUNCH_FAILED",
            _ => c"CUDA_ERROR_UNKNOWN",
        };
        // SAFETY: as above.
        unsafe { text.write(name.as_ptr()) };
        0
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        // SAFETY: as above.
        unsafe { count.write(sim().devices as c_int) };
        0
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        if ordinal < 0 || ordinal as usize >= sim().devices {
            return 101;
        }
        // SAFETY: as above.
        unsafe { device.write(ordinal) };
        0
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) {
        let text = c"simulated GPU".to_bytes_with_nul();
        let len = text.len().min(len.max(0) as usize);
        // SAFETY: as above.
        unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len) };
        0
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        let old = sim().fault == "old-gpu";
        let found = match attribute {
            16 => 4,
            75 => if old { 6 } else { 8 },
            76 => 0,
            _ => return INVALID_VALUE,
        };
        // SAFETY: as above.
        unsafe { value.write(found) };
        0
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) {
        // SAFETY: as above.
        unsafe { bytes.write(sim().room().1) };
        0
    }

    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) {
        let id = sim().retain(device as usize);
        // SAFETY: as above.
        unsafe { context.write(handle(id)) };
        0
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        status(sim().release(device as usize))
    }

    fn cuCtxSetCurrent(context: Handle) {
        CURRENT.set(context.addr().wrapping_sub(1));
        0
    }

    fn cuModuleLoadDataEx(
        module: *mut Handle,
        image: *const c_void,
        _count: c_uint,
        _options: *mut c_int,
        _values: *mut *mut c_void,
    ) {
        // SAFETY: as above; the text ends in a zero.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        let mut sim = sim();
        if sim.fault == "bad-ptx" {
            return 222;
        }
        let loaded = sim.load(&text.to_string_lossy());
        // SAFETY: as above.
        unsafe { give(module, loaded, handle) }
    }

    fn cuModuleUnload(module: Handle) {
        status(sim().unload(module.addr()))
    }

    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let found = sim().function(module.addr(), &name);
        // SAFETY: as above.
        unsafe { give(function, found, handle) }
    }

    fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) {
        let made = sim().alloc(CURRENT.get(), bytes);
        // SAFETY: as above.
        unsafe { give(ptr, made, |p| p) }
    }

    fn cuMemFree_v2(ptr: u64) {
        status(sim().free(ptr))
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let (left, all) = sim().room();
        // SAFETY: as above.
        unsafe { (free.write(left), total.write(all)) };
        0
    }

    fn cuMemAllocHost_v2(ptr: *mut *mut c_void, bytes: usize) {
        let at = sim().pin(bytes);
        // SAFETY: as above.
        unsafe { ptr.write(std::ptr::with_exposed_provenance_mut(at)) };
        0
    }

    fn cuMemFreeHost(ptr: *mut c_void) {
        status(sim().unpin(ptr.addr()))
    }

    fn cuMemcpyHtoDAsync_v2(dst: u64, src: *const c_void, len: usize, stream: Handle) {
        let (mut sim, device, at) = (sim(), CURRENT.get(), src.expose_provenance());
        let command = match sim.is_pinned(at, len) {
            true => Command::Up { device, dst, src: at, len },
            false => {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(src.cast::<u8>(), len) };
                Command::UpNow { device, dst, bytes: bytes.to_vec() }
            }
        };
        status(sim.push(stream.addr(), command))
    }

    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: u64, len: usize, stream: Handle) {
        let (mut sim, device, at) = (sim(), CURRENT.get(), dst.expose_provenance());
        let pushed = sim.push(stream.addr(), Command::Down { device, dst: at, src, len });
        // Other memory of the CPU is waited for.
        let waits = pushed.is_ok() && !sim.is_pinned(at, len) && !sim.is_capturing(stream.addr());
        drop(sim);
        if waits { synchronise(stream.addr()) } else { status(pushed) }
    }

    fn cuMemcpyDtoDAsync_v2(dst: u64, src: u64, len: usize, stream: Handle) {
        let device = CURRENT.get();
        let command = Command::Within { from: device, to: device, dst, src, len };
        status(sim().push(stream.addr(), command))
    }

    fn cuMemcpyPeerAsync(
        dst: u64,
        to: Handle,
        src: u64,
        from: Handle,
        len: usize,
        stream: Handle,
    ) {
        let (from, to) = (from.addr().wrapping_sub(1), to.addr().wrapping_sub(1));
        status(sim().push(stream.addr(), Command::Within { from, to, dst, src, len }))
    }

    fn cuMemsetD8Async(at: u64, value: u8, len: usize, stream: Handle) {
        let device = CURRENT.get();
        status(sim().push(stream.addr(), Command::Fill { device, at, value, len }))
    }

    fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) {
        let id = sim().stream();
        // SAFETY: as above.
        unsafe { stream.write(handle(id)) };
        0
    }

    fn cuStreamDestroy_v2(stream: Handle) {
        status(sim().end_stream(stream.addr()))
    }

    fn cuStreamSynchronize(stream: Handle) {
        synchronise(stream.addr())
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) {
        status(sim().wait(stream.addr(), event.addr()))
    }

    fn cuEventCreate(event: *mut Handle, _flags: c_uint) {
        let id = sim().event();
        // SAFETY: as above.
        unsafe { event.write(handle(id)) };
        0
    }

    fn cuEventDestroy_v2(event: Handle) {
        status(sim().end_event(event.addr()))
    }

    fn cuEventRecord(event: Handle, stream: Handle) {
        status(sim().record(event.addr(), stream.addr()))
    }

    fn cuEventQuery(event: Handle) {
        status(sim().query(event.addr()))
    }

    fn cuLaunchKernel(
        function: Handle,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        _shared: c_uint,
        stream: Handle,
        params: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
        let mut sim = sim();
        let count = match sim.params(function.addr()) {
            Ok(count) => count,
            Err(status) => return status,
        };
        // SAFETY: as above: a pointer to each parameter, of eight bytes.
        let arg = |i: usize| unsafe { params.add(i).read().cast::<u64>().read_unaligned() };
        let launch = Command::Launch {
            device: CURRENT.get(),
            function: function.addr(),
            grid: [gx, gy, gz],
            block: [bx, by, bz],
            args: (0..count).map(arg).collect(),
        };
        status(sim.push(stream.addr(), launch))
    }

    fn cuStreamBeginCapture_v2(stream: Handle, _mode: c_int) {
        status(sim().begin_capture(stream.addr()))
    }

    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        let ended = sim().end_capture(stream.addr());
        // SAFETY: as above.
        unsafe { give(graph, ended, handle) }
    }

    fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, _flags: u64) {
        let made = sim().instantiate(graph.addr());
        // SAFETY: as above.
        unsafe { give(exec, made, handle) }
    }

    fn cuGraphLaunch(exec: Handle, stream: Handle) {
        status(sim().push(stream.addr(), Command::Graph(exec.addr())))
    }

    fn cuGraphExecDestroy(exec: Handle) {
        status(sim().end_exec(exec.addr()))
    }

    fn cuGraphDestroy(graph: Handle) {
        status(sim().end_graph(graph.addr()))
    }
}

/// Not the driver's: for the simulated library of exchanges. Has a function follow what is
/// on a stream, see [`Together`].
///
/// # Safety
/// There are as many addresses and lengths as said; the function may be called with its
/// data until it gives 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_sim_together(
    stream: Handle,
    count: usize,
    at: *const u64,
    len: *const usize,
    work: Work,
    data: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    let block = |i| unsafe { (at.add(i).read(), len.add(i).read()) };
    let blocks = (0..count).map(block).collect();
    let together = Together { device: CURRENT.get(), blocks, work, data: data.expose_provenance() };
    status(sim().push(stream.addr(), Command::Together(together)))
}

/// Not the driver's: the number of the GPU that is used, if some memory is all its own.
#[unsafe(no_mangle)]
pub extern "C" fn tfc_sim_device_of(at: u64, len: usize) -> c_int {
    let device = CURRENT.get();
    match len == 0 || sim().owned(device, at, len).is_ok() {
        true => device as c_int,
        false => -1,
    }
}
