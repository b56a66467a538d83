//! Messages from one process to another.
//!
//! A message has the length that its receiver expects. It is numbered among those from
//! its sender to its receiver, so that one that was lost, repeated or changed places
//! with another is an error. Who sends does not wait, so that no two processes wait for
//! each other's messages.

use super::{Group, Moment, Transport};
use crate::error::Result;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Tells the numbers of messages from those of exchanges, which all processes count.
const POST: u64 = 1 << 63;
/// Longer than any process runs.
const FOREVER: Duration = Duration::from_secs(3600 * 24 * 3650);

impl Group {
    /// Sends a message; an empty one too, which a peer may wait for.
    pub fn send(&self, to: usize, data: &[u8], what: &str, place: &str) -> Result<()> {
        let moment = self.numbered(to, 0, what, place, self.timeout);
        let data = if data.is_empty() { vec![0] } else { data.to_vec() };
        self.counters[1].fetch_add(data.len() as u64, Ordering::Relaxed);
        self.transport.post(to, data, &moment)
    }

    /// Waits for the next message of a peer.
    pub fn recv(&self, from: usize, into: &mut [u8], what: &str, place: &str) -> Result<()> {
        self.take(from, into, what, place, self.timeout)
    }

    /// As [`Group::recv`], for as long as the peer is there.
    pub fn wait_for(&self, from: usize, into: &mut [u8], what: &str) -> Result<()> {
        self.take(from, into, what, "", FOREVER)
    }

    fn take(
        &self,
        from: usize,
        into: &mut [u8],
        what: &str,
        place: &str,
        within: Duration,
    ) -> Result<()> {
        let started = Instant::now();
        let moment = self.numbered(from, 1, what, place, within);
        let mut nothing = [0];
        let into = if into.is_empty() { &mut nothing } else { into };
        let taken = self.transport.exchange(None, Some((from, into)), &moment);
        self.counters[0].fetch_add(1, Ordering::Relaxed);
        self.counters[2].fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        taken
    }

    /// Waits until all that was sent is out.
    pub fn flush(&self, what: &str) -> Result<()> {
        let deadline = Instant::now() + self.timeout;
        self.transport.flush(&Moment { sequence: POST, deadline, what, place: "" })
    }

    fn numbered<'a>(
        &self,
        peer: usize,
        way: usize,
        what: &'a str,
        place: &'a str,
        within: Duration,
    ) -> Moment<'a> {
        let count = self.posted.get(peer).map_or(0, |c| c[way].fetch_add(1, Ordering::Relaxed));
        Moment { sequence: POST | count, deadline: Instant::now() + within, what, place }
    }
}
