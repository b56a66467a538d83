//! Hosts that vanish.
//!
//! A process that ends closes its connections. A host that loses its power or its cable
//! does not, and whoever waits for it without a deadline of their own would wait for ever.
//! The system asks for a sign of life meanwhile: one of the host, so that a process that is
//! stopped or busy is not taken for lost.

use std::net::TcpStream;
use std::time::Duration;

/// Ends a connection to a host that has not been heard of for so long. Where it cannot be
/// had, there is only the wait's own deadline.
#[cfg(target_os = "linux")]
pub(super) fn watch(stream: &TcpStream, patience: Duration) {
    use std::ffi::{c_int, c_uint, c_void};
    use std::os::fd::AsRawFd;

    const SOL_SOCKET: c_int = 1;
    const SO_KEEPALIVE: c_int = 9;
    const IPPROTO_TCP: c_int = 6;
    const TCP_KEEPIDLE: c_int = 4;
    const TCP_KEEPINTVL: c_int = 5;
    const TCP_KEEPCNT: c_int = 6;
    const TCP_USER_TIMEOUT: c_int = 18;
    /// Questions without an answer.
    const QUESTIONS: u64 = 4;
    unsafe extern "C" {
        fn setsockopt(
            socket: c_int,
            level: c_int,
            name: c_int,
            value: *const c_void,
            len: c_uint,
        ) -> c_int;
    }
    let set = |level: c_int, name: c_int, value: u64| {
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        let at = std::ptr::from_ref(&value).cast();
        // SAFETY: the socket is open, and the value is as long as said.
        unsafe { setsockopt(stream.as_raw_fd(), level, name, at, size_of::<c_int>() as c_uint) };
    };
    let seconds = patience.as_secs();
    set(IPPROTO_TCP, TCP_KEEPIDLE, (seconds / 2).clamp(1, 3600));
    set(IPPROTO_TCP, TCP_KEEPINTVL, (seconds / 2 / QUESTIONS).clamp(1, 3600));
    set(IPPROTO_TCP, TCP_KEEPCNT, QUESTIONS);
    // What was sent and has not arrived.
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, patience.as_millis().try_into().unwrap_or(u64::MAX));
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn watch(_: &TcpStream, _: Duration) {}
