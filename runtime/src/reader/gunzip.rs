//! Files compressed by gzip, a bit at a time: however much they expand to, little
//! of it is in memory.

use crate::io::crc::Crc32;
use crate::io::inflate::Inflate;
use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};

pub struct Gunzip {
    data: Inflate<BufReader<File>>,
    crc: Crc32,
    /// Bytes so far.
    size: u64,
    over: bool,
}

fn bad(why: &str) -> Error {
    Error::other(why.to_owned())
}

impl Gunzip {
    /// Reads the header.
    pub fn new(mut file: BufReader<File>) -> Result<Gunzip> {
        let mut head = [0; 10];
        exact(&mut file, &mut head)?;
        let [_, _, method, flags, ..] = head;
        if method != 8 {
            return Err(bad("it is compressed in an unknown way"));
        }
        if flags & 4 != 0 {
            let mut len = [0; 2];
            exact(&mut file, &mut len)?;
            let len = u64::from(u16::from_le_bytes(len));
            std::io::copy(&mut Read::by_ref(&mut file).take(len), &mut std::io::sink())?;
        }
        // A name, and a comment.
        for flag in [8, 16] {
            if flags & flag != 0 {
                let mut text = vec![];
                Read::by_ref(&mut file).take(1 << 16).read_until(0, &mut text)?;
                if text.last() != Some(&0) {
                    return Err(bad("the file ends too early"));
                }
            }
        }
        if flags & 2 != 0 {
            exact(&mut file, &mut [0; 2])?;
        }
        Ok(Gunzip { data: Inflate::new(file), crc: Crc32::default(), size: 0, over: false })
    }

    /// Holds what came against the checksum and the length at the end.
    fn end(&mut self) -> Result<()> {
        let mut tail = [[0; 4]; 2];
        for word in &mut tail {
            self.data.behind(word).map_err(in_words)?;
        }
        let [crc, size] = tail.map(u32::from_le_bytes);
        if size != self.size as u32 || crc != self.crc.finish() {
            return Err(bad("its checksum is wrong"));
        }
        self.over = true;
        Ok(())
    }
}

fn exact(file: &mut impl Read, out: &mut [u8]) -> Result<()> {
    file.read_exact(out).map_err(in_words)
}

fn in_words(e: Error) -> Error {
    match e.kind() {
        ErrorKind::UnexpectedEof => bad("the file ends too early"),
        ErrorKind::InvalidData => bad("its data is damaged"),
        _ => e,
    }
}

impl Read for Gunzip {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        if self.over || out.is_empty() {
            return Ok(0);
        }
        let written = self.data.read(out).map_err(in_words)?;
        self.crc.update(&out[..written]);
        self.size += written as u64;
        if written == 0 {
            self.end()?;
        }
        Ok(written)
    }
}
