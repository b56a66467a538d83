//! IDX files, the format of the MNIST data: a type, the sizes, big-endian
//! elements. Files compressed by gzip are read as they are.

use crate::error::{Error, Result};
use crate::io::{cannot_read, crc};
use crate::tensor::TensorBuf;
use std::path::Path;
use tfc_abi::DType;

/// Reads an array. Integers are widened to `want` where that loses nothing.
pub fn read(path: &Path, want: DType) -> Result<TensorBuf> {
    let bytes = std::fs::read(path).map_err(|e| cannot_read(path, &e))?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) { gunzip(path, &bytes)? } else { bytes };
    parse(&bytes, want).map_err(|(at, why)| wrong(path, at, why))
}

fn wrong(path: &Path, at: usize, why: String) -> Error {
    Error::data("E0565", format!("`{}` is not a valid IDX file", path.display()))
        .note(format!("at byte {at}: {why}"))
}

fn parse(bytes: &[u8], want: DType) -> std::result::Result<TensorBuf, (usize, String)> {
    let word = |at: usize| -> std::result::Result<[u8; 4], (usize, String)> {
        let b = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
        b.ok_or((bytes.len(), "the file ends in its header".to_string()))
    };
    let [z0, z1, code, rank] = word(0)?;
    if [z0, z1] != [0, 0] {
        return Err((0, format!("it starts with {z0:02x} {z1:02x}, not with two zeros")));
    }
    let (file_type, size) = match code {
        0x08 => ("u8", 1),
        0x09 => ("i8", 1),
        0x0b => ("i16", 2),
        0x0c => ("i32", 4),
        0x0d => ("f32", 4),
        0x0e => ("f64", 8),
        other => return Err((2, format!("{other:#04x} is no element type of the format"))),
    };
    let mut shape = vec![];
    for i in 0..usize::from(rank) {
        shape.push(u32::from_be_bytes(word(4 + 4 * i)?) as usize);
    }
    let start = 4 + 4 * usize::from(rank);
    let data = &bytes[start..];
    let len = shape.iter().try_fold(size, |n: usize, d| n.checked_mul(*d));
    if len != Some(data.len()) {
        return Err((
            start,
            format!("{} bytes follow, but the sizes {shape:?} say otherwise", data.len()),
        ));
    }
    let mut out = Vec::with_capacity(data.len() / size * want.size());
    let float = matches!(file_type, "f32" | "f64");
    let same = want.name() == file_type;
    let holds = match (file_type, want) {
        _ if same => true,
        ("f32", DType::F64) => true,
        ("u8", d) => !matches!(d, DType::I8 | DType::Bool | DType::F16 | DType::BF16),
        ("i8", d) => matches!(d, DType::I32 | DType::I64 | DType::F32 | DType::F64),
        ("i16", d) => matches!(d, DType::I32 | DType::I64 | DType::F32 | DType::F64),
        ("i32", d) => matches!(d, DType::I64 | DType::F64),
        _ => false,
    };
    if !holds {
        return Err((2, format!("it holds {file_type}, which is not read as {want}")));
    }
    for e in data.chunks_exact(size) {
        if float {
            let v = match <[u8; 4]>::try_from(e) {
                Ok(b) => f64::from(f32::from_be_bytes(b)),
                Err(_) => f64::from_be_bytes(e.try_into().unwrap_or_default()),
            };
            match want {
                DType::F32 => out.extend((v as f32).to_ne_bytes()),
                _ => out.extend(v.to_ne_bytes()),
            }
            continue;
        }
        let v = match *e {
            [b] if code == 0x09 => i64::from(b as i8),
            [b] => i64::from(b),
            [a, b] => i64::from(i16::from_be_bytes([a, b])),
            _ => i64::from(i32::from_be_bytes(e.try_into().unwrap_or_default())),
        };
        super::csv::push_int(&mut out, want, v);
    }
    TensorBuf::from_bytes(want, &shape, &out).ok_or((4, "it is too large".to_string()))
}

/// The one member of a gzip file.
fn gunzip(path: &Path, bytes: &[u8]) -> Result<Vec<u8>> {
    let bad = |why: &str| {
        Error::data("E0565", format!("`{}` does not decompress", path.display())).note(why)
    };
    let cut = || bad("the file ends too early");
    let (&method, &flags) = (bytes.get(2).ok_or_else(cut)?, bytes.get(3).ok_or_else(cut)?);
    if method != 8 {
        return Err(bad("it is compressed in an unknown way"));
    }
    let mut at = 10;
    if flags & 4 != 0 {
        let len = bytes.get(at..at + 2).ok_or_else(cut)?;
        at += 2 + usize::from(u16::from_le_bytes([len[0], len[1]]));
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            let end = bytes.get(at..).and_then(|b| b.iter().position(|b| *b == 0));
            at += end.ok_or_else(cut)? + 1;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    let end = bytes.len().checked_sub(8).filter(|end| at <= *end).ok_or_else(cut)?;
    let tail: Vec<u32> = bytes[end..]
        .chunks_exact(4)
        .map(|w| u32::from_le_bytes(w.try_into().unwrap_or_default()))
        .collect();
    // At most what deflate can make of these bytes.
    let limit = (tail[1] as usize).min((end - at).saturating_mul(1032) + 64);
    let data = miniz_oxide::inflate::decompress_to_vec_with_limit(&bytes[at..end], limit)
        .map_err(|_| bad("its data is damaged"))?;
    if data.len() as u32 != tail[1] || crc::crc32(&data) != tail[0] {
        return Err(bad("its checksum is wrong"));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_widens_and_refuses() {
        let labels = [0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 255];
        let t = parse(&labels, DType::I32).unwrap();
        assert_eq!(t.shape, [3]);
        assert_eq!(t.as_slice::<i32>().unwrap(), [7, 0, 255]);
        let short = [0, 0, 0x0b, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xfe, 0, 5];
        assert_eq!(parse(&short, DType::F32).unwrap().as_slice::<f32>().unwrap(), [-2.0, 5.0]);
        assert!(parse(&labels, DType::I8).is_err());
        for cut in 0..labels.len() {
            assert!(parse(&labels[..cut], DType::U8).is_err(), "{cut}");
        }
        assert!(
            parse(
                &[0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255],
                DType::U8
            )
            .is_err()
        );
    }
}
