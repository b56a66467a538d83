//! Which steps of a list must keep their order.
//!
//! Two steps must when one of them writes what the other reads or writes: a
//! buffer's home, or a stack. A *barrier* must keep its place among all others:
//! it may fail, wait, or be seen from outside, and what stands before it in the
//! list has happened by then, what stands behind it has not. An exchange is no barrier,
//! so that steps run beside it; but exchanges keep their order, and their order with
//! writes of variables, so that one that fails has kept the writes after it from
//! happening.
//!
//! [`order`] finds the fewest waits that keep such an order; the compiler writes
//! them into the plan. [`unordered`] finds a pair that a plan forgot; no plan is
//! run that has one.

use crate::plan::{BufId, Call, Epilogue, Home, Step};
use std::collections::BTreeMap;

impl Step {
    /// The buffers a step reads, and those it writes (true), in the lists inside
    /// it too. What it writes it may read as well.
    pub fn buffers(&self, visit: &mut dyn FnMut(BufId, bool)) {
        let outputs = |bufs: &[BufId], count: usize, visit: &mut dyn FnMut(BufId, bool)| {
            bufs.iter().enumerate().for_each(|(i, b)| visit(*b, i < count));
        };
        let epilogue = |e: &Option<Epilogue>, visit: &mut dyn FnMut(BufId, bool)| {
            if let Some(e) = e {
                outputs(&e.bufs, e.outputs as usize, visit);
            }
        };
        match self {
            Step::Launch(l) => outputs(&l.bufs, l.outputs as usize, visit),
            Step::MatMul(m) => {
                outputs(&[m.c, m.a, m.b], 1, visit);
                epilogue(&m.epilogue, visit);
            }
            Step::Conv(c) => {
                outputs(&[c.out, c.lhs, c.rhs], 1, visit);
                epilogue(&c.epilogue, visit);
            }
            Step::Copy { src, dst } => outputs(&[*dst, *src], 1, visit),
            Step::Call(Call { bufs, .. }) => outputs(bufs, 1, visit),
            Step::Print { buf, .. } | Step::Push { src: buf, .. } => visit(*buf, false),
            Step::Assert { cond, .. } => visit(*cond, false),
            Step::CheckIndex(c) => visit(c.ids, false),
            Step::CheckFinite(c) => outputs(&c.bufs, 0, visit),
            Step::Save { bufs, .. } => outputs(bufs, 0, visit),
            Step::Restore { buf, .. } | Step::Pop { dst: buf, .. } => visit(*buf, true),
            Step::Exchange(x) => outputs(&x.bufs, x.bufs.len(), visit),
            Step::Send(m) => m.buf.iter().for_each(|b| visit(*b, false)),
            Step::Recv(m) => m.buf.iter().for_each(|b| visit(*b, true)),
            Step::Queue(q) => {
                outputs(&q.bufs, if q.action.gives() { 0 } else { q.bufs.len() }, visit);
            }
            Step::If { cond, then, otherwise } => {
                visit(*cond, false);
                then.iter().chain(otherwise).for_each(|s| s.buffers(visit));
            }
            Step::While { head, cond, body } => {
                visit(*cond, false);
                head.iter().chain(body).for_each(|s| s.buffers(visit));
            }
        }
    }

    /// Everything before it in its list is done before it, and nothing behind it
    /// is begun.
    pub fn is_barrier(&self) -> bool {
        match self {
            Step::Launch(_)
            | Step::MatMul(_)
            | Step::Conv(_)
            | Step::Copy { .. }
            | Step::Push { .. }
            | Step::Pop { .. }
            | Step::Exchange(_) => false,
            Step::Call(c) => c.func.signature().may_fail,
            // A check is also what later steps rely on to stay in their buffers.
            Step::Print { .. }
            | Step::Assert { .. }
            | Step::CheckIndex(_)
            | Step::CheckFinite(_)
            | Step::Save { .. }
            | Step::Restore { .. }
            | Step::Send(_)
            | Step::Recv(_)
            | Step::Queue(_) => true,
            Step::If { then, otherwise, .. } => then.iter().chain(otherwise).any(Step::is_barrier),
            Step::While { head, body, .. } => head.iter().chain(body).any(Step::is_barrier),
        }
    }

    /// Whether it exchanges tensors with other processes, or a step inside it does.
    pub fn exchanges(&self) -> bool {
        match self {
            Step::Exchange(_) => true,
            Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } => {
                a.iter().chain(b).any(Step::exchanges)
            }
            _ => false,
        }
    }

    /// The stacks it pushes to or pops from.
    fn stacks(&self, visit: &mut dyn FnMut(u32)) {
        match self {
            Step::Push { stack, .. } | Step::Pop { stack, .. } => visit(*stack),
            Step::If { then, otherwise, .. } => {
                then.iter().chain(otherwise).for_each(|s| s.stacks(visit));
            }
            Step::While { head, body, .. } => {
                head.iter().chain(body).for_each(|s| s.stacks(visit));
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    /// A slot by itself is `Home::Slot(i, 1)`; one that takes several touches each.
    Home(Home),
    Stack(u32),
    /// What all processes see: exchanges change it, and who writes a variable relies
    /// on it.
    Job,
}

/// Who used something last.
#[derive(Default)]
struct Uses {
    writer: Option<u32>,
    /// Since then.
    readers: Vec<u32>,
}

/// Or two steps, the earlier first, that are not.
type Ordered = Result<(), (u32, u32)>;

/// Calls `visit` for each step with the earlier steps it conflicts with, in
/// ascending order; steps that those conflict with may be left out.
fn conflicts(
    steps: &[Step],
    home: &dyn Fn(BufId) -> Home,
    visit: &mut dyn FnMut(usize, &[u32]) -> Ordered,
) -> Ordered {
    let mut uses: BTreeMap<Resource, Uses> = BTreeMap::new();
    let mut barrier: Option<u32> = None;
    let mut earlier: Vec<u32> = vec![];
    let mut touched: BTreeMap<Resource, bool> = BTreeMap::new();
    for (i, step) in steps.iter().enumerate() {
        earlier.clear();
        touched.clear();
        step.buffers(&mut |buf, writes| {
            let mut touch = |home| *touched.entry(Resource::Home(home)).or_default() |= writes;
            match home(buf) {
                Home::Param(_) | Home::Const(_) => {}
                Home::Slot(first, count) => {
                    (first..first.saturating_add(count)).for_each(|slot| touch(Home::slot(slot)));
                }
                home => touch(home),
            }
        });
        step.stacks(&mut |stack| {
            touched.insert(Resource::Stack(stack), true);
        });
        let keeps =
            |(r, writes): (&Resource, &bool)| *writes && matches!(r, Resource::Home(Home::Var(_)));
        if step.exchanges() {
            touched.insert(Resource::Job, true);
        } else if touched.iter().any(keeps) {
            touched.insert(Resource::Job, false);
        }
        for (resource, writes) in &touched {
            let used = uses.entry(*resource).or_default();
            earlier.extend(used.writer);
            if *writes {
                earlier.append(&mut used.readers);
                used.writer = Some(i as u32);
            } else {
                used.readers.push(i as u32);
            }
        }
        if step.is_barrier() {
            let first = barrier.unwrap_or(0);
            earlier.extend(first..i as u32);
            barrier = Some(i as u32);
        } else {
            earlier.extend(barrier);
        }
        earlier.sort_unstable();
        earlier.dedup();
        visit(i, &earlier)?;
    }
    Ok(())
}

/// For each step of a list the earlier steps it must wait for, without those that
/// others of them wait for already.
pub fn order(steps: &[Step], home: &dyn Fn(BufId) -> Home) -> (Vec<Vec<u32>>, Reach) {
    let mut after = Vec::with_capacity(steps.len());
    let mut reach = Reach::default();
    let all = conflicts(steps, home, &mut |_, earlier| {
        let mut row = Row::new(reach.len());
        let mut kept = vec![];
        for &step in earlier.iter().rev() {
            if !row.has(step) {
                row.add(&reach, step);
                kept.push(step);
            }
        }
        kept.reverse();
        after.push(kept);
        reach.push(row);
        Ok(())
    });
    debug_assert!(all.is_ok());
    (after, reach)
}

/// Two steps that must keep their order but, by these waits, need not. The waits
/// are for earlier steps.
pub fn unordered(
    steps: &[Step],
    after: &dyn Fn(usize) -> Vec<u32>,
    home: &dyn Fn(BufId) -> Home,
) -> Option<(u32, u32)> {
    let mut reach = Reach::default();
    let all = conflicts(steps, home, &mut |i, earlier| {
        let waits = after(i);
        let mut row = Row::new(i);
        waits.iter().rev().for_each(|step| row.add(&reach, *step));
        reach.push(row);
        match earlier.iter().find(|e| !waits.contains(e) && !reach.before(**e, i as u32)) {
            Some(e) => Err((*e, i as u32)),
            None => Ok(()),
        }
    });
    all.err()
}

/// Words of a row: what is known of the last two thousand steps.
const WORDS: usize = 32;

/// What comes before what in a list.
///
/// Exact for steps that stand less than two thousand apart; of those further
/// apart it may not know, unless everything up to the earlier one comes first.
#[derive(Clone, Default)]
pub struct Reach {
    rows: Vec<Row>,
}

/// The steps that come before one step.
#[derive(Clone)]
struct Row {
    /// All before this one do.
    full: u32,
    /// Number of the first word.
    first: usize,
    /// One bit for each step from `64 * first`.
    words: [u64; WORDS],
}

impl Reach {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn push(&mut self, mut row: Row) {
        while row.bit(row.full) {
            row.full += 1;
        }
        self.rows.push(row);
    }

    /// Whether `a` is sure to be done before `b` begins.
    pub fn before(&self, a: u32, b: u32) -> bool {
        a < b && self.rows.get(b as usize).is_some_and(|row| row.has(a))
    }
}

impl Row {
    fn new(step: usize) -> Row {
        Row { full: 0, first: (step / 64).saturating_sub(WORDS - 1), words: [0; WORDS] }
    }

    fn bit(&self, step: u32) -> bool {
        let word = (step as usize / 64).checked_sub(self.first).and_then(|w| self.words.get(w));
        word.is_some_and(|word| word >> (step % 64) & 1 == 1)
    }

    fn has(&self, step: u32) -> bool {
        step < self.full || self.bit(step)
    }

    /// Adds a step and all that come before it.
    fn add(&mut self, reach: &Reach, step: u32) {
        let Some(other) = reach.rows.get(step as usize) else { return };
        self.full = self.full.max(other.full);
        for (w, bits) in other.words.iter().enumerate() {
            if let Some(mine) =
                (other.first + w).checked_sub(self.first).and_then(|w| self.words.get_mut(w))
            {
                *mine |= bits;
            }
        }
        if let Some(w) = (step as usize / 64).checked_sub(self.first)
            && let Some(word) = self.words.get_mut(w)
        {
            *word |= 1 << (step % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(src: u32, dst: u32) -> Step {
        Step::Copy { src, dst }
    }

    fn waits(steps: &[Step]) -> Vec<Vec<u32>> {
        let (after, _) = order(steps, &Home::slot);
        assert_eq!(unordered(steps, &|i| after[i].clone(), &Home::slot), None);
        after
    }

    #[test]
    fn writes_wait_for_readers_and_readers_for_writes() {
        let diamond = [copy(9, 0), copy(0, 1), copy(0, 2), copy(1, 0), copy(0, 3)];
        assert_eq!(waits(&diamond), [vec![], vec![0], vec![0], vec![1, 2], vec![3]]);
        assert_eq!(waits(&[copy(8, 0), copy(9, 1)]), [vec![], vec![]]);
        assert_eq!(waits(&[copy(8, 0), copy(9, 0)]), [vec![], vec![0]]);
    }

    #[test]
    fn barriers_and_stacks_keep_their_places() {
        let print = Step::Print { label: String::new(), buf: 7 };
        let list = [copy(8, 0), copy(9, 1), print, copy(8, 2), copy(9, 3)];
        assert_eq!(waits(&list), [vec![], vec![], vec![0, 1], vec![2], vec![2]]);
        let list = [
            Step::Push { stack: 0, src: 1 },
            Step::Push { stack: 1, src: 1 },
            Step::Push { stack: 0, src: 2 },
            Step::Pop { stack: 0, dst: 3, name: String::new() },
        ];
        assert_eq!(waits(&list), [vec![], vec![], vec![0], vec![2]]);
    }

    #[test]
    fn exchanges_keep_their_order_and_writes_of_variables_wait() {
        use crate::plan::{Combine, Exchange};
        let exchange = |buf| {
            let (name, place) = (String::new(), String::new());
            Step::Exchange(Exchange { combine: Combine::Mean, bufs: vec![buf], name, place })
        };
        // Homes from 100 on are variables.
        let home = |b: BufId| if b < 100 { Home::slot(b) } else { Home::Var(b) };
        let list = [
            copy(8, 0),
            exchange(0),
            copy(9, 1), // beside the exchange
            exchange(1),
            copy(0, 2),   // needs the first alone
            copy(9, 100), // a variable: after both
            exchange(2),
        ];
        let (after, _) = order(&list, &home);
        let want: [&[u32]; 7] = [&[], &[0], &[], &[1, 2], &[1], &[3], &[4, 5]];
        assert_eq!(after, want);
        assert_eq!(unordered(&list, &|i| after[i].clone(), &home), None);
    }

    #[test]
    fn a_list_inside_a_step_is_that_steps_own() {
        let inner = Step::While { head: vec![].into(), cond: 5, body: vec![copy(0, 1)].into() };
        let list = [copy(8, 0), copy(8, 3), inner, copy(1, 2)];
        assert_eq!(waits(&list), [vec![], vec![], vec![0], vec![2]]);
    }

    /// Who takes several slots touches each of them.
    #[test]
    fn slots_that_overlap_are_waited_for() {
        let homes = [Home::Param(0), Home::Slot(0, 2), Home::Slot(1, 2), Home::Slot(2, 1)];
        let home = |b: BufId| homes[b as usize];
        let waits = |list: &[Step]| order(list, &home).0;
        assert_eq!(waits(&[copy(0, 1), copy(0, 2)]), [vec![], vec![0]]);
        assert_eq!(waits(&[copy(0, 1), copy(0, 3)]), [vec![], vec![]]);
        let list = [copy(0, 2), copy(0, 3)];
        assert_eq!(unordered(&list, &|_| vec![], &home), Some((0, 1)));
    }

    #[test]
    fn forgotten_waits_are_found() {
        let list = [copy(8, 0), copy(0, 1), copy(8, 0)];
        let find = |after: [Vec<u32>; 3]| unordered(&list, &|i| after[i].clone(), &Home::slot);
        assert_eq!(find([vec![], vec![0], vec![1]]), None);
        assert_eq!(find([vec![], vec![], vec![1]]), Some((0, 1)));
        assert_eq!(find([vec![], vec![0], vec![0]]), Some((1, 2)));
    }

    /// Waits beyond the window, and the plain definition within it.
    #[test]
    fn long_lists_stay_right() {
        let mut seed = 7u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let list: Vec<Step> =
            (0..6000).map(|_| copy(random(300) as u32, random(300) as u32)).collect();
        let (after, reach) = order(&list, &Home::slot);
        assert_eq!(unordered(&list, &|i| after[i].clone(), &Home::slot), None);
        let mut all: Vec<Vec<bool>> = vec![];
        for (i, waits) in after.iter().take(1500).enumerate() {
            let mut row = vec![false; i];
            for w in waits {
                row[*w as usize] = true;
                all[*w as usize].iter().enumerate().for_each(|(j, b)| row[j] |= b);
            }
            for (j, b) in row.iter().enumerate() {
                assert_eq!(reach.before(j as u32, i as u32), *b, "{j} {i}");
            }
            all.push(row);
        }
        let chain: Vec<Step> = (0..9000).map(|i| copy(i, i + 1)).collect();
        let (after, reach) = order(&chain, &Home::slot);
        assert!(after.iter().skip(1).all(|a| a.len() == 1));
        assert!(reach.before(0, 8999));
    }
}
