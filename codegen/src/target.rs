//! Which instructions the code may use.

use crate::{CodegenError, backend, emit};
use cranelift_codegen::isa::{self, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use tfc_abi::cpu;

/// The CPUs an object file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cpu {
    /// AVX2 with FMA, and a second version of every kernel for older CPUs.
    #[default]
    Portable,
    /// Only SSE4.1: smaller, slower.
    Baseline,
    /// What the compiling machine has.
    Native,
}

const AVX2: u32 = cpu::SSE41 | cpu::AVX | cpu::FMA | cpu::AVX2;

/// An instruction set and the bits of `tfc_abi::cpu` it needs.
pub(crate) struct Isa {
    pub isa: OwnedTargetIsa,
    pub features: u32,
}

/// The instruction sets for `cpu`, best first.
///
/// `triple` names another machine than this one.
pub(crate) fn isas(cpu: Cpu, pic: bool, triple: Option<&str>) -> Result<Vec<Isa>, CodegenError> {
    let x86 = triple.map_or(cfg!(target_arch = "x86_64"), |t| t.starts_with("x86_64"));
    match cpu {
        Cpu::Native if triple.is_some() => {
            Err(CodegenError::Target("`native` is this machine, not another".into()))
        }
        Cpu::Native => Ok(vec![native(pic)?]),
        // There is one version of the others, without anything optional.
        _ if !x86 && triple.is_none() => Ok(vec![native(pic)?]),
        _ if !x86 => Ok(vec![with_features(0, pic, triple)?]),
        Cpu::Baseline => Ok(vec![with_features(cpu::SSE41, pic, triple)?]),
        Cpu::Portable => {
            Ok(vec![with_features(AVX2, pic, triple)?, with_features(cpu::SSE41, pic, triple)?])
        }
    }
}

/// Everything this machine has.
pub(crate) fn native(pic: bool) -> Result<Isa, CodegenError> {
    let builder = cranelift_native::builder().map_err(|e| CodegenError::Target(e.into()))?;
    let isa = builder.finish(flags(pic)?).map_err(backend)?;
    let features = features(isa.as_ref());
    Ok(Isa { isa, features })
}

fn with_features(features: u32, pic: bool, triple: Option<&str>) -> Result<Isa, CodegenError> {
    let found = match triple {
        Some(name) => isa::lookup_by_name(name),
        None => {
            let native = cranelift_native::builder().map_err(|e| CodegenError::Target(e.into()))?;
            isa::lookup(native.triple().clone())
        }
    };
    let mut builder = found.map_err(|e| CodegenError::Target(e.to_string()))?;
    let mut enable = |bit: u32, names: &[&str]| -> Result<(), CodegenError> {
        for name in names {
            if features & bit != 0 {
                builder.enable(name).map_err(backend)?;
            }
        }
        Ok(())
    };
    enable(cpu::SSE41, &["has_sse3", "has_ssse3", "has_sse41"])?;
    // Every CPU with AVX has these.
    enable(cpu::AVX, &["has_sse42", "has_popcnt", "has_avx"])?;
    enable(cpu::FMA, &["has_fma"])?;
    enable(cpu::AVX2, &["has_avx2", "has_bmi1", "has_bmi2", "has_lzcnt"])?;
    let isa = builder.finish(flags(pic)?).map_err(backend)?;
    Ok(Isa { isa, features })
}

fn flags(pic: bool) -> Result<settings::Flags, CodegenError> {
    let mut b = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", if pic { "true" } else { "false" }),
        ("enable_verifier", verify),
        ("enable_probestack", "false"),
        ("unwind_info", "true"),
        ("use_colocated_libcalls", "false"),
    ] {
        b.set(name, value).map_err(backend)?;
    }
    Ok(settings::Flags::new(b))
}

fn isa_flag(isa: &dyn TargetIsa, name: &str) -> bool {
    isa.isa_flags().iter().any(|f| f.name == name && f.as_bool() == Some(true))
}

fn features(isa: &dyn TargetIsa) -> u32 {
    [
        ("has_sse41", cpu::SSE41),
        ("has_avx", cpu::AVX),
        ("has_fma", cpu::FMA),
        ("has_avx2", cpu::AVX2),
    ]
    .into_iter()
    .filter(|(name, _)| isa_flag(isa, name))
    .map(|(_, bit)| bit)
    .sum()
}

pub(crate) fn emit_target(isa: &dyn TargetIsa) -> emit::Target {
    let x86 = isa.name() == "x64";
    emit::Target {
        fma: !x86 || isa_flag(isa, "has_fma"),
        memory_operands: x86 && isa_flag(isa, "has_avx"),
        config: isa.frontend_config(),
    }
}
