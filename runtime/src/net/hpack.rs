//! Headers of HTTP/2 as bytes (RFC 7541).
//!
//! What is written is always literal and plain, which every peer must accept. What is
//! read may use all of it: indices, the dynamic table, Huffman codes.

use std::collections::VecDeque;

/// Bytes of headers one message may have, decoded.
const MOST: usize = 64 << 10;
/// Bytes the dynamic table may have; peers are told nothing else.
const TABLE: usize = 4096;

pub(super) type Headers = Vec<(String, String)>;

/// The value of the header of this name.
pub(super) fn get<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

pub(super) fn encode(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![];
    for (name, value) in headers {
        out.push(0);
        for text in [name, value] {
            integer(&mut out, text.len(), 7, 0);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

fn integer(out: &mut Vec<u8>, value: usize, bits: u32, first: u8) {
    let limit = (1usize << bits) - 1;
    if value < limit {
        out.push(first | value as u8);
        return;
    }
    out.push(first | limit as u8);
    let mut rest = value - limit;
    while rest >= 128 {
        out.push(rest as u8 & 127 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[derive(Default)]
pub(super) struct Decoder {
    /// The newest first.
    table: VecDeque<(String, String)>,
    used: usize,
}

impl Decoder {
    /// The headers of one block; `None` if it is malformed or too large.
    pub(super) fn decode(&mut self, block: &[u8]) -> Option<Headers> {
        let mut r = Reader { bytes: block };
        let mut out = vec![];
        let mut total = 0;
        while let Some(&first) = r.bytes.first() {
            let pair = if first & 0x80 != 0 {
                self.entry(r.integer(7)?)?
            } else if first & 0xe0 == 0x20 {
                // A table of another size: ours only ever forgets.
                if r.integer(5)? < TABLE {
                    self.table.clear();
                    self.used = 0;
                }
                continue;
            } else {
                let keep = first & 0xc0 == 0x40;
                let name = match r.integer(if keep { 6 } else { 4 })? {
                    0 => r.text()?,
                    index => self.entry(index)?.0,
                };
                let pair = (name, r.text()?);
                if keep {
                    self.keep(pair.clone());
                }
                pair
            };
            total += pair.0.len() + pair.1.len() + 32;
            if total > MOST {
                return None;
            }
            out.push(pair);
        }
        Some(out)
    }

    fn entry(&self, index: usize) -> Option<(String, String)> {
        match index.checked_sub(1)? {
            i if i < STATIC.len() => Some((STATIC[i].0.to_owned(), STATIC[i].1.to_owned())),
            i => self.table.get(i - STATIC.len()).cloned(),
        }
    }

    fn keep(&mut self, pair: (String, String)) {
        self.used += pair.0.len() + pair.1.len() + 32;
        self.table.push_front(pair);
        while self.used > TABLE {
            let Some((n, v)) = self.table.pop_back() else { break };
            self.used -= n.len() + v.len() + 32;
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn integer(&mut self, bits: u32) -> Option<usize> {
        let limit = (1usize << bits) - 1;
        let mut value = usize::from(self.byte()?) & limit;
        if value < limit {
            return Some(value);
        }
        for shift in [0, 7, 14, 21] {
            let next = usize::from(self.byte()?);
            value += (next & 127) << shift;
            if next < 128 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self) -> Option<String> {
        let huffman = self.bytes.first()? & 0x80 != 0;
        let len = self.integer(7)?;
        let (bytes, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        if bytes.len() > MOST {
            return None;
        }
        let bytes = if huffman { unsqueeze(bytes)? } else { bytes.to_vec() };
        String::from_utf8(bytes).ok()
    }
}

/// Huffman codes back to bytes.
fn unsqueeze(bytes: &[u8]) -> Option<Vec<u8>> {
    // The code is canonical: shorter codes first, and equal lengths in the order of
    // the symbols. So for each length it takes the first code and how many there are.
    let mut out = vec![];
    let (mut code, mut len) = (0u32, 0u8);
    for byte in bytes {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            len += 1;
            if let Some(symbol) = symbol(code, len) {
                // The end of the text is not for sending.
                out.push(u8::try_from(symbol).ok()?);
                if out.len() > MOST {
                    return None;
                }
                (code, len) = (0, 0);
            } else if len >= 30 {
                return None;
            }
        }
    }
    // What is left over is the beginning of a code of ones.
    (len < 8 && code == (1 << len) - 1).then_some(out)
}

fn symbol(code: u32, len: u8) -> Option<usize> {
    let mut first = 0u32;
    for l in 5..=len {
        let count = COUNTS[usize::from(l)];
        if l == len {
            let at = code.checked_sub(first).filter(|at| *at < count)?;
            return LENGTHS
                .iter()
                .enumerate()
                .filter(|(_, n)| **n == l)
                .nth(at as usize)
                .map(|x| x.0);
        }
        first = (first + count) << 1;
    }
    None
}

/// How many codes there are of each length.
const COUNTS: [u32; 31] = {
    let mut counts = [0; 31];
    let mut i = 0;
    while i < LENGTHS.len() {
        counts[LENGTHS[i] as usize] += 1;
        i += 1;
    }
    counts
};

/// Bits of the code of each byte, and of the end.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
            .collect()
    }

    fn pairs(of: &[(&str, &str)]) -> Headers {
        of.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
    }

    #[test]
    fn what_is_written_reads_back() {
        let headers = [(":path", "/tfc.Cluster/Join"), ("tfc-rank", "3"), ("empty", "")];
        let long = "x".repeat(300);
        let block = encode(&[headers[0], headers[1], headers[2], ("long", &long)]);
        let mut want = pairs(&headers);
        want.push(("long".into(), long));
        assert_eq!(Decoder::default().decode(&block).unwrap(), want);
    }

    /// Requests of RFC 7541, C.4: Huffman codes and the dynamic table.
    #[test]
    fn the_examples_of_the_standard() {
        let mut d = Decoder::default();
        let first = d.decode(&hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff")).unwrap();
        let base = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ];
        assert_eq!(first, pairs(&base));
        let second = d.decode(&hex("8286 84be 5886 a8eb 1064 9cbf")).unwrap();
        let mut want = pairs(&base);
        want.push(("cache-control".into(), "no-cache".into()));
        assert_eq!(second, want);
        let third =
            d.decode(&hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf")).unwrap();
        assert_eq!(get(&third, "custom-key"), Some("custom-value"));
        assert_eq!(get(&third, ":path"), Some("/index.html"));
    }

    #[test]
    fn damaged_blocks_are_refused() {
        let good = encode(&[(":path", "/tfc.Cluster/Join"), ("tfc-rank", "3")]);
        for cut in 0..good.len() {
            let _ = Decoder::default().decode(&good[..cut]);
        }
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] ^= 1 << (state >> 20 & 7);
            let _ = Decoder::default().decode(&bytes);
        }
        assert_eq!(Decoder::default().decode(&[0xff, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(Decoder::default().decode(&[0, 0xff]), None);
    }
}
