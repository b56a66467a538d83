//! What cannot be differentiated, said in the user's words.

use super::reverse::Reverse;
use crate::util::Stop;
use tfc_ir::build::Rewriter;
use tfc_ir::diag::{Diag, Span};
use tfc_ir::op::Grad;
use tfc_ir::{DType, Node, ValueId};

/// `y` is not computed from `w`, which is `old` in the source.
pub(super) fn independent(
    r: &Rewriter<'_>,
    grad: &Node,
    y: ValueId,
    w: ValueId,
    old: ValueId,
) -> Stop {
    let name = name_of(r, w);
    let made = r.old.def(old).map_or(Span::NONE, |d| r.old.nodes[d].span);
    Stop(vec![
        Diag::error("E0303", format!("{} does not depend on {name}", name_of(r, y)))
            .at(grad.span, format!("so this gradient with respect to {name} says nothing"))
            .also(made, format!("{name} is made here"))
            .help(format!("leave {name} out, or use it in the computation")),
    ])
}

pub(super) fn undefined(s: &Reverse<'_, '_>, at: ValueId, why: &str) -> Stop {
    let op = s.r.def(at).map_or("", |n| n.op.name());
    let span = s.r.def(at).map_or(Span::NONE, |n| n.span);
    let mut v = s.walk.canonical(at);
    let mut chain = s.walk.path(&s.r.new, s.y, v).unwrap_or_default();
    while let Some(next) = s.walk.via.get(&v) {
        chain.push(*next);
        v = *next;
    }
    Stop(vec![
        Diag::error("E0301", format!("`{op}` has no gradient: {why}"))
            .at(span, "the gradient must pass here")
            .also(s.grad.span, "asked for here")
            .note(format!("the path: {}", show_path(s.r, &chain)))
            .help("`stop_gradient(..)` treats a value as a constant"),
    ])
}

/// `y` varies with a target, but no contribution arrived: some op on the way
/// has no derivative (an index, a truth value).
pub(super) fn no_way(s: &Reverse<'_, '_>, target: ValueId) -> Stop {
    let chain = s.walk.path(&s.r.new, s.y, target).unwrap_or_default();
    let block = chain.iter().copied().find(|v| {
        let undefined = |n: &Node| matches!(n.op.def().grad, Grad::Undefined(_));
        !s.r.new.ty(*v).dtype.is_float() || s.r.def(*v).is_some_and(undefined)
    });
    let at = block.unwrap_or(s.y);
    let kind = match s.r.new.ty(at).dtype {
        DType::Bool => "a truth value",
        d if d.is_int() => "an integer",
        _ => "not differentiable",
    };
    let name = name_of(s.r, target);
    Stop(vec![
        Diag::error(
            "E0301",
            format!("there is no gradient of {} with respect to {name}", name_of(s.r, s.y)),
        )
        .at(
            s.r.def(at).map_or(Span::NONE, |n| n.span),
            format!("this is {kind}, and every path goes through it"),
        )
        .also(s.grad.span, "asked for here")
        .note(format!("the path: {}", show_path(s.r, &chain))),
    ])
}

fn name_of(r: &Rewriter<'_>, v: ValueId) -> String {
    if let Some(name) = &r.new.values[v].name {
        return format!("`{name}`");
    }
    match r.def(v) {
        Some(node) => match node.var {
            Some(var) => format!("`{}`", r.vars[var].name),
            None => format!("the result of `{}`", node.op.name()),
        },
        None => "a value".to_string(),
    }
}

fn show_path(r: &Rewriter<'_>, path: &[ValueId]) -> String {
    path.iter().map(|v| name_of(r, *v)).collect::<Vec<_>>().join(" <- ")
}
