//! Threads for one program.
//!
//! A parallel region is a number of parts, fixed before it starts, and a
//! function of the part's number. Parts never depend on who runs them or when, so
//! results do not depend on the number of threads.
//!
//! The parts of a region are dealt out evenly, as one run of neighbours for each
//! thread, and every thread takes its own in order: what it wrote in one region
//! is in its cache in the next. Who is done takes parts off the end of another's
//! run. So with a few parts for each thread, a thread whose core is busy with
//! something else holds nobody up: the rest do its work.
//!
//! Invariants
//! - No thread exists before the first region with more than one part.
//! - A worker that finds nothing to do spins for a short while and then parks:
//!   an idle program uses no CPU. So does a caller whose last parts others run.
//! - Several regions may be open, of several callers; workers serve them all. A
//!   region entered from inside another runs on its own thread, and so does one
//!   too many: regions never wait for each other.
//! - The region's function is not touched after `run` returns: a part is
//!   claimed by a compare-and-swap on a word that carries the region's number,
//!   and `run` returns only when every part is done.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// What a thread is given to do should be worth this many nanoseconds, or waking
/// it costs more than it gains.
pub const MIN_PART_NS: i64 = 20_000;

/// How long a thread with nothing to do spins before it parks.
const SPIN: Duration = Duration::from_micros(40);

/// Parts that [`Pool::ranges`] makes for each thread.
const PARTS_PER_THREAD: usize = 8;

/// Regions that may be open at once.
const REGIONS: usize = 8;

type Task<'a> = &'a (dyn Fn(usize) + Sync);

pub struct Pool {
    threads: usize,
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    /// How many there are, to be asked without the lock.
    started: AtomicUsize,
}

struct Shared {
    regions: Box<[Region]>,
    /// Grows whenever a region opens: what workers wait for.
    opened: AtomicU64,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
}

/// One parallel region, and after it another.
struct Region {
    /// Some caller's.
    taken: AtomicBool,
    /// Its number (32 bits), the parts not yet claimed: end (16), first (16); one
    /// for each thread.
    claims: Box<[AtomicU64]>,
    /// Of `claims`, those in use.
    runs: AtomicUsize,
    /// Parts may be left.
    open: AtomicBool,
    job: UnsafeCell<Option<Job>>,
    done: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    caller: Thread,
    parts: usize,
}

// SAFETY: `job` is written only by the caller that has `taken` the region, while
// no part is claimable, and read only by claimants, for whom the claim's
// release/acquire pair orders the write before the read.
unsafe impl Sync for Region {}
// SAFETY: `Job::task` points at a `Sync` closure.
unsafe impl Send for Region {}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pack(number: u64, end: usize, first: usize) -> u64 {
    number << 32 | (end as u64) << 16 | first as u64
}

/// First and end of the parts of a claim word.
fn unpack(word: u64) -> (usize, usize) {
    ((word & 0xffff) as usize, (word >> 16 & 0xffff) as usize)
}

/// Most parts a region may have.
pub const MAX_PARTS: usize = 0xffff;

/// Spins until `ready`, or until it has taken too long.
fn spin(ready: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..32 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return ready();
        }
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller's among them; started on demand.
    pub fn new(threads: usize) -> Pool {
        let threads = threads.clamp(1, 1024);
        let region = || Region {
            taken: AtomicBool::new(false),
            claims: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            runs: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            done: AtomicUsize::new(0),
            panic: Mutex::new(None),
        };
        Pool {
            threads,
            shared: Arc::new(Shared {
                regions: (0..if threads == 1 { 0 } else { REGIONS }).map(|_| region()).collect(),
                opened: AtomicU64::new(0),
                sleepers: AtomicUsize::new(0),
                sleep: Mutex::new(()),
                wake: Condvar::new(),
                stop: AtomicBool::new(false),
            }),
            workers: Mutex::new(Vec::new()),
            started: AtomicUsize::new(0),
        }
    }

    /// The pool used by default: `TFC_THREADS`, or every CPU.
    pub fn global() -> Arc<Pool> {
        static GLOBAL: OnceLock<Arc<Pool>> = OnceLock::new();
        GLOBAL.get_or_init(|| Arc::new(Pool::new(default_threads()))).clone()
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Whether the calling thread is at work on a part: a region that it enters
    /// is not shared.
    pub fn inside() -> bool {
        INSIDE.get()
    }

    /// How many threads are worth having on `items` pieces of work that take
    /// about `total_ns` together: one where the caller is inside a region.
    ///
    /// A region should have a few parts for each of them, where its work can be
    /// cut without doing any of it twice ([`Pool::ranges`] does so by itself).
    pub fn parts_for(&self, items: usize, total_ns: i64) -> usize {
        if self.threads == 1 || total_ns < 2 * MIN_PART_NS || INSIDE.get() {
            return 1;
        }
        let worth = usize::try_from(total_ns / MIN_PART_NS).unwrap_or(1);
        self.threads.min(worth).min(items).max(1)
    }

    /// Runs `task(0)` to `task(parts - 1)`, in any order, and returns when all
    /// are done. A panic in one is raised here.
    ///
    /// Each thread begins with its own run of neighbours and then helps the
    /// others, so that a few parts for each thread keep all of them busy to the
    /// end, whatever else their cores do.
    pub fn run(&self, parts: usize, task: Task<'_>) {
        let alone = parts <= 1 || parts > MAX_PARTS || self.threads == 1 || INSIDE.get();
        let region = if alone { None } else { self.shared.take() };
        let Some(region) = region else {
            (0..parts).for_each(task);
            return;
        };
        self.start(parts);
        // SAFETY: the region is this caller's; no part of an earlier use is
        // claimable or running (that one waited for all), so nobody reads `job`
        // now. The task's lifetime is erased: this function returns only when
        // `done == parts`, and only holders of a claimed, unfinished part use it.
        unsafe {
            let task = std::mem::transmute::<Task<'_>, Task<'static>>(task);
            *region.job.get() = Some(Job { task, caller: std::thread::current(), parts });
        }
        self.shared.open(region, parts, self.threads);
        INSIDE.set(true);
        while region.work(0) {}
        INSIDE.set(false);
        region.open.store(false, Ordering::Relaxed);
        let all = || region.done.load(Ordering::Acquire) == parts;
        if !spin(all) {
            while !all() {
                std::thread::park();
            }
        }
        let panic = lock(&region.panic).take();
        region.taken.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Splits `0..items` into ranges whose bounds are multiples of `grain`, and
    /// runs them on about `threads` threads: a few ranges for each, so that one
    /// that is held up holds up nobody else.
    pub fn ranges(
        &self,
        items: usize,
        grain: usize,
        threads: usize,
        task: &(dyn Fn(usize, usize) + Sync),
    ) {
        if threads <= 1 {
            task(0, items);
            return;
        }
        let grains = items.div_ceil(grain.max(1));
        let parts = threads.saturating_mul(PARTS_PER_THREAD).min(grains).clamp(1, MAX_PARTS);
        let bound = |p: usize| (grains * p / parts * grain.max(1)).min(items);
        self.run(parts, &|p| {
            let (lo, hi) = (bound(p), bound(p + 1));
            if lo < hi {
                task(lo, hi);
            }
        });
    }

    /// Starts workers until `parts` can run at once for every caller, as far as
    /// allowed.
    fn start(&self, parts: usize) {
        if self.started.load(Ordering::Relaxed) + 1 == self.threads {
            return;
        }
        let taken = |r: &&Region| r.taken.load(Ordering::Relaxed);
        let callers = self.shared.regions.iter().filter(taken).count();
        let wanted = (self.threads - 1).min((parts - 1) * callers);
        if self.started.load(Ordering::Relaxed) >= wanted {
            return;
        }
        let mut workers = lock(&self.workers);
        while workers.len() < wanted {
            let (shared, me) = (self.shared.clone(), workers.len() + 1);
            let name = format!("tfc-{me}");
            match std::thread::Builder::new().name(name).spawn(move || worker(&shared, me)) {
                Ok(handle) => workers.push(handle),
                // The caller does the work of the threads that could not be had.
                Err(_) => break,
            }
        }
        self.started.store(workers.len(), Ordering::Relaxed);
    }
}

impl Shared {
    /// A region for a caller, if one is free.
    fn take(&self) -> Option<&Region> {
        self.regions
            .iter()
            .find(|r| !r.taken.load(Ordering::Relaxed) && !r.taken.swap(true, Ordering::Acquire))
    }

    /// Deals out the parts of a region whose job is there, and wakes workers.
    fn open(&self, region: &Region, parts: usize, threads: usize) {
        let runs = threads.min(parts);
        region.done.store(0, Ordering::Relaxed);
        region.runs.store(runs, Ordering::Relaxed);
        for (i, claim) in region.claims.iter().take(runs).enumerate() {
            let number = (claim.load(Ordering::Relaxed) >> 32).wrapping_add(1) & 0xffff_ffff;
            let (first, end) = (parts * i / runs, parts * (i + 1) / runs);
            claim.store(pack(number, end, first), Ordering::Release);
        }
        region.open.store(true, Ordering::Release);
        self.opened.fetch_add(1, Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 {
            let _guard = lock(&self.sleep);
            for _ in 0..sleepers.min(parts - 1) {
                self.wake.notify_one();
            }
        }
    }

    /// Runs a part of some region; false when none is left.
    fn work(&self, me: usize) -> bool {
        self.regions.iter().any(|r| r.open.load(Ordering::Acquire) && r.work(me))
    }
}

impl Region {
    /// Claims and runs one part; false when none is left.
    fn work(&self, me: usize) -> bool {
        let runs = self.runs.load(Ordering::Relaxed).clamp(1, self.claims.len());
        let own = me % runs;
        for i in 0..runs {
            let claim = &self.claims[(own + i) % runs];
            if let Some(part) = take_part(claim, i == 0) {
                // SAFETY: this part is claimed and not done, so `run` has not
                // returned and nobody writes `job`.
                let job = unsafe { (*self.job.get()).clone() };
                if let Some(job) = job {
                    self.run_part(&job, part);
                }
                return true;
            }
        }
        false
    }

    fn run_part(&self, job: &Job, part: usize) {
        // SAFETY: `run` keeps the task alive until every part is done.
        let task = unsafe { &*job.task };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(part))) {
            *lock(&self.panic) = Some(panic);
        }
        if self.done.fetch_add(1, Ordering::AcqRel) + 1 == job.parts {
            job.caller.unpark();
        }
    }
}

/// A part of a run: the first for its own thread, the last for another.
fn take_part(claim: &AtomicU64, own: bool) -> Option<usize> {
    let mut seen = claim.load(Ordering::Acquire);
    loop {
        let (first, end) = unpack(seen);
        if first >= end {
            return None;
        }
        let number = seen >> 32;
        let (part, rest) = match own {
            true => (first, pack(number, end, first + 1)),
            false => (end - 1, pack(number, end - 1, first)),
        };
        match claim.compare_exchange_weak(seen, rest, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(part),
            Err(now) => seen = now,
        }
    }
}

fn worker(shared: &Shared, me: usize) {
    INSIDE.set(true);
    loop {
        let seen = shared.opened.load(Ordering::SeqCst);
        while shared.work(me) {}
        let news =
            || shared.opened.load(Ordering::SeqCst) != seen || shared.stop.load(Ordering::Acquire);
        if !spin(news) {
            sleep(shared, seen);
        }
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Parks until a region has opened since `seen` was looked up.
fn sleep(shared: &Shared, seen: u64) {
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let mut guard = lock(&shared.sleep);
    while shared.opened.load(Ordering::SeqCst) == seen && !shared.stop.load(Ordering::SeqCst) {
        guard = shared.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    drop(guard);
    shared.sleepers.fetch_sub(1, Ordering::SeqCst);
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _guard = lock(&self.shared.sleep);
            self.shared.wake.notify_all();
        }
        for handle in lock(&self.workers).drain(..) {
            // A worker catches panics, so there is nothing to report.
            let _ = handle.join();
        }
    }
}

/// `TFC_THREADS` when it is a number, else the CPUs this process may use.
pub fn default_threads() -> usize {
    std::env::var("TFC_THREADS")
        .ok()
        .and_then(|v| v.trim().parse::<usize>().ok())
        .filter(|n| *n > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_part_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for parts in [0, 1, 2, 3, 7, 100] {
                let hits: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..200 {
                    pool.run(parts, &|p| {
                        hits[p].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 200));
            }
        }
    }

    #[test]
    fn works_after_workers_parked() {
        let pool = Pool::new(4);
        for _ in 0..5 {
            let sum = AtomicUsize::new(0);
            pool.run(16, &|p| {
                sum.fetch_add(p, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 120);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    #[test]
    fn nested_and_concurrent_regions_finish() {
        let pool = Pool::new(3);
        let count = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..100 {
                        pool.run(4, &|_| {
                            pool.run(2, &|_| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4 * 100 * 8);
    }

    /// A part of one region waits for a part of another, which only a worker can
    /// run: callers share the workers rather than run alone.
    #[test]
    fn a_second_caller_has_workers_too() {
        let pool = Pool::new(3);
        let met = std::sync::Barrier::new(4);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    pool.run(2, &|_| {
                        met.wait();
                    });
                });
            }
        });
    }

    /// One thread is stuck in its first part: the others do the rest.
    #[test]
    fn a_thread_that_is_held_up_holds_up_nobody() {
        let pool = Pool::new(2);
        let left = AtomicUsize::new(15);
        pool.run(16, &|p| {
            if p != 0 {
                left.fetch_sub(1, Ordering::SeqCst);
                return;
            }
            while left.load(Ordering::SeqCst) > 0 {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn each_thread_begins_with_its_own_run_of_parts() {
        let region = &Pool::new(4).shared.regions[0];
        for (i, word) in [(0, 4), (4, 8), (8, 12)].into_iter().enumerate() {
            region.claims[i].store(pack(7, word.1, word.0), Ordering::Relaxed);
        }
        assert_eq!(take_part(&region.claims[1], true), Some(4));
        assert_eq!(take_part(&region.claims[1], false), Some(7));
        assert_eq!(take_part(&region.claims[1], true), Some(5));
        assert_eq!(take_part(&region.claims[1], false), Some(6));
        assert_eq!(take_part(&region.claims[1], false), None);
        assert_eq!(take_part(&region.claims[0], false), Some(3));
    }

    #[test]
    fn more_regions_than_there_is_room_for_finish() {
        let pool = Pool::new(2);
        let (count, callers) = (AtomicUsize::new(0), REGIONS + 4);
        let met = std::sync::Barrier::new(callers);
        std::thread::scope(|s| {
            for _ in 0..callers {
                s.spawn(|| {
                    met.wait();
                    for _ in 0..200 {
                        pool.run(5, &|_| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), callers * 200 * 5);
    }

    #[test]
    fn ranges_cover_and_keep_their_grain() {
        let pool = Pool::new(2);
        for (items, grain, parts) in [(0, 4, 2), (1, 4, 2), (10, 4, 2), (1000, 16, 7), (5, 1, 9)] {
            let seen = Mutex::new(vec![0; items]);
            pool.ranges(items, grain, parts, &|lo, hi| {
                assert!(lo % grain == 0 && (hi % grain == 0 || hi == items));
                lock(&seen)[lo..hi].iter_mut().for_each(|s| *s += 1);
            });
            assert!(lock(&seen).iter().all(|s| *s == 1), "{items} {grain} {parts}");
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(8, &|p| assert!(p != 5, "part five"));
        }));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(8, &|p| {
            sum.fetch_add(p, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 28);
    }

    #[test]
    fn small_work_stays_on_one_thread() {
        let pool = Pool::new(8);
        assert_eq!(pool.parts_for(1000, MIN_PART_NS), 1);
        assert_eq!(pool.parts_for(1000, 3 * MIN_PART_NS), 3);
        assert_eq!(pool.parts_for(2, i64::MAX), 2);
        assert_eq!(pool.parts_for(1000, i64::MAX), 8);
    }
}
