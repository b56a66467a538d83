//! What of a pipeline is done again when a run is resumed, and what cannot be.
//!
//! A checkpoint says how many elements the run had taken. What a pipeline gives
//! depends on its input alone, so the elements that come next can be made again.
//! Most runners are *regular*: every call takes and gives the same numbers of
//! elements, and nothing is carried over from one to the next. Of such a one only
//! the calls whose elements are still needed are made again: none before a fifo
//! queue, a few windows full before a shuffle; readers skip the records of the
//! others. A runner that is not regular begins anew, as do those before it, and
//! what was taken already is dropped as it comes.
//!
//! Invariants
//! - A queue continues as if all that was ever taken from it had been: what is
//!   put in its line for elements that are never looked at again is dropped before
//!   anybody takes from it.
//! - [`obstacles`] are all the ways in which what runners give depends on time.

use super::runners::needed;
use super::{Queue, Queues, uses_queue};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use tfc_abi::order::Line;
use tfc_abi::plan::{Entry, Home, Plan, QueueAction, QueueKind, Step};

/// Variables that runners write and entries do not: they are a part of the
/// pipeline, and begin anew with it.
pub(crate) fn variables_of_runners(plan: &Plan) -> BTreeSet<u32> {
    let written = |runner: bool| -> BTreeSet<u32> {
        let entries = plan.entries.iter().enumerate();
        let entries = entries.filter(|(i, e)| e.runner == runner && plan.init != Some(*i as u32));
        entries.flat_map(|(_, e)| e.writes.iter().copied()).collect()
    };
    written(true).difference(&written(false)).copied().collect()
}

/// Why a resumed run of an entry would not get the elements that the saved one
/// would have got; nothing if it would.
pub fn obstacles(plan: &Plan, entry: usize) -> Vec<String> {
    let mut out = vec![];
    let runners = needed(plan, entry);
    let Some(caller) = plan.entries.get(entry) else { return out };
    let all = || runners.iter().filter_map(|r| plan.entries.get(*r)).chain([caller]);
    for (i, q) in plan.queues.iter().enumerate() {
        let who = |what: fn(QueueAction) -> bool| -> Vec<&Entry> {
            all().filter(|e| uses_queue(e, i as u32, what)).collect()
        };
        let (fills, takes) = (who(QueueAction::gives), who(QueueAction::takes));
        let names = |entries: &[&Entry]| crate::error::list(entries.iter().map(|e| &*e.name));
        let name = &q.name;
        if fills.len() > 1 {
            out.push(format!("`{name}` is filled by {}, whichever is faster", names(&fills)));
        } else if takes.len() > 1 {
            out.push(format!("{} take from `{name}`, whichever is faster", names(&takes)));
        } else if let [by] = fills[..]
            && !by.runner
            && !takes.is_empty()
        {
            out.push(format!(
                "`{name}` is filled by `{}`, and what it holds is not saved",
                by.name
            ));
        } else if matches!(q.kind, QueueKind::Priority { .. }) && fills.iter().any(|e| e.runner) {
            out.push(format!(
                "`{name}` is a priority queue: what leaves it depends on how much is there in time"
            ));
        }
        for e in runners.iter().filter_map(|r| plan.entries.get(*r)) {
            if uses_queue(e, i as u32, |a| a == QueueAction::Size) {
                out.push(format!("the runner `{}` asks how full `{name}` is", e.name));
            }
        }
    }
    let uses = |e: &Entry, v: u32| e.buffers.iter().any(|b| b.home == Home::Var(v));
    for (i, var) in plan.vars.iter().enumerate() {
        let v = i as u32;
        let users: Vec<&Entry> = all().filter(|e| uses(e, v) || e.writes.contains(&v)).collect();
        let writer = users.iter().find(|e| e.writes.contains(&v));
        if let (Some(writer), [_, _, ..]) = (writer, &users[..])
            && users.iter().any(|e| e.runner)
            && let Some(other) = users.iter().find(|e| e.name != writer.name)
        {
            out.push(format!(
                "`{}` uses `{}`, which `{}` changes meanwhile",
                other.name, var.name, writer.name
            ));
        }
    }
    out
}

/// A runner whose calls are all alike: elements a call takes from and gives to
/// queues.
struct Regular {
    takes: Vec<(usize, u64)>,
    gives: Vec<(usize, u64)>,
}

fn regular(entry: &Entry) -> Option<Regular> {
    if entry.writes.is_empty() { steady(entry) } else { None }
}

/// How many elements each call of an entry takes, by queue; none if that is not the same
/// for all calls.
pub(crate) fn taken_by(entry: &Entry) -> Option<Vec<(usize, u64)>> {
    steady(entry).map(|s| s.takes)
}

fn steady(entry: &Entry) -> Option<Regular> {
    let mut out = Regular { takes: vec![], gives: vec![] };
    for step in &entry.steps {
        match step {
            Step::Queue(q) => {
                let count = entry.exprs.get(q.count as usize)?.as_const()?;
                let count = match q.action {
                    QueueAction::EnqueueMany | QueueAction::DequeueMany => {
                        u64::try_from(count).ok().filter(|n| *n > 0)?
                    }
                    _ => 1,
                };
                let list = match q.action {
                    a if a.takes() => &mut out.takes,
                    a if a.gives() => &mut out.gives,
                    _ => return None,
                };
                let queue = q.queue as usize;
                match list.iter_mut().find(|(q, _)| *q == queue) {
                    Some((_, n)) => *n += count,
                    None => list.push((queue, count)),
                }
            }
            Step::If { then, otherwise, .. } if has_effects(then) || has_effects(otherwise) => {
                return None;
            }
            Step::While { head, body, .. } if has_effects(head) || has_effects(body) => {
                return None;
            }
            Step::Save { .. } | Step::Restore { .. } => return None,
            _ => {}
        }
    }
    Some(out)
}

fn has_effects(steps: &[Step]) -> bool {
    steps.iter().any(|s| match s {
        Step::Queue(_) | Step::Save { .. } | Step::Restore { .. } => true,
        Step::If { then, otherwise, .. } => has_effects(then) || has_effects(otherwise),
        Step::While { head, body, .. } => has_effects(head) || has_effects(body),
        _ => false,
    })
}

/// The pipeline of a program.
#[derive(Default)]
pub(super) struct Pipeline {
    runners: Vec<Runner>,
    /// By queue: entries that users call do there what runners do.
    mixed: Vec<bool>,
}

struct Runner {
    regular: Option<Regular>,
    /// Queues it gives to and takes from, regular or not.
    gives: Vec<usize>,
    takes: Vec<usize>,
}

impl Pipeline {
    pub(super) fn new(plan: &Plan) -> Pipeline {
        let uses = |e: &Entry, what: fn(QueueAction) -> bool| -> Vec<usize> {
            (0..plan.queues.len()).filter(|q| uses_queue(e, *q as u32, what)).collect()
        };
        let runner = |e: &Entry| Runner {
            regular: regular(e),
            gives: uses(e, QueueAction::gives),
            takes: uses(e, QueueAction::takes),
        };
        let both = |q: u32, what: fn(QueueAction) -> bool| {
            let by = |runner: bool| {
                plan.entries.iter().any(|e| e.runner == runner && uses_queue(e, q, what))
            };
            by(true) && by(false)
        };
        let mixed = (0..plan.queues.len() as u32)
            .map(|q| both(q, QueueAction::gives) || both(q, QueueAction::takes))
            .collect();
        let runners = plan.entries.iter().filter(|e| e.runner).map(runner).collect();
        Pipeline { runners, mixed }
    }

    /// The one runner that does such a thing with a queue.
    fn only(&self, queue: usize, list: fn(&Runner) -> &[usize]) -> Option<usize> {
        let mut all = (0..self.runners.len()).filter(|r| list(&self.runners[*r]).contains(&queue));
        let one = all.next()?;
        (all.next().is_none() && !self.mixed[queue]).then_some(one)
    }
}

/// Where runners begin, while it is worked out.
struct Starts<'a> {
    queues: &'a Queues,
    /// Elements that entries have taken, by queue.
    taken: &'a [Option<u64>],
    /// By runner: the first call to make again. None while it is worked out.
    first: Vec<Option<Option<u64>>>,
}

impl Queues {
    /// Takes queues and readers to where these numbers of elements have been
    /// taken from queues by entries. All are empty and at their starts.
    pub(super) fn go_on(&self, taken: &[Option<u64>]) -> Result<()> {
        let runners = self.pipeline.runners.len();
        let mut starts = Starts { queues: self, taken, first: vec![None; runners] };
        let first: Vec<u64> = (0..runners).map(|r| starts.first(r)).collect::<Result<_>>()?;
        for (i, q) in self.list.iter().enumerate() {
            let Some(pops) = starts.pops(i)? else { continue };
            if let Some(reader) = &q.reader {
                if pops > 0 {
                    reader.lock().unwrap_or_else(std::sync::PoisonError::into_inner).go_to(pops)?;
                }
                continue;
            }
            // What its filler gave before it begins again.
            let arrived = match self.pipeline.only(i, |r| &r.gives) {
                Some(r) => starts.gives(r, i).map_or(0, |n| n * first[r]),
                None => 0,
            };
            let line = match q.info.kind {
                QueueKind::Shuffle { min, .. } => arrived.min(min.max(1) - 1),
                _ => 0,
            };
            let left = (arrived - line).min(pops);
            let mut inner = q.lock();
            inner.line.go_on(left, (0..line).map(|_| Box::default()));
            inner.skip = pops - left;
        }
        Ok(())
    }
}

impl Starts<'_> {
    fn gives(&self, runner: usize, queue: usize) -> Option<u64> {
        let gives = &self.queues.pipeline.runners[runner].regular.as_ref()?.gives;
        gives.iter().find(|(q, _)| *q == queue).map(|(_, n)| *n)
    }

    /// The first call of a runner whose elements are still needed.
    fn first(&mut self, runner: usize) -> Result<u64> {
        match self.first[runner] {
            Some(Some(known)) => return Ok(known),
            // In a circle nothing is known to be done with.
            Some(None) => return Ok(0),
            None => self.first[runner] = Some(None),
        }
        let pipeline = &self.queues.pipeline;
        let mut first = 0;
        if let Some(regular) = &pipeline.runners[runner].regular {
            let mut all = vec![];
            for (queue, count) in &regular.gives {
                let known = match pipeline.only(*queue, |r| &r.gives) {
                    Some(_) => self.oldest(*queue)?,
                    None => 0,
                };
                all.push(known / count);
            }
            // Of what others take as well, nobody knows who took what.
            let alone =
                regular.takes.iter().all(|(q, _)| pipeline.only(*q, |r| &r.takes).is_some());
            first = all.into_iter().min().filter(|_| alone).unwrap_or(0);
        }
        self.first[runner] = Some(Some(first));
        Ok(first)
    }

    /// How many elements of a queue have been taken, at the point from which it is
    /// gone on; none for a reader that entries take from, which has its own
    /// position.
    fn pops(&mut self, queue: usize) -> Result<Option<u64>> {
        if let Some(taken) = self.taken[queue] {
            return Ok(Some(taken));
        }
        let pipeline = &self.queues.pipeline;
        let Some(taker) = pipeline.only(queue, |r| &r.takes) else {
            let readers = self.queues.list[queue].reader.is_some();
            return Ok(if readers { None } else { Some(0) });
        };
        let Some(regular) = &pipeline.runners[taker].regular else { return Ok(Some(0)) };
        let count = regular.takes.iter().find(|(q, _)| *q == queue).map_or(0, |(_, n)| *n);
        Ok(Some(self.first(taker)? * count))
    }

    /// The number, by arrival, of the oldest element that is still needed.
    fn oldest(&mut self, queue: usize) -> Result<u64> {
        let pops = self.pops(queue)?.unwrap_or(0);
        let kind = &self.queues.list[queue].info.kind;
        match kind {
            QueueKind::Fifo { .. } => Ok(pops),
            QueueKind::Shuffle { min, .. } => {
                let window = (*min).max(1);
                let arrivals = self.available(queue, pops.saturating_add(window))?;
                Ok(oldest_in_window(kind, window, pops, arrivals))
            }
            QueueKind::Priority { .. } | QueueKind::Reader(_) => Ok(0),
        }
    }

    /// How many elements ever arrive at a queue, as far as `wanted`.
    fn available(&self, queue: usize, wanted: u64) -> Result<u64> {
        let q = &self.queues.list[queue];
        if let Some(reader) = &q.reader {
            let mut reader = reader.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            return reader.count(wanted);
        }
        let pipeline = &self.queues.pipeline;
        let Some(filler) = pipeline.only(queue, |r| &r.gives) else { return Ok(wanted) };
        let (Some(regular), Some(gives)) =
            (&pipeline.runners[filler].regular, self.gives(filler, queue))
        else {
            return Ok(wanted);
        };
        let mut calls = wanted.div_ceil(gives);
        for (source, count) in &regular.takes {
            calls = calls.min(self.available(*source, calls.saturating_mul(*count))? / count);
        }
        Ok(wanted.min(calls * gives))
    }
}

/// The oldest element still in line of a shuffle from which `pops` were taken, or
/// the next to arrive. What happened long ago does not matter: from some turn on
/// the line is followed, first by what is unknown, until nothing unknown is left.
fn oldest_in_window(kind: &QueueKind, window: u64, pops: u64, arrivals: u64) -> u64 {
    let mut turns = window.saturating_mul(8);
    loop {
        let from = pops.saturating_sub(turns);
        let mut line: Line<Option<u64>> = Line::new(kind);
        // Before a turn the window is full, or all there is is in it.
        let mut next = if from == 0 { 0 } else { (from + window - 1).min(arrivals) };
        line.go_on(from, (from..next).map(|_| None));
        for _ in from..pops {
            while (line.len() as u64) < window && next < arrivals {
                line.push(0, Some(next));
                next += 1;
            }
            if line.pop().is_none() {
                break;
            }
        }
        let rest: Vec<Option<u64>> = std::iter::from_fn(|| line.pop()).collect();
        if from == 0 || rest.iter().all(Option::is_some) {
            return rest.into_iter().flatten().min().unwrap_or(next);
        }
        turns = turns.saturating_mul(2);
    }
}

impl Queue {
    /// A number that tells the files of a reader from others.
    fn fingerprint(&self) -> Option<Result<String>> {
        let reader = self.reader.as_ref()?;
        Some(reader.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fingerprint())
    }
}

impl Queues {
    /// What tells the files of a reader from others: their number and sizes, and a
    /// hash of a few places in them.
    pub fn fingerprint(&self, reader: &str) -> Result<String> {
        let found = self.find(reader).and_then(Queue::fingerprint);
        found.unwrap_or_else(|| Err(Error::bug(format!("`{reader}` is not a reader"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// faults 10: following the last turns finds what following all of them does.
    #[test]
    fn the_oldest_element_is_found_from_the_last_turns() {
        for (window, seed) in [(1, 3), (2, 1), (7, 5), (40, -9)] {
            let kind = QueueKind::Shuffle { capacity: 100, min: window, seed };
            for (pops, arrivals) in [(0, 50), (1, 50), (300, 1000), (995, 1000), (1000, 1000)] {
                let mut line: Line<u64> = Line::new(&kind);
                let mut next = 0;
                for _ in 0..pops {
                    while (line.len() as u64) < window && next < arrivals {
                        line.push(0, next);
                        next += 1;
                    }
                    line.pop().unwrap();
                }
                let rest: Vec<u64> = std::iter::from_fn(|| line.pop()).collect();
                let want = rest.into_iter().min().unwrap_or(next);
                assert_eq!(
                    oldest_in_window(&kind, window, pops, arrivals),
                    want,
                    "{window} {pops}"
                );
            }
        }
    }
}
