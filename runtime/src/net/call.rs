//! Calls: how a connection begins, and how it ends where it does not become a [`Link`].
//!
//! Hands are shaken within a time that is given for all of it: somebody who says a little
//! now and then takes no longer than somebody who says nothing.

use super::door;
use super::h2::{self, Allowed, flag, kind};
use super::hpack::{self, Decoder, Headers};
use super::link::Link;
use super::mesh::{POLLIN, POLLOUT, is_closed, poll_fd};
use super::tls::Wire;
use std::ffi::c_short;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a connection did not come about.
#[derive(Debug)]
pub(super) enum Refused {
    Io(io::Error),
    /// The peer's own words.
    Said(String),
}

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Refused {
        Refused::Io(e)
    }
}

/// The frame that takes a call.
fn answer(metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut headers = vec![(":status", "200"), ("content-type", "application/grpc+proto")];
    headers.extend_from_slice(metadata);
    h2::frame(kind::HEADERS, flag::END_HEADERS, h2::STREAM, &hpack::encode(&headers))
}

fn farewell_thread() -> std::thread::Builder {
    std::thread::Builder::new().name("tfc-farewell".into())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what answers there is not a tfc program")
}

/// How long an answer may take to be out.
const OUT: Duration = Duration::from_secs(10);

/// A connection, whose socket does not block, until a deadline.
struct Timed<'a> {
    wire: &'a Wire,
    deadline: Instant,
}

/// Waits until a socket is ready for something; an error when it is too late.
pub(super) fn wait_until(fd: &impl AsRawFd, events: c_short, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    poll_fd(fd.as_raw_fd(), events, left);
    Ok(())
}

impl Timed<'_> {
    fn turn<T>(
        &mut self,
        events: c_short,
        mut turn: impl FnMut(&Wire) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            // Also where there always is something.
            if Instant::now() >= self.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match turn(self.wire) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    wait_until(self.wire, events, self.deadline)?;
                }
                other => return other,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.turn(POLLIN, |mut wire| wire.read(into))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.turn(POLLOUT, |mut wire| wire.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A call that has been made, before it is answered or after it was.
pub(super) struct Call {
    stream: Wire,
    allowed: Allowed,
    decoder: Decoder,
    pub headers: Headers,
    /// Counts it among the strangers at the door, until it is let in or has gone.
    pub busy: Option<Arc<()>>,
}

impl Call {
    fn new(stream: Wire) -> Call {
        let (allowed, decoder) = (Allowed::default(), Decoder::default());
        Call { stream, allowed, decoder, headers: vec![], busy: None }
    }

    fn until(&self, deadline: Instant) -> Timed<'_> {
        Timed { wire: &self.stream, deadline }
    }

    /// Makes a call and waits for the answer, whose headers the call then has.
    pub(super) fn make(
        stream: Wire,
        path: &str,
        metadata: &[(&str, &str)],
        deadline: Instant,
    ) -> std::result::Result<Call, Refused> {
        stream.tcp().set_nodelay(true)?;
        let scheme = if stream.is_encrypted() { "https" } else { "http" };
        let mut headers = vec![
            (":method", "POST"),
            (":scheme", scheme),
            (":path", path),
            (":authority", "tfc"),
            ("te", "trailers"),
            ("content-type", "application/grpc+proto"),
            ("user-agent", concat!("tfc/", env!("CARGO_PKG_VERSION"))),
        ];
        headers.extend_from_slice(metadata);
        let mut hello = h2::PREFACE.to_vec();
        hello.extend(h2::greeting());
        let block = hpack::encode(&headers);
        hello.extend(h2::frame(kind::HEADERS, flag::END_HEADERS, h2::STREAM, &block));
        let mut call = Call::new(stream);
        h2::write(&mut call.until(deadline), &hello)?;
        call.read_headers(deadline)?;
        let status = hpack::get(&call.headers, "grpc-status").unwrap_or("0");
        if hpack::get(&call.headers, ":status") != Some("200") {
            return Err(malformed().into());
        }
        if status != "0" {
            let said = hpack::get(&call.headers, "grpc-message").unwrap_or("no reason was given");
            return Err(Refused::Said(unescape(said)));
        }
        Ok(call)
    }

    /// Takes a call that somebody made; it has the headers of the request.
    pub(super) fn take(stream: Wire, deadline: Instant) -> io::Result<Call> {
        let mut call = Call::new(stream);
        let mut preface = [0; 24];
        call.until(deadline).read_exact(&mut preface)?;
        if preface != *h2::PREFACE {
            return Err(malformed());
        }
        h2::write(&mut call.until(deadline), &h2::greeting())?;
        call.read_headers(deadline)?;
        Ok(call)
    }

    fn read_headers(&mut self, deadline: Instant) -> io::Result<()> {
        // Peers say a few things first; not without end.
        for _ in 0..64 {
            let (head, payload) = h2::read_control(&mut self.until(deadline))?;
            match head.kind {
                kind::SETTINGS if head.flags & flag::ACK == 0 => {
                    self.allowed.settings(&payload).ok_or_else(malformed)?;
                    let ack = h2::frame(kind::SETTINGS, flag::ACK, 0, &[]);
                    h2::write(&mut self.until(deadline), &ack)?;
                }
                kind::WINDOW_UPDATE => {
                    self.allowed.window_update(head.stream, &payload).ok_or_else(malformed)?;
                }
                kind::PING if head.flags & flag::ACK == 0 => {
                    let pong = h2::frame(kind::PING, flag::ACK, 0, &payload);
                    h2::write(&mut self.until(deadline), &pong)?;
                }
                kind::HEADERS => {
                    if head.flags & flag::END_HEADERS == 0 || head.stream != h2::STREAM {
                        return Err(malformed());
                    }
                    let block = h2::header_block(head, &payload).ok_or_else(malformed)?;
                    self.headers = self.decoder.decode(block).ok_or_else(malformed)?;
                    return Ok(());
                }
                kind::RST_STREAM | kind::GOAWAY | kind::CONTINUATION => return Err(malformed()),
                _ => {}
            }
        }
        Err(malformed())
    }

    /// Whether whoever made it has given up. What they have sent before that, such as what
    /// belongs to the connection, nobody may have read.
    pub(super) fn is_gone(&self) -> bool {
        is_closed(self.stream.tcp().as_raw_fd())
    }

    /// The peer of the connection, by its address.
    pub(super) fn remote(&self) -> io::Result<std::net::SocketAddr> {
        self.stream.tcp().peer_addr()
    }

    pub(super) fn answer(&mut self, metadata: &[(&str, &str)]) -> io::Result<()> {
        h2::write(&mut self.until(Instant::now() + OUT), &answer(metadata))
    }

    /// Ends the call: what is asked for cannot be (a failed precondition).
    pub(super) fn refuse(self, why: &str) {
        let why = escape(why);
        let headers = [
            (":status", "200"),
            ("content-type", "application/grpc+proto"),
            ("grpc-status", "9"),
            ("grpc-message", &why),
        ];
        let flags = flag::END_HEADERS | flag::END_STREAM;
        self.end(h2::frame(kind::HEADERS, flags, h2::STREAM, &hpack::encode(&headers)));
    }

    /// Answers and ends the call: there is no more to say.
    pub(super) fn dismiss(self, metadata: &[(&str, &str)]) {
        self.end(answer(metadata));
    }

    /// As [`Call::dismiss`], for a process that is about to end: when this returns they all
    /// have been answered, and have had [`door::FAREWELL`] to read it.
    pub(super) fn dismiss_all(calls: Vec<Call>, metadata: &[(&str, &str)]) {
        let last = answer(metadata);
        let told = calls.into_iter().filter_map(|mut c| c.say_last(&last).then_some(c));
        let told: Vec<Call> = told.collect();
        std::thread::scope(|s| {
            for call in told {
                let part = move || door::farewell(call.stream.tcp());
                // Without a thread to spare it is closed at once.
                let _ = farewell_thread().spawn_scoped(s, part);
            }
        });
    }

    /// A peer that has gone does not need to know.
    fn say_last(&mut self, last: &[u8]) -> bool {
        h2::write(&mut self.until(Instant::now() + door::FAREWELL), last).is_ok()
    }

    /// Ends the call with these words. Nobody waits for whoever takes their time to read them.
    fn end(mut self, last: Vec<u8>) {
        let part = move || {
            if self.say_last(&last) {
                door::farewell(self.stream.tcp());
            }
        };
        // Without a thread to spare it is closed at once.
        let _ = farewell_thread().spawn(part);
    }

    pub(super) fn into_link(self, peer: usize, job: u64) -> io::Result<Link> {
        self.stream.tcp().set_nonblocking(true)?;
        Ok(Link::new(peer, job, self.stream, self.allowed, self.decoder))
    }
}

/// Text as gRPC has it in a header.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        match b {
            b'%' | 0..=31 | 127.. => out.push_str(&format!("%{b:02X}")),
            _ => out.push(b as char),
        }
    }
    out
}

pub(super) fn unescape(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        let code = match b {
            b'%' => (|| {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()
            })(),
            b => Some(b),
        };
        bytes.extend(code);
    }
    // It goes to a terminal: text, and not too much of it.
    let text: String = String::from_utf8_lossy(&bytes).chars().take(400).collect();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    /// A call that was made to this process, and who made it.
    fn called() -> (TcpStream, Call) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there, Call::new(Wire::Plain(listener.accept().unwrap().0)))
    }

    #[test]
    fn who_has_gone_is_seen_behind_what_nobody_has_read() {
        let (mut there, call) = called();
        assert!(!call.is_gone());
        there.write_all(&h2::frame(kind::SETTINGS, flag::ACK, 0, &[])).unwrap();
        assert!(!call.is_gone());
        drop(there);
        let began = Instant::now();
        while !call.is_gone() {
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn who_is_turned_away_counts_until_it_has_gone() {
        let busy = Arc::new(());
        let (there, mut call) = called();
        call.busy = Some(busy.clone());
        call.refuse("there is no room");
        assert_eq!(Arc::strong_count(&busy), 2);
        drop(there);
        let began = Instant::now();
        while Arc::strong_count(&busy) > 1 {
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn reasons_travel_in_headers() {
        let text = "graph 12ab… is not 34cd: 100 %";
        assert!(escape(text).is_ascii());
        assert_eq!(unescape(&escape(text)), text);
        assert_eq!(unescape("%zz%4"), "");
        assert_eq!(unescape("a\u{1b}[31mb"), "a [31mb");
    }
}
