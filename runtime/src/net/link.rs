//! One connection to one peer: a gRPC call whose messages go both ways.
//!
//! A message is the protobuf
//!
//! ```text
//! message Chunk { uint64 job = 1; uint64 sequence = 2; bytes data = 4; }
//! ```
//!
//! with a mebibyte of data at most. Data is written from and read into the caller's
//! memory. Sockets do not block once a link is established: [`Link::push`] and
//! [`Link::pull`] go as far as they can, and whoever drives them waits for both
//! directions at once, so that two peers that send to each other never stop each
//! other.

use super::call::unescape;
use super::h2::{self, Allowed, Head, flag, kind};
use super::hpack::{self, Decoder};
use super::tls::Wire;
use super::{Moment, lost, stray};
use crate::error::Result;
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Data of one message.
const CHUNK: usize = 1 << 20;
/// The largest message that is taken.
const MESSAGE: usize = CHUNK + 64;
const BUFFER: usize = 64 << 10;
/// Frames and pieces of data that are taken in one go.
const TURNS: usize = 1 << 14;
/// Answers to a peer that are kept until they can be sent.
const ANSWERS: usize = 256 << 10;
/// How much of what comes is taken in before something is done about it.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Data taken in before the peer is told that it may send more.
    pub consumed: usize,
    /// Data that is kept for later while waiting for leave to send.
    pub early: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { consumed: h2::WINDOW as usize / 4, early: 64 << 20 }
    }
}

/// How far a direction got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Done,
    /// The socket takes or has no more for now.
    Blocked,
    /// The peer must first allow more to be sent.
    NeedsLeave,
    /// That is enough for one turn, and there may be more.
    More,
    /// Nobody has asked for the data that comes next, and enough of it is kept already.
    Full,
}

pub(super) struct Link {
    pub peer: usize,
    job: u64,
    pub stream: Wire,
    room: Room,
    /// Held by whoever waits for what comes: it would wait in vain for what another thread
    /// takes in meanwhile.
    reading: Mutex<()>,
    io: Mutex<Io>,
}

struct Io {
    allowed: Allowed,
    /// Frames to be written before any data.
    control: Vec<u8>,
    buf: Vec<u8>,
    start: usize,
    frame: Frame,
    message: Message,
    early: Vec<u8>,
    /// How much of it has been asked for meanwhile.
    early_used: usize,
    consumed: usize,
    decoder: Decoder,
    /// A frame is begun, if only in the memory of an encrypted connection, and not all of it
    /// is written: nothing else may come between.
    within_frame: bool,
}

/// Where the bytes read so far end: in which frame.
#[derive(Clone, Copy)]
enum Frame {
    Head,
    /// Bytes left of a frame of data.
    Data(usize),
    Control(Head),
}

/// And in which message.
#[derive(Clone, Copy)]
enum Message {
    /// Bytes of the prefix and the fields before the data.
    Start { bytes: [u8; 64], have: usize },
    /// Bytes of data that are left.
    Data(usize),
}

const START: Message = Message::Start { bytes: [0; 64], have: 0 };

/// Something on its way out.
pub(super) struct Sending<'a> {
    data: &'a [u8],
    sequence: u64,
    /// Data that frames have been begun for.
    framed: usize,
    /// Data of the present message without a frame.
    message_left: usize,
    head: Vec<u8>,
    head_done: usize,
    body: std::ops::Range<usize>,
}

impl<'a> Sending<'a> {
    pub(super) fn new(data: &'a [u8], sequence: u64) -> Sending<'a> {
        let head = vec![];
        Sending { data, sequence, framed: 0, message_left: 0, head, head_done: 0, body: 0..0 }
    }
}

/// Something on its way in.
pub(super) struct Receiving<'a> {
    into: &'a mut [u8],
    filled: usize,
    sequence: u64,
}

impl<'a> Receiving<'a> {
    pub(super) fn new(into: &'a mut [u8], sequence: u64) -> Receiving<'a> {
        Receiving { into, filled: 0, sequence }
    }

    fn is_full(&self) -> bool {
        self.filled == self.into.len()
    }
}

impl Link {
    pub(super) fn new(
        peer: usize,
        job: u64,
        stream: Wire,
        allowed: Allowed,
        decoder: Decoder,
    ) -> Link {
        let io = Io {
            allowed,
            control: vec![],
            buf: vec![],
            start: 0,
            frame: Frame::Head,
            message: START,
            early: vec![],
            early_used: 0,
            consumed: 0,
            decoder,
            within_frame: false,
        };
        let (room, reading) = Default::default();
        Link { peer, job, stream, room, reading, io: Mutex::new(io) }
    }

    #[cfg(test)]
    pub(super) fn with_room(mut self, room: Room) -> Link {
        self.room = room;
        self
    }

    /// Held while waiting for what comes.
    pub(super) fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Link::reading`]; none if somebody else does.
    pub(super) fn try_reading(&self) -> Option<MutexGuard<'_, ()>> {
        match self.reading.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn io(&self) -> MutexGuard<'_, Io> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends as much as the socket takes.
    pub(super) fn push(&self, s: &mut Sending<'_>, moment: &Moment<'_>) -> Result<Progress> {
        let mut io = self.io();
        loop {
            if s.head_done < s.head.len() || !s.body.is_empty() {
                let slices =
                    [IoSlice::new(&s.head[s.head_done..]), IoSlice::new(&s.data[s.body.clone()])];
                match (&self.stream).write_vectored(&slices) {
                    Ok(n) => {
                        let head = n.min(s.head.len() - s.head_done);
                        s.head_done += head;
                        s.body.start += n - head;
                        io.within_frame = s.head_done < s.head.len() || !s.body.is_empty();
                    }
                    Err(e) => return self.blocked(e, moment),
                }
            } else if !io.control.is_empty() {
                match (&self.stream).write(&io.control) {
                    Ok(n) => drop(io.control.drain(..n)),
                    Err(e) => return self.blocked(e, moment),
                }
            } else if s.message_left == 0 && s.framed == s.data.len() {
                return Ok(Progress::Done);
            } else if begin_frame(s, &mut io.allowed, self.job) {
                io.within_frame = true;
            } else {
                return Ok(Progress::NeedsLeave);
            }
        }
    }

    /// Writes what the peer has to know about the connection, as far as the socket
    /// takes it. Done also where somebody is in the middle of a frame, who does it next.
    pub(super) fn push_control(&self, moment: &Moment<'_>) -> Result<Progress> {
        let mut io = self.io();
        while !io.control.is_empty() && !io.within_frame {
            match (&self.stream).write(&io.control) {
                Ok(n) => drop(io.control.drain(..n)),
                Err(e) => return self.blocked(e, moment),
            }
        }
        Ok(Progress::Done)
    }

    /// Receives as much as there is. Without anything to receive, what a peer says
    /// about the connection is taken in, and data kept for later.
    pub(super) fn pull(
        &self,
        mut r: Option<&mut Receiving<'_>>,
        moment: &Moment<'_>,
    ) -> Result<Progress> {
        let mut guard = self.io();
        let io = &mut *guard;
        if let Some(r) = r.as_deref_mut() {
            let early = std::mem::take(&mut io.early);
            io.early_used += self.feed(io, &early[io.early_used..], r, moment)?;
            if io.early_used < early.len() {
                io.early = early;
            } else {
                io.early_used = 0;
            }
        }
        // Not without end, however fast a peer sends: who waits looks at the clock.
        for _ in 0..TURNS {
            if r.as_ref().is_some_and(|r| r.is_full()) {
                return Ok(Progress::Done);
            }
            let have = io.buf.len() - io.start;
            match io.frame {
                Frame::Head if have >= Head::BYTES => {
                    let mut bytes = [0; Head::BYTES];
                    bytes.copy_from_slice(&io.buf[io.start..][..Head::BYTES]);
                    io.start += Head::BYTES;
                    io.frame = self.begin(Head::read(&bytes), moment)?;
                }
                Frame::Control(head) if have >= head.len => {
                    let payload = io.buf[io.start..][..head.len].to_vec();
                    io.start += head.len;
                    io.frame = Frame::Head;
                    self.control(io, head, &payload, moment)?;
                }
                Frame::Data(0) => {
                    io.frame = Frame::Head;
                    if io.consumed >= self.room.consumed {
                        let more = (io.consumed as u32).to_be_bytes();
                        for stream in [0, h2::STREAM] {
                            io.control.extend(h2::frame(kind::WINDOW_UPDATE, 0, stream, &more));
                        }
                        io.consumed = 0;
                    }
                }
                Frame::Data(left) if have > 0 => {
                    let n = left.min(have);
                    let used = match r.as_deref_mut() {
                        Some(r) => {
                            let bytes = io.buf[io.start..][..n].to_vec();
                            self.feed(io, &bytes, r, moment)?
                        }
                        None => match self.keep(io, n) {
                            0 => return Ok(Progress::Full),
                            n => n,
                        },
                    };
                    io.start += used;
                    io.consumed += used;
                    io.frame = Frame::Data(left - used);
                }
                Frame::Data(left) if r.is_some() && matches!(io.message, Message::Data(_)) => {
                    // Straight to where it goes.
                    let Message::Data(due) = io.message else { continue };
                    let Some(r) = r.as_deref_mut() else { continue };
                    let n = left.min(due).min(r.into.len() - r.filled);
                    let place = &mut r.into[r.filled..][..n];
                    match (&self.stream).read(place) {
                        Ok(0) => return Err(lost(self.peer, moment, "it closed the connection")),
                        Ok(n) => {
                            r.filled += n;
                            io.consumed += n;
                            io.frame = Frame::Data(left - n);
                            io.message = if due == n { START } else { Message::Data(due - n) };
                        }
                        Err(e) => return self.blocked(e, moment),
                    }
                }
                _ => {
                    let used = io.start;
                    io.buf.drain(..used);
                    io.start = 0;
                    let have = io.buf.len();
                    io.buf.resize(have + BUFFER, 0);
                    let got = (&self.stream).read(&mut io.buf[have..]);
                    io.buf.truncate(have + got.as_ref().map_or(0, |n| *n));
                    match got {
                        Ok(0) => return Err(lost(self.peer, moment, "it closed the connection")),
                        Ok(_) => {}
                        Err(e) => return self.blocked(e, moment),
                    }
                }
            }
        }
        Ok(Progress::More)
    }

    /// Keeps up to `n` of the next bytes for later; how many.
    fn keep(&self, io: &mut Io, n: usize) -> usize {
        let n = n.min(self.room.early.saturating_sub(io.early.len() - io.early_used));
        if io.early_used > 0 && n > 0 {
            io.early.drain(..io.early_used);
            io.early_used = 0;
        }
        io.early.extend_from_slice(&io.buf[io.start..][..n]);
        n
    }

    /// Takes bytes of messages as far as they are asked for; how many.
    fn feed(
        &self,
        io: &mut Io,
        bytes: &[u8],
        r: &mut Receiving<'_>,
        moment: &Moment<'_>,
    ) -> Result<usize> {
        let mut used = 0;
        while used < bytes.len() {
            match &mut io.message {
                Message::Start { .. } if r.is_full() => break,
                Message::Start { bytes: start, have } => {
                    start[*have] = bytes[used];
                    *have += 1;
                    used += 1;
                    let wrong = |why: &str| stray(self.peer, moment, why);
                    match chunk(&start[..*have]) {
                        Start::More if *have == start.len() => {
                            return Err(wrong("not a message of ours"));
                        }
                        Start::More => {}
                        Start::Bad => return Err(wrong("not a message of ours")),
                        Start::Chunk { job, .. } if job != self.job => {
                            return Err(wrong("a message of another run of the job"));
                        }
                        Start::Chunk { sequence, .. } if sequence != r.sequence => {
                            return Err(wrong(&format!(
                                "exchange {sequence}, while this process is at {}",
                                r.sequence
                            )));
                        }
                        Start::Chunk { data, .. } if data > r.into.len() - r.filled => {
                            return Err(wrong("more data than is due"));
                        }
                        Start::Chunk { data, .. } => {
                            io.message = if data == 0 { START } else { Message::Data(data) };
                        }
                    }
                }
                Message::Data(left) => {
                    let n = (*left).min(bytes.len() - used);
                    r.into[r.filled..][..n].copy_from_slice(&bytes[used..][..n]);
                    r.filled += n;
                    used += n;
                    *left -= n;
                    if *left == 0 {
                        io.message = START;
                    }
                }
            }
        }
        Ok(used)
    }

    fn begin(&self, head: Head, moment: &Moment<'_>) -> Result<Frame> {
        if head.kind == kind::DATA {
            let ours = head.stream == h2::STREAM && head.flags & !flag::END_STREAM == 0;
            if !ours || head.len > h2::FRAME {
                return Err(stray(self.peer, moment, "data that is out of place"));
            }
            return Ok(Frame::Data(head.len));
        }
        match head.is_control() {
            true => Ok(Frame::Control(head)),
            false => Err(stray(self.peer, moment, "a frame that is too long")),
        }
    }

    fn control(&self, io: &mut Io, head: Head, payload: &[u8], moment: &Moment<'_>) -> Result<()> {
        if io.control.len() > ANSWERS {
            return Err(stray(self.peer, moment, "more requests than anybody needs"));
        }
        let known = match head.kind {
            kind::SETTINGS if head.flags & flag::ACK != 0 => Some(()),
            kind::SETTINGS => {
                io.control.extend(h2::frame(kind::SETTINGS, flag::ACK, 0, &[]));
                io.allowed.settings(payload)
            }
            kind::PING if head.flags & flag::ACK == 0 => {
                io.control.extend(h2::frame(kind::PING, flag::ACK, 0, payload));
                Some(())
            }
            kind::WINDOW_UPDATE => io.allowed.window_update(head.stream, payload),
            kind::HEADERS => {
                let block = h2::header_block(head, payload);
                let headers = block.and_then(|b| io.decoder.decode(b)).unwrap_or_default();
                let said = hpack::get(&headers, "grpc-message").unwrap_or("it ended the call");
                return Err(lost(self.peer, moment, &unescape(said)));
            }
            kind::RST_STREAM | kind::GOAWAY => {
                return Err(lost(self.peer, moment, "it ended the call"));
            }
            _ => Some(()),
        };
        known.ok_or_else(|| stray(self.peer, moment, "a frame that means nothing"))
    }

    fn blocked(&self, e: io::Error, moment: &Moment<'_>) -> Result<Progress> {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Progress::Blocked),
            _ => Err(lost(self.peer, moment, &crate::io::io_reason(&e))),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stream.drain();
    }
}

/// Begins the next frame of data; false if the peer does not allow one now.
fn begin_frame(s: &mut Sending<'_>, allowed: &mut Allowed, job: u64) -> bool {
    s.head.clear();
    s.head_done = 0;
    let mut start = vec![];
    let mut message_left = s.message_left;
    if message_left == 0 {
        message_left = (s.data.len() - s.framed).min(CHUNK);
        let mut fields = vec![];
        for (tag, value) in [(0x08, job), (0x10, s.sequence), (0x22, message_left as u64)] {
            fields.push(tag);
            varint(&mut fields, value);
        }
        start.push(0);
        start.extend(((fields.len() + message_left) as u32).to_be_bytes());
        start.extend(fields);
    }
    let window = allowed.windows[0].min(allowed.windows[1]);
    let room = usize::try_from(window).unwrap_or(0).min(allowed.frame);
    if room <= start.len() {
        return false;
    }
    let n = message_left.min(room - start.len());
    let len = start.len() + n;
    s.head.extend(Head { len, kind: kind::DATA, flags: 0, stream: h2::STREAM }.bytes());
    s.head.extend(start);
    s.body = s.framed..s.framed + n;
    s.framed += n;
    s.message_left = message_left - n;
    allowed.windows.iter_mut().for_each(|w| *w -= len as i64);
    true
}

/// What the bytes at the start of a message say.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    More,
    Bad,
    Chunk { job: u64, sequence: u64, data: usize },
}

fn chunk(bytes: &[u8]) -> Start {
    let Some((prefix, mut rest)) = bytes.split_at_checked(5) else { return Start::More };
    let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    if prefix[0] != 0 || len > MESSAGE {
        return Start::Bad;
    }
    let (mut job, mut sequence) = (0, 0);
    loop {
        let Some((&tag, after)) = rest.split_first() else { return Start::More };
        let (value, after) = match read_varint(after) {
            Ok(Some(read)) => read,
            Ok(None) => return Start::More,
            Err(()) => return Start::Bad,
        };
        match tag {
            0x08 => job = value,
            0x10 => sequence = value,
            0x22 => {
                let fields = bytes.len() - 5 - after.len();
                let Some(data) = usize::try_from(value).ok().filter(|d| fields + d == len) else {
                    return Start::Bad;
                };
                return Start::Chunk { job, sequence, data };
            }
            _ => return Start::Bad,
        }
        rest = after;
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &[u8]) -> std::result::Result<Option<(u64, &[u8])>, ()> {
    let mut value = 0u64;
    for (i, b) in bytes.iter().enumerate() {
        if i == 9 && *b > 1 || i > 9 {
            return Err(());
        }
        value |= u64::from(b & 127) << (7 * i);
        if b & 128 == 0 {
            return Ok(Some((value, &bytes[i + 1..])));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_start_as_they_are_written() {
        let mut s = Sending::new(&[7; 300], 129);
        let mut allowed = Allowed::default();
        assert!(begin_frame(&mut s, &mut allowed, 1 << 60));
        let message = &s.head[Head::BYTES..];
        assert_eq!(chunk(message), Start::Chunk { job: 1 << 60, sequence: 129, data: 300 });
        for cut in 0..message.len() {
            assert_eq!(chunk(&message[..cut]), Start::More);
        }
        assert_eq!(s.body, 0..300);
        assert_eq!(allowed.windows[0], 65_535 - 300 - message.len() as i64);
    }

    #[test]
    fn nothing_is_sent_without_leave() {
        let data = vec![0; 100_000];
        let mut s = Sending::new(&data, 1);
        let mut allowed = Allowed::default();
        let mut framed = 0;
        while begin_frame(&mut s, &mut allowed, 1) {
            framed += s.body.len();
        }
        assert!(framed < 65_535 && framed > 65_400, "{framed}");
        allowed.window_update(0, &1_000_000u32.to_be_bytes()).unwrap();
        assert!(!begin_frame(&mut s, &mut allowed, 1), "the call's own window is closed");
        allowed.window_update(1, &1_000_000u32.to_be_bytes()).unwrap();
        assert!(begin_frame(&mut s, &mut allowed, 1));
    }

    #[test]
    fn malformed_messages_are_refused() {
        assert_eq!(chunk(&[1, 0, 0, 0, 9]), Start::Bad);
        assert_eq!(chunk(&[0, 0xff, 0, 0, 9, 8]), Start::Bad);
        assert_eq!(chunk(&[0, 0, 0, 0, 3, 0x22, 200, 1]), Start::Bad);
        assert_eq!(chunk(&[0, 0, 0, 0, 3, 0x18, 1]), Start::Bad);
        let endless = [&[0, 0, 0, 0, 3, 8][..], &[0xff; 20]].concat();
        assert_eq!(chunk(&endless), Start::Bad);
    }
}
