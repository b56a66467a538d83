//! Convolutions, NCHW images and OIHW filters.
//!
//! | case | way |
//! |---|---|
//! | floats | [`implicit`]: a matrix product whose operands are gathered while packing |
//! | floats, few pixels and many channels | `across.rs`: the same sums, of pixels where they lie |
//! | f32, windows of 3x3 or 5x5 and channels enough | [`winograd`], and for filters [`winograd::gradient`]: fewer multiplications |
//! | f32, the gradient of a filter that reads few channels | [`few`]: nothing is gathered |
//! | one filter per channel, f32 and f64 | [`depthwise`] |
//! | integers, bool | [`simple`] |
//!
//! Floats are read through a [`field`], a copy of some rows with padding and
//! strides written out. Vectors are of pixels, or of channels where that is less work.

mod across;
pub mod depthwise;
mod edges;
pub mod few;
pub mod field;
pub mod implicit;
pub mod simple;
pub mod windows;
pub mod winograd;

use crate::gemm::BlockFn;
use crate::gemm::kernel::{Kernels, Real};
use crate::gemm::pack::{Operand, Strided};
use crate::gemm::prepack::Stays;
use crate::gemm::simple::{Number, Truth};
use crate::half::{bf16, f16};
use crate::pool::Pool;
use tfc_abi::DType;
use tfc_abi::plan::{Conv, ConvKind};

/// A convolution with its sizes; see [`Conv`].
#[derive(Clone, Copy, Debug)]
pub struct ConvArgs<'a> {
    pub kind: ConvKind,
    pub dtype: DType,
    pub lhs: *const u8,
    pub rhs: *const u8,
    pub out: *mut u8,
    pub batch: usize,
    pub in_channels: usize,
    pub in_h: usize,
    pub in_w: usize,
    pub out_channels: usize,
    pub out_h: usize,
    pub out_w: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub dilation: [usize; 2],
    pub pad: [usize; 2],
    pub groups: usize,
    /// Every sum is the plain one, in the order of `k`.
    pub plain: bool,
    /// Where `rhs`, if it stays the same between calls, may be kept packed.
    pub rhs_stays: Option<Stays<'a>>,
}

// SAFETY: the operands are read only, and parts of the result are disjoint.
unsafe impl Sync for ConvArgs<'_> {}

impl ConvArgs<'_> {
    pub fn new(
        c: &Conv,
        size: impl Fn(u32) -> usize,
        ptr: impl Fn(u32) -> *mut u8,
    ) -> ConvArgs<'static> {
        ConvArgs {
            kind: c.kind,
            dtype: c.dtype,
            lhs: ptr(c.lhs),
            rhs: ptr(c.rhs),
            out: ptr(c.out),
            batch: size(c.batch),
            in_channels: size(c.in_channels),
            in_h: size(c.in_h),
            in_w: size(c.in_w),
            out_channels: size(c.out_channels),
            out_h: size(c.out_h),
            out_w: size(c.out_w),
            kernel: c.kernel.map(|v| v as usize),
            stride: c.stride.map(|v| v as usize),
            dilation: c.dilation.map(|v| v as usize),
            pad: c.pad.map(|v| v as usize),
            groups: c.groups as usize,
            plain: false,
            rhs_stays: None,
        }
    }
}

/// Convolution as a program asks for it: nothing of the runtime refers to this module but
/// [`TFC_CONV`], which programs that convolve name in their descriptor, so that the others
/// are linked without it.
pub struct Entry {
    /// [`conv()`].
    pub conv: unsafe fn(&Pool, &ConvArgs<'_>, Option<BlockFn<'_>>),
}

/// See [`Entry`].
#[unsafe(export_name = "tfc_conv")]
pub static TFC_CONV: Entry = Entry { conv };

/// # Safety
/// The pointers are aligned and valid for the sizes given; `out` overlaps
/// neither operand.
pub unsafe fn conv(pool: &Pool, args: &ConvArgs<'_>, finished: Option<BlockFn<'_>>) {
    // SAFETY: the caller's promise.
    unsafe {
        match args.dtype {
            DType::F32 => real::<f32>(f32::kernels(), pool, args, finished),
            DType::F64 => real::<f64>(f64::kernels(), pool, args, finished),
            DType::F16 => implicit::conv::<f32, f16>(f32::kernels(), pool, args, finished),
            DType::BF16 => implicit::conv::<f32, bf16>(f32::kernels(), pool, args, finished),
            DType::I8 => simple::conv::<i8>(pool, args, finished),
            DType::U8 => simple::conv::<u8>(pool, args, finished),
            DType::I32 => simple::conv::<i32>(pool, args, finished),
            DType::I64 => simple::conv::<i64>(pool, args, finished),
            DType::Bool => simple::conv::<Truth>(pool, args, finished),
        }
    }
}

/// # Safety
/// As [`conv`], for elements `T`; the CPU can run `kernels`.
pub unsafe fn real<T: Real + Number + implicit::Result<T>>(
    kernels: &Kernels<T>,
    pool: &Pool,
    args: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) where
    Strided<T>: Operand<T>,
{
    // SAFETY: the caller's promise.
    unsafe {
        if depthwise::applies(args) {
            depthwise::conv::<T>(kernels, pool, args, finished);
        } else {
            implicit::conv::<T, T>(kernels, pool, args, finished);
        }
    }
}
