//! Bytes that no peer of ours would send: changed, cut short, repeated, out of order, too
//! many. Nothing here may panic or go on without end, and nothing but the message that is
//! due may reach the receiver's memory.

use super::h2::{self, Allowed, Head, flag, kind};
use super::hpack::Decoder;
use super::line::{Cause, Kind, Line, Word};
use super::link::{Link, Progress, Receiving, Sending};
use super::tls::{Pipe, Wire};
use super::{Moment, hpack};
use crate::error::ErrorCode;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const JOB: u64 = 77;

/// A small generator, so that failures repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }
}

fn moment(sequence: u64) -> Moment<'static> {
    let deadline = Instant::now() + Duration::from_secs(3600);
    Moment { sequence, deadline, what: "x", place: "m.graph:1:1" }
}

fn link(input: &[u8]) -> Link {
    let pipe = Pipe { input: input.iter().copied().collect(), ..Pipe::default() };
    Link::new(1, JOB, Wire::memory(pipe), Allowed::default(), Decoder::default())
}

/// A message as a peer of ours sends it.
fn message(data: &[u8], sequence: u64) -> Vec<u8> {
    let link = link(&[]);
    let mut sending = Sending::new(data, sequence);
    assert_eq!(link.push(&mut sending, &moment(sequence)).unwrap(), Progress::Done);
    link.stream.written()
}

/// What a receiver makes of bytes: whether it got its message, or an error; and its
/// memory, which was full of `0xee` before.
fn receive(bytes: &[u8], len: usize, sequence: u64) -> (Option<bool>, Vec<u8>) {
    let link = link(bytes);
    let mut into = vec![0xee; len];
    let mut receiving = Receiving::new(&mut into, sequence);
    // As often as a driver would ask before the socket is empty.
    for _ in 0..10_000 {
        match link.pull(Some(&mut receiving), &moment(sequence)) {
            Ok(Progress::Done) => return (Some(true), into),
            Ok(_) if link.stream.is_drained() => return (None, into),
            Ok(_) => {}
            Err(e) => {
                let code = e.code();
                assert!([ErrorCode::BAD_MESSAGE, ErrorCode::PEER_LOST].contains(&code), "{e}");
                return (Some(false), into);
            }
        }
    }
    panic!("it never ends");
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8 % 200).collect()
}

#[test]
fn changed_messages_reach_nobody() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut taken, mut refused) = (0, 0);
    for case in 0..60_000 {
        let len = 1 + random.below(90);
        let good = message(&data(len), 5);
        let head = good.len() - len;
        let mut bytes = good.clone();
        match case % 4 {
            // A bit of a head: of the frame, or of the message.
            0 => bytes[random.below(head)] ^= 1 << random.below(8),
            // A head of any kind.
            1 => bytes[..head].iter_mut().for_each(|b| *b = random.below(256) as u8),
            2 => bytes.truncate(random.below(good.len())),
            // Something in front.
            _ => {
                let noise: Vec<u8> =
                    (0..1 + random.below(40)).map(|_| random.below(256) as u8).collect();
                bytes.splice(0..0, noise);
            }
        }
        let (end, memory) = receive(&bytes, len, 5);
        match end {
            // What came through is what was sent, or a part of it in its place: a length
            // that was made smaller leaves the rest for the next message, which is then
            // not one.
            Some(true) => {
                taken += 1;
                assert_eq!(memory, data(len), "case {case}");
            }
            Some(false) | None => refused += 1,
        }
    }
    assert!(refused > 40_000 && taken < 20_000, "{taken} {refused}");
}

#[test]
fn repeated_and_reordered_messages_are_errors() {
    let mut random = Random(11);
    for _ in 0..10_000 {
        let len = 1 + random.below(50);
        let due = 2 + random.below(1000) as u64;
        // An old one, a later one, one of another run of the job.
        let other = if random.below(2) == 0 { due - 1 } else { due + 1 };
        let (end, memory) = receive(&message(&data(len), other), len, due);
        assert_eq!((end, memory), (Some(false), vec![0xee; len]));
        // The right one, and then the same again.
        let twice = message(&data(len), due).repeat(2);
        let link = link(&twice);
        let mut into = vec![0xee; len];
        let mut first = Receiving::new(&mut into, due);
        assert_eq!(link.pull(Some(&mut first), &moment(due)).unwrap(), Progress::Done);
        let mut next = vec![0xee; len];
        let mut second = Receiving::new(&mut next, due + 1);
        let e = link.pull(Some(&mut second), &moment(due + 1)).unwrap_err();
        assert_eq!(e.code(), ErrorCode::BAD_MESSAGE);
        assert_eq!(next, vec![0xee; len]);
    }
}

#[test]
fn more_than_is_due_is_an_error() {
    for extra in [1, 7, 60_000] {
        let (end, memory) = receive(&message(&data(64 + extra), 3), 64, 3);
        assert_eq!((end, memory), (Some(false), vec![0xee; 64]));
    }
    // A frame longer than any.
    let head = Head { len: h2::FRAME, kind: 0x7f, flags: 0, stream: 1 };
    assert_eq!(receive(&head.bytes(), 8, 3).0, Some(false));
}

/// Endless requests for answers: memory for these has a limit.
#[test]
fn floods_are_errors() {
    for frame in [
        h2::frame(kind::PING, 0, 0, &[1; 8]),
        h2::frame(kind::SETTINGS, 0, 0, &[]),
        h2::frame(kind::PING, 0, 0, &[9; 60_000]),
    ] {
        let bytes = frame.repeat(4_000_000 / frame.len());
        assert_eq!(receive(&bytes, 8, 3).0, Some(false));
    }
    // Messages without data, without end: whoever waits still looks at the clock.
    let empty = message(&[1], 3);
    let mut empty = empty[..empty.len() - 1].to_vec();
    let at = empty.len() - 1;
    (empty[2], empty[at]) = (empty[2] - 1, 0);
    let prefix = 9 + 4;
    empty[prefix] -= 1;
    let link = link(&empty.repeat(50_000));
    let mut into = [0xee; 4];
    let mut receiving = Receiving::new(&mut into, 3);
    assert_eq!(link.pull(Some(&mut receiving), &moment(3)).unwrap(), Progress::More);
    assert!(!link.stream.is_drained(), "it came back to look at the clock");
}

#[test]
fn headers_of_any_kind_are_taken_or_refused() {
    let mut random = Random(3);
    let good = hpack::encode(&[(":path", "/tfc.Cluster/Join"), ("tfc-rank", "1"), ("te", "x")]);
    let mut decoder = Decoder::default();
    let (mut taken, mut refused) = (0, 0);
    for case in 0..60_000 {
        let mut bytes = good.clone();
        match case % 3 {
            0 => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            1 => bytes.truncate(random.below(good.len())),
            _ => bytes = (0..random.below(80)).map(|_| random.below(256) as u8).collect(),
        }
        match decoder.decode(&bytes) {
            Some(headers) => {
                taken += 1;
                let size: usize = headers.iter().map(|(n, v)| n.len() + v.len()).sum();
                assert!(size <= 64 << 10);
            }
            None => refused += 1,
        }
        let head = Head { len: bytes.len(), kind: kind::HEADERS, flags: case as u8, stream: 1 };
        if let Some(block) = h2::header_block(head, &bytes) {
            assert!(block.len() <= bytes.len());
        }
        let mut allowed = Allowed::default();
        let _ = allowed.settings(&bytes);
        let _ = allowed.window_update(case % 2, &bytes);
        assert!((1 << 14..1 << 24).contains(&allowed.frame));
    }
    assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
    // Squeezed as much as can be: work has a limit as well.
    let long = [&[0, 0xff, 0xff, 0xff, 0x3f][..], &[0; 1 << 20]].concat();
    assert_eq!(Decoder::default().decode(&long), None);
}

/// A conversation of handshake frames, changed in any way, ends.
#[test]
fn handshakes_of_any_kind_end() {
    let mut random = Random(17);
    let block = hpack::encode(&[(":status", "200"), ("tfc-job", "7")]);
    let mut hello = h2::greeting();
    hello.extend(h2::frame(kind::HEADERS, flag::END_HEADERS, 1, &block));
    for case in 0..20_000 {
        let mut bytes = hello.clone();
        if case % 2 == 0 {
            for _ in 0..1 + random.below(6) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        } else {
            bytes.truncate(random.below(hello.len()));
        }
        let mut rest = &bytes[..];
        let mut frames = 0;
        while let Ok((head, payload)) = h2::read_control(&mut rest) {
            assert_eq!(head.len, payload.len());
            frames += 1;
            assert!(frames <= 64);
        }
    }
}

/// What is heard on a line where somebody writes these bytes, and then no more.
fn heard(bytes: &[u8]) -> Vec<Word> {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut there = TcpStream::connect(door.local_addr().unwrap()).unwrap();
    let (here, _) = door.accept().unwrap();
    here.set_nonblocking(true).unwrap();
    let link = Link::new(1, JOB, Wire::Plain(here), Allowed::default(), Decoder::default());
    let line = Line::new(1, JOB, link);
    there.write_all(bytes).unwrap();
    there.shutdown(Shutdown::Write).unwrap();
    let words = Mutex::new(vec![]);
    line.listen(4, &|word| words.lock().unwrap().push(word));
    assert!(line.is_gone());
    words.into_inner().unwrap()
}

/// Words about who is lost, changed, cut short, repeated or of another run: the line ends,
/// and what was heard before is what somebody may say.
#[test]
fn lines_with_noise_end() {
    let mut random = Random(23);
    let word = Word::Broken(Cause { peer: 2, kind: Kind::Late, why: "it is late".into() });
    let good = message(&word.bytes(), 0);
    assert_eq!(heard(&good), std::slice::from_ref(&word));
    assert_eq!(heard(&good.repeat(2)), std::slice::from_ref(&word), "it was said twice");
    assert_eq!(heard(&[good.clone(), message(&Word::Left.bytes(), 1)].concat()).len(), 2);
    assert_eq!(heard(&message(&word.bytes(), 1)), [], "the first one is missing");
    assert_eq!(heard(&message(&[0; 255], 0)), [], "it is too short");
    assert_eq!(heard(&message(&[0x5a; 256], 0)), [], "it is no word");
    let stranger = Word::Broken(Cause { peer: 4, kind: Kind::Lost, why: String::new() });
    assert_eq!(heard(&message(&stranger.bytes(), 0)), [], "there are four processes");
    for case in 0..1500 {
        let mut bytes = good.clone();
        match case % 3 {
            0 => bytes[random.below(50)] ^= 1 << random.below(8),
            1 => bytes.truncate(random.below(good.len())),
            _ => bytes[..40].iter_mut().for_each(|b| *b = random.below(256) as u8),
        }
        for word in heard(&bytes) {
            if let Word::Broken(cause) = word {
                assert!(cause.peer < 4 && !cause.why.chars().any(char::is_control), "{cause:?}");
            }
        }
    }
}
