//! What a process sends, gets and waits for, peer by peer.

use super::collective::Reduce;
use super::job::OnLoss;
use super::{Moment, Regrouped, Stop, Transport};
use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tfc_abi::DType;

/// A transport, and what has gone through it.
pub(super) struct Counted {
    inner: Box<dyn Transport>,
    /// By number in the job: bytes sent, bytes received, and nanoseconds waited for them.
    peers: Vec<[AtomicU64; 3]>,
}

impl Counted {
    pub(super) fn new(inner: Box<dyn Transport>) -> Counted {
        let peers = (0..inner.most()).map(|_| Default::default()).collect();
        Counted { inner, peers }
    }

    pub(super) fn peers(&self) -> Vec<[u64; 3]> {
        let read = |p: &[AtomicU64; 3]| std::array::from_fn(|i| p[i].load(Ordering::Relaxed));
        self.peers.iter().map(read).collect()
    }

    fn add(&self, peer: usize, what: usize, amount: u64) {
        if let Some(p) = self.peers.get(self.inner.number(peer)) {
            p[what].fetch_add(amount, Ordering::Relaxed);
        }
    }
}

impl Transport for Counted {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn exchange(
        &self,
        out: Option<(usize, &[u8])>,
        into: Option<(usize, &mut [u8])>,
        moment: &Moment<'_>,
    ) -> Result<()> {
        let sent = out.map(|(to, data)| (to, data.len()));
        let taken = into.as_ref().map(|(from, data)| (*from, data.len()));
        let started = Instant::now();
        let done = self.inner.exchange(out, into, moment);
        if let Some((to, len)) = sent {
            self.add(to, 0, len as u64);
        }
        // Who sends and receives waits for what it receives.
        if let Some((from, len)) = taken {
            self.add(from, 1, len as u64);
            self.add(from, 2, started.elapsed().as_nanos() as u64);
        }
        done
    }

    fn post(&self, to: usize, data: Vec<u8>, moment: &Moment<'_>) -> Result<()> {
        self.add(to, 0, data.len() as u64);
        self.inner.post(to, data, moment)
    }

    fn flush(&self, moment: &Moment<'_>) -> Result<()> {
        self.inner.flush(moment)
    }

    fn here(&self) -> usize {
        self.inner.here()
    }

    fn sleeps(&self) -> bool {
        self.inner.sleeps()
    }

    fn outlives(&self) -> OnLoss {
        self.inner.outlives()
    }

    fn gone(&self) -> Option<usize> {
        self.inner.gone()
    }

    fn most(&self) -> usize {
        self.inner.most()
    }

    fn number(&self, rank: usize) -> usize {
        self.inner.number(rank)
    }

    fn regroup(
        &self,
        moment: &Moment<'_>,
        stop: Stop<'_>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Regrouped> {
        self.inner.regroup(moment, stop, say)
    }

    fn check(&self, moment: &Moment<'_>) -> Result<()> {
        self.inner.check(moment)
    }

    fn farewell(&self, moment: &Moment<'_>) -> Result<()> {
        self.inner.farewell(moment)
    }

    fn leave(&self) {
        self.inner.leave();
    }

    fn refused(&self) -> u64 {
        self.inner.refused()
    }

    fn reduces(&self, dtype: DType) -> bool {
        self.inner.reduces(dtype)
    }

    fn all_reduce(
        &self,
        data: &mut [u8],
        dtype: DType,
        op: Reduce,
        moment: &Moment<'_>,
    ) -> Result<()> {
        self.inner.all_reduce(data, dtype, op, moment)
    }
}
