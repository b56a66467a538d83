//! Drops ops that do nothing, merges chains of movement, and moves transposes
//! into the products that can read their operands transposed. How, the records say
//! ([`tfc_ir::facts::Facts::simpler`]).

use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use tfc_ir::build::Rewriter;
use tfc_ir::diag::Diag;
use tfc_ir::facts::{Simpler, SimplerCx};
use tfc_ir::lower::Lower;
use tfc_ir::{Func, Graph, NodeId, ValueId};

pub fn canonicalize(graph: Graph, _: &PassOptions) -> Result<Passed, Vec<Diag>> {
    each_func(graph, run)
}

fn run(graph: &Graph, func: &Func) -> Result<(Func, bool), Stop> {
    let mut changed = false;
    let new = rewrite(graph, func, &mut |r, id| {
        let value = simplify(r, id)?;
        changed |= value.is_some();
        Ok(value.map(|v| vec![v]))
    })?;
    Ok((new, changed))
}

fn simplify(r: &mut Rewriter<'_>, id: NodeId) -> Result<Option<ValueId>, Stop> {
    let node = &r.old.nodes[id];
    let [result] = node.results.as_slice() else { return Ok(None) };
    let operands: Vec<ValueId> = node.operands.iter().map(|v| r.get(*v)).collect();
    let def = node.op.def();
    let to = r.old.ty(*result);
    // A reduction over no axes keeps every element.
    if let (Lower::Reduce(kind), [x]) = (&def.lower, operands.as_slice())
        && kind.combining().is_some()
        && node.attrs.ints("axes").is_empty()
        && r.new.ty(*x) == to
    {
        return Ok(Some(*x));
    }
    let cx = SimplerCx { func: &r.new, operands: &operands, attrs: &node.attrs, result: to };
    match (def.facts.simpler)(&cx) {
        None => Ok(None),
        Some(Simpler::Value(value)) => Ok(Some(value)),
        Some(Simpler::Node(op, operands, attrs)) => {
            Ok(Some(r.builder(&node.origin()).emit(op, &operands, attrs)?))
        }
    }
}
