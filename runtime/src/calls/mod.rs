//! Routines a plan may call that are not worth generating code for. What each is given,
//! `tfc_abi::routine` says.

mod sort;

use crate::error::{Error, Result};
use crate::half::{bf16, f16};
use tfc_abi::DType;
use tfc_abi::plan::Func;
use tfc_abi::routine::MOST;

/// The operands of a call, as far as the routine has them.
pub struct Args {
    pub bufs: [(*mut u8, DType); MOST],
    pub ints: [usize; MOST],
    /// Size of the first buffer.
    pub bytes: usize,
}

impl Args {
    pub fn of(bytes: usize) -> Args {
        Args { bufs: [(std::ptr::null_mut(), DType::I32); MOST], ints: [0; MOST], bytes }
    }
}

/// Carries out `func`.
///
/// # Safety
/// The buffers are valid for the sizes and element types that the routine's signature
/// says, and aligned.
pub unsafe fn call(func: Func, args: &Args) -> Result<()> {
    let [(dst, dtype), ..] = args.bufs;
    match func {
        Func::Zero => {
            if args.bytes > 0 {
                // SAFETY: the buffer has this many bytes.
                unsafe { dst.write_bytes(0, args.bytes) };
            }
            Ok(())
        }
        // SAFETY: the caller's promise, passed on.
        Func::ScatterSetRows => unsafe {
            rows(args, dtype.size(), |dst, src, width| {
                std::ptr::copy_nonoverlapping(src, dst, width * dtype.size());
            })
        },
        // SAFETY: as above; the elements are of `dtype`.
        Func::ScatterAddRows => unsafe {
            let add: unsafe fn(*mut u8, *const u8, usize) = match dtype {
                DType::F32 => |d, s, n| add(d.cast::<f32>(), s.cast(), n, |a, b| a + b),
                DType::F64 => |d, s, n| add(d.cast::<f64>(), s.cast(), n, |a, b| a + b),
                DType::F16 => |d, s, n| add(d.cast::<f16>(), s.cast(), n, |a, b| a + b),
                DType::BF16 => |d, s, n| add(d.cast::<bf16>(), s.cast(), n, |a, b| a + b),
                DType::I8 => |d, s, n| add(d.cast::<i8>(), s.cast(), n, i8::wrapping_add),
                DType::U8 => |d, s, n| add(d.cast::<u8>(), s.cast(), n, u8::wrapping_add),
                DType::I32 => |d, s, n| add(d.cast::<i32>(), s.cast(), n, i32::wrapping_add),
                DType::I64 => |d, s, n| add(d.cast::<i64>(), s.cast(), n, i64::wrapping_add),
                DType::Bool => |d, s, n| add(d, s, n, |a, b| a | b),
            };
            rows(args, dtype.size(), |dst, src, width| add(dst, src, width))
        },
        Func::ArgSort => {
            let [outer, len, inner, descending] = args.ints;
            let (x, of) = args.bufs[1];
            // SAFETY: as above.
            unsafe { sort::argsort(dst.cast(), x, of, [outer, len, inner], descending != 0) };
            Ok(())
        }
    }
}

/// # Safety
/// Both pointers are valid for `n` elements.
unsafe fn add<T: Copy>(dst: *mut T, src: *const T, n: usize, f: impl Fn(T, T) -> T) {
    for i in 0..n {
        // SAFETY: `i < n`.
        unsafe { *dst.add(i) = f(*dst.add(i), *src.add(i)) };
    }
}

/// Applies `update` to each named row, in order. Ids out of range are left out, or it
/// fails before the first change.
///
/// # Safety
/// As [`call`].
unsafe fn rows(args: &Args, size: usize, update: impl Fn(*mut u8, *const u8, usize)) -> Result<()> {
    let [(dst, _), (ids, id_type), (upd, _), ..] = args.bufs;
    let [rows, count, width, drop] = args.ints;
    let exists = |id: i64| usize::try_from(id).is_ok_and(|r| r < rows);
    // SAFETY: there are `count` ids of this type.
    let id = |i: usize| unsafe {
        match id_type {
            DType::I64 => *ids.cast::<i64>().add(i),
            _ => i64::from(*ids.cast::<i32>().add(i)),
        }
    };
    for i in 0..count {
        if drop == 0 && !exists(id(i)) {
            return Err(Error::data(
                "E0510",
                format!("row {} of {rows} does not exist, so it cannot be updated", id(i)),
            )
            .note(format!("index number {i} of the update asks for it")));
        }
    }
    for i in (0..count).filter(|i| exists(id(*i))) {
        let row = id(i) as usize;
        // SAFETY: `row < rows` and `i < count`, both checked.
        unsafe { update(dst.add(row * width * size), upd.add(i * width * size), width) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(func: Func, ids: &[i64]) -> Result<Vec<f32>> {
        scatter_or(func, ids, false)
    }

    fn scatter_or(func: Func, ids: &[i64], drop: bool) -> Result<Vec<f32>> {
        let mut dst = vec![0f32; 6];
        let upd = [1f32, 2., 3., 4., 5., 6.];
        let mut args = Args::of(24);
        args.bufs[0] = (dst.as_mut_ptr().cast(), DType::F32);
        args.bufs[1] = (ids.as_ptr().cast_mut().cast(), DType::I64);
        args.bufs[2] = (upd.as_ptr().cast_mut().cast(), DType::F32);
        args.ints = [3, ids.len(), 2, drop.into()];
        // SAFETY: three rows of two; at most three ids.
        unsafe { call(func, &args)? };
        Ok(dst)
    }

    #[test]
    fn rows_add_and_set_in_order() {
        let add = scatter(Func::ScatterAddRows, &[2, 0, 2]).unwrap();
        assert_eq!(add, [3., 4., 0., 0., 6., 8.]);
        let set = scatter(Func::ScatterSetRows, &[2, 0, 2]).unwrap();
        assert_eq!(set, [3., 4., 0., 0., 5., 6.]);
        let zero = scatter(Func::Zero, &[0]).unwrap();
        assert_eq!(zero, [0.; 6]);
    }

    #[test]
    fn rows_out_of_range_fail() {
        for bad in [3, -1, i64::MAX, i64::MIN] {
            let e = scatter(Func::ScatterAddRows, &[0, bad]).unwrap_err();
            assert_eq!(e.code(), "E0510");
            let left_out = scatter_or(Func::ScatterAddRows, &[0, bad, 1], true).unwrap();
            assert_eq!(left_out, [1., 2., 5., 6., 0., 0.]);
        }
    }
}
