//! Checksums: CRC-32 (zip, gzip) and CRC-32C (TFRecord).

/// The checksum of zip and gzip.
pub fn crc32(data: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    crc.update(data);
    crc.finish()
}

/// As [`crc32`], of data that comes bit by bit.
pub struct Crc32(u32);

impl Default for Crc32 {
    fn default() -> Crc32 {
        Crc32(!0)
    }
}

impl Crc32 {
    pub fn update(&mut self, data: &[u8]) {
        const TABLES: Tables = tables(0xedb8_8320);
        self.0 = crc(&TABLES, self.0, data);
    }

    pub fn finish(&self) -> u32 {
        !self.0
    }
}

/// The checksum of TFRecord files: CRC-32C, rotated and moved so that the sum of
/// data that holds sums is not special.
pub fn masked_crc32c(data: &[u8]) -> u32 {
    const TABLES: Tables = tables(0x82f6_3b78);
    (!crc(&TABLES, !0, data)).rotate_right(15).wrapping_add(0xa282_ead8)
}

type Tables = [[u32; 256]; 8];

const fn tables(polynomial: u32) -> Tables {
    let mut t = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { c >> 1 ^ polynomial } else { c >> 1 };
            bit += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = t[k - 1][i] >> 8 ^ t[0][(t[k - 1][i] & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// Eight bytes a step.
fn crc(tables: &Tables, mut crc: u32, data: &[u8]) -> u32 {
    let mut chunks = data.chunks_exact(8);
    for c in &mut chunks {
        let lo = crc ^ u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        crc = tables[7][(lo & 0xff) as usize]
            ^ tables[6][(lo >> 8 & 0xff) as usize]
            ^ tables[5][(lo >> 16 & 0xff) as usize]
            ^ tables[4][(lo >> 24) as usize]
            ^ tables[3][c[4] as usize]
            ^ tables[2][c[5] as usize]
            ^ tables[1][c[6] as usize]
            ^ tables[0][c[7] as usize];
    }
    for b in chunks.remainder() {
        crc = crc >> 8 ^ tables[0][((crc ^ u32::from(*b)) & 0xff) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let sum = masked_crc32c(b"123456789");
        assert_eq!(sum.wrapping_sub(0xa282_ead8).rotate_left(15), 0xe306_9283);
    }
}
