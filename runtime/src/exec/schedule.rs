//! What of a list runs when, decided once the sizes are known.
//!
//! A step that is worth splitting has all threads for itself. Steps that are not
//! are gathered, as long as nothing else waits for one of them, and then run side
//! by side where that is quicker than one after the other: branches of a network,
//! the updates of many variables. What waits for what is the plan's to say, so
//! results do not depend on any of this.

use super::batch::Batch;
use super::exchange::Detour;
use super::frame::computes;
use super::group::StepGroup;
use crate::device::COPIED_PER_NS;
use crate::pool::{MIN_PART_NS, Pool};
use std::sync::atomic::AtomicPtr;
use tfc_abi::plan::{Conv, DeviceId, Entry, HOST, Home, MatMul, Step, Steps};

/// Running steps side by side must save so many nanoseconds.
const MIN_GAIN_NS: i64 = 10_000;

/// Multiply-adds a core does in a nanosecond, and elements it streams from memory:
/// roughly, as the routines themselves count them.
const MADDS_PER_NS: i64 = 24;
const STREAMED_PER_NS: i64 = 4;

/// A list of steps at known sizes.
#[derive(Default)]
pub(crate) struct Schedule {
    pub(super) stages: Vec<Stage>,
    /// For each stage, how many exchanges of the list must be finished before it.
    pub(super) waits: Vec<u32>,
    /// One for each step of the list.
    pub(super) steps: Vec<StepInfo>,
}

pub(super) enum Stage {
    /// A step by itself.
    One(u32),
    /// Some side by side.
    Group(Box<StepGroup>),
    /// Some on other devices.
    Elsewhere(Box<Batch>),
    /// An exchange with other processes, by way of the CPU.
    Exchange(u32, Detour),
    /// A step with two lists of its own.
    Inner(u32, Box<[Schedule; 2]>),
}

/// What is known of a step before it runs.
pub(super) struct StepInfo {
    pub device: DeviceId,
    /// Where its kernel's arguments are.
    pub bufs_at: u32,
    pub ints_at: u32,
    /// Nanoseconds, roughly.
    pub work: i64,
    pub writes_variables: bool,
    /// How many exchanges of the list it waits for, directly or through others. They
    /// wait for each other, so these are the first.
    pub exchanges: u32,
    /// It computes, and is not worth splitting.
    small: bool,
}

/// Arguments of the kernels of a call: room for the buffers of each, and the
/// values of its dims.
#[derive(Default)]
pub(super) struct Arguments {
    pub bufs: Vec<AtomicPtr<u8>>,
    pub ints: Vec<i64>,
}

impl Schedule {
    /// With `direct`, devices exchange tensors with other processes by themselves.
    pub(super) fn new(
        steps: &Steps,
        entry: &Entry,
        values: &[i64],
        pool: &Pool,
        direct: bool,
        arguments: &mut Arguments,
    ) -> Schedule {
        // Those that a device does by itself are tasks of it, as anything else it does.
        let exchanged = |i: usize| {
            matches!(steps[i], Step::Exchange(_)) && !(direct && steps.dispatch()[i].device != HOST)
        };
        let mut known: Vec<StepInfo> = vec![];
        let mut exchanges = 0;
        for (i, (step, dispatch)) in steps.iter().zip(steps.dispatch()).enumerate() {
            let (work, splits) = work(step, entry, values);
            let mut writes_variables = false;
            step.buffers(&mut |b, w| {
                let home = entry.buffers[b as usize].home;
                writes_variables |= w && matches!(home, Home::Var(_));
            });
            let before = dispatch.after.iter().map(|a| match exchanged(*a as usize) {
                // Its own number is one more than those before it.
                true => known[*a as usize].exchanges + 1,
                false => known[*a as usize].exchanges,
            });
            let mut first = before.max().unwrap_or(0);
            if exchanged(i) {
                (first, exchanges) = (exchanges, exchanges + 1);
            }
            known.push(StepInfo {
                exchanges: first,
                device: dispatch.device,
                bufs_at: arguments.bufs.len() as u32,
                ints_at: arguments.ints.len() as u32,
                work,
                writes_variables,
                small: computes(step)
                    && dispatch.device == HOST
                    && !step.is_barrier()
                    && (!splits || work < 2 * MIN_PART_NS),
            });
            if let Some((bufs, dims)) = kernel(step) {
                arguments.bufs.extend(bufs.iter().map(|_| AtomicPtr::default()));
                arguments.ints.extend(dims.iter().map(|e| values[*e as usize]));
            }
        }
        let mut schedule = Schedule { stages: vec![], waits: vec![], steps: known };
        // Small steps of the CPU, and steps of other devices: put off until something
        // waits for one of them. Of what a step waits for through others, those others
        // wait too, so they are put off as well.
        let (mut gathered, mut elsewhere): (Vec<u32>, Vec<u32>) = (vec![], vec![]);
        let waits = |list: &[u32], i: u32| {
            let after = &steps.dispatch()[i as usize].after;
            after.iter().any(|a| list.binary_search(a).is_ok())
        };
        for (i, step) in (0u32..).zip(steps.iter()) {
            let beside = exchanged(i as usize);
            let away = schedule.steps[i as usize].device != HOST && !beside;
            let small = schedule.steps[i as usize].small && pool.threads() > 1;
            if !small && waits(&gathered, i) {
                schedule.flush(&mut gathered, steps, pool);
            }
            if waits(&elsewhere, i) && (!away || Batch::must_end(step, entry, steps, &elsewhere)) {
                schedule.send(&mut elsewhere);
            }
            if away {
                elsewhere.push(i);
                continue;
            }
            if small {
                gathered.push(i);
                continue;
            }
            let mut inner =
                |list: &Steps| Schedule::new(list, entry, values, pool, direct, arguments);
            schedule.stages.push(match step {
                Step::Exchange(_) => Stage::Exchange(i, Detour::default()),
                Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } => {
                    Stage::Inner(i, Box::new([inner(a), inner(b)]))
                }
                _ => Stage::One(i),
            });
        }
        schedule.flush(&mut gathered, steps, pool);
        schedule.send(&mut elsewhere);
        let first = |i: &u32| schedule.steps[*i as usize].exchanges;
        let waits = schedule.stages.iter().map(|stage| match stage {
            // It is put in line behind those before it, and need not wait for them.
            Stage::Exchange(..) => 0,
            Stage::One(i) | Stage::Inner(i, _) => first(i),
            Stage::Group(group) => group.members().iter().map(first).max().unwrap_or(0),
            Stage::Elsewhere(batch) => batch.steps().iter().map(first).max().unwrap_or(0),
        });
        schedule.waits = waits.collect();
        schedule
    }

    /// Hands steps to other devices.
    fn send(&mut self, list: &mut Vec<u32>) {
        if !list.is_empty() {
            let writes = list.iter().any(|i| self.steps[*i as usize].writes_variables);
            self.stages.push(Stage::Elsewhere(Box::new(Batch::new(std::mem::take(list), writes))));
        }
    }

    /// Runs what was gathered, side by side if it pays.
    fn flush(&mut self, gathered: &mut Vec<u32>, steps: &Steps, pool: &Pool) {
        let list = std::mem::take(gathered);
        // When each would be done if there were a thread for everyone.
        let mut ends: Vec<i64> = vec![];
        for i in &list {
            let info = &self.steps[*i as usize];
            let waits = steps.dispatch()[*i as usize].after.iter();
            let start = waits.filter_map(|a| list.binary_search(a).ok()).map(|at| ends[at]).max();
            ends.push(start.unwrap_or(0).saturating_add(info.work));
        }
        let works = list.iter().map(|i| self.steps[*i as usize].work);
        let total = works.fold(0, i64::saturating_add);
        let longest = ends.iter().copied().max().unwrap_or(0);
        let best = longest.max(total / pool.threads() as i64);
        if total - best < MIN_GAIN_NS {
            self.stages.extend(list.into_iter().map(Stage::One));
            return;
        }
        let writes = list.iter().any(|i| self.steps[*i as usize].writes_variables);
        let width = usize::try_from(total / longest.max(1) + 1).unwrap_or(2);
        let threads = pool.threads().min(width).min(list.len());
        self.stages.push(Stage::Group(Box::new(StepGroup::new(list, steps, threads, writes))));
    }

    /// Groups in the list and the lists inside its steps.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        let count = |stage: &Stage| match stage {
            Stage::One(_) | Stage::Elsewhere(_) | Stage::Exchange(..) => 0,
            Stage::Group(_) => 1,
            Stage::Inner(_, inner) => inner.iter().map(Schedule::groups).sum(),
        };
        self.stages.iter().map(count).sum()
    }
}

/// Buffers and dims of the kernel a step calls.
fn kernel(step: &Step) -> Option<(&[u32], &[u32])> {
    match step {
        Step::Launch(l) => Some((&l.bufs, &l.dims)),
        Step::MatMul(MatMul { epilogue: Some(e), .. })
        | Step::Conv(Conv { epilogue: Some(e), .. }) => Some((&e.bufs, &e.dims)),
        _ => None,
    }
}

/// Nanoseconds that a step takes, very roughly, and whether it can be split.
fn work(step: &Step, entry: &Entry, values: &[i64]) -> (i64, bool) {
    let value = |e: u32| values[e as usize];
    let product = |list: &[u32]| list.iter().fold(1i64, |n, e| n.saturating_mul(value(*e)));
    let bytes = |b: u32| {
        let buffer = &entry.buffers[b as usize];
        value(buffer.len).saturating_mul(buffer.dtype.size() as i64)
    };
    match step {
        Step::Launch(l) => (product(&[l.extent, l.cost]), l.splits),
        Step::MatMul(s) if value(s.m) == 1 || value(s.n) == 1 => {
            let streamed = product(&[s.m, s.k]).saturating_add(product(&[s.k, s.n]));
            (value(s.batch).saturating_mul(streamed) / STREAMED_PER_NS, true)
        }
        Step::MatMul(s) => (product(&[s.batch, s.m, s.n, s.k]) / MADDS_PER_NS, true),
        Step::Conv(c) => {
            let outputs = product(&[c.batch, c.out_channels, c.out_h, c.out_w]);
            let taps = i64::from(c.kernel[0]) * i64::from(c.kernel[1]);
            let each = value(c.in_channels) / i64::from(c.groups.max(1));
            let madds = outputs.saturating_mul(each.saturating_mul(taps));
            (madds.saturating_mul(3) / (2 * MADDS_PER_NS), true)
        }
        Step::Copy { src, .. } => (bytes(*src) / COPIED_PER_NS, true),
        Step::Call(c) => (c.bufs.first().map_or(0, |b| bytes(*b)) / COPIED_PER_NS, false),
        _ => (0, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tfc_abi::DType;
    use tfc_abi::depend::order;
    use tfc_abi::plan::{Buffer, Dispatch, Expr, ExprOp};

    /// Copies `(src, dst)` between places of `bytes` bytes each.
    fn schedule(bytes: i64, copies: &[(u32, u32)], threads: usize) -> Schedule {
        let buffer = |b| Buffer {
            dtype: DType::U8,
            len: 0,
            shape: vec![0],
            home: Home::slot(b),
            device: HOST,
        };
        let entry = Entry {
            exprs: vec![Expr(vec![ExprOp::Const(bytes)])],
            buffers: (0..20).map(buffer).collect(),
            ..Entry::default()
        };
        let steps: Vec<Step> =
            copies.iter().map(|(src, dst)| Step::Copy { src: *src, dst: *dst }).collect();
        let (after, _) = order(&steps, &Home::slot);
        let pairs = steps.into_iter().zip(after);
        let steps = Steps::from_pairs(
            pairs.map(|(s, after)| (s, Dispatch { after, ..Dispatch::default() })),
        );
        let pool = Pool::new(threads);
        Schedule::new(&steps, &entry, &[bytes], &pool, false, &mut Arguments::default())
    }

    const APART: [(u32, u32); 4] = [(0, 1), (2, 3), (4, 5), (6, 7)];

    #[test]
    fn small_steps_that_do_not_wait_run_side_by_side() {
        let s = schedule(160_000, &APART, 2);
        assert_eq!((s.groups(), s.stages.len()), (1, 1));
        // One thread, one chain, too little to gain, worth splitting: not so.
        assert_eq!(schedule(160_000, &APART, 1).groups(), 0);
        assert_eq!(schedule(160_000, &[(0, 1), (1, 2), (2, 3), (3, 4)], 2).groups(), 0);
        assert_eq!(schedule(1_000, &APART, 2).groups(), 0);
        assert_eq!(schedule(1_000_000, &APART, 2).groups(), 0);
    }
}
