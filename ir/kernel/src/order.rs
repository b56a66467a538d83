//! How the iterations of a loop lie in memory.
//!
//! The order in which a reduction combines its terms follows from this (see
//! `docs/numerics.md`), and so do the loops that a CPU runs in vectors.

use super::{GROUP, Kernel, Loop, LoopKind, LoopVar, Reg, Stmt};
use std::collections::BTreeSet;

/// Says of every reduction loop whether it keeps partial results: those whose terms
/// lie side by side do, those whose terms lie apart while their results lie side by
/// side (the sums of the columns of a matrix) do not.
pub fn set_partials(kernel: &mut Kernel) {
    let mut body = std::mem::take(&mut kernel.body);
    for stmt in &mut body {
        if let Stmt::Loop(l) = stmt {
            mark(kernel, l);
        }
    }
    kernel.body = body;
}

fn mark(kernel: &Kernel, l: &mut Loop) {
    if l.is_leaf() {
        let long = l.extent.as_const().is_none_or(|e| e >= GROUP);
        if let LoopKind::Reduce { partials } = &mut l.kind {
            *partials = long;
        }
    } else if !runs_across(kernel, l) {
        for stmt in &mut l.body {
            if let Stmt::Loop(inner) = stmt {
                mark(kernel, inner);
            }
        }
    }
}

/// Whether neighbouring iterations of a `Parallel` loop read and write neighbouring
/// memory, while those of the loops inside, all of them innermost, do not or are too
/// few to count.
pub fn runs_across(kernel: &Kernel, l: &Loop) -> bool {
    let leaves = l.body.iter().all(|s| match s {
        Stmt::Loop(inner) => inner.is_leaf(),
        _ => true,
    });
    if !leaves || l.is_leaf() || l.kind != LoopKind::Parallel {
        return false;
    }
    let mine = contiguity(kernel, &l.body, l.var, &BTreeSet::new());
    let mut theirs = (0, 0);
    for s in &l.body {
        if let Stmt::Loop(inner) = s {
            let tiny = inner.extent.as_const().is_some_and(|e| e < 8);
            let useless = tiny || !inner.kind.is_free();
            let c = contiguity(kernel, &inner.body, inner.var, &BTreeSet::new());
            theirs.0 += if useless { 0 } else { c.0 };
            theirs.1 += if useless { c.0 + c.1 } else { c.1 };
        }
    }
    let wide = l.extent.as_const().is_none_or(|e| e >= GROUP);
    wide && mine.1 == 0 && mine.0 > 0 && (theirs.1 > 0 || theirs.0 == 0)
}

/// Memory accesses along `var` that are contiguous, and that are not. Accesses
/// that do not move with `var` count as neither.
fn contiguity(
    kernel: &Kernel,
    stmts: &[Stmt],
    var: LoopVar,
    varying: &BTreeSet<Reg>,
) -> (u32, u32) {
    let mut varying = varying.clone();
    let (mut good, mut bad) = (0, 0);
    for s in stmts {
        match s {
            Stmt::Const { .. } => {}
            Stmt::Op { dst, args, .. } => {
                if args.iter().any(|r| varying.contains(r)) {
                    varying.insert(*dst);
                }
            }
            Stmt::Index { dst, ix } => {
                if !ix.stride(var).is_zero() || ix.regs.iter().any(|(r, _)| varying.contains(r)) {
                    varying.insert(*dst);
                }
            }
            Stmt::Load { at, buf, .. } | Stmt::Store { at, buf, .. } => {
                let stride = match kernel.local(*buf) {
                    Some(local) => local.address(at).stride(var),
                    None => at.stride(var),
                };
                let indirect = at.regs.iter().any(|(r, _)| varying.contains(r));
                if indirect || (!stride.is_one() && !stride.is_zero()) {
                    bad += 1;
                } else if stride.is_one() {
                    good += 1;
                }
                if let Stmt::Load { dst, .. } = s
                    && (indirect || !stride.is_zero())
                {
                    varying.insert(*dst);
                }
            }
            Stmt::Loop(l) => {
                let (g, b) = contiguity(kernel, &l.body, var, &varying);
                good += g;
                bad += b;
            }
        }
    }
    (good, bad)
}
