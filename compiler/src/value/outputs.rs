//! Results a call makes, and the types they convert to.

use super::{Element, Value, rust_type};
use crate::error::Result;
use ndarray::{Array, ArrayD, Dimension};
use std::sync::Arc;
use tfc_ir::diag::Diag;
use tfc_ir::{DType, Tensor};

/// The named results of a call.
#[derive(Clone, Debug)]
pub struct Outputs {
    pub(crate) names: Arc<Names>,
    pub(crate) values: Vec<Value>,
}

/// What an entry and its results are called.
#[derive(Debug)]
pub(crate) struct Names {
    pub entry: String,
    pub results: Vec<String>,
}

impl Outputs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// What they are called, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.results.iter().map(String::as_str)
    }

    fn index(&self, name: &str) -> Result<usize> {
        self.names.results.iter().position(|n| n == name).ok_or_else(|| {
            let entry = &self.names.entry;
            Diag::error("E0521", format!("`{entry}` has no result `{name}`"))
                .note(format!("it has {}", crate::names(self.names())))
                .into()
        })
    }

    /// A result, without a copy; `T` must be its element type.
    pub fn view<T: Element>(&self, name: &str) -> Result<&ArrayD<T>> {
        let value = &self.values[self.index(name)?];
        T::peek(value).ok_or_else(|| wrong_type::<T>(name, value.dtype()))
    }

    /// A copy of a result; `T` must be its element type. Without a copy:
    /// [`Outputs::view`] and [`Outputs::into_arrays`].
    pub fn array<T: Element>(&self, name: &str) -> Result<ArrayD<T>> {
        self.view(name).cloned()
    }

    /// A result of one element.
    pub fn scalar<T: Element>(&self, name: &str) -> Result<T> {
        one(self.view(name)?, name)
    }

    /// A copy of a result, whatever its element type.
    pub fn value(&self, name: &str) -> Result<Value> {
        Ok(self.values[self.index(name)?].clone())
    }

    /// The results in order, whatever their element types.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }

    /// A result as bytes with a type.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        Ok(self.values[self.index(name)?].tensor())
    }

    /// The results in order, as the given types: arrays of any or a fixed number
    /// of axes, numbers, vectors.
    ///
    /// ```
    /// use tfc::ndarray::{Array2, array};
    /// let graph = tfc::parse(
    ///     "graph g\nentry f(x: f32[2, 2]) -> (double: f32[2, 2], sum: f32[]) { return x + x, sum(x) }",
    /// )?;
    /// let module = tfc::compile(&graph)?;
    /// let x = array![[1.0f32, 2.0], [3.0, 4.0]];
    /// let (double, sum): (Array2<f32>, f32) = module.call("f", (&x,))?.into_arrays()?;
    /// assert_eq!((double[[1, 1]], sum), (8.0, 10.0));
    /// # Ok::<(), tfc::Error>(())
    /// ```
    pub fn into_arrays<R: Arrays>(self) -> Result<R> {
        R::from_outputs(self)
    }
}

fn wrong_type<T: Element>(name: &str, is: DType) -> crate::Error {
    Diag::error("E0503", format!("`{name}` is {is}, not {}", T::DTYPE))
        .help(format!("ask for `{}` elements", rust_type(is)))
        .into()
}

fn one<T: Element>(array: &ArrayD<T>, name: &str) -> Result<T> {
    match array.first() {
        Some(value) if array.len() == 1 => Ok(*value),
        _ => {
            let message = format!("`{name}` has {} elements, not one", array.len());
            Err(Diag::error("E0505", message).into())
        }
    }
}

/// A type one result converts to: an array, a number, a vector, a [`Value`].
pub trait Part: Sized {
    /// The element type it must have, if it must.
    fn dtype() -> Option<DType>;

    /// The number of axes it must have, if it must.
    fn rank() -> Option<usize>;

    /// The result called `name`.
    fn from_value(value: Value, name: &str) -> Result<Self>;
}

impl<T: Element, D: Dimension> Part for Array<T, D> {
    fn dtype() -> Option<DType> {
        Some(T::DTYPE)
    }

    fn rank() -> Option<usize> {
        D::NDIM
    }

    fn from_value(value: Value, name: &str) -> Result<Array<T, D>> {
        let dtype = value.dtype();
        let array = T::unwrap(value).ok_or_else(|| wrong_type::<T>(name, dtype))?;
        let axes = array.ndim();
        array.into_dimensionality().map_err(|_| {
            let want = D::NDIM.unwrap_or(axes);
            Diag::error("E0504", format!("`{name}` has {axes} axes, not {want}")).into()
        })
    }
}

impl<T: Element> Part for Vec<T> {
    fn dtype() -> Option<DType> {
        Some(T::DTYPE)
    }

    fn rank() -> Option<usize> {
        None
    }

    /// The elements in row-major order.
    fn from_value(value: Value, name: &str) -> Result<Vec<T>> {
        let array: ArrayD<T> = Part::from_value(value, name)?;
        // Results are dense and row-major, from their first element on.
        Ok(array.into_raw_vec_and_offset().0)
    }
}

impl Part for Value {
    fn dtype() -> Option<DType> {
        None
    }

    fn rank() -> Option<usize> {
        None
    }

    fn from_value(value: Value, _: &str) -> Result<Value> {
        Ok(value)
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Part for $t {
            fn dtype() -> Option<DType> {
                Some(<$t>::DTYPE)
            }

            fn rank() -> Option<usize> {
                None
            }

            fn from_value(value: Value, name: &str) -> Result<$t> {
                let array: ArrayD<$t> = Part::from_value(value, name)?;
                one(&array, name)
            }
        }
    )*};
}
numbers!(f32, f64, half::f16, half::bf16, i8, u8, i32, i64, bool);

/// What the results of an entry convert to: one [`Part`], or a tuple of them.
pub trait Arrays: Sized {
    /// What each result must be: its element type and number of axes.
    fn types() -> Vec<(Option<DType>, Option<usize>)>;

    /// The results of a call, moved.
    fn from_outputs(outputs: Outputs) -> Result<Self>;
}

impl Arrays for () {
    fn types() -> Vec<(Option<DType>, Option<usize>)> {
        vec![]
    }

    fn from_outputs(_: Outputs) -> Result<()> {
        Ok(())
    }
}

fn wrong_count(outputs: &Outputs, want: usize) -> crate::Error {
    let (entry, have) = (&outputs.names.entry, outputs.len());
    Diag::error("E0521", format!("`{entry}` has {have} results, not {want}")).into()
}

impl<P: Part> Arrays for P {
    fn types() -> Vec<(Option<DType>, Option<usize>)> {
        vec![(P::dtype(), P::rank())]
    }

    fn from_outputs(mut outputs: Outputs) -> Result<P> {
        match (outputs.values.pop(), outputs.names.results.first()) {
            (Some(value), Some(name)) if outputs.is_empty() => P::from_value(value, name),
            (popped, _) => {
                outputs.values.extend(popped);
                Err(wrong_count(&outputs, 1))
            }
        }
    }
}

macro_rules! arrays {
    ($count:literal $($t:ident)+) => {
        impl<$($t: Part),+> Arrays for ($($t,)+) {
            fn types() -> Vec<(Option<DType>, Option<usize>)> {
                vec![$(($t::dtype(), $t::rank())),+]
            }

            fn from_outputs(outputs: Outputs) -> Result<Self> {
                if outputs.len() != $count {
                    return Err(wrong_count(&outputs, $count));
                }
                let names = outputs.names.clone();
                let mut parts = outputs.values.into_iter().zip(&names.results);
                Ok(($({
                    let Some((value, name)) = parts.next() else {
                        return Err(crate::Error::bug("a result is missing"));
                    };
                    $t::from_value(value, name)?
                },)+))
            }
        }
    };
}
arrays!(1 A);
arrays!(2 A B);
arrays!(3 A B C);
arrays!(4 A B C D);
arrays!(5 A B C D E);
arrays!(6 A B C D E F);
arrays!(7 A B C D E F G);
arrays!(8 A B C D E F G H);
