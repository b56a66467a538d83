//! A group of threads in one process: what the tests of everything above the wire
//! run on.

use super::{Group, Moment, Transport, late, lost, stray};
use crate::error::Result;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is on its way, by sender and receiver.
struct Lines {
    size: usize,
    queues: Mutex<Vec<VecDeque<Vec<u8>>>>,
    gone: Mutex<Vec<bool>>,
    changed: Condvar,
}

struct Local {
    rank: usize,
    lines: Arc<Lines>,
}

/// One group of `size`, seen by each of its members.
pub fn groups(size: usize, timeout: Duration) -> Vec<Group> {
    let lines = Arc::new(Lines {
        size,
        queues: Mutex::new(vec![VecDeque::new(); size * size]),
        gone: Mutex::new(vec![false; size]),
        changed: Condvar::new(),
    });
    (0..size)
        .map(|rank| Group::new(Box::new(Local { rank, lines: lines.clone() }), timeout))
        .collect()
}

impl Transport for Local {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.lines.size
    }

    fn exchange(
        &self,
        out: Option<(usize, &[u8])>,
        into: Option<(usize, &mut [u8])>,
        moment: &Moment<'_>,
    ) -> Result<()> {
        let lines = &*self.lines;
        let mut queues = lines.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((to, data)) = out {
            queues[self.rank * lines.size + to].push_back(data.to_vec());
            lines.changed.notify_all();
        }
        let Some((from, into)) = into else { return Ok(()) };
        loop {
            if let Some(data) = queues[from * lines.size + self.rank].pop_front() {
                if data.len() != into.len() {
                    return Err(stray(from, moment, "a message of another length"));
                }
                into.copy_from_slice(&data);
                return Ok(());
            }
            if lines.gone.lock().unwrap_or_else(PoisonError::into_inner)[from] {
                return Err(lost(from, moment, "its thread ended"));
            }
            let left = moment.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late(from, moment));
            }
            let waited = lines.changed.wait_timeout(queues, left);
            queues = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn here(&self) -> usize {
        0
    }

    fn gone(&self) -> Option<usize> {
        let gone = self.lines.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.iter().position(|gone| *gone)
    }

    fn post(&self, to: usize, data: Vec<u8>, moment: &Moment<'_>) -> Result<()> {
        self.exchange(Some((to, &data)), None, moment)
    }

    fn flush(&self, _moment: &Moment<'_>) -> Result<()> {
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.lines.gone.lock().unwrap_or_else(PoisonError::into_inner)[self.rank] = true;
        let _held = self.lines.queues.lock();
        self.lines.changed.notify_all();
    }
}
