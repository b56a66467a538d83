//! The elements a max pooling chose, from another image.

use super::util::*;
use super::window::{self, POOL_ATTRS, Window};
use super::{pull, sizes};
use crate::eval::Data;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "max_pool_take",
    summary: "For each window, the element of `x` that `max_pool_index` names: what the gradient \
              of `max_pool` is in turn differentiated to.",
    operands: &[Operand::one("x", ElementKind::Num), Operand::one("index", ElementKind::Index)],
    attrs: POOL_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let out = window::pooled(cx, &cx.operands[0])?;
        window::matches(cx, 1, &out.shape)?;
        Ok(vec![out])
    },
    grad: Grad::Vjp(|e, n, i| {
        let attrs = window::pool_grad_attrs(n.attrs, &e.ty(n.operands[0]));
        (i == 0).then(|| e.emit(Op::MaxPoolGrad, &[n.ct, n.operands[1]], attrs))
    }),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: |cx, need| {
        crate::require::window_fits(cx, &Window::pool(cx.attrs), &cx.operands[0].shape, need);
    },
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let image = k.operand_type(0).shape;
        let index = k.operand(1, at);
        let index = pull::to_index(k, index);
        let pixels = image[2].clone() * image[3].clone();
        let index = pull::clamp(k, index, &pixels);
        let width = k.index(&pull::ix(&image[3]));
        let row = k.op(ScalarOp::Div, &[index, width]);
        let column = k.op(ScalarOp::Rem, &[index, width]);
        let from = [at[0].clone(), at[1].clone(), k.dynamic(row), k.dynamic(column)];
        let element = k.guarded(0, &from, &image[2..]);
        let some = pull::nonempty(k, &image[2..]);
        pull::guard(k, some, element, 0.0)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let Data::Int(index) = &cx.operands[1].data else { return Err("expected indices".into()) };
        Ok(vec![map_data!(&cx.operands[0], a => sizes::build(&shape, |at| {
            let (h, w) = (a.shape()[2], a.shape()[3]);
            let i = index[at].clamp(0, (h * w).max(1) as i64 - 1) as usize;
            if h * w == 0 { Default::default() } else { a[[at[0], at[1], i / w, i % w]] }
        }))])
    }),
};
