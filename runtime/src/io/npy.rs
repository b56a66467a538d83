//! The `.npy` format: a Python dictionary in text, then the elements.

use super::{Fault, Reason, fix_order, malformed, normalise_bools};
use crate::tensor::{TensorBuf, byte_len};
use std::io::{Read, Write};
use tfc_abi::DType;

pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Headers beyond this are not arrays anybody made.
const MAX_HEADER: usize = 1 << 20;
/// Most axes NumPy allows.
const MAX_RANK: usize = 64;
/// Read this much before believing a header that asks for more.
const CHUNK: usize = 1 << 24;

pub(super) struct Header {
    pub dtype: DType,
    pub little: bool,
    pub fortran: bool,
    pub shape: Vec<usize>,
}

/// Reads an array. `want` tells raw 16-bit data to be bf16.
pub fn read(file: &mut dyn Read, want: Option<DType>) -> Reason<TensorBuf> {
    let h = header(file, want)?;
    read_data(file, &h)
}

/// Reads what follows a header.
pub(super) fn read_data(file: &mut dyn Read, h: &Header) -> Reason<TensorBuf> {
    let Some(len) = byte_len(h.dtype, &h.shape) else {
        return malformed(format!("the shape {:?} is too large for any memory", h.shape));
    };
    let mut tensor = if len <= CHUNK {
        let mut t = TensorBuf::zeros(h.dtype, &h.shape)?;
        file.read_exact(t.bytes_mut()).map_err(|e| short(e, len))?;
        t
    } else {
        large(file, h, len)?
    };
    let size = h.dtype.size();
    fix_order(tensor.bytes_mut(), size, h.little);
    normalise_bools(h.dtype, tensor.bytes_mut());
    if h.fortran && h.shape.len() > 1 {
        tensor = to_row_major(&tensor)?;
    }
    Ok(tensor)
}

/// A large array: proves that a first part is there before the whole is
/// allocated.
fn large(file: &mut dyn Read, h: &Header, len: usize) -> Reason<TensorBuf> {
    let mut first = vec![0; CHUNK];
    file.read_exact(&mut first).map_err(|e| short(e, len))?;
    let mut t = TensorBuf::zeros(h.dtype, &h.shape)?;
    let (head, tail) = t.bytes_mut().split_at_mut(CHUNK);
    head.copy_from_slice(&first);
    drop(first);
    file.read_exact(tail).map_err(|e| short(e, len))?;
    Ok(t)
}

fn short(e: std::io::Error, len: usize) -> Fault {
    if e.kind() == std::io::ErrorKind::UnexpectedEof {
        Fault::Malformed(format!("the header promises {len} bytes of data, the file has fewer"))
    } else {
        Fault::Io(e)
    }
}

pub(super) fn header(file: &mut dyn Read, want: Option<DType>) -> Reason<Header> {
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    if !start.starts_with(MAGIC) {
        return malformed("it does not start with \\x93NUMPY");
    }
    let len = match start[6] {
        1 => {
            let mut b = [0; 2];
            file.read_exact(&mut b)?;
            u16::from_le_bytes(b) as usize
        }
        2 | 3 => {
            let mut b = [0; 4];
            file.read_exact(&mut b)?;
            u32::from_le_bytes(b) as usize
        }
        v => return malformed(format!("version {v} of the format does not exist")),
    };
    if len > MAX_HEADER {
        return malformed("its header is absurdly long");
    }
    let mut text = vec![0; len];
    file.read_exact(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    parse_header(&text, want)
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
fn parse_header(text: &str, want: Option<DType>) -> Reason<Header> {
    let mut p = Dict { rest: text };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    p.expect("{")?;
    while !p.eat("}") {
        let key = p.string()?;
        p.expect(":")?;
        match key.as_str() {
            "descr" if p.rest.trim_start().starts_with('[') => {
                return Err(Fault::Unsupported(
                    "it holds records with several fields; save one field at a time".into(),
                ));
            }
            "descr" => descr = Some(p.string()?),
            "fortran_order" => fortran = Some(p.truth()?),
            "shape" => shape = Some(p.tuple()?),
            other => return malformed(format!("its header has an unknown key `{other}`")),
        }
        if !p.eat(",") {
            p.expect("}")?;
            break;
        }
    }
    let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
        return malformed("its header lacks descr, fortran_order or shape");
    };
    if !p.rest.trim().is_empty() {
        return malformed("text follows the dictionary in its header");
    }
    let (dtype, little) = parse_descr(&descr, want)?;
    Ok(Header { dtype, little, fortran, shape })
}

fn parse_descr(descr: &str, want: Option<DType>) -> Reason<(DType, bool)> {
    let native = cfg!(target_endian = "little");
    let (little, kind) = match descr.split_at_checked(1) {
        Some(("<", k)) => (true, k),
        Some((">", k)) => (false, k),
        Some(("=" | "|", k)) => (native, k),
        _ => (native, descr),
    };
    let dtype = match kind {
        "f4" => DType::F32,
        "f8" => DType::F64,
        "f2" => DType::F16,
        "V2" => DType::BF16,
        "u2" if want == Some(DType::BF16) => DType::BF16,
        "i1" => DType::I8,
        "u1" => DType::U8,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "b1" => DType::Bool,
        _ => {
            return Err(Fault::Unsupported(format!(
                "its elements are `{descr}`; use float32/64/16, int8/32/64, uint8 or bool"
            )));
        }
    };
    Ok((dtype, little))
}

/// A reader of the few Python literals a header has.
struct Dict<'a> {
    rest: &'a str,
}

impl Dict<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let trimmed = self.rest.trim_start();
        match trimmed.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Reason<()> {
        if self.eat(token) { Ok(()) } else { malformed(format!("its header lacks `{token}`")) }
    }

    fn string(&mut self) -> Reason<String> {
        let trimmed = self.rest.trim_start();
        let quote = trimmed.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let Some(quote) = quote else { return malformed("its header lacks a string") };
        let body = &trimmed[1..];
        let Some(end) = body.find(quote) else {
            return malformed("a string in its header does not end");
        };
        self.rest = &body[end + 1..];
        Ok(body[..end].to_owned())
    }

    fn truth(&mut self) -> Reason<bool> {
        if self.eat("True") {
            Ok(true)
        } else if self.eat("False") {
            Ok(false)
        } else {
            malformed("fortran_order is neither True nor False")
        }
    }

    fn tuple(&mut self) -> Reason<Vec<usize>> {
        self.expect("(")?;
        let mut sizes = vec![];
        while !self.eat(")") {
            let trimmed = self.rest.trim_start();
            let digits =
                trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let Ok(size) = trimmed[..digits].parse::<usize>() else {
                return malformed("its shape is not a tuple of sizes");
            };
            self.rest = &trimmed[digits..];
            self.eat("L"); // Python 2
            sizes.push(size);
            if sizes.len() > MAX_RANK {
                return malformed(format!("it has more than {MAX_RANK} axes"));
            }
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(sizes)
    }
}

/// Column-major data, its shape as declared, made row-major.
fn to_row_major(t: &TensorBuf) -> Reason<TensorBuf> {
    let mut out = TensorBuf::zeros(t.dtype, &t.shape)?;
    let size = t.dtype.size();
    if t.is_empty() {
        return Ok(out);
    }
    let mut strides = vec![size; t.shape.len()];
    for a in 1..t.shape.len() {
        strides[a] = strides[a - 1] * t.shape[a - 1];
    }
    let mut index = vec![0usize; t.shape.len()];
    let mut at = 0;
    for dst in out.bytes_mut().chunks_exact_mut(size) {
        dst.copy_from_slice(&t.bytes()[at..at + size]);
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < t.shape[axis] {
                break;
            }
            at -= strides[axis] * t.shape[axis];
            index[axis] = 0;
        }
    }
    Ok(out)
}

fn descr(dtype: DType) -> &'static str {
    let little = cfg!(target_endian = "little");
    match dtype {
        DType::F32 => {
            if little {
                "<f4"
            } else {
                ">f4"
            }
        }
        DType::F64 => {
            if little {
                "<f8"
            } else {
                ">f8"
            }
        }
        DType::F16 => {
            if little {
                "<f2"
            } else {
                ">f2"
            }
        }
        DType::BF16 => {
            if little {
                "<V2"
            } else {
                ">V2"
            }
        }
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I32 => {
            if little {
                "<i4"
            } else {
                ">i4"
            }
        }
        DType::I64 => {
            if little {
                "<i8"
            } else {
                ">i8"
            }
        }
        DType::Bool => "|b1",
    }
}

/// Writes an array, version 1, data on a 64-byte boundary.
pub fn write(out: &mut dyn Write, t: &TensorBuf) -> std::io::Result<()> {
    out.write_all(&header_bytes(t.dtype, &t.shape))?;
    out.write_all(t.bytes())
}

pub(super) fn header_bytes(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(|d| d.to_string()).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        descr(dtype),
        sizes.join(", ")
    );
    let total = (10 + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', total - 11 - text.len()));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(t: &TensorBuf) -> TensorBuf {
        let mut bytes = vec![];
        write(&mut bytes, t).unwrap();
        assert_eq!((bytes.len() - t.bytes().len()) % 64, 0);
        read(&mut &bytes[..], None).unwrap()
    }

    #[test]
    fn every_dtype_and_rank_survives() {
        for dtype in DType::ALL {
            for shape in [&[][..], &[3], &[2, 0, 5], &[2, 3, 4]] {
                let mut t = TensorBuf::zeros(dtype, shape).unwrap();
                let bool = dtype == DType::Bool;
                t.bytes_mut().iter_mut().enumerate().for_each(|(i, b)| {
                    *b = if bool { i as u8 & 1 } else { (i as u8).wrapping_mul(7) | 1 }
                });
                assert_eq!(round_trip(&t), t);
            }
        }
    }

    fn file(version: u8, dict: &str, data: &[u8]) -> Vec<u8> {
        let mut b = MAGIC.to_vec();
        b.extend([version, 0]);
        if version == 1 {
            b.extend((dict.len() as u16).to_le_bytes());
        } else {
            b.extend((dict.len() as u32).to_le_bytes());
        }
        b.extend(dict.as_bytes());
        b.extend(data);
        b
    }

    #[test]
    fn fortran_order_byte_order_and_versions() {
        let dict = "{'descr': '>i4', 'fortran_order': True, 'shape': (2, 3), }";
        let data: Vec<u8> = [1i32, 4, 2, 5, 3, 6].iter().flat_map(|v| v.to_be_bytes()).collect();
        for version in [1, 2, 3] {
            let t = read(&mut &file(version, dict, &data)[..], None).unwrap();
            assert_eq!(t.as_slice::<i32>().unwrap(), [1, 2, 3, 4, 5, 6]);
            assert_eq!(t.shape, [2, 3]);
        }
        let dict = "{\"shape\":(1L,),\"descr\":\"<u2\",\"fortran_order\":False}";
        let t = read(&mut &file(1, dict, &[0x80, 0x3f])[..], Some(DType::BF16)).unwrap();
        assert_eq!(t.get_f64(0), Some(1.0));
        assert!(matches!(
            read(&mut &file(1, dict, &[0x80, 0x3f])[..], None),
            Err(Fault::Unsupported(_))
        ));
        let t = read(
            &mut &file(1, "{'descr': '|b1', 'fortran_order': False, 'shape': ()}", &[9])[..],
            None,
        );
        assert_eq!(t.unwrap().bytes(), [1]);
    }

    #[test]
    fn malformed_files_are_errors() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        for (from, to) in [
            ("(2,)", "(99999999999999999999,)"),
            ("(2,)", "(4611686018427387904, 4)"),
            ("(2,)", "(-1,)"),
            ("(2,)", "(2"),
            ("(2,)", "[2]"),
            ("'<f4'", "'<c8'"),
            ("'<f4'", "[('a', '<f4')]"),
            ("'<f4'", "''"),
            ("False", "Maybe"),
            ("'shape'", "'shade'"),
            ("}", ""),
            ("}", "} x"),
        ] {
            let dict = good.replace(from, to);
            assert!(read(&mut &file(1, &dict, &[0; 8])[..], None).is_err(), "{dict}");
        }
        assert!(read(&mut &file(9, good, &[0; 8])[..], None).is_err());
        // A header that promises far more than the file holds costs nothing.
        let dict = good.replace("(2,)", "(100000000000,)");
        assert!(read(&mut &file(1, &dict, &[0; 8])[..], None).is_err());
    }

    #[test]
    fn mutations_never_panic() {
        let dict = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
        let good = file(1, dict, &[1; 24]);
        for at in 0..good.len() {
            for value in [0, b'9', b'(', b'\'', 0x80, 0xff] {
                let mut b = good.clone();
                b[at] = value;
                let _ = read(&mut &b[..], None);
            }
            assert!(read(&mut &good[..at], None).is_err());
        }
    }
}
