//! `.safetensors`: a length, a JSON header, the bytes.

use super::json::{Json, quote};
use super::rows::ArrayRows;
use super::{Array, Contents, Fault, Reason, fix_order, malformed, normalise_bools};
use crate::hash::hex;
use crate::tensor::{FeedView, TensorBuf, byte_len};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use tfc_abi::DType;
use tfc_abi::plan::Plan;

/// The format's own limit on headers.
const MAX_HEADER: u64 = 100_000_000;

#[derive(Debug)]
pub struct Archive<F = File> {
    file: F,
    data_start: u64,
    pub tensors: Vec<Tensor>,
    /// `__metadata__`, in the order of the file.
    pub metadata: Vec<(String, String)>,
}

/// A tensor in the file. The dtype is `None` when we have no such type.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub dtype: Option<DType>,
    pub dtype_text: String,
    pub shape: Vec<usize>,
    begin: u64,
    end: u64,
}

fn dtype_name(d: DType) -> &'static str {
    match d {
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I8 => "I8",
        DType::U8 => "U8",
        DType::I32 => "I32",
        DType::I64 => "I64",
        DType::Bool => "BOOL",
    }
}

impl<F: Read + Seek> Archive<F> {
    pub fn open(mut file: F) -> Reason<Archive<F>> {
        let len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut b = [0; 8];
        file.read_exact(&mut b)?;
        // A header of 128 bytes begins as a pickle does, but for the zeros after that.
        let pickle = b[0] == 0x80 && b[1] <= 5 && b[2..] != [0; 6];
        if b.starts_with(b"PK\x03\x04") || pickle {
            return malformed(
                "it is a zip archive or a pickle, as `torch.save` writes; in Python, \
                 `safetensors.torch.save_file(model.state_dict(), \"w.safetensors\")` writes weights \
                 that can be read",
            );
        }
        let header = u64::from_le_bytes(b);
        if header > MAX_HEADER || header > len - 8 {
            return malformed("its header is longer than the file");
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text)?;
        let data_start = 8 + header;
        let Ok(text) = std::str::from_utf8(&text) else {
            return malformed("its header is not text");
        };
        let json = Json::parse(text)
            .map_err(|e| Fault::Malformed(format!("its header is not JSON: {e}")))?;
        let Some(members) = json.as_object() else {
            return malformed("its header is not an object");
        };
        let (mut tensors, mut metadata) = (vec![], vec![]);
        for (name, value) in members {
            if name == "__metadata__" {
                let Some(pairs) = value.as_object() else {
                    return malformed("its metadata is not an object");
                };
                let text = |v: &Json| v.as_str().unwrap_or_default().to_owned();
                metadata.extend(pairs.iter().map(|(k, v)| (k.clone(), text(v))));
            } else {
                tensors.push(tensor(name, value, len - data_start)?);
            }
        }
        Ok(Archive { file, data_start, tensors, metadata })
    }

    pub fn read(&mut self, at: usize) -> Reason<TensorBuf> {
        let dtype = self.known(at)?;
        let mut out = TensorBuf::zeros(dtype, &self.tensors[at].shape)?;
        self.read_into(at, out.bytes_mut())?;
        Ok(out)
    }

    /// The rows of a tensor, one after the other.
    pub fn rows(self, at: usize) -> Reason<ArrayRows<F>> {
        let dtype = self.known(at)?;
        let t = &self.tensors[at];
        ArrayRows::plain(self.file, self.data_start + t.begin, dtype, t.shape.clone())
    }

    /// The element type of a tensor, which must be one of ours.
    fn known(&self, at: usize) -> Reason<DType> {
        let Some(t) = self.tensors.get(at) else { return malformed("it has no such tensor") };
        t.dtype.ok_or_else(|| {
            Fault::Unsupported(format!("the elements of `{}` are {}", t.name, t.dtype_text))
        })
    }

    /// Reads a tensor whose elements have a type of ours to where it belongs.
    pub fn read_into(&mut self, at: usize, out: &mut [u8]) -> Reason<()> {
        self.read_at(at, 0, out)
    }

    /// As [`Archive::read_into`], some of its elements, which begin at byte `from`.
    pub fn read_at(&mut self, at: usize, from: usize, out: &mut [u8]) -> Reason<()> {
        let known = self.tensors.get(at).and_then(|t| Some((t.begin, t.end, t.dtype?)));
        let Some((begin, end, dtype)) = known else { return malformed("it has no such tensor") };
        if (from as u64).checked_add(out.len() as u64).is_none_or(|last| last > end - begin) {
            return malformed("a tensor is shorter than it should be");
        }
        self.file.seek(SeekFrom::Start(self.data_start + begin + from as u64))?;
        self.file.read_exact(out)?;
        fix_order(out, dtype.size(), true);
        normalise_bools(dtype, out);
        Ok(())
    }
}

/// One member of the header, checked against the bytes that are there.
fn tensor(name: &str, value: &Json, available: u64) -> Reason<Tensor> {
    let field = |f: &str| {
        value.get(f).ok_or_else(|| Fault::Malformed(format!("tensor `{name}` has no {f}")))
    };
    let bad = |what: &str| Fault::Malformed(format!("tensor `{name}` has a malformed {what}"));
    let dtype_text = field("dtype")?.as_str().ok_or_else(|| bad("dtype"))?.to_owned();
    let dtype = DType::ALL.into_iter().find(|d| dtype_name(*d) == dtype_text);
    let shape = field("shape")?
        .as_array()
        .ok_or_else(|| bad("shape"))?
        .iter()
        .map(|d| d.as_u64().and_then(|d| usize::try_from(d).ok()).ok_or_else(|| bad("shape")))
        .collect::<Reason<Vec<usize>>>()?;
    let offsets = field("data_offsets")?.as_array().ok_or_else(|| bad("data_offsets"))?;
    let [begin, end] = offsets else { return Err(bad("data_offsets")) };
    let (Some(begin), Some(end)) = (begin.as_u64(), end.as_u64()) else {
        return Err(bad("data_offsets"));
    };
    if begin > end || end > available {
        return malformed(format!(
            "tensor `{name}` ends at byte {end} of the data, but there are {available}: \
             the file is cut short"
        ));
    }
    if let Some(d) = dtype
        && byte_len(d, &shape) != usize::try_from(end - begin).ok()
    {
        return malformed(format!("tensor `{name}` has the wrong number of bytes for its shape"));
    }
    Ok(Tensor { name: name.to_owned(), dtype, dtype_text, shape, begin, end })
}

/// What a file of variables says about the program it is of.
pub fn metadata_of(plan: &Plan) -> Vec<(&'static str, String)> {
    vec![
        ("format", "tfc-state-1".into()),
        ("graph", plan.name.clone()),
        ("graph_hash", hex(&plan.graph_hash)),
    ]
}

/// Writes tensors in the order given.
pub fn write(
    out: &mut dyn Write,
    tensors: &[(&str, FeedView<'_>)],
    metadata: &[(&str, &str)],
) -> std::io::Result<()> {
    let arrays: Vec<Array<'_>> = tensors
        .iter()
        .map(|(name, t)| Array {
            name,
            dtype: t.dtype,
            shape: t.shape,
            data: Contents::Bytes(t.data),
        })
        .collect();
    write_arrays(out, &arrays, metadata)
}

/// As [`write`], of arrays that may lie in files.
pub fn write_arrays(
    out: &mut dyn Write,
    arrays: &[Array<'_>],
    metadata: &[(&str, &str)],
) -> std::io::Result<()> {
    let mut members = vec![];
    if !metadata.is_empty() {
        let pairs: Vec<String> =
            metadata.iter().map(|(k, v)| format!("{}:{}", quote(k), quote(v))).collect();
        members.push(format!("\"__metadata__\":{{{}}}", pairs.join(",")));
    }
    let mut offset = 0;
    for t in arrays {
        let shape: Vec<String> = t.shape.iter().map(|d| d.to_string()).collect();
        let end = offset + t.len()?;
        members.push(format!(
            "{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{offset},{end}]}}",
            quote(t.name),
            dtype_name(t.dtype),
            shape.join(",")
        ));
        offset = end;
    }
    let mut header = format!("{{{}}}", members.join(","));
    let padded = header.len().next_multiple_of(8);
    header.extend(std::iter::repeat_n(' ', padded - header.len()));
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for t in arrays {
        t.for_each(&mut |bytes| {
            if cfg!(target_endian = "little") {
                return out.write_all(bytes);
            }
            let mut bytes = bytes.to_vec();
            fix_order(&mut bytes, t.dtype.size(), true);
            out.write_all(&bytes)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn sample() -> Vec<u8> {
        let a = TensorBuf::from_slice(&[3], &[1f32, 2., 3.]).unwrap();
        let b = TensorBuf::from_slice(&[], &[crate::half::bf16::ONE]).unwrap();
        let mut bytes = vec![];
        write(&mut bytes, &[("a", a.view()), ("b\"\n", b.view())], &[("graph", "m")]).unwrap();
        bytes
    }

    #[test]
    fn survives() {
        let mut a = Archive::open(Cursor::new(sample())).unwrap();
        assert_eq!(a.metadata, [("graph".to_owned(), "m".to_owned())]);
        assert_eq!(a.tensors[1].name, "b\"\n");
        assert_eq!(a.read(0).unwrap().as_slice::<f32>().unwrap(), [1., 2., 3.]);
        assert_eq!(a.read(1).unwrap().get_f64(0), Some(1.0));
        assert!(a.read(2).is_err());
        assert_eq!((sample().len() - 14) % 8, 0);
    }

    #[test]
    fn headers_of_any_length_are_read() {
        let a = TensorBuf::from_slice(&[3], &[1f32, 2., 3.]).unwrap();
        for n in 1..600 {
            let mut bytes = vec![];
            write(&mut bytes, &[(&"n".repeat(n), a.view())], &[]).unwrap();
            assert!(Archive::open(Cursor::new(bytes)).is_ok(), "a name of {n} letters");
        }
    }

    #[test]
    fn cut_and_damaged_files_are_errors() {
        let good = sample();
        for n in 0..good.len() {
            assert!(Archive::open(Cursor::new(good[..n].to_vec())).is_err(), "{n}");
        }
        for at in 0..good.len() {
            for value in [0, b'9', b'"', b'}', 0x80, 0xff] {
                let mut b = good.clone();
                b[at] = value;
                if let Ok(mut a) = Archive::open(Cursor::new(b)) {
                    for i in 0..a.tensors.len() {
                        let _ = a.read(i);
                    }
                }
            }
        }
        let huge = r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#;
        let mut b = (huge.len() as u64).to_le_bytes().to_vec();
        b.extend(huge.as_bytes());
        assert!(Archive::open(Cursor::new(b)).is_err());
    }
}
