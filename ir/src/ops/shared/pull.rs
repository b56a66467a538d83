//! Index arithmetic that the lowerings of movement ops share.
//!
//! A kernel may only load from addresses that exist, whatever the condition
//! that decides whether the value is used. So a guarded load is: clamp the
//! index, load, then select. An operand that may be empty has no address to
//! clamp to: it is asked for with [`Pull::guarded`], and a load of element 0 of
//! an empty buffer gives a value that the select drops (see [`crate::kernel`]).

use crate::kernel::{Ix, Reg, Scalar, ScalarOp, ScalarType};
use crate::lower::Pull;
use crate::{DType, Dim};

/// A size as an index.
pub fn ix(dim: &Dim) -> Ix {
    Ix { offset: dim.clone(), terms: vec![], regs: vec![] }
}

/// `at - by`.
pub fn minus(at: &Ix, by: &Dim) -> Ix {
    at.plus(&ix(&(Dim::constant(0) - by.clone())))
}

pub fn int(k: &mut dyn Pull, value: i64) -> Reg {
    k.constant(Scalar::I64(value))
}

/// `at` limited to the elements of an axis: `max(min(at, size - 1), 0)`.
pub fn clamp(k: &mut dyn Pull, at: Reg, size: &Dim) -> Reg {
    let last = k.index(&ix(&(size.clone() - Dim::constant(1))));
    clamp_to(k, at, last)
}

/// `max(min(at, last), 0)`.
pub fn clamp_to(k: &mut dyn Pull, at: Reg, last: Reg) -> Reg {
    let zero = int(k, 0);
    let low = k.op(ScalarOp::Min, &[at, last]);
    k.op(ScalarOp::Max, &[low, zero])
}

/// Whether `0 <= at < size`.
pub fn inside(k: &mut dyn Pull, at: Reg, size: &Dim) -> Reg {
    let end = k.index(&ix(size));
    let zero = int(k, 0);
    let low = k.op(ScalarOp::Le, &[zero, at]);
    let high = k.op(ScalarOp::Lt, &[at, end]);
    k.op(ScalarOp::And, &[low, high])
}

/// Whether none of these axes is empty, where that is not certain.
pub fn nonempty(k: &mut dyn Pull, sizes: &[Dim]) -> Option<Reg> {
    if sizes.iter().all(|size| k.never_empty(size)) {
        return None;
    }
    let (zero, count) = (int(k, 0), k.index(&ix(&Dim::product(sizes))));
    Some(k.op(ScalarOp::Lt, &[zero, count]))
}

pub fn and(k: &mut dyn Pull, a: Option<Reg>, b: Reg) -> Reg {
    match a {
        Some(a) => k.op(ScalarOp::And, &[a, b]),
        None => b,
    }
}

/// `value` where `cond` (if there is one) holds, `otherwise` elsewhere.
pub fn guard(k: &mut dyn Pull, cond: Option<Reg>, value: Reg, otherwise: f64) -> Reg {
    let Some(cond) = cond else { return value };
    let ty = k.reg_type(value);
    let other = k.constant(Scalar::of(ty, otherwise));
    k.op(ScalarOp::Select, &[cond, value, other])
}

/// An integer element of any width as an index.
pub fn to_index(k: &mut dyn Pull, x: Reg) -> Reg {
    if k.reg_type(x) == ScalarType::I64 { x } else { k.convert(x, ScalarType::I64) }
}

/// Rounds or wraps a computed value to what an element of `dtype` can hold.
pub fn narrow(k: &mut dyn Pull, x: Reg, dtype: DType) -> Reg {
    match dtype {
        DType::F16 => k.op(ScalarOp::RoundF16, &[x]),
        DType::BF16 => k.op(ScalarOp::RoundBF16, &[x]),
        DType::I8 => k.op(ScalarOp::WrapI8, &[x]),
        DType::U8 => k.op(ScalarOp::WrapU8, &[x]),
        _ => x,
    }
}

/// An `i64` index as an element of `dtype`.
pub fn element(k: &mut dyn Pull, x: Reg, dtype: DType) -> Reg {
    let ty = ScalarType::of(dtype);
    let x = if ty == ScalarType::I64 { x } else { k.convert(x, ty) };
    narrow(k, x, dtype)
}
