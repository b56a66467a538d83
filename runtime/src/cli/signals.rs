//! Being asked to stop: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! The first signal is remembered, for the run to end after the step it is in.
//! Those that follow within [`GRACE`] are the same request: `timeout` sends its
//! signal to the process and to its group, so it comes twice. One after that
//! ends the process at once, as it would without us.

use crate::launcher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long signals are taken for the first one.
pub const GRACE: Duration = Duration::from_secs(1);

static RAISED: AtomicBool = AtomicBool::new(false);
/// Milliseconds from [`START`] to the first signal.
static FIRST: AtomicU64 = AtomicU64::new(NEVER);
static START: OnceLock<Instant> = OnceLock::new();
const NEVER: u64 = u64::MAX;

/// Whether the process has been asked to stop since [`listen`].
pub fn raised() -> bool {
    RAISED.load(Ordering::Acquire)
}

/// How long ago the process has been asked to stop, if it has.
pub(super) fn raised_for() -> Option<Duration> {
    let now = START.get().map_or(Duration::ZERO, Instant::elapsed);
    let first = Duration::from_millis(FIRST.load(Ordering::Acquire));
    raised().then(|| now.saturating_sub(first))
}

/// From now on the first signal is remembered instead of ending the process.
pub fn listen() {
    START.get_or_init(Instant::now);
    FIRST.store(NEVER, Ordering::Release);
    RAISED.store(false, Ordering::Release);
    #[cfg(unix)]
    unix::listen();
}

/// Asks another process to stop, as [`listen`] understands it.
#[cfg(unix)]
pub fn ask_to_stop(process: u32) {
    unix::ask_to_stop(process);
}

/// Exit code of a process whose launcher is gone.
const ORPHANED: i32 = 4;

/// Ends this process when its launcher ends. One that was started otherwise goes on; so
/// does one whose input was redirected on the way.
pub fn end_with_launcher() {
    if std::env::var_os(launcher::LAUNCHED).is_none() {
        return;
    }
    let watch = || {
        if launcher::outlived() {
            // Nobody hears a word, and what is saved is saved.
            std::process::exit(ORPHANED);
        }
    };
    // Without a thread it may stay behind, no more.
    let _ = std::thread::Builder::new().name("tfc-launcher".into()).spawn(watch);
}

/// Has the system end a process that is about to be started when this one is gone, even
/// if it is stopped or does not look at its input. To be called by a thread that lives as
/// long as the process.
#[cfg(unix)]
pub fn die_together(command: &mut std::process::Command) {
    unix::die_together(command);
}

/// Notes a signal; false if it is one that ends the process.
fn note() -> bool {
    // A monotonic clock may be asked in a handler.
    let now = START.get().map_or(0, |s| s.elapsed().as_millis() as u64);
    match FIRST.compare_exchange(NEVER, now, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            RAISED.store(true, Ordering::Release);
            true
        }
        Err(first) => now.saturating_sub(first) < GRACE.as_millis() as u64,
    }
}

#[cfg(unix)]
mod unix {
    use std::ffi::c_int;

    const SIGHUP: c_int = 1;
    const SIGINT: c_int = 2;
    const SIGTERM: c_int = 15;
    const SIG_DFL: usize = 0;
    const SIG_IGN: usize = 1;

    unsafe extern "C" {
        fn signal(number: c_int, handler: usize) -> usize;
        fn raise(number: c_int) -> c_int;
        fn kill(process: c_int, number: c_int) -> c_int;
    }

    extern "C" fn remember(number: c_int) {
        if !super::note() {
            // SAFETY: both may be called in a handler; the signal comes again
            // when this one returns, and does what it does by default.
            unsafe {
                signal(number, SIG_DFL);
                raise(number);
            }
        }
    }

    pub(super) fn ask_to_stop(process: u32) {
        if let Ok(process) = c_int::try_from(process)
            && process > 0
        {
            // SAFETY: `kill` touches no memory; the process may have ended by itself.
            unsafe { kill(process, SIGTERM) };
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn die_together(_: &mut std::process::Command) {}

    #[cfg(target_os = "linux")]
    pub(super) fn die_together(command: &mut std::process::Command) {
        use std::ffi::c_ulong;
        use std::os::unix::process::CommandExt;

        const PR_SET_PDEATHSIG: c_int = 1;
        const SIGKILL: c_ulong = 9;
        unsafe extern "C" {
            fn prctl(option: c_int, ...) -> c_int;
            fn getppid() -> c_int;
            fn _exit(code: c_int) -> !;
        }
        let parent = std::process::id();
        let bind = move || {
            // SAFETY: system calls that touch no memory.
            unsafe {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                // It may have ended before the system was told.
                if u32::try_from(getppid()) != Ok(parent) {
                    _exit(super::ORPHANED);
                }
            }
            Ok(())
        };
        // SAFETY: between `fork` and `exec` it makes system calls alone, and has no memory.
        unsafe { command.pre_exec(bind) };
    }

    pub(super) fn listen() {
        for number in [SIGHUP, SIGINT, SIGTERM] {
            // SAFETY: `remember` does only what a handler may: atomics, the
            // clock, `signal` and `raise`.
            let before = unsafe { signal(number, remember as *const () as usize) };
            // `nohup` asks for a lost terminal not to matter.
            if number == SIGHUP && before == SIG_IGN {
                // SAFETY: as it was.
                unsafe { signal(number, SIG_IGN) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// faults 6: `timeout` delivers its signal twice, and the second one killed.
    #[test]
    fn signals_at_once_are_one_request() {
        START.get_or_init(|| Instant::now() - Duration::from_secs(60));
        FIRST.store(NEVER, Ordering::Release);
        assert!(note() && raised());
        assert!(note() && note(), "they come within a moment");
        // The first one was a while ago.
        let now = START.get().unwrap().elapsed().as_millis() as u64;
        FIRST.store(now - GRACE.as_millis() as u64, Ordering::Release);
        assert!(!note());
        FIRST.store(NEVER, Ordering::Release);
        RAISED.store(false, Ordering::Release);
    }
}
