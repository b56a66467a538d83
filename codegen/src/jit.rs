//! Code in memory.

use crate::code::{self, Code};
use crate::{CodegenError, Cpu, backend, define_kernel, target};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::default_libcall_names;
use tfc_abi::{ABI_VERSION, BUFFER_ALIGN, KernelFn, ProgramDesc, Version};
use tfc_kernel::program::Program;

/// A program ready to run. Owns the code and the data its descriptor points at.
pub struct JitProgram {
    /// `None` only while dropping.
    module: Option<JITModule>,
    kernels: Vec<KernelFn>,
    version: Box<Version>,
    plan: Vec<u8>,
    consts: Aligned,
    code: Code,
    /// Encoded; empty if there is none.
    gpu: Vec<u8>,
    gpu_driver: *const u8,
}

// SAFETY: nothing is written after construction; the code only reads its
// arguments' memory.
unsafe impl Send for JitProgram {}
// SAFETY: as above.
unsafe impl Sync for JitProgram {}

/// Compiles for the machine this runs on.
pub fn jit(program: &Program) -> Result<JitProgram, CodegenError> {
    jit_for(program, Cpu::Native)
}

/// Compiles the best version an object for `cpu` would have. The caller makes sure
/// that this machine can run it.
pub fn jit_for(program: &Program, cpu: Cpu) -> Result<JitProgram, CodegenError> {
    let code = code::compile_for(program, cpu)?;
    place(code, program.plan.encode(), &program.consts)
}

/// The target of this machine, as [`Code::target`] has it.
pub fn host() -> Result<String, CodegenError> {
    Ok(target::native(false)?.isa.triple().to_string())
}

/// Makes code that was compiled before ready to run.
///
/// # Safety
/// The code is what [`crate::compile`] made of a program with this plan and these
/// constants, for a CPU like this one.
pub unsafe fn load(code: Code, plan: Vec<u8>, consts: &[u8]) -> Result<JitProgram, CodegenError> {
    place(code, plan, consts)
}

fn place(code: Code, plan: Vec<u8>, consts: &[u8]) -> Result<JitProgram, CodegenError> {
    let native = target::native(false)?;
    let builder = JITBuilder::with_isa(native.isa.clone(), default_libcall_names());
    let mut module = JITModule::new(builder);
    let call_conv = native.isa.default_call_conv();
    let mut ids = vec![];
    for (i, kernel) in code.kernels.iter().enumerate() {
        ids.push(define_kernel(&mut module, call_conv, &format!("k{i}"), kernel)?);
    }
    module.finalize_definitions().map_err(backend)?;
    let kernels: Vec<KernelFn> = ids
        .into_iter()
        .map(|id| {
            let code = module.get_finalized_function(id);
            // SAFETY: the function was emitted with this signature and convention.
            unsafe { std::mem::transmute::<*const u8, KernelFn>(code) }
        })
        .collect();
    // The table stays where it is when the vector moves.
    let version = Version { features: code.features, reserved: 0, kernels: kernels.as_ptr() };
    let version = Box::new(version);
    let consts = Aligned::copy(consts);
    let (gpu, gpu_driver) = (vec![], std::ptr::null());
    Ok(JitProgram { module: Some(module), kernels, version, plan, consts, code, gpu, gpu_driver })
}

impl JitProgram {
    /// Points into `self`: valid while it lives. Who runs it adds what of the runtime it needs.
    pub fn desc(&self) -> ProgramDesc {
        ProgramDesc {
            version: ABI_VERSION,
            version_count: 1,
            plan: self.plan.as_ptr(),
            plan_len: self.plan.len(),
            versions: &raw const *self.version,
            kernel_count: self.kernels.len(),
            consts: self.consts.bytes().as_ptr(),
            consts_len: self.consts.bytes().len(),
            gpu: if self.gpu.is_empty() { std::ptr::null() } else { self.gpu.as_ptr() },
            gpu_len: self.gpu.len(),
            gpu_driver: self.gpu_driver,
            conv: std::ptr::null(),
            jobs: std::ptr::null(),
        }
    }

    /// Adds code for GPUs: an encoded [`tfc_abi::gpu::Gpu`], and what of the runtime
    /// drives them.
    pub fn set_gpu(&mut self, table: Vec<u8>, driver: *const u8) {
        (self.gpu, self.gpu_driver) = (table, driver);
    }

    /// What it has for GPUs, encoded; empty if nothing.
    pub fn gpu(&self) -> &[u8] {
        &self.gpu
    }

    /// The code as data, to be saved.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// The encoded plan.
    pub fn plan(&self) -> &[u8] {
        &self.plan
    }

    pub fn consts(&self) -> &[u8] {
        self.consts.bytes()
    }

    /// The compiled kernels, in the order of the program's.
    pub fn kernels(&self) -> &[KernelFn] {
        &self.kernels
    }
}

impl Drop for JitProgram {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: descriptors must not outlive the program, so no code of it
            // is running or will be called.
            unsafe { module.free_memory() };
        }
    }
}

impl std::fmt::Debug for JitProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JitProgram").field("kernels", &self.kernels.len()).finish_non_exhaustive()
    }
}

/// Bytes at an address that is a multiple of [`BUFFER_ALIGN`].
struct Aligned {
    blocks: Vec<Block>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block([u8; BUFFER_ALIGN]);

impl Aligned {
    fn copy(bytes: &[u8]) -> Aligned {
        let blocks = bytes
            .chunks(BUFFER_ALIGN)
            .map(|chunk| {
                let mut block = Block([0; BUFFER_ALIGN]);
                block.0[..chunk.len()].copy_from_slice(chunk);
                block
            })
            .collect();
        Aligned { blocks, len: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the blocks are contiguous plain bytes, at least `len` of them.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len) }
    }
}
