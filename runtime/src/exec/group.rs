//! Small steps at the same time.
//!
//! A group is steps of one list and, for each, how many of the others it waits
//! for. Whoever has nothing to do takes the first step that is ready, in the
//! order of the list; who finishes one sees which others that makes ready. A call
//! allocates nothing for it: the counters are the group's own.

use crate::error::{Error, Result};
use crate::pool::Pool;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tfc_abi::plan::Steps;

/// Rounds of looking for a step before a thread lets others have its core.
const SPINS: u32 = 2000;

pub(super) struct StepGroup {
    /// Numbers of the steps, ascending.
    members: Vec<u32>,
    /// How many members each waits for.
    waits: Vec<u32>,
    /// Those that wait for each: `next[at[m]..at[m + 1]]`.
    next: Vec<u32>,
    at: Vec<u32>,
    threads: usize,
    pub writes_variables: bool,
    /// Of `waits`, those that are not done yet.
    pending: Vec<AtomicU32>,
    /// A bit for each member that may run and does not yet.
    ready: Vec<AtomicU64>,
    left: AtomicUsize,
    /// Of the first step that failed, in the order of the list.
    error: Mutex<Option<(u32, Error)>>,
}

impl StepGroup {
    /// Of steps in ascending order.
    pub fn new(
        members: Vec<u32>,
        steps: &Steps,
        threads: usize,
        writes_variables: bool,
    ) -> StepGroup {
        let mut after: Vec<Vec<u32>> = vec![vec![]; members.len()];
        let mut waits = vec![0; members.len()];
        for (m, step) in members.iter().enumerate() {
            for earlier in &steps.dispatch()[*step as usize].after {
                if let Ok(e) = members.binary_search(earlier) {
                    after[e].push(m as u32);
                    waits[m] += 1;
                }
            }
        }
        let mut at = vec![0];
        let mut next = vec![];
        for list in after {
            next.extend(list);
            at.push(next.len() as u32);
        }
        StepGroup {
            pending: waits.iter().map(|_| AtomicU32::new(0)).collect(),
            ready: (0..members.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            left: AtomicUsize::new(0),
            error: Mutex::new(None),
            members,
            waits,
            next,
            at,
            threads,
            writes_variables,
        }
    }

    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Runs all members. Of several errors, the first in the order of the list.
    pub fn run(&self, pool: &Pool, step: &(dyn Fn(u32) -> Result<()> + Sync)) -> Result<()> {
        for (pending, waits) in self.pending.iter().zip(&self.waits) {
            pending.store(*waits, Ordering::Relaxed);
        }
        self.left.store(self.members.len(), Ordering::Relaxed);
        for (m, waits) in self.waits.iter().enumerate() {
            if *waits == 0 {
                self.mark_ready(m as u32);
            }
        }
        // A thread that comes late, or never, finds nothing left to do.
        pool.run(self.threads, &|_| self.help(step));
        match self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some((_, e)) => Err(e),
            None => Ok(()),
        }
    }

    /// Runs members until all are done.
    fn help(&self, step: &(dyn Fn(u32) -> Result<()> + Sync)) {
        let mut spins = 0;
        while self.left.load(Ordering::Acquire) > 0 {
            let Some(m) = self.claim() else {
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
                continue;
            };
            spins = 0;
            // When it panics too: others wait for it.
            let _done = Done(self, m);
            let number = self.members[m as usize];
            if let Err(e) = step(number) {
                let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(n, _)| number < *n) {
                    *first = Some((number, e));
                }
            }
        }
    }

    /// The first member that is ready, for the caller alone.
    fn claim(&self) -> Option<u32> {
        for (w, word) in self.ready.iter().enumerate() {
            let mut bits = word.load(Ordering::Acquire);
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                let before = word.fetch_and(!bit, Ordering::AcqRel);
                if before & bit != 0 {
                    return Some(w as u32 * 64 + bit.trailing_zeros());
                }
                bits = before & !bit;
            }
        }
        None
    }

    fn mark_ready(&self, m: u32) {
        self.ready[m as usize / 64].fetch_or(1 << (m % 64), Ordering::AcqRel);
    }

    fn finish(&self, m: u32) {
        let [from, to] = [self.at[m as usize], self.at[m as usize + 1]];
        for n in &self.next[from as usize..to as usize] {
            if self.pending[*n as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                self.mark_ready(*n);
            }
        }
        self.left.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Done<'a>(&'a StepGroup, u32);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.finish(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use tfc_abi::plan::{Dispatch, Step};

    fn steps(after: &[&[u32]]) -> Steps {
        Steps::from_pairs(after.iter().map(|after| {
            (
                Step::Copy { src: 0, dst: 0 },
                Dispatch { after: after.to_vec(), ..Dispatch::default() },
            )
        }))
    }

    /// Random graphs: every member once, none before those it waits for.
    #[test]
    fn members_run_once_and_in_order() {
        let mut seed = 3u64;
        let mut random = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        let pool = Pool::new(4);
        for _ in 0..60 {
            let n = 1 + random(150);
            let lists: Vec<Vec<u32>> = (0..n)
                .map(|i| {
                    let mut list: Vec<u32> =
                        (0..random(4)).filter(|_| i > 0).map(|_| random(i.max(1)) as u32).collect();
                    list.sort_unstable();
                    list.dedup();
                    list
                })
                .collect();
            let views: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
            let steps = steps(&views);
            let group = StepGroup::new((0..n as u32).collect(), &steps, 4, false);
            let clock = AtomicU32::new(1);
            let times: Vec<[AtomicU32; 2]> = (0..n).map(|_| Default::default()).collect();
            for _ in 0..3 {
                times.iter().flatten().for_each(|t| t.store(0, Ordering::Relaxed));
                let run = |i: u32| {
                    let now = || clock.fetch_add(1, Ordering::SeqCst);
                    let [start, end] = &times[i as usize];
                    assert_eq!(start.swap(now(), Ordering::SeqCst), 0, "{i} ran twice");
                    end.store(now(), Ordering::SeqCst);
                    Ok(())
                };
                group.run(&pool, &run).unwrap();
                for (i, list) in lists.iter().enumerate() {
                    let start = times[i][0].load(Ordering::SeqCst);
                    assert!(start > 0);
                    let end = |a: &u32| times[*a as usize][1].load(Ordering::SeqCst);
                    assert!(list.iter().all(|a| end(a) < start));
                }
            }
        }
    }

    #[test]
    fn the_first_error_counts_and_panics_get_out() {
        let pool = Pool::new(3);
        let steps = steps(&[&[], &[], &[], &[0, 1, 2]]);
        let group = StepGroup::new(vec![0, 1, 2, 3], &steps, 3, false);
        for _ in 0..50 {
            let fails = |i: u32| match i {
                0 => Ok(()),
                _ => Err(Error::bug(format!("step {i}"))),
            };
            let e = group.run(&pool, &fails).unwrap_err();
            assert!(e.to_string().contains("step 1"), "{e}");
            let panics = || {
                group.run(&pool, &|i| {
                    assert!(i != 2, "two");
                    Ok(())
                })
            };
            catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
            group.run(&pool, &|_| Ok(())).unwrap();
        }
    }
}
