//! What many ops share: checks that explain themselves, and array plumbing.

use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::op::{AttrSpec, EvalCx, InferCx, InferError, Place};
use crate::{Attr, DType, Dim, TensorType};
use ndarray::ArrayD;

/// All operands have one dtype and one shape; the result has it too.
pub fn same(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    same_shape(cx)?;
    let first = &cx.operands[0];
    for (i, ty) in cx.operands.iter().enumerate().skip(1) {
        if ty.dtype != first.dtype {
            return Err(InferError::new(
                "E0206",
                format!("`{}` needs operands of one element type", cx.op),
            )
            .at(Place::Operand(0), format!("this is {}", first.dtype))
            .at(Place::Operand(i), format!("this is {}", ty.dtype))
            .help(format!("convert one of them: `cast(.., to: {})`", first.dtype)));
        }
    }
    Ok(vec![first.clone()])
}

/// All operands have one shape.
pub fn same_shape(cx: &InferCx<'_>) -> Result<(), InferError> {
    let first = &cx.operands[0];
    for (i, ty) in cx.operands.iter().enumerate().skip(1) {
        if ty.shape != first.shape {
            return Err(InferError::new(
                "E0203",
                format!("`{}` needs operands of one shape", cx.op),
            )
            .at(Place::Operand(0), format!("this is {first}"))
            .at(Place::Operand(i), format!("this is {ty}")));
        }
    }
    Ok(())
}

/// The attribute `name` as axes in `0..rank`, each at most once.
pub fn axes(cx: &InferCx<'_>, name: &'static str, rank: usize) -> Result<Vec<usize>, InferError> {
    let mut seen = vec![];
    for &axis in cx.attrs.ints(name) {
        let axis = check_axis(cx, name, axis, rank)?;
        if seen.contains(&axis) {
            return Err(InferError::new("E0208", format!("axis {axis} is named twice"))
                .at(Place::Attr(name), "each axis may be named once"));
        }
        seen.push(axis);
    }
    Ok(seen)
}

/// One axis in `0..rank`. Negative axes are resolved before graphs are built.
pub fn check_axis(
    cx: &InferCx<'_>,
    name: &'static str,
    axis: i64,
    rank: usize,
) -> Result<usize, InferError> {
    match usize::try_from(axis) {
        Ok(a) if a < rank => Ok(a),
        _ => Err(InferError::new(
            "E0207",
            format!("axis {axis} is out of range for a tensor of rank {rank}"),
        )
        .at(Place::Attr(name), format!("`{}` of `{}`", name, cx.op))
        .at(Place::Operand(0), format!("this is {}", cx.operands[0]))),
    }
}

/// Applies a float function elementwise.
pub fn eval_float(cx: &EvalCx<'_>, f: impl Fn(f64) -> f64) -> Result<Vec<Array>, String> {
    match &cx.operands[0].data {
        Data::Float(a) => Ok(vec![Array::float(cx.operands[0].dtype, a.mapv(f))]),
        _ => Err("expected a float operand".into()),
    }
}

/// Applies a float or an integer function elementwise.
pub fn eval_num(
    cx: &EvalCx<'_>,
    f: impl Fn(f64) -> f64,
    g: impl Fn(i64) -> i64,
) -> Result<Vec<Array>, String> {
    match &cx.operands[0].data {
        Data::Float(a) => Ok(vec![Array::float(cx.operands[0].dtype, a.mapv(f))]),
        Data::Int(a) => Ok(vec![Array::int(cx.operands[0].dtype, a.mapv(g))]),
        Data::Bool(_) => Err("expected a number operand".into()),
    }
}

/// Combines two operands elementwise.
pub fn eval_num2(
    cx: &EvalCx<'_>,
    f: impl Fn(f64, f64) -> f64,
    g: impl Fn(i64, i64) -> i64,
) -> Result<Vec<Array>, String> {
    let dtype = cx.operands[0].dtype;
    match (&cx.operands[0].data, &cx.operands[1].data) {
        (Data::Float(a), Data::Float(b)) => Ok(vec![Array::float(dtype, zip(a, b, f))]),
        (Data::Int(a), Data::Int(b)) => Ok(vec![Array::int(dtype, zip(a, b, g))]),
        _ => Err("expected two number operands of one type".into()),
    }
}

/// Elementwise over two arrays of one shape.
pub fn zip<A: Copy, B: Copy, C>(a: &ArrayD<A>, b: &ArrayD<B>, f: impl Fn(A, B) -> C) -> ArrayD<C> {
    let values: Vec<C> = a.iter().zip(b.iter()).map(|(x, y)| f(*x, *y)).collect();
    from_vec(a.shape(), values)
}

/// An array of a known-good element count.
pub fn from_vec<T>(shape: &[usize], values: Vec<T>) -> ArrayD<T> {
    ArrayD::from_shape_vec(shape.to_vec(), values)
        .unwrap_or_else(|e| unreachable!("element count: {e}"))
}

/// Runs one generic piece of code on whatever element kind the array has.
#[macro_export]
macro_rules! map_data {
    ($array:expr, $a:ident => $body:expr) => {{
        let array = $array;
        let data = match &array.data {
            $crate::eval::Data::Float($a) => $crate::eval::Data::Float($body),
            $crate::eval::Data::Int($a) => $crate::eval::Data::Int($body),
            $crate::eval::Data::Bool($a) => $crate::eval::Data::Bool($body),
        };
        $crate::eval::Array { dtype: array.dtype, data }
    }};
}
pub use crate::map_data;

/// The sizes of the i-th result, known when `eval` runs.
pub fn result_shape(cx: &EvalCx<'_>, i: usize) -> Result<Vec<usize>, String> {
    cx.results[i].static_shape().ok_or_else(|| "a size is not known".to_string())
}

/// Shape after reducing `axes`, which stay as ones if `keep`.
pub fn reduced_shape(shape: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let mut out = vec![];
    for (i, d) in shape.iter().enumerate() {
        match (axes.contains(&i), keep) {
            (true, true) => out.push(Dim::constant(1)),
            (true, false) => {}
            (false, _) => out.push(d.clone()),
        }
    }
    out
}

/// Bool of the operands' common shape.
pub fn predicate(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    same(cx)?;
    Ok(vec![TensorType::new(DType::Bool, cx.operands[0].shape.clone())])
}

/// Attributes every reduction has. The surface language also takes a single
/// `axis`, negative axes, and none for all of them.
pub const REDUCE_ATTRS: &[AttrSpec] = &[
    AttrSpec { name: "axes", kind: AttrKind::Ints, default: None, doc: "the axes to reduce" },
    AttrSpec {
        name: "keep",
        kind: AttrKind::Bool,
        default: Some(|| Attr::Bool(false)),
        doc: "whether reduced axes stay, with size one",
    },
];

/// Result type of a reduction that keeps the element type.
pub fn infer_reduce(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    let x = &cx.operands[0];
    let axes = axes(cx, "axes", x.rank())?;
    Ok(vec![TensorType::new(x.dtype, reduced_shape(&x.shape, &axes, cx.attrs.bool("keep")))])
}
