//! NVIDIA's driver, loaded when a program that has code for GPUs starts: no toolkit is
//! needed, neither to compile nor to run.
//!
//! The table below is all of the driver's interface that is used. Names carry the version
//! of a function where it has one (`_v2`), as the driver exports them.

use crate::error::{Error, ErrorCode, Result};
use crate::library::{Library, functions};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A code of the driver; 0 is success.
pub type Status = c_int;
/// An address in the memory of a device.
pub type DevicePtr = u64;
/// Something of the driver's that we only pass on.
pub type Handle = *mut c_void;

/// Names the library, for tests and unusual installations.
pub const LIBRARY: &str = "TFC_CUDA";
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

functions! {
    /// The functions of the driver.
    Driver;
    init = "cuInit", fn(c_uint) -> Status;
    driver_version = "cuDriverGetVersion", fn(*mut c_int) -> Status;
    error_name = "cuGetErrorName", fn(Status, *mut *const c_char) -> Status;
    device_count = "cuDeviceGetCount", fn(*mut c_int) -> Status;
    device_get = "cuDeviceGet", fn(*mut c_int, c_int) -> Status;
    device_name = "cuDeviceGetName", fn(*mut c_char, c_int, c_int) -> Status;
    device_attribute = "cuDeviceGetAttribute", fn(*mut c_int, c_int, c_int) -> Status;
    device_memory = "cuDeviceTotalMem_v2", fn(*mut usize, c_int) -> Status;
    context_retain = "cuDevicePrimaryCtxRetain", fn(*mut Handle, c_int) -> Status;
    context_release = "cuDevicePrimaryCtxRelease_v2", fn(c_int) -> Status;
    context_use = "cuCtxSetCurrent", fn(Handle) -> Status;
    module_load = "cuModuleLoadDataEx",
        fn(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void) -> Status;
    module_unload = "cuModuleUnload", fn(Handle) -> Status;
    module_function = "cuModuleGetFunction", fn(*mut Handle, Handle, *const c_char) -> Status;
    alloc = "cuMemAlloc_v2", fn(*mut DevicePtr, usize) -> Status;
    free = "cuMemFree_v2", fn(DevicePtr) -> Status;
    memory_info = "cuMemGetInfo_v2", fn(*mut usize, *mut usize) -> Status;
    host_alloc = "cuMemAllocHost_v2", fn(*mut *mut c_void, usize) -> Status;
    host_free = "cuMemFreeHost", fn(*mut c_void) -> Status;
    copy_up = "cuMemcpyHtoDAsync_v2", fn(DevicePtr, *const c_void, usize, Handle) -> Status;
    copy_down = "cuMemcpyDtoHAsync_v2", fn(*mut c_void, DevicePtr, usize, Handle) -> Status;
    copy_within = "cuMemcpyDtoDAsync_v2", fn(DevicePtr, DevicePtr, usize, Handle) -> Status;
    copy_across = "cuMemcpyPeerAsync",
        fn(DevicePtr, Handle, DevicePtr, Handle, usize, Handle) -> Status;
    fill = "cuMemsetD8Async", fn(DevicePtr, u8, usize, Handle) -> Status;
    stream_create = "cuStreamCreate", fn(*mut Handle, c_uint) -> Status;
    stream_destroy = "cuStreamDestroy_v2", fn(Handle) -> Status;
    stream_synchronise = "cuStreamSynchronize", fn(Handle) -> Status;
    stream_wait = "cuStreamWaitEvent", fn(Handle, Handle, c_uint) -> Status;
    event_create = "cuEventCreate", fn(*mut Handle, c_uint) -> Status;
    event_destroy = "cuEventDestroy_v2", fn(Handle) -> Status;
    event_record = "cuEventRecord", fn(Handle, Handle) -> Status;
    event_query = "cuEventQuery", fn(Handle) -> Status;
    launch = "cuLaunchKernel", fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
        *mut *mut c_void, *mut *mut c_void,
    ) -> Status;
    capture_begin = "cuStreamBeginCapture_v2", fn(Handle, c_int) -> Status;
    capture_end = "cuStreamEndCapture", fn(Handle, *mut Handle) -> Status;
    graph_instantiate = "cuGraphInstantiateWithFlags", fn(*mut Handle, Handle, u64) -> Status;
    graph_launch = "cuGraphLaunch", fn(Handle, Handle) -> Status;
    graph_exec_destroy = "cuGraphExecDestroy", fn(Handle) -> Status;
    graph_destroy = "cuGraphDestroy", fn(Handle) -> Status;
}

/// Values of the driver's enumerations.
pub mod value {
    use std::ffi::c_int;

    pub const INVALID_VALUE: c_int = 1;
    pub const OUT_OF_MEMORY: c_int = 2;
    pub const NO_DEVICE: c_int = 100;
    pub const NO_BINARY_FOR_GPU: c_int = 209;
    pub const INVALID_PTX: c_int = 218;
    pub const UNSUPPORTED_PTX_VERSION: c_int = 222;
    pub const NOT_READY: c_int = 600;
    pub const SYSTEM_DRIVER_MISMATCH: c_int = 803;

    pub const ATTRIBUTE_PROCESSORS: c_int = 16;
    pub const ATTRIBUTE_MAJOR: c_int = 75;
    pub const ATTRIBUTE_MINOR: c_int = 76;

    pub const STREAM_NON_BLOCKING: c_int = 1;
    pub const EVENT_DISABLE_TIMING: c_int = 2;
    pub const CAPTURE_THREAD_LOCAL: c_int = 1;

    pub const JIT_ERROR_LOG: c_int = 5;
    pub const JIT_ERROR_LOG_BYTES: c_int = 6;
}

/// Why the driver cannot be used, in half a sentence.
pub fn open() -> std::result::Result<Driver, String> {
    let own = std::env::var(LIBRARY).ok();
    let names: Vec<&str> = match &own {
        Some(name) => vec![name],
        None => NAMES.to_vec(),
    };
    // SAFETY: the driver, or what the user says stands for it, is made to be loaded.
    let library = unsafe { Library::open(&names) }.map_err(|why| match &own {
        Some(_) => format!("the driver named by {LIBRARY} cannot be loaded: {why}"),
        None => "there is no NVIDIA driver (`libcuda.so.1`) on this machine".into(),
    })?;
    // SAFETY: NVIDIA's headers declare them so; a test compares this table with them.
    unsafe { Driver::find(library) }
        .map_err(|name| format!("NVIDIA's driver is too old: it has no `{name}`"))
}

impl Driver {
    /// What the driver calls a code.
    fn name(&self, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a string of its own, or nothing.
        unsafe { (self.error_name)(status, &raw mut text) };
        if text.is_null() {
            return format!("error {status}");
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// An error of the driver's as one of ours.
    pub fn check(&self, status: Status, doing: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let name = self.name(status);
        Err(match status {
            value::OUT_OF_MEMORY => Error::io(
                ErrorCode::GPU_MEMORY,
                format!("the GPU is out of memory: {doing} failed"),
            )
            .help("use smaller batches, end other programs on the GPU, or run with `--device cpu`"),
            value::NO_BINARY_FOR_GPU | value::INVALID_PTX | value::UNSUPPORTED_PTX_VERSION => {
                Error::io(
                    ErrorCode::GPU_TOO_OLD,
                    format!("NVIDIA's driver does not take this program's code ({name})"),
                )
                .help("update the driver, or run with `--device cpu`")
            }
            // The caller's mistake, and so ours.
            value::INVALID_VALUE => Error::bug(format!("{doing}: the driver says {name}")),
            _ => Error::io(ErrorCode::GPU_LOST, format!("the GPU failed: {doing} gave {name}"))
                .note("what it held is lost; saved checkpoints are not")
                .help(
                    "start again, from the last checkpoint with `--resume`, or with `--device cpu`",
                ),
        })
    }
}
