//! The caller's memory, for results.

use super::{Element, bytes_mut};
use ndarray::{ArrayBase, DataMut, Dimension};
use tfc_ir::DType;
use tfc_runtime::ResultView;

/// Memory for one result: a slice, a vector, an array or a number, exclusively
/// borrowed for a call.
///
/// A slice must have room for the result's elements, in row-major order; more is
/// left alone. An array must have its very shape, and lie dense and row-major.
#[derive(Debug)]
pub struct Room<'a> {
    info: Info,
    data: &'a mut [u8],
}

/// What is known of it besides its bytes.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Info {
    pub(crate) dtype: DType,
    /// Of an array.
    pub(crate) shape: Option<Extent>,
    /// It does not lie dense and row-major.
    pub(crate) scattered: bool,
}

/// A shape, without an allocation unless it is very long.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    Few([usize; 6], usize),
    Many(Vec<usize>),
}

impl Extent {
    fn new(shape: &[usize]) -> Extent {
        let mut few = [0; 6];
        match few.get_mut(..shape.len()) {
            Some(place) => {
                place.copy_from_slice(shape);
                Extent::Few(few, shape.len())
            }
            None => Extent::Many(shape.to_vec()),
        }
    }

    pub(crate) fn sizes(&self) -> &[usize] {
        match self {
            Extent::Few(sizes, len) => &sizes[..*len],
            Extent::Many(sizes) => sizes,
        }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for Room<'a> {
    fn from(values: &'a mut [T]) -> Room<'a> {
        let info = Info { dtype: T::DTYPE, shape: None, scattered: false };
        Room { info, data: bytes_mut(values) }
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for Room<'a> {
    fn from(values: &'a mut Vec<T>) -> Room<'a> {
        Room::from(values.as_mut_slice())
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for Room<'a> {
    fn from(values: &'a mut [T; N]) -> Room<'a> {
        Room::from(values.as_mut_slice())
    }
}

impl<'a, T: Element> From<&'a mut T> for Room<'a> {
    fn from(value: &'a mut T) -> Room<'a> {
        Room::from(std::slice::from_mut(value))
    }
}

impl<'a, T: Element, S: DataMut<Elem = T>, D: Dimension> From<&'a mut ArrayBase<S, D>>
    for Room<'a>
{
    fn from(array: &'a mut ArrayBase<S, D>) -> Room<'a> {
        let shape = Some(Extent::new(array.shape()));
        match array.as_slice_mut() {
            Some(values) => {
                let info = Info { dtype: T::DTYPE, shape, scattered: false };
                Room { info, data: bytes_mut(values) }
            }
            None => {
                let info = Info { dtype: T::DTYPE, shape, scattered: true };
                Room { info, data: &mut [] }
            }
        }
    }
}

/// Memory for all results of an entry, in order: a tuple, or a list of [`Room`]s.
pub trait Results<'a> {
    /// Hands it to `f`, without putting it anywhere on the way.
    #[doc(hidden)]
    fn lend<R>(self, f: impl FnOnce(&[Info], &mut [ResultView<'_>]) -> R) -> R;
}

impl<'a> Results<'a> for () {
    fn lend<R>(self, f: impl FnOnce(&[Info], &mut [ResultView<'_>]) -> R) -> R {
        f(&[], &mut [])
    }
}

impl<'a> Results<'a> for Vec<Room<'a>> {
    fn lend<R>(self, f: impl FnOnce(&[Info], &mut [ResultView<'_>]) -> R) -> R {
        let infos: Vec<Info> = self.iter().map(|r| r.info.clone()).collect();
        let mut views: Vec<_> = self.into_iter().map(|r| ResultView { data: r.data }).collect();
        f(&infos, &mut views)
    }
}

macro_rules! results {
    ($($t:ident)+) => {
        impl<'a, $($t: Into<Room<'a>>),+> Results<'a> for ($($t,)+) {
            #[allow(non_snake_case)]
            fn lend<R>(self, f: impl FnOnce(&[Info], &mut [ResultView<'_>]) -> R) -> R {
                let ($($t,)+) = self;
                let rooms: [Room<'a>; _] = [$($t.into()),+];
                let infos = rooms.each_ref().map(|r| r.info.clone());
                f(&infos, &mut rooms.map(|r| ResultView { data: r.data }))
            }
        }
    };
}
results!(A);
results!(A B);
results!(A B C);
results!(A B C D);
results!(A B C D E);
results!(A B C D E F);
results!(A B C D E F G);
results!(A B C D E F G H);
