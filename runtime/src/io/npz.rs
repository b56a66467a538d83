//! `.npz`: a zip archive of `.npy` files.

use super::crc::{Crc32, crc32};
use super::rows::ArrayRows;
use super::{Array, Fault, Reason, inflate, malformed, npy};
use crate::tensor::TensorBuf;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use tfc_abi::DType;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
/// No deflate stream expands more than this.
const MAX_RATIO: u64 = 1032;

pub struct Archive<F = File> {
    file: std::cell::RefCell<F>,
    members: Vec<Member>,
}

struct Member {
    name: String,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    offset: u64,
}

/// Little-endian fields one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: usize) -> Reason<&'a [u8]> {
        match self.0.split_at_checked(n) {
            Some((head, tail)) => {
                self.0 = tail;
                Ok(head)
            }
            None => malformed("the archive's directory is cut short"),
        }
    }

    fn u16(&mut self) -> Reason<u16> {
        let b = self.bytes(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&mut self) -> Reason<u32> {
        let b = self.bytes(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&mut self) -> Reason<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
}

impl<F: Read + Seek> Archive<F> {
    /// Reads the archive's directory.
    pub fn open(mut file: F) -> Reason<Archive<F>> {
        let len = file.seek(SeekFrom::End(0))?;
        let tail_len = len.min(22 + 0xffff + 20);
        let tail = read_at(&mut file, len, len - tail_len, tail_len)?;
        let at = (0..tail.len().saturating_sub(21))
            .rev()
            .find(|i| tail[*i..*i + 4] == END.to_le_bytes());
        let Some(at) = at else { return malformed("it is not a zip archive, or it is cut short") };
        let mut f = Fields(&tail[at + 10..]);
        let mut count = u64::from(f.u16()?);
        let mut size = u64::from(f.u32()?);
        let mut offset = u64::from(f.u32()?);
        if count == 0xffff || size == 0xffff_ffff || offset == 0xffff_ffff {
            // The zip64 locator is the twenty bytes before the end record.
            let Some(locator) = at.checked_sub(20).and_then(|l| tail.get(l + 8..l + 16)) else {
                return malformed("the archive's directory is cut short");
            };
            let end64 = Fields(locator).u64()?;
            let record = read_at(&mut file, len, end64, 56)?;
            let mut f = Fields(&record);
            if f.u32()? != END64 {
                return malformed("the archive's directory is damaged");
            }
            f.bytes(28)?;
            (count, size, offset) = (f.u64()?, f.u64()?, f.u64()?);
        }
        let directory = read_at(&mut file, len, offset, size)?;
        let mut f = Fields(&directory);
        let mut members = vec![];
        for _ in 0..count {
            members.push(member(&mut f)?);
        }
        Ok(Archive { file: std::cell::RefCell::new(file), members })
    }

    /// Names of the arrays, without `.npy`.
    pub fn names(&self) -> Vec<&str> {
        self.members.iter().map(|m| m.name.strip_suffix(".npy").unwrap_or(&m.name)).collect()
    }

    pub fn read(&self, at: usize, want: Option<DType>) -> Reason<TensorBuf> {
        let (m, start, len) = self.find(at)?;
        let packed = read_at(&mut *self.file.borrow_mut(), len, start, m.packed)?;
        let data = match m.method {
            8 => inflate(&packed, m)?,
            _ => packed,
        };
        if crc32(&data) != m.crc {
            return malformed(format!("the checksum of member `{}` is wrong", m.name));
        }
        npy::read(&mut &data[..], want)
    }

    /// The rows of a member, one after the other.
    pub fn rows(self, at: usize, want: Option<DType>) -> Reason<ArrayRows<F>> {
        let (m, start, len) = self.find(at)?;
        let (size, crc, method) = (m.size, m.crc, m.method);
        if start.checked_add(m.packed).is_none_or(|end| end > len) {
            return malformed("the archive is cut short");
        }
        if method == 8 {
            possible(m)?;
        }
        let mut file = self.file.into_inner();
        file.seek(SeekFrom::Start(start))?;
        match method {
            8 => ArrayRows::packed(file, size, crc, want),
            _ => ArrayRows::stored(file, size, crc, want),
        }
    }

    /// A member whose data can be read, where that begins, and the file's length.
    fn find(&self, at: usize) -> Reason<(&Member, u64, u64)> {
        let Some(m) = self.members.get(at) else { return malformed("it has no such member") };
        let mut file = self.file.borrow_mut();
        let len = file.seek(SeekFrom::End(0))?;
        let local = read_at(&mut *file, len, m.offset, 30)?;
        let mut f = Fields(&local);
        if f.u32()? != LOCAL || m.method == 0 && m.size != m.packed {
            return malformed(format!("member `{}` is damaged", m.name));
        }
        if !matches!(m.method, 0 | 8) {
            return Err(Fault::Unsupported(format!(
                "member `{}` is compressed by method {}; use np.savez or np.savez_compressed",
                m.name, m.method
            )));
        }
        f.bytes(22)?;
        let skip = u64::from(f.u16()?) + u64::from(f.u16()?);
        Ok((m, m.offset.saturating_add(30 + skip), len))
    }
}

fn member(f: &mut Fields<'_>) -> Reason<Member> {
    if f.u32()? != CENTRAL {
        return malformed("the archive's directory is damaged");
    }
    f.bytes(6)?;
    let method = f.u16()?;
    f.bytes(4)?;
    let crc = f.u32()?;
    let mut packed = u64::from(f.u32()?);
    let mut size = u64::from(f.u32()?);
    let (name, extra, comment) = (f.u16()?, f.u16()?, f.u16()?);
    f.bytes(8)?;
    let mut offset = u64::from(f.u32()?);
    let name = String::from_utf8_lossy(f.bytes(name.into())?).into_owned();
    let mut extra = Fields(f.bytes(extra.into())?);
    f.bytes(comment.into())?;
    while extra.0.len() >= 4 {
        let (id, len) = (extra.u16()?, extra.u16()?);
        let mut field = Fields(extra.bytes(len.into())?);
        if id == 1 {
            for value in [&mut size, &mut packed, &mut offset] {
                if *value == 0xffff_ffff {
                    *value = field.u64()?;
                }
            }
        }
    }
    Ok(Member { name, method, crc, packed, size, offset })
}

/// `n` bytes from `start`, after making sure the file has them.
fn read_at<F: Read + Seek>(file: &mut F, len: u64, start: u64, n: u64) -> Reason<Vec<u8>> {
    if start.checked_add(n).is_none_or(|end| end > len) {
        return malformed("the archive is cut short");
    }
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = vec![0; usize::try_from(n).unwrap_or(0)];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Whether a deflated member can come to the size it claims.
fn possible(m: &Member) -> Reason<()> {
    match m.size > MAX_RATIO.saturating_mul(m.packed.saturating_add(1)) {
        true => malformed(format!("member `{}` claims an impossible size", m.name)),
        false => Ok(()),
    }
}

fn inflate(packed: &[u8], m: &Member) -> Reason<Vec<u8>> {
    possible(m)?;
    let limit = usize::try_from(m.size).unwrap_or(usize::MAX);
    match inflate::inflate(packed, limit) {
        Some(data) if data.len() as u64 == m.size => Ok(data),
        _ => malformed(format!("member `{}` does not decompress", m.name)),
    }
}

/// Writes an archive whose members are stored, not compressed.
pub fn write(out: &mut dyn Write, tensors: &[Array<'_>]) -> std::io::Result<()> {
    let mut directory = vec![];
    let mut offset = 0u64;
    for t in tensors {
        let name = format!("{}.npy", t.name);
        let header = npy::header_bytes(t.dtype, t.shape);
        let mut crc = Crc32::default();
        crc.update(&header);
        let mut size = header.len() as u64;
        t.for_each(&mut |bytes| {
            crc.update(bytes);
            size += bytes.len() as u64;
            Ok(())
        })?;
        let crc = crc.finish();
        let mut sizes64 = vec![];
        sizes64.extend(1u16.to_le_bytes());
        sizes64.extend(16u16.to_le_bytes());
        sizes64.extend(size.to_le_bytes());
        sizes64.extend(size.to_le_bytes());
        // Sizes and offsets are always in the zip64 fields: one way for all.
        let mut common = vec![];
        common.extend(45u16.to_le_bytes());
        common.extend([0; 2]); // flags
        common.extend([0; 2]); // stored
        common.extend([0, 0, 0x21, 0]); // 1980-01-01: the same bytes every day
        common.extend(crc.to_le_bytes());
        common.extend([0xff; 8]);
        common.extend((name.len() as u16).to_le_bytes());
        let mut local = LOCAL.to_le_bytes().to_vec();
        local.extend(&common);
        local.extend((sizes64.len() as u16).to_le_bytes());
        local.extend(name.as_bytes());
        local.extend(&sizes64);
        out.write_all(&local)?;
        out.write_all(&header)?;
        t.for_each(&mut |bytes| out.write_all(bytes))?;
        directory.extend(CENTRAL.to_le_bytes());
        directory.extend(45u16.to_le_bytes());
        directory.extend(&common);
        directory.extend((28u16).to_le_bytes());
        directory.extend([0; 10]); // comment, disk, attributes
        directory.extend([0xff; 4]); // offset: in the zip64 field
        directory.extend(name.as_bytes());
        directory.extend(1u16.to_le_bytes());
        directory.extend(24u16.to_le_bytes());
        directory.extend(size.to_le_bytes());
        directory.extend(size.to_le_bytes());
        directory.extend(offset.to_le_bytes());
        offset += local.len() as u64 + size;
    }
    out.write_all(&directory)?;
    let count = tensors.len() as u64;
    let size = directory.len() as u64;
    let mut end = END64.to_le_bytes().to_vec();
    end.extend(44u64.to_le_bytes());
    end.extend([45, 0, 45, 0]);
    end.extend([0; 8]);
    end.extend(count.to_le_bytes());
    end.extend(count.to_le_bytes());
    end.extend(size.to_le_bytes());
    end.extend(offset.to_le_bytes());
    end.extend(0x0706_4b50u32.to_le_bytes());
    end.extend([0; 4]);
    end.extend((offset + size).to_le_bytes());
    end.extend(1u32.to_le_bytes());
    end.extend(END.to_le_bytes());
    end.extend([0; 4]);
    end.extend([0xff; 12]);
    end.extend([0; 2]);
    out.write_all(&end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::byte_len;
    use std::io::Cursor;

    fn sample() -> Vec<u8> {
        let a = TensorBuf::from_slice(&[3], &[1f32, 2., 3.]).unwrap();
        let b = TensorBuf::from_slice(&[2, 1], &[7i64, -8]).unwrap();
        let mut bytes = vec![];
        write(&mut bytes, &[Array::of("a", &a), Array::of("b", &b)]).unwrap();
        bytes
    }

    #[test]
    fn stored_members_survive() {
        let archive = Archive::open(Cursor::new(sample())).unwrap();
        assert_eq!(archive.names(), ["a", "b"]);
        let b = archive.read(1, None).unwrap();
        assert_eq!(b.as_slice::<i64>().unwrap(), [7, -8]);
        assert!(archive.read(2, None).is_err());
    }

    #[test]
    fn deflated_members_are_read() {
        // Written field by field, as a plain (not zip64) archive.
        let t = TensorBuf::from_slice(&[100], &[1f32; 100]).unwrap();
        let mut npy = vec![];
        npy::write(&mut npy, &t).unwrap();
        let packed = miniz_oxide::deflate::compress_to_vec(&npy, 6);
        let mut common = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        common.extend(crc32(&npy).to_le_bytes());
        common.extend((packed.len() as u32).to_le_bytes());
        common.extend((npy.len() as u32).to_le_bytes());
        common.extend([5, 0, 0, 0]);
        let mut zip = LOCAL.to_le_bytes().to_vec();
        zip.extend(&common);
        zip.extend(b"x.npy");
        zip.extend(&packed);
        let offset = zip.len() as u32;
        zip.extend(CENTRAL.to_le_bytes());
        zip.extend([20, 0]);
        zip.extend(&common);
        zip.extend([0; 14]);
        zip.extend(b"x.npy");
        let size = zip.len() as u32 - offset;
        zip.extend(END.to_le_bytes());
        zip.extend([0, 0, 0, 0, 1, 0, 1, 0]);
        zip.extend(size.to_le_bytes());
        zip.extend(offset.to_le_bytes());
        zip.extend([0, 0]);
        let archive = Archive::open(Cursor::new(zip.clone())).unwrap();
        assert_eq!(archive.read(0, None).unwrap(), t);
        let mut rows = archive.rows(0, None).unwrap();
        let mut row = [0; 4];
        rows.skip(98).unwrap();
        for left in [1, 0] {
            rows.next(&mut row).unwrap();
            assert_eq!((f32::from_ne_bytes(row), rows.left()), (1.0, left));
        }
        poke_all(&zip);
    }

    /// No single damaged byte, and no prefix, makes reading panic.
    fn poke_all(good: &[u8]) {
        let read_all = |bytes: Vec<u8>| -> bool {
            let opened = Archive::open(Cursor::new(bytes.clone())).ok();
            if let Some(Ok(mut rows)) = opened.map(|a| a.rows(0, None))
                && let Some(row) = byte_len(rows.dtype, rows.shape.get(1..).unwrap_or(&[]))
            {
                let mut row = vec![0; row.min(1 << 20)];
                while rows.left() > 0 && rows.next(&mut row).is_ok() {}
            }
            match Archive::open(Cursor::new(bytes)) {
                Ok(a) => (0..a.members.len()).all(|i| a.read(i, None).is_ok()),
                Err(_) => false,
            }
        };
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut b = good.to_vec();
                b[at] = value;
                read_all(b);
            }
            assert!(!read_all(good[..at].to_vec()), "{at}");
        }
    }

    #[test]
    fn mutations_never_panic() {
        poke_all(&sample());
    }

    #[test]
    fn checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
