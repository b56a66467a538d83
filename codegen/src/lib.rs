//! Code generation: a [`Program`]'s kernels to machine code, through Cranelift.
//!
//! Code map
//! - [`emit`]: one kernel to one CLIF function; the vectoriser is in there;
//! - [`wide`]: one kernel to AVX2 or AVX-512 machine code, where that is faster;
//! - [`target`]: which instructions the code may use;
//! - [`code`]: machine code as data; [`jit`]: code in memory; [`object`]: a relocatable object file;
//! - [`text`]: CLIF and assembly to read.
//!
//! Invariants
//! - JIT and object file share everything up to the `Module` trait.
//! - Kernels are verified before anything is emitted: a malformed one is an
//!   error, and no kernel that passes makes Cranelift panic.
//! - The same program gives the same bytes, but for `Cpu::Native`.
//!
//! # CPUs
//!
//! Cranelift's vectors have 128 bits. Kernels whose time is in vector loops are
//! compiled by [`wide`] besides, and an object for [`Cpu::Portable`] carries every
//! kernel in three versions: for AVX-512, for AVX2 with FMA, and for SSE4.1 alone;
//! a kernel that a wide version has no use for is shared between versions. The
//! loader takes the first that the CPU can run. All give the same bits: where the
//! FMA instruction is missing, an f32 fma is computed in f64 and rounded once, and
//! an f64 one calls the C library.

mod code;
mod emit;
mod jit;
mod object;
mod parallel;
pub mod ptx;
pub mod schedule;
mod target;
mod text;
mod wide;

pub use code::{Code, Fix, KernelCode, compile};
pub use jit::{JitProgram, host, jit, jit_for, load};
pub use object::{Exports, ForGpu, ObjectOptions, object};
pub use target::Cpu;
pub use text::{asm_text, clif_text};

use cranelift_codegen::ir::UserFuncName;
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc};
use std::borrow::Cow;
use target::Version;
use tfc_kernel::program::Program;
use tfc_kernel::{Kernel, ScalarOp, Stmt};
use wide::Wide;

/// Why no code could be made. None of these is the user's doing.
#[derive(Debug)]
pub enum CodegenError {
    /// The kernel breaks a rule of the kernel IR.
    Kernel { kernel: String, message: String },
    /// The plan and the kernels do not fit together.
    Program(String),
    /// This machine or target is not supported.
    Target(String),
    /// Cranelift refused the code.
    Backend(String),
}

impl std::fmt::Display for CodegenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CodegenError::Kernel { kernel, message } => {
                write!(f, "kernel `{kernel}` is malformed: {message}")
            }
            CodegenError::Program(message) => write!(f, "the program is malformed: {message}"),
            CodegenError::Target(message) => write!(f, "no code for this target: {message}"),
            CodegenError::Backend(message) => write!(f, "code generation failed: {message}"),
        }
    }
}

impl std::error::Error for CodegenError {}

pub(crate) fn backend(error: impl std::fmt::Display) -> CodegenError {
    CodegenError::Backend(error.to_string())
}

/// `kernel` as emitters for CPUs want it: verified, elementary functions expanded,
/// local buffers in the memory of results. Those without an instruction for `Scale` go on
/// with [`unscaled`].
pub(crate) fn prepare(kernel: &Kernel) -> Result<Cow<'_, Kernel>, CodegenError> {
    prepare_but(kernel, &|op, _| op == ScalarOp::Scale)
}

/// A prepared kernel without `Scale`.
pub(crate) fn unscaled(kernel: &Kernel) -> Cow<'_, Kernel> {
    fn scales(stmts: &[Stmt]) -> bool {
        stmts.iter().any(|s| match s {
            Stmt::Op { op, .. } => *op == ScalarOp::Scale,
            Stmt::Loop(l) => scales(&l.body),
            _ => false,
        })
    }
    if !scales(&kernel.body) {
        return Cow::Borrowed(kernel);
    }
    let mut expanded = kernel.clone();
    tfc_kernel::math::expand(&mut expanded);
    Cow::Owned(expanded)
}

/// [`prepare`] for an emitter that has instructions for some operations.
pub(crate) fn prepare_but<'k>(
    kernel: &'k Kernel,
    known: &tfc_kernel::math::Known<'_>,
) -> Result<Cow<'k, Kernel>, CodegenError> {
    let malformed = |message: String| CodegenError::Kernel { kernel: kernel.name.clone(), message };
    tfc_kernel::verify::verify(kernel).map_err(|e| malformed(e.to_string()))?;
    let mut expanded = kernel.clone();
    tfc_kernel::math::expand_but(&mut expanded, known);
    tfc_kernel::locals::place(&mut expanded);
    Ok(Cow::Owned(expanded))
}

/// The plan names the kernels in the order of the table.
pub(crate) fn check(program: &Program) -> Result<(), CodegenError> {
    if program.plan.kernels.len() != program.kernels.len() {
        return Err(CodegenError::Program(format!(
            "the plan names {} kernels, there are {}",
            program.plan.kernels.len(),
            program.kernels.len()
        )));
    }
    Ok(())
}

/// The machine code of a prepared kernel, as `version` has it.
pub(crate) fn compile_kernel(
    kernel: &Kernel,
    version: &Version,
    at: usize,
) -> Result<KernelCode, CodegenError> {
    match wide_kernel(kernel, &version.wide) {
        Some((_, code)) => Ok(code),
        None => cranelift_kernel(kernel, version.isa.isa.as_ref(), at),
    }
}

/// The machine code of a kernel for the first of these that can do it.
pub(crate) fn wide_kernel(kernel: &Kernel, with: &[Wide]) -> Option<(Wide, KernelCode)> {
    with.iter().find_map(|wide| {
        let bytes = wide::function(kernel, *wide).ok()?;
        Some((*wide, KernelCode { bytes, align: wide::ALIGN, fixes: vec![] }))
    })
}

/// What became of a kernel in the wide versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Bytes of machine code, or why Cranelift's is used.
    pub avx2: Result<usize, &'static str>,
    pub avx512: Result<usize, &'static str>,
}

/// Which kernels have wide versions, in the order of the program's.
pub fn coverage(program: &Program) -> Result<Vec<Coverage>, CodegenError> {
    let each = |kernel: &Kernel| {
        let kernel = prepare(kernel)?;
        let of = |wide| wide::function(&kernel, wide).map(|b| b.len()).map_err(|e| e.0);
        Ok(Coverage { avx2: of(Wide::Avx2), avx512: of(Wide::Avx512) })
    };
    program.kernels.iter().map(each).collect()
}

/// The machine code of the kernel with number `at`, through Cranelift.
pub(crate) fn cranelift_kernel(
    kernel: &Kernel,
    isa: &dyn TargetIsa,
    at: usize,
) -> Result<KernelCode, CodegenError> {
    let name = UserFuncName::user(0, at as u32);
    let mut ctx = cranelift_codegen::Context::for_function(emit::function(
        &unscaled(kernel),
        name,
        target::emit_target(isa),
    ));
    ctx.compile(isa, &mut Default::default()).map_err(|e| CodegenError::Kernel {
        kernel: kernel.name.clone(),
        message: format!("{:?}", e.inner),
    })?;
    let Some(compiled) = ctx.compiled_code() else {
        return Err(CodegenError::Backend("no code".into()));
    };
    let id = FuncId::from_u32(at as u32);
    let fixes = compiled
        .buffer
        .relocs()
        .iter()
        .map(|r| Fix::new(&ModuleReloc::from_mach_reloc(r, &ctx.func, id)))
        .collect::<Result<_, _>>()?;
    Ok(KernelCode {
        bytes: compiled.code_buffer().to_vec(),
        align: u64::from(compiled.buffer.alignment).max(32),
        fixes,
    })
}

/// Defines one kernel of a module.
pub(crate) fn define_kernel(
    module: &mut dyn Module,
    call_conv: CallConv,
    symbol: &str,
    code: &KernelCode,
) -> Result<FuncId, CodegenError> {
    let sig = emit::signature(call_conv);
    let id = module.declare_function(symbol, Linkage::Local, &sig).map_err(backend)?;
    let relocs: Vec<_> = code.fixes.iter().map(Fix::reloc).collect::<Result<_, _>>()?;
    module.define_function_bytes(id, code.align, &code.bytes, &relocs).map_err(backend)?;
    Ok(id)
}
