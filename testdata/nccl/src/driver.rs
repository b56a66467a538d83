//! What the simulated driver has for this library alone, found in the one that the program
//! has loaded.

use crate::comm::Status;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

pub type Work = unsafe extern "C" fn(*mut c_void, *const *mut u8) -> Status;
type Together =
    unsafe extern "C" fn(*mut c_void, usize, *const u64, *const usize, Work, *mut c_void) -> Status;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

struct Driver {
    together: Together,
    device_of: extern "C" fn(u64, usize) -> c_int,
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let name = std::env::var("TFC_CUDA").expect("the simulated driver is named");
        let name = CString::new(name).expect("a name");
        // SAFETY: the library is loaded already, and stays so; its functions have these
        // parameters.
        unsafe {
            let library = dlopen(name.as_ptr(), 2);
            assert!(!library.is_null(), "the driver is not there");
            let find = |name: &std::ffi::CStr| {
                let at = dlsym(library, name.as_ptr());
                assert!(!at.is_null(), "not the simulated driver");
                at
            };
            Driver {
                together: std::mem::transmute::<*mut c_void, Together>(find(c"tfc_sim_together")),
                device_of: std::mem::transmute::<*mut c_void, extern "C" fn(u64, usize) -> c_int>(
                    find(c"tfc_sim_device_of"),
                ),
            }
        }
    })
}

/// The GPU in use.
pub fn current() -> i32 {
    (driver().device_of)(0, 0)
}

/// The GPU in use, if the memory is its own; else a negative number.
pub fn device_of(at: u64, len: usize) -> i32 {
    (driver().device_of)(at, len)
}

/// Has work on some memory follow what is on a stream.
pub fn together(
    stream: *mut c_void,
    blocks: &[(u64, usize)],
    work: Work,
    data: *mut c_void,
) -> Status {
    let (at, len): (Vec<u64>, Vec<usize>) = blocks.iter().copied().unzip();
    // SAFETY: there are as many as said, and the data lives until the work is done.
    unsafe { (driver().together)(stream, at.len(), at.as_ptr(), len.as_ptr(), work, data) }
}
