//! Products over axes.

use super::util::*;
use crate::facts::NONNEG;
use crate::lower::{Lower, Reduction};
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::vjp::{Emit, V, VjpArgs};
use crate::{Attr, Attrs, Dim, Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "prod",
    summary: "Multiplies over the given axes; over no elements it is 1.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(|e, n, _| Some(vjp(e, n))),
    rules: &[],
    facts: Facts { range: |cx| Range::new(cx.facts(0) & NONNEG, Magnitude::ANY), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Reduce(Reduction::Prod),
    eval: Eval::Pure(|cx| eval_reduce(cx, (1.0, |a, b| a * b), (1, i64::wrapping_mul))),
};

/// The product of all *other* elements is the product of those before times the
/// product of those after: unlike `out / x`, right with zeros too.
fn vjp(e: &dyn Emit, n: &VjpArgs<'_>) -> V {
    let x = n.operands[0];
    let shape = e.ty(x).shape;
    let axes = n.attrs.ints("axes");
    // Bring the reduced axes to the end, as one.
    let kept: Vec<i64> = (0..shape.len() as i64).filter(|a| !axes.contains(a)).collect();
    let perm: Vec<i64> = kept.iter().chain(axes).copied().collect();
    let moved: Vec<Dim> = perm.iter().map(|a| shape[*a as usize].clone()).collect();
    let mut flat = moved[..kept.len()].to_vec();
    flat.push(Dim::product(&moved[kept.len()..]));
    let rows = e.reshape(e.transpose(x, &perm), &flat);
    let scan = |reverse| {
        let attrs = Attrs::none()
            .with("axis", Attr::Int(kept.len() as i64))
            .with("reverse", Attr::Bool(reverse))
            .with("exclusive", Attr::Bool(true));
        e.emit(Op::CumProd, &[rows], attrs)
    };
    let others = e.reshape(e.mul(scan(false), scan(true)), &moved);
    let mut inverse = vec![0; perm.len()];
    for (i, p) in perm.iter().enumerate() {
        inverse[*p as usize] = i as i64;
    }
    let ct = unreduced(e, n.ct, &shape, axes, n.attrs.bool("keep"));
    e.mul(ct, e.transpose(others, &inverse))
}
