//! Sorting along an axis.
//!
//! The order is total: equal elements keep the order they have, and NaN comes last
//! whichever way is asked for. So the result does not depend on how it is found, and
//! nothing is allocated to find it.

use crate::half::{bf16, f16};
use std::cmp::Ordering;
use tfc_abi::DType;

/// For each row along the middle one of three axes, where the elements of `x` go in
/// order: `dst[o, 0, i]` is the place of the first.
///
/// # Safety
/// `dst` has `outer * len * inner` elements, and `x` as many of `dtype`.
pub unsafe fn argsort(
    dst: *mut i32,
    x: *const u8,
    dtype: DType,
    [outer, len, inner]: [usize; 3],
    descending: bool,
) {
    let rows = Rows { dst, outer, len, inner, descending, floats: dtype.is_float() };
    // SAFETY: the caller's promise: every `i` is an element of the rows.
    unsafe {
        match dtype {
            DType::F32 => rows.sort(|i| float_key::<f32>(x, i)),
            // One copy of the sort for the other types: it is a lot of code.
            _ => {
                let key = key(dtype);
                rows.sort(|i| key(x, i));
            }
        }
    }
}

/// Element `i` of `x`, as an integer in the order of the elements.
type Key = unsafe fn(x: *const u8, i: usize) -> i64;

fn key(dtype: DType) -> Key {
    match dtype {
        DType::F32 => float_key::<f32>,
        DType::F64 => float_key::<f64>,
        DType::F16 => float_key::<f16>,
        DType::BF16 => float_key::<bf16>,
        DType::I8 => whole_key::<i8>,
        DType::U8 | DType::Bool => whole_key::<u8>,
        DType::I32 => whole_key::<i32>,
        DType::I64 => whole_key::<i64>,
    }
}

/// # Safety
/// `x` has more than `i` elements of this type.
unsafe fn whole_key<T: Copy + Into<i64>>(x: *const u8, i: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { *x.cast::<T>().add(i) }.into()
}

/// The key of a NaN: no number has it.
const NAN: i64 = i64::MAX;

/// Zeros have one key.
///
/// # Safety
/// `x` has more than `i` elements of this type.
unsafe fn float_key<T: Copy + Into<f64>>(x: *const u8, i: usize) -> i64 {
    // SAFETY: the caller's promise.
    let v: f64 = unsafe { *x.cast::<T>().add(i) }.into();
    if v.is_nan() {
        return NAN;
    }
    // The sum turns -0 into 0; what is negative is in the opposite order of its bits.
    let bits = (v + 0.0).to_bits() as i64;
    bits ^ ((bits >> 63) & i64::MAX)
}

struct Rows {
    dst: *mut i32,
    outer: usize,
    len: usize,
    inner: usize,
    descending: bool,
    floats: bool,
}

impl Rows {
    /// # Safety
    /// As [`argsort`]; `key` may be asked for every element.
    unsafe fn sort(self, key: impl Fn(usize) -> i64) {
        for row in 0..self.outer * self.inner {
            let start = row / self.inner * self.len * self.inner + row % self.inner;
            let rank = |i: i32| {
                let key = key(start + i as usize * self.inner);
                // NaN is last in both directions.
                if self.descending && !(self.floats && key == NAN) { !key } else { key }
            };
            let order = |a: &i32, b: &i32| rank(*a).cmp(&rank(*b)).then(a.cmp(b));
            if self.inner == 1 {
                // SAFETY: the row is `len` elements of `dst`, and nobody else's.
                let places =
                    unsafe { std::slice::from_raw_parts_mut(self.dst.add(start), self.len) };
                for (i, place) in places.iter_mut().enumerate() {
                    *place = i as i32;
                }
                // The order is total, so there are no equal ones to keep in order.
                places.sort_unstable_by(order);
            } else {
                // SAFETY: as above, `inner` elements apart.
                let at = |i: usize| unsafe { self.dst.add(start + i * self.inner) };
                // SAFETY: `at` is given places in the row.
                unsafe { heap_sort(self.len, at, order) };
            }
        }
    }
}

/// Sorts the numbers below `len` in place.
///
/// # Safety
/// `at(i)` may be read and written for `i < len`.
unsafe fn heap_sort(
    len: usize,
    at: impl Fn(usize) -> *mut i32,
    order: impl Fn(&i32, &i32) -> Ordering,
) {
    let sift = |mut top: usize, end: usize| {
        loop {
            let mut child = 2 * top + 1;
            if child >= end {
                return;
            }
            // SAFETY: `top` and `child` are below `end`, which is at most `len`.
            unsafe {
                if child + 1 < end && order(&*at(child), &*at(child + 1)) == Ordering::Less {
                    child += 1;
                }
                if order(&*at(top), &*at(child)) != Ordering::Less {
                    return;
                }
                std::ptr::swap(at(top), at(child));
            }
            top = child;
        }
    };
    for i in 0..len {
        // SAFETY: `i < len`.
        unsafe { *at(i) = i as i32 };
    }
    for top in (0..len / 2).rev() {
        sift(top, len);
    }
    for end in (1..len).rev() {
        // SAFETY: both are below `len`.
        unsafe { std::ptr::swap(at(0), at(end)) };
        sift(0, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(x: &[f32], sizes: [usize; 3], descending: bool) -> Vec<i32> {
        let mut out = vec![-1; x.len()];
        // SAFETY: as many elements as the sizes say.
        unsafe { argsort(out.as_mut_ptr(), x.as_ptr().cast(), DType::F32, sizes, descending) };
        out
    }

    #[test]
    fn equal_elements_keep_their_order_and_nan_is_last() {
        let x = [2.0, f32::NAN, -0.0, 0.0, 2.0, f32::NEG_INFINITY, f32::NAN, 1.0];
        assert_eq!(order(&x, [1, 8, 1], false), [5, 2, 3, 7, 0, 4, 1, 6]);
        assert_eq!(order(&x, [1, 8, 1], true), [0, 4, 7, 2, 3, 5, 1, 6]);
    }

    #[test]
    fn the_ends_of_a_type_are_values_like_any_other() {
        let x = [0, i64::MAX, i64::MIN, -1, i64::MAX];
        for (descending, want) in [(false, [2, 3, 0, 1, 4]), (true, [1, 4, 0, 3, 2])] {
            let mut out = [-1; 5];
            // SAFETY: five elements of each.
            unsafe {
                argsort(out.as_mut_ptr(), x.as_ptr().cast(), DType::I64, [1, 5, 1], descending);
            }
            assert_eq!(out, want);
        }
    }

    #[test]
    fn columns_sort_as_rows_do() {
        // A few of each value, in no order.
        let value = |i: usize| ((i * 7919) % 13) as f32;
        for len in [0, 1, 2, 3, 7, 64, 101] {
            let rows: Vec<f32> = (0..3 * len).map(value).collect();
            let by_row = order(&rows, [3, len, 1], true);
            let columns: Vec<f32> = (0..3 * len).map(|i| rows[i % 3 * len + i / 3]).collect();
            let by_column = order(&columns, [1, len, 3], true);
            for i in 0..3 * len {
                assert_eq!(by_column[i], by_row[i % 3 * len + i / 3]);
            }
        }
    }
}
