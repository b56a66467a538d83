//! The gradient of a convolution with respect to its filter.

use super::conv::{self, Computes, KERNEL};
use super::sizes;
use super::window::{self, DILATION, GROUPS, PAD, STRIDE, Window};
use crate::lower::{Contraction, Lower};
use crate::op::*;
use crate::{Dim, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "conv2d_grad_filter",
    summary: "The gradient of `conv2d` with respect to its filter of the given rows and columns, \
              from the image and the gradient of its result.",
    operands: &[Operand::one("x", ElementKind::Num), Operand::one("ct", ElementKind::Num)],
    attrs: &[STRIDE, PAD, DILATION, GROUPS, KERNEL],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let (x, ct) = (&cx.operands[0], &cx.operands[1]);
        sizes::same_dtype(cx, 0, 1)?;
        window::image(cx, 0, x)?;
        window::image(cx, 1, ct)?;
        sizes::entries(cx, "kernel", 2)?;
        let size = [cx.attrs.ints("kernel")[0], cx.attrs.ints("kernel")[1]];
        let groups = cx.attrs.int("groups");
        let Some(channels) = x.shape[1].div_exact(&Dim::constant(groups)) else {
            return Err(InferError::new(
                "E0240",
                format!("`groups` is {groups}, but must divide the {} channels", x.shape[1]),
            )
            .at(Blame::Attr("groups"), "one or more")
            .at(Blame::Operand(0), format!("this is {x}")));
        };
        let [h, w] = size.map(Dim::constant);
        let filter = vec![ct.shape[1].clone(), channels, h, w];
        let shape = conv::output(cx, &x.shape, &filter, size, (0, 1))?;
        window::matches(cx, 1, &shape)?;
        Ok(vec![TensorType::new(x.dtype, filter)])
    },
    grad: Grad::Vjp(|e, n, i| {
        let [x, ct] = *n.operands else { return None };
        Some(match i {
            0 => conv::grad_input(e, ct, n.ct, n.attrs, &e.ty(x)),
            _ => conv::forward(e, x, n.ct, n.attrs),
        })
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: |cx, need| {
        let size = match *cx.attrs.ints("kernel") {
            [h, w] => [h, w],
            _ => [1, 1],
        };
        crate::require::window_fits(cx, &Window::conv(cx.attrs, size), &cx.operands[0].shape, need);
    },
    cost: crate::cost::as_lowered,
    lower: Lower::Contract(Contraction::Conv2dGradFilter),
    eval: Eval::Pure(|cx| conv::eval(cx, Computes::Filter)),
};
