//! Work on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `f` of every item, in the order of the items. Which core did which cannot be told
/// from the result.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = cores.min(items.len());
    if threads <= 1 {
        return items.iter().enumerate().map(|(i, item)| f(i, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![]);
    let work = || {
        let mut own = vec![];
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { break };
            own.push((i, f(i, item)));
        }
        match done.lock() {
            Ok(mut all) => all.extend(own),
            Err(poisoned) => poisoned.into_inner().extend(own),
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut all = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, r)| r).collect()
}
