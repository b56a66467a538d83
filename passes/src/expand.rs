//! Writes composite ops out in simpler ones: those whose record says so, and
//! updates of variables by an amount.

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use tfc_ir::build::{GraphEmit, NodeSpec, Rewriter};
use tfc_ir::diag::Diag;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::vjp::{ExpandFn, V};
use tfc_ir::{Attrs, Func, Graph, Node, NodeId, Op, ValueId};

/// Expansions may use composite ops themselves, but not for ever.
const MAX_DEPTH: usize = 16;

pub fn expand(graph: Graph, _: &PassOptions) -> Result<Passed, Vec<Diag>> {
    each_func(graph, |graph, func| {
        let mut func = func.clone();
        let mut changed = false;
        for _ in 0..MAX_DEPTH {
            let (new, again) = once(graph, &func)?;
            func = new;
            changed |= again;
            if !again {
                break;
            }
        }
        Ok((func, changed))
    })
}

fn once(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut any = false;
    func.walk(&mut |_, node| any |= composite(node));
    if !any {
        return Ok((func.clone(), false));
    }
    let new = rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        match node.op.def().lower {
            Lower::Expand(expand) => expanded(r, node, expand).map(|v| Some(vec![v])),
            Lower::Step(StepKind::Update(op)) => update(r, id, op).map(|()| Some(vec![])),
            _ => Ok(None),
        }
    })?;
    Ok((new, true))
}

fn expanded(r: &mut Rewriter<'_>, node: &Node, expand: ExpandFn) -> Result<ValueId, Stop> {
    let operands: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
    let mut builder = r.builder(&node.origin());
    let emit = GraphEmit::new(&mut builder);
    let operands: Vec<V> = operands.iter().map(|v| emit.opaque(*v)).collect();
    let value = expand(&emit, &operands, &node.attrs);
    let value = emit.value(value);
    emit.finish()?;
    Ok(value)
}

fn composite(node: &Node) -> bool {
    matches!(node.op.def().lower, Lower::Expand(_) | Lower::Step(StepKind::Update(_)))
}

/// `assign_add(v, x)` is `assign(v, read(v) + x)`; the kernel that adds then
/// stores in place.
fn update(r: &mut Rewriter<'_>, id: NodeId, op: Op) -> Result<(), Stop> {
    let node = &r.old.nodes[id];
    let x = r.get(node.operands[0]);
    let with = |op: Op, operands: &[ValueId]| NodeSpec {
        var: node.var,
        device: node.device.clone(),
        ..NodeSpec::new(op, operands, Attrs::none(), node.span)
    };
    let read = r.builder(&node.origin()).node(with(Op::Read, &[]))?;
    let old = r.new.nodes[read].results[0];
    let sum = r.builder(&node.origin()).emit(op, &[old, x], Attrs::none())?;
    let after = node.after.iter().filter_map(|n| r.node(*n)).collect();
    let spec = NodeSpec { after, ..with(Op::Assign, &[sum]) };
    let assign = r.builder(&node.origin()).node(spec)?;
    r.replace_node(id, assign);
    Ok(())
}
