//! Rows of an array in a file, read as they are asked for.
//!
//! | file | a row is read | left out |
//! |---|---|---|
//! | `.npy`, `.safetensors`, bytes | from its place | by seeking |
//! | `.npz`, stored | from its place | by seeking |
//! | `.npz`, deflated | in order | by decompressing |
//! | any of them in column-major order | from memory | |
//!
//! Invariants
//! - Whatever the size of a file, one row and some kilobytes of it are in memory,
//!   unless it is in column-major order, where a row lies all over the file.
//! - That the data is there is checked when a file is opened. The checksum of an
//!   archive's member is held against what was read once its last byte was; after a
//!   seek there is nothing to hold it against.

use super::crc::Crc32;
use super::inflate::Inflate;
use super::{Fault, Reason, fix_order, malformed, normalise_bools, npy};
use crate::tensor::{TensorBuf, byte_len};
use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read, Result, Seek, SeekFrom};
use tfc_abi::DType;

/// Bytes read at a time.
const BUFFER: usize = 1 << 16;

/// An array and the row that comes next.
pub struct ArrayRows<F = File> {
    pub dtype: DType,
    /// Sizes; the first is the number of rows.
    pub shape: Vec<usize>,
    little: bool,
    row_bytes: usize,
    next: usize,
    input: Input<F>,
}

enum Input<F> {
    Plain(BufReader<F>),
    Stored(Member<BufReader<F>>),
    Packed(Box<Member<Inflate<BufReader<F>>>>),
    Whole(TensorBuf),
}

impl<F: Read + Seek> Read for Input<F> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        match self {
            Input::Plain(file) => file.read(out),
            Input::Stored(member) => member.read(out),
            Input::Packed(member) => member.read(out),
            Input::Whole(_) => Ok(0),
        }
    }
}

/// The bytes of an archive's member, held against their checksum at the end.
struct Member<R> {
    data: R,
    left: u64,
    crc: u32,
    /// Of all that was read; none once something was left out.
    sum: Option<Crc32>,
}

impl<R: Read> Read for Member<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        if most == 0 {
            return Ok(0);
        }
        let some = self.data.read(&mut out[..most])?;
        self.left -= some as u64;
        if let Some(sum) = &mut self.sum {
            sum.update(&out[..some]);
            if self.left == 0 && sum.finish() != self.crc {
                return Err(Error::new(ErrorKind::InvalidData, "its checksum is wrong"));
            }
        }
        Ok(some)
    }
}

impl<F: Read + Seek> ArrayRows<F> {
    /// Of a `.npy` file. `want` tells raw 16-bit data to be bf16.
    pub fn npy(mut file: F, want: Option<DType>) -> Reason<ArrayRows<F>> {
        let len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut input = BufReader::with_capacity(BUFFER, file);
        let header = npy::header(&mut input, want)?;
        let left = len.saturating_sub(input.stream_position()?);
        ArrayRows::new(header, Input::Plain(input), left)
    }

    /// Of a stored member of an archive, which begins here and has `size` bytes.
    pub(super) fn stored(
        file: F,
        size: u64,
        crc: u32,
        want: Option<DType>,
    ) -> Reason<ArrayRows<F>> {
        let data = BufReader::with_capacity(BUFFER, file);
        let mut member = Member { data, left: size, crc, sum: Some(Crc32::default()) };
        let header = npy::header(&mut member, want)?;
        let left = member.left;
        ArrayRows::new(header, Input::Stored(member), left)
    }

    /// Of a deflated member of an archive, which begins here and comes to `size`
    /// bytes.
    pub(super) fn packed(
        file: F,
        size: u64,
        crc: u32,
        want: Option<DType>,
    ) -> Reason<ArrayRows<F>> {
        let data = Inflate::new(BufReader::with_capacity(BUFFER, file));
        let mut member = Member { data, left: size, crc, sum: Some(Crc32::default()) };
        let header = npy::header(&mut member, want).map_err(damaged)?;
        let left = member.left;
        ArrayRows::new(header, Input::Packed(Box::new(member)), left)
    }

    /// Of elements in row-major order, of which the first is at `start`.
    pub(super) fn plain(
        mut file: F,
        start: u64,
        dtype: DType,
        shape: Vec<usize>,
    ) -> Reason<ArrayRows<F>> {
        let len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(start))?;
        let header = npy::Header { dtype, little: true, fortran: false, shape };
        let input = Input::Plain(BufReader::with_capacity(BUFFER, file));
        ArrayRows::new(header, input, len.saturating_sub(start))
    }

    fn new(h: npy::Header, mut input: Input<F>, left: u64) -> Reason<ArrayRows<F>> {
        match byte_len(h.dtype, &h.shape) {
            Some(len) if len as u64 <= left => {}
            Some(len) => {
                let why = format!("the header promises {len} bytes of data, the file has fewer");
                return malformed(why);
            }
            None => {
                return malformed(format!("the shape {:?} is too large for any memory", h.shape));
            }
        }
        // Where rows do not lie one after the other.
        if h.fortran && h.shape.len() > 1 {
            let whole = npy::read_data(&mut input, &h).map_err(damaged)?;
            input = Input::Whole(whole);
        }
        let inner = h.shape.get(1..).unwrap_or_default();
        let row_bytes = byte_len(h.dtype, inner).unwrap_or(0);
        let npy::Header { dtype, shape, little, .. } = h;
        Ok(ArrayRows { dtype, shape, little, row_bytes, next: 0, input })
    }

    /// Rows that are left.
    pub fn left(&self) -> usize {
        self.shape.first().map_or(0, |n| n - self.next)
    }

    /// The next row, which must be there.
    pub fn next(&mut self, out: &mut [u8]) -> Reason<()> {
        if out.len() != self.row_bytes || self.left() == 0 {
            return malformed("it has no such row");
        }
        match &mut self.input {
            Input::Whole(all) => {
                let at = self.next * self.row_bytes;
                out.copy_from_slice(&all.bytes()[at..at + self.row_bytes]);
            }
            input => {
                input.read_exact(out).map_err(Fault::from).map_err(damaged)?;
                fix_order(out, self.dtype.size(), self.little);
                normalise_bools(self.dtype, out);
            }
        }
        self.next += 1;
        Ok(())
    }

    /// Leaves out rows, of those that are left.
    pub fn skip(&mut self, rows: usize) -> Reason<()> {
        let rows = rows.min(self.left());
        let bytes = rows as u64 * self.row_bytes as u64;
        match &mut self.input {
            Input::Plain(file) => file.seek_relative(bytes as i64)?,
            Input::Stored(member) => {
                member.data.seek_relative(bytes as i64)?;
                member.left = member.left.saturating_sub(bytes);
                member.sum = None;
            }
            Input::Packed(member) => {
                let rest = std::io::copy(&mut member.take(bytes), &mut std::io::sink());
                let some = rest.map_err(Fault::from).map_err(damaged)?;
                if some < bytes {
                    return malformed("the file ends too early");
                }
            }
            Input::Whole(_) => {}
        }
        self.next += rows;
        Ok(())
    }
}

impl ArrayRows {
    /// The file, and where the first row begins in it; none if it does not hold the
    /// rows as memory does. A checksum is seen to.
    pub(super) fn into_file(self) -> Option<(File, u64)> {
        let native = self.little == cfg!(target_endian = "little") || self.dtype.size() == 1;
        if !native || self.dtype == DType::Bool || self.next > 0 {
            return None;
        }
        match self.input {
            Input::Plain(mut file) => {
                let start = file.stream_position().ok()?;
                Some((file.into_inner(), start))
            }
            Input::Stored(mut member) => {
                let start = member.data.stream_position().ok()?;
                std::io::copy(&mut member, &mut std::io::sink()).ok()?;
                Some((member.data.into_inner(), start))
            }
            Input::Packed(_) | Input::Whole(_) => None,
        }
    }
}

/// Data that does not decompress, or has another checksum, is no fault of the disk.
fn damaged(fault: Fault) -> Fault {
    match fault {
        Fault::Io(e) if e.kind() == ErrorKind::InvalidData => Fault::Malformed(e.to_string()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::npz::{self, Archive};
    use super::super::{Array, Contents};
    use super::*;
    use std::cell::Cell;
    use std::io::Cursor;
    use std::rc::Rc;

    /// Counts what is read.
    struct Counted(Cursor<Vec<u8>>, Rc<Cell<usize>>);

    impl Read for Counted {
        fn read(&mut self, out: &mut [u8]) -> Result<usize> {
            let some = self.0.read(out)?;
            self.1.set(self.1.get() + some);
            Ok(some)
        }
    }

    impl Seek for Counted {
        fn seek(&mut self, to: SeekFrom) -> Result<u64> {
            self.0.seek(to)
        }
    }

    const ROWS: usize = 4096;
    const WIDTH: usize = 1024;

    /// Four megabytes: every byte of a row is its number.
    fn pixels() -> Vec<u8> {
        (0..ROWS).flat_map(|r| vec![r as u8; WIDTH]).collect()
    }

    fn npy_bytes() -> Vec<u8> {
        let mut bytes = npy::header_bytes(DType::U8, &[ROWS, WIDTH]);
        bytes.extend(pixels());
        bytes
    }

    fn counted(bytes: Vec<u8>) -> (Counted, Rc<Cell<usize>>) {
        let count = Rc::new(Cell::new(0));
        (Counted(Cursor::new(bytes), count.clone()), count)
    }

    /// Reads three rows here and there; gives how many bytes that took.
    fn sample(mut rows: ArrayRows<Counted>, count: &Cell<usize>) -> usize {
        let mut row = vec![0; WIDTH];
        assert_eq!((rows.shape.clone(), rows.left()), (vec![ROWS, WIDTH], ROWS));
        for (skip, number) in [(0, 0), (1000, 1001), (3000, 4002)] {
            rows.skip(skip).unwrap();
            rows.next(&mut row).unwrap();
            assert_eq!(row, vec![number as u8; WIDTH]);
        }
        assert_eq!(rows.left(), ROWS - 4003);
        count.get()
    }

    fn stored(bytes: &[u8]) -> Vec<u8> {
        let shape = [ROWS, WIDTH];
        let data = Contents::Bytes(bytes);
        let mut out = vec![];
        npz::write(&mut out, &[Array { name: "x", dtype: DType::U8, shape: &shape, data }])
            .unwrap();
        out
    }

    #[test]
    fn a_few_rows_cost_a_few_bytes() {
        let (file, count) = counted(npy_bytes());
        let read = sample(ArrayRows::npy(file, None).unwrap(), &count);
        assert!(read <= 4 * BUFFER, "{read} bytes of a .npy file");

        let (file, count) = counted(stored(&pixels()));
        let rows = Archive::open(file).unwrap().rows(0, None).unwrap();
        let read = sample(rows, &count);
        // The directory is at most 64 KiB from the end.
        assert!(read <= 6 * BUFFER, "{read} bytes of a .npz file");
    }

    #[test]
    fn checksums_are_held_against_what_was_read() {
        let mut bytes = stored(&pixels());
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let rows = || Archive::open(counted(bytes.clone()).0).unwrap().rows(0, None).unwrap();
        let mut all = rows();
        let mut row = vec![0; WIDTH];
        for _ in 1..ROWS {
            all.next(&mut row).unwrap();
        }
        let fault = all.next(&mut row).unwrap_err();
        assert!(matches!(fault, Fault::Malformed(why) if why.contains("checksum")));
        // Nothing can be said about what was left out.
        let mut some = rows();
        some.skip(ROWS - 1).unwrap();
        some.next(&mut row).unwrap();
    }

    #[test]
    fn short_and_absurd_files_are_refused_when_opened() {
        let mut bytes = npy_bytes();
        bytes.truncate(bytes.len() - 1);
        assert!(matches!(ArrayRows::npy(counted(bytes).0, None), Err(Fault::Malformed(_))));
        let absurd = npy::header_bytes(DType::F64, &[1 << 40, 1 << 40]);
        assert!(matches!(ArrayRows::npy(counted(absurd).0, None), Err(Fault::Malformed(_))));
    }

    #[test]
    fn other_orders_come_out_the_same() {
        // [[1, 2, 3], [4, 5, 6]] in columns, big-endian.
        let text = "{'descr': '>i4', 'fortran_order': True, 'shape': (2, 3), }\n";
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend([1, 4, 2, 5, 3, 6i32].iter().flat_map(|v| v.to_be_bytes()));
        let mut rows = ArrayRows::npy(counted(bytes).0, None).unwrap();
        let mut row = vec![0; 12];
        for want in [[1, 2, 3i32], [4, 5, 6]] {
            rows.next(&mut row).unwrap();
            assert_eq!(row, want.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>());
        }
        assert_eq!(rows.left(), 0);
        assert!(rows.next(&mut row).is_err());
    }
}
