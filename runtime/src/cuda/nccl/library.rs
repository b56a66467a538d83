//! NCCL, loaded when a job begins whose processes all have a GPU; nothing links it.
//!
//! The table below is all of its interface that is used. That is what NCCL has had since
//! 2.14, when its calls could first be made without waiting in them.

use super::super::driver::Handle;
use crate::library::{self, functions};
use crate::net::direct::{Hindrance, Id};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// A code of the library; 0 is success.
pub type Status = c_int;

/// Names the library, or switches it off with `0`.
pub const LIBRARY: &str = "TFC_NCCL";
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// What the chief makes and all are told; passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub Id);

/// How a communicator is made, as far as it was settled in 2.14: a library that knows more
/// takes its defaults for the rest.
#[repr(C)]
pub struct Config {
    pub size: usize,
    pub magic: u32,
    pub version: u32,
    pub blocking: c_int,
    /// Not set.
    pub rest: c_int,
}

/// What every version has.
pub mod version {
    use super::{Status, c_int, functions};

    functions! {
        /// Says which one it is.
        Version;
        ask = "ncclGetVersion", fn(*mut c_int) -> Status;
    }
}

functions! {
    /// The functions of the library.
    Library;
    unique_id = "ncclGetUniqueId", fn(*mut UniqueId) -> Status;
    init = "ncclCommInitRankConfig",
        fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> Status;
    finalize = "ncclCommFinalize", fn(Handle) -> Status;
    destroy = "ncclCommDestroy", fn(Handle) -> Status;
    abort = "ncclCommAbort", fn(Handle) -> Status;
    state = "ncclCommGetAsyncError", fn(Handle, *mut Status) -> Status;
    error_text = "ncclGetErrorString", fn(Status) -> *const c_char;
    last_error = "ncclGetLastError", fn(Handle) -> *const c_char;
    all_reduce = "ncclAllReduce",
        fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
    group_start = "ncclGroupStart", fn() -> Status;
    group_end = "ncclGroupEnd", fn() -> Status;
}

/// Values of the library's enumerations and macros.
pub mod value {
    use std::ffi::c_int;

    pub const IN_PROGRESS: c_int = 7;

    pub const INT8: c_int = 0;
    pub const UINT8: c_int = 1;
    pub const INT32: c_int = 2;
    pub const INT64: c_int = 4;
    pub const FLOAT16: c_int = 6;
    pub const FLOAT32: c_int = 7;
    pub const FLOAT64: c_int = 8;
    pub const BFLOAT16: c_int = 9;

    pub const SUM: c_int = 0;
    pub const MAX: c_int = 2;
    pub const MIN: c_int = 3;

    /// `NCCL_VERSION(2, 14, 0)`
    pub const LEAST: c_int = 21_400;
    /// What a configuration begins with, and what is not set in it.
    pub const MAGIC: u32 = 0xcafe_beef;
    pub const UNDEFINED: c_int = c_int::MIN;
}

/// The library of this machine, and its version as it is written.
pub fn open() -> Result<(Arc<Library>, String), Hindrance> {
    let own = std::env::var(LIBRARY).ok().filter(|name| !name.is_empty());
    if own.as_deref() == Some("0") {
        return Err(Hindrance::SwitchedOff);
    }
    let names: Vec<&str> = match &own {
        Some(name) => vec![name],
        None => NAMES.to_vec(),
    };
    // SAFETY: NCCL, or what the user says stands for it, is made to be loaded.
    let opened = unsafe { library::Library::open(&names) }.map_err(|_| Hindrance::Missing)?;
    // What it is, before what it lacks.
    // SAFETY: it has been so in all versions, and a test compares it with the headers.
    let known = unsafe { version::Version::find(opened) }.map_err(|_| Hindrance::NotNccl)?;
    let mut version = 0;
    // SAFETY: the library writes a number.
    match unsafe { (known.ask)(&raw mut version) } {
        0 if version < value::LEAST => return Err(Hindrance::TooOld),
        0 => {}
        _ => return Err(Hindrance::NotNccl),
    }
    // SAFETY: its headers declare them so since 2.14, and the same test compares them.
    let library = unsafe { Library::find(opened) }.map_err(|_| Hindrance::NotNccl)?;
    let text = format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100);
    Ok((Arc::new(library), text))
}

impl Library {
    /// What a code means, in the library's words.
    pub fn says(&self, status: Status) -> String {
        // SAFETY: strings of the library's own, or null.
        let texts = unsafe { [(self.error_text)(status), (self.last_error)(std::ptr::null_mut())] };
        let text = |at: *const c_char| match at.is_null() {
            true => String::new(),
            // SAFETY: as above.
            false => unsafe { CStr::from_ptr(at) }.to_string_lossy().trim().to_owned(),
        };
        match texts.map(text) {
            [meaning, details] if details.is_empty() => meaning,
            [meaning, details] => format!("{meaning}: {details}"),
        }
    }
}
