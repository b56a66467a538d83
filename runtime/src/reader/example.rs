//! Features of `tf.train.Example` messages.
//!
//! ```text
//! Example  { 1: Features }      Features { 1: repeated { 1: name, 2: Feature } }
//! Feature  { 1: BytesList | 2: FloatList | 3: Int64List }   each { 1: repeated value }
//! ```
//! Numbers may be packed or not. Fields we do not know are passed over.

use super::csv::{push_float, push_int};
use tfc_abi::DType;
use tfc_abi::plan::Part;

/// Why a message cannot be used.
type Why = String;

/// A field: its number, and its content.
enum Field<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
    Other,
}

/// Fills in a part from the feature of this name.
pub fn feature(message: &[u8], name: &str, part: &Part, out: &mut [u8]) -> Result<(), Why> {
    let mut known: Vec<String> = vec![];
    // The last one of a name wins, as in any such message.
    let mut found = None;
    for features in messages(message, 1)? {
        for entry in messages(features, 1)? {
            let key = messages(entry, 1)?.last().copied().unwrap_or_default();
            if key == name.as_bytes() {
                found = Some(messages(entry, 2)?.last().copied().unwrap_or_default());
            } else if known.len() < 12 {
                known.push(format!("`{}`", String::from_utf8_lossy(key)));
            }
        }
    }
    let Some(feature) = found else {
        let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        return Err(format!("it has no feature `{name}`; others are {known}"));
    };
    let mut bytes = vec![];
    fields(feature, &mut |number, field| {
        let Field::Bytes(list) = field else { return Ok(()) };
        match number {
            1 => raw(list, &mut bytes),
            2 => floats(list, part.dtype, &mut bytes),
            3 => ints(list, part.dtype, &mut bytes),
            _ => Ok(()),
        }
    })
    .map_err(|why| format!("feature `{name}`: {why}"))?;
    if bytes.len() != out.len() {
        let size = part.dtype.size();
        return Err(format!(
            "feature `{name}` has {} values of {}, but {} are wanted",
            bytes.len() / size,
            part.dtype,
            out.len() / size
        ));
    }
    out.copy_from_slice(&bytes);
    crate::io::normalise_bools(part.dtype, out);
    Ok(())
}

/// Strings of bytes one after the other: raw little-endian elements.
fn raw(list: &[u8], out: &mut Vec<u8>) -> Result<(), Why> {
    fields(list, &mut |number, field| {
        if let (1, Field::Bytes(b)) = (number, field) {
            out.extend_from_slice(b);
        }
        Ok(())
    })
}

fn floats(list: &[u8], dtype: DType, out: &mut Vec<u8>) -> Result<(), Why> {
    if !dtype.is_float() {
        return Err(format!("it holds floats, not {dtype}"));
    }
    let mut push = |b: [u8; 4]| {
        let v = f32::from_le_bytes(b);
        push_float(out, dtype, v.into(), v);
    };
    fields(list, &mut |number, field| {
        match (number, field) {
            (1, Field::Fixed32(b)) => push(b),
            (1, Field::Bytes(packed)) => {
                if packed.len() % 4 != 0 {
                    return Err("its floats are cut short".into());
                }
                packed.chunks_exact(4).for_each(|c| push([c[0], c[1], c[2], c[3]]));
            }
            _ => {}
        }
        Ok(())
    })
}

fn ints(list: &[u8], dtype: DType, out: &mut Vec<u8>) -> Result<(), Why> {
    let mut push = |v: u64| {
        let v = v as i64;
        let fits = match dtype {
            DType::I8 => i8::try_from(v).is_ok(),
            DType::U8 => u8::try_from(v).is_ok(),
            DType::I32 => i32::try_from(v).is_ok(),
            DType::Bool => (0..=1).contains(&v),
            DType::I64 => true,
            _ => return Err(format!("it holds integers, not {dtype}")),
        };
        if !fits {
            return Err(format!("{v} does not fit {dtype}"));
        }
        push_int(out, dtype, v);
        Ok(())
    };
    fields(list, &mut |number, field| match (number, field) {
        (1, Field::Varint(v)) => push(v),
        (1, Field::Bytes(mut packed)) => {
            while !packed.is_empty() {
                push(varint(&mut packed)?)?;
            }
            Ok(())
        }
        _ => Ok(()),
    })
}

/// The messages in fields of this number.
fn messages(message: &[u8], wanted: u64) -> Result<Vec<&[u8]>, Why> {
    let mut out = vec![];
    fields(message, &mut |number, field| {
        if let Field::Bytes(b) = field
            && number == wanted
        {
            out.push(b);
        }
        Ok(())
    })?;
    Ok(out)
}

fn fields<'a>(
    mut message: &'a [u8],
    each: &mut dyn FnMut(u64, Field<'a>) -> Result<(), Why>,
) -> Result<(), Why> {
    let cut = || "its message is cut short".to_string();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let mut take = |n: usize| -> Result<&'a [u8], Why> {
            let (head, tail) = message.split_at_checked(n).ok_or_else(cut)?;
            message = tail;
            Ok(head)
        };
        let field = match tag & 7 {
            0 => Field::Varint(varint(&mut message)?),
            1 => {
                take(8)?;
                Field::Other
            }
            2 => {
                let len = varint(&mut message)?;
                let len = usize::try_from(len).map_err(|_| cut())?;
                let (head, tail) = message.split_at_checked(len).ok_or_else(cut)?;
                message = tail;
                Field::Bytes(head)
            }
            5 => {
                let b = take(4)?;
                Field::Fixed32([b[0], b[1], b[2], b[3]])
            }
            _ => return Err("it is not a tf.train.Example".into()),
        };
        each(tag >> 3, field)?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Why> {
    let mut v = 0u64;
    for shift in (0..70).step_by(7) {
        let (&b, tail) = bytes.split_first().ok_or("its message is cut short")?;
        *bytes = tail;
        if shift < 64 {
            v |= u64::from(b & 0x7f) << shift;
        }
        if b & 0x80 == 0 {
            return Ok(v);
        }
    }
    Err("it holds a number that is too long".into())
}
