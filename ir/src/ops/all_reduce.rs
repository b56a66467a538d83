//! Combining a value over the processes that train together.

use super::util::*;
use crate::attr::AttrKind;
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V, VjpArgs};
use crate::{Attr, Attrs, Op, OpDef};

/// Attributes of this op and of `exchange`, which it becomes.
pub const ATTRS: &[AttrSpec] = &[
    AttrSpec {
        name: "op",
        kind: AttrKind::Str,
        default: Some(|| Attr::Str("mean".to_string())),
        doc: "`mean` (weighted by the examples each process has), `sum`, `max` or `min`",
    },
    AttrSpec {
        name: "name",
        kind: AttrKind::Str,
        default: Some(|| Attr::Str(String::new())),
        doc: "what is combined, for messages",
    },
];

pub const DEF: OpDef = OpDef {
    name: "all_reduce",
    summary: "Combines a tensor with its counterparts in the other processes of a job, each of \
              which gets the result. In a program that runs by itself it is the tensor. \
              `minimize` averages with it what it learns from.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Source,
    infer: |cx| {
        check(cx)?;
        same(cx)
    },
    grad: Grad::Vjp(vjp),
    // None would ever meet one: `replicas` runs before the search and leaves no `all_reduce`.
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    // The pass `replicas` makes an `exchange` of it, or nothing.
    lower: Lower::Never,
    eval: Eval::Pure(|cx| Ok(vec![cx.operands[0].clone()])),
};

/// The way of combining is one there is, and goes with the element type.
pub(super) fn check(cx: &InferCx<'_>) -> Result<(), InferError> {
    let op = cx.attrs.str("op");
    if !["mean", "sum", "max", "min"].contains(&op) {
        return Err(InferError::new("E0245", format!("`{op}` is no way to combine values"))
            .at(Blame::Attr("op"), "must be \"mean\", \"sum\", \"max\" or \"min\""));
    }
    match cx.operands.iter().position(|ty| op == "mean" && !ty.dtype.is_float()) {
        Some(i) => Err(InferError::new("E0245", "a mean of integers is no integer")
            .at(Blame::Operand(i), format!("this is {}", cx.operands[i]))
            .help("use `op: \"sum\"`, or convert it: `cast(.., to: f32)`")),
        None => Ok(()),
    }
}

/// Every process's loss depends on the result, and gradients of weights are averaged
/// over the processes: so what flows back is combined in the same way.
fn vjp(e: &dyn Emit, n: &VjpArgs<'_>, _: usize) -> Option<V> {
    let over = |op: &str| {
        let attrs = Attrs::none()
            .with("op", Attr::Str(op.to_string()))
            .with("name", Attr::Str(n.attrs.str("name").to_string()));
        e.emit(Op::AllReduce, &[n.ct], attrs)
    };
    match n.attrs.str("op") {
        op @ ("mean" | "sum") => Some(over(op)),
        _ => {
            // To whoever has the largest.
            let ct = over("sum");
            let zero = e.splat_like(0.0, ct);
            let chosen = e.binary(Op::Eq, n.operands[0], n.out);
            Some(e.emit(Op::Select, &[chosen, ct, zero], Attrs::none()))
        }
    }
}
