//! A simulated `libnccl.so.2`: the calls that compiled programs make, over the simulated
//! driver (`testdata/cuda`). It is for tests alone and is part of nothing that ships.
//!
//! Programs are not changed for it: the environment variable `TFC_NCCL` names it instead of
//! NVIDIA's library. The processes (or threads) of a communicator meet at a socket of the
//! process that made its id ([`hub`]); that is also where tensors are combined, in the
//! order of the ranks.
//!
//! Stricter than the library:
//! - Communicators are made without waiting in calls; one that is used while a call on it
//!   is still in progress is an error, and a call is in progress for a while: the first
//!   exchange until all ranks have come to it.
//! - Tensors must be memory of the communicator's GPU, which must be the one in use, and be
//!   exchanged in groups, in place. What is written to one while it is exchanged is found.
//! - All ranks must exchange tensors of the same types and sizes, in the same order: what
//!   does not fit fails on all of them.
//! - After an abort, tensors that were being exchanged are full of NaN.
//!
//! `TFC_NCCL_SIM` has words with commas between them: `old` (a version before 2.14),
//! `no-start`, `notices` (that a rank is gone is an error by itself; otherwise, as between
//! the GPUs of one machine, nobody notices), `fail=N` (the exchange of that number fails),
//! `dies=N` and `stops=N` (what happens to the process in it).
#![allow(non_snake_case, clippy::missing_safety_doc)]

mod comm;
mod driver;
mod hub;

use comm::{Comm, Status, Tensor, complain, config, with};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

pub const IN_PROGRESS: Status = 7;
pub const SYSTEM_ERROR: Status = 2;
pub const INVALID_ARGUMENT: Status = 4;
pub const INVALID_USAGE: Status = 5;
pub const REMOTE_ERROR: Status = 6;

/// What ranks are told of each other; passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// The part of a configuration that is looked at.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

/// One call within a group.
struct Call {
    comm: Arc<Comm>,
    tensor: Tensor,
    stream: *mut c_void,
}

thread_local! {
    /// What was asked for since the group began.
    static GROUP: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

fn wrong(what: &str, status: Status) -> Status {
    complain(what);
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller has room for it, here and below.
    unsafe { version.write(if config("old") { 21_003 } else { 22_105 }) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> Status {
    match hub::open() {
        Ok(made) => {
            // SAFETY: as above.
            unsafe { id.write(UniqueId(made)) };
            0
        }
        Err(_) => SYSTEM_ERROR,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    out: *mut *mut c_void,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> Status {
    // SAFETY: as above; the caller says how long it is.
    let known = unsafe { &*config };
    if known.magic != 0xcafe_beef || known.version != 21_400 || known.size < size_of::<Config>() {
        return wrong("a configuration that is none", INVALID_ARGUMENT);
    }
    if known.blocking != 0 {
        return wrong("this is for communicators that do not block", INVALID_USAGE);
    }
    if rank < 0 || rank >= ranks {
        return wrong("a rank that is none", INVALID_ARGUMENT);
    }
    let device = driver::current();
    let comm = Comm::join(id.0, ranks as u32, rank as u32, device);
    // SAFETY: as above.
    unsafe { out.write(comm) };
    IN_PROGRESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: *mut c_void, out: *mut Status) -> Status {
    match with(comm) {
        Some(comm) => {
            // SAFETY: as above.
            unsafe { out.write(comm.status()) };
            0
        }
        None => INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(comm: *mut c_void) -> Status {
    with(comm).map_or(INVALID_ARGUMENT, |c| c.finalize())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: *mut c_void) -> Status {
    comm::destroy(comm)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: *mut c_void) -> Status {
    comm::abort(comm)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetErrorString(status: Status) -> *const c_char {
    let text: &CStr = match status {
        0 => c"no error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetLastError(_comm: *mut c_void) -> *const c_char {
    c"(simulated)".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupStart() -> Status {
    GROUP.with_borrow_mut(|group| match group {
        Some(_) => wrong("a group in a group", INVALID_USAGE),
        None => {
            *group = Some(vec![]);
            0
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let Some(comm) = with(comm) else { return wrong("no communicator", INVALID_ARGUMENT) };
    if comm.status() != 0 {
        return wrong("a communicator is used while it is busy, or after it failed", INVALID_USAGE);
    }
    let Some(size) = hub::size(kind) else { return wrong("no element type", INVALID_ARGUMENT) };
    if ![0, 2, 3].contains(&op) {
        return wrong("no way of combining", INVALID_ARGUMENT);
    }
    if from.addr() != to.addr() {
        return wrong("only in place", INVALID_ARGUMENT);
    }
    let at = to.addr() as u64;
    if !at.is_multiple_of(size as u64) {
        return wrong("an address that is not aligned", INVALID_ARGUMENT);
    }
    if driver::device_of(at, count * size) != comm.device {
        return wrong("not memory of the communicator's GPU", INVALID_ARGUMENT);
    }
    GROUP.with_borrow_mut(|group| match group {
        None => wrong("an exchange outside of a group", INVALID_USAGE),
        Some(calls) => {
            calls.push(Call { comm, tensor: Tensor { at, count, kind, op }, stream });
            0
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> Status {
    let Some(calls) = GROUP.with_borrow_mut(Option::take) else {
        return wrong("the end of no group", INVALID_USAGE);
    };
    let Some(first) = calls.first() else { return 0 };
    let (comm, stream) = (first.comm.clone(), first.stream);
    if calls.iter().any(|c| !Arc::ptr_eq(&c.comm, &comm) || c.stream != stream) {
        return wrong("a group of several communicators or streams", INVALID_USAGE);
    }
    comm.exchange(calls.iter().map(|c| c.tensor).collect(), stream)
}
