//! The mean of each window.

use super::max_pool::pooled;
use super::pull;
use super::util::*;
use super::window::{self, POOL_ATTRS, Window};
use crate::eval::{Array, Data};
use crate::facts::NONNEG;
use crate::kernel::{Combine, Ix, Reg, ScalarOp, ScalarType};
use crate::lower::{Lower, Pull};
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::{DType, Dim, Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "avg_pool",
    summary: "The mean of each window of an image [batch, channels, height, width]; padding does \
              not count, neither in the sum nor in the number of elements.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: POOL_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| Ok(vec![window::pooled(cx, &cx.operands[0])?]),
    grad: Grad::Vjp(|e, n, _| {
        let attrs = window::pool_grad_attrs(n.attrs, &e.ty(n.operands[0]));
        Some(e.emit(Op::AvgPoolGrad, &[n.ct], attrs))
    }),
    rules: &[],
    facts: Facts { range: |cx| Range::new(cx.facts(0) & NONNEG, Magnitude::ANY), ..Facts::NONE },
    indices: Indices::None,
    needs: |cx, need| {
        crate::require::window_fits(cx, &Window::pool(cx.attrs), &cx.operands[0].shape, need);
    },
    // And the division.
    cost: |cx| crate::cost::windows(cx, cx.result_elements(), 1),
    lower: Lower::Index(|k, at| {
        let window = Window::pool(k.attrs());
        let x = k.operand_type(0);
        let sum = k.reduce(Combine::Sum, &window.extents(), &mut |k, tap| {
            let (element, inside) = window.tap(k, at, tap);
            pull::guard(k, inside, element, 0.0)
        });
        let count = count(k, &window, at, &x.shape, x.dtype);
        let mean = k.op(ScalarOp::Div, &[sum, count]);
        pull::narrow(k, mean, x.dtype)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let window = Window::pool(cx.attrs);
        let Data::Float(x) = &cx.operands[0].data else { return Err("expected floats".into()) };
        let mut out = pooled(&window, x, &shape, 0.0, |s, v| s + v);
        for (at, v) in out.indexed_iter_mut() {
            let rows = window.overlap_at(0, at[2], x.shape()[2]);
            *v /= (rows * window.overlap_at(1, at[3], x.shape()[3])) as f64;
        }
        Ok(vec![Array::float(cx.operands[0].dtype, out)])
    }),
};

/// How many elements of the image the window `at` sees.
pub fn count(k: &mut dyn Pull, window: &Window, at: &[Ix], image: &[Dim], dtype: DType) -> Reg {
    let rows = window.overlap(k, 0, &at[2], &image[2]);
    let columns = window.overlap(k, 1, &at[3], &image[3]);
    let count = k.op(ScalarOp::Mul, &[rows, columns]);
    k.convert(count, ScalarType::of(dtype))
}
