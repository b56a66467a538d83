//! Connections to other processes, and the door where they come in.

use super::call::{Call, wait_until};
use super::mesh::{POLLIN, poll_fd};
use super::tls::{self, Tls, Wire};
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A connection that says nothing useful for so long is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that may be shaking hands, or hear why they are turned away, at a time; more
/// of them wait outside.
const STRANGERS: usize = 256;
/// How long those wait before somebody looks whether there is room.
const FULL: Duration = Duration::from_millis(5);
/// How long the first try takes at an address that does not answer, if there are others.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a door that nobody knocks at looks whether it is closed.
const LOOK: Duration = Duration::from_millis(50);

/// Encrypts a connection that was made, if that is asked for.
pub(super) fn wire(
    stream: TcpStream,
    tls: Option<&Arc<Tls>>,
    deadline: Instant,
) -> io::Result<Wire> {
    stream.set_nonblocking(true)?;
    match tls {
        None => Ok(Wire::Plain(stream)),
        Some(tls) => tls.connect(stream, deadline),
    }
}

/// Tries until the deadline: the other side may not be there yet.
pub(super) fn connect(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    connect_unless(address, deadline, &|| false)
}

/// As [`connect`], as long as it is not `in_vain`.
pub(super) fn connect_unless(
    address: &str,
    deadline: Instant,
    in_vain: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    let (mut pause, mut patience) = (Duration::from_millis(10), PATIENCE);
    loop {
        let tried = address.to_socket_addrs().and_then(|list| {
            let all: Vec<SocketAddr> = list.collect();
            reach(&all, deadline, patience)
        });
        patience *= 2;
        match tried {
            Err(_) if Instant::now() + pause < deadline && !in_vain() => std::thread::sleep(pause),
            other => return other,
        }
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// A connection to one of the addresses of a host, or why there is none to the first.
fn reach(all: &[SocketAddr], deadline: Instant, patience: Duration) -> io::Result<TcpStream> {
    let mut failed = None;
    for at in all {
        let left = deadline.saturating_duration_since(Instant::now());
        // Where there are several, one that does not answer leaves time for the others.
        let left = if all.len() > 1 { left.min(patience) } else { left };
        let tried = TcpStream::connect_timeout(at, left.max(Duration::from_millis(1)));
        let tried = tried.and_then(|stream| {
            // Where nobody listens, a connection within one machine may meet itself.
            match stream.local_addr()? == stream.peer_addr()? {
                true => Err(io::ErrorKind::ConnectionRefused.into()),
                false => Ok(stream),
            }
        });
        match tried {
            Ok(stream) => return Ok(stream),
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    Err(failed.unwrap_or(io::ErrorKind::AddrNotAvailable.into()))
}

/// Where calls come in: each shakes hands on a thread of its own, so that one who
/// says nothing holds nobody up.
pub(super) struct Door {
    calls: Receiver<Call>,
    closed: Arc<AtomicBool>,
    /// Why somebody was not let in, of late.
    turned_away: Arc<Mutex<Option<String>>>,
}

impl Door {
    pub(super) fn open(
        listener: &TcpListener,
        tls: Option<Arc<Tls>>,
        deadline: Option<Instant>,
    ) -> io::Result<Door> {
        let (give, calls) = channel();
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let closed = Arc::new(AtomicBool::new(false));
        let shut = closed.clone();
        let turned_away = Arc::new(Mutex::new(None));
        let away = turned_away.clone();
        let greet = move || {
            let busy = Arc::new(());
            let over = || deadline.is_some_and(|d| Instant::now() >= d);
            while !over() && !shut.load(Ordering::Acquire) {
                if Arc::strong_count(&busy) > STRANGERS {
                    std::thread::sleep(FULL);
                    continue;
                }
                match listener.accept() {
                    Ok((stream, _)) => {
                        let (give, busy) = (give.clone(), busy.clone());
                        let (tls, away) = (tls.clone(), away.clone());
                        let until = Instant::now() + HANDSHAKE;
                        let until = deadline.map_or(until, |d| d.min(until));
                        let shake = move || {
                            match let_in(stream, tls.as_ref(), until) {
                                Ok(mut call) => {
                                    call.busy = Some(busy);
                                    // Perhaps nobody waits for it any more.
                                    drop(give.send(call));
                                }
                                Err(e) => {
                                    if let Some(why) = tls::distrust(&e) {
                                        let mut away =
                                            away.lock().unwrap_or_else(PoisonError::into_inner);
                                        *away = Some(why.to_owned());
                                    }
                                }
                            }
                        };
                        // Without a thread to spare the caller is turned away.
                        let _ = std::thread::Builder::new().spawn(shake);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        poll_fd(listener.as_raw_fd(), POLLIN, LOOK);
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        };
        std::thread::Builder::new().name("tfc-door".into()).spawn(greet)?;
        Ok(Door { calls, closed, turned_away })
    }

    /// The next call, if it comes within this time.
    pub(super) fn within(&self, wait: Duration) -> Option<Call> {
        self.calls.recv_timeout(wait).ok()
    }

    /// Why somebody was not let in, of late.
    pub(super) fn turned_away(&self) -> Option<String> {
        self.turned_away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Takes a call from whoever has the right certificate, if one is needed.
fn let_in(stream: TcpStream, tls: Option<&Arc<Tls>>, until: Instant) -> io::Result<Call> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let stream = match tls {
        Some(tls) => tls.accept(stream, until)?,
        None => Wire::Plain(stream),
    };
    Call::take(stream, until)
}

/// How long somebody who is turned away may take to read why.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// Ends a connection so that what was sent last arrives. The peer may be sending still: a
/// socket that is closed with bytes unread is reset, and then the peer fails to send
/// before it has read why nobody listens.
pub(super) fn farewell(stream: &TcpStream) {
    let until = Instant::now() + FAREWELL;
    if stream.shutdown(Shutdown::Write).is_err() || stream.set_nonblocking(true).is_err() {
        return;
    }
    let (mut from, mut rest) = (stream, [0; 4096]);
    while Instant::now() < until {
        match from.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // Whether it is too late shows above.
                let _ = wait_until(stream, POLLIN, until);
            }
            Err(_) => return,
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_host_are_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        // Nobody listens at port 0.
        let closed = SocketAddr::from(([127, 0, 0, 1], 0));
        let soon = Instant::now() + Duration::from_secs(20);
        let stream = reach(&[closed, open], soon, PATIENCE).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
        assert!(reach(&[closed], Instant::now() + PATIENCE, PATIENCE).is_err());
        let e = reach(&[], soon, PATIENCE).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
