//! What ops with one attribute entry per axis share: checks and evaluation.

use crate::op::{Blame, EvalCx, InferCx, InferError};
use crate::{Attrs, DType, Dim};
use ndarray::{ArrayD, IxDyn};

/// The list attribute `name` has `count` entries.
pub fn entries(cx: &InferCx<'_>, name: &'static str, count: usize) -> Result<(), InferError> {
    let given = cx.attrs.shape(name).len().max(cx.attrs.ints(name).len());
    if given == count {
        return Ok(());
    }
    let mut err = InferError::new(
        "E0230",
        format!("`{name}` of `{}` needs {count} entries, but has {given}", cx.op),
    )
    .at(Blame::Attr(name), format!("this has {given}"));
    if let Some(x) = cx.operands.first() {
        err = err.at(Blame::Operand(0), format!("this is {x}, rank {}", x.rank()));
    }
    Err(err)
}

/// Every size of a shape attribute could be the size of an axis.
pub fn no_negative_size(cx: &InferCx<'_>, name: &'static str) -> Result<(), InferError> {
    match cx.attrs.shape(name).iter().position(Dim::is_always_negative) {
        None => Ok(()),
        Some(axis) => Err(InferError::new(
            "E0231",
            format!("a size cannot be negative, but axis {axis} would have {}", {
                &cx.attrs.shape(name)[axis]
            }),
        )
        .at(Blame::Attr(name), format!("`{name}` of `{}`", cx.op))),
    }
}

/// Operands `a` and `b` have one element type.
pub fn same_dtype(cx: &InferCx<'_>, a: usize, b: usize) -> Result<(), InferError> {
    let (ta, tb) = (cx.operands[a].dtype, cx.operands[b].dtype);
    if ta == tb {
        return Ok(());
    }
    Err(InferError::new("E0206", format!("`{}` needs operands of one element type", cx.op))
        .at(Blame::Operand(a), format!("this is {ta}"))
        .at(Blame::Operand(b), format!("this is {tb}"))
        .help(super::util::convert_one(ta, tb)))
}

/// The operand is a scalar.
pub fn scalar(cx: &InferCx<'_>, i: usize, what: &str) -> Result<(), InferError> {
    if cx.operands[i].rank() == 0 {
        return Ok(());
    }
    Err(InferError::new("E0232", format!("{what} of `{}` must be a scalar", cx.op))
        .at(Blame::Operand(i), format!("this is {}", cx.operands[i])))
}

/// The values of a shape attribute.
pub fn values(cx: &EvalCx<'_>, name: &str) -> Result<Vec<i64>, String> {
    cx.attrs
        .shape(name)
        .iter()
        .map(|d| d.eval(cx.dims).ok_or_else(|| format!("`{d}` is not known")))
        .collect()
}

/// An array from a function of the index.
pub fn build<T>(shape: &[usize], mut f: impl FnMut(&[usize]) -> T) -> ArrayD<T> {
    ArrayD::from_shape_fn(IxDyn(shape), |at| {
        use ndarray::Dimension;
        f(at.slice())
    })
}

/// The attribute `dtype`.
pub fn dtype(attrs: &Attrs) -> DType {
    attrs.dtype("dtype").unwrap_or(DType::F32)
}
