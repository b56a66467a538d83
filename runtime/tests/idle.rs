//! An idle program uses no CPU. Alone in its file: the whole process is measured.
#![cfg(target_os = "linux")]

use std::time::Duration;
use tfc_runtime::Pool;

/// CPU time of this process, in clock ticks (a hundredth of a second each).
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn parked_workers_use_no_cpu() {
    let pool = Pool::new(4);
    let sum = std::sync::atomic::AtomicUsize::new(0);
    pool.run(64, &|p| {
        sum.fetch_add(p, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 2016);
    std::thread::sleep(Duration::from_millis(100));
    let before = ticks();
    std::thread::sleep(Duration::from_millis(400));
    // Three spinning workers would take over a hundred ticks.
    assert!(ticks() - before <= 2, "{} ticks while idle", ticks() - before);
}
