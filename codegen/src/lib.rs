//! Code generation: a [`Program`]'s kernels to machine code, through Cranelift.
//!
//! Code map
//! - [`emit`]: one kernel to one CLIF function; the vectoriser is in there;
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
//! Kernels use 128-bit vectors, the widest Cranelift has. An object for
//! [`Cpu::Portable`] carries every kernel twice: for AVX2 with FMA, and for
//! SSE4.1 alone; the loader takes the first that the CPU can run. Both give the
//! same bits: where the FMA instruction is missing, an f32 fma is computed in
//! f64 and rounded once, and an f64 one calls the C library.

mod code;
mod emit;
mod jit;
mod object;
mod parallel;
pub mod ptx;
pub mod schedule;
mod target;
mod text;

pub use code::{Code, Fix, KernelCode, compile};
pub use jit::{JitProgram, host, jit, jit_for, load};
pub use object::{Exports, ObjectOptions, object};
pub use target::Cpu;
pub use text::{asm_text, clif_text};

use cranelift_codegen::ir::UserFuncName;
use cranelift_codegen::isa::TargetIsa;
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc};
use std::borrow::Cow;
use tfc_kernel::Kernel;
use tfc_kernel::program::Program;

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
/// local buffers in the memory of results.
pub(crate) fn prepare(kernel: &Kernel) -> Result<Cow<'_, Kernel>, CodegenError> {
    let malformed = |message: String| CodegenError::Kernel { kernel: kernel.name.clone(), message };
    tfc_kernel::verify::verify(kernel).map_err(|e| malformed(e.to_string()))?;
    let mut expanded = kernel.clone();
    tfc_kernel::math::expand(&mut expanded);
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

/// Defines every kernel of the program, in table order, with the code of `isa`.
pub(crate) fn define_kernels(
    module: &mut dyn Module,
    isa: &dyn TargetIsa,
    kernels: &[Cow<'_, Kernel>],
    symbol: &dyn Fn(usize, &Kernel) -> String,
) -> Result<Vec<FuncId>, CodegenError> {
    let target = target::emit_target(isa);
    let mut ids = vec![];
    for (i, kernel) in kernels.iter().enumerate() {
        let sig = emit::signature(isa.default_call_conv());
        let id =
            module.declare_function(&symbol(i, kernel), Linkage::Local, &sig).map_err(backend)?;
        ids.push(id);
    }
    let compiled = parallel::map(kernels, |i, kernel| compile_kernel(isa, target, kernel, ids[i]));
    for (id, compiled) in ids.iter().zip(compiled) {
        let Compiled { bytes, align, relocs } = compiled?;
        module.define_function_bytes(*id, align, &bytes, &relocs).map_err(backend)?;
    }
    Ok(ids)
}

/// The machine code of a kernel.
pub(crate) struct Compiled {
    pub bytes: Vec<u8>,
    pub align: u64,
    pub relocs: Vec<ModuleReloc>,
}

/// Compiles one kernel, as [`prepare`] leaves it, for `isa`, which may be another one
/// than the module's own.
pub(crate) fn compile_kernel(
    isa: &dyn TargetIsa,
    target: emit::Target,
    kernel: &Kernel,
    id: FuncId,
) -> Result<Compiled, CodegenError> {
    let name = UserFuncName::user(0, id.as_u32());
    let mut ctx = cranelift_codegen::Context::for_function(emit::function(kernel, name, target));
    ctx.compile(isa, &mut Default::default()).map_err(|e| CodegenError::Kernel {
        kernel: kernel.name.clone(),
        message: format!("{:?}", e.inner),
    })?;
    let Some(compiled) = ctx.compiled_code() else {
        return Err(CodegenError::Backend("no code".into()));
    };
    let relocs = compiled.buffer.relocs().iter();
    let relocs = relocs.map(|r| ModuleReloc::from_mach_reloc(r, &ctx.func, id)).collect();
    let align = u64::from(compiled.buffer.alignment).max(32);
    Ok(Compiled { bytes: compiled.code_buffer().to_vec(), align, relocs })
}
