//! What a program carries for GPUs: PTX, and how its entries are launched.
//!
//! A program may have several versions, for GPUs that can do more or less, the best
//! first. Each has an entry for every kernel that the plan launches, one or two for every
//! contraction, and one for every routine that the plan calls and a GPU can do.
//!
//! An entry's parameters are the addresses of its buffers and then its sizes, all of
//! eight bytes: of a kernel, the buffers and dims of its launch; of a contraction, the
//! two factors in the order of the plan, the product or the buffers of the epilogue, the
//! workspace if there is one, and the dims of the program; of a routine, its buffers and
//! its numbers.

use crate::DType;
use crate::plan::{BufId, Expr, Func};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// The one that asks most of a GPU first.
    pub versions: Vec<GpuVersion>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GpuVersion {
    /// The oldest GPU that can run it, as 70 for compute capability 7.0.
    pub arch: u32,
    /// The version of PTX it is written in, as 60 for 6.0.
    pub ptx: u32,
    /// The text, "deflated" (RFC 1951).
    pub text: Vec<u8>,
    /// Bytes of the text itself.
    pub text_len: u64,
    /// In the order of `Plan::kernels`; none where a kernel is never launched, being a
    /// contraction's epilogue.
    pub kernels: Vec<Option<GpuEntry>>,
    pub contractions: Vec<GpuContraction>,
    pub routines: Vec<GpuRoutine>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GpuEntry {
    pub name: String,
    /// Blocks along x, y and z, over the entry's sizes. If one is zero there is nothing
    /// to launch.
    pub grid: Vec<Expr>,
    /// Threads of a block, along x.
    pub block: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GpuContraction {
    /// The entry of the plan, and the buffer of its product there.
    pub entry: u32,
    pub product: BufId,
    /// To be launched one after the other.
    pub launches: Vec<GpuEntry>,
    /// Bytes of memory between them, over the dims of the program.
    pub workspace: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GpuRoutine {
    pub func: Func,
    /// Of the first buffer and of the second.
    pub dtype: DType,
    pub ids: DType,
    pub launch: GpuEntry,
}

impl GpuVersion {
    pub fn contraction(&self, entry: u32, product: BufId) -> Option<&GpuContraction> {
        self.contractions.iter().find(|c| (c.entry, c.product) == (entry, product))
    }

    pub fn routine(&self, func: Func, dtype: DType, ids: DType) -> Option<&GpuEntry> {
        let found = self.routines.iter().find(|r| (r.func, r.dtype, r.ids) == (func, dtype, ids));
        found.map(|r| &r.launch)
    }
}
