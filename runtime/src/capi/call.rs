//! Calling entries; tensors of the caller's.

use super::{Handle, guard, items, limit, model, null, number, text};
use crate::error::{Error, Result};
use crate::mem::OutOfMemory;
use crate::tensor::{FeedView, ResultView, byte_len};
use std::ffi::{c_char, c_int, c_void};
use tfc_abi::DType;
use tfc_abi::plan::Entry;

/// Most axes a tensor of the C interface has.
const MAX_RANK: usize = 64;

/// What sizes become in a header where they cannot be counted.
const UNCOUNTABLE: i64 = i64::MIN;

/// A tensor lent by the caller: dense, row-major, native byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Feed {
    /// A [`DType`] code.
    pub dtype: u32,
    pub rank: u32,
    /// `rank` sizes.
    pub shape: *const i64,
    pub data: *const c_void,
    /// Size of `data`: at least what the shape takes.
    pub bytes: usize,
}

/// Memory of the caller's for a result.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// A [`DType`] code: what the memory is for.
    pub dtype: u32,
    /// Places in `shape`; the call makes it the number of axes.
    pub rank: u32,
    /// Filled in by the call, unless null.
    pub shape: *mut i64,
    pub data: *mut c_void,
    /// Size of `data`: at least what the result takes.
    pub bytes: usize,
}

/// Number of an entry, or -1.
///
/// # Safety
/// `handle` is live, `name` a string.
pub unsafe extern "C" fn entry(handle: *const Handle, name: *const c_char) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let (m, name) = unsafe { (model(handle)?, text(name, "the name")?) };
        Ok(m.model.entry(name)? as c_int)
    })
}

/// Lends the caller's tensors, with their shapes kept beside.
///
/// # Safety
/// `tensors` points at `count` tensors whose `shape` and `data` are as large as
/// they say.
pub unsafe fn with_feeds<R>(
    tensors: *const Feed,
    count: usize,
    f: impl FnOnce(&[FeedView<'_>]) -> Result<R>,
) -> Result<R> {
    // SAFETY: the caller's promise.
    let tensors = unsafe { items(tensors, count, "the array of feeds") }?;
    let mut shapes = Vec::with_capacity(count);
    for t in tensors {
        // SAFETY: the caller's promise.
        shapes.push(unsafe { shape_of(t) }?);
    }
    let mut views = Vec::with_capacity(count);
    for (t, shape) in tensors.iter().zip(&shapes) {
        let dtype = dtype_of(t.dtype)?;
        let need = byte_len(dtype, shape).ok_or_else(uncountable)?;
        if need > 0 && t.data.is_null() {
            return Err(null("the memory of a feed"));
        }
        let data: &[u8] = if t.bytes == 0 || t.data.is_null() {
            &[]
        } else {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts(t.data.cast::<u8>(), t.bytes) }
        };
        // A roomier buffer than the shape needs is no mistake.
        views.push(FeedView { dtype, shape, data: data.get(..need).unwrap_or(data) });
    }
    f(&views)
}

pub fn dtype_of(code: u32) -> Result<DType> {
    u8::try_from(code)
        .ok()
        .and_then(DType::from_code)
        .ok_or_else(|| Error::usage("E0914", format!("there is no element type {code}")))
}

fn uncountable() -> Error {
    OutOfMemory(usize::MAX).into()
}

/// # Safety
/// `t.shape` points at `t.rank` sizes.
unsafe fn shape_of(t: &Feed) -> Result<Vec<usize>> {
    let rank = t.rank as usize;
    if rank > MAX_RANK {
        return Err(Error::usage("E0914", format!("a tensor has {rank} axes")));
    }
    // SAFETY: the caller's promise.
    unsafe { items(t.shape, rank, "a tensor's shape") }?
        .iter()
        .map(|size| match usize::try_from(*size) {
            Ok(size) => Ok(size),
            Err(_) if *size == UNCOUNTABLE => Err(uncountable()),
            Err(_) => Err(Error::usage("E0914", format!("a tensor has the size {size}"))),
        })
        .collect()
}

/// The caller's memory for results.
///
/// # Safety
/// Each tensor's `data` has `bytes` bytes that nobody else uses.
pub unsafe fn memory<'a>(results: &[Tensor]) -> Vec<ResultView<'a>> {
    let view = |t: &Tensor| ResultView {
        data: if t.bytes == 0 || t.data.is_null() {
            &mut []
        } else {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(t.data.cast::<u8>(), t.bytes) }
        },
    };
    results.iter().map(view).collect()
}

/// Results are for what they are used for, and overlap nothing.
fn check_results(entry: &Entry, feeds: &[Feed], results: &[Tensor]) -> Result<()> {
    let range = |data: *const c_void, bytes: usize| {
        let start = data as usize;
        start..start.saturating_add(if data.is_null() { 0 } else { bytes })
    };
    let overlap = |a: &std::ops::Range<usize>, b: &std::ops::Range<usize>| {
        a.start < b.end && b.start < a.end && !a.is_empty() && !b.is_empty()
    };
    for (i, (t, port)) in results.iter().zip(&entry.results).enumerate() {
        let dtype = dtype_of(t.dtype)?;
        let name = &port.name;
        if dtype != port.dtype {
            let message =
                format!("result `{name}` is {}, but the memory for it is {dtype}", port.dtype);
            return Err(Error::data("E0522", message));
        }
        let place = range(t.data, t.bytes);
        let shared = |what: &str, other: &str| {
            Err(Error::data("E0522", format!("result `{name}` and {what} `{other}` share memory"))
                .help("give every result memory of its own"))
        };
        for (t, other) in results[..i].iter().zip(&entry.results) {
            if overlap(&place, &range(t.data, t.bytes)) {
                return shared("result", &other.name);
            }
        }
        for (t, other) in feeds.iter().zip(&entry.params) {
            if overlap(&place, &range(t.data, t.bytes)) {
                return shared("feed", &other.name);
            }
        }
    }
    Ok(())
}

/// Calls an entry. Feeds are in the order of its params; results are written to
/// the caller's memory, their shapes filled in. Runners that fill what the entry
/// takes are started first.
///
/// # Safety
/// `handle` is live; the arrays have the lengths given; every tensor's `shape`
/// has `rank` sizes and its `data` has `bytes` bytes.
pub unsafe extern "C" fn call(
    handle: *const Handle,
    entry: c_int,
    feeds: *const Feed,
    feed_count: usize,
    results: *mut Tensor,
    result_count: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let m = unsafe { model(handle) }?;
        let entry = usize::try_from(entry).unwrap_or(usize::MAX);
        if results.is_null() && result_count > 0 {
            return Err(null("the array of results"));
        }
        let results: &mut [Tensor] = if result_count == 0 {
            &mut []
        } else {
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts_mut(results, result_count) }
        };
        if let Some(e) = m.model.plan().entries.get(entry) {
            // SAFETY: as above.
            let feeds = unsafe { items(feeds, feed_count, "the array of feeds") }?;
            check_results(e, feeds, results)?;
        }
        m.runners.start(&m.model, entry)?;
        // SAFETY: as above; they overlap nothing, as was checked.
        let mut memory = unsafe { memory(results) };
        let run = |feeds: &[FeedView<'_>]| {
            let wants_shapes = results.iter().any(|t| !t.shape.is_null());
            let shapes = if wants_shapes { m.model.result_shapes(entry, feeds)? } else { vec![] };
            m.model.run_with(entry, feeds, &mut memory, &limit::options())?;
            Ok(shapes)
        };
        // SAFETY: as above.
        let shapes = unsafe { with_feeds(feeds, feed_count, run) }?;
        for (t, shape) in results.iter_mut().zip(shapes) {
            if !t.shape.is_null() && t.rank as usize >= shape.len() {
                for (i, d) in shape.iter().enumerate() {
                    // SAFETY: `shape` has `rank` places.
                    unsafe { *t.shape.add(i) = *d as i64 };
                }
            }
            t.rank = shape.len() as u32;
        }
        Ok(())
    })
}

/// The shape result number `result` would have: writes up to `rank` sizes and
/// returns their number, or -1.
///
/// # Safety
/// As [`call`]; `shape` has room for `rank` sizes.
pub unsafe extern "C" fn result_shape(
    handle: *const Handle,
    entry: c_int,
    feeds: *const Feed,
    feed_count: usize,
    result: usize,
    shape: *mut i64,
    rank: usize,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise, here and below.
        let m = unsafe { model(handle) }?;
        let entry = usize::try_from(entry).unwrap_or(usize::MAX);
        // SAFETY: as above.
        let shapes = unsafe { with_feeds(feeds, feed_count, |f| m.model.result_shapes(entry, f)) }?;
        let s = shapes
            .get(result)
            .ok_or_else(|| Error::usage("E0521", format!("there is no result number {result}")))?;
        for (i, d) in s.iter().enumerate().take(if shape.is_null() { 0 } else { rank }) {
            // SAFETY: `i < rank`.
            unsafe { *shape.add(i) = *d as i64 };
        }
        Ok(s.len() as c_int)
    })
}
