//! Combining tensors over all processes, out of exchanges between two.
//!
//! A large tensor goes round a ring twice: on the first round each piece is summed
//! up, on the second its sum is handed on. Each process sends about twice the tensor,
//! however many there are. A small one is sent whole to everybody, who then adds up
//! in the order of the ranks. Either way a sum is formed in one order, which depends
//! on the number of processes and the length alone, and all end up with its bits.

use super::{Moment, Transport};
use crate::error::Result;
use crate::half::{bf16, f16};
use tfc_abi::DType;

/// How values of the processes are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduce {
    Sum,
    /// Weighted by the share of the examples each process has.
    Mean,
    Max,
    Min,
}

/// Up to this many bytes over all processes, everybody gets everything at once.
const SMALL: usize = 64 << 10;
/// Bytes exchanged before they are added: they are in the cache then.
const PIECE: usize = 512 << 10;

pub(super) fn all_reduce(
    t: &dyn Transport,
    data: &mut [u8],
    dtype: DType,
    op: Reduce,
    moment: &Moment<'_>,
) -> Result<()> {
    match data.len() * t.size() <= SMALL {
        true => by_gathering(t, data, dtype, op, moment),
        false => by_ring(t, data, dtype, op, moment),
    }
}

fn neighbours(t: &dyn Transport) -> (usize, usize) {
    let (r, n) = (t.rank(), t.size());
    ((r + 1) % n, (r + n - 1) % n)
}

fn by_gathering(
    t: &dyn Transport,
    data: &mut [u8],
    dtype: DType,
    op: Reduce,
    moment: &Moment<'_>,
) -> Result<()> {
    let (r, n, len) = (t.rank(), t.size(), data.len());
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
        combine(data, &all[other * len..][..len], dtype, op);
    }
    Ok(())
}

fn by_ring(
    t: &dyn Transport,
    data: &mut [u8],
    dtype: DType,
    op: Reduce,
    moment: &Moment<'_>,
) -> Result<()> {
    let (r, n, size) = (t.rank(), t.size(), dtype.size());
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
            // What is sent in this round is not added to in this round.
            t.exchange(
                Some((next, &data[o.clone()])).filter(|_| !o.is_empty()),
                if i.is_empty() { None } else { Some((before, &mut got[..])) },
                moment,
            )?;
            combine(&mut data[i], got, dtype, op);
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

/// `into[i] = op(into[i], from[i])`
pub(super) fn combine(into: &mut [u8], from: &[u8], dtype: DType, op: Reduce) {
    macro_rules! each {
        ($t:ty, $get:expr, $put:expr) => {
            for (a, b) in
                into.chunks_exact_mut(size_of::<$t>()).zip(from.chunks_exact(size_of::<$t>()))
            {
                let (x, y) = ($get(&*a), $get(b));
                a.copy_from_slice(&$put(pick(x, y, op)));
            }
        };
    }
    macro_rules! plain {
        ($t:ty) => {
            each!($t, |b: &[u8]| <$t>::from_ne_bytes(bytes(b)), |v: $t| v.to_ne_bytes())
        };
    }
    match dtype {
        DType::F32 => plain!(f32),
        DType::F64 => plain!(f64),
        DType::I32 => plain!(i32),
        DType::I64 => plain!(i64),
        DType::I8 => plain!(i8),
        DType::U8 | DType::Bool => plain!(u8),
        DType::F16 => {
            each!(u16, |b: &[u8]| f16::from_ne_bytes(bytes(b)).to_f32(), |v: f32| f16::from_f32(v)
                .to_ne_bytes())
        }
        DType::BF16 => {
            each!(u16, |b: &[u8]| bf16::from_ne_bytes(bytes(b)).to_f32(), |v: f32| bf16::from_f32(
                v
            )
            .to_ne_bytes())
        }
    }
}

/// `data[i] *= by`, for floats. A share of zero is no value at all: what a process
/// without examples computed, perhaps NaN, does not count.
pub(super) fn scale(data: &mut [u8], dtype: DType, by: f64) {
    if by == 0.0 {
        data.fill(0);
        return;
    }
    let four = |data: &mut [u8]| {
        for a in data.chunks_exact_mut(4) {
            let x = f32::from_ne_bytes(bytes(a)) * by as f32;
            a.copy_from_slice(&x.to_ne_bytes());
        }
    };
    match dtype {
        DType::F32 => four(data),
        DType::F64 => {
            for a in data.chunks_exact_mut(8) {
                let x = f64::from_ne_bytes(bytes(a)) * by;
                a.copy_from_slice(&x.to_ne_bytes());
            }
        }
        DType::F16 => {
            for a in data.chunks_exact_mut(2) {
                let x = f16::from_ne_bytes(bytes(a)).to_f32() * by as f32;
                a.copy_from_slice(&f16::from_f32(x).to_ne_bytes());
            }
        }
        DType::BF16 => {
            for a in data.chunks_exact_mut(2) {
                let x = bf16::from_ne_bytes(bytes(a)).to_f32() * by as f32;
                a.copy_from_slice(&bf16::from_f32(x).to_ne_bytes());
            }
        }
        DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool => {}
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

fn bytes<const N: usize>(b: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(b);
    out
}

trait Number: Copy {
    fn add(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
}

macro_rules! float {
    ($t:ty) => {
        impl Number for $t {
            fn add(self, other: $t) -> $t {
                self + other
            }
            // NaN if either is, as everywhere in the language.
            fn larger(self, other: $t) -> $t {
                if self.is_nan() || self > other { self } else { other }
            }
            fn smaller(self, other: $t) -> $t {
                if self.is_nan() || self < other { self } else { other }
            }
        }
    };
}

macro_rules! integer {
    ($t:ty) => {
        impl Number for $t {
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            fn larger(self, other: $t) -> $t {
                self.max(other)
            }
            fn smaller(self, other: $t) -> $t {
                self.min(other)
            }
        }
    };
}

float!(f32);
float!(f64);
integer!(i8);
integer!(u8);
integer!(i32);
integer!(i64);

#[inline]
fn pick<T: Number>(x: T, y: T, op: Reduce) -> T {
    match op {
        Reduce::Sum | Reduce::Mean => x.add(y),
        Reduce::Max => x.larger(y),
        Reduce::Min => x.smaller(y),
    }
}
