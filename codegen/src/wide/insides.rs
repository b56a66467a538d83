//! Windows that do not reach over an edge, apart from those that do.
//!
//! Where a tensor is padded, every element of a window is compared with the edges. But
//! only the first and last rows and columns meet them. So the loop over rows becomes
//! several, one after the other: of the rows at the edges, and of those in between, for
//! which nothing is compared with the edges above and below. In the latter the vectors of
//! columns are parted the same way; they stay the vectors they were, so that there are no
//! more of them.
//!
//! It is the same for anything else that is asked of counters of two loops and comes out
//! the same way nearly everywhere, such as which tensor an element of a `concat` is from.

use super::copy::{Copy, Facts};
use crate::schedule::Schedule;
use tfc_kernel::{Dim, Ix, Kernel, Loop, LoopKind, LoopVar, Reg, ScalarOp, Stmt};

/// Statements of a loop that is written several times, at most.
const STATEMENTS: usize = 300;

/// The kernel with its loops parted, if that helps.
pub(super) fn part(kernel: &Kernel, schedule: &mut Schedule) -> Option<Kernel> {
    // Local buffers belong to loops, which are then several.
    if !kernel.locals.is_empty() {
        return None;
    }
    let mut facts = Facts::default();
    facts.learn(&kernel.body);
    let mut parting = Parting { kernel: kernel.clone(), schedule, any: false };
    parting.kernel.body = parting.stmts(&facts, &kernel.body);
    parting.any.then_some(parting.kernel)
}

struct Parting<'a> {
    kernel: Kernel,
    schedule: &'a mut Schedule,
    any: bool,
}

impl Parting<'_> {
    fn stmts(&mut self, facts: &Facts, stmts: &[Stmt]) -> Vec<Stmt> {
        let mut out = vec![];
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => out.extend(self.one_loop(facts, l)),
                other => out.push(other.clone()),
            }
        }
        out
    }

    fn one_loop(&mut self, facts: &Facts, l: &Loop) -> Vec<Stmt> {
        let vector = self.schedule.vector(l.var);
        let lanes = if vector.is_some() { i64::from(self.schedule.lanes) } else { 1 };
        let Some((n, lo, hi)) = self.inside(facts, l, lanes) else {
            if vector.is_none() {
                let body = self.stmts(facts, &l.body);
                return vec![Stmt::Loop(Loop { body, ..l.clone() })];
            }
            return vec![Stmt::Loop(l.clone())];
        };
        self.any = true;
        let mut out = vec![];
        for (from, to) in [(0, lo), (lo, hi), (hi, n)].into_iter().filter(|(a, b)| a < b) {
            let (facts, part) = self.copy(facts, l, (from, to));
            // Only what is inside is parted further, or there would be too much code.
            match vector {
                None if from == lo => {
                    let body = self.stmts(&facts, &part.body);
                    out.push(Stmt::Loop(Loop { body, ..part }));
                }
                _ => out.push(Stmt::Loop(part)),
            }
        }
        out
    }

    /// The iterations `from..to` of a loop, and what is known inside.
    fn copy(&mut self, facts: &Facts, l: &Loop, (from, to): (i64, i64)) -> (Facts, Loop) {
        let first = self.kernel.loops;
        let mut copy = Copy::new(&mut self.kernel, facts.clone(), false);
        let var = copy.counter();
        copy.counters.insert(l.var, Ix::var(var).plus(&Ix::constant(from)));
        copy.facts.bounds.insert(var, (0, to - from - 1));
        copy.stmts(&l.body);
        let (facts, body) = (copy.facts, copy.out);
        // Loops are run as those they are copies of.
        let mut pairs = vec![(l.var, var)];
        pair(&l.body, &body, &mut pairs);
        for (old, new) in pairs.into_iter().filter(|(_, new)| new.as_u32() >= first) {
            if let Some(vector) = self.schedule.vector(old) {
                self.schedule.vectors.insert(new, vector);
            }
        }
        (facts, Loop { var, extent: Dim::constant(to - from), body, ..l.clone() })
    }

    /// Of a loop that is worth parting: its iterations, and between which of them, in
    /// steps of `lanes`, comparisons come out the same way.
    fn inside(&self, facts: &Facts, l: &Loop, lanes: i64) -> Option<(i64, i64, i64)> {
        let n = l.extent.as_const()?;
        let plain = l.kind == LoopKind::Parallel && !l.ranged && l.carried.is_empty();
        if !plain || statements(&l.body) > STATEMENTS || !self.has_vectors(l) {
            return None;
        }
        let mut windows = facts.clone();
        windows.bounds.retain(|var, _| steps_through(&l.body, *var));
        let mut inside = (0, n);
        narrow(&windows, l.var, &l.body, &mut inside);
        let lo = (inside.0.clamp(0, n) + lanes - 1) / lanes * lanes;
        let hi = if inside.1 >= n { n } else { inside.1 / lanes * lanes };
        // Of rows, most are inside; of columns, a vector.
        let least = if lanes == 1 { (n + 1) / 2 } else { lanes };
        (hi - lo >= least && (lo, hi) != (0, n)).then_some((n, lo, hi))
    }

    fn has_vectors(&self, l: &Loop) -> bool {
        let inner = |s: &Stmt| matches!(s, Stmt::Loop(inner) if self.has_vectors(inner));
        self.schedule.vector(l.var).is_some() || l.body.iter().any(inner)
    }
}

/// Loops of the text, and their copies.
fn pair(text: &[Stmt], copy: &[Stmt], out: &mut Vec<(LoopVar, LoopVar)>) {
    let loops = |stmts: &[Stmt]| -> Vec<Loop> {
        let of = |s: &Stmt| if let Stmt::Loop(l) = s { Some(l.clone()) } else { None };
        stmts.iter().filter_map(of).collect()
    };
    for (old, new) in loops(text).iter().zip(&loops(copy)) {
        out.push((old.var, new.var));
        pair(&old.body, &new.body, out);
    }
}

fn statements(stmts: &[Stmt]) -> usize {
    stmts.iter().map(|s| if let Stmt::Loop(l) = s { statements(&l.body) } else { 1 }).sum()
}

/// Whether a loop in `stmts` that goes through a window has this counter.
fn steps_through(stmts: &[Stmt], var: LoopVar) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::Loop(l) => {
            l.var == var && l.kind != LoopKind::Parallel || steps_through(&l.body, var)
        }
        _ => false,
    })
}

/// Narrows iterations of `var` down to those in which all comparisons hold that depend on
/// it, and besides on nothing but the counters that `facts` bounds.
fn narrow(facts: &Facts, var: LoopVar, stmts: &[Stmt], inside: &mut (i64, i64)) {
    for stmt in stmts {
        let (a, b, least) = match stmt {
            Stmt::Op { op: ScalarOp::Le, args, .. } => (args[0], args[1], 0),
            Stmt::Op { op: ScalarOp::Lt, args, .. } => (args[0], args[1], 1),
            Stmt::Loop(l) => {
                narrow(facts, var, &l.body, inside);
                continue;
            }
            _ => continue,
        };
        if let Some((from, to)) = holds(facts, var, [a, b], least) {
            *inside = (inside.0.max(from), inside.1.min(to));
        }
    }
}

/// The iterations of `var` in which `b - a` is at least `least`.
fn holds(facts: &Facts, var: LoopVar, [a, b]: [Reg; 2], least: i64) -> Option<(i64, i64)> {
    let mut rest = facts.difference(a, b)?;
    let stride = rest.stride(var).as_const().filter(|s| *s != 0)?;
    rest.terms.retain(|(v, _)| *v != var);
    let (lowest, _) = facts.bounds(&rest)?;
    let missing = least.checked_sub(lowest)?;
    let (quotient, rest) = (missing.div_euclid(stride), missing.rem_euclid(stride) != 0);
    Some(match stride > 0 {
        true => (quotient.checked_add(i64::from(rest))?, i64::MAX),
        false => (i64::MIN, quotient.checked_add(i64::from(!rest))?),
    })
}
