//! Files compressed by gzip, a bit at a time: however much they expand to, little
//! of it is in memory.

use crate::io::crc::Crc32;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};
use std::fs::File;
use std::io::{BufRead, BufReader, Error, Read, Result};

pub struct Gunzip {
    file: BufReader<File>,
    state: Box<InflateState>,
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
        let state = InflateState::new_boxed(DataFormat::Raw);
        Ok(Gunzip { file, state, crc: Crc32::default(), size: 0, over: false })
    }

    /// Holds what came against the checksum and the length at the end.
    fn end(&mut self) -> Result<()> {
        let mut tail = [[0; 4]; 2];
        for word in &mut tail {
            exact(&mut self.file, word)?;
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
    file.read_exact(out).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => bad("the file ends too early"),
        _ => e,
    })
}

impl Read for Gunzip {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        while !self.over && !out.is_empty() {
            let input = self.file.fill_buf()?;
            let at_end = input.is_empty();
            let step = inflate(&mut self.state, input, out, MZFlush::None);
            self.file.consume(step.bytes_consumed);
            let written = step.bytes_written;
            self.crc.update(&out[..written]);
            self.size += written as u64;
            match step.status {
                Ok(MZStatus::StreamEnd) => self.end()?,
                Ok(_) => {}
                Err(MZError::Buf) if !at_end => {}
                Err(MZError::Buf) => return Err(bad("the file ends too early")),
                Err(_) => return Err(bad("its data is damaged")),
            }
            if written > 0 {
                return Ok(written);
            }
            if at_end && !self.over {
                return Err(bad("the file ends too early"));
            }
        }
        Ok(0)
    }
}
