//! Which instructions the code may use.

use crate::wide::Wide;
use crate::{CodegenError, backend, emit};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use tfc_abi::cpu;

/// The CPUs an object file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cpu {
    /// Three versions of the kernels: for AVX-512, for AVX2 with FMA, and for
    /// older CPUs.
    #[default]
    Portable,
    /// Only SSE4.1: smaller, slower.
    Baseline,
    /// Only the version for AVX2 with FMA.
    Avx2,
    /// Only the version for AVX-512.
    Avx512,
    /// What the compiling machine has.
    Native,
}

/// What Cranelift is told of CPUs with AVX2.
const AVX2: u32 = cpu::SSE41 | cpu::AVX | cpu::FMA | cpu::AVX2;

/// An instruction set of Cranelift's and the bits of `tfc_abi::cpu` it needs.
#[derive(Clone)]
pub(crate) struct Isa {
    pub isa: OwnedTargetIsa,
    pub features: u32,
}

/// One version of the kernels.
pub(crate) struct Version {
    pub name: &'static str,
    pub features: u32,
    /// What kernels are tried with, the widest first.
    pub wide: Vec<Wide>,
    /// What is left to Cranelift.
    pub isa: Isa,
}

impl Version {
    fn plain(name: &'static str, isa: Isa) -> Version {
        Version { name, features: isa.features, wide: vec![], isa }
    }
}

/// The versions for `cpu`, best first.
///
/// `triple` names another machine than this one.
pub(crate) fn versions(
    cpu: Cpu,
    pic: bool,
    triple: Option<&str>,
) -> Result<Vec<Version>, CodegenError> {
    let x86 = triple.map_or(cfg!(target_arch = "x86_64"), |t| t.starts_with("x86_64"));
    let plain = |features| with_features(features, pic, triple);
    match cpu {
        Cpu::Native if triple.is_some() => {
            Err(CodegenError::Target("`native` is this machine, not another".into()))
        }
        Cpu::Native => Ok(vec![native_version(pic)?]),
        // There is one version of the others, without anything optional.
        _ if !x86 && triple.is_none() => Ok(vec![Version::plain("", native(pic)?)]),
        _ if !x86 => Ok(vec![Version::plain("", plain(0)?)]),
        Cpu::Baseline => Ok(vec![Version::plain("", plain(cpu::SSE41)?)]),
        Cpu::Avx2 => Ok(vec![version(Wide::Avx2, "", plain(AVX2)?)]),
        Cpu::Avx512 => Ok(vec![version(Wide::Avx512, "", plain(AVX2)?)]),
        Cpu::Portable => {
            let isa = plain(AVX2)?;
            let mut out = vec![];
            if system_v(&isa) {
                out.push(version(Wide::Avx512, "_avx512", isa.clone()));
            }
            out.push(version(Wide::Avx2, "", isa));
            out.push(Version::plain("_baseline", plain(cpu::SSE41)?));
            Ok(out)
        }
    }
}

/// The wide emitter knows one calling convention.
fn system_v(isa: &Isa) -> bool {
    isa.isa.default_call_conv() == CallConv::SystemV
}

fn version(wide: Wide, name: &'static str, isa: Isa) -> Version {
    if !system_v(&isa) {
        return Version::plain(name, isa);
    }
    let tried = match wide {
        Wide::Avx512 => vec![Wide::Avx512, Wide::Avx2],
        Wide::Avx2 => vec![Wide::Avx2],
    };
    Version { name, features: isa.features | needs(wide), wide: tried, isa }
}

/// The bits of `tfc_abi::cpu` that wide code needs.
fn needs(wide: Wide) -> u32 {
    let level = match wide {
        Wide::Avx512 => "avx512",
        Wide::Avx2 => "avx2",
    };
    cpu::LEVELS.iter().find(|(name, _)| *name == level).map_or(0, |(_, features)| *features)
}

/// Everything this machine has.
pub(crate) fn native(pic: bool) -> Result<Isa, CodegenError> {
    let builder = cranelift_native::builder().map_err(|e| CodegenError::Target(e.into()))?;
    let isa = builder.finish(flags(pic)?).map_err(backend)?;
    let features = features(isa.as_ref());
    Ok(Isa { isa, features })
}

fn native_version(pic: bool) -> Result<Version, CodegenError> {
    let isa = native(pic)?;
    Ok(match native_wide() {
        Some(wide) => version(wide, "", isa),
        None => Version::plain("", isa),
    })
}

/// The widest vectors this machine has.
fn native_wide() -> Option<Wide> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2");
        let avx512 = has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl");
        if avx2 && avx512 {
            return Some(Wide::Avx512);
        }
        if avx2 {
            return Some(Wide::Avx2);
        }
    }
    None
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
