//! Loads that a select may drop.
//!
//! Where a window reaches over the edge of a tensor (padding), kernel IR loads from an
//! index forced into range and drops what it got: `select(0 <= i && i < n,
//! x[max(min(i, n - 1), 0)], ..)`. In a vector the forced indices are no neighbours, so
//! each lane would be fetched by itself. But masked loads touch no memory where the
//! mask is off: with the condition as a mask, they may load from `i` as it is.

use super::value::Val;
use super::{Result, Select};
use std::collections::BTreeMap;
use tfc_kernel::{Dim, Ix, Kernel, Reg, Scalar, ScalarOp, ScalarType, Stmt};

/// What is known of the registers of a kernel.
#[derive(Default)]
pub(super) struct Guards {
    /// Integers and truth values, by how they are made.
    ops: BTreeMap<Reg, (ScalarOp, Vec<Reg>)>,
    indices: BTreeMap<Reg, Ix>,
    /// Of values that count only where a condition holds, that condition; none for
    /// those that always count.
    under: BTreeMap<Reg, Option<Reg>>,
    /// Places in the text: of operations and loads.
    order: BTreeMap<Reg, usize>,
}

impl Guards {
    pub(super) fn new(kernel: &Kernel) -> Guards {
        let mut guards = Guards::default();
        guards.define(&kernel.body);
        guards.uses(kernel, &kernel.body);
        guards
    }

    fn define(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Const { dst, value: Scalar::I64(c) } => {
                    self.indices.insert(*dst, Ix::constant(*c));
                }
                Stmt::Index { dst, ix } => {
                    self.indices.insert(*dst, ix.clone());
                }
                Stmt::Op { dst, op, args } => {
                    self.order.insert(*dst, self.order.len());
                    self.ops.insert(*dst, (*op, args.clone()));
                }
                Stmt::Load { dst, .. } => {
                    self.order.insert(*dst, self.order.len());
                }
                Stmt::Loop(l) => self.define(&l.body),
                _ => {}
            }
        }
    }

    /// Backwards, so that what a value is used for is known before it is made.
    fn uses(&mut self, kernel: &Kernel, stmts: &[Stmt]) {
        for stmt in stmts.iter().rev() {
            match stmt {
                Stmt::Op { dst, op: ScalarOp::Select, args } => {
                    let of_result = self.under.get(dst).copied().flatten();
                    self.used(args[0], of_result);
                    self.used(args[1], Some(args[0]));
                    self.used(args[2], of_result);
                }
                // One side counts where the other holds. Of two that are each other's
                // condition, the one that comes first in the text is looked at in full.
                Stmt::Op { dst, op: ScalarOp::And, args }
                    if kernel.regs[*dst] == ScalarType::Bool =>
                {
                    self.used(args[0], Some(args[1]));
                    self.used(args[1], Some(args[0]));
                }
                Stmt::Op { dst, args, .. } => {
                    let of_result = self.under.get(dst).copied().flatten();
                    args.iter().for_each(|r| self.used(*r, of_result));
                }
                Stmt::Index { ix, .. } | Stmt::Load { at: ix, .. } => self.index(ix),
                Stmt::Store { at, value, .. } => {
                    self.index(at);
                    self.used(*value, None);
                }
                Stmt::Loop(l) => {
                    for c in &l.carried {
                        [c.init, c.acc, c.next].iter().for_each(|r| self.used(*r, None));
                    }
                    self.uses(kernel, &l.body);
                }
                Stmt::Const { .. } => {}
            }
        }
    }

    fn index(&mut self, ix: &Ix) {
        ix.regs.iter().for_each(|(r, _)| self.used(*r, None));
    }

    fn used(&mut self, reg: Reg, under: Option<Reg>) {
        let known = self.under.entry(reg).or_insert(under);
        if *known != under {
            *known = None;
        }
    }

    fn constant(&self, reg: Reg) -> Option<&Dim> {
        let ix = self.indices.get(&reg)?;
        (ix.terms.is_empty() && ix.regs.is_empty()).then_some(&ix.offset)
    }

    /// Whether `condition` holds only if all of a conjunction do, `found` among them.
    fn implies(&self, condition: Reg, found: &dyn Fn(ScalarOp, &[Reg]) -> bool) -> bool {
        match self.ops.get(&condition) {
            Some((ScalarOp::And, args)) => args.iter().any(|a| self.implies(*a, found)),
            Some((op, args)) => found(*op, args),
            None => false,
        }
    }

    /// The index that `reg` is, wherever `condition` holds.
    fn unforced(&self, reg: Reg, condition: Reg) -> Option<Reg> {
        let pair = |reg: Reg, wanted: ScalarOp| match self.ops.get(&reg) {
            Some((op, args)) if *op == wanted => match self.constant(args[1]) {
                Some(limit) => Some((args[0], limit)),
                None => self.constant(args[0]).map(|limit| (args[1], limit)),
            },
            _ => None,
        };
        // Forced from below, from above, or both.
        let (inner, least) = match pair(reg, ScalarOp::Max) {
            Some((inner, least)) => (inner, Some(least)),
            None => (reg, None),
        };
        let (i, most) = match pair(inner, ScalarOp::Min) {
            Some((i, most)) => (i, Some(most)),
            None => (inner, None),
        };
        let not_less = |op: ScalarOp, args: &[Reg]| {
            op == ScalarOp::Le && args[1] == i && self.constant(args[0]) == least
        };
        let end = most.map(|most| most.clone() + Dim::constant(1));
        let less = |op: ScalarOp, args: &[Reg]| {
            op == ScalarOp::Lt && args[0] == i && self.constant(args[1]) == end.as_ref()
        };
        let forced = least.is_some() || most.is_some();
        let below = least.is_none() || self.implies(condition, &not_less);
        let above = most.is_none() || self.implies(condition, &less);
        (forced && below && above).then_some(i)
    }
}

impl Select<'_> {
    /// If `dst` is such a load, in the vector loop being written: the index as it is,
    /// and the lanes to load.
    pub(super) fn guarded(&mut self, dst: Reg, at: &Ix) -> Result<Option<(Ix, Vec<super::V>)>> {
        let Some(Some(condition)) = self.guards.under.get(&dst).copied() else {
            return Ok(None);
        };
        // The code of a loop is written more than once: what comes later in the text may
        // be known, but from last time.
        if self.guards.order.get(&condition) >= self.guards.order.get(&dst) {
            return Ok(None);
        }
        let Some(Val::Lanes(mut masks)) = self.regs.get(&condition).cloned() else {
            return Ok(None);
        };
        let mut out = Ix { regs: vec![], ..at.clone() };
        let mut changed = false;
        for (reg, stride) in &at.regs {
            let index = self.guards.unforced(*reg, condition);
            match index.and_then(|i| self.guards.indices.get(&i)) {
                Some(ix) if matches!(self.regs.get(reg), Some(Val::Lanes(_))) => {
                    out = out.plus(&ix.scale(stride));
                    changed = true;
                }
                _ => out.regs.push((*reg, stride.clone())),
            }
        }
        if !changed || self.varies_by_register(&out) {
            return Ok(None);
        }
        if let Some(tail) = self.group.as_ref().map(|g| g.tail.clone()).filter(|t| !t.is_empty()) {
            for (mask, tail) in masks.iter_mut().zip(tail) {
                *mask = self.mask_op(ScalarOp::And, &[*mask, tail])?;
            }
        }
        Ok(Some((out, masks)))
    }
}
