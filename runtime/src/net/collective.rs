//! Combining tensors over all processes, out of exchanges between two.
//!
//! A large tensor goes round a ring twice: on the first round each piece is summed
//! up, on the second its sum is handed on. Each process sends about twice the tensor,
//! however many there are. A small one is sent whole to everybody, who then adds up
//! in the order of the ranks. Either way a sum is formed in one order, which depends
//! on the number of processes and the length alone, and all end up with its bits.

use super::{Moment, Transport};
use crate::error::Result;
use tfc_abi::DType;
pub use tfc_compute::combine::Reduce;
pub(super) use tfc_compute::combine::{combine, scale};

/// Up to this many bytes over all processes, everybody gets everything at once.
const SMALL: usize = 64 << 10;
/// Bytes exchanged before they are added: they are in the cache then.
const PIECE: usize = 512 << 10;

/// What is done with the elements of a tensor.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub dtype: DType,
    pub op: Reduce,
    /// What this process's own values are multiplied with first.
    pub share: Option<f64>,
}

impl Work {
    fn weigh(&self, data: &mut [u8]) {
        if let Some(share) = self.share {
            scale(data, self.dtype, share);
        }
    }
}

pub(super) fn all_reduce(
    t: &dyn Transport,
    data: &mut [u8],
    work: Work,
    moment: &Moment<'_>,
) -> Result<()> {
    match data.len() * t.size() <= SMALL {
        true => by_gathering(t, data, work, moment),
        false => by_ring(t, data, work, moment),
    }
}

fn neighbours(t: &dyn Transport) -> (usize, usize) {
    let (r, n) = (t.rank(), t.size());
    ((r + 1) % n, (r + n - 1) % n)
}

fn by_gathering(t: &dyn Transport, data: &mut [u8], work: Work, moment: &Moment<'_>) -> Result<()> {
    let (r, n, len) = (t.rank(), t.size(), data.len());
    work.weigh(data);
    let (next, before) = neighbours(t);
    let mut all = vec![0u8; n * len];
    all[r * len..][..len].copy_from_slice(data);
    for round in 0..n - 1 {
        let (out, into) = ((r + n - round) % n, (r + 2 * n - round - 1) % n);
        let (out, into) = two(&mut all, out * len..(out + 1) * len, into * len..(into + 1) * len);
        t.exchange(Some((next, out)), Some((before, into)), moment)?;
    }
    data.copy_from_slice(&all[..len]);
    for other in 1..n {
        combine(data, &all[other * len..][..len], work.dtype, work.op);
    }
    Ok(())
}

fn by_ring(t: &dyn Transport, data: &mut [u8], work: Work, moment: &Moment<'_>) -> Result<()> {
    let (r, n, size) = (t.rank(), t.size(), work.dtype.size());
    let (next, before) = neighbours(t);
    let elements = data.len() / size;
    let piece = |i: usize| {
        let i = i % n;
        elements * i / n * size..elements * (i + 1) / n * size
    };
    let mut taken = vec![0u8; PIECE];
    for round in 0..n - 1 {
        let (out, into) = (piece(r + n - round), piece(r + 2 * n - round - 1));
        let mut done = 0;
        while done < out.len().max(into.len()) {
            let (o, i) = (part(&out, done), part(&into, done));
            let got = &mut taken[..i.len()];
            // A process's own values are weighed when they are used, while they are in the
            // cache: those it sends on the first round, and those it adds to.
            if round == 0 {
                work.weigh(&mut data[o.clone()]);
            }
            // What is sent in this round is not added to in this round.
            t.exchange(
                Some((next, &data[o.clone()])).filter(|_| !o.is_empty()),
                if i.is_empty() { None } else { Some((before, &mut got[..])) },
                moment,
            )?;
            work.weigh(&mut data[i.clone()]);
            combine(&mut data[i], got, work.dtype, work.op);
            done += PIECE;
        }
    }
    for round in 0..n - 1 {
        let (out, into) = (piece(r + n + 1 - round), piece(r + n - round));
        let mut done = 0;
        while done < out.len().max(into.len()) {
            let (o, i) = (part(&out, done), part(&into, done));
            let (o, i) = two(data, o, i);
            t.exchange(
                Some((next, o)).filter(|(_, o)| !o.is_empty()),
                Some((before, i)).filter(|(_, i)| !i.is_empty()),
                moment,
            )?;
            done += PIECE;
        }
    }
    Ok(())
}

/// The chief's bytes to everybody, handed on along the ring.
pub(super) fn broadcast(t: &dyn Transport, data: &mut [u8], moment: &Moment<'_>) -> Result<()> {
    let (r, n) = (t.rank(), t.size());
    let (next, before) = neighbours(t);
    for piece in data.chunks_mut(PIECE) {
        if r > 0 {
            t.exchange(None, Some((before, &mut *piece)), moment)?;
        }
        if r + 1 < n {
            t.exchange(Some((next, piece)), None, moment)?;
        }
    }
    Ok(())
}

/// `PIECE` bytes of `whole` from `done` on, as far as there are.
fn part(whole: &std::ops::Range<usize>, done: usize) -> std::ops::Range<usize> {
    let lo = (whole.start + done).min(whole.end);
    lo..(lo + PIECE).min(whole.end)
}

/// Two ranges that do not overlap, the first to be read and the second written.
fn two(
    data: &mut [u8],
    a: std::ops::Range<usize>,
    b: std::ops::Range<usize>,
) -> (&[u8], &mut [u8]) {
    if a.start < b.start {
        let (low, high) = data.split_at_mut(b.start);
        (&low[a], &mut high[..b.end - b.start])
    } else {
        let (low, high) = data.split_at_mut(a.start);
        (&high[..a.end - a.start], &mut low[b])
    }
}

/// `into[i] += from[i]`
pub(crate) fn add(into: &mut [u8], from: &[u8], dtype: DType) {
    combine(into, from, dtype, Reduce::Sum);
}

/// `data[i] = -data[i]`, for floats.
pub(crate) fn negate(data: &mut [u8], dtype: DType) {
    scale(data, dtype, -1.0);
}
