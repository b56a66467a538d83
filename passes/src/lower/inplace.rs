//! Which outputs of a kernel may take the bytes of which inputs.
//!
//! An output may overwrite an input when every load of the input reads exactly
//! the element the output stores in the same place of the loop nest, and comes
//! before that store. Then each element is read before it is replaced, whatever
//! part of the outermost loop a thread gets.

use std::collections::BTreeMap;
use tfc_ir::Dim;
use tfc_ir::kernel::{Ix, Kernel, LoopVar, Stmt};

/// Start of an address, strides by nesting depth of the loop, and the extents
/// of the loops around.
type Form = (Dim, Vec<(usize, Dim)>, Vec<Dim>);

struct Access {
    order: u32,
    /// None if a register takes part.
    form: Option<Form>,
}

/// Pairs `(output, input)` of kernel buffers.
pub(crate) fn pairs(kernel: &Kernel) -> Vec<(usize, usize)> {
    let mut loads: BTreeMap<usize, Vec<Access>> = BTreeMap::new();
    let mut stores: BTreeMap<usize, Vec<Access>> = BTreeMap::new();
    let mut path = vec![];
    let mut order = 0;
    walk(&kernel.body, &mut path, &mut order, &mut loads, &mut stores);
    let mut out = vec![];
    for (o, stored) in &stores {
        // A value may be left in the output for later loops: the first store
        // counts.
        let Some(store) = stored.first().filter(|s| stored.iter().all(|t| t.form == s.form)) else {
            continue;
        };
        for (i, loaded) in &loads {
            if i == o
                || kernel.bufs[*i].written
                || kernel.bufs[*i].dtype != kernel.bufs[*o].dtype
                || kernel.bufs[*i].len != kernel.bufs[*o].len
                || store.form.is_none()
            {
                continue;
            }
            let fits = loaded.iter().all(|l| l.order < store.order && l.form == store.form);
            // Other outputs stored before a load of this input are other
            // buffers; only this store matters.
            if fits {
                out.push((*o, *i));
            }
        }
    }
    out
}

fn walk(
    stmts: &[Stmt],
    path: &mut Vec<(LoopVar, Dim)>,
    order: &mut u32,
    loads: &mut BTreeMap<usize, Vec<Access>>,
    stores: &mut BTreeMap<usize, Vec<Access>>,
) {
    for s in stmts {
        *order += 1;
        match s {
            Stmt::Load { buf, at, .. } => {
                let access = Access { order: *order, form: form(at, path) };
                loads.entry(*buf as usize).or_default().push(access);
            }
            Stmt::Store { buf, at, .. } => {
                let access = Access { order: *order, form: form(at, path) };
                stores.entry(*buf as usize).or_default().push(access);
            }
            Stmt::Loop(l) => {
                path.push((l.var, l.extent.clone()));
                walk(&l.body, path, order, loads, stores);
                path.pop();
            }
            _ => {}
        }
    }
}

fn form(at: &Ix, path: &[(LoopVar, Dim)]) -> Option<Form> {
    if !at.regs.is_empty() {
        return None;
    }
    let mut terms = vec![];
    for (var, stride) in &at.terms {
        let depth = path.iter().position(|(v, _)| v == var)?;
        terms.push((depth, stride.clone()));
    }
    terms.sort();
    Some((at.offset.clone(), terms, path.iter().map(|(_, e)| e.clone()).collect()))
}
