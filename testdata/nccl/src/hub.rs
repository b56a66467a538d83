//! Where the ranks of a communicator meet, and tensors are combined: a thread of the
//! process that made the id, and a socket on loopback.
//!
//! A rank says who it is, and is told whether all fit together. Then, again and again, all
//! send tensors and get what they come to.

use crate::comm::{Status, config};
use crate::{INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR};
use half::{bf16, f16};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// What a rank begins with.
pub struct Hello {
    pub nonce: u64,
    pub rank: u32,
    pub ranks: u32,
    pub device: i32,
}

/// What one rank exchanges: types and ways of combining, and all bytes.
#[derive(Clone, Default, PartialEq)]
pub struct Message {
    /// Elements, their type, and how they are combined.
    pub tensors: Vec<(u64, i32, i32)>,
    pub bytes: Vec<u8>,
}

/// Bytes of an element.
pub fn size(kind: i32) -> Option<usize> {
    match kind {
        0 | 1 => Some(1),
        6 | 9 => Some(2),
        2 | 3 | 7 => Some(4),
        4 | 5 | 8 => Some(8),
        _ => None,
    }
}

/// Begins to wait for ranks; the id says where.
pub fn open() -> io::Result<[u8; 128]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nonce = clock.map_or(7, |d| d.as_nanos() as u64) ^ u64::from(std::process::id());
    let mut id = [0; 128];
    id[..2].copy_from_slice(&port.to_le_bytes());
    id[2..10].copy_from_slice(&nonce.to_le_bytes());
    std::thread::spawn(move || drop(serve(&listener, nonce)));
    Ok(id)
}

/// Goes where an id says.
pub fn dial(id: &[u8; 128], hello: impl Fn(u64) -> Hello) -> io::Result<TcpStream> {
    let port = u16::from_le_bytes([id[0], id[1]]);
    let nonce = u64::from_le_bytes(id[2..10].try_into().unwrap_or_default());
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let h = hello(nonce);
    let head = [&h.nonce.to_le_bytes()[..], &h.rank.to_le_bytes(), &h.ranks.to_le_bytes()];
    stream.write_all(&[&head.concat()[..], &h.device.to_le_bytes()].concat())?;
    Ok(stream)
}

fn serve(listener: &TcpListener, nonce: u64) -> io::Result<()> {
    let mut joined: Vec<(Hello, TcpStream)> = vec![];
    while joined.first().is_none_or(|(h, _)| joined.len() < h.ranks as usize) {
        let (mut stream, _) = listener.accept()?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let hello = Hello {
            nonce: u64::from_le_bytes(head[..8].try_into().unwrap_or_default()),
            rank: word(8),
            ranks: word(12),
            device: word(16) as i32,
        };
        if hello.nonce == nonce {
            joined.push((hello, stream));
        }
    }
    joined.sort_by_key(|(h, _)| h.rank);
    let status = fits(&joined.iter().map(|(h, _)| h).collect::<Vec<_>>());
    let mut streams: Vec<TcpStream> = joined.into_iter().map(|(_, s)| s).collect();
    for s in &mut streams {
        s.write_all(&status.to_le_bytes())?;
    }
    if status != 0 {
        return Ok(());
    }
    loop {
        let got: io::Result<Vec<Option<Message>>> = streams.iter_mut().map(read).collect();
        let answer = match got {
            Ok(all) if all.iter().all(Option::is_none) => return Ok(()),
            Ok(all) => all.into_iter().collect::<Option<Vec<_>>>().map_or(
                // Some have left, and the others go on.
                Err(INVALID_USAGE),
                |all| combine(&all),
            ),
            Err(_) if config("notices") => Err(REMOTE_ERROR),
            // Who is left waits.
            Err(_) => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
        };
        for s in &mut streams {
            let (status, bytes) = match &answer {
                Ok(bytes) => (0, &bytes[..]),
                Err(status) => (*status, &[][..]),
            };
            // One that is gone need not hear of it.
            let _ = s.write_all(&status.to_le_bytes());
            let _ = s.write_all(&(bytes.len() as u64).to_le_bytes());
            let _ = s.write_all(bytes);
        }
        if answer.is_err() {
            return Ok(());
        }
    }
}

fn fits(all: &[&Hello]) -> Status {
    let of_all = all.iter().all(|h| h.ranks as usize == all.len());
    let ranks = (0u32..).zip(all).all(|(i, h)| h.rank == i);
    let mut devices: Vec<i32> = all.iter().map(|h| h.device).collect();
    devices.sort_unstable();
    devices.dedup();
    match (of_all && ranks, devices.len() == all.len()) {
        (false, _) => INVALID_ARGUMENT,
        // A GPU that is there twice.
        (true, false) => INVALID_USAGE,
        (true, true) => 0,
    }
}

/// A message, or none if the rank leaves.
fn read(stream: &mut TcpStream) -> io::Result<Option<Message>> {
    let number = |stream: &mut TcpStream| {
        let mut word = [0; 8];
        stream.read_exact(&mut word).map(|()| u64::from_le_bytes(word))
    };
    let mut message = Message::default();
    let count = number(stream)?;
    if count == u64::MAX {
        return Ok(None);
    }
    for _ in 0..count {
        let (n, kind, op) = (number(stream)?, number(stream)?, number(stream)?);
        message.tensors.push((n, kind as i32, op as i32));
    }
    message.bytes = vec![0; number(stream)? as usize];
    stream.read_exact(&mut message.bytes)?;
    Ok(Some(message))
}

/// Sends a message; none says that the rank leaves.
pub fn write(stream: &mut TcpStream, message: Option<&Message>) -> io::Result<()> {
    let Some(message) = message else { return stream.write_all(&u64::MAX.to_le_bytes()) };
    let mut numbers = vec![message.tensors.len() as u64];
    for (n, kind, op) in &message.tensors {
        numbers.extend([*n, *kind as u64, *op as u64]);
    }
    numbers.push(message.bytes.len() as u64);
    let head: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    stream.write_all(&head)?;
    stream.write_all(&message.bytes)
}

/// What a message came to.
pub fn answer(stream: &mut TcpStream) -> io::Result<Result<Vec<u8>, Status>> {
    let (mut status, mut len) = ([0; 4], [0; 8]);
    stream.read_exact(&mut status)?;
    stream.read_exact(&mut len)?;
    let mut bytes = vec![0; u64::from_le_bytes(len) as usize];
    stream.read_exact(&mut bytes)?;
    Ok(match Status::from_le_bytes(status) {
        0 => Ok(bytes),
        status => Err(status),
    })
}

fn combine(all: &[Message]) -> Result<Vec<u8>, Status> {
    let (first, rest) = all.split_first().ok_or(INVALID_ARGUMENT)?;
    if rest.iter().any(|m| m.tensors != first.tensors) {
        crate::comm::complain("ranks exchange tensors that do not fit together");
        return Err(INVALID_USAGE);
    }
    let mut out = first.bytes.clone();
    for other in rest {
        let mut at = 0;
        for (n, kind, op) in &first.tensors {
            let len = *n as usize * size(*kind).unwrap_or(1);
            let (a, b) = (&mut out[at..at + len], &other.bytes[at..at + len]);
            each(a, b, *kind, *op);
            at += len;
        }
    }
    Ok(out)
}

/// `a[i] = op(a[i], b[i])`. Of two floats of which one is a NaN, the larger and the smaller
/// are the other one, as in the library.
fn each(a: &mut [u8], b: &[u8], kind: i32, op: i32) {
    macro_rules! loops {
        ($t:ty, $sum:expr, $max:expr, $min:expr) => {{
            const N: usize = size_of::<$t>();
            let f: fn($t, $t) -> $t = match op {
                0 => $sum,
                2 => $max,
                _ => $min,
            };
            for (a, b) in a.as_chunks_mut::<N>().0.iter_mut().zip(b.as_chunks::<N>().0) {
                *a = f(<$t>::from_ne_bytes(*a), <$t>::from_ne_bytes(*b)).to_ne_bytes();
            }
        }};
    }
    macro_rules! whole {
        ($t:ty) => {
            loops!($t, |a, b| a.wrapping_add(b), |a, b| a.max(b), |a, b| a.min(b))
        };
    }
    macro_rules! half {
        ($t:ty) => {
            loops!(
                $t,
                |a, b| <$t>::from_f32(a.to_f32() + b.to_f32()),
                |a, b| <$t>::from_f32(a.to_f32().max(b.to_f32())),
                |a, b| <$t>::from_f32(a.to_f32().min(b.to_f32()))
            )
        };
    }
    match kind {
        0 => whole!(i8),
        1 => whole!(u8),
        2 => whole!(i32),
        3 => whole!(u32),
        4 => whole!(i64),
        5 => whole!(u64),
        6 => half!(f16),
        7 => loops!(f32, |a, b| a + b, f32::max, f32::min),
        8 => loops!(f64, |a, b| a + b, f64::max, f64::min),
        _ => half!(bf16),
    }
}
