//! Where the largest element of each window is.

use super::util::*;
use super::window::{self, POOL_ATTRS, Window};
use super::{pull, sizes};
use crate::eval::{Array, Data};
use crate::kernel::{Combine, Scalar, ScalarOp, ScalarType};
use crate::lower::Lower;
use crate::op::*;
use crate::{DType, OpDef, TensorType};
use ndarray::ArrayD;

pub const DEF: OpDef = OpDef {
    name: "max_pool_index",
    summary: "For each window of `max_pool`, whose result is `out`, the first element that has \
              the largest value, counted as `row * width + column` of its image.",
    operands: &[Operand::one("x", ElementKind::Num), Operand::one("out", ElementKind::Num)],
    attrs: POOL_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let out = window::pooled(cx, &cx.operands[0])?;
        sizes::same_dtype(cx, 0, 1)?;
        window::matches(cx, 1, &out.shape)?;
        Ok(vec![TensorType::new(DType::I32, out.shape)])
    },
    grad: Grad::Zero("indices do not change with the values"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: |cx, need| {
        crate::require::window_fits(cx, &Window::pool(cx.attrs), &cx.operands[0].shape, need);
    },
    cost: |cx| crate::cost::windows(cx, cx.result_elements(), 0),
    lower: Lower::Index(|k, at| {
        let window = Window::pool(k.attrs());
        let x = k.operand_type(0);
        let max = k.operand(1, at);
        let none = k.constant(Scalar::I32(i32::MAX));
        let index = k.reduce(Combine::Min, &window.extents(), &mut |k, tap| {
            let (element, inside) = window.tap(k, at, tap);
            let mut here = k.op(ScalarOp::Eq, &[element, max]);
            if x.dtype.is_float() {
                // A NaN won if there is one.
                let nan = k.op(ScalarOp::Ne, &[element, element]);
                here = k.op(ScalarOp::Or, &[here, nan]);
            }
            if let Some(inside) = inside {
                here = k.op(ScalarOp::And, &[here, inside]);
            }
            let row = window.position(0, &at[2], &tap[0]);
            let column = window.position(1, &at[3], &tap[1]);
            let index = k.index(&row.scale(&x.shape[3]).plus(&column));
            let index = k.convert(index, ScalarType::I32);
            k.op(ScalarOp::Select, &[here, index, none])
        });
        let last = x.shape[2].clone() * x.shape[3].clone();
        let index = k.convert(index, ScalarType::I64);
        let index = pull::clamp(k, index, &last);
        pull::element(k, index, DType::I32)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let window = Window::pool(cx.attrs);
        let found = match (&cx.operands[0].data, &cx.operands[1].data) {
            (Data::Float(x), Data::Float(out)) => {
                first(&window, x, out, &shape, |v, m| v == m || v.is_nan())
            }
            (Data::Int(x), Data::Int(out)) => first(&window, x, out, &shape, |v, m| v == m),
            _ => return Err("expected numbers of one type".into()),
        };
        Ok(vec![Array::int(DType::I32, found)])
    }),
};

fn first<T: Copy>(
    window: &Window,
    x: &ArrayD<T>,
    out: &ArrayD<T>,
    shape: &[usize],
    wins: impl Fn(T, T) -> bool,
) -> ArrayD<i64> {
    sizes::build(shape, |at| {
        for i in 0..window.size[0] as usize {
            let Some(h) = window.at(0, at[2], i, x.shape()[2]) else { continue };
            for j in 0..window.size[1] as usize {
                let Some(w) = window.at(1, at[3], j, x.shape()[3]) else { continue };
                if wins(x[[at[0], at[1], h, w]], out[at]) {
                    return (h * x.shape()[3] + w) as i64;
                }
            }
        }
        0
    })
}
