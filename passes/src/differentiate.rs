//! Writes `grad` nodes out.
//!
//! Each `grad` is replaced where it stands by a walk backwards from `y`: every
//! node that lies between `wrt` and `y` asks its op for the contribution to
//! each operand, and contributions to one value are summed. A `grad` of
//! something that used `grad` sees the inner one already written out, so
//! derivatives of any order need nothing more.
//!
//! Invariants
//! - Only nodes that depend on some `wrt` are differentiated.
//! - Reads of one variable with no write between them are one value here.
//! - A gradient that is zero by an op's own word (`Grad::Zero`) is zero; one
//!   that is not defined is an error showing the path.

use crate::pipeline::{Options, Passed};
use crate::util::{Stop, each_func, rewrite};
use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::{GraphEmit, Rewriter};
use tfc_ir::diag::{Diag, Span};
use tfc_ir::op::{Effect, Grad};
use tfc_ir::vjp::{Emit, V, VjpArgs, term_attrs};
use tfc_ir::{Attrs, DType, Func, Graph, Node, NodeId, Op, ValueId, VarId};

pub fn differentiate(graph: Graph, options: &Options) -> Result<Passed, Vec<Diag>> {
    each_func(graph, |graph, func| {
        let has = |func: &Func, op: Op| {
            let mut found = false;
            func.walk(&mut |_, node| found |= node.op == op);
            found
        };
        let mut changed = false;
        let mut func = func.clone();
        if has(&func, Op::Grad) {
            func = run(graph, &func, options)?;
            changed = true;
        }
        // A function's own gradient has had its say.
        while has(&func, Op::CustomGrad) {
            func = forward_only(graph, &func)?;
            changed = true;
        }
        Ok((func, changed))
    })
}

/// Puts the forward part of functions with their own gradient in their place.
fn forward_only(graph: &Graph, func: &Func) -> Result<Func, Stop> {
    rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        if node.op != Op::CustomGrad {
            return Ok(None);
        }
        let args: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
        Ok(Some(r.splice(node.regions[0], &args, &mut |_, _| Ok::<_, Stop>(None))?))
    })
}

fn run(graph: &Graph, func: &Func, options: &Options) -> Result<Func, Stop> {
    let nested = differentiated_again(func);
    rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        if node.op != Op::Grad {
            return Ok(None);
        }
        let terms = options.gradient_terms && !nested.contains(&id);
        Ok(Some(gradients(r, node, terms)?))
    })
}

/// `grad` nodes that another `grad` differentiates: their terms must be
/// written out at once.
fn differentiated_again(func: &Func) -> BTreeSet<NodeId> {
    let mut tainted: SecondaryMap<ValueId, Vec<NodeId>> = SecondaryMap::new();
    let mut out = BTreeSet::new();
    func.walk(&mut |id, node| {
        let mut from: Vec<NodeId> =
            node.operands.iter().flat_map(|v| tainted[*v].iter().copied()).collect();
        from.sort();
        from.dedup();
        if node.op == Op::Grad {
            out.extend(from.iter().copied());
            from = vec![id];
        }
        for &v in &node.results {
            tainted[v] = from.clone();
        }
    });
    out
}

/// What the walk knows about a node of the new function.
struct Walk {
    /// Nodes between `wrt` and `y`, in order.
    nodes: Vec<NodeId>,
    /// Values some `wrt` reaches.
    depends: BTreeSet<ValueId>,
    /// As above, but not through ops whose derivative is zero.
    varies: BTreeSet<ValueId>,
    /// For each value that varies, the operand it varies by: a way to `wrt`.
    via: BTreeMap<ValueId, ValueId>,
}

fn gradients(r: &mut Rewriter<'_>, node: &Node, terms: bool) -> Result<Vec<ValueId>, Stop> {
    let seeded = node.attrs.bool("seeded");
    let y = r.get(node.operands[0]);
    let first = 1 + seeded as usize;
    let wrt: Vec<ValueId> = node.operands[first..].iter().map(|v| r.get(*v)).collect();
    let same = same_reads(r);
    let canonical = |v: ValueId| same.get(&v).copied().unwrap_or(v);
    let targets: BTreeSet<ValueId> = wrt.iter().map(|v| canonical(*v)).collect();
    let walk = walk(&r.new, y, &targets, &canonical);
    for (i, w) in wrt.iter().enumerate() {
        if !reaches(&r.new, &walk, y, canonical(*w), &canonical) {
            let name = name_of(r, *w);
            return Err(Stop(vec![
                Diag::error("E0303", format!("{} does not depend on {name}", name_of(r, y)))
                    .at(node.span, format!("so this gradient with respect to {name} says nothing"))
                    .also(
                        r.old
                            .def(node.operands[first + i])
                            .map_or(Span::NONE, |d| r.old.nodes[d].span),
                        format!("{name} is made here"),
                    )
                    .help(format!("leave {name} out of `wrt`, or use it in the computation")),
            ]));
        }
    }
    let seed = if seeded {
        r.get(node.operands[1])
    } else {
        let mut b = r.builder(node.span);
        let emit = GraphEmit::new(&mut b);
        let e: &dyn Emit = &emit;
        let one = e.splat_like(1.0, emit.opaque(y));
        let one = emit.value(one);
        emit.finish()?;
        one
    };
    let mut parts: BTreeMap<ValueId, Vec<ValueId>> = BTreeMap::from([(canonical(y), vec![seed])]);
    let mut totals: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for &id in walk.nodes.iter().rev() {
        let fwd = r.new.nodes[id].clone();
        let [out] = fwd.results.as_slice() else {
            structural(&walk, &fwd, &parts)?;
            continue;
        };
        let Some(list) = parts.remove(&canonical(*out)) else { continue };
        let ct = sum(r, &fwd, list)?;
        totals.insert(canonical(*out), ct);
        match &fwd.op.def().grad {
            Grad::Zero(_) => {}
            Grad::Structural if fwd.regions.is_empty() => {}
            Grad::Structural if fwd.op == Op::CustomGrad => {
                let mut args = fwd.operands.clone();
                args.extend([*out, ct]);
                let given = r.inline(fwd.regions[1], &args)?;
                let floats = fwd.operands.iter().filter(|v| r.new.ty(**v).dtype.is_float());
                let floats: Vec<ValueId> = floats.copied().collect();
                for (operand, part) in floats.into_iter().zip(given) {
                    let target = canonical(operand);
                    if walk.varies.contains(&target) {
                        parts.entry(target).or_default().push(part);
                    }
                }
            }
            Grad::Structural => structural(&walk, &fwd, &BTreeMap::from([(*out, vec![ct])]))?,
            Grad::Undefined(why) => {
                if fwd.operands.iter().any(|v| walk.varies.contains(&canonical(*v))) {
                    return Err(undefined(r, node, &walk, y, *out, why, &canonical));
                }
            }
            Grad::Vjp(vjp) => {
                for (i, &operand) in fwd.operands.iter().enumerate() {
                    let target = canonical(operand);
                    if !walk.varies.contains(&target) || !r.new.ty(operand).dtype.is_float() {
                        continue;
                    }
                    let mut b = r.builder(fwd.span);
                    let emit = GraphEmit::new(&mut b);
                    let operands: Vec<V> = fwd.operands.iter().map(|v| emit.opaque(*v)).collect();
                    let (o, c) = (emit.opaque(*out), emit.opaque(ct));
                    let args = VjpArgs { operands: &operands, out: o, ct: c, attrs: &fwd.attrs };
                    let part = if terms {
                        let mut all = operands.clone();
                        all.extend([o, c]);
                        Some(emit.emit(Op::Vjp, &all, term_attrs(fwd.op, i, &fwd.attrs)))
                    } else {
                        vjp(&emit, &args, i)
                    };
                    let part = part.map(|v| emit.value(v));
                    emit.finish()?;
                    if let Some(part) = part {
                        parts.entry(target).or_default().push(part);
                    }
                }
            }
        }
    }
    let mut out = vec![];
    for w in wrt {
        let target = canonical(w);
        let ct = match totals.get(&target) {
            Some(ct) => Some(*ct),
            None => match parts.remove(&target) {
                Some(list) => {
                    let total = sum(r, node, list)?;
                    totals.insert(target, total);
                    Some(total)
                }
                None => None,
            },
        };
        let ct = match ct {
            Some(ct) => ct,
            None if target != canonical(y)
                && walk.varies.contains(&canonical(y))
                && on_path(&r.new, &walk, y, target, &canonical) =>
            {
                return Err(no_way(r, node, &walk, y, target, &canonical));
            }
            None => zeros(r, node, w)?,
        };
        out.push(ct);
    }
    Ok(out)
}

/// Reads of one variable with no write between them, mapped to the first.
fn same_reads(r: &Rewriter<'_>) -> BTreeMap<ValueId, ValueId> {
    let mut current: BTreeMap<VarId, ValueId> = BTreeMap::new();
    let mut out = BTreeMap::new();
    r.new.walk(&mut |_, node| match (node.op.def().effect, node.var) {
        (Effect::Read, Some(v)) => {
            let value = node.results[0];
            out.insert(value, *current.entry(v).or_insert(value));
        }
        (Effect::Write, Some(v)) => {
            current.remove(&v);
        }
        _ => {}
    });
    out
}

/// Nodes `y` is computed from, and which of them depend on the targets.
fn walk(
    func: &Func,
    y: ValueId,
    targets: &BTreeSet<ValueId>,
    canonical: &dyn Fn(ValueId) -> ValueId,
) -> Walk {
    let mut cone: BTreeSet<NodeId> = BTreeSet::new();
    let mut stack = vec![y];
    while let Some(v) = stack.pop() {
        if let Some(def) = func.def(v)
            && cone.insert(def)
        {
            stack.extend(inputs(func, &func.nodes[def]));
        }
    }
    let (mut depends, mut varies) = (targets.clone(), targets.clone());
    let mut via = BTreeMap::new();
    let mut nodes = vec![];
    // A function grows at its end, so ids are in order.
    for id in cone {
        let node = &func.nodes[id];
        let operands = inputs(func, node);
        let on = operands.iter().any(|v| depends.contains(&canonical(*v)));
        let by = operands.iter().find(|v| varies.contains(&canonical(**v)));
        let zero = matches!(node.op.def().grad, Grad::Zero(_));
        if on {
            depends.extend(node.results.iter().copied());
        }
        if let Some(by) = by
            && !zero
        {
            varies.extend(node.results.iter().copied());
            via.extend(node.results.iter().map(|v| (*v, canonical(*by))));
        }
        let itself = node.results.iter().any(|v| targets.contains(&canonical(*v)));
        if on || itself {
            nodes.push(id);
        }
    }
    Walk { nodes, depends, varies, via }
}

/// Whether `from` is computed from `target` at all.
fn reaches(
    func: &Func,
    walk: &Walk,
    from: ValueId,
    target: ValueId,
    canonical: &dyn Fn(ValueId) -> ValueId,
) -> bool {
    search(func, from, target, canonical, &|v| walk.depends.contains(&v), &|_| true).is_some()
}

/// Whether `from` varies with `target`, ops of zero derivative left out.
fn on_path(
    func: &Func,
    walk: &Walk,
    from: ValueId,
    target: ValueId,
    canonical: &dyn Fn(ValueId) -> ValueId,
) -> bool {
    path(func, walk, from, target, canonical).is_some()
}

/// Values from `from` down to `target`.
fn path(
    func: &Func,
    walk: &Walk,
    from: ValueId,
    target: ValueId,
    canonical: &dyn Fn(ValueId) -> ValueId,
) -> Option<Vec<ValueId>> {
    let through = |n: &Node| !matches!(n.op.def().grad, Grad::Zero(_));
    search(func, from, target, canonical, &|v| walk.varies.contains(&v), &through)
}

fn search(
    func: &Func,
    from: ValueId,
    target: ValueId,
    canonical: &dyn Fn(ValueId) -> ValueId,
    inside: &dyn Fn(ValueId) -> bool,
    through: &dyn Fn(&Node) -> bool,
) -> Option<Vec<ValueId>> {
    let mut came: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut stack = vec![canonical(from)];
    let mut seen: BTreeSet<ValueId> = stack.iter().copied().collect();
    while let Some(v) = stack.pop() {
        if v == target {
            let mut path = vec![v];
            let mut at = v;
            while let Some(up) = came.get(&at) {
                path.push(*up);
                at = *up;
            }
            path.reverse();
            return Some(path);
        }
        let Some(def) = func.def(v) else { continue };
        let node = &func.nodes[def];
        if !through(node) {
            continue;
        }
        for o in inputs(func, node) {
            let o = canonical(o);
            if inside(o) && seen.insert(o) {
                came.insert(o, v);
                stack.push(o);
            }
        }
    }
    None
}

/// What a node is computed from. A function with its own gradient is opaque.
fn inputs(func: &Func, node: &Node) -> Vec<ValueId> {
    if node.op == Op::CustomGrad || node.regions.is_empty() {
        return node.operands.clone();
    }
    crate::lower::deep_operands(func, node)
}

fn sum(r: &mut Rewriter<'_>, at: &Node, list: Vec<ValueId>) -> Result<ValueId, Stop> {
    let mut list = list.into_iter();
    let Some(mut total) = list.next() else { unreachable!("a value without contributions") };
    for part in list {
        total = r.builder(at.span).emit(Op::Add, &[total, part], Attrs::none())?;
    }
    Ok(total)
}

fn zeros(r: &mut Rewriter<'_>, node: &Node, like: ValueId) -> Result<ValueId, Stop> {
    let mut b = r.builder(node.span);
    let emit = GraphEmit::new(&mut b);
    let e: &dyn Emit = &emit;
    let zero = e.splat_like(0.0, emit.opaque(like));
    let zero = emit.value(zero);
    emit.finish()?;
    Ok(zero)
}

/// Control flow is not differentiated yet.
fn structural(
    walk: &Walk,
    node: &Node,
    parts: &BTreeMap<ValueId, Vec<ValueId>>,
) -> Result<(), Stop> {
    let reached = node.results.iter().any(|v| parts.contains_key(v) && walk.varies.contains(v));
    if !reached {
        return Ok(());
    }
    Err(Stop(vec![
        Diag::error("E0320", format!("the gradient goes through `{}`", node.op.name()))
            .at(node.span, "this cannot be differentiated yet")
            .help(
                "use `select` for a choice between values, or a fixed number of steps for a loop",
            ),
    ]))
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

fn undefined(
    r: &Rewriter<'_>,
    grad: &Node,
    walk: &Walk,
    y: ValueId,
    at: ValueId,
    why: &str,
    canonical: &dyn Fn(ValueId) -> ValueId,
) -> Stop {
    let op = r.def(at).map_or("", |n| n.op.name());
    let span = r.def(at).map_or(Span::NONE, |n| n.span);
    let mut chain = path(&r.new, walk, y, canonical(at), canonical).unwrap_or_default();
    let mut v = canonical(at);
    while let Some(next) = walk.via.get(&v) {
        chain.push(*next);
        v = *next;
    }
    Stop(vec![
        Diag::error("E0301", format!("`{op}` has no gradient: {why}"))
            .at(span, "the gradient must pass here")
            .also(grad.span, "asked for here")
            .note(format!("the path: {}", show_path(r, &chain)))
            .help("`stop_gradient(..)` treats a value as a constant"),
    ])
}

/// `y` varies with a target, but no contribution arrived: some op on the way
/// has no derivative (an index, a truth value).
fn no_way(
    r: &Rewriter<'_>,
    grad: &Node,
    walk: &Walk,
    y: ValueId,
    target: ValueId,
    canonical: &dyn Fn(ValueId) -> ValueId,
) -> Stop {
    let chain = path(&r.new, walk, y, target, canonical).unwrap_or_default();
    let block = chain.iter().copied().find(|v| {
        let dtype = r.new.ty(*v).dtype;
        !dtype.is_float() || matches!(r.def(*v).map(|n| &n.op.def().grad), Some(Grad::Undefined(_)))
    });
    let at = block.unwrap_or(y);
    let kind = match r.new.ty(at).dtype {
        DType::Bool => "a truth value",
        d if d.is_int() => "an integer",
        _ => "not differentiable",
    };
    let name = name_of(r, target);
    Stop(vec![
        Diag::error(
            "E0301",
            format!("there is no gradient of {} with respect to {name}", name_of(r, y)),
        )
        .at(
            r.def(at).map_or(Span::NONE, |n| n.span),
            format!("this is {kind}, and every path goes through it"),
        )
        .also(grad.span, "asked for here")
        .note(format!("the path: {}", show_path(r, &chain))),
    ])
}
