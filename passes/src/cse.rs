//! Computes equal things once.
//!
//! Pure nodes with equal op, operands, attributes and device are one. Reads of
//! a variable with no write between them are one, and a read after an assignment
//! is the value assigned. Inside a region, what the
//! enclosing ones computed is used too.

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use std::collections::BTreeMap;
use std::sync::Arc;
use tfc_ir::diag::Diag;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::op::Effect;
use tfc_ir::{Attrs, Func, Graph, Node, Op, RegionId, ValueId, VarId};

pub fn cse(graph: Graph, _: &PassOptions) -> Result<Passed, Vec<Diag>> {
    each_func(graph, run)
}

type Key = (Op, Vec<ValueId>, Attrs, Option<Arc<str>>, Option<(VarId, u32)>);

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut changed = false;
    // Per open region (of the new function), what it computed.
    let mut known: Vec<(RegionId, BTreeMap<Key, Vec<ValueId>>)> = vec![];
    let mut versions: BTreeMap<VarId, u32> = BTreeMap::new();
    let mut next = 0;
    let new = rewrite(graph, func, &mut |r, id| {
        let node = &r.old.nodes[id];
        // What a region computed is known until it is left, and no longer.
        known.retain(|(region, _)| r.is_open(*region));
        if known.last().is_none_or(|(region, _)| *region != r.region) {
            known.push((r.region, BTreeMap::new()));
        }
        let state = match (node.op.def().effect, node.var) {
            (Effect::Pure, _) => None,
            (Effect::Read, Some(v)) => Some((v, versions.get(&v).copied().unwrap_or(0))),
            _ => {
                // Writes inside a loop also precede the reads before them.
                let mut touched = vec![];
                written(r.old, node, &mut touched);
                for v in touched {
                    next += 1;
                    versions.insert(v, next);
                }
                // A read straight after an assignment is the value assigned.
                if let (Lower::Step(StepKind::Assign), Some(v)) = (&node.op.def().lower, node.var) {
                    let key =
                        (Op::Read, vec![], Attrs::none(), node.device.clone(), Some((v, next)));
                    let value = r.get(node.operands[0]);
                    if let Some((_, map)) = known.last_mut() {
                        map.insert(key, vec![value]);
                    }
                }
                return Ok(None);
            }
        };
        if !node.regions.is_empty() || !node.after.is_empty() {
            return Ok(None);
        }
        let operands: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
        let key = (node.op, operands, node.attrs.clone(), node.device.clone(), state);
        if let Some(values) = known.iter().rev().find_map(|(_, map)| map.get(&key)) {
            changed = true;
            return Ok(Some(values.clone()));
        }
        let spec = tfc_ir::build::NodeSpec {
            op: node.op,
            operands: key.1.clone(),
            attrs: node.attrs.clone(),
            var: node.var,
            regions: vec![],
            after: vec![],
            device: node.device.clone(),
            span: node.span,
            site: node.site,
        };
        let copy = r.builder(&node.origin()).node(spec)?;
        r.replace_node(id, copy);
        let values = r.new.nodes[copy].results.clone();
        if let Some((_, map)) = known.last_mut() {
            map.insert(key, values.clone());
        }
        Ok(Some(values))
    })?;
    Ok((new, changed))
}

/// Variables a node or its regions write.
pub(crate) fn written(func: &Func, node: &Node, out: &mut Vec<VarId>) {
    if let (Effect::Write, Some(v)) = (node.op.def().effect, node.var) {
        out.push(v);
    }
    for &r in &node.regions {
        for &id in &func.regions[r].nodes {
            written(func, &func.nodes[id], out);
        }
    }
}
