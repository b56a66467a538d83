//! Small windows, written out.
//!
//! A pool goes over the nine elements of its window for each vector of results. As
//! loops, every step would find out anew which of its lanes are inside the picture.
//! Written out, the steps of a row share what they know of the columns, what is known of
//! the rows does not change within a vector, and no counter is kept.
//!
//! The steps stay in their order, so that results have the same bits.

use crate::schedule::Schedule;
use std::collections::BTreeMap;
use tfc_kernel::{Dim, Ix, Kernel, Loop, LoopKind, LoopVar, Reg, Scalar, ScalarOp, Stmt};

/// Steps of a window that are written out, and statements that may come of them.
const STEPS: i64 = 16;
const STATEMENTS: usize = 400;

/// The kernel with the windows of its vector loops written out. Those loops then run one
/// vector at a time: each has enough to do.
pub(super) fn write_out(kernel: &Kernel, schedule: &mut Schedule) -> Option<Kernel> {
    let mut out = kernel.clone();
    let mut body = std::mem::take(&mut out.body);
    let mut any = false;
    for stmt in &mut body {
        any |= find(&mut out, schedule, stmt);
    }
    out.body = body;
    any.then_some(out)
}

fn find(kernel: &mut Kernel, schedule: &mut Schedule, stmt: &mut Stmt) -> bool {
    let Stmt::Loop(l) = stmt else { return false };
    let Some(vector) = schedule.vectors.get_mut(&l.var) else {
        // All of them, also after the first.
        let found = l.body.iter_mut().filter_map(|s| find(kernel, schedule, s).then_some(()));
        return found.count() > 0;
    };
    let has_loop = l.body.iter().any(|s| matches!(s, Stmt::Loop(_)));
    let steps = |s: &Stmt| if let Stmt::Loop(inner) = s { count(inner, 1) } else { Some(0) };
    let copies: Option<usize> = l.body.iter().map(steps).sum();
    if !has_loop || copies.is_none_or(|n| n > STATEMENTS) {
        return false;
    }
    vector.unroll = 1;
    let mut copy = Copy {
        kernel,
        regs: BTreeMap::new(),
        vars: BTreeMap::new(),
        made: BTreeMap::new(),
        out: vec![],
    };
    copy.stmts(&std::mem::take(&mut l.body));
    l.body = copy.out;
    true
}

/// Statements that a window becomes, if it is one: small, with nothing stored inside.
fn count(l: &Loop, times: i64) -> Option<usize> {
    let in_order = matches!(l.kind, LoopKind::Reduce { partials: false } | LoopKind::Sequential);
    let steps = l.extent.as_const().filter(|n| in_order && !l.ranged && *n >= 1)?;
    let times = times.saturating_mul(steps);
    if times > STEPS {
        return None;
    }
    l.body
        .iter()
        .map(|s| match s {
            Stmt::Loop(inner) => count(inner, times),
            Stmt::Store { .. } => None,
            _ => Some(times as usize),
        })
        .sum()
}

/// What two statements have in common if they make the same value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Const(Scalar),
    Op(ScalarOp, Vec<Reg>, tfc_kernel::ScalarType),
    Index(Ix),
}

struct Copy<'k> {
    kernel: &'k mut Kernel,
    /// What registers of the text are called in the copy.
    regs: BTreeMap<Reg, Reg>,
    /// Counters that are known.
    vars: BTreeMap<LoopVar, i64>,
    made: BTreeMap<Made, Reg>,
    out: Vec<Stmt>,
}

impl Copy<'_> {
    fn stmts(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => self.steps(l),
                Stmt::Const { dst, value } => {
                    self.define(*dst, Made::Const(*value), |dst| Stmt::Const {
                        dst,
                        value: *value,
                    });
                }
                Stmt::Op { dst, op, args } => {
                    let args: Vec<Reg> = args.iter().map(|r| self.reg(*r)).collect();
                    let made = Made::Op(*op, args.clone(), self.kernel.regs[*dst]);
                    self.define(*dst, made, |dst| Stmt::Op { dst, op: *op, args });
                }
                Stmt::Index { dst, ix } => {
                    let ix = self.index(ix);
                    self.define(*dst, Made::Index(ix.clone()), |dst| Stmt::Index { dst, ix });
                }
                Stmt::Load { dst, buf, at } => {
                    let at = self.index(at);
                    let dst = self.fresh(*dst);
                    self.out.push(Stmt::Load { dst, buf: *buf, at });
                }
                Stmt::Store { buf, at, value } => {
                    let (at, value) = (self.index(at), self.reg(*value));
                    self.out.push(Stmt::Store { buf: *buf, at, value });
                }
            }
        }
    }

    /// The iterations of a loop, one after the other.
    fn steps(&mut self, l: &Loop) {
        let inits: Vec<Reg> = l.carried.iter().map(|c| self.reg(c.init)).collect();
        for (c, init) in l.carried.iter().zip(inits) {
            self.regs.insert(c.acc, init);
        }
        for step in 0..l.extent.as_const().unwrap_or(0) {
            self.vars.insert(l.var, step);
            self.stmts(&l.body);
            let nexts: Vec<Reg> = l.carried.iter().map(|c| self.reg(c.next)).collect();
            for (c, next) in l.carried.iter().zip(nexts) {
                self.regs.insert(c.acc, next);
            }
        }
        for c in &l.carried {
            let last = self.reg(c.acc);
            self.regs.insert(c.result, last);
        }
    }

    fn define(&mut self, dst: Reg, made: Made, stmt: impl FnOnce(Reg) -> Stmt) {
        if let Some(known) = self.made.get(&made) {
            self.regs.insert(dst, *known);
            return;
        }
        let fresh = self.fresh(dst);
        self.made.insert(made, fresh);
        self.out.push(stmt(fresh));
    }

    fn fresh(&mut self, reg: Reg) -> Reg {
        let ty = self.kernel.regs[reg];
        let fresh = self.kernel.regs.push(ty);
        self.regs.insert(reg, fresh);
        fresh
    }

    fn reg(&self, reg: Reg) -> Reg {
        self.regs.get(&reg).copied().unwrap_or(reg)
    }

    fn index(&self, ix: &Ix) -> Ix {
        let mut out = Ix { offset: ix.offset.clone(), terms: vec![], regs: vec![] };
        for (var, stride) in &ix.terms {
            match self.vars.get(var) {
                Some(step) => out.offset = out.offset + Dim::constant(*step) * stride.clone(),
                None => out.terms.push((*var, stride.clone())),
            }
        }
        out.regs = ix.regs.iter().map(|(r, stride)| (self.reg(*r), stride.clone())).collect();
        out
    }
}
