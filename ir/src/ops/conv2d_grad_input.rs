//! The gradient of a convolution with respect to its image.

use super::conv::{self, Computes};
use super::sizes;
use super::window::{self, DILATION, GROUPS, IMAGE, PAD, STRIDE, Window};
use crate::lower::{Contraction, Lower};
use crate::op::*;
use crate::{OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "conv2d_grad_input",
    summary: "The gradient of `conv2d` with respect to its image of the given shape, from the \
              gradient of its result and the filter. Also known as transposed convolution.",
    operands: &[Operand::one("ct", ElementKind::Num), Operand::one("filter", ElementKind::Num)],
    attrs: &[STRIDE, PAD, DILATION, GROUPS, IMAGE],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let (ct, filter) = (&cx.operands[0], &cx.operands[1]);
        sizes::same_dtype(cx, 0, 1)?;
        sizes::entries(cx, "shape", 4)?;
        sizes::no_negative_size(cx, "shape")?;
        let image = cx.attrs.shape("shape");
        let size = conv::kernel(cx, 1)?;
        let shape = conv::output(cx, image, &filter.shape, size, (0, 1))?;
        window::matches(cx, 0, &shape)?;
        Ok(vec![TensorType::new(ct.dtype, image.to_vec())])
    },
    grad: Grad::Vjp(|e, n, i| {
        let [ct, filter] = *n.operands else { return None };
        Some(match i {
            0 => conv::forward(e, n.ct, filter, n.attrs),
            _ => conv::grad_filter(e, n.ct, ct, n.attrs, &e.ty(filter)),
        })
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: |cx, need| {
        let filter = &cx.operands[1].shape;
        let size = [2, 3].map(|axis| filter[axis].as_const().unwrap_or(1));
        crate::require::window_fits(
            cx,
            &Window::conv(cx.attrs, size),
            cx.attrs.shape("shape"),
            need,
        );
    },
    cost: crate::cost::as_lowered,
    lower: Lower::Contract(Contraction::Conv2dGradInput),
    eval: Eval::Pure(|cx| conv::eval(cx, Computes::Image)),
};
