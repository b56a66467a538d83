//! Tensors as text for people: long ones are cut in the middle of each axis.

use crate::tensor::{element_f64, type_text};
use tfc_abi::DType;

/// Elements printed at each end of an axis longer than `2 * EDGE`.
const EDGE: usize = 3;
/// Tensors up to this many elements are printed whole.
const WHOLE: usize = 100;

/// `f32[2, 2] [[1, 2], [3, 4]]`, on several lines when it has several axes.
pub fn tensor(dtype: DType, shape: &[usize], bytes: &[u8]) -> String {
    format!("{} {}", type_text(dtype, shape), values(dtype, shape, bytes))
}

pub fn values(dtype: DType, shape: &[usize], bytes: &[u8]) -> String {
    let mut out = String::new();
    let whole = shape.iter().product::<usize>() <= WHOLE;
    axis(&mut out, dtype, shape, bytes, 0, 0, whole);
    out
}

fn axis(
    out: &mut String,
    dtype: DType,
    shape: &[usize],
    bytes: &[u8],
    start: usize,
    depth: usize,
    whole: bool,
) {
    let Some((len, inner)) = shape.split_first() else {
        out.push_str(&element(dtype, bytes, start));
        return;
    };
    let step: usize = inner.iter().product();
    let cut = !whole && *len > 2 * EDGE;
    out.push('[');
    let mut i = 0;
    while i < *len {
        if i > 0 {
            out.push(',');
            if inner.is_empty() {
                out.push(' ');
            } else {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', depth + 1));
            }
        }
        if cut && i == EDGE {
            out.push_str("...");
            i = *len - EDGE;
            continue;
        }
        axis(out, dtype, inner, bytes, start + i * step, depth + 1, whole);
        i += 1;
    }
    out.push(']');
}

/// One element, with as many digits as its type carries.
pub fn element(dtype: DType, bytes: &[u8], i: usize) -> String {
    let Some(v) = element_f64(dtype, bytes, i) else { return "?".into() };
    match dtype {
        DType::Bool => (v != 0.0).to_string(),
        DType::I64 => bytes
            .get(i * 8..i * 8 + 8)
            .and_then(|b| b.try_into().ok())
            .map_or("?".into(), |b| i64::from_ne_bytes(b).to_string()),
        d if d.is_int() => v.to_string(),
        DType::F64 => float(v, v.to_string(), format!("{v:e}")),
        DType::F32 => {
            let v = v as f32;
            float(v.into(), v.to_string(), format!("{v:e}"))
        }
        // Four digits tell all f16 values apart to the eye; more is noise.
        _ => {
            let short: f64 = format!("{v:.3e}").parse().unwrap_or(v);
            float(v, short.to_string(), format!("{short:e}"))
        }
    }
}

fn float(v: f64, plain: String, scientific: String) -> String {
    let magnitude = v.abs();
    if v.is_nan() {
        "nan".into()
    } else if magnitude != 0.0 && !(1e-5..1e16).contains(&magnitude) && v.is_finite() {
        scientific
    } else if v.is_finite() && !plain.contains('.') {
        plain + ".0"
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Element, TensorBuf};

    fn text<T: Element>(shape: &[usize], values: &[T]) -> String {
        let t = TensorBuf::from_slice(shape, values).unwrap();
        tensor(t.dtype, &t.shape, t.bytes())
    }

    #[test]
    fn shows_small_tensors_whole() {
        assert_eq!(text(&[], &[1.5f32]), "f32[] 1.5");
        assert_eq!(text(&[2, 2], &[1f32, 2., 3., 4e-9]), "f32[2, 2] [[1.0, 2.0],\n [3.0, 4e-9]]");
        assert_eq!(text(&[0], &[0i32; 0]), "i32[0] []");
        assert_eq!(text(&[2], &[i64::MAX, -1]), "i64[2] [9223372036854775807, -1]");
        assert_eq!(text(&[2], &[f64::NAN, f64::NEG_INFINITY]), "f64[2] [nan, -inf]");
        assert_eq!(text(&[1], &[crate::half::f16::from_f32(0.1)]), "f16[1] [0.09998]");
        assert_eq!(tensor(DType::Bool, &[2], &[0, 1]), "bool[2] [false, true]");
    }

    #[test]
    fn cuts_long_ones() {
        let v: Vec<i32> = (0..1000).collect();
        assert_eq!(text(&[1000], &v), "i32[1000] [0, 1, 2, ..., 997, 998, 999]");
        assert!(text(&[10, 100], &v).lines().count() == 7);
    }
}
