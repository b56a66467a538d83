//! Arrays at the edge of a compiled module.
//!
//! Feeds are borrowed: a dense row-major `ndarray` array is handed to the
//! program as it lies in memory; another layout is copied first. Results are
//! owned.

use crate::error::Result;
use ndarray::{ArrayBase, ArrayD, Data, Dimension};
use std::borrow::Cow;
use tfc_ir::diag::Diag;
use tfc_ir::{DType, Tensor};
use tfc_runtime::{FeedView, TensorBuf};

/// Rust types that are elements of tensors.
pub trait Element: Clone + Copy + Send + Sync + 'static {
    const DTYPE: DType;

    /// The elements in memory.
    fn bytes(values: &[Self]) -> &[u8];

    /// Elements from their bytes; the length is a multiple of the size.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($($t:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;

            fn bytes(values: &[$t]) -> &[u8] {
                // SAFETY: the type is a plain number: no padding, any alignment
                // is enough for bytes, and the length is its size in bytes.
                unsafe {
                    std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values))
                }
            }

            fn from_bytes(bytes: &[u8]) -> Vec<$t> {
                let chunks = bytes.chunks_exact(size_of::<$t>());
                chunks.map(|c| <$t>::from_ne_bytes(std::array::from_fn(|i| c[i]))).collect()
            }
        }
    )*};
}

element! {
    f32 => F32, f64 => F64, i8 => I8, u8 => U8, i32 => I32, i64 => I64,
    half::f16 => F16, half::bf16 => BF16,
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn bytes(values: &[bool]) -> &[u8] {
        // SAFETY: a bool is one byte, 0 or 1.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }

    fn from_bytes(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|b| *b != 0).collect()
    }
}

/// A tensor lent to a call.
#[derive(Clone, Debug)]
pub struct Feed<'a> {
    dtype: DType,
    shape: Cow<'a, [usize]>,
    data: Cow<'a, [u8]>,
}

impl Feed<'_> {
    pub(crate) fn view(&self) -> FeedView<'_> {
        FeedView { dtype: self.dtype, shape: &self.shape, data: &self.data }
    }

    /// A copy.
    pub fn to_tensor(&self) -> Tensor {
        let data = self.data.as_ref().into();
        match Tensor::from_bytes(self.dtype, self.shape.to_vec(), data) {
            Some(tensor) => tensor,
            None => unreachable!("an array has as many elements as its shape says"),
        }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl<'a, T: Element, S: Data<Elem = T>, D: Dimension> From<&'a ArrayBase<S, D>> for Feed<'a> {
    fn from(array: &'a ArrayBase<S, D>) -> Feed<'a> {
        let data = match array.as_slice() {
            Some(dense) => Cow::Borrowed(T::bytes(dense)),
            None => {
                let dense: Vec<T> = array.iter().copied().collect();
                Cow::Owned(T::bytes(&dense).to_vec())
            }
        };
        Feed { dtype: T::DTYPE, shape: Cow::Borrowed(array.shape()), data }
    }
}

impl<'a> From<&'a Tensor> for Feed<'a> {
    fn from(tensor: &'a Tensor) -> Feed<'a> {
        let data = Cow::Borrowed(tensor.bytes());
        Feed { dtype: tensor.dtype(), shape: Cow::Borrowed(tensor.shape()), data }
    }
}

impl<T: Element> From<T> for Feed<'_> {
    fn from(value: T) -> Self {
        let data = Cow::Owned(T::bytes(&[value]).to_vec());
        Feed { dtype: T::DTYPE, shape: Cow::Borrowed(&[]), data }
    }
}

/// A result: one array of one of the element types.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    F32(ArrayD<f32>),
    F64(ArrayD<f64>),
    F16(ArrayD<half::f16>),
    BF16(ArrayD<half::bf16>),
    I8(ArrayD<i8>),
    U8(ArrayD<u8>),
    I32(ArrayD<i32>),
    I64(ArrayD<i64>),
    Bool(ArrayD<bool>),
}

pub(crate) fn array_of<T: Element>(buf: &TensorBuf) -> ArrayD<T> {
    match ArrayD::from_shape_vec(buf.shape.clone(), T::from_bytes(buf.bytes())) {
        Ok(array) => array,
        Err(_) => unreachable!("a tensor has as many elements as its shape says"),
    }
}

impl From<&TensorBuf> for Value {
    fn from(buf: &TensorBuf) -> Value {
        match buf.dtype {
            DType::F32 => Value::F32(array_of(buf)),
            DType::F64 => Value::F64(array_of(buf)),
            DType::F16 => Value::F16(array_of(buf)),
            DType::BF16 => Value::BF16(array_of(buf)),
            DType::I8 => Value::I8(array_of(buf)),
            DType::U8 => Value::U8(array_of(buf)),
            DType::I32 => Value::I32(array_of(buf)),
            DType::I64 => Value::I64(array_of(buf)),
            DType::Bool => Value::Bool(array_of(buf)),
        }
    }
}

/// The named results of a call.
#[derive(Clone, Debug)]
pub struct Outputs {
    pub(crate) entry: String,
    pub(crate) names: Vec<String>,
    pub(crate) values: Vec<TensorBuf>,
}

impl Outputs {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    fn find(&self, name: &str) -> Result<&TensorBuf> {
        match self.names.iter().position(|n| n == name) {
            Some(i) => Ok(&self.values[i]),
            None => {
                let entry = &self.entry;
                let diag = Diag::error("E0521", format!("`{entry}` has no result `{name}`"))
                    .note(format!("it has {}", crate::names(self.names())));
                Err(diag.into())
            }
        }
    }

    /// A result as an array of `T`, which must be its element type.
    pub fn array<T: Element>(&self, name: &str) -> Result<ArrayD<T>> {
        typed(self.find(name)?, name)
    }

    /// A result of one element.
    pub fn scalar<T: Element>(&self, name: &str) -> Result<T> {
        let array: ArrayD<T> = self.array(name)?;
        match array.first() {
            Some(value) if array.len() == 1 => Ok(*value),
            _ => {
                Err(Diag::error("E0505", format!("`{name}` has {} elements, not one", array.len()))
                    .into())
            }
        }
    }

    /// A result, whatever its element type.
    pub fn value(&self, name: &str) -> Result<Value> {
        self.find(name).map(Value::from)
    }

    /// A result as bytes with a type.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.find(name).map(tensor_of)
    }

    /// The results in order, as arrays of the given types:
    /// `let (class, logits): (ArrayD<i32>, ArrayD<f32>) = outputs.into_arrays()?;`
    pub fn into_arrays<R: Arrays>(self) -> Result<R> {
        R::from_outputs(&self)
    }
}

pub(crate) fn tensor_of(buf: &TensorBuf) -> Tensor {
    match Tensor::from_bytes(buf.dtype, buf.shape.clone(), buf.bytes().into()) {
        Some(tensor) => tensor,
        None => unreachable!("a tensor has as many elements as its shape says"),
    }
}

fn typed<T: Element>(buf: &TensorBuf, name: &str) -> Result<ArrayD<T>> {
    if buf.dtype != T::DTYPE {
        let diag = Diag::error("E0503", format!("`{name}` is {}, not {}", buf.dtype, T::DTYPE))
            .help(format!("ask for `array::<{}>`", rust_type(buf.dtype)));
        return Err(diag.into());
    }
    Ok(array_of(buf))
}

fn rust_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "half::f16",
        DType::BF16 => "half::bf16",
        other => other.name(),
    }
}

/// A tuple of arrays (or one array) the results of an entry convert to.
pub trait Arrays: Sized {
    /// Element types, in order.
    fn dtypes() -> Vec<DType>;
    fn from_outputs(outputs: &Outputs) -> Result<Self>;
}

fn part<T: Element>(outputs: &Outputs, i: usize, want: usize) -> Result<ArrayD<T>> {
    match (outputs.values.get(i), outputs.names.get(i)) {
        (Some(buf), Some(name)) if outputs.len() == want => typed(buf, name),
        _ => {
            let (entry, have) = (&outputs.entry, outputs.len());
            let message = format!("`{entry}` has {have} results, not {want}");
            Err(Diag::error("E0521", message).into())
        }
    }
}

impl<T: Element> Arrays for ArrayD<T> {
    fn dtypes() -> Vec<DType> {
        vec![T::DTYPE]
    }

    fn from_outputs(outputs: &Outputs) -> Result<ArrayD<T>> {
        part(outputs, 0, 1)
    }
}

impl Arrays for () {
    fn dtypes() -> Vec<DType> {
        vec![]
    }

    fn from_outputs(_: &Outputs) -> Result<()> {
        Ok(())
    }
}

macro_rules! arrays {
    ($count:literal $($t:ident $i:literal)+) => {
        impl<$($t: Element),+> Arrays for ($(ArrayD<$t>,)+) {
            fn dtypes() -> Vec<DType> {
                vec![$($t::DTYPE),+]
            }

            fn from_outputs(outputs: &Outputs) -> Result<Self> {
                Ok(($(part::<$t>(outputs, $i, $count)?,)+))
            }
        }
    };
}
arrays!(1 A 0);
arrays!(2 A 0 B 1);
arrays!(3 A 0 B 1 C 2);
arrays!(4 A 0 B 1 C 2 D 3);
arrays!(5 A 0 B 1 C 2 D 3 E 4);
arrays!(6 A 0 B 1 C 2 D 3 E 4 F 5);

/// What a call is fed: a tuple by position, or a list by name.
pub trait Feeds<'a> {
    fn feeds(self) -> FeedList<'a>;
}

/// Feeds in either form.
pub enum FeedList<'a> {
    Positional(Vec<Feed<'a>>),
    Named(Vec<(String, Feed<'a>)>),
}

impl<'a> Feeds<'a> for () {
    fn feeds(self) -> FeedList<'a> {
        FeedList::Positional(vec![])
    }
}

macro_rules! feeds {
    ($($t:ident)+) => {
        impl<'a, $($t: Into<Feed<'a>>),+> Feeds<'a> for ($($t,)+) {
            #[allow(non_snake_case)]
            fn feeds(self) -> FeedList<'a> {
                let ($($t,)+) = self;
                FeedList::Positional(vec![$($t.into()),+])
            }
        }
    };
}
feeds!(A);
feeds!(A B);
feeds!(A B C);
feeds!(A B C D);
feeds!(A B C D E);
feeds!(A B C D E F);
feeds!(A B C D E F G);
feeds!(A B C D E F G H);

impl<'a, N: AsRef<str>, const K: usize> Feeds<'a> for [(N, Feed<'a>); K] {
    fn feeds(self) -> FeedList<'a> {
        let named = self.into_iter().map(|(n, f)| (n.as_ref().to_string(), f));
        FeedList::Named(named.collect())
    }
}

impl<'a, N: AsRef<str>> Feeds<'a> for Vec<(N, Feed<'a>)> {
    fn feeds(self) -> FeedList<'a> {
        let named = self.into_iter().map(|(n, f)| (n.as_ref().to_string(), f));
        FeedList::Named(named.collect())
    }
}

impl<'a, N: AsRef<str>> Feeds<'a> for &'a [(N, Tensor)] {
    fn feeds(self) -> FeedList<'a> {
        FeedList::Named(self.iter().map(|(n, t)| (n.as_ref().to_string(), t.into())).collect())
    }
}
