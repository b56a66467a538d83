//! Arrays of the reference semantics.
//!
//! The oracle computes floats in `f64` and integers in `i64`, and rounds or
//! wraps to the element type after every op. So each op has one float and one
//! integer definition, and what it says is the correctly rounded answer.
//!
//! Elementary functions come from `libm`, not from the standard library, which
//! calls whatever C library the machine has: constants folded into a program are
//! the same bits everywhere.

use crate::{DType, Tensor};
use half::{bf16, f16};
use ndarray::ArrayD;
use tfc_abi::float::round_to_odd;

#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    pub dtype: DType,
    pub data: Data,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    Float(ArrayD<f64>),
    Int(ArrayD<i64>),
    Bool(ArrayD<bool>),
}

/// Rounds to the nearest value of a float dtype.
pub fn round_to(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F32 => v as f32 as f64,
        DType::F16 => f16::from_f32(round_to_odd(v)).to_f64(),
        DType::BF16 => bf16::from_f32(round_to_odd(v)).to_f64(),
        _ => v,
    }
}

/// Wraps to the range of an integer dtype.
pub fn wrap_to(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::I8 => v as i8 as i64,
        DType::U8 => v as u8 as i64,
        DType::I32 => v as i32 as i64,
        _ => v,
    }
}

impl Array {
    /// Rounds every element to `dtype`.
    pub fn float(dtype: DType, mut data: ArrayD<f64>) -> Array {
        debug_assert!(dtype.is_float());
        if dtype != DType::F64 {
            data.mapv_inplace(|v| round_to(dtype, v));
        }
        Array { dtype, data: Data::Float(data) }
    }

    /// Wraps every element to `dtype`.
    pub fn int(dtype: DType, mut data: ArrayD<i64>) -> Array {
        debug_assert!(dtype.is_int());
        if dtype != DType::I64 {
            data.mapv_inplace(|v| wrap_to(dtype, v));
        }
        Array { dtype, data: Data::Int(data) }
    }

    pub fn bool(data: ArrayD<bool>) -> Array {
        Array { dtype: DType::Bool, data: Data::Bool(data) }
    }

    pub fn shape(&self) -> &[usize] {
        match &self.data {
            Data::Float(a) => a.shape(),
            Data::Int(a) => a.shape(),
            Data::Bool(a) => a.shape(),
        }
    }

    pub fn from_tensor(t: &Tensor) -> Array {
        let shape = t.shape().to_vec();
        let data = match t.dtype() {
            d if d.is_float() => Data::Float(filled(shape, t.to_f64())),
            DType::Bool => {
                Data::Bool(filled(shape, t.to_i64().into_iter().map(|v| v != 0).collect()))
            }
            _ => Data::Int(filled(shape, t.to_i64())),
        };
        Array { dtype: t.dtype(), data }
    }

    pub fn to_tensor(&self) -> Tensor {
        let shape = self.shape().to_vec();
        match &self.data {
            Data::Float(a) => Tensor::from_f64(self.dtype, shape, a.iter().copied()),
            Data::Int(a) => Tensor::from_i64(self.dtype, shape, a.iter().copied()),
            Data::Bool(a) => Tensor::from_i64(self.dtype, shape, a.iter().map(|v| *v as i64)),
        }
    }
}

fn filled<T: Clone>(shape: Vec<usize>, values: Vec<T>) -> ArrayD<T> {
    // The element count matches: `Tensor` keeps that invariant.
    ArrayD::from_shape_vec(shape, values).unwrap_or_else(|_| unreachable!("tensor length"))
}
