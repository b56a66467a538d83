//! What a convolution and its two gradients share.
//!
//! The three are one trilinear form: over every (image pixel, filter weight,
//! output pixel) that meet, two of them are multiplied and added to the third.
//! So each is a gradient of the other two, to any order.

use super::window::{self, Window};
use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, TensorType};
use ndarray::ArrayD;

pub const KERNEL: AttrSpec = AttrSpec {
    name: "kernel",
    kind: AttrKind::Ints,
    default: None,
    doc: "rows and columns of the filter",
};

/// Rows and columns of a filter `[out channels, in channels / groups, rows,
/// columns]`.
pub fn kernel(cx: &InferCx<'_>, i: usize) -> Result<[i64; 2], InferError> {
    let ty = &cx.operands[i];
    if ty.rank() != 4 {
        return Err(InferError::new(
            "E0239",
            format!(
                "a filter of `{}` is [out channels, in channels / groups, rows, columns]",
                cx.op
            ),
        )
        .at(Blame::Operand(i), format!("this is {ty}, rank {}", ty.rank())));
    }
    match (ty.shape[2].as_const(), ty.shape[3].as_const()) {
        (Some(h), Some(w)) => Ok([h, w]),
        _ => Err(InferError::new(
            "E0241",
            "the rows and columns of a filter cannot be run-time dims",
        )
        .at(Blame::Operand(i), format!("this is {ty}"))),
    }
}

/// Shape of the output of a convolution of an image with a filter. `places`
/// say which operands stand for them.
pub fn output(
    cx: &InferCx<'_>,
    image: &[Dim],
    filter: &[Dim],
    size: [i64; 2],
    places: (usize, usize),
) -> Result<Vec<Dim>, InferError> {
    let window = Window::conv(cx.attrs, size);
    window::check(cx, &window, false)?;
    let groups = cx.attrs.int("groups");
    if groups < 1 || filter[0].div_exact(&Dim::constant(groups)).is_none() {
        return Err(InferError::new(
            "E0240",
            format!("`groups` is {groups}, but must divide the {} output channels", filter[0]),
        )
        .at(Blame::Attr("groups"), "one or more")
        .at(Blame::Operand(places.1), format!("this is {}", cx.operands[places.1])));
    }
    if image[1] != filter[1].clone() * Dim::constant(groups) {
        let sees = filter[1].clone() * Dim::constant(groups);
        let mut err = InferError::new(
            "E0240",
            format!("the image has {} channels, but the filter is for {sees}", image[1]),
        )
        .at(Blame::Operand(places.0), format!("this is {}", cx.operands[places.0]))
        .at(Blame::Operand(places.1), format!("this is {}", cx.operands[places.1]));
        if groups > 1 {
            err = err.help(format!(
                "with groups: {groups}, axis 1 of the filter counts the channels of one group"
            ));
        }
        return Err(err);
    }
    let [h, w] = window::output(cx, &window, image)?;
    Ok(vec![image[0].clone(), filter[0].clone(), h, w])
}

/// Attributes the three ops have in common.
fn shared(attrs: &Attrs) -> Attrs {
    ["stride", "pad", "dilation", "groups"].into_iter().fold(Attrs::none(), |out, name| match attrs
        .get(name)
    {
        Some(value) => out.with(name, value.clone()),
        None => out,
    })
}

pub fn forward(e: &dyn Emit, image: V, filter: V, attrs: &Attrs) -> V {
    e.emit(Op::Conv2d, &[image, filter], shared(attrs))
}

pub fn grad_input(e: &dyn Emit, ct: V, filter: V, attrs: &Attrs, image: &TensorType) -> V {
    let attrs = shared(attrs).with("shape", Attr::Shape(image.shape.clone()));
    e.emit(Op::Conv2dGradInput, &[ct, filter], attrs)
}

pub fn grad_filter(e: &dyn Emit, image: V, ct: V, attrs: &Attrs, filter: &TensorType) -> V {
    let kernel = filter.shape[2..].iter().map(|d| d.as_const().unwrap_or(1)).collect();
    let attrs = shared(attrs).with("kernel", Attr::Ints(kernel));
    e.emit(Op::Conv2dGradFilter, &[image, ct], attrs)
}

/// Which of image, filter and output an op computes from the other two.
#[derive(Clone, Copy)]
pub enum Computes {
    Output,
    Image,
    Filter,
}

/// Reference semantics of the three ops.
pub fn eval(cx: &EvalCx<'_>, computes: Computes) -> Result<Vec<Array>, String> {
    let (a, b) = (&cx.operands[0], &cx.operands[1]);
    let result = super::util::result_shape(cx, 0)?;
    let shapes = match computes {
        Computes::Output => [a.shape(), b.shape(), &result],
        Computes::Image => [&result, b.shape(), a.shape()],
        Computes::Filter => [a.shape(), &result, b.shape()],
    };
    let dtype = a.dtype;
    Ok(vec![match (&a.data, &b.data) {
        (Data::Float(a), Data::Float(b)) => {
            Array::float(dtype, trilinear(cx.attrs, shapes, computes, a, b, |s, x, y| s + x * y))
        }
        (Data::Int(a), Data::Int(b)) => Array::int(
            dtype,
            trilinear(cx.attrs, shapes, computes, a, b, |s: i64, x: i64, y| {
                s.wrapping_add(x.wrapping_mul(y))
            }),
        ),
        _ => return Err("expected two number operands of one type".into()),
    }])
}

/// Visits all (pixel, weight, output) that meet. `shapes` are those of image,
/// filter and output.
fn trilinear<T: Copy + Default>(
    attrs: &Attrs,
    shapes: [&[usize]; 3],
    computes: Computes,
    a: &ArrayD<T>,
    b: &ArrayD<T>,
    step: impl Fn(T, T, T) -> T,
) -> ArrayD<T> {
    let [image, filter, output] = shapes;
    let window = Window::conv(attrs, [filter[2] as i64, filter[3] as i64]);
    let groups = attrs.int("groups").max(1) as usize;
    let (group_out, group_in) = (filter[0] / groups, filter[1]);
    let shape = match computes {
        Computes::Output => output,
        Computes::Image => image,
        Computes::Filter => filter,
    };
    // Rows as slices: this is where the interpreter spends its time on convolutions.
    let (a, b) = (a.as_standard_layout(), b.as_standard_layout());
    let (a, b) = (a.as_slice().unwrap_or(&[]), b.as_slice().unwrap_or(&[]));
    let mut out = vec![T::default(); shape.iter().product()];
    let row = |shape: &[usize], i: usize, j: usize, k: usize| {
        ((i * shape[1] + j) * shape[2] + k) * shape[3]
    };
    for n in 0..output[0] {
        for o in 0..output[1] {
            for c in 0..group_in {
                let channel = o / group_out.max(1) * group_in + c;
                for (y, i) in pairs(output[2], filter[2]) {
                    let Some(h) = window.at(0, y, i, image[2]) else { continue };
                    let pixels = row(image, n, channel, h);
                    let weights = row(filter, o, c, i);
                    let places = row(output, n, o, y);
                    for x in 0..output[3] {
                        for j in 0..filter[3] {
                            let Some(w) = window.at(1, x, j, image[3]) else { continue };
                            let (pixel, weight, place) = (pixels + w, weights + j, places + x);
                            let (to, l, r) = match computes {
                                Computes::Output => (place, pixel, weight),
                                Computes::Image => (pixel, place, weight),
                                Computes::Filter => (weight, pixel, place),
                            };
                            out[to] = step(out[to], a[l], b[r]);
                        }
                    }
                }
            }
        }
    }
    ArrayD::from_shape_vec(shape, out).unwrap_or_else(|_| ArrayD::default(shape))
}

fn pairs(a: usize, b: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..a).flat_map(move |x| (0..b).map(move |y| (x, y)))
}
