//! BLAKE2b with digests of 256 bits (RFC 7693): what `b2sum -l 256` and Python's
//! `hashlib.blake2b(data, digest_size=32)` compute.

const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// The order of message words in each round; rounds 10 and 11 repeat the first
/// two.
const SIGMA: [[u8; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

const BLOCK: usize = 128;
const DIGEST: usize = 32;

/// A hash in the making.
pub struct Hasher {
    state: [u64; 8],
    block: [u8; BLOCK],
    /// Bytes waiting in `block`; a full block waits too, since the last one is
    /// treated differently.
    filled: usize,
    done: u128,
}

impl Default for Hasher {
    fn default() -> Hasher {
        let mut state = IV;
        // The parameter block: digest length, no key, one leaf, depth one.
        state[0] ^= 0x0101_0000 | DIGEST as u64;
        Hasher { state, block: [0; BLOCK], filled: 0, done: 0 }
    }
}

impl Hasher {
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == BLOCK {
                self.done += BLOCK as u128;
                let block = self.block;
                self.compress(&block, false);
                self.filled = 0;
            }
            let n = bytes.len().min(BLOCK - self.filled);
            self.block[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
        }
    }

    pub fn finish(mut self) -> [u8; DIGEST] {
        self.done += self.filled as u128;
        self.block[self.filled..].fill(0);
        let block = self.block;
        self.compress(&block, true);
        let mut out = [0; DIGEST];
        for (bytes, word) in out.chunks_exact_mut(8).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    fn compress(&mut self, block: &[u8; BLOCK], last: bool) {
        let mut m = [0u64; 16];
        for (word, bytes) in m.iter_mut().zip(block.chunks_exact(8)) {
            let mut b = [0; 8];
            b.copy_from_slice(bytes);
            *word = u64::from_le_bytes(b);
        }
        let mut v = [0u64; 16];
        v[..8].copy_from_slice(&self.state);
        v[8..].copy_from_slice(&IV);
        v[12] ^= self.done as u64;
        v[13] ^= (self.done >> 64) as u64;
        if last {
            v[14] = !v[14];
        }
        for round in 0..12 {
            let s = SIGMA[round % 10].map(|i| m[i as usize]);
            mix(&mut v, [0, 4, 8, 12], s[0], s[1]);
            mix(&mut v, [1, 5, 9, 13], s[2], s[3]);
            mix(&mut v, [2, 6, 10, 14], s[4], s[5]);
            mix(&mut v, [3, 7, 11, 15], s[6], s[7]);
            mix(&mut v, [0, 5, 10, 15], s[8], s[9]);
            mix(&mut v, [1, 6, 11, 12], s[10], s[11]);
            mix(&mut v, [2, 7, 8, 13], s[12], s[13]);
            mix(&mut v, [3, 4, 9, 14], s[14], s[15]);
        }
        for i in 0..8 {
            self.state[i] ^= v[i] ^ v[i + 8];
        }
    }
}

#[inline(always)]
fn mix(v: &mut [u64; 16], [a, b, c, d]: [usize; 4], x: u64, y: u64) {
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
    v[d] = (v[d] ^ v[a]).rotate_right(32);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(24);
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
    v[d] = (v[d] ^ v[a]).rotate_right(16);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(63);
}

pub fn hash(bytes: &[u8]) -> [u8; DIGEST] {
    let mut h = Hasher::default();
    h.update(bytes);
    h.finish()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // From Python: hashlib.blake2b(data, digest_size=32).hexdigest()
    #[test]
    fn known_answers() {
        assert_eq!(
            hex(&hash(b"")),
            "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
        );
        assert_eq!(
            hex(&hash(b"abc")),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"
        );
        assert_eq!(
            hex(&hash(&[7; 128])),
            "332f1f712b03a6a6f6c28db7d96c62f170744119ab0f831b9e0d80f800e3aad7"
        );
        assert_eq!(
            hex(&hash(&[9; 1001])),
            "9a1ba7f73b68e88019d42f3cfcfcf20b04f21a5934edfb8c30b0f2457f7b25b8"
        );
    }

    #[test]
    fn pieces_do_not_matter() {
        let data: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
        let whole = hash(&data);
        for size in [1, 7, 127, 128, 129, 256] {
            let mut h = Hasher::default();
            data.chunks(size).for_each(|c| h.update(c));
            assert_eq!(h.finish(), whole, "{size}");
        }
    }
}
