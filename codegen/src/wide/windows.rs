//! Small windows, written out.
//!
//! A pool goes over the nine elements of its window for each vector of results. As
//! loops, every step would find out anew which of its lanes are inside the picture.
//! Written out, the steps of a row share what they know of the columns, what is known of
//! the rows does not change within a vector, and no counter is kept.
//!
//! The steps stay in their order, so that results have the same bits.

use super::copy::{Copy, Facts};
use crate::schedule::Schedule;
use tfc_kernel::{Kernel, Loop, LoopKind, Stmt};

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
    let mut copy = Copy::new(kernel, Facts::default(), true);
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
