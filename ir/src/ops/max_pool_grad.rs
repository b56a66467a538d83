//! The gradient of max pooling.

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
    name: "max_pool_grad",
    summary: "The gradient of `max_pool` with respect to its image of the given shape: each \
              element gets the gradients of the windows it won, by `max_pool_index`.",
    operands: &[Operand::one("ct", ElementKind::Float), Operand::one("index", ElementKind::Index)],
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
        window::matches(cx, 1, &out.shape)?;
        Ok(vec![image])
    },
    grad: Grad::Vjp(|e, n, i| {
        let attrs = window::pool_attrs(n.attrs);
        (i == 0).then(|| e.emit(Op::MaxPoolTake, &[n.ct, n.operands[1]], attrs))
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: |cx, need| {
        crate::require::window_fits(cx, &Window::pool(cx.attrs), cx.attrs.shape("shape"), need);
    },
    cost: |cx| crate::cost::counted(cx, cx.elements(0)),
    lower: Lower::Index(|k, at| {
        let window = Window::pool(k.attrs());
        let (out, image) = (k.operand_type(0).shape, k.result_type());
        let extents = [0, 1].map(|a| Dim::constant(window.cover(a)));
        let this = k.index(&at[2].scale(&image.shape[3]).plus(&at[3]));
        let sum = k.reduce(Combine::Sum, &extents, &mut |k, t| {
            let (from, some) = window.covering(k, at, t, &out);
            let winner = k.guarded(1, &from, &out[2..]);
            let winner = pull::to_index(k, winner);
            let won = k.op(ScalarOp::Eq, &[winner, this]);
            let won = k.op(ScalarOp::And, &[won, some]);
            let ct = k.guarded(0, &from, &out[2..]);
            pull::guard(k, Some(won), ct, 0.0)
        });
        pull::narrow(k, sum, image.dtype)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let (Data::Float(ct), Data::Int(index)) = (&cx.operands[0].data, &cx.operands[1].data)
        else {
            return Err("expected floats and indices".into());
        };
        let mut out = ArrayD::zeros(&shape[..]);
        for (at, &ct) in ct.indexed_iter() {
            let i = usize::try_from(index[at.clone()]).unwrap_or(usize::MAX);
            if shape[3] > 0 && i < shape[2] * shape[3] {
                out[[at[0], at[1], i / shape[3], i % shape[3]]] += ct;
            }
        }
        Ok(vec![Array::float(cx.operands[0].dtype, out)])
    }),
};
