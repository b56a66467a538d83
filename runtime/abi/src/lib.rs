//! What compiled programs and the runtime agree on.
//!
//! This crate is the bottom of the tree: plain data, no dependencies. The
//! compiler writes a [`plan::Plan`] and machine code; the runtime reads the
//! plan and calls the code. Nothing here knows about graphs.
//!
//! Invariants
//! - Whoever decodes a plan calls [`plan::Plan::check`] before using it: an
//!   index out of range is an error, never a panic.
//! - [`ABI_VERSION`] changes whenever an encoding or a calling convention does.

pub mod check;
pub mod code;
pub mod codec;
pub mod depend;
pub mod dtype;
pub mod float;
pub mod gpu;
pub mod names;
pub mod order;
pub mod parts;
pub mod place;
pub mod plan;
pub mod routine;
pub mod start;

pub use code::ErrorCode;
pub use dtype::DType;

/// Version of the plan encoding and of the calling conventions below.
pub const ABI_VERSION: u32 = 10;

/// A compiled kernel.
///
/// - `bufs[i]` is the start of the kernel's i-th buffer;
/// - `dims[i]` is the value of the kernel's i-th run-time dimension;
/// - `range` is `[lo0, hi0, lo1, hi1]`: the part of the outermost loop (and, for
///   a contraction's epilogue, of the second loop) this call covers. A kernel
///   with one ranged loop ignores the second pair.
pub type KernelFn = unsafe extern "C" fn(bufs: *const *mut u8, dims: *const i64, range: *const i64);

/// A compiled program, in an object file or as the JIT builds it in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProgramDesc {
    /// [`ABI_VERSION`] of the compiler that wrote this.
    pub version: u32,
    /// How many [`Version`]s there are.
    pub version_count: u32,
    /// Encoded [`plan::Plan`].
    pub plan: *const u8,
    pub plan_len: usize,
    /// The kernels, for one kind of CPU after the other, the best first. The loader
    /// takes the first that the CPU can run; all give the same bits.
    pub versions: *const Version,
    /// Kernels of each version.
    pub kernel_count: usize,
    /// Constant data, 64-byte aligned; `Plan::consts` gives offsets into it.
    pub consts: *const u8,
    pub consts_len: usize,
    /// Encoded [`gpu::Gpu`]; none of a program for CPUs alone.
    pub gpu: *const u8,
    pub gpu_len: usize,
    /// What of the runtime drives GPUs. Nothing else in the runtime refers to it, so
    /// that only programs that can use one have it linked.
    pub gpu_driver: *const u8,
    /// What of the runtime convolves, in a program that does; likewise.
    pub conv: *const u8,
    /// What of the runtime makes a program part of a job of several processes, in one that
    /// can be; likewise.
    pub jobs: *const u8,
}

/// All kernels of a program, for CPUs with certain features.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// CPU features the code needs; see [`cpu`].
    pub features: u32,
    pub reserved: u32,
    /// Table of kernels, in the order of `Plan::kernels`.
    pub kernels: *const KernelFn,
}

// SAFETY: a descriptor only points at immutable program data.
unsafe impl Sync for ProgramDesc {}
// SAFETY: as above.
unsafe impl Send for ProgramDesc {}

/// What a library of a model exports, as `<prefix>_library` and under a name with
/// a hash of its contents.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LibraryDesc {
    /// [`ABI_VERSION`] of the compiler that wrote this.
    pub version: u32,
    pub reserved: u32,
    /// Hash of what the header relies on; the loader compares it with the
    /// header's.
    pub interface: u64,
    /// The runtime's table of functions.
    pub runtime: *const u8,
    pub program: *const ProgramDesc,
}

// SAFETY: a descriptor only points at immutable program data.
unsafe impl Sync for LibraryDesc {}
// SAFETY: as above.
unsafe impl Send for LibraryDesc {}

// SAFETY: as above.
unsafe impl Sync for Version {}
// SAFETY: as above.
unsafe impl Send for Version {}

/// Bits of [`Version::features`].
pub mod cpu {
    pub const SSE41: u32 = 1;
    pub const AVX: u32 = 1 << 1;
    pub const FMA: u32 = 1 << 2;
    pub const AVX2: u32 = 1 << 3;
    pub const F16C: u32 = 1 << 4;
    pub const BMI2: u32 = 1 << 5;
    pub const AVX512F: u32 = 1 << 6;
    pub const AVX512DQ: u32 = 1 << 7;
    pub const AVX512BW: u32 = 1 << 8;
    pub const AVX512VL: u32 = 1 << 9;

    /// The sets of features that programs are compiled for, by name.
    pub const LEVELS: [(&str, u32); 3] = [
        ("avx512", WIDE2 | AVX512F | AVX512DQ | AVX512BW | AVX512VL),
        ("avx2", WIDE2),
        ("sse4.1", SSE41),
    ];
    const WIDE2: u32 = SSE41 | AVX | FMA | AVX2 | F16C | BMI2;
}

/// Alignment of every buffer the runtime hands to a kernel, except buffers the
/// caller owns (parameters and results).
pub const BUFFER_ALIGN: usize = 64;
