//! Matrix products.

pub mod simple;

use crate::pool::Pool;
use half::{bf16, f16};
use tfc_abi::DType;

/// Called with `[row0, row1) x [col0, col1)` of the result when that block is
/// final. Rows count through all matrices of a batch.
pub type BlockFn<'a> = &'a (dyn Fn(usize, usize, usize, usize) + Sync);

/// `c[i] = op(a[i]) · op(b[i])` for every matrix of a batch; see
/// [`tfc_abi::plan::MatMul`].
#[derive(Clone, Copy, Debug)]
pub struct MatMulArgs {
    pub dtype: DType,
    pub a: *const u8,
    pub b: *const u8,
    pub c: *mut u8,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub a_stride: usize,
    pub b_stride: usize,
    pub trans_a: bool,
    pub trans_b: bool,
    pub accumulate: bool,
}

// SAFETY: the operands are read only, and parts of the result are disjoint.
unsafe impl Sync for MatMulArgs {}

/// # Safety
/// The pointers are aligned and valid for the sizes given; `c` overlaps neither
/// `a` nor `b`.
pub unsafe fn matmul(pool: &Pool, args: &MatMulArgs, finished: Option<BlockFn<'_>>) {
    // SAFETY: the caller's promise.
    unsafe {
        match args.dtype {
            DType::F32 => simple::matmul::<f32>(pool, args, finished),
            DType::F64 => simple::matmul::<f64>(pool, args, finished),
            DType::F16 => simple::matmul::<f16>(pool, args, finished),
            DType::BF16 => simple::matmul::<bf16>(pool, args, finished),
            DType::I8 => simple::matmul::<i8>(pool, args, finished),
            DType::U8 => simple::matmul::<u8>(pool, args, finished),
            DType::I32 => simple::matmul::<i32>(pool, args, finished),
            DType::I64 => simple::matmul::<i64>(pool, args, finished),
            DType::Bool => simple::matmul::<simple::Truth>(pool, args, finished),
        }
    }
}
