//! Types of values: an element type and a shape.

use crate::{DType, Dim};
use std::fmt;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<Dim>,
}

impl TensorType {
    pub fn new(dtype: DType, shape: impl Into<Vec<Dim>>) -> TensorType {
        TensorType { dtype, shape: shape.into() }
    }

    pub fn scalar(dtype: DType) -> TensorType {
        TensorType { dtype, shape: vec![] }
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> Dim {
        Dim::product(&self.shape)
    }

    /// Whether its bytes can be counted, as far as the numbers in its sizes tell:
    /// [`Dim`]s saturate, and what is computed from a saturated size is wrong.
    pub fn is_countable(&self) -> bool {
        let most = |d: &Dim| match d.as_const() {
            // Sizes beside an empty axis are multiplied like any others.
            Some(c) => c.unsigned_abs().max(1),
            None if d.as_sym().is_some() => 1,
            None => d.terms().iter().map(|(_, c)| c.unsigned_abs()).max().unwrap_or(1),
        };
        let bytes =
            self.shape.iter().map(most).try_fold(self.dtype.size() as u64, u64::checked_mul);
        bytes.is_some_and(|n| n < i64::MAX as u64)
    }

    /// The sizes, if none depends on a run-time dim.
    pub fn static_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|d| d.as_const().and_then(|c| usize::try_from(c).ok())).collect()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_counted_is_known() {
        let ty = |dims: &[Dim]| TensorType::new(DType::F32, dims);
        let (n, b) = (|n: i64| Dim::constant(n), Dim::sym("B"));
        assert!(ty(&[n(1 << 30), n(1 << 30)]).is_countable());
        assert!(!ty(&[n(1 << 31), n(1 << 30)]).is_countable());
        assert!(ty(&[n(1 << 40), n(0)]).is_countable());
        assert!(!ty(&[n(i64::MAX), n(i64::MAX), n(0)]).is_countable());
        assert!(ty(&[b.clone(), b.clone(), n(1 << 60)]).is_countable());
        assert!(!ty(&[b.clone() * n(1 << 40), b * n(1 << 40)]).is_countable());
        assert!(!ty(&[n(i64::MAX) + n(i64::MAX)]).is_countable());
    }
}
