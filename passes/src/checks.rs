//! Makes checks of indices out of ops that fail where one is out of range.
//!
//! `gather(x, ids)` becomes `check_index(ids, ..)` and a `gather` that may clamp:
//! from here on every op is a plain function again, and the check is an effect, so
//! that no rewrite can lose it. A check whose indices are seen to be in range
//! (counts, results of `argmax`, counters of loops, what was clamped) is left out.
//!
//! A check runs before the writes that stand before it in the text, if nothing
//! else the world can see lies between and its indices do not depend on them: a
//! call that fails for its indices has then changed no variable.

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use std::collections::BTreeMap;
use tfc_ir::build::NodeSpec;
use tfc_ir::diag::Diag;
use tfc_ir::eval::{Array, Data};
use tfc_ir::facts::{IntRange, IntegersCx};
use tfc_ir::graph::Def;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::{Effect, Moves};
use tfc_ir::ops::bounds::{self, IndexUse, IndicesCx};
use tfc_ir::{Attr, Attrs, Dim, Func, Graph, Node, NodeId, Op, RegionId, TensorType, ValueId};

pub fn checks(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let unchecked = options.unchecked;
    each_func(graph, |graph, func| run(graph, func, unchecked))
}

fn run(graph: &Graph, func: &Func, unchecked: bool) -> Result<(Func, bool), Stop> {
    let loops = Loops::of(func);
    let mut changed = false;
    let mut new = rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        let types: Vec<_> = node.operands.iter().map(|v| r.old.ty(*v)).collect();
        let var = node.var.map(|v| &graph.vars[v].ty);
        let cx = IndicesCx { attrs: &node.attrs, operands: &types, var };
        let found = bounds::indices(node.op, &cx);
        if found.is_empty() {
            return Ok(None);
        }
        for at in found.iter().filter(|_| !unchecked) {
            let ids = node.operands[at.operand];
            if in_range(func, &loops, ids, at) {
                continue;
            }
            changed = true;
            let attrs = Attrs::none()
                .with("size", Attr::Shape(vec![at.size.clone()]))
                .with("width", Attr::Shape(vec![at.width.clone()]))
                .with("axis", Attr::Int(at.axis as i64))
                .with("name", Attr::Str(name(func, ids)))
                .with("user", Attr::Str(node.op.name().to_string()));
            let spec = NodeSpec::new(Op::CheckIndex, &[r.get(ids)], attrs, node.span);
            r.builder(&node.origin()).node(spec)?;
        }
        if bounds::otherwise(node.op).is_none() {
            return Ok(None);
        }
        changed = true;
        let operands: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
        let attrs = bounds::unchecked(node.op, node.attrs.clone());
        Ok(Some(vec![r.builder(&node.origin()).emit(node.op, &operands, attrs)?]))
    })?;
    let regions: Vec<RegionId> = new.regions.keys().collect();
    for region in regions {
        hoist(&mut new, region);
    }
    Ok((new, changed))
}

/// What the source calls indices: the feed they come from, or their own name.
fn name(func: &Func, ids: ValueId) -> String {
    let own = |v: ValueId| func.values[v].name.as_deref().map(str::to_string);
    let mut at = ids;
    loop {
        if own(at).is_some() {
            break;
        }
        match func.def(at).map(|n| &func.nodes[n]) {
            Some(n) if renames(n) => at = n.operands[0],
            _ => break,
        }
    }
    own(at).unwrap_or_default()
}

/// Whether a node gives its operand another shape or element type, no more.
fn renames(node: &Node) -> bool {
    matches!(node.op.def().facts.moves, Moves::Reshaped | Moves::Converted)
}

/// Moves checks in front of writes.
fn hoist(func: &mut Func, region: RegionId) {
    let nodes = std::mem::take(&mut func.regions[region].nodes);
    let mut out: Vec<NodeId> = Vec::with_capacity(nodes.len());
    // Since the last effect that a check must not overtake.
    let mut barrier = 0;
    let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in nodes {
        let node = &func.nodes[id];
        if is_check(node) {
            let defined = match func.values[node.operands[0]].def {
                Def::Node(def, _) => places.get(&def).map_or(0, |at| at + 1),
                Def::Param(..) => 0,
            };
            let from = barrier.max(defined);
            let write = out[from..].iter().position(|n| acts(func, *n));
            let at = write.map_or(out.len(), |w| from + w);
            out.insert(at, id);
            for place in places.values_mut().filter(|p| **p >= at) {
                *place += 1;
            }
            places.insert(id, at);
            continue;
        }
        if seen(func, id) {
            barrier = out.len() + 1;
        }
        places.insert(id, out.len());
        out.push(id);
    }
    func.regions[region].nodes = out;
}

fn is_check(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Step(StepKind::CheckIndex))
}

/// Whether a node, or one inside it, writes variables.
fn acts(func: &Func, id: NodeId) -> bool {
    any(func, id, &|node| node.op.def().effect == Effect::Write)
}

/// Whether the world can see that a node ran, checks apart: it prints, asserts,
/// takes from a queue.
fn seen(func: &Func, id: NodeId) -> bool {
    any(func, id, &|node| match node.op.def().effect {
        Effect::Io => !is_check(node),
        Effect::Write => tfc_ir::ops::queue::is_queue_op(node.op),
        Effect::Stack => true,
        _ => false,
    })
}

fn any(func: &Func, id: NodeId, test: &dyn Fn(&Node) -> bool) -> bool {
    let node = &func.nodes[id];
    let inside = |r: &RegionId| func.regions[*r].nodes.iter().any(|n| any(func, *n, test));
    test(node) || node.regions.iter().any(inside)
}

/// `while` nodes by their bodies.
struct Loops(BTreeMap<RegionId, NodeId>);

impl Loops {
    fn of(func: &Func) -> Loops {
        let mut out = BTreeMap::new();
        func.walk(&mut |id, node| {
            if let (Op::While, Some(body)) = (node.op, node.regions.get(1)) {
                out.insert(*body, id);
            }
        });
        Loops(out)
    }
}

/// Whether all indices are certain to be in range.
fn in_range(func: &Func, loops: &Loops, ids: ValueId, at: &IndexUse) -> bool {
    let Some(range) = range(func, loops, ids, 16) else { return false };
    let room = at.size.clone() - at.width.clone() + 1i64.into() - range.end;
    range.start >= 0 && room.is_never_negative()
}

/// Bounds of a tensor of integers that its definition shows. `fuel` limits how far
/// is looked.
fn range(func: &Func, loops: &Loops, value: ValueId, fuel: u32) -> Option<IntRange> {
    let fuel = fuel.checked_sub(1)?;
    let Def::Node(id, _) = func.values[value].def else { return counter(func, loops, value) };
    let node = &func.nodes[id];
    if node.op == Op::Const {
        let Data::Int(a) = Array::from_tensor(node.attrs.tensor("value")?).data else {
            return None;
        };
        let (low, high) = (a.iter().min()?, a.iter().max()?);
        return Some(IntRange { start: *low, end: high.checked_add(1)?.into() });
    }
    let of = |i: usize| range(func, loops, node.operands[i], fuel);
    let facts = &node.op.def().facts;
    if let Some(mut sources) = facts.moves.sources(node.operands.len()) {
        let first = of(sources.next()?)?;
        return sources.try_fold(first, |all, i| all.or(of(i)?));
    }
    let operands: Vec<&TensorType> = node.operands.iter().map(|v| func.ty(*v)).collect();
    (facts.integers)(&IntegersCx {
        attrs: &node.attrs,
        operands: &operands,
        result: func.ty(value),
        range: &of,
        constant: &|i| constant(func, node.operands[i]),
    })
}

/// The one value of a constant.
fn constant(func: &Func, value: ValueId) -> Option<i64> {
    let node = &func.nodes[func.def(value)?];
    if node.op == Op::Const {
        let Data::Int(a) = Array::from_tensor(node.attrs.tensor("value")?).data else {
            return None;
        };
        let first = *a.first()?;
        return a.iter().all(|v| *v == first).then_some(first);
    }
    let repeats = node.op.def().facts.moves == Moves::Repeated;
    repeats.then(|| constant(func, node.operands[0])).flatten()
}

/// The range of a loop's counter, in its body: `while (t = 0) t < N { yield t + 1 }`.
fn counter(func: &Func, loops: &Loops, value: ValueId) -> Option<IntRange> {
    let Def::Param(body, i) = func.values[value].def else { return None };
    let node = &func.nodes[*loops.0.get(&body)?];
    let i = i as usize;
    let start = constant(func, node.operands[i])?;
    let next = &func.nodes[func.def(func.regions[body].results[i])?];
    let step = match (next.op, next.operands.as_slice()) {
        (Op::Add, [a, b]) if *a == value => constant(func, *b)?,
        (Op::Add, [a, b]) if *b == value => constant(func, *a)?,
        _ => return None,
    };
    if step <= 0 {
        return None;
    }
    let test = &func.regions[node.regions[0]];
    let end = limit(func, *test.results.first()?, test.params[i])?;
    Some(IntRange { start, end })
}

/// What a condition says that a value is below.
fn limit(func: &Func, cond: ValueId, value: ValueId) -> Option<Dim> {
    let node = &func.nodes[func.def(cond)?];
    let size = |v: ValueId| -> Option<Dim> {
        if let Some(c) = constant(func, v) {
            return Some(c.into());
        }
        let mut node = &func.nodes[func.def(v)?];
        while node.op.def().facts.moves == Moves::Converted {
            node = &func.nodes[func.def(node.operands[0])?];
        }
        if node.op == Op::DimSize { node.attrs.shape("size").first().cloned() } else { None }
    };
    match (node.op, node.operands.as_slice()) {
        (Op::Lt, [a, b]) if *a == value => size(*b),
        (Op::Gt, [a, b]) if *b == value => size(*a),
        (Op::Le, [a, b]) if *a == value => Some(size(*b)? + 1i64.into()),
        (Op::Ge, [a, b]) if *b == value => Some(size(*a)? + 1i64.into()),
        (Op::And, [a, b]) => limit(func, *a, value).or_else(|| limit(func, *b, value)),
        _ => None,
    }
}
