//! Numbers that are not finite: where they are, and what is said about them.

use crate::error::Error;
use crate::half::{bf16, f16};
use crate::show;
use tfc_abi::DType;
use tfc_abi::plan::CheckFinite;

/// Whether no element is NaN or infinite. Integers always are.
pub fn all_finite(dtype: DType, bytes: &[u8]) -> bool {
    // The exponent bits, all set.
    fn fold<const N: usize>(bytes: &[u8], bad: impl Fn([u8; N]) -> bool) -> bool {
        let (elements, _) = bytes.as_chunks::<N>();
        // In pieces: the fold has no branches, yet the first bad piece ends it.
        !elements.chunks(4096).any(|piece| piece.iter().fold(false, |any, e| any | bad(*e)))
    }
    match dtype {
        DType::F32 => fold(bytes, |e| u32::from_ne_bytes(e) & 0x7f80_0000 == 0x7f80_0000),
        DType::F64 => fold(bytes, |e| u64::from_ne_bytes(e) >> 52 & 0x7ff == 0x7ff),
        DType::F16 => fold(bytes, |e| u16::from_ne_bytes(e) & 0x7c00 == 0x7c00),
        DType::BF16 => fold(bytes, |e| u16::from_ne_bytes(e) & 0x7f80 == 0x7f80),
        _ => true,
    }
}

/// The error of saving a variable that is NaN, or infinite where it did not begin so.
pub fn unfit(name: &str, tensor: &Tensor<'_>, may_be_infinite: bool) -> Option<Error> {
    if all_finite(tensor.dtype, tensor.bytes) {
        return None;
    }
    let s = tensor.summary();
    if s.nans == 0 && may_be_infinite {
        return None;
    }
    let e = Error::data("E0534", format!("variable `{name}` is {}: not saved", tensor.at(&s)));
    Some(e.note(format!("all of it: {}", s.text(tensor.count()))).help(
        "`tfc run GRAPH .. --check-numerics` finds where it comes from; `--allow-nan` saves it",
    ))
}

/// What a tensor of floats holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub nans: usize,
    pub infinities: usize,
    /// The first NaN, or the first infinity if there is none.
    pub first: Option<usize>,
    /// Least and greatest of the others.
    pub range: Option<(f64, f64)>,
}

pub fn summary(dtype: DType, bytes: &[u8]) -> Summary {
    let mut s = Summary { nans: 0, infinities: 0, first: None, range: None };
    let mut first_infinity = None;
    for (i, element) in bytes.chunks_exact(dtype.size()).enumerate() {
        let v = float(dtype, element);
        if v.is_nan() {
            s.nans += 1;
            s.first = s.first.or(Some(i));
        } else if v.is_infinite() {
            s.infinities += 1;
            first_infinity = first_infinity.or(Some(i));
        } else {
            let (low, high) = s.range.unwrap_or((v, v));
            s.range = Some((low.min(v), high.max(v)));
        }
    }
    s.first = s.first.or(first_infinity);
    s
}

fn float(dtype: DType, e: &[u8]) -> f64 {
    match (dtype, e) {
        (DType::F64, e) => e.try_into().map_or(0.0, f64::from_ne_bytes),
        (DType::F32, e) => e.try_into().map_or(0.0, |e| f64::from(f32::from_ne_bytes(e))),
        (DType::F16, e) => e.try_into().map_or(0.0, |e| f64::from(f16::from_ne_bytes(e).to_f32())),
        (DType::BF16, e) => {
            e.try_into().map_or(0.0, |e| f64::from(bf16::from_ne_bytes(e).to_f32()))
        }
        _ => 0.0,
    }
}

impl Summary {
    /// `12 NaN and 1 infinite of 640, the others -3.5 to 2`.
    pub fn text(&self, count: usize) -> String {
        let others = self.range.map(|(low, high)| match low == high {
            true => format!("{low:?}"),
            false => format!("{low:?} to {high:?}"),
        });
        let bad = match (self.nans, self.infinities) {
            (0, 0) => return others.unwrap_or_else(|| "empty".into()),
            (n, 0) => format!("{n} NaN"),
            (0, i) => format!("{i} infinite"),
            (n, i) => format!("{n} NaN and {i} infinite"),
        };
        match others {
            Some(others) if count > 1 => format!("{bad} of {count}, the others {others}"),
            _ => format!("{bad} of {count}"),
        }
    }
}

/// A tensor a check is about.
pub struct Tensor<'a> {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub bytes: &'a [u8],
}

impl Tensor<'_> {
    fn summary(&self) -> Summary {
        summary(self.dtype, self.bytes)
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// An element as people write it.
    fn element(&self, at: usize) -> String {
        let text = show::element(self.dtype, self.bytes, at);
        if text == "nan" { "NaN".into() } else { text }
    }

    /// `NaN at [3, 0]`.
    fn at(&self, s: &Summary) -> String {
        let Some(at) = s.first else { return String::new() };
        let value = self.element(at);
        if self.shape.is_empty() {
            return value;
        }
        let mut rest = at;
        let mut index: Vec<String> = vec![];
        for d in self.shape.iter().rev() {
            index.push((rest % (*d).max(1)).to_string());
            rest /= (*d).max(1);
        }
        index.reverse();
        format!("{value} at [{}]", index.join(", "))
    }
}

/// The error of a check that fails; `tensors` are what is checked and what it was
/// computed from.
pub fn check(check: &CheckFinite, tensors: &[Tensor<'_>]) -> Option<Error> {
    let (x, from) = tensors.split_first()?;
    // Nearly always it ends here.
    if all_finite(x.dtype, x.bytes) {
        return None;
    }
    let s = x.summary();
    if check.user.is_empty() {
        let value = x.element(s.first.unwrap_or(0));
        let e = Error::data("E0533", format!("the loss is {value}"));
        let e = match (check.name.as_str(), check.place.as_str()) {
            ("", "") => e,
            ("", place) => e.note(format!("it is minimized at {place}")),
            (name, "") => e.note(format!("it is `{name}`")),
            (name, place) => e.note(format!("it is `{name}`, minimized at {place}")),
        };
        return Some(e.help(
            "`tfc run GRAPH .. --check-numerics` finds where it comes from; `--allow-nan` goes on",
        ));
    }
    let sums: Vec<Summary> = from.iter().map(Tensor::summary).collect();
    let new_nan = s.nans > 0 && sums.iter().all(|f| f.nans == 0);
    let new_infinity = s.infinities > 0
        && !sums.is_empty()
        && sums.iter().all(|f| f.nans == 0 && f.infinities == 0);
    if !new_nan && !new_infinity {
        return None;
    }
    let called = match check.name.as_str() {
        "" => String::new(),
        name => format!(" `{name}`"),
    };
    let message = match check.user.as_str() {
        "feed" => format!("feed{called} is {}", x.at(&s)),
        "read" => format!("variable{called} is {}", x.at(&s)),
        op => format!("`{op}` made the first {}", x.at(&s)),
    };
    let mut e = Error::data("E0535", message);
    if !check.place.is_empty() {
        e = e.note(format!("at {}", check.place));
    }
    if !matches!(check.user.as_str(), "feed" | "read") && !called.is_empty() {
        e = e.note(format!("its result is{called}: {}", s.text(x.count())));
    } else {
        e = e.note(format!("all of it: {}", s.text(x.count())));
    }
    let mut names = check.names.split(',');
    for (i, (f, sum)) in from.iter().zip(&sums).enumerate() {
        let name = match names.next().filter(|n| !n.is_empty()) {
            Some(name) => format!("`{name}`"),
            None => format!("operand {}", i + 1),
        };
        e = e.note(format!("{name} is {}", sum.text(f.count())));
    }
    Some(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_type_knows_its_finite_numbers() {
        let values = [0.0, -0.0, 1.5, -3.0, f64::MIN_POSITIVE, 60000.0];
        for bad in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
            let mut all: Vec<f64> = values.iter().copied().cycle().take(9000).collect();
            if let Some(bad) = bad {
                all[8999] = bad;
            }
            let bytes = |of: &dyn Fn(f64) -> Vec<u8>| -> Vec<u8> {
                all.iter().flat_map(|v| of(*v)).collect()
            };
            for (dtype, bytes) in [
                (DType::F64, bytes(&|v| v.to_ne_bytes().to_vec())),
                (DType::F32, bytes(&|v| (v as f32).to_ne_bytes().to_vec())),
                (DType::F16, bytes(&|v| f16::from_f64(v).to_ne_bytes().to_vec())),
                (DType::BF16, bytes(&|v| bf16::from_f64(v).to_ne_bytes().to_vec())),
            ] {
                assert_eq!(all_finite(dtype, &bytes), bad.is_none(), "{dtype:?} {bad:?}");
                let s = summary(dtype, &bytes);
                assert_eq!(s.first, bad.map(|_| 8999), "{dtype:?} {bad:?}");
            }
        }
        assert!(all_finite(DType::I32, &[255; 8]));
    }

    fn error(user: &str, x: &[f32], from: &[&[f32]]) -> Option<String> {
        let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>();
        let all: Vec<Vec<u8>> =
            std::iter::once(bytes(x)).chain(from.iter().map(|f| bytes(f))).collect();
        let tensors: Vec<Tensor<'_>> = all
            .iter()
            .map(|b| Tensor { dtype: DType::F32, shape: vec![b.len() / 4], bytes: b })
            .collect();
        let (name, place) = ("y".into(), "m.graph:2:3".into());
        let (user, names) = (user.into(), "a".into());
        check(&CheckFinite { bufs: vec![], name, user, names, place }, &tensors)
            .map(|e| e.to_string())
    }

    #[test]
    fn only_the_op_that_made_it_is_blamed() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert_eq!(error("log", &[1.0], &[&[2.0]]), None);
        assert_eq!(error("add", &[nan], &[&[nan]]), None);
        // Masked logits are infinite on purpose.
        assert_eq!(error("add", &[-inf], &[&[-inf]]), None);
        let text = error("sub", &[nan, 1.0], &[&[inf, 3.0]]).unwrap();
        assert!(text.starts_with("error[E0535]: `sub` made the first NaN at [0]\n"), "{text}");
        assert!(text.contains("at m.graph:2:3"), "{text}");
        assert!(text.contains("`a` is 1 infinite of 2, the others 3.0"), "{text}");
        let text = error("exp", &[inf, 1.0], &[&[100.0, 0.0]]).unwrap();
        assert!(text.contains("`a` is 0.0 to 100.0"), "{text}");
        assert!(error("feed", &[1.0, nan], &[]).unwrap().contains("feed `y` is NaN at [1]"));
        // What is fed may be infinite.
        assert_eq!(error("feed", &[inf], &[]), None);
        let text = error("", &[inf], &[]).unwrap();
        assert!(text.starts_with("error[E0533]: the loss is inf\n"), "{text}");
    }
}
