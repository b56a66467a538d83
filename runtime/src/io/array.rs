//! An array to be written: in memory, or in a file because it is too large.

use crate::tensor::TensorBuf;
use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use tfc_abi::DType;

pub struct Array<'a> {
    pub name: &'a str,
    pub dtype: DType,
    pub shape: &'a [usize],
    pub data: Contents<'a>,
}

/// The elements, one after the other, as this machine has them.
#[derive(Clone, Copy)]
pub enum Contents<'a> {
    Bytes(&'a [u8]),
    /// All of the file.
    File(&'a File),
    /// So many bytes, which come one after the other when they are asked for by this
    /// number.
    Stream(u64, u32, &'a Stream<'a>),
}

/// Hands on the bytes of number so and so.
pub type Stream<'a> = dyn Fn(u32, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'a;

/// A multiple of every element's size.
const CHUNK: usize = 1 << 18;

impl<'a> Array<'a> {
    pub fn of(name: &'a str, t: &'a TensorBuf) -> Array<'a> {
        Array { name, dtype: t.dtype, shape: &t.shape, data: Contents::Bytes(t.bytes()) }
    }

    /// Bytes.
    pub(super) fn len(&self) -> Result<u64> {
        match self.data {
            Contents::Bytes(bytes) => Ok(bytes.len() as u64),
            Contents::File(file) => Ok(file.metadata()?.len()),
            Contents::Stream(len, ..) => Ok(len),
        }
    }

    /// All bytes, some whole elements at a time.
    pub(super) fn for_each(&self, use_them: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut file = match self.data {
            Contents::Bytes(bytes) => return use_them(bytes),
            Contents::File(file) => file,
            Contents::Stream(_, number, stream) => return stream(number, use_them),
        };
        file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; CHUNK];
        let mut left = self.len()?;
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
            file.read_exact(&mut buffer[..n])?;
            use_them(&buffer[..n])?;
            left -= n as u64;
        }
        Ok(())
    }
}
