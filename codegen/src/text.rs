//! Generated code as text, for people and snapshots.

use crate::wide::{self, Wide};
use crate::{CodegenError, emit, prepare, target, unscaled};
use cranelift_codegen::Context;
use cranelift_codegen::ir::UserFuncName;
use std::fmt::Write;
use tfc_kernel::program::Program;

/// The CLIF of every kernel, before Cranelift optimises it.
pub fn clif_text(program: &Program) -> Result<String, CodegenError> {
    let versions = target::versions(target::Cpu::Portable, false, None)?;
    let target = target::emit_target(versions[0].isa.isa.as_ref());
    let mut out = String::new();
    for (i, kernel) in program.kernels.iter().enumerate() {
        let kernel = prepare(kernel)?;
        let func = emit::function(&unscaled(&kernel), UserFuncName::user(0, i as u32), target);
        let _ = writeln!(out, "; kernel {i}: {}\n{}", kernel.name, func.display());
    }
    Ok(out)
}

/// The machine code of every kernel, as Cranelift makes it for AVX2, and the size of
/// its wide versions: those are read with a disassembler from `--emit obj`.
pub fn asm_text(program: &Program) -> Result<String, CodegenError> {
    let versions = target::versions(target::Cpu::Portable, true, None)?;
    let isa = versions[0].isa.isa.as_ref();
    let target = target::emit_target(isa);
    let mut out = String::new();
    for (i, kernel) in program.kernels.iter().enumerate() {
        let kernel = prepare(kernel)?;
        let func = emit::function(&unscaled(&kernel), UserFuncName::user(0, i as u32), target);
        let mut ctx = Context::for_function(func);
        ctx.set_disasm(true);
        let code = ctx
            .compile(isa, &mut Default::default())
            .map_err(|e| CodegenError::Backend(format!("{:?}", e.inner)))?;
        let text = code.vcode.clone().unwrap_or_default();
        let _ = writeln!(out, "; kernel {i}: {}", kernel.name);
        for (name, wide) in [("AVX2", Wide::Avx2), ("AVX-512", Wide::Avx512)] {
            if let Ok(bytes) = wide::function(&kernel, wide) {
                let _ = writeln!(out, "; in {} bytes for {name}", bytes.len());
            }
        }
        let _ = writeln!(out, "{text}");
    }
    Ok(out)
}
