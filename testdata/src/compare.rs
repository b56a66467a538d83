//! Are two tensors the same?

use tfc_ir::{DType, Tensor};

/// Relative tolerance for a dtype, when the case gives none.
pub fn default_tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 0.0,
    }
}

/// Describes the first difference, if there is one. Integers and bools must be
/// equal; floats may differ by `tol` relative to the larger of the two values
/// and of the tensor's typical magnitude, which is what a reordered sum may lose;
/// NaN equals NaN.
pub fn difference(want: &Tensor, got: &Tensor, tol: f64) -> Option<String> {
    difference_with(want, got, tol, &[])
}

/// [`difference`], where elements may differ by an absolute `slack` besides.
pub fn difference_with(want: &Tensor, got: &Tensor, tol: f64, slack: &[f64]) -> Option<String> {
    if want.dtype() != got.dtype() || want.shape() != got.shape() {
        return Some(format!(
            "expected {}{:?}, got {}{:?}",
            want.dtype(),
            want.shape(),
            got.dtype(),
            got.shape()
        ));
    }
    if !want.dtype().is_float() {
        let (w, g) = (want.to_i64(), got.to_i64());
        let at = w.iter().zip(&g).position(|(a, b)| a != b)?;
        return Some(format!("element {at}: expected {}, got {}", w[at], g[at]));
    }
    let (w, g) = (want.to_f64(), got.to_f64());
    let finite = w.iter().filter(|v| v.is_finite());
    let typical = finite.clone().map(|v| v.abs()).sum::<f64>() / finite.count().max(1) as f64;
    for (at, (a, b)) in w.iter().zip(&g).enumerate() {
        if a == b || (a.is_nan() && b.is_nan()) {
            continue;
        }
        let scale = a.abs().max(b.abs()).max(typical);
        let allowed = tol * scale + slack.get(at).copied().unwrap_or(0.0);
        let far = !(a - b).is_finite() || (a - b).abs() > allowed;
        if far {
            return Some(format!("element {at}: expected {a}, got {b} (tolerance {tol})"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_small_ones_forgiven() {
        let t = |v: &[f64]| Tensor::from_f64(DType::F32, vec![v.len()], v.iter().copied());
        assert_eq!(difference(&t(&[1.0, 2.0]), &t(&[1.0, 2.000001]), 1e-5), None);
        assert!(difference(&t(&[1.0, 2.0]), &t(&[1.0, 2.1]), 1e-5).is_some());
        assert!(difference(&t(&[1.0]), &t(&[f64::NAN]), 1e-5).is_some());
        assert_eq!(difference(&t(&[f64::NAN]), &t(&[f64::NAN]), 1e-5), None);
        assert!(difference(&t(&[f64::INFINITY]), &t(&[1.0]), 1e-5).is_some());
        assert!(difference(&t(&[1.0]), &t(&[1.0, 1.0]), 1e-5).is_some());
        assert_eq!(difference_with(&t(&[1.0, 2.0]), &t(&[1.0, 2.1]), 1e-5, &[0.0, 0.2]), None);
        assert!(difference_with(&t(&[1.0, 2.0]), &t(&[1.1, 2.0]), 1e-5, &[0.0, 0.2]).is_some());
    }
}
