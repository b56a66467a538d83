//! Tensors at the edge of a program: what callers feed and what they get.

use crate::error::{Error, Result};
use crate::mem::{Bytes, OutOfMemory};
use std::fmt::Write as _;
use tfc_abi::DType;

/// A tensor somebody else owns, row-major and dense.
#[derive(Clone, Copy, Debug)]
pub struct FeedView<'a> {
    pub dtype: DType,
    pub shape: &'a [usize],
    /// Exactly `shape` elements, in native byte order. Need not be aligned.
    pub data: &'a [u8],
}

impl FeedView<'_> {
    pub fn type_text(&self) -> String {
        type_text(self.dtype, self.shape)
    }
}

/// Memory of the caller's for one result.
#[derive(Debug)]
pub struct ResultView<'a> {
    /// At least the result's bytes; aligned to its elements.
    pub data: &'a mut [u8],
}

/// A tensor of our own.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorBuf {
    pub dtype: DType,
    pub shape: Vec<usize>,
    data: Bytes,
}

impl TensorBuf {
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<TensorBuf> {
        let len = byte_len(dtype, shape).ok_or(OutOfMemory(usize::MAX))?;
        Ok(TensorBuf { dtype, shape: shape.to_vec(), data: Bytes::zeroed(len)? })
    }

    /// As [`TensorBuf::zeros`], of which little may be used: see [`Bytes::untouched`].
    pub fn untouched(dtype: DType, shape: &[usize]) -> Result<TensorBuf> {
        let len = byte_len(dtype, shape).ok_or(OutOfMemory(usize::MAX))?;
        Ok(TensorBuf { dtype, shape: shape.to_vec(), data: Bytes::untouched(len)? })
    }

    /// From bytes in native order; `None` when their number is wrong.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Option<TensorBuf> {
        if byte_len(dtype, shape) != Some(bytes.len()) {
            return None;
        }
        Some(TensorBuf { dtype, shape: shape.to_vec(), data: Bytes::from_slice(bytes).ok()? })
    }

    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Option<TensorBuf> {
        // SAFETY: `Element`s are plain values without padding.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), std::mem::size_of_val(values))
        };
        TensorBuf::from_bytes(T::DTYPE, shape, bytes)
    }

    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The memory itself.
    pub fn into_bytes(self) -> Bytes {
        self.data
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// The elements, when they are of type `T`.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        if T::DTYPE != self.dtype {
            return None;
        }
        // SAFETY: the memory holds `len` elements of this dtype, aligned to 64
        // bytes, and every bit pattern is a value of an `Element`.
        Some(unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast::<T>(), self.len()) })
    }

    pub fn view(&self) -> FeedView<'_> {
        FeedView { dtype: self.dtype, shape: &self.shape, data: &self.data }
    }

    pub fn type_text(&self) -> String {
        type_text(self.dtype, &self.shape)
    }

    /// Element `i` as a float, whatever the dtype.
    pub fn get_f64(&self, i: usize) -> Option<f64> {
        element_f64(self.dtype, &self.data, i)
    }

    /// The same numbers with another shape.
    pub fn reshaped(mut self, shape: &[usize]) -> Result<TensorBuf> {
        if byte_len(self.dtype, shape) != Some(self.data.len()) {
            return Err(Error::bug("a reshape changes the number of elements"));
        }
        self.shape = shape.to_vec();
        Ok(self)
    }
}

/// Bytes of a tensor, unless that overflows.
pub fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the tensor empty, however large the rest.
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(dtype.size(), |n, d| n.checked_mul(*d))
        .filter(|n| isize::try_from(*n).is_ok())
}

/// `f32[64, 784]`.
pub fn type_text(dtype: DType, shape: &[usize]) -> String {
    let mut s = format!("{dtype}[");
    for (i, d) in shape.iter().enumerate() {
        let _ = write!(s, "{}{d}", if i == 0 { "" } else { ", " });
    }
    s.push(']');
    s
}

/// Element `i` of native-order bytes, as a float.
pub fn element_f64(dtype: DType, bytes: &[u8], i: usize) -> Option<f64> {
    let size = dtype.size();
    let at = i.checked_mul(size)?;
    let b = bytes.get(at..at.checked_add(size)?)?;
    Some(match dtype {
        DType::F32 => f32::from_ne_bytes(b.try_into().ok()?).into(),
        DType::F64 => f64::from_ne_bytes(b.try_into().ok()?),
        DType::F16 => crate::half::f16::from_ne_bytes(b.try_into().ok()?).into(),
        DType::BF16 => crate::half::bf16::from_ne_bytes(b.try_into().ok()?).into(),
        DType::I8 => (b[0] as i8).into(),
        DType::U8 | DType::Bool => b[0].into(),
        DType::I32 => i32::from_ne_bytes(b.try_into().ok()?).into(),
        DType::I64 => i64::from_ne_bytes(b.try_into().ok()?) as f64,
    })
}

/// Types that are a dtype's elements in memory. Bool is not one: not every byte
/// is a `bool`.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, and the size is that of
/// `DTYPE`.
pub unsafe trait Element: Copy {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => {$(
        // SAFETY: a plain number of the right size.
        unsafe impl Element for $t {
            const DTYPE: DType = DType::$d;
        }
    )*};
}

elements!(f32 => F32, f64 => F64, crate::half::f16 => F16, crate::half::bf16 => BF16, i8 => I8, u8 => U8,
          i32 => I32, i64 => I64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_elements() {
        let t = TensorBuf::from_slice(&[2, 2], &[1i32, -2, 3, 4]).unwrap();
        assert_eq!(t.as_slice::<i32>().unwrap(), [1, -2, 3, 4]);
        assert_eq!(t.as_slice::<f32>(), None);
        assert_eq!(t.get_f64(1), Some(-2.0));
        assert_eq!(t.get_f64(4), None);
        assert_eq!(t.type_text(), "i32[2, 2]");
        assert!(TensorBuf::from_slice(&[3], &[1i32]).is_none());
        assert!(TensorBuf::zeros(DType::F64, &[usize::MAX, 2]).is_err());
        assert!(TensorBuf::zeros(DType::F64, &[usize::MAX, 0]).unwrap().is_empty());
    }
}
