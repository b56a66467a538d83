//! Being asked to stop: SIGINT (Ctrl-C) and SIGTERM.
//!
//! The first one is remembered, for the run to end after the step it is in; a
//! second one ends the process at once, as it would without us.

use std::sync::atomic::{AtomicBool, Ordering};

static RAISED: AtomicBool = AtomicBool::new(false);

/// Whether the process has been asked to stop since [`listen`].
pub fn raised() -> bool {
    RAISED.load(Ordering::Acquire)
}

/// From now on the first signal is remembered instead of ending the process.
pub fn listen() {
    RAISED.store(false, Ordering::Release);
    #[cfg(unix)]
    unix::set(unix::remember as *const () as usize);
}

#[cfg(unix)]
mod unix {
    use super::{Ordering, RAISED};
    use std::ffi::c_int;

    const SIGINT: c_int = 2;
    const SIGTERM: c_int = 15;
    const SIG_DFL: usize = 0;

    unsafe extern "C" {
        fn signal(number: c_int, handler: usize) -> usize;
    }

    pub(super) extern "C" fn remember(_: c_int) {
        RAISED.store(true, Ordering::Release);
        set(SIG_DFL);
    }

    pub(super) fn set(handler: usize) {
        for number in [SIGINT, SIGTERM] {
            // SAFETY: the handler is the default one, or `remember`, which does
            // only what a handler may: an atomic store and `signal`.
            unsafe { signal(number, handler) };
        }
    }
}
