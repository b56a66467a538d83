//! Running sums and the like along a row, by a team of 16 threads.
//!
//! The values are combined one after the other, in the order of the row, so that the bits
//! are the CPU's. But what is combined is loaded and computed by 16 threads side by side,
//! and so is what becomes of the running values: every thread goes through the same 16
//! combinations, with the others' terms from shuffles, and keeps the value at its own place.

use super::emit::Emit;
use super::func::{Class, V};
use super::rows::Team;
use super::schedule::{TEAM, combination};
use std::collections::BTreeSet;
use tfc_kernel::{Carried, Loop, LoopKind, Reg, ScalarOp, Stmt};

/// What a carried value is combined with.
struct Term<'a> {
    carried: &'a Carried,
    op: ScalarOp,
    /// In the order of the operation's arguments: the running value is one of them.
    args: &'a [Reg],
    term: Reg,
}

/// A scan whose terms threads can compute side by side: for each carried value its term, and
/// for each statement whether it needs a running value.
pub(super) struct Scan<'a> {
    terms: Vec<Term<'a>>,
    late: Vec<bool>,
}

/// The scan that a loop is, if a team can share it.
pub(super) fn scan(l: &Loop) -> Option<Scan<'_>> {
    if l.kind != LoopKind::Scan || l.carried.is_empty() {
        return None;
    }
    let mut running: BTreeSet<Reg> = l.carried.iter().map(|c| c.acc).collect();
    let mut late = vec![];
    let (mut loaded, mut stored) = (BTreeSet::new(), BTreeSet::new());
    for s in &l.body {
        let looks = match s {
            Stmt::Const { .. } => false,
            Stmt::Op { args, .. } => args.iter().any(|a| running.contains(a)),
            Stmt::Index { ix, .. } => ix.regs.iter().any(|(r, _)| running.contains(r)),
            Stmt::Load { buf, at, .. } => {
                let by = at.stride(l.var).as_const();
                if !matches!(by, Some(-1..=1)) {
                    // Neighbouring rows are side by side then: a thread for each.
                    return None;
                }
                loaded.insert(*buf);
                at.regs.iter().any(|(r, _)| running.contains(r))
            }
            Stmt::Store { buf, at, value } => {
                stored.insert(*buf);
                running.contains(value) || at.regs.iter().any(|(r, _)| running.contains(r))
            }
            Stmt::Loop(_) => return None,
        };
        if let (true, Stmt::Op { dst, .. } | Stmt::Index { dst, .. } | Stmt::Load { dst, .. }) =
            (looks, s)
        {
            running.insert(*dst);
        }
        late.push(looks);
    }
    let term = |carried| {
        let (op, args) = combination(l, carried)?;
        let [a, b] = args else { return None };
        let term = if *a == carried.acc { *b } else { *a };
        let own = [*a, *b].contains(&carried.acc) && op == carried.combine.op();
        (own && !running.contains(&term)).then_some(Term { carried, op, args, term })
    };
    let terms = l.carried.iter().map(term).collect::<Option<Vec<_>>>()?;
    loaded.is_disjoint(&stored).then_some(Scan { terms, late })
}

impl Emit<'_> {
    /// A scan, 16 iterations at a time.
    pub(super) fn spread_scan(&mut self, l: &Loop, scan: &Scan, team: Team) {
        let totals = self.inits(l);
        let n = self.dim(&l.extent);
        let base = self.f.int(0);
        let terms: Vec<V> = scan
            .terms
            .iter()
            .map(|t| self.f.reg(Class::of(self.kernel.regs[t.carried.acc])))
            .collect();
        let [again, computed, stored, done] = [(); 4].map(|()| self.f.label());
        let none = self.f.op(Class::Pred, "setp.ge.s64", &[&base, &n]);
        self.f.line(format_args!("@{none} bra {done}"));
        self.f.place(&again);
        let i = self.f.op(Class::B64, "add.s64", &[&base, &team.lane]);
        let past = self.f.op(Class::Pred, "setp.ge.s64", &[&i, &n]);
        // Past the end there is what changes nothing.
        for (t, v) in scan.terms.iter().zip(&terms) {
            let identity = t.carried.combine.identity(self.kernel.regs[t.carried.acc]);
            let identity = self.f.constant(identity);
            self.f.mov(*v, identity);
        }
        self.vars.insert(l.var, i);
        self.f.line(format_args!("@{past} bra {computed}"));
        self.some(l, scan, false);
        for (t, v) in scan.terms.iter().zip(&terms) {
            let term = self.lane(t.term, 0);
            self.f.mov(*v, term);
        }
        self.f.place(&computed);
        for ((t, v), total) in scan.terms.iter().zip(&terms).zip(&totals) {
            let ty = self.kernel.regs[t.carried.acc];
            let mine = self.f.copy(total[0]);
            for at in 0..TEAM {
                if at > 0 {
                    let here = self.f.op(Class::Pred, "setp.eq.s64", &[&team.lane, &at]);
                    let args = [here, total[0], mine];
                    let kept = self.scalar_op(ScalarOp::Select, ty, ty, &args, &[]);
                    self.f.mov(mine, kept);
                }
                let term = self.shuffle("idx", *v, at, team);
                let args: Vec<V> = (t.args.iter())
                    .map(|a| if *a == t.carried.acc { total[0] } else { term })
                    .collect();
                let next = self.scalar_op(t.op, ty, ty, &args, &[]);
                self.f.mov(total[0], next);
            }
            self.regs.insert(t.carried.acc, vec![mine]);
        }
        self.f.line(format_args!("@{past} bra {stored}"));
        self.some(l, scan, true);
        self.f.place(&stored);
        self.f.op_to(base, "add.s64", &[&base, &TEAM]);
        let more = self.f.op(Class::Pred, "setp.lt.s64", &[&base, &n]);
        self.f.line(format_args!("@{more} bra {again}"));
        self.f.place(&done);
        self.results(l, &totals);
    }

    /// The statements that need running values, or the others.
    fn some(&mut self, l: &Loop, scan: &Scan, late: bool) {
        self.alone(|e| {
            for (s, is_late) in l.body.iter().zip(&scan.late) {
                if *is_late == late {
                    e.stmts(std::slice::from_ref(s));
                }
            }
        });
    }
}
