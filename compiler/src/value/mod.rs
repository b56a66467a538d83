//! Arrays at the edge of a compiled module.
//!
//! | module | what |
//! |---|---|
//! | [`feed`] | what a call is fed: borrowed where it lies dense in memory |
//! | [`room`] | the caller's memory, for results |
//! | [`outputs`] | results a call makes, and the types they convert to |
//!
//! Results are written once: into the caller's memory, or into the memory of the
//! arrays that are handed out.

pub mod feed;
pub mod outputs;
pub mod room;

pub use feed::{Feed, Feeds};
pub use outputs::{Arrays, Outputs, Part};
pub use room::{Results, Room};

use crate::error::Result;
use ndarray::ArrayD;
use std::alloc::{Layout, alloc_zeroed};
use tfc_ir::diag::Diag;
use tfc_ir::{DType, Tensor};
use tfc_runtime::TensorBuf;

/// Rust types that are elements of tensors: `f32`, `f64`, `half::f16`,
/// `half::bf16`, `i8`, `u8`, `i32`, `i64` and `bool`.
pub trait Element: raw::Raw {
    /// The element type in graphs.
    const DTYPE: DType;

    /// The elements in memory.
    fn bytes(values: &[Self]) -> &[u8];
}

/// What only this crate may implement and use.
pub(crate) mod raw {
    use super::{ArrayD, Value};

    /// Every value of all-zero bits is valid, and there is no padding.
    pub trait Raw: Clone + Copy + Default + Send + Sync + PartialEq + 'static {
        /// Elements from their bytes; the length is a multiple of the size.
        fn from_bytes(bytes: &[u8]) -> Vec<Self>;
        fn wrap(array: ArrayD<Self>) -> Value;
        fn peek(value: &Value) -> Option<&ArrayD<Self>>;
        fn unwrap(value: Value) -> Option<ArrayD<Self>>;
    }
}

macro_rules! elements {
    ($($t:ty => $dtype:ident),* $(,)?) => {
        $(
            impl Element for $t {
                const DTYPE: DType = DType::$dtype;

                fn bytes(values: &[$t]) -> &[u8] {
                    // SAFETY: the type has no padding, any alignment is enough
                    // for bytes, and the length is its size in bytes.
                    unsafe {
                        std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values))
                    }
                }
            }

            impl raw::Raw for $t {
                fn from_bytes(bytes: &[u8]) -> Vec<$t> {
                    let chunks = bytes.chunks_exact(size_of::<$t>());
                    chunks.map(|c| elements!(@from $dtype $t, c)).collect()
                }

                fn wrap(array: ArrayD<$t>) -> Value {
                    Value::$dtype(array)
                }

                fn peek(value: &Value) -> Option<&ArrayD<$t>> {
                    if let Value::$dtype(array) = value { Some(array) } else { None }
                }

                fn unwrap(value: Value) -> Option<ArrayD<$t>> {
                    if let Value::$dtype(array) = value { Some(array) } else { None }
                }
            }
        )*

        /// A result: one array of one of the element types.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each is the array of its element type")]
        pub enum Value {
            $($dtype(ArrayD<$t>),)*
        }

        impl Value {
            /// The element type.
            pub fn dtype(&self) -> DType {
                match self {
                    $(Value::$dtype(_) => DType::$dtype,)*
                }
            }

            /// The sizes.
            pub fn shape(&self) -> &[usize] {
                match self {
                    $(Value::$dtype(array) => array.shape(),)*
                }
            }

            /// Zeros of a type, which a call fills.
            pub(crate) fn zeros(dtype: DType, shape: &[usize]) -> Result<Value> {
                match dtype {
                    $(DType::$dtype => zeros::<$t>(shape).map(Value::$dtype),)*
                }
            }

            /// The elements, which are dense. What is written is valid after
            /// [`tidy`] only.
            pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
                match self {
                    $(Value::$dtype(array) => match array.as_slice_mut() {
                        Some(slice) => bytes_mut(slice),
                        None => &mut [],
                    },)*
                }
            }

            pub(crate) fn bytes(&self) -> &[u8] {
                match self {
                    $(Value::$dtype(array) => array.as_slice().map_or(&[], <$t>::bytes),)*
                }
            }
        }
    };
    (@from Bool $t:ty, $c:ident) => { $c[0] != 0 };
    (@from $dtype:ident $t:ty, $c:ident) => {
        <$t>::from_ne_bytes(std::array::from_fn(|i| $c[i]))
    };
}

elements! {
    f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16, i8 => I8, u8 => U8,
    i32 => I32, i64 => I64, bool => Bool,
}

impl Value {
    /// The array, if its elements are of type `T`.
    pub fn array<T: Element>(&self) -> Option<&ArrayD<T>> {
        T::peek(self)
    }

    /// The array itself, if its elements are of type `T`.
    pub fn into_array<T: Element>(self) -> Option<ArrayD<T>> {
        T::unwrap(self)
    }

    pub(crate) fn tensor(&self) -> Tensor {
        match Tensor::from_bytes(self.dtype(), self.shape().to_vec(), self.bytes().into()) {
            Some(tensor) => tensor,
            None => unreachable!("an array has as many elements as its shape says"),
        }
    }
}

/// Elements as bytes to be written. Bools that are neither 0 nor 1 must be made
/// so ([`tidy`]) before anybody looks at them as bools.
pub(crate) fn bytes_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `Element::bytes`; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), size_of_val(values)) }
}

/// Makes bytes that were written as bools bools.
pub(crate) fn tidy(dtype: DType, bytes: &mut [u8]) {
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
}

/// An array of zeros, in pages that cost nothing until they are written.
fn zeros<T: Element>(shape: &[usize]) -> Result<ArrayD<T>> {
    let too_large = || {
        let message = format!("cannot get memory for {}{shape:?}", T::DTYPE);
        crate::Error::from(Diag::error("E0516", message))
    };
    let len = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).ok_or_else(too_large)?;
    let layout = Layout::array::<T>(len).map_err(|_| too_large())?;
    let values: Vec<T> = if layout.size() == 0 {
        vec![]
    } else {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) }.cast::<T>();
        if memory.is_null() {
            return Err(too_large());
        }
        // SAFETY: from the global allocator with the layout of `len` elements,
        // all of which are valid when zero.
        unsafe { Vec::from_raw_parts(memory, len, len) }
    };
    ArrayD::from_shape_vec(shape, values).map_err(|_| too_large())
}

pub(crate) fn array_of<T: Element>(buf: &TensorBuf) -> ArrayD<T> {
    match ArrayD::from_shape_vec(buf.shape.clone(), T::from_bytes(buf.bytes())) {
        Ok(array) => array,
        Err(_) => unreachable!("a tensor has as many elements as its shape says"),
    }
}

pub(crate) fn tensor_of(buf: &TensorBuf) -> Tensor {
    match Tensor::from_bytes(buf.dtype, buf.shape.clone(), buf.bytes().into()) {
        Some(tensor) => tensor,
        None => unreachable!("a tensor has as many elements as its shape says"),
    }
}

/// How Rust calls an element type.
pub(crate) fn rust_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "half::f16",
        DType::BF16 => "half::bf16",
        other => other.name(),
    }
}
