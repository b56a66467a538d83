//! How long calls may take, and who may stop them.
//!
//! Generated functions take what the graph says and nothing else, so limits are
//! the calling thread's: set once, they hold for all its calls and waits.

use super::{deref, guard};
use crate::call::{CallOptions, CancelToken};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::time::Duration;

/// What stops the calls of threads that were given it.
pub struct Cancel(CancelToken);

thread_local! {
    static LIMIT: RefCell<(Option<Duration>, Option<CancelToken>)> = const { RefCell::new((None, None)) };
    static STALE_OK: Cell<bool> = const { Cell::new(false) };
}

/// The limits of a call of this thread that begins now.
pub fn options() -> CallOptions {
    LIMIT.with(|limit| {
        let (time, token) = &*limit.borrow();
        let mut options = CallOptions::new();
        options.stale_ok = STALE_OK.get();
        if let Some(time) = time {
            options = options.timeout(*time);
        }
        match token {
            Some(token) => options.cancel(token),
            None => options,
        }
    })
}

/// A new one.
pub extern "C" fn cancel_new() -> *mut Cancel {
    Box::into_raw(Box::new(Cancel(CancelToken::new())))
}

/// Frees one; threads that were given it keep their limit. Null is ignored.
///
/// # Safety
/// `cancel` came from [`cancel_new`] and is not used again.
pub unsafe extern "C" fn cancel_free(cancel: *mut Cancel) {
    if !cancel.is_null() {
        // SAFETY: made by `Box::into_raw`.
        drop(unsafe { Box::from_raw(cancel) });
    }
}

/// Stops every call made with it, now and from now on, from any thread.
///
/// # Safety
/// `cancel` is null or live.
pub unsafe extern "C" fn cancel(cancel: *const Cancel) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { deref(cancel, "the cancel token") }?.0.cancel();
        Ok(())
    })
}

/// From now on this thread's calls end with E0525 after so many milliseconds
/// (without end if negative), and with E0524 when `cancel` says so (unless null).
///
/// # Safety
/// `cancel` is null or live.
pub unsafe extern "C" fn limit(milliseconds: i64, cancel: *const Cancel) -> c_int {
    guard(|| {
        let time = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        // SAFETY: the caller's promise.
        let token = unsafe { cancel.as_ref() }.map(|c| c.0.clone());
        LIMIT.with(|limit| *limit.borrow_mut() = (time, token));
        Ok(())
    })
}

/// Whether this thread's calls may, from now on, read the last complete version of
/// variables that another call is writing, rather than wait for it.
pub extern "C" fn stale_ok(allowed: c_int) {
    STALE_OK.set(allowed != 0);
}
