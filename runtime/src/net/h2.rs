//! Frames of HTTP/2 (RFC 9113): as much of it as gRPC with one call on a connection
//! takes.

use std::io::{self, Read, Write};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The only call of a connection.
pub(super) const STREAM: u32 = 1;
/// Data that may be on its way without being acknowledged.
pub(super) const WINDOW: u32 = (1 << 31) - 1;
/// The largest frame we take. Ours are smaller than any peer's limit allows.
pub(super) const FRAME: usize = (1 << 24) - 1;
/// What a peer takes until it says otherwise.
pub(super) const FRAME_AT_FIRST: usize = 1 << 14;
pub(super) const WINDOW_AT_FIRST: i64 = 65_535;
/// The largest frame other than data that is looked at.
const CONTROL: usize = 1 << 20;

pub(super) mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

pub(super) mod flag {
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub len: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Head {
    pub(super) const BYTES: usize = 9;

    pub(super) fn read(b: &[u8; 9]) -> Head {
        Head {
            len: usize::from(b[0]) << 16 | usize::from(b[1]) << 8 | usize::from(b[2]),
            kind: b[3],
            flags: b[4],
            stream: u32::from_be_bytes([b[5], b[6], b[7], b[8]]) & 0x7fff_ffff,
        }
    }

    pub(super) fn bytes(self) -> [u8; 9] {
        let [_, l2, l1, l0] = (self.len as u32).to_be_bytes();
        let [s3, s2, s1, s0] = self.stream.to_be_bytes();
        [l2, l1, l0, self.kind, self.flags, s3, s2, s1, s0]
    }

    /// Whether its payload is small enough to be looked at whole.
    pub(super) fn is_control(self) -> bool {
        self.kind != kind::DATA && self.len <= CONTROL
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Head { len: payload.len(), kind, flags, stream }.bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

/// What each side says first: large frames, and as much data as they like.
pub(super) fn greeting() -> Vec<u8> {
    let mut settings = vec![];
    for (name, value) in [(2u16, 0), (3, 1), (4, WINDOW), (5, FRAME as u32)] {
        settings.extend_from_slice(&name.to_be_bytes());
        settings.extend_from_slice(&value.to_be_bytes());
    }
    let mut out = frame(kind::SETTINGS, 0, 0, &settings);
    let more = WINDOW - WINDOW_AT_FIRST as u32;
    out.extend(frame(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes()));
    out
}

/// What a peer allows to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub frame: usize,
    /// For the connection, and for the one call on it.
    pub windows: [i64; 2],
    initial: i64,
}

impl Default for Allowed {
    fn default() -> Allowed {
        let w = WINDOW_AT_FIRST;
        Allowed { frame: FRAME_AT_FIRST, windows: [w, w], initial: w }
    }
}

impl Allowed {
    pub(super) fn settings(&mut self, payload: &[u8]) -> Option<()> {
        for s in payload.chunks(6) {
            let s: &[u8; 6] = s.try_into().ok()?;
            let value = u32::from_be_bytes([s[2], s[3], s[4], s[5]]);
            match u16::from_be_bytes([s[0], s[1]]) {
                4 => {
                    let value = i64::from(value);
                    if value > i64::from(WINDOW) {
                        return None;
                    }
                    self.windows[1] += value - self.initial;
                    self.initial = value;
                }
                5 => {
                    let value = value as usize;
                    if !(FRAME_AT_FIRST..=FRAME).contains(&value) {
                        return None;
                    }
                    self.frame = value;
                }
                _ => {}
            }
        }
        Some(())
    }

    pub(super) fn window_update(&mut self, stream: u32, payload: &[u8]) -> Option<()> {
        let more: [u8; 4] = payload.try_into().ok()?;
        let window = &mut self.windows[usize::from(stream != 0)];
        *window += i64::from(u32::from_be_bytes(more) & 0x7fff_ffff);
        (*window <= i64::from(WINDOW)).then_some(())
    }
}

/// A frame other than data, whole; for the handshake, when sockets still block.
pub(super) fn read_control(stream: &mut impl Read) -> io::Result<(Head, Vec<u8>)> {
    let mut head = [0; Head::BYTES];
    stream.read_exact(&mut head)?;
    let head = Head::read(&head);
    if !head.is_control() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that is out of place"));
    }
    let mut payload = vec![0; head.len];
    stream.read_exact(&mut payload)?;
    Ok((head, payload))
}

pub(super) fn write(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// The block of headers in a HEADERS frame, without padding and priority.
pub(super) fn header_block(head: Head, payload: &[u8]) -> Option<&[u8]> {
    let mut block = payload;
    if head.flags & flag::PADDED != 0 {
        let (pad, rest) = block.split_first()?;
        block = rest.get(..rest.len().checked_sub(usize::from(*pad))?)?;
    }
    if head.flags & flag::PRIORITY != 0 {
        block = block.get(5..)?;
    }
    Some(block)
}
