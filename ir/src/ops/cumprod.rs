//! Running products.

use super::util::*;
use crate::kernel::Combine;
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V, VjpArgs};
use crate::{Attr, Attrs, DType, Dim, Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "cumprod",
    summary: "Gives running products along an axis: each element combined with all before it.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: SCAN_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_scan,
    grad: Grad::Vjp(|e, n, _| Some(vjp(e, n))),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Scan(Combine::Prod),
    eval: Eval::Pure(|cx| eval_scan(cx, (1.0, |a, b| a * b), (1, i64::wrapping_mul))),
};

/// With `L[i]` the product of the elements before `i`, and `C[i, k]` the product
/// of those after `i` up to `k` (in the order of the scan), `d out[k] / d x[i] = L[i] C[i, k]`. Quadratic in
/// the axis, but right with zeros and differentiable again.
fn vjp(e: &dyn Emit, n: &VjpArgs<'_>) -> V {
    let (x, ct) = (n.operands[0], n.ct);
    let ty = e.ty(x);
    let axis = n.attrs.int("axis") as usize;
    let (reverse, exclusive) = (n.attrs.bool("reverse"), n.attrs.bool("exclusive"));
    let scan = |x, axis: usize, exclusive| {
        let attrs = Attrs::none()
            .with("axis", Attr::Int(axis as i64))
            .with("reverse", Attr::Bool(reverse))
            .with("exclusive", Attr::Bool(exclusive));
        e.emit(Op::CumProd, &[x], attrs)
    };
    // Axis `axis` is i, and k is put right after it.
    let size: Dim = ty.shape[axis].clone();
    let mut square = ty.shape.clone();
    square.insert(axis + 1, size.clone());
    let along = |x: V, axes: Vec<i64>| e.broadcast(x, &square, &axes);
    let rank = ty.rank();
    let all: Vec<i64> = (0..=rank as i64).collect();
    let without = |axis: usize| all.iter().copied().filter(|a| *a as usize != axis).collect();
    let position = Attrs::none()
        .with("shape", Attr::Shape(vec![size]))
        .with("axis", Attr::Int(0))
        .with("dtype", Attr::DType(DType::I64));
    let position = e.emit(Op::Iota, &[], position);
    let i = along(position, vec![axis as i64]);
    let k = along(position, vec![axis as i64 + 1]);
    let (later, not_earlier) = if reverse { (Op::Lt, Op::Le) } else { (Op::Gt, Op::Ge) };
    // Elements not after i count as one.
    let after = e.binary(later, k, i);
    let one = e.splat(1.0, ty.dtype, &square);
    let zero = e.splat(0.0, ty.dtype, &square);
    let others = e.select(after, along(x, without(axis)), one);
    let products = scan(others, axis + 1, exclusive);
    // An exclusive product at k includes i only if k is after i.
    let reached = if exclusive { after } else { e.binary(not_earlier, k, i) };
    let terms = e.select(reached, e.mul(along(ct, without(axis)), products), zero);
    let before = scan(x, axis, true);
    e.mul(before, e.sum(terms, &[axis as i64 + 1]))
}
