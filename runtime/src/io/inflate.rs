//! Decompression of "deflate" data (RFC 1951), as gzip and zip files hold it.
//!
//! Invariants
//! - Damaged data is an error, never a panic: `InvalidData`, or `UnexpectedEof`
//!   where it ends too early.
//! - Memory does not grow with what comes out: it is given on as it is made, and
//!   only as much is kept as later parts may refer to.

use std::io::{BufRead, Error, ErrorKind, Read, Result};

/// How far back data may refer.
const WINDOW: usize = 1 << 15;
/// What is made at a time.
const CHUNK: usize = 1 << 15;

/// What `data` was made of, or none: the data is damaged, or would give more
/// than `limit` bytes.
pub fn inflate(data: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = vec![];
    let most = u64::try_from(limit).ok()?.saturating_add(1);
    Inflate::new(data).take(most).read_to_end(&mut out).ok()?;
    (out.len() <= limit).then_some(out)
}

/// Reads what the data it is given was made of.
pub struct Inflate<R> {
    input: Bits<R>,
    /// The block at work is the last.
    last: bool,
    state: State,
    /// What came last, and how much of it was given on.
    window: Vec<u8>,
    given: usize,
}

enum State {
    Header,
    Stored { left: usize },
    Coded(Box<(Code, Code)>),
    Over,
}

fn damaged() -> Error {
    Error::new(ErrorKind::InvalidData, "the compressed data is damaged")
}

impl<R: BufRead> Inflate<R> {
    pub fn new(input: R) -> Inflate<R> {
        let input = Bits { input, held: 0, count: 0 };
        Inflate { input, last: false, state: State::Header, window: vec![], given: 0 }
    }

    /// Bytes behind the data, once all of it was read.
    pub fn behind(&mut self, out: &mut [u8]) -> Result<()> {
        self.input.drop(self.input.count % 8)?;
        for byte in out {
            *byte = self.input.take(8)? as u8;
        }
        Ok(())
    }

    /// Makes some more, unless all is over.
    fn make(&mut self) -> Result<()> {
        let used = self.window.len();
        self.window.drain(..used.saturating_sub(WINDOW));
        self.given = self.window.len();
        let full = self.window.len() + CHUNK;
        while self.window.len() < full {
            let (input, out) = (&mut self.input, &mut self.window);
            match &mut self.state {
                State::Over => return Ok(()),
                State::Header if self.last => self.state = State::Over,
                State::Header => {
                    self.last = input.take(1)? == 1;
                    self.state = header(input)?;
                }
                State::Stored { left: 0 } => self.state = State::Header,
                State::Stored { left } => {
                    out.push(input.take(8)? as u8);
                    *left -= 1;
                }
                State::Coded(codes) => {
                    if symbol(input, out, codes)? {
                        self.state = State::Header;
                    }
                }
            }
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        if self.given == self.window.len() {
            self.make()?;
        }
        let some = &self.window[self.given..];
        let count = some.len().min(out.len());
        out[..count].copy_from_slice(&some[..count]);
        self.given += count;
        Ok(count)
    }
}

/// The input, bit by bit, lowest first.
struct Bits<R> {
    input: R,
    held: u64,
    count: u32,
}

impl<R: BufRead> Bits<R> {
    /// Holds more than 48 bits, or all that are left.
    fn fill(&mut self) -> Result<()> {
        while self.count <= 48 {
            let bytes = self.input.fill_buf()?;
            let some = bytes.len().min(((64 - self.count) / 8) as usize);
            if some == 0 {
                return Ok(());
            }
            for byte in &bytes[..some] {
                self.held |= u64::from(*byte) << self.count;
                self.count += 8;
            }
            self.input.consume(some);
        }
        Ok(())
    }

    fn take(&mut self, n: u32) -> Result<usize> {
        if self.count < n {
            self.fill()?;
        }
        let value = self.held & ((1 << n) - 1);
        self.drop(n)?;
        Ok(value as usize)
    }

    fn drop(&mut self, n: u32) -> Result<()> {
        let left = self.count.checked_sub(n);
        self.count = left.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?;
        self.held >>= n;
        Ok(())
    }
}

/// What kind of block comes.
fn header(input: &mut Bits<impl BufRead>) -> Result<State> {
    Ok(match input.take(2)? {
        0 => {
            input.drop(input.count % 8)?;
            let (left, check) = (input.take(16)?, input.take(16)?);
            if left != !check & 0xffff {
                return Err(damaged());
            }
            State::Stored { left }
        }
        1 => State::Coded(Box::new(fixed())),
        2 => State::Coded(Box::new(dynamic(input)?)),
        _ => return Err(damaged()),
    })
}

/// Longest code, and how many bits of a code the table is entered with.
const LONGEST: usize = 15;
const DIRECT: u32 = 10;

/// A canonical Huffman code.
struct Code {
    /// By the next `DIRECT` bits of input: a symbol and the length of its code,
    /// or a length of 0 where the code is longer or there is none.
    table: Vec<(u16, u8)>,
    /// How many codes have each length, and their symbols in order.
    counts: [u16; LONGEST + 1],
    symbols: Vec<u16>,
}

impl Code {
    /// The code with these lengths of symbols, or none if there is no such one.
    fn new(lengths: &[u8]) -> Option<Code> {
        let mut counts = [0u16; LONGEST + 1];
        for length in lengths {
            *counts.get_mut(usize::from(*length))? += 1;
        }
        counts[0] = 0;
        let mut left = 1i32;
        let mut starts = [0u16; LONGEST + 2];
        let mut next = [0u32; LONGEST + 2];
        for length in 1..=LONGEST {
            left = 2 * left - i32::from(counts[length]);
            if left < 0 {
                return None;
            }
            starts[length + 1] = starts[length] + counts[length];
            next[length + 1] = (next[length] + u32::from(counts[length])) << 1;
        }
        let used = usize::from(starts[LONGEST + 1]);
        // Unfinished codes are those of at most one symbol.
        if left > 0 && used > 1 {
            return None;
        }
        let mut symbols = vec![0; used];
        let mut table = vec![(0, 0); 1 << DIRECT];
        for (symbol, length) in lengths.iter().enumerate().filter(|(_, l)| **l > 0) {
            let at = usize::from(*length);
            symbols[usize::from(starts[at])] = symbol as u16;
            starts[at] += 1;
            let code = next[at];
            next[at] += 1;
            let bits = u32::from(*length);
            if bits <= DIRECT {
                // The input has the first bit of a code lowest.
                let low = code.reverse_bits() >> (32 - bits);
                for high in 0..1u32 << (DIRECT - bits) {
                    table[(high << bits | low) as usize] = (symbol as u16, *length);
                }
            }
        }
        Some(Code { table, counts, symbols })
    }

    fn next(&self, input: &mut Bits<impl BufRead>) -> Result<usize> {
        if input.count < LONGEST as u32 {
            input.fill()?;
        }
        let (symbol, length) = self.table[(input.held & ((1 << DIRECT) - 1)) as usize];
        if length > 0 {
            input.drop(u32::from(length))?;
            return Ok(usize::from(symbol));
        }
        let (mut code, mut first, mut index) = (0i32, 0i32, 0i32);
        for length in 1..=LONGEST {
            code |= (input.held >> (length - 1) & 1) as i32;
            let count = i32::from(self.counts[length]);
            if code - first < count {
                input.drop(length as u32)?;
                let symbol = self.symbols.get((index + code - first) as usize);
                return symbol.map(|s| usize::from(*s)).ok_or_else(damaged);
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(damaged())
    }
}

fn fixed() -> (Code, Code) {
    let lengths: Vec<u8> = (0..288)
        .map(|symbol| match symbol {
            0..144 => 8,
            144..256 => 9,
            256..280 => 7,
            _ => 8,
        })
        .collect();
    let code = |lengths: &[u8]| Code::new(lengths).expect("the lengths of the format are a code");
    (code(&lengths), code(&[5; 32]))
}

/// The codes a block begins with, themselves coded.
fn dynamic(input: &mut Bits<impl BufRead>) -> Result<(Code, Code)> {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let literals = input.take(5)? + 257;
    let distances = input.take(5)? + 1;
    let count = input.take(4)? + 4;
    let mut lengths = [0; 19];
    for place in &ORDER[..count] {
        lengths[*place] = input.take(3)? as u8;
    }
    let code = Code::new(&lengths).ok_or_else(damaged)?;
    let mut lengths: Vec<u8> = vec![];
    while lengths.len() < literals + distances {
        let (value, times) = match code.next(input)? {
            16 => (*lengths.last().ok_or_else(damaged)?, 3 + input.take(2)?),
            17 => (0, 3 + input.take(3)?),
            18 => (0, 11 + input.take(7)?),
            length => (length as u8, 1),
        };
        lengths.extend(std::iter::repeat_n(value, times));
    }
    // A block that cannot end is damaged, as is a list that is too long.
    if lengths.len() > literals + distances || lengths[256] == 0 {
        return Err(damaged());
    }
    let code = |lengths: &[u8]| Code::new(lengths).ok_or_else(damaged);
    Ok((code(&lengths[..literals])?, code(&lengths[literals..])?))
}

/// Decodes one symbol; whether it was the end of its block.
fn symbol(
    input: &mut Bits<impl BufRead>,
    out: &mut Vec<u8>,
    (literals, distances): &(Code, Code),
) -> Result<bool> {
    let symbol = literals.next(input)?;
    let length = match symbol {
        0..=255 => {
            out.push(symbol as u8);
            return Ok(false);
        }
        256 => return Ok(true),
        257..265 => symbol - 254,
        // Four lengths share each number of further bits.
        265..285 => {
            let bits = (symbol - 261) / 4;
            3 + ((4 + (symbol - 261) % 4) << bits) + input.take(bits as u32)?
        }
        285 => 258,
        _ => return Err(damaged()),
    };
    let distance = match distances.next(input)? {
        d @ 0..4 => d + 1,
        d @ 4..30 => {
            let bits = d / 2 - 1;
            1 + ((2 + d % 2) << bits) + input.take(bits as u32)?
        }
        _ => return Err(damaged()),
    };
    let from = out.len().checked_sub(distance).ok_or_else(damaged)?;
    if distance >= length {
        out.extend_from_within(from..from + length);
    } else {
        // The copy overlaps itself: it repeats.
        for i in from..from + length {
            out.push(out[i]);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with long and short repeats, noise, runs and nothing.
    fn samples() -> Vec<Vec<u8>> {
        let mut state = 1u32;
        let mut noise = |n: usize| -> Vec<u8> {
            (0..n)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect()
        };
        let mut mixed = noise(70_000);
        mixed.extend_from_within(100..9000);
        mixed.extend(b"the same again, ".repeat(500));
        vec![
            vec![],
            b"x".to_vec(),
            vec![0; 100_000],
            noise(300),
            (0..40_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect(),
            mixed,
        ]
    }

    #[test]
    fn what_was_packed_comes_out() {
        for text in samples() {
            for level in [0, 1, 6, 9] {
                let packed = miniz_oxide::deflate::compress_to_vec(&text, level);
                assert!(inflate(&packed, text.len()).as_deref() == Some(&text), "level {level}");
                if !text.is_empty() {
                    assert_eq!(inflate(&packed, text.len() - 1), None, "a limit is one");
                }
            }
        }
    }

    #[test]
    fn damage_is_no_panic() {
        for text in samples() {
            let packed = miniz_oxide::deflate::compress_to_vec(&text, 6);
            for cut in (0..packed.len()).step_by(1 + packed.len() / 300) {
                assert_eq!(inflate(&packed[..cut], text.len()), None, "cut at {cut}");
                for bit in 0..8 {
                    let mut bad = packed.clone();
                    bad[cut] ^= 1 << bit;
                    assert!(inflate(&bad, text.len()).is_none_or(|t| t.len() <= text.len()));
                }
            }
        }
    }

    #[test]
    fn agrees_about_short_inputs() {
        // Every input of two bytes, and some of three: mostly damaged.
        for n in 0..=0xffff_u32 {
            let bytes = [n as u8, (n >> 8) as u8, (n % 251) as u8];
            let theirs = miniz_oxide::inflate::decompress_to_vec_with_limit(&bytes, 1 << 16);
            assert_eq!(inflate(&bytes, 1 << 16), theirs.ok(), "{bytes:?}");
        }
    }
}
