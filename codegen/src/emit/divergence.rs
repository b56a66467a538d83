//! Which registers differ between the lanes of a vector loop, and which statements
//! do not depend on the iteration at all.

use std::collections::BTreeSet;
use tfc_kernel::{Ix, Kernel, Loop, LoopVar, Reg, Stmt};

/// Registers of `l`'s body that may differ between its iterations.
pub(crate) fn varying(l: &Loop) -> BTreeSet<Reg> {
    let mut out: BTreeSet<Reg> = l.carried.iter().map(|c| c.acc).collect();
    loop {
        let before = out.len();
        walk(&l.body, l.var, &mut out);
        if out.len() == before {
            return out;
        }
    }
}

fn walk(stmts: &[Stmt], var: LoopVar, out: &mut BTreeSet<Reg>) {
    let ix_varies = |ix: &Ix, out: &BTreeSet<Reg>| {
        ix.terms.iter().any(|(v, _)| *v == var) || ix.regs.iter().any(|(r, _)| out.contains(r))
    };
    for stmt in stmts {
        match stmt {
            Stmt::Const { .. } | Stmt::Store { .. } => {}
            Stmt::Op { dst, args, .. } => {
                if args.iter().any(|a| out.contains(a)) {
                    out.insert(*dst);
                }
            }
            Stmt::Index { dst, ix } | Stmt::Load { dst, at: ix, .. } => {
                if ix_varies(ix, out) {
                    out.insert(*dst);
                }
            }
            Stmt::Loop(inner) => {
                walk(&inner.body, var, out);
                for c in &inner.carried {
                    if [c.init, c.acc, c.next].iter().any(|r| out.contains(r)) {
                        out.extend([c.acc, c.result]);
                    }
                }
            }
        }
    }
}

/// Registers the statements define, at any depth.
fn defined(stmts: &[Stmt], out: &mut BTreeSet<Reg>) {
    for stmt in stmts {
        match stmt {
            Stmt::Const { dst, .. }
            | Stmt::Op { dst, .. }
            | Stmt::Index { dst, .. }
            | Stmt::Load { dst, .. } => {
                out.insert(*dst);
            }
            Stmt::Store { .. } => {}
            Stmt::Loop(l) => {
                for c in &l.carried {
                    out.extend([c.acc, c.result]);
                }
                defined(&l.body, out);
            }
        }
    }
}

/// Which statements of a loop's body give the same in every iteration and may be
/// done before it. Loads only of memory the kernel does not write.
pub(crate) fn invariant(kernel: &Kernel, l: &Loop) -> Vec<bool> {
    let mut inside = BTreeSet::new();
    defined(&l.body, &mut inside);
    inside.extend(l.carried.iter().map(|c| c.acc));
    let fixed_ix = |ix: &Ix, inside: &BTreeSet<Reg>| {
        ix.terms.iter().all(|(v, _)| *v != l.var)
            && ix.regs.iter().all(|(r, _)| !inside.contains(r))
    };
    l.body
        .iter()
        .map(|stmt| {
            let fixed = match stmt {
                Stmt::Const { dst, .. } => Some(*dst),
                Stmt::Op { dst, args, .. } => {
                    args.iter().all(|a| !inside.contains(a)).then_some(*dst)
                }
                Stmt::Index { dst, ix } => fixed_ix(ix, &inside).then_some(*dst),
                Stmt::Load { dst, buf, at } => {
                    let fixed = !kernel.bufs[*buf as usize].written && fixed_ix(at, &inside);
                    fixed.then_some(*dst)
                }
                Stmt::Store { .. } | Stmt::Loop(_) => None,
            };
            if let Some(dst) = fixed {
                inside.remove(&dst);
            }
            fixed.is_some()
        })
        .collect()
}
