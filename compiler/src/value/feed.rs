//! What a call is fed.

use super::{Element, Value, bytes_mut};
use crate::error::Result;
use ndarray::{ArrayBase, ArrayViewMutD, Data, Dimension};
use tfc_ir::diag::Diag;
use tfc_ir::{DType, Tensor};
use tfc_runtime::FeedView;
use tfc_runtime::mem::Bytes;

/// A tensor lent to a call: an array, a slice, a tensor or a number.
///
/// Memory that is dense and row-major is used as it lies; another layout is
/// copied, once.
///
/// ```
/// use tfc::Feed;
/// let numbers = vec![1.0f32, 2.0, 3.0, 4.0];
/// assert_eq!(Feed::from(&numbers).shape(), [4]);
/// assert_eq!(Feed::shaped(&[2, 2], &numbers)?.shape(), [2, 2]);
/// assert!(Feed::from(7i64).shape().is_empty());
/// # Ok::<(), tfc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Feed<'a> {
    dtype: DType,
    shape: Sizes<'a>,
    data: Bits<'a>,
}

#[derive(Clone, Debug)]
enum Sizes<'a> {
    Borrowed(&'a [usize]),
    One([usize; 1]),
}

#[derive(Clone, Debug)]
enum Bits<'a> {
    Borrowed(&'a [u8]),
    Owned(Bytes),
    Number(Number, usize),
}

/// One element of any type.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
struct Number([u8; 8]);

impl<'a> Feed<'a> {
    /// Numbers in row-major order with a shape.
    pub fn shaped<T: Element>(shape: &'a [usize], values: &'a [T]) -> Result<Feed<'a>> {
        let want = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if want != Some(values.len()) {
            let message = format!("{} numbers do not have the shape {shape:?}", values.len());
            return Err(Diag::error("E0505", message).into());
        }
        let data = Bits::Borrowed(T::bytes(values));
        Ok(Feed { dtype: T::DTYPE, shape: Sizes::Borrowed(shape), data })
    }

    pub(crate) fn view(&self) -> FeedView<'_> {
        let data: &[u8] = match &self.data {
            Bits::Borrowed(data) => data,
            Bits::Owned(data) => data,
            Bits::Number(number, size) => &number.0[..*size],
        };
        FeedView { dtype: self.dtype, shape: self.shape(), data }
    }

    /// A copy.
    pub fn to_tensor(&self) -> Tensor {
        let view = self.view();
        match Tensor::from_bytes(self.dtype, view.shape.to_vec(), view.data.into()) {
            Some(tensor) => tensor,
            None => unreachable!("an array has as many elements as its shape says"),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    pub fn shape(&self) -> &[usize] {
        match &self.shape {
            Sizes::Borrowed(shape) => shape,
            Sizes::One(shape) => shape,
        }
    }
}

impl<'a, T: Element, S: Data<Elem = T>, D: Dimension> From<&'a ArrayBase<S, D>> for Feed<'a> {
    fn from(array: &'a ArrayBase<S, D>) -> Feed<'a> {
        let data = match array.as_slice() {
            Some(dense) => Bits::Borrowed(T::bytes(dense)),
            None => Bits::Owned(dense(array)),
        };
        Feed { dtype: T::DTYPE, shape: Sizes::Borrowed(array.shape()), data }
    }
}

/// The elements in row-major order.
fn dense<T: Element, S: Data<Elem = T>, D: Dimension>(array: &ArrayBase<S, D>) -> Bytes {
    let size = array.len() * size_of::<T>();
    let bytes = Bytes::zeroed(size).unwrap_or_else(|_| {
        let layout = std::alloc::Layout::array::<T>(array.len());
        std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<T>()))
    });
    // SAFETY: the memory is new, aligned for any element, as long as the array,
    // and zero, which every element type has as a value.
    let values = unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr().cast::<T>(), array.len()) };
    debug_assert_eq!(bytes_mut(values).len(), size);
    if let Ok(mut place) = ArrayViewMutD::from_shape(array.shape(), values) {
        place.assign(&array.view().into_dyn());
    }
    bytes
}

impl<'a> From<&'a Tensor> for Feed<'a> {
    fn from(tensor: &'a Tensor) -> Feed<'a> {
        let data = Bits::Borrowed(tensor.bytes());
        Feed { dtype: tensor.dtype(), shape: Sizes::Borrowed(tensor.shape()), data }
    }
}

impl<'a> From<&'a Value> for Feed<'a> {
    fn from(value: &'a Value) -> Feed<'a> {
        let shape = Sizes::Borrowed(value.shape());
        Feed { dtype: value.dtype(), shape, data: Bits::Borrowed(value.bytes()) }
    }
}

impl<'a, T: Element> From<&'a [T]> for Feed<'a> {
    fn from(values: &'a [T]) -> Feed<'a> {
        let data = Bits::Borrowed(T::bytes(values));
        Feed { dtype: T::DTYPE, shape: Sizes::One([values.len()]), data }
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Feed<'a> {
    fn from(values: &'a Vec<T>) -> Feed<'a> {
        Feed::from(values.as_slice())
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Feed<'a> {
    fn from(values: &'a [T; N]) -> Feed<'a> {
        Feed::from(values.as_slice())
    }
}

impl<T: Element> From<T> for Feed<'_> {
    fn from(value: T) -> Self {
        let mut number = Number([0; 8]);
        number.0[..size_of::<T>()].copy_from_slice(T::bytes(&[value]));
        let data = Bits::Number(number, size_of::<T>());
        Feed { dtype: T::DTYPE, shape: Sizes::Borrowed(&[]), data }
    }
}

/// What a call is fed: a tuple by position, a list of feeds by position, or a list
/// of `(name, feed)`.
///
/// ```
/// use tfc::Feed;
/// let graph = tfc::parse("graph g\nentry f(a: f32[2], b: f32[]) -> (y: f32[2]) { return a * b }")?;
/// let f = tfc::compile(&graph)?;
/// let a = [1.0f32, 2.0];
/// let by_position = f.call("f", (&a, 3.0f32))?;
/// let as_a_list = f.call("f", vec![Feed::from(&a), Feed::from(3.0f32)])?;
/// let by_name = f.call("f", [("b", Feed::from(3.0f32)), ("a", Feed::from(&a))])?;
/// for out in [by_position, as_a_list, by_name] {
///     assert_eq!(out.array::<f32>("y")?.as_slice(), Some(&[3.0, 6.0][..]));
/// }
/// # Ok::<(), tfc::Error>(())
/// ```
pub trait Feeds<'a> {
    /// Hands them to `f`, without putting them anywhere on the way.
    #[doc(hidden)]
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R;
}

/// Feeds in either form.
#[doc(hidden)]
pub enum Given<'g> {
    Positional(&'g [FeedView<'g>]),
    Named(&'g [(&'g str, FeedView<'g>)]),
}

impl<'a> Feeds<'a> for () {
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
        f(Given::Positional(&[]))
    }
}

macro_rules! feeds {
    ($($t:ident)+) => {
        impl<'a, $($t: Into<Feed<'a>>),+> Feeds<'a> for ($($t,)+) {
            #[allow(non_snake_case)]
            fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
                let ($($t,)+) = self;
                let feeds = [$($t.into()),+];
                f(Given::Positional(&feeds.each_ref().map(Feed::view)))
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
feeds!(A B C D E F G H I);
feeds!(A B C D E F G H I J);
feeds!(A B C D E F G H I J K);
feeds!(A B C D E F G H I J K L);

impl<'a> Feeds<'a> for &[Feed<'a>] {
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
        f(Given::Positional(&self.iter().map(Feed::view).collect::<Vec<_>>()))
    }
}

impl<'a> Feeds<'a> for Vec<Feed<'a>> {
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
        self.as_slice().give(f)
    }
}

impl<'a, const K: usize> Feeds<'a> for [Feed<'a>; K] {
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
        f(Given::Positional(&self.each_ref().map(Feed::view)))
    }
}

fn named<'a, 'g, N: AsRef<str> + 'g>(
    feeds: impl IntoIterator<Item = &'g (N, Feed<'a>)>,
) -> Vec<(&'g str, FeedView<'g>)>
where
    'a: 'g,
{
    feeds.into_iter().map(|(name, feed)| (name.as_ref(), feed.view())).collect()
}

impl<'a, N: AsRef<str>, const K: usize> Feeds<'a> for [(N, Feed<'a>); K] {
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
        f(Given::Named(&named(&self)))
    }
}

impl<'a, N: AsRef<str>> Feeds<'a> for Vec<(N, Feed<'a>)> {
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
        f(Given::Named(&named(&self)))
    }
}

impl<'a, N: AsRef<str>> Feeds<'a> for &'a [(N, Tensor)] {
    fn give<R>(self, f: impl FnOnce(Given<'_>) -> R) -> R {
        let feeds: Vec<(&str, Feed<'_>)> =
            self.iter().map(|(n, t)| (n.as_ref(), t.into())).collect();
        f(Given::Named(&named(&feeds)))
    }
}
