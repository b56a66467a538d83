//! Queues under many threads: nothing lost, nothing twice, everybody comes home.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tfc_abi::DType;
use tfc_abi::plan::{Part, Plan, QueueInfo, QueueKind};
use tfc_runtime::queue::{Queue, Queues, Turn};
use tfc_runtime::{CallOptions, Error, Sandbox};

fn queues(kind: QueueKind) -> Queues {
    let part = Part { dtype: DType::I64, shape: vec![] };
    let info = QueueInfo { name: "q".into(), kind, parts: vec![part] };
    Queues::new(&Plan { queues: vec![info], ..Plan::default() }, &Sandbox::default()).unwrap()
}

fn put(q: &Queue, v: i64) -> Result<(), Error> {
    q.put(&[&v.to_ne_bytes()], &CallOptions::new())
}

fn take(q: &Queue, out: &mut [i64]) -> Result<(), Error> {
    let bytes = std::mem::size_of_val(out);
    // SAFETY: the slice has room for its own number of elements.
    unsafe { q.take(out.len(), &[(out.as_mut_ptr().cast(), bytes)], &CallOptions::new()) }
}

/// A million items through each kind of queue, from four producers to four
/// consumers that take one or several at a time; the last producer closes.
#[test]
fn a_million_items_arrive_once() {
    const EACH: i64 = 250_000;
    for kind in
        [QueueKind::Fifo { capacity: 100 }, QueueKind::Shuffle { capacity: 200, min: 50, seed: 5 }]
    {
        let queues = queues(kind);
        let q = &queues.list()[0];
        let seen: Vec<AtomicU64> = (0..4 * EACH as usize / 64 + 1).map(|_| 0.into()).collect();
        let (taken, left) = (AtomicUsize::new(0), AtomicUsize::new(4));
        std::thread::scope(|s| {
            for p in 0..4i64 {
                let left = &left;
                s.spawn(move || {
                    for i in 0..EACH {
                        put(q, p * EACH + i).unwrap();
                    }
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        q.close();
                    }
                });
            }
            for c in 0..4usize {
                let (seen, taken) = (&seen, &taken);
                s.spawn(move || {
                    let mut batch = vec![0i64; [1, 3, 16, 64][c]];
                    loop {
                        match take(q, &mut batch) {
                            Ok(()) => {}
                            // What is too little for a batch is taken one by one.
                            Err(e) if e.is_end_of_input() && batch.len() > 1 => {
                                batch.truncate(1);
                                continue;
                            }
                            Err(e) if e.is_end_of_input() => return,
                            Err(e) => panic!("{e}"),
                        }
                        for v in &batch {
                            let bit = 1u64 << (v % 64);
                            let old = seen[*v as usize / 64].fetch_or(bit, Ordering::Relaxed);
                            assert_eq!(old & bit, 0, "{v} came twice");
                        }
                        taken.fetch_add(batch.len(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 4 * EACH as usize, "some were lost");
    }
}

/// Closing at any moment: what `put` said was in came out, what it refused did
/// not.
#[test]
fn closing_at_random_loses_nothing() {
    let mut state = 1u64;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for round in 0..200 {
        let queues = queues(match round % 3 {
            0 => QueueKind::Fifo { capacity: 1 + random(8) },
            1 => QueueKind::Shuffle { capacity: 8, min: 1 + random(8), seed: round as i64 },
            _ => QueueKind::Priority { capacity: 1 + random(8) },
        });
        let q = &queues.list()[0];
        let close_after = random(300);
        let (sum_in, sum_out) = (AtomicU64::new(0), AtomicU64::new(0));
        let count = AtomicU64::new(0);
        std::thread::scope(|s| {
            for p in 0..3u64 {
                let (sum_in, count) = (&sum_in, &count);
                s.spawn(move || {
                    for i in 0..200 {
                        let v = 1 + p * 1000 + i;
                        match put(q, v as i64) {
                            Ok(()) => sum_in.fetch_add(v, Ordering::Relaxed),
                            Err(e) => {
                                assert_eq!(e.code(), "E0561");
                                return;
                            }
                        };
                        if count.fetch_add(1, Ordering::Relaxed) == close_after {
                            q.close();
                        }
                    }
                });
            }
            for _ in 0..3 {
                let (sum_out, count) = (&sum_out, &count);
                s.spawn(move || {
                    let mut v = [0i64];
                    loop {
                        match take(q, &mut v) {
                            Ok(()) => sum_out.fetch_add(v[0] as u64, Ordering::Relaxed),
                            Err(e) => {
                                assert!(e.is_end_of_input(), "{e}");
                                return;
                            }
                        };
                        // Nobody else may be left to close it.
                        if count.load(Ordering::Relaxed) >= 600.min(close_after) {
                            q.close();
                        }
                    }
                });
            }
        });
        assert_eq!(sum_in.into_inner(), sum_out.into_inner(), "round {round}");
    }
}

#[test]
fn stopping_ends_every_wait_with_its_reason() {
    let queues = queues(QueueKind::Fifo { capacity: 1 });
    let q = &queues.list()[0];
    std::thread::scope(|s| {
        let waits: Vec<_> = (0..3).map(|_| s.spawn(|| take(q, &mut [0]).unwrap_err())).collect();
        std::thread::sleep(Duration::from_millis(20));
        queues.stop(&Error::data("E0571", "enough"));
        for w in waits {
            assert_eq!(w.join().unwrap().message(), "enough");
        }
        assert_eq!(put(q, 1).unwrap_err().code(), "E0571");
    });
    queues.resume();
    put(q, 1).unwrap();
    let mut v = [0];
    take(q, &mut v).unwrap();
    assert_eq!(v, [1]);
}

#[test]
fn a_wait_nobody_could_end_is_an_error() {
    let queues = queues(QueueKind::Fifo { capacity: 2 });
    let q = &queues.list()[0];
    queues.use_alone();
    assert_eq!(take(q, &mut [0]).unwrap_err().code(), "E0562");
    put(q, 1).unwrap();
    put(q, 2).unwrap();
    assert_eq!(put(q, 3).unwrap_err().code(), "E0562");
    assert_eq!(take(q, &mut [0; 3]).unwrap_err().code(), "E0562");
    assert_eq!(q.len(), 2);
    assert_eq!(q.try_put(&[&3i64.to_ne_bytes()]).unwrap(), Turn::Wait);
}

/// A blocked thread sleeps: processor time of the whole process, not the clock.
#[test]
#[cfg(target_os = "linux")]
fn waiting_uses_no_processor() {
    let queues = queues(QueueKind::Fifo { capacity: 1 });
    let q = &queues.list()[0];
    std::thread::scope(|s| {
        let wait = s.spawn(|| {
            let ticks = |stat: String| -> u64 {
                let rest = stat.rsplit(')').next().unwrap_or("").to_string();
                let fields: Vec<&str> = rest.split_whitespace().collect();
                fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
            };
            let read = || ticks(std::fs::read_to_string("/proc/thread-self/stat").unwrap());
            let before = read();
            take(q, &mut [0]).unwrap();
            read() - before
        });
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(50));
        }
        put(q, 1).unwrap();
        // A spinning thread would have used about thirty ticks.
        assert!(wait.join().unwrap() <= 3);
    });
}
