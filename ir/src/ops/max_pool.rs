//! The largest element of each window.

use super::util::*;
use super::window::{self, POOL_ATTRS, Window};
use super::{pull, sizes};
use crate::eval::{Array, Data};
use crate::kernel::Combine;
use crate::lower::Lower;
use crate::op::*;
use crate::{DType, Op, OpDef};
use ndarray::ArrayD;

pub const DEF: OpDef = OpDef {
    name: "max_pool",
    summary: "The largest element of each window of an image [batch, channels, height, width]; \
              NaN if the window has one. Padding never wins. The gradient goes to the first of \
              equal elements.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: POOL_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| Ok(vec![window::pooled(cx, &cx.operands[0])?]),
    grad: Grad::Vjp(|e, n, _| {
        let x = n.operands[0];
        let index = e.emit(Op::MaxPoolIndex, &[x, n.out], window::pool_attrs(n.attrs));
        let attrs = window::pool_grad_attrs(n.attrs, &e.ty(x));
        Some(e.emit(Op::MaxPoolGrad, &[n.ct, index], attrs))
    }),
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
        k.reduce(Combine::Max, &window.extents(), &mut |k, tap| {
            let (element, inside) = window.tap(k, at, tap);
            pull::guard(k, inside, element, lowest(x.dtype))
        })
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let window = Window::pool(cx.attrs);
        let x = &cx.operands[0];
        let lowest = lowest(x.dtype);
        Ok(vec![match &x.data {
            Data::Float(a) => Array::float(
                x.dtype,
                pooled(&window, a, &shape, lowest, |m, v| if v > m || v.is_nan() { v } else { m }),
            ),
            Data::Int(a) => {
                Array::int(x.dtype, pooled(&window, a, &shape, lowest as i64, i64::max))
            }
            Data::Bool(_) => return Err("expected numbers".into()),
        }])
    }),
};

/// What padding counts as.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::I8 => i8::MIN as f64,
        DType::U8 => 0.0,
        DType::I32 => i32::MIN as f64,
        DType::I64 => i64::MIN as f64,
        _ => f64::NEG_INFINITY,
    }
}

/// Folds the elements of each window, padding left out.
pub fn pooled<T: Copy>(
    window: &Window,
    x: &ArrayD<T>,
    shape: &[usize],
    start: T,
    step: impl Fn(T, T) -> T,
) -> ArrayD<T> {
    sizes::build(shape, |at| {
        let mut sum = start;
        for i in 0..window.size[0] as usize {
            let Some(h) = window.at(0, at[2], i, x.shape()[2]) else { continue };
            for j in 0..window.size[1] as usize {
                let Some(w) = window.at(1, at[3], j, x.shape()[3]) else { continue };
                sum = step(sum, x[[at[0], at[1], h, w]]);
            }
        }
        sum
    })
}
