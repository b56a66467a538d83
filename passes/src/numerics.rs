//! Checks every result for NaN and infinities, for `--check-numerics`.
//!
//! After each op that computes floats stands a `check_finite` of its result and of
//! what it was computed from; feeds and variables are checked where they come in.
//! The first check that fails names the op. Every value is stored to be looked at,
//! so such a program is slow, and the passes that would rearrange it are left out.

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use tfc_ir::build::{NodeSpec, Rewriter};
use tfc_ir::diag::Diag;
use tfc_ir::op::{Effect, Moves};
use tfc_ir::{Attr, Attrs, Func, Graph, Node, Op, ValueId};

pub fn numerics(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    if !options.check_numerics {
        return Ok(Passed::new(graph, false));
    }
    each_func(graph, run)
}

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut begun = false;
    let new = rewrite(graph, func, &mut |r, id| {
        if !std::mem::replace(&mut begun, true) {
            for &param in r.old.params() {
                let node = Node { op: Op::Const, ..blank() };
                check(r, &node, "feed", param, r.get(param), &[])?;
            }
        }
        let node = &r.old.nodes[id];
        let effect = node.op.def().effect;
        // These only repeat or rename what others computed.
        let moves = matches!(node.op.def().facts.moves, Moves::Repeated | Moves::Reshaped)
            || node.op == Op::Const;
        let computes = effect == Effect::Pure && !moves || effect == Effect::Read;
        if !computes || !node.regions.is_empty() {
            return Ok(None);
        }
        let spec = NodeSpec {
            op: node.op,
            operands: node.operands.iter().map(|v| r.get(*v)).collect(),
            attrs: node.attrs.clone(),
            var: node.var,
            regions: vec![],
            after: node.after.iter().filter_map(|n| r.node(*n)).collect(),
            device: node.device.clone(),
            span: node.span,
            site: node.site,
        };
        let copy = r.builder(&node.origin()).node(spec)?;
        r.replace_node(id, copy);
        let results = r.new.nodes[copy].results.clone();
        for (&old, &new) in node.results.iter().zip(&results) {
            check(r, node, node.op.name(), old, new, &node.operands)?;
        }
        Ok(Some(results))
    })?;
    Ok((new, true))
}

fn check(
    r: &mut Rewriter<'_>,
    node: &Node,
    user: &str,
    old: ValueId,
    new: ValueId,
    operands: &[ValueId],
) -> Result<(), Stop> {
    let func = r.old;
    if !func.ty(old).dtype.is_float() {
        return Ok(());
    }
    let floats = || operands.iter().filter(|v| func.ty(**v).dtype.is_float());
    let called = |v: ValueId| func.values[v].name.as_deref().unwrap_or("").to_string();
    let names: Vec<String> = floats().map(|v| called(*v)).collect();
    let name = match node.var {
        Some(var) => r.vars[var].name.clone(),
        None => called(old),
    };
    let attrs = Attrs::none()
        .with("name", Attr::Str(name))
        .with("user", Attr::Str(user.to_string()))
        .with("names", Attr::Str(names.join(",")));
    let mut values = vec![new];
    values.extend(floats().map(|v| r.get(*v)));
    r.builder(&node.origin()).node(NodeSpec::new(Op::CheckFinite, &values, attrs, node.span))?;
    Ok(())
}

/// A node of no place.
fn blank() -> Node {
    Node {
        op: Op::Const,
        operands: vec![],
        attrs: Attrs::none(),
        var: None,
        regions: vec![],
        after: vec![],
        device: None,
        results: vec![],
        span: tfc_ir::diag::Span::NONE,
        site: tfc_ir::diag::Span::NONE,
    }
}
