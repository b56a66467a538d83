//! The gradient of average pooling.

use super::avg_pool::count;
use super::util::*;
use super::window::{self, POOL_GRAD_ATTRS, Window};
use super::{pull, sizes};
use crate::eval::{Array, Data};
use crate::kernel::{Combine, ScalarOp};
use crate::lower::Lower;
use crate::op::*;
use crate::{Dim, Op, OpDef, TensorType};
use ndarray::ArrayD;

pub const DEF: OpDef = OpDef {
    name: "avg_pool_grad",
    summary: "The gradient of `avg_pool` with respect to its image of the given shape: each \
              window's gradient is spread evenly over the elements it saw.",
    operands: &[Operand::one("ct", ElementKind::Float)],
    attrs: POOL_GRAD_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        sizes::entries(cx, "shape", 4)?;
        sizes::no_negative_size(cx, "shape")?;
        let image = TensorType::new(cx.operands[0].dtype, cx.attrs.shape("shape").to_vec());
        let out = window::pooled(cx, &image)?;
        window::matches(cx, 0, &out.shape)?;
        Ok(vec![image])
    },
    grad: Grad::Vjp(|e, n, _| Some(e.emit(Op::AvgPool, &[n.ct], window::pool_attrs(n.attrs)))),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: |cx, need| {
        crate::require::window_fits(cx, &Window::pool(cx.attrs), cx.attrs.shape("shape"), need);
    },
    cost: |cx| crate::cost::windows(cx, cx.elements(0), 1),
    lower: Lower::Index(|k, at| {
        let window = Window::pool(k.attrs());
        let (out, image) = (k.operand_type(0).shape, k.result_type());
        let extents = [0, 1].map(|a| Dim::constant(window.cover(a)));
        let sum = k.reduce(Combine::Sum, &extents, &mut |k, t| {
            let (from, some) = window.covering(k, at, t, &out);
            let count = count(k, &window, &from, &image.shape, image.dtype);
            let ct = k.guarded(0, &from, &out[2..]);
            let share = k.op(ScalarOp::Div, &[ct, count]);
            pull::guard(k, Some(some), share, 0.0)
        });
        pull::narrow(k, sum, image.dtype)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let window = Window::pool(cx.attrs);
        let Data::Float(ct) = &cx.operands[0].data else { return Err("expected floats".into()) };
        let mut out = ArrayD::zeros(&shape[..]);
        for (at, ct) in ct.indexed_iter() {
            let rows = window.overlap_at(0, at[2], shape[2]);
            let share = ct / (rows * window.overlap_at(1, at[3], shape[3])) as f64;
            for i in 0..window.size[0] as usize {
                let Some(h) = window.at(0, at[2], i, shape[2]) else { continue };
                for j in 0..window.size[1] as usize {
                    let Some(w) = window.at(1, at[3], j, shape[3]) else { continue };
                    out[[at[0], at[1], h, w]] += share;
                }
            }
        }
        Ok(vec![Array::float(cx.operands[0].dtype, out)])
    }),
};
