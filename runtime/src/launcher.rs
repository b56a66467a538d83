//! What a process that `tfc launch` has started and its launcher say to each other, on the
//! process's standard input.
//!
//! The launcher writes [`LIFELINE`] and nothing more: the input ends when the launcher
//! does, in whatever way. Where the input goes both ways, as the launcher makes it, the
//! process writes lines: `late worker 1` or `late server 0` when it has waited too long for
//! another one. What it says to people is not for the launcher to read.

use crate::error::Party;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a launcher writes to the standard input of a process that is to end with it.
pub const LIFELINE: &[u8] = b"tfc launch\n";
/// Set where standard input may be one.
pub const LAUNCHED: &str = "TFC_LAUNCHED";
/// Set to 1 where the launcher shows on a terminal how far this process is, as the process
/// itself does on a terminal of its own.
pub const PROGRESS: &str = "TFC_PROGRESS";

/// What a line about a process that hangs begins with.
const LATE: &str = "late ";

/// The launcher was heard.
static THERE: AtomicBool = AtomicBool::new(false);

/// Says to the launcher, if there is one, that another process hangs.
pub(crate) fn accuse(party: Party) {
    if THERE.load(Ordering::Acquire) {
        write(format!("{LATE}{party}\n").as_bytes());
    }
}

/// The process that a line says hangs.
pub fn accused(line: &str) -> Option<Party> {
    let (kind, number) = line.trim_end().strip_prefix(LATE)?.split_once(' ')?;
    let number = number.parse().ok()?;
    match kind {
        "worker" => Some(Party::Worker(number)),
        "server" => Some(Party::Server(number)),
        _ => None,
    }
}

/// Waits for the launcher's word, and then for its end; false if there is no launcher.
pub(crate) fn outlived() -> bool {
    use std::io::Read;
    let mut input = std::io::stdin();
    let mut word = [0; LIFELINE.len()];
    if input.read_exact(&mut word).is_err() || word != *LIFELINE {
        return false;
    }
    THERE.store(true, Ordering::Release);
    while input.read(&mut word).is_ok_and(|n| n > 0) {}
    true
}

#[cfg(not(unix))]
fn write(_: &[u8]) {}

#[cfg(unix)]
fn write(bytes: &[u8]) {
    use std::ffi::{c_int, c_void};
    const MSG_DONTWAIT: c_int = if cfg!(target_os = "linux") { 0x40 } else { 0x80 };
    const MSG_NOSIGNAL: c_int = if cfg!(target_os = "linux") { 0x4000 } else { 0 };
    unsafe extern "C" {
        fn send(socket: c_int, data: *const c_void, len: usize, flags: c_int) -> isize;
    }
    // SAFETY: the bytes are as many as said. An input that is no socket, or that nobody
    // reads, is an error without consequence.
    unsafe { send(0, bytes.as_ptr().cast(), bytes.len(), MSG_DONTWAIT | MSG_NOSIGNAL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hangs_is_said_in_a_line() {
        for party in [Party::Worker(0), Party::Worker(12), Party::Server(3)] {
            assert_eq!(accused(&format!("{LATE}{party}\n")), Some(party));
        }
        for line in ["", "late", "late worker", "late worker x", "late queue 1", "worker 1"] {
            assert_eq!(accused(line), None, "{line}");
        }
    }
}
