//! Finding indices that are out of range.
//!
//! A check reads the indices once, before anything is looked up by them: a fold
//! without branches over each part, so that it costs little beside what it guards.
//! Only if some index is bad is the first one looked for. What is found does not
//! depend on the number of threads.

use crate::error::Error;
use crate::pool::Pool;
use std::sync::atomic::{AtomicBool, Ordering};
use tfc_abi::DType;
use tfc_abi::plan::CheckIndex;

/// Nanoseconds for a thousand indices, roughly: what the pool splits work by.
const NS_PER_1000: i64 = 300;

/// The place and the value of the first index `i` without `0 <= i` and
/// `i + width <= size`. `bytes` are the elements of a buffer of integers.
pub fn first_bad(
    pool: &Pool,
    dtype: DType,
    bytes: &[u8],
    size: i64,
    width: i64,
) -> Option<(usize, i64)> {
    // With no place for a box every index is bad, which the cast below says too.
    let places = (size - width).saturating_add(1).max(0) as u64;
    let count = bytes.len() / dtype.size();
    let parts = pool.parts_for(count, (count as i64).saturating_mul(NS_PER_1000) / 1000);
    let bad = AtomicBool::new(false);
    pool.ranges(count, 16, parts, &|lo, hi| {
        let part = &bytes[lo * dtype.size()..hi * dtype.size()];
        if any_bad(dtype, part, places) {
            bad.store(true, Ordering::Relaxed);
        }
    });
    if !bad.into_inner() {
        return None;
    }
    bytes
        .chunks_exact(dtype.size())
        .map(|element| value(dtype, element))
        .enumerate()
        .find(|(_, id)| *id as u64 >= places)
}

fn any_bad(dtype: DType, bytes: &[u8], places: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has it.
        return unsafe { any_bad_avx2(dtype, bytes, places) };
    }
    any_bad_plain(dtype, bytes, places)
}

/// The same on wider vectors.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn any_bad_avx2(dtype: DType, bytes: &[u8], places: u64) -> bool {
    any_bad_plain(dtype, bytes, places)
}

#[inline(always)]
fn any_bad_plain(dtype: DType, bytes: &[u8], places: u64) -> bool {
    /// Whether some fold of a piece says so. In pieces: the fold has no branches, yet a
    /// bad index ends it early.
    #[inline(always)]
    fn any<const N: usize, T: Copy + Default>(
        bytes: &[u8],
        fold: impl Fn(T, [u8; N]) -> T,
        bad: impl Fn(T) -> bool,
    ) -> bool {
        let (elements, _) = bytes.as_chunks::<N>();
        let zero = T::default();
        elements.chunks(4096).any(|piece| bad(piece.iter().fold(zero, |sum, e| fold(sum, *e))))
    }
    // Without a sign, negative indices are the largest of all: it is enough to find the
    // largest, which is one instruction for a vector.
    match dtype {
        DType::I32 => {
            let places = places.min(1 << 31);
            any(bytes, |most: u32, e| most.max(u32::from_ne_bytes(e)), |m| u64::from(m) >= places)
        }
        DType::I64 => {
            // No vector has this maximum. Of a bad index, it or what is left to the last
            // good one has the sign: the signs are gathered without a comparison.
            let last = places.min(1 << 63).wrapping_sub(1) as i64;
            let signs = |sum: i64, e| {
                let id = i64::from_ne_bytes(e);
                sum | id | last.wrapping_sub(id)
            };
            any(bytes, signs, |sum| sum < 0)
        }
        _ => {
            let places = places.min(if dtype == DType::U8 { 1 << 8 } else { 1 << 7 });
            any(bytes, |most: u8, [e]: [u8; 1]| most.max(e), |m| u64::from(m) >= places)
        }
    }
}

fn value(dtype: DType, element: &[u8]) -> i64 {
    match (dtype, element) {
        (DType::I64, e) => e.try_into().map_or(0, i64::from_ne_bytes),
        (DType::I32, e) => e.try_into().map_or(0, |e| i64::from(i32::from_ne_bytes(e))),
        (DType::U8, [e]) => i64::from(*e),
        (_, [e, ..]) => i64::from(*e as i8),
        _ => 0,
    }
}

/// What the user is told. `at` is where among the indices, `feed` the parameter they
/// are, if they are one.
pub fn out_of_range(
    check: &CheckIndex,
    id: i64,
    [size, width]: [i64; 2],
    at: &[usize],
    feed: Option<&str>,
) -> Error {
    let axis = check.axis;
    let message = match (check.user.as_str(), width) {
        ("one_hot", _) => format!("index {id} is out of range: there are {size} classes"),
        (_, 1) => format!("index {id} is out of range: axis {axis} has size {size}"),
        _ => format!("a box of {width} cannot begin at {id}: axis {axis} has size {size}"),
    };
    let mut e = Error::data("E0510", message);
    let places: Vec<String> = at.iter().map(usize::to_string).collect();
    let places = if at.is_empty() { String::new() } else { format!("[{}]", places.join(", ")) };
    e = match (feed, check.name.as_str()) {
        (Some(feed), _) => e.note(format!("it is `{feed}{places}`, a feed")),
        (None, "") if at.is_empty() => e,
        (None, "") => e.note(format!("it is number {places} of the indices")),
        (None, name) => e.note(format!("it is `{name}{places}`")),
    };
    let user = if check.user.is_empty() { "check_index" } else { &check.user };
    e = match check.place.as_str() {
        "" => e.note(format!("`{user}` asks for it")),
        place => e.note(format!("`{user}` asks for it, at {place}")),
    };
    match size - width {
        last if last < 0 => e,
        _ if id < 0 => e.help("indices count from 0; only constant ones may count from the end"),
        last => e.help(format!("valid here: 0 to {last}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize, T>(ids: &[T], of: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
        ids.iter().flat_map(of).collect()
    }

    #[test]
    fn the_first_bad_index_is_found_whatever_the_threads() {
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for bad in [5, -1, i64::MAX, i64::MIN] {
                let mut ids = vec![4i64; 1_000_000];
                let all = bytes(&ids, |i| i.to_ne_bytes());
                assert_eq!(first_bad(&pool, DType::I64, &all, 5, 1), None);
                (ids[700_001], ids[999_999]) = (bad, 77);
                let all = bytes(&ids, |i| i.to_ne_bytes());
                assert_eq!(first_bad(&pool, DType::I64, &all, 5, 1), Some((700_001, bad)));
            }
        }
    }

    #[test]
    fn every_integer_type_and_width_counts_the_same() {
        let pool = Pool::new(1);
        let values = [-128i64, -2, -1, 0, 1, 3, 4, 5, 127];
        for (size, width) in [(5, 1), (5, 2), (5, 5), (5, 0), (0, 1), (2, 3), (i64::MAX, 1)] {
            for v in values {
                let want = (v < 0 || v > size - width).then_some((0, v));
                let all = [
                    (DType::I64, v.to_ne_bytes().to_vec()),
                    (DType::I32, (v as i32).to_ne_bytes().to_vec()),
                    (DType::I8, (v as i8).to_ne_bytes().to_vec()),
                ];
                for (dtype, e) in all {
                    let got = first_bad(&pool, dtype, &e, size, width);
                    assert_eq!(got, want, "{v} of {size}, width {width}, {dtype:?}");
                }
                let u = i64::from(v as u8);
                let want = (u > size - width).then_some((0, u));
                assert_eq!(first_bad(&pool, DType::U8, &[v as u8], size, width), want);
            }
        }
        assert_eq!(first_bad(&pool, DType::I32, &[], 0, 1), None);
    }
}
