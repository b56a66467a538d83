//! Two-dimensional convolution.

use super::conv::{self, Computes};
use super::sizes;
use super::window::{self, DILATION, GROUPS, PAD, STRIDE, Window};
use crate::lower::{Contraction, Lower};
use crate::op::*;
use crate::{OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "conv2d",
    summary: "Slides filters [out channels, in channels / groups, rows, columns] over images \
              [batch, channels, height, width] (without flipping them) and sums products.",
    operands: &[Operand::one("x", ElementKind::Num), Operand::one("filter", ElementKind::Num)],
    attrs: &[STRIDE, PAD, DILATION, GROUPS],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let (x, filter) = (&cx.operands[0], &cx.operands[1]);
        sizes::same_dtype(cx, 0, 1)?;
        window::image(cx, 0, x)?;
        let size = conv::kernel(cx, 1)?;
        let shape = conv::output(cx, &x.shape, &filter.shape, size, (0, 1))?;
        Ok(vec![TensorType::new(x.dtype, shape)])
    },
    grad: Grad::Vjp(|e, n, i| {
        let [x, filter] = *n.operands else { return None };
        Some(match i {
            0 => conv::grad_input(e, n.ct, filter, n.attrs, &e.ty(x)),
            _ => conv::grad_filter(e, x, n.ct, n.attrs, &e.ty(filter)),
        })
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: |cx, need| {
        let filter = &cx.operands[1].shape;
        let size = [2, 3].map(|axis| filter[axis].as_const().unwrap_or(1));
        crate::require::window_fits(cx, &Window::conv(cx.attrs, size), &cx.operands[0].shape, need);
    },
    cost: crate::cost::as_lowered,
    lower: Lower::Contract(Contraction::Conv2d),
    eval: Eval::Pure(|cx| conv::eval(cx, Computes::Output)),
};
