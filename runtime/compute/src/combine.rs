//! Combining tensors element by element, as bytes: what sums over processes spend their
//! time in, besides the system.

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

/// `into[i] = op(into[i], from[i])`
pub fn combine(into: &mut [u8], from: &[u8], dtype: DType, op: Reduce) {
    match dtype {
        DType::F32 => plain(into, from, op, f32::from_ne_bytes, f32::to_ne_bytes),
        DType::F64 => plain(into, from, op, f64::from_ne_bytes, f64::to_ne_bytes),
        DType::I32 => plain(into, from, op, i32::from_ne_bytes, i32::to_ne_bytes),
        DType::I64 => plain(into, from, op, i64::from_ne_bytes, i64::to_ne_bytes),
        DType::I8 => plain(into, from, op, i8::from_ne_bytes, i8::to_ne_bytes),
        DType::U8 | DType::Bool => plain(into, from, op, u8::from_ne_bytes, u8::to_ne_bytes),
        DType::F16 => plain(into, from, op, f16_from, f16_to),
        DType::BF16 => plain(into, from, op, bf16_from, bf16_to),
    }
}

/// `data[i] *= by`, for floats. A share of zero is no value at all: what a process
/// without examples computed, perhaps NaN, does not count.
pub fn scale(data: &mut [u8], dtype: DType, by: f64) {
    if by == 0.0 {
        data.fill(0);
        return;
    }
    let single = by as f32;
    match dtype {
        DType::F32 => change(data, |b| (f32::from_ne_bytes(b) * single).to_ne_bytes()),
        DType::F64 => change(data, |b| (f64::from_ne_bytes(b) * by).to_ne_bytes()),
        DType::F16 => change(data, |b| f16_to(f16_from(b) * single)),
        DType::BF16 => change(data, |b| bf16_to(bf16_from(b) * single)),
        DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool => {}
    }
}

fn f16_from(b: [u8; 2]) -> f32 {
    f16::from_ne_bytes(b).to_f32()
}

fn f16_to(v: f32) -> [u8; 2] {
    f16::from_f32(v).to_ne_bytes()
}

fn bf16_from(b: [u8; 2]) -> f32 {
    bf16::from_ne_bytes(b).to_f32()
}

fn bf16_to(v: f32) -> [u8; 2] {
    bf16::from_f32(v).to_ne_bytes()
}

/// One loop for each way of combining.
#[inline]
fn plain<const N: usize, T: Number>(
    into: &mut [u8],
    from: &[u8],
    op: Reduce,
    get: impl Fn([u8; N]) -> T,
    put: impl Fn(T) -> [u8; N],
) {
    match op {
        Reduce::Sum | Reduce::Mean => both(into, from, |a, b| put(get(a).add(get(b)))),
        Reduce::Max => both(into, from, |a, b| put(get(a).larger(get(b)))),
        Reduce::Min => both(into, from, |a, b| put(get(a).smaller(get(b)))),
    }
}

#[inline]
fn both<const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let (into, from) = (into.as_chunks_mut().0, from.as_chunks().0);
    for (a, b) in into.iter_mut().zip(from) {
        *a = f(*a, *b);
    }
}

#[inline]
fn change<const N: usize>(data: &mut [u8], f: impl Fn([u8; N]) -> [u8; N]) {
    for a in data.as_chunks_mut().0 {
        *a = f(*a);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    #[test]
    fn every_way_of_combining() {
        let (a, b) = ([1.0, -2.0, f32::NAN, 4.0, 0.5], [3.0, -5.0, 1.0, f32::NAN, 0.25]);
        let of = |op| {
            let mut into = bytes(&a);
            combine(&mut into, &bytes(&b), DType::F32, op);
            let (chunks, _) = into.as_chunks();
            chunks.iter().map(|c| f32::from_ne_bytes(*c)).collect::<Vec<f32>>()
        };
        assert_eq!(of(Reduce::Sum)[..2], [4.0, -7.0]);
        assert_eq!(of(Reduce::Max)[..2], [3.0, -2.0]);
        assert_eq!(of(Reduce::Min)[..2], [1.0, -5.0]);
        for op in [Reduce::Sum, Reduce::Max, Reduce::Min] {
            assert!(of(op)[2].is_nan() && of(op)[3].is_nan(), "{op:?}");
            assert!(!of(op)[4].is_nan());
        }
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        let mut data = bytes(&[1.0, f32::NAN]);
        scale(&mut data, DType::F32, 0.0);
        assert_eq!(data, [0; 8]);
        let mut data = bytes(&[1.0, -3.0]);
        scale(&mut data, DType::F32, 0.5);
        assert_eq!(data, bytes(&[0.5, -1.5]));
        let mut whole = 7i32.to_ne_bytes();
        scale(&mut whole, DType::I32, 0.5);
        assert_eq!(whole, 7i32.to_ne_bytes());
    }
}
