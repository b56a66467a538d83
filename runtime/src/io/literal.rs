//! Small tensors written on the command line: `1.5`, `true`, `[[1, 2], [3, 4]]`.

use crate::error::{Error, Result};
use crate::half::{bf16, f16};
use crate::tensor::TensorBuf;
use tfc_abi::DType;

/// Deepest nesting of brackets.
const MAX_RANK: usize = 32;

/// Whether a feed's text is a value rather than a file's name.
pub fn looks_like(text: &str) -> bool {
    let t = text.trim();
    t.starts_with('[') || matches!(t, "true" | "false") || t.parse::<f64>().is_ok()
}

/// The tensor `text` writes, with elements of `dtype`.
pub fn parse(feed: &str, dtype: DType, text: &str) -> Result<TensorBuf> {
    let bad = |why: String| {
        Error::data("E0513", format!("the value given for `{feed}` is malformed"))
            .note(why)
            .help("write numbers as `1.5` and tensors as `[[1, 2], [3, 4]]`")
    };
    let mut p = Parser { text, at: 0, dtype, bytes: vec![], shape: vec![] };
    p.value(0).map_err(bad)?;
    p.space();
    if p.at != text.len() {
        return Err(bad(format!("unexpected `{}`", text[p.at..].chars().next().unwrap_or(' '))));
    }
    let shape: Vec<usize> = p.shape.iter().map(|s| s.unwrap_or(0)).collect();
    TensorBuf::from_bytes(dtype, &shape, &p.bytes)
        .ok_or_else(|| bad("its rows have different lengths".into()))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    dtype: DType,
    bytes: Vec<u8>,
    /// Sizes by depth, once a list of that depth has ended.
    shape: Vec<Option<usize>>,
}

impl Parser<'_> {
    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        self.space();
        let found = self.text[self.at..].starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> std::result::Result<(), String> {
        if self.eat('[') {
            if depth == MAX_RANK {
                return Err(format!("it has more than {MAX_RANK} axes"));
            }
            if self.shape.len() == depth {
                if !self.bytes.is_empty() {
                    return Err("numbers and lists are mixed".into());
                }
                self.shape.push(None);
            }
            let mut count = 0;
            while !self.eat(']') {
                self.value(depth + 1)?;
                count += 1;
                if !self.eat(',') {
                    if !self.eat(']') {
                        return Err("a `]` or `,` is missing".into());
                    }
                    break;
                }
            }
            match self.shape[depth] {
                None => self.shape[depth] = Some(count),
                Some(n) if n == count => {}
                Some(n) => return Err(format!("its rows have different lengths: {n} and {count}")),
            }
            return Ok(());
        }
        if self.shape.len() != depth {
            return Err("numbers and lists are mixed".into());
        }
        self.space();
        let rest = &self.text[self.at..];
        let end = rest.find([',', ']', '[', ' ', '\t', '\n']).unwrap_or(rest.len());
        let (word, dtype) = (&rest[..end], self.dtype);
        if word.is_empty() {
            return Err("a number is missing".into());
        }
        self.at += end;
        self.push(word).ok_or_else(|| format!("`{word}` is not a value of type {dtype}"))
    }

    fn push(&mut self, word: &str) -> Option<()> {
        let float = || word.parse::<f64>().ok();
        let truth = match word {
            "true" => Some(1u8),
            "false" => Some(0),
            _ => None,
        };
        let out = &mut self.bytes;
        match self.dtype {
            DType::F32 => out.extend(word.parse::<f32>().ok()?.to_ne_bytes()),
            DType::F64 => out.extend(float()?.to_ne_bytes()),
            DType::F16 => out.extend(f16::from_f64(float()?).to_ne_bytes()),
            DType::BF16 => out.extend(bf16::from_f64(float()?).to_ne_bytes()),
            DType::I8 => out.extend(word.parse::<i8>().ok()?.to_ne_bytes()),
            DType::U8 => out.push(word.parse().ok()?),
            DType::I32 => out.extend(word.parse::<i32>().ok()?.to_ne_bytes()),
            DType::I64 => out.extend(word.parse::<i64>().ok()?.to_ne_bytes()),
            DType::Bool => out.push(match (truth, word) {
                (Some(t), _) => t,
                (None, "0") => 0,
                (None, "1") => 1,
                _ => return None,
            }),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(dtype: DType, text: &str) -> TensorBuf {
        parse("x", dtype, text).unwrap()
    }

    #[test]
    fn reads_scalars_and_nests() {
        assert_eq!(ok(DType::F32, " 1.5 ").as_slice::<f32>().unwrap(), [1.5]);
        assert_eq!(ok(DType::F32, "-inf").get_f64(0), Some(f64::NEG_INFINITY));
        let t = ok(DType::I32, "[[1, 2,3], [4,5,-6]]");
        assert_eq!((t.shape.as_slice(), t.get_f64(5)), (&[2, 3][..], Some(-6.0)));
        assert_eq!(ok(DType::Bool, "[true, 0]").bytes(), [1, 0]);
        assert_eq!(ok(DType::F32, "[]").shape, [0]);
        assert_eq!(ok(DType::F32, "[[],[]]").shape, [2, 0]);
        assert_eq!(ok(DType::BF16, "[1]").get_f64(0), Some(1.0));
    }

    #[test]
    fn refuses_the_rest() {
        for (dtype, text) in [
            (DType::I32, "1.5"),
            (DType::U8, "256"),
            (DType::F32, "[1, [2]]"),
            (DType::F32, "[[1], 2]"),
            (DType::F32, "[[1], [2, 3]]"),
            (DType::F32, "[1"),
            (DType::F32, "[1]]"),
            (DType::F32, "1 2"),
            (DType::F32, "[,]"),
            (DType::F32, "é"),
            (DType::F32, "[é]"),
            (DType::Bool, "2"),
            (DType::F32, ""),
            (DType::F32, "[[[1]],[2]]"),
        ] {
            assert_eq!(parse("x", dtype, text).unwrap_err().code(), "E0513", "{text}");
        }
        let deep = "[".repeat(10_000);
        assert!(parse("x", DType::F32, &deep).is_err());
    }

    #[test]
    fn tells_values_from_files() {
        assert!(looks_like("1e3") && looks_like("[1]") && looks_like("true"));
        assert!(!looks_like("1.npy") && !looks_like("x.npz:a") && !looks_like(""));
    }
}
