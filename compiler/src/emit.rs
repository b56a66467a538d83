//! What `--emit` writes, and under which names.

use crate::driver::Timings;
use crate::error::{Error, Result};
use crate::link::{self, LinkOptions, Output};
use crate::{dump, header, runtime_object, target};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use tfc_codegen::{CodegenError, Cpu, Exports, ForGpu, ObjectOptions};
use tfc_ir::Graph;
use tfc_ir::diag::Diag;
use tfc_ir::program::Program;
use tfc_runtime::files;

/// One kind of output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Artifact {
    /// A program.
    Executable,
    /// `libNAME.a`.
    StaticLibrary,
    /// `libNAME.so`.
    SharedLibrary,
    /// Without the runtime, to be linked by others.
    Object,
    /// For C and C++.
    Header,
    /// The optimized graph.
    Graph,
    /// Which ops share a kernel.
    Fused,
    /// The kernels and other steps in their order.
    Steps,
    /// Kernels before code generation.
    Kernels,
    /// The steps of each entry with the memory they use.
    Plan,
    /// Cranelift's intermediate code.
    Clif,
    /// Assembly.
    Asm,
    /// Kernels for NVIDIA's GPUs.
    Ptx,
    /// Which loops of the kernels are threads of a GPU.
    GpuSchedule,
}

impl Artifact {
    /// File name of this artifact of a model. A name that is not UTF-8 is kept.
    pub fn file_name(self, stem: impl AsRef<OsStr>) -> OsString {
        let (before, after) = match self {
            Artifact::Executable => ("", ""),
            Artifact::StaticLibrary => ("lib", ".a"),
            Artifact::SharedLibrary => ("lib", ".so"),
            Artifact::Object => ("", ".o"),
            Artifact::Header => ("", ".h"),
            Artifact::Graph => ("", ".opt.graph"),
            Artifact::Fused => ("", ".fused"),
            Artifact::Steps => ("", ".steps"),
            Artifact::Kernels => ("", ".kernels"),
            Artifact::Plan => ("", ".plan"),
            Artifact::Clif => ("", ".clif"),
            Artifact::Asm => ("", ".s"),
            Artifact::Ptx => ("", ".ptx"),
            Artifact::GpuSchedule => ("", ".gpu-schedule"),
        };
        let mut name = OsString::from(before);
        name.push(stem);
        name.push(after);
        name
    }

    /// Whether it is about the C names of the model.
    pub fn has_names(self) -> bool {
        use Artifact::*;
        matches!(self, StaticLibrary | SharedLibrary | Object | Header)
    }

    /// Whether it is text, and may go to standard output.
    pub fn is_text(self) -> bool {
        use Artifact::*;
        matches!(
            self,
            Header | Graph | Fused | Steps | Kernels | Plan | Clif | Asm | Ptx | GpuSchedule
        )
    }
}

/// A lowered model, and what is needed to write it out.
pub struct Emitter<'a> {
    /// What was compiled.
    pub program: &'a Program,
    /// The optimized graph.
    pub graph: &'a Graph,
    /// How to link it.
    pub link: LinkOptions,
    /// Begins the C names of the model; see [`header::prefix`].
    pub prefix: &'a str,
    /// The CPUs it is for.
    pub cpu: Cpu,
    /// The GPUs it is for besides, as 80 for `sm_80`, if it is for any.
    pub gpus: Option<Vec<u32>>,
}

impl Emitter<'_> {
    /// How C calls the model.
    fn symbols(&self) -> header::Symbols {
        let program = self.program;
        let kernels = dump::kernels(program);
        // Not the target's own: headers are for all targets.
        let runtime = target::RUNTIME_ID;
        let mut hasher = tfc_runtime::hash::Hasher::default();
        let plan = program.plan.encode();
        for part in [&plan, &program.consts, kernels.as_bytes(), runtime.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let hash = hasher.finish();
        let content = u64::from_le_bytes(std::array::from_fn(|i| hash[i]));
        header::Symbols { prefix: self.prefix.to_string(), content }
    }

    /// The bytes of an artifact that needs no linker.
    pub fn bytes(&self, artifact: Artifact) -> Result<Vec<u8>> {
        let bug = |e: tfc_codegen::CodegenError| Error::bug(e.to_string());
        Ok(match artifact {
            Artifact::Object => self.object(self.library())?,
            Artifact::Header => header::header(&self.program.plan, &self.symbols()).into_bytes(),
            Artifact::Graph => tfc_ir::text::print(self.graph).into_bytes(),
            Artifact::Fused => tfc_passes::fused_text(self.graph).into_bytes(),
            Artifact::Steps => tfc_passes::steps_text(self.graph).into_bytes(),
            Artifact::Kernels => dump::kernels(self.program).into_bytes(),
            Artifact::Plan => self.plan_text().into_bytes(),
            Artifact::Clif => tfc_codegen::clif_text(self.program).map_err(bug)?.into_bytes(),
            Artifact::Asm => tfc_codegen::asm_text(self.program).map_err(bug)?.into_bytes(),
            Artifact::Ptx => self.ptx()?.text().into_bytes(),
            Artifact::GpuSchedule => self.ptx()?.schedule_text().into_bytes(),
            Artifact::Executable | Artifact::StaticLibrary | Artifact::SharedLibrary => {
                return Err(Error::bug("linked outputs are files"));
            }
        })
    }

    /// With copies, if it is for a GPU.
    fn plan_text(&self) -> String {
        if self.gpus.is_none() {
            return self.program.plan_text();
        }
        let plan = tfc_codegen::ptx::on_gpu(&self.program.plan);
        Program { plan, ..Program::default() }.plan_text()
    }

    /// For every GPU since Volta, or the newest that is named.
    fn ptx(&self) -> Result<tfc_codegen::ptx::Compiled> {
        let named = self.gpus.iter().flatten().copied().max();
        // What was asked for is for these at least.
        let least = match self.program.tf32 {
            true => tfc_codegen::ptx::AMPERE.arch,
            false => tfc_codegen::ptx::BASELINE.arch,
        };
        let arch = named.unwrap_or(least).max(least);
        tfc_codegen::ptx::compile(self.program, arch).map_err(|e| Error::bug(e.to_string()))
    }

    fn object(&self, exports: Exports) -> Result<Vec<u8>> {
        let target = &self.link.target;
        let triple = (!target.is_host()).then(|| target.triple.clone());
        let gpu = match &self.gpus {
            None => None,
            Some(archs) => {
                let table = tfc_codegen::ptx::table(self.program, archs).map_err(no_code)?;
                let joins =
                    matches!(exports, Exports::Main { .. }) && self.program.plan.fits_a_job();
                let driver = if joins { runtime_object::NCCL } else { runtime_object::CUDA };
                let driver = runtime_object::symbol(driver, &target.id);
                Some(ForGpu { table: table.encode(), driver })
            }
        };
        let conv = runtime_object::symbol(runtime_object::CONV, &target.id);
        let jobs = runtime_object::symbol(runtime_object::JOBS, &target.id);
        let options = ObjectOptions { exports, cpu: self.cpu, triple, gpu, conv, jobs };
        tfc_codegen::object(self.program, &options).map_err(no_code)
    }

    fn library(&self) -> Exports {
        Exports::Library {
            names: self.symbols().library(),
            interface: header::interface(&self.program.plan),
            runtime: runtime_object::symbol(runtime_object::TABLE, &self.link.target.id),
        }
    }

    /// Writes an artifact to a file.
    pub fn write(&self, artifact: Artifact, out: &Path, timings: &mut Timings) -> Result<()> {
        let kind = match artifact {
            Artifact::Executable => Output::Executable,
            Artifact::StaticLibrary => Output::Static,
            Artifact::SharedLibrary => Output::Shared,
            _ => {
                let bytes = timings.measure("codegen", || self.bytes(artifact))?;
                return write_file(out, &bytes);
            }
        };
        let mut options = self.link.clone();
        let exports = match kind {
            Output::Executable => {
                let function = runtime_object::symbol(runtime_object::MAIN, &self.link.target.id);
                Exports::Main { function }
            }
            Output::Shared | Output::Static => {
                options.exports = self.symbols().library();
                self.library()
            }
        };
        let object = timings.measure("codegen", || self.object(exports))?;
        timings.measure("link", || link::link(&object, kind, out, &options))
    }
}

/// No code for a target is the user's to know; all else is a bug.
fn no_code(error: CodegenError) -> Error {
    match error {
        CodegenError::Target(why) => {
            Diag::error("E0809", format!("no code can be made: {why}")).into()
        }
        other => Error::bug(other.to_string()),
    }
}

/// Writes a file whole or not at all. A device or a pipe is written to.
pub fn write_file(out: &Path, bytes: &[u8]) -> Result<()> {
    Ok(files::replace(out, |file| file.write_all(bytes))?)
}

/// Where each artifact goes. A single artifact goes to `-o` itself; several take
/// its directory and stem.
pub fn destinations(
    artifacts: &[Artifact],
    output: Option<&Path>,
    stem: impl AsRef<OsStr>,
) -> Vec<(Artifact, PathBuf)> {
    let stem = stem.as_ref();
    match (output, artifacts) {
        (Some(out), [one]) => vec![(*one, out.to_path_buf())],
        (Some(out), _) => {
            let stem = out.file_stem().unwrap_or(stem);
            artifacts
                .iter()
                .map(|a| {
                    let name = match out.file_name() {
                        Some(name) if *a == Artifact::Executable => name.to_os_string(),
                        _ => a.file_name(stem),
                    };
                    (*a, out.with_file_name(name))
                })
                .collect()
        }
        (None, _) => artifacts.iter().map(|a| (*a, PathBuf::from(a.file_name(stem)))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_output() {
        use Artifact::*;
        let d = |a: &[Artifact], o: Option<&str>| {
            let all = destinations(a, o.map(Path::new), "mlp");
            all.into_iter().map(|(_, p)| p.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(d(&[Executable], None), ["mlp"]);
        assert_eq!(d(&[Executable], Some("out/m.bin")), ["out/m.bin"]);
        assert_eq!(
            d(&[Executable, Header, StaticLibrary], Some("out/m")),
            ["out/m", "out/m.h", "out/libm.a"]
        );
    }
}
