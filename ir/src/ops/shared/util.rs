//! What many ops share: checks that explain themselves, and array plumbing.

use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::facts::{IntRange, IntegersCx};
use crate::op::{AttrSpec, Blame, EvalCx, InferCx, InferError};
use crate::vjp::{Emit, V, VjpArgs};
use crate::{Attr, DType, Dim, Op, TensorType};
use ndarray::{ArrayD, Axis};

/// How to make operands of two element types one: by the one that keeps a
/// fraction, or else the first.
pub fn convert_one(a: DType, b: DType) -> String {
    let to = if b.is_float() && !a.is_float() { b } else { a };
    format!("convert one of them: `cast(.., to: {to})`")
}

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
            .at(Blame::Operand(0), format!("this is {}", first.dtype))
            .at(Blame::Operand(i), format!("this is {}", ty.dtype))
            .help(convert_one(first.dtype, ty.dtype)));
        }
    }
    Ok(vec![first.clone()])
}

/// All operands have one shape.
pub fn same_shape(cx: &InferCx<'_>) -> Result<(), InferError> {
    let first = &cx.operands[0];
    for (i, ty) in cx.operands.iter().enumerate().skip(1) {
        if ty.shape == first.shape {
            continue;
        }
        let differs = first.shape.iter().zip(&ty.shape).position(|(a, b)| a != b);
        let how = match differs {
            Some(axis) if first.rank() == ty.rank() => {
                format!(
                    "axis {axis} is {} in one and {} in the other",
                    first.shape[axis], ty.shape[axis]
                )
            }
            _ => format!("one has rank {} and the other rank {}", first.rank(), ty.rank()),
        };
        let mut err =
            InferError::new("E0203", format!("`{}` needs operands of one shape, but {how}", cx.op))
                .at(Blame::Operand(0), format!("this is {first}"))
                .at(Blame::Operand(i), format!("this is {ty}"));
        // A name and a number, or two names, may well be equal in every run.
        if let Some(axis) = differs
            && let Some(name) =
                [&first.shape[axis], &ty.shape[axis]].iter().find_map(|d| d.as_sym())
            && first.rank() == ty.rank()
        {
            err = err.help(format!(
                "`{name}` is known only when the program runs: sizes that must be equal need the \
                 same name"
            ));
        }
        return Err(err);
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
                .at(Blame::Attr(name), "each axis may be named once"));
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
        _ => {
            let mut err = InferError::new(
                "E0207",
                format!("axis {axis} is out of range for a tensor of rank {rank}"),
            )
            .at(Blame::Attr(name), format!("`{}` of `{}`", name, cx.op));
            if let Some(x) = cx.operands.first() {
                err = err.at(Blame::Operand(0), format!("this is {x}"));
            }
            Err(match rank {
                0 => err.help("a scalar has no axes"),
                1 => err.help("the only axis is 0"),
                _ => err.help(format!("axes are 0 to {}, or -{rank} to -1 from the end", rank - 1)),
            })
        }
    }
}

/// Applies a float function elementwise.
pub fn eval_float(cx: &EvalCx<'_>, f: impl Fn(f64) -> f64) -> Result<Vec<Array>, String> {
    match &cx.operands[0].data {
        Data::Float(a) => Ok(vec![Array::float(cx.operands[0].dtype, a.mapv(f))]),
        _ => Err("expected a float operand".into()),
    }
}

/// Applies a function of two floats elementwise.
pub fn eval_float2(cx: &EvalCx<'_>, f: impl Fn(f64, f64) -> f64) -> Result<Vec<Array>, String> {
    match (&cx.operands[0].data, &cx.operands[1].data) {
        (Data::Float(a), Data::Float(b)) => {
            Ok(vec![Array::float(cx.operands[0].dtype, zip(a, b, f))])
        }
        _ => Err("expected two float operands".into()),
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

/// Compares two operands elementwise; truth values as 0 and 1.
pub fn eval_compare(
    cx: &EvalCx<'_>,
    f: impl Fn(f64, f64) -> bool,
    g: impl Fn(i64, i64) -> bool,
) -> Result<Vec<Array>, String> {
    Ok(vec![Array::bool(match (&cx.operands[0].data, &cx.operands[1].data) {
        (Data::Float(a), Data::Float(b)) => zip(a, b, f),
        (Data::Int(a), Data::Int(b)) => zip(a, b, g),
        (Data::Bool(a), Data::Bool(b)) => zip(a, b, |a, b| g(a as i64, b as i64)),
        _ => return Err("expected two operands of one type".into()),
    })])
}

/// Tests every element of a float operand.
pub fn eval_test(cx: &EvalCx<'_>, f: impl Fn(f64) -> bool) -> Result<Vec<Array>, String> {
    match &cx.operands[0].data {
        Data::Float(a) => Ok(vec![Array::bool(a.mapv(f))]),
        _ => Err("expected a float operand".into()),
    }
}

/// Applies a function of truth values or of integers elementwise.
pub fn eval_bits(
    cx: &EvalCx<'_>,
    f: impl Fn(bool) -> bool,
    g: impl Fn(i64) -> i64,
) -> Result<Vec<Array>, String> {
    match &cx.operands[0].data {
        Data::Bool(a) => Ok(vec![Array::bool(a.mapv(f))]),
        Data::Int(a) => Ok(vec![Array::int(cx.operands[0].dtype, a.mapv(g))]),
        Data::Float(_) => Err("expected truth values or integers".into()),
    }
}

/// Combines two operands of truth values or of integers elementwise.
pub fn eval_bits2(
    cx: &EvalCx<'_>,
    f: impl Fn(bool, bool) -> bool,
    g: impl Fn(i64, i64) -> i64,
) -> Result<Vec<Array>, String> {
    match (&cx.operands[0].data, &cx.operands[1].data) {
        (Data::Bool(a), Data::Bool(b)) => Ok(vec![Array::bool(zip(a, b, f))]),
        (Data::Int(a), Data::Int(b)) => Ok(vec![Array::int(cx.operands[0].dtype, zip(a, b, g))]),
        _ => Err("expected truth values or integers of one type".into()),
    }
}

/// The larger of two; NaN if either is, and +0 over -0 (IEEE 754 `maximum`).
pub fn float_max(a: f64, b: f64) -> f64 {
    match a.partial_cmp(&b) {
        None => f64::NAN,
        Some(std::cmp::Ordering::Less) => b,
        Some(std::cmp::Ordering::Greater) => a,
        Some(std::cmp::Ordering::Equal) => {
            if a.is_sign_negative() {
                b
            } else {
                a
            }
        }
    }
}

/// The smaller of two; NaN if either is, and -0 over +0 (IEEE 754 `minimum`).
pub fn float_min(a: f64, b: f64) -> f64 {
    -float_max(-a, -b)
}

/// A float array under another function, rounded to `dtype`.
pub fn map_floats(dtype: DType, x: &Array, f: impl Fn(f64) -> f64) -> Array {
    match &x.data {
        Data::Float(a) => Array::float(dtype, a.mapv(f)),
        _ => x.clone(),
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

/// The type in which to compute what a narrow float type cannot hold.
pub fn widened(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Undoes the shape change of a reduction by repetition.
pub fn unreduced(e: &dyn Emit, x: V, shape: &[Dim], axes: &[i64], keep: bool) -> V {
    if keep {
        let all: Vec<i64> = (0..shape.len() as i64).collect();
        e.broadcast(x, shape, &all)
    } else {
        e.unreduce(x, shape, axes)
    }
}

/// Gradient of `max` and `min` reductions: the elements equal to the result
/// share it evenly.
pub fn vjp_extreme(e: &dyn Emit, n: &VjpArgs<'_>, _: usize) -> Option<V> {
    let x = n.operands[0];
    let ty = e.ty(x);
    let (axes, keep) = (n.attrs.ints("axes"), n.attrs.bool("keep"));
    let wins = e.binary(Op::Eq, x, unreduced(e, n.out, &ty.shape, axes, keep));
    // Narrow floats cannot count far.
    let wide = widened(ty.dtype);
    let count = e.emit(Op::Sum, &[e.cast(wins, wide)], n.attrs.clone());
    let share = e.cast(e.div(e.cast(n.ct, wide), count), ty.dtype);
    let share = unreduced(e, share, &ty.shape, axes, keep);
    Some(e.select(wins, share, e.splat_like(0.0, x)))
}

/// Folds the given axes, which may be in any order, into an array of shape `out`.
pub fn reduce_axes<T: Copy>(
    a: &ArrayD<T>,
    axes: &[i64],
    out: &[usize],
    start: T,
    f: impl Fn(T, T) -> T,
) -> ArrayD<T> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    let mut a = a.clone();
    for axis in axes.into_iter().rev() {
        a = a.fold_axis(Axis(axis as usize), start, |s, x| f(*s, *x));
    }
    from_vec(out, a.iter().copied().collect())
}

/// A reduction of numbers: a start value and a function, for floats and for
/// integers.
pub fn eval_reduce(
    cx: &EvalCx<'_>,
    (f0, f): (f64, impl Fn(f64, f64) -> f64),
    (g0, g): (i64, impl Fn(i64, i64) -> i64),
) -> Result<Vec<Array>, String> {
    let x = &cx.operands[0];
    let (axes, out) = (cx.attrs.ints("axes"), result_shape(cx, 0)?);
    Ok(vec![match &x.data {
        Data::Float(a) => Array::float(x.dtype, reduce_axes(a, axes, &out, f0, f)),
        Data::Int(a) => Array::int(x.dtype, reduce_axes(a, axes, &out, g0, g)),
        Data::Bool(_) => return Err("expected numbers".into()),
    }])
}

pub fn eval_reduce_bool(
    cx: &EvalCx<'_>,
    start: bool,
    f: impl Fn(bool, bool) -> bool,
) -> Result<Vec<Array>, String> {
    let Data::Bool(a) = &cx.operands[0].data else { return Err("expected truth values".into()) };
    let out = result_shape(cx, 0)?;
    Ok(vec![Array::bool(reduce_axes(a, cx.attrs.ints("axes"), &out, start, f))])
}

/// What `max` of no integers is: the smallest of the type.
pub fn max_start(dtype: DType) -> i64 {
    match dtype {
        DType::I8 => i8::MIN as i64,
        DType::U8 => 0,
        DType::I32 => i32::MIN as i64,
        _ => i64::MIN,
    }
}

/// What `min` of no integers is: the largest of the type.
pub fn min_start(dtype: DType) -> i64 {
    match dtype {
        DType::I8 => i8::MAX as i64,
        DType::U8 => u8::MAX as i64,
        DType::I32 => i32::MAX as i64,
        _ => i64::MAX,
    }
}

/// Attributes of `argmax` and `argmin`.
pub const ARG_ATTRS: &[AttrSpec] = &[
    AttrSpec { name: "axis", kind: AttrKind::Int, default: None, doc: "the axis to search along" },
    AttrSpec {
        name: "keep",
        kind: AttrKind::Bool,
        default: Some(|| Attr::Bool(false)),
        doc: "whether the axis stays, with size one",
    },
];

pub fn infer_arg(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    let x = &cx.operands[0];
    let axis = check_axis(cx, "axis", cx.attrs.int("axis"), x.rank())?;
    if x.shape[axis].is_zero() {
        return Err(InferError::new(
            "E0212",
            format!("`{}` along an axis without elements", cx.op),
        )
        .at(Blame::Operand(0), format!("this is {x}: axis {axis} has size 0"))
        .at(Blame::Attr("axis"), "no element to choose here"));
    }
    let shape = reduced_shape(&x.shape, &[axis], cx.attrs.bool("keep"));
    Ok(vec![TensorType::new(DType::I32, shape)])
}

/// Index of the element that beats all before it, along `axis`.
pub fn eval_arg(
    cx: &EvalCx<'_>,
    f: impl Fn(f64, f64) -> bool,
    g: impl Fn(i64, i64) -> bool,
) -> Result<Vec<Array>, String> {
    fn search<T: Copy>(a: &ArrayD<T>, axis: usize, beats: impl Fn(T, T) -> bool) -> Vec<i64> {
        a.lanes(Axis(axis))
            .into_iter()
            .map(|lane| {
                let mut best = 0;
                for i in 1..lane.len() {
                    if beats(lane[i], lane[best]) {
                        best = i;
                    }
                }
                best as i64
            })
            .collect()
    }
    let axis = cx.attrs.int("axis") as usize;
    let out = result_shape(cx, 0)?;
    let found = match &cx.operands[0].data {
        // No elements to compare, but results all the same.
        _ if cx.operands[0].shape()[axis] == 0 => vec![0; out.iter().product()],
        Data::Float(a) => search(a, axis, f),
        Data::Int(a) => search(a, axis, g),
        Data::Bool(_) => return Err("expected numbers".into()),
    };
    Ok(vec![Array::int(DType::I32, from_vec(&out, found))])
}

/// Attributes every scan has.
pub const SCAN_ATTRS: &[AttrSpec] = &[
    AttrSpec { name: "axis", kind: AttrKind::Int, default: None, doc: "the axis to run along" },
    AttrSpec {
        name: "reverse",
        kind: AttrKind::Bool,
        default: Some(|| Attr::Bool(false)),
        doc: "whether to run from the end",
    },
    AttrSpec {
        name: "exclusive",
        kind: AttrKind::Bool,
        default: Some(|| Attr::Bool(false)),
        doc: "whether to leave out the element itself",
    },
];

pub fn infer_scan(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    check_axis(cx, "axis", cx.attrs.int("axis"), cx.operands[0].rank())?;
    Ok(vec![cx.operands[0].clone()])
}

/// Running combination along `axis`.
pub fn eval_scan(
    cx: &EvalCx<'_>,
    (f0, f): (f64, impl Fn(f64, f64) -> f64),
    (g0, g): (i64, impl Fn(i64, i64) -> i64),
) -> Result<Vec<Array>, String> {
    fn scan<T: Copy>(a: &ArrayD<T>, cx: &EvalCx<'_>, start: T, f: impl Fn(T, T) -> T) -> ArrayD<T> {
        let (reverse, exclusive) = (cx.attrs.bool("reverse"), cx.attrs.bool("exclusive"));
        let mut out = a.clone();
        for mut lane in out.lanes_mut(Axis(cx.attrs.int("axis") as usize)) {
            let mut acc = start;
            for step in 0..lane.len() {
                let i = if reverse { lane.len() - 1 - step } else { step };
                let before = acc;
                acc = f(acc, lane[i]);
                lane[i] = if exclusive { before } else { acc };
            }
        }
        out
    }
    let x = &cx.operands[0];
    Ok(vec![match &x.data {
        Data::Float(a) => Array::float(x.dtype, scan(a, cx, f0, f)),
        Data::Int(a) => Array::int(x.dtype, scan(a, cx, g0, g)),
        Data::Bool(_) => return Err("expected numbers".into()),
    }])
}

/// Along an empty axis the result is 0.
pub fn arg_integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let size = cx.operands[0].shape.get(cx.attrs.int("axis") as usize)?;
    size.as_const().filter(|n| *n > 0)?;
    IntRange::indices_of(size, cx.result.dtype)
}
