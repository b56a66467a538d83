//! NVIDIA's driver, loaded when a program that has code for GPUs starts: no toolkit is
//! needed, neither to compile nor to run.
//!
//! The table below is all of the driver's interface that is used. Names carry the version
//! of a function where it has one (`_v2`), as the driver exports them.

use crate::error::{Error, ErrorCode, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

/// A code of the driver; 0 is success.
pub type Status = c_int;
/// An address in the memory of a device.
pub type DevicePtr = u64;
/// Something of the driver's that we only pass on.
pub type Handle = *mut c_void;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const NOW: c_int = 2;

/// Names the library, for tests and unusual installations.
pub const LIBRARY: &str = "TFC_CUDA";
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

macro_rules! driver {
    ($($field:ident = $name:literal, fn($($arg:ty),* $(,)?);)*) => {
        /// The functions of the driver.
        pub struct Driver {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> Status,)*
        }

        /// Every function: its name and the sizes of its parameters.
        pub const FUNCTIONS: &[(&str, &[usize])] =
            &[$(($name, &[$(std::mem::size_of::<$arg>()),*]),)*];

        impl Driver {
            fn find(library: *mut c_void) -> std::result::Result<Driver, &'static str> {
                let find = |name: &'static str| {
                    let text = CString::new(name).unwrap_or_default();
                    // SAFETY: the library is open, and the name is a C string.
                    let at = unsafe { dlsym(library, text.as_ptr()) };
                    if at.is_null() { Err(name) } else { Ok(at) }
                };
                Ok(Driver {
                    $(
                        // SAFETY: the driver's function of this name has these parameters.
                        $field: unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) -> Status,
                            >(find($name)?)
                        },
                    )*
                })
            }
        }
    };
}

driver! {
    init = "cuInit", fn(c_uint);
    driver_version = "cuDriverGetVersion", fn(*mut c_int);
    error_name = "cuGetErrorName", fn(Status, *mut *const c_char);
    device_count = "cuDeviceGetCount", fn(*mut c_int);
    device_get = "cuDeviceGet", fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName", fn(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute", fn(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2", fn(*mut usize, c_int);
    context_retain = "cuDevicePrimaryCtxRetain", fn(*mut Handle, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2", fn(c_int);
    context_use = "cuCtxSetCurrent", fn(Handle);
    module_load = "cuModuleLoadDataEx",
        fn(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload = "cuModuleUnload", fn(Handle);
    module_function = "cuModuleGetFunction", fn(*mut Handle, Handle, *const c_char);
    alloc = "cuMemAlloc_v2", fn(*mut DevicePtr, usize);
    free = "cuMemFree_v2", fn(DevicePtr);
    memory_info = "cuMemGetInfo_v2", fn(*mut usize, *mut usize);
    host_alloc = "cuMemAllocHost_v2", fn(*mut *mut c_void, usize);
    host_free = "cuMemFreeHost", fn(*mut c_void);
    copy_up = "cuMemcpyHtoDAsync_v2", fn(DevicePtr, *const c_void, usize, Handle);
    copy_down = "cuMemcpyDtoHAsync_v2", fn(*mut c_void, DevicePtr, usize, Handle);
    copy_within = "cuMemcpyDtoDAsync_v2", fn(DevicePtr, DevicePtr, usize, Handle);
    copy_across = "cuMemcpyPeerAsync",
        fn(DevicePtr, Handle, DevicePtr, Handle, usize, Handle);
    fill = "cuMemsetD8Async", fn(DevicePtr, u8, usize, Handle);
    stream_create = "cuStreamCreate", fn(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2", fn(Handle);
    stream_synchronise = "cuStreamSynchronize", fn(Handle);
    stream_wait = "cuStreamWaitEvent", fn(Handle, Handle, c_uint);
    event_create = "cuEventCreate", fn(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2", fn(Handle);
    event_record = "cuEventRecord", fn(Handle, Handle);
    event_query = "cuEventQuery", fn(Handle);
    launch = "cuLaunchKernel", fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
        *mut *mut c_void, *mut *mut c_void,
    );
    capture_begin = "cuStreamBeginCapture_v2", fn(Handle, c_int);
    capture_end = "cuStreamEndCapture", fn(Handle, *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags", fn(*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch", fn(Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy", fn(Handle);
    graph_destroy = "cuGraphDestroy", fn(Handle);
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
    let mut why = String::new();
    for name in names {
        let Ok(text) = CString::new(name) else { continue };
        // SAFETY: the name is a C string; the library is never unloaded.
        let library = unsafe { dlopen(text.as_ptr(), NOW) };
        if library.is_null() {
            if why.is_empty() {
                // SAFETY: what `dlerror` gives is a C string or null.
                let said = unsafe { dlerror() };
                if !said.is_null() {
                    // SAFETY: as above.
                    why = unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned();
                }
            }
            continue;
        }
        return Driver::find(library)
            .map_err(|name| format!("NVIDIA's driver is too old: it has no `{name}`"));
    }
    Err(match own {
        Some(_) => format!("the driver named by {LIBRARY} cannot be loaded: {why}"),
        None => "there is no NVIDIA driver (`libcuda.so.1`) on this machine".into(),
    })
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
