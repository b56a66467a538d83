//! A tensor as bytes: constants in a graph, feeds and results outside it.

use crate::DType;
use half::{bf16, f16};
use std::sync::Arc;
use tfc_abi::float::round_to_odd;

/// Row-major, little-endian, densely packed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Arc<[u8]>,
}

impl Tensor {
    /// `None` if the byte count does not fit the shape.
    pub fn from_bytes(dtype: DType, shape: Vec<usize>, data: Arc<[u8]>) -> Option<Tensor> {
        let len = shape.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d))?;
        (len == data.len()).then_some(Tensor { dtype, shape, data })
    }

    /// A scalar-valued tensor of the given shape, rounded to `dtype`.
    pub fn splat(dtype: DType, shape: Vec<usize>, value: f64) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::from_f64(dtype, shape, std::iter::repeat_n(value, n))
    }

    /// Elements given as `f64`, rounded (floats) or truncated and wrapped
    /// (integers) to `dtype`.
    pub fn from_f64(
        dtype: DType,
        shape: Vec<usize>,
        values: impl IntoIterator<Item = f64>,
    ) -> Tensor {
        let mut data = Vec::new();
        for v in values {
            match dtype {
                DType::F32 => data.extend((v as f32).to_le_bytes()),
                DType::F64 => data.extend(v.to_le_bytes()),
                DType::F16 => data.extend(f16::from_f32(round_to_odd(v)).to_le_bytes()),
                DType::BF16 => data.extend(bf16::from_f32(round_to_odd(v)).to_le_bytes()),
                DType::Bool => data.push((v != 0.0) as u8),
                _ => push_int(&mut data, dtype, v as i64),
            }
        }
        debug_assert_eq!(data.len(), shape.iter().product::<usize>() * dtype.size());
        Tensor { dtype, shape, data: data.into() }
    }

    /// Elements given as `i64`, wrapped to an integer `dtype` or rounded to a
    /// float one.
    pub fn from_i64(
        dtype: DType,
        shape: Vec<usize>,
        values: impl IntoIterator<Item = i64>,
    ) -> Tensor {
        if dtype.is_float() {
            return Tensor::from_f64(dtype, shape, values.into_iter().map(|v| v as f64));
        }
        let mut data = Vec::new();
        for v in values {
            push_int(&mut data, dtype, v);
        }
        debug_assert_eq!(data.len(), shape.iter().product::<usize>() * dtype.size());
        Tensor { dtype, shape, data: data.into() }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The same bytes under another shape of the same element count.
    pub fn reshaped(&self, shape: Vec<usize>) -> Option<Tensor> {
        Tensor::from_bytes(self.dtype, shape, self.data.clone())
    }

    /// Elements as `f64` (exact for every dtype but large `i64`).
    pub fn to_f64(&self) -> Vec<f64> {
        let d = &self.data;
        match self.dtype {
            DType::F32 => each::<4>(d).map(|b| f32::from_le_bytes(b) as f64).collect(),
            DType::F64 => each::<8>(d).map(f64::from_le_bytes).collect(),
            DType::F16 => each::<2>(d).map(|b| f16::from_le_bytes(b).to_f64()).collect(),
            DType::BF16 => each::<2>(d).map(|b| bf16::from_le_bytes(b).to_f64()).collect(),
            _ => self.to_i64().into_iter().map(|v| v as f64).collect(),
        }
    }

    /// Elements as `i64`; floats are truncated, `bool` is 0 or 1.
    pub fn to_i64(&self) -> Vec<i64> {
        let d = &self.data;
        match self.dtype {
            DType::I8 => d.iter().map(|b| *b as i8 as i64).collect(),
            DType::U8 => d.iter().map(|b| *b as i64).collect(),
            DType::Bool => d.iter().map(|b| (*b != 0) as i64).collect(),
            DType::I32 => each::<4>(d).map(|b| i32::from_le_bytes(b) as i64).collect(),
            DType::I64 => each::<8>(d).map(i64::from_le_bytes).collect(),
            _ => self.to_f64().into_iter().map(|v| v as i64).collect(),
        }
    }

    /// The one value every element has, bit for bit, if there is one.
    pub fn splat_value(&self) -> Option<f64> {
        let size = self.dtype.size();
        let mut elements = self.data.chunks_exact(size);
        let first = elements.next()?;
        if elements.all(|e| e == first) {
            Tensor { dtype: self.dtype, shape: vec![], data: first.into() }.to_f64().pop()
        } else {
            None
        }
    }
}

fn push_int(data: &mut Vec<u8>, dtype: DType, v: i64) {
    match dtype {
        DType::I8 | DType::U8 => data.push(v as u8),
        DType::Bool => data.push((v != 0) as u8),
        DType::I32 => data.extend((v as i32).to_le_bytes()),
        _ => data.extend(v.to_le_bytes()),
    }
}

fn each<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.chunks_exact(N).map(|c| std::array::from_fn(|i| c[i]))
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 {
            write!(f, " {:?}", self.to_f64())?;
        }
        Ok(())
    }
}
