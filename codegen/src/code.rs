//! Machine code as plain data: what the JIT puts into memory, and what a saved
//! module holds.

use crate::{CodegenError, Cpu, backend, check, compile_kernel, parallel, prepare, target};
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::LibCall;
use cranelift_module::{ModuleReloc, ModuleRelocTarget};
use tfc_kernel::program::Program;

/// The kernels of a program for one kind of CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// The target, such as `x86_64-unknown-linux-gnu`.
    pub target: String,
    /// CPU features the code needs, as in `tfc_abi::cpu`.
    pub features: u32,
    /// In the order of the program's kernels.
    pub kernels: Vec<KernelCode>,
}

/// One function.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCode {
    pub bytes: Vec<u8>,
    pub align: u64,
    pub fixes: Vec<Fix>,
}

/// An address to be filled in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fix {
    pub offset: u32,
    pub addend: i64,
    /// Index into [`KINDS`].
    kind: u8,
    /// Index into [`ROUTINES`].
    routine: u8,
}

/// Ways an address is written into code. Saved modules refer to them by index.
const KINDS: &[Reloc] = &[
    Reloc::Abs8,
    Reloc::X86CallPCRel4,
    Reloc::X86CallPLTRel4,
    Reloc::Arm64Call,
    Reloc::Abs4,
    Reloc::X86PCRel4,
    // In object files only: code in memory is not moved.
    Reloc::X86GOTPCRel4,
    Reloc::Aarch64AdrGotPage21,
    Reloc::Aarch64Ld64GotLo12Nc,
];

/// Routines of the C library that kernels call.
const ROUTINES: &[LibCall] = &[LibCall::FmaF64, LibCall::FmaF32];

/// Compiles the kernels for the machine this runs on.
pub fn compile(program: &Program) -> Result<Code, CodegenError> {
    compile_for(program, Cpu::Native)
}

pub(crate) fn compile_for(program: &Program, cpu: Cpu) -> Result<Code, CodegenError> {
    check(program)?;
    let version = target::versions(cpu, false, None)?.swap_remove(0);
    let compiled = parallel::map(&program.kernels, |i, kernel| {
        compile_kernel(prepare(kernel)?.as_ref(), &version, i)
    });
    let kernels = compiled.into_iter().collect::<Result<_, _>>()?;
    let target = version.isa.isa.triple().to_string();
    Ok(Code { target, features: version.features, kernels })
}

impl Fix {
    pub(crate) fn new(reloc: &ModuleReloc) -> Result<Fix, CodegenError> {
        let routine = match &reloc.name {
            ModuleRelocTarget::LibCall(call) => ROUTINES.iter().position(|r| r == call),
            _ => None,
        };
        let kind = KINDS.iter().position(|k| *k == reloc.kind);
        match (kind, routine) {
            (Some(kind), Some(routine)) => Ok(Fix {
                offset: reloc.offset,
                addend: reloc.addend,
                kind: kind as u8,
                routine: routine as u8,
            }),
            _ => Err(backend(format!("a kernel refers to {:?} as {:?}", reloc.name, reloc.kind))),
        }
    }

    pub(crate) fn reloc(&self) -> Result<ModuleReloc, CodegenError> {
        match (KINDS.get(usize::from(self.kind)), ROUTINES.get(usize::from(self.routine))) {
            (Some(kind), Some(routine)) => Ok(ModuleReloc {
                offset: self.offset,
                kind: *kind,
                name: ModuleRelocTarget::LibCall(*routine),
                addend: self.addend,
            }),
            _ => Err(backend("the code refers to something unknown")),
        }
    }
}

impl Code {
    /// As bytes, for a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![];
        let number = |out: &mut Vec<u8>, n: u64| out.extend(n.to_le_bytes());
        number(&mut out, self.target.len() as u64);
        out.extend(self.target.as_bytes());
        number(&mut out, u64::from(self.features));
        number(&mut out, self.kernels.len() as u64);
        for k in &self.kernels {
            number(&mut out, k.align);
            number(&mut out, k.bytes.len() as u64);
            out.extend(&k.bytes);
            number(&mut out, k.fixes.len() as u64);
            for f in &k.fixes {
                number(&mut out, u64::from(f.offset));
                number(&mut out, f.addend as u64);
                out.extend([f.kind, f.routine]);
            }
        }
        out
    }

    /// From [`Code::encode`]; none if the bytes are no such thing.
    pub fn decode(bytes: &[u8]) -> Option<Code> {
        let mut rest = Rest(bytes);
        let len = rest.length()?;
        let target = String::from_utf8(rest.take(len)?.to_vec()).ok()?;
        let features = u32::try_from(rest.number()?).ok()?;
        let mut kernels = vec![];
        for _ in 0..rest.number()? {
            let align = rest.number()?;
            let len = rest.length()?;
            let bytes = rest.take(len)?.to_vec();
            let mut fixes = vec![];
            for _ in 0..rest.number()? {
                let offset = u32::try_from(rest.number()?).ok()?;
                let addend = rest.number()? as i64;
                let &[kind, routine] = rest.take(2)? else { return None };
                let size = if KINDS.get(usize::from(kind))? == &Reloc::Abs8 { 8 } else { 4 };
                if offset as usize + size > bytes.len() {
                    return None;
                }
                fixes.push(Fix { offset, addend, kind, routine });
            }
            if !align.is_power_of_two() || align > 4096 {
                return None;
            }
            kernels.push(KernelCode { bytes, align, fixes });
        }
        rest.0.is_empty().then_some(Code { target, features, kernels })
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }
}
