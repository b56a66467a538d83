//! Threads for one program.
//!
//! A parallel region is a number of parts, fixed before it starts, and a
//! function of the part's number. Whoever is free takes the next part; since
//! parts never depend on who runs them, results do not depend on the number of
//! threads.
//!
//! Invariants
//! - No thread exists before the first region with more than one part.
//! - A worker that finds nothing to do spins for a short while and then parks:
//!   an idle program uses no CPU.
//! - A region entered while another runs (from a worker, or from a second
//!   caller) runs on its own thread: regions never wait for each other.
//! - The region's function is not touched after `run` returns: a part is
//!   claimed by a compare-and-swap on a word that carries the region's number,
//!   and `run` returns only when every claimed part is done.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};

/// A part should be worth this many nanoseconds, or waking a thread costs more
/// than it gains.
pub const MIN_PART_NS: i64 = 20_000;

/// Rounds of the spin loop before a worker parks: tens of microseconds.
const SPINS: u32 = 4000;

type Task<'a> = &'a (dyn Fn(usize) + Sync);

pub struct Pool {
    threads: usize,
    shared: Arc<Shared>,
    /// Held by the region that runs; also owns the worker handles.
    workers: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    /// Region number (32 bits), parts (16), next part (16).
    claim: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    done: AtomicUsize,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    caller: Thread,
}

// SAFETY: `job` is written only by the thread that holds `Pool::workers`, while
// no part is claimable, and read only by claimants, for whom the claim's
// release/acquire pair orders the write before the read.
unsafe impl Sync for Shared {}
// SAFETY: `Job::task` points at a `Sync` closure.
unsafe impl Send for Shared {}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pack(region: u64, parts: usize, next: usize) -> u64 {
    region << 32 | (parts as u64) << 16 | next as u64
}

/// Most parts a region may have.
pub const MAX_PARTS: usize = 0xffff;

impl Pool {
    /// A pool of `threads` threads, the caller's among them; started on demand.
    pub fn new(threads: usize) -> Pool {
        Pool {
            threads: threads.clamp(1, 1024),
            shared: Arc::new(Shared {
                claim: AtomicU64::new(0),
                job: UnsafeCell::new(None),
                done: AtomicUsize::new(0),
                sleepers: AtomicUsize::new(0),
                sleep: Mutex::new(()),
                wake: Condvar::new(),
                stop: AtomicBool::new(false),
                panic: Mutex::new(None),
            }),
            workers: Mutex::new(Vec::new()),
        }
    }

    /// The pool used unless told otherwise: `TFC_THREADS`, or every CPU.
    pub fn global() -> Arc<Pool> {
        static GLOBAL: OnceLock<Arc<Pool>> = OnceLock::new();
        GLOBAL.get_or_init(|| Arc::new(Pool::new(default_threads()))).clone()
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// How many parts are worth making of `items` pieces of work that take
    /// about `total_ns` together.
    pub fn parts_for(&self, items: usize, total_ns: i64) -> usize {
        if self.threads == 1 || total_ns < 2 * MIN_PART_NS || INSIDE.get() {
            return 1;
        }
        let worth = usize::try_from(total_ns / MIN_PART_NS).unwrap_or(1);
        self.threads.min(worth).min(items).max(1)
    }

    /// Runs `task(0)` to `task(parts - 1)`, in any order, and returns when all
    /// are done. A panic in one is raised here.
    pub fn run(&self, parts: usize, task: Task<'_>) {
        let alone = parts <= 1 || parts > MAX_PARTS || self.threads == 1 || INSIDE.get();
        let workers = if alone { None } else { self.workers.try_lock().ok() };
        let Some(mut workers) = workers else {
            (0..parts).for_each(task);
            return;
        };
        self.start(&mut workers, parts);
        let shared = &*self.shared;
        // SAFETY: no part of an earlier region is claimable or running (it
        // waited for all), and `workers` is held, so nobody reads `job` now.
        // The task's lifetime is erased: this function returns only when
        // `done == parts`, and only holders of a claimed, unfinished part use it.
        unsafe {
            let task = std::mem::transmute::<Task<'_>, Task<'static>>(task);
            *shared.job.get() = Some(Job { task, caller: std::thread::current() });
        }
        shared.done.store(0, Ordering::Relaxed);
        let region = (shared.claim.load(Ordering::Relaxed) >> 32).wrapping_add(1) & 0xffff_ffff;
        shared.claim.store(pack(region, parts, 0), Ordering::SeqCst);
        let sleepers = shared.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 {
            let _guard = lock(&shared.sleep);
            for _ in 0..sleepers.min(parts - 1) {
                shared.wake.notify_one();
            }
        }
        INSIDE.set(true);
        while shared.work(region) {}
        INSIDE.set(false);
        let mut spins = 0;
        while shared.done.load(Ordering::Acquire) != parts {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
        }
        drop(workers);
        let panic = lock(&shared.panic).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Splits `0..items` into `parts` ranges whose bounds are multiples of
    /// `grain`, and runs them.
    pub fn ranges(
        &self,
        items: usize,
        grain: usize,
        parts: usize,
        task: &(dyn Fn(usize, usize) + Sync),
    ) {
        if parts <= 1 {
            task(0, items);
            return;
        }
        let grains = items.div_ceil(grain.max(1));
        let bound = |p: usize| (grains * p / parts * grain.max(1)).min(items);
        self.run(parts, &|p| {
            let (lo, hi) = (bound(p), bound(p + 1));
            if lo < hi {
                task(lo, hi);
            }
        });
    }

    /// Starts workers until `parts` can run at once, as far as allowed.
    fn start(&self, workers: &mut Vec<JoinHandle<()>>, parts: usize) {
        while workers.len() + 1 < self.threads.min(parts) {
            let shared = self.shared.clone();
            let name = format!("tfc-{}", workers.len() + 1);
            match std::thread::Builder::new().name(name).spawn(move || worker(&shared)) {
                Ok(handle) => workers.push(handle),
                // The caller does the work of the threads that could not be had.
                Err(_) => break,
            }
        }
    }
}

impl Shared {
    /// Claims and runs one part of `region`; false when none is left.
    fn work(&self, region: u64) -> bool {
        let mut seen = self.claim.load(Ordering::Acquire);
        loop {
            let (parts, next) = ((seen >> 16 & 0xffff) as usize, (seen & 0xffff) as usize);
            if seen >> 32 != region || next >= parts {
                return false;
            }
            let claimed = pack(region, parts, next + 1);
            match self.claim.compare_exchange_weak(
                seen,
                claimed,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    // SAFETY: this part is claimed and not done, so `run` has
                    // not returned and does not write `job`.
                    let job = unsafe { (*self.job.get()).clone() };
                    if let Some(job) = job {
                        self.run_part(&job, next, parts);
                    }
                    return true;
                }
                Err(now) => seen = now,
            }
        }
    }

    fn run_part(&self, job: &Job, part: usize, parts: usize) {
        // SAFETY: `run` keeps the task alive until every part is done.
        let task = unsafe { &*job.task };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(part))) {
            *lock(&self.panic) = Some(panic);
        }
        if self.done.fetch_add(1, Ordering::AcqRel) + 1 == parts {
            job.caller.unpark();
        }
    }
}

fn worker(shared: &Shared) {
    INSIDE.set(true);
    let mut last = 0;
    loop {
        let mut spins = 0;
        let region = loop {
            if shared.stop.load(Ordering::Acquire) {
                return;
            }
            let claim = shared.claim.load(Ordering::Acquire);
            let open = (claim & 0xffff) < (claim >> 16 & 0xffff);
            if claim >> 32 != last && open {
                break claim >> 32;
            }
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                sleep(shared, claim);
            }
        };
        last = region;
        while shared.work(region) {}
    }
}

/// Parks until the claim word is no longer `seen`.
fn sleep(shared: &Shared, seen: u64) {
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let mut guard = lock(&shared.sleep);
    while shared.claim.load(Ordering::SeqCst) == seen && !shared.stop.load(Ordering::SeqCst) {
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
