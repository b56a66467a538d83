//! Puts indices together again that were taken apart.
//!
//! An element of a reshaped tensor is found by dividing its number: with a row of
//! `n`, `x / n` and `x % n`. Where both go into one address again with the strides of
//! a whole tensor, `(x % n) * s + (x / n) * (n * s)` is `x * s`: no division, and
//! neighbours in memory are seen to be neighbours. Sums and differences of indices are
//! indices too.

use std::collections::BTreeMap;
use tfc_ir::Dim;
use tfc_ir::kernel::{Ix, Kernel, Reg, Scalar, ScalarOp, Stmt};

/// What a register of integers is.
enum Def {
    Quotient(Reg, Reg),
    Remainder(Reg, Reg),
    Index(Ix),
}

pub(super) fn rejoin(kernel: &mut Kernel) {
    let mut defs = BTreeMap::new();
    walk(&mut kernel.body, &mut defs);
}

fn walk(stmts: &mut [Stmt], defs: &mut BTreeMap<Reg, Def>) {
    for stmt in stmts {
        match stmt {
            Stmt::Const { dst, value: Scalar::I64(c) } => {
                defs.insert(*dst, Def::Index(Ix::constant(*c)));
            }
            Stmt::Op { dst, op, args } if affine(*op, args, defs).is_some() => {
                let dst = *dst;
                if let Some(ix) = affine(*op, args, defs) {
                    defs.insert(dst, Def::Index(ix.clone()));
                    *stmt = Stmt::Index { dst, ix };
                }
            }
            Stmt::Op { dst, op: ScalarOp::Div, args } => {
                defs.insert(*dst, Def::Quotient(args[0], args[1]));
            }
            Stmt::Op { dst, op: ScalarOp::Rem, args } => {
                defs.insert(*dst, Def::Remainder(args[0], args[1]));
            }
            Stmt::Index { dst, ix } => {
                simplify(ix, defs);
                defs.insert(*dst, Def::Index(ix.clone()));
            }
            Stmt::Load { at, .. } | Stmt::Store { at, .. } => simplify(at, defs),
            Stmt::Loop(l) => walk(&mut l.body, defs),
            Stmt::Const { .. } | Stmt::Op { .. } => {}
        }
    }
}

/// The operation as an index, if it is one of indices. (Only integers are in `defs`.)
fn affine(op: ScalarOp, args: &[Reg], defs: &BTreeMap<Reg, Def>) -> Option<Ix> {
    let index = |r: Reg| match defs.get(&r) {
        Some(Def::Index(ix)) => Some(ix),
        _ => None,
    };
    match (op, args) {
        (ScalarOp::Add, [a, b]) => Some(index(*a)?.plus(index(*b)?)),
        (ScalarOp::Sub, [a, b]) => Some(index(*a)?.plus(&index(*b)?.scale(&Dim::constant(-1)))),
        (ScalarOp::Div, [a, b]) if index(*b)?.as_const() == Some(1) => index(*a).cloned(),
        _ => None,
    }
}

/// Replaces pairs of a remainder and a quotient until there are none.
fn simplify(ix: &mut Ix, defs: &BTreeMap<Reg, Def>) {
    while let Some((whole, stride)) = take_pair(ix, defs) {
        *ix = match defs.get(&whole) {
            Some(Def::Index(inner)) => ix.plus(&inner.scale(&stride)),
            _ => ix.plus(&Ix::reg(whole).scale(&stride)),
        };
    }
}

/// Takes the two registers of such a pair out of `ix`; gives what was divided, and
/// its stride.
fn take_pair(ix: &mut Ix, defs: &BTreeMap<Reg, Def>) -> Option<(Reg, Dim)> {
    let size = |by: Reg| match defs.get(&by) {
        Some(Def::Index(ix)) if ix.terms.is_empty() && ix.regs.is_empty() => {
            Some(ix.offset.clone())
        }
        _ => None,
    };
    for (r, (rest, stride)) in ix.regs.iter().enumerate() {
        let Some(Def::Remainder(whole, by)) = defs.get(rest) else { continue };
        let Some(n) = size(*by) else { continue };
        let far = stride.clone() * n.clone();
        let quotient = ix.regs.iter().position(|(q, s)| {
            matches!(defs.get(q), Some(Def::Quotient(x, c))
                if x == whole && *s == far && (c == by || size(*c).as_ref() == Some(&n)))
        });
        if let Some(q) = quotient {
            let found = (*whole, stride.clone());
            ix.regs.remove(q.max(r));
            ix.regs.remove(q.min(r));
            return Some(found);
        }
    }
    None
}
