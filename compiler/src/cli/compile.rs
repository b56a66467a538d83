//! `tfc compile`.

use super::{Done, args};
use crate::driver::{self, Timings};
use crate::emit::{Artifact, Emitter, destinations};
use crate::error::Result;
use crate::header;
use crate::link::LinkOptions;
use crate::load::source_files;
use crate::target::Target;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tfc_codegen::Cpu;
use tfc_ir::diag::Diag;

impl From<args::CpuKind> for Cpu {
    fn from(kind: args::CpuKind) -> Cpu {
        match kind {
            args::CpuKind::Portable => Cpu::Portable,
            args::CpuKind::Baseline => Cpu::Baseline,
            args::CpuKind::Native => Cpu::Native,
        }
    }
}

impl From<args::EmitKind> for Artifact {
    fn from(kind: args::EmitKind) -> Artifact {
        use args::EmitKind::*;
        match kind {
            Exe => Artifact::Executable,
            Lib => Artifact::StaticLibrary,
            Shared => Artifact::SharedLibrary,
            Obj => Artifact::Object,
            Header => Artifact::Header,
            Graph => Artifact::Graph,
            Fused => Artifact::Fused,
            Steps => Artifact::Steps,
            Kernels => Artifact::Kernels,
            Plan => Artifact::Plan,
            Clif => Artifact::Clif,
            Asm => Artifact::Asm,
            Ptx => Artifact::Ptx,
            GpuSchedule => Artifact::GpuSchedule,
        }
    }
}

pub fn run(args: &args::Compile) -> Result<Done> {
    let mut timings = Timings::default();
    let loaded = timings.measure("front end", || super::load(&args.graph, &args.codegen.source))?;
    super::warn(&loaded.warnings, &loaded.sources);
    let graph = driver::select_entries(&loaded.graph, &args.entries)?;
    let mut artifacts: Vec<Artifact> = args.emit.iter().map(|k| (*k).into()).collect();
    // A library is of no use without its header.
    let library =
        artifacts.iter().any(|a| matches!(a, Artifact::StaticLibrary | Artifact::SharedLibrary));
    if library && args.output.is_none() && !artifacts.contains(&Artifact::Header) {
        artifacts.push(Artifact::Header);
    }
    artifacts.sort();
    artifacts.dedup();
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    let destinations = destinations(&artifacts, args.output.as_deref(), stem(args, &graph.name));
    if !to_stdout {
        // Before anything is computed, and long before anything is written.
        let sources = source_files(&args.graph, &loaded.sources);
        for (_, path) in &destinations {
            check_destination(path, &sources, args.output.is_some().then_some("-o"))?;
        }
    }
    let replicas = artifacts.contains(&Artifact::Executable);
    let mut options = super::options(&args.codegen)?.replicas(replicas);
    if for_gpus(args) {
        options = options.device(driver::Device::Cuda(0));
    }
    let mut compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    // Checkpoints are the whole graph's, whichever entries are compiled.
    compiled.program.plan.graph_hash = driver::graph_hash(&loaded.graph);

    let prefix = prefix(args, &artifacts, &graph.name)?;
    let emitter = Emitter {
        program: &compiled.program,
        graph: &compiled.graph,
        link: LinkOptions {
            linker: args.linker.clone(),
            symbols: args.symbols,
            fixed: args.fixed,
            target: target(args, &artifacts)?,
            ..LinkOptions::default()
        },
        prefix: &prefix,
        cpu: args.cpu.into(),
        gpus: for_gpus(args).then(|| args.gpu_arch.clone()),
    };
    let asks = |d: &tfc_abi::plan::Device| d.kind == tfc_abi::plan::DeviceKind::Cuda;
    if emitter.gpus.is_none() && compiled.program.plan.asked.iter().any(asks) {
        super::tell(
            "note: parts of the graph are placed on GPUs, and this is for the CPU alone: \
             `--target cuda` adds code for them\n",
        );
    }
    if to_stdout {
        return print_artifacts(&emitter, &artifacts);
    }
    for (artifact, path) in destinations {
        emitter.write(artifact, &path, &mut timings)?;
    }
    if args.codegen.timings {
        super::tell(&timings.table());
    }
    Ok(String::new().into())
}

fn print_artifacts(emitter: &Emitter<'_>, artifacts: &[Artifact]) -> Result<Done> {
    let mut text = String::new();
    for artifact in artifacts {
        if !artifact.is_text() {
            let diag = Diag::error("E0903", "only text can be written to standard output")
                .help("give a file: `-o PATH`");
            return Err(diag.into());
        }
        text.push_str(&String::from_utf8_lossy(&emitter.bytes(*artifact)?));
    }
    Ok(text.into())
}

/// The target that is beside the CPU.
const CUDA: &str = "cuda";

/// Whether there is to be code for GPUs.
fn for_gpus(args: &args::Compile) -> bool {
    !args.gpu_arch.is_empty() || args.target.iter().flat_map(|t| t.split(',')).any(|t| t == CUDA)
}

/// The machine to make programs for.
fn target(args: &args::Compile, artifacts: &[Artifact]) -> Result<Target> {
    if args.fixed && artifacts.contains(&Artifact::SharedLibrary) {
        let diag = Diag::error("E0914", "`--static` does not go with a shared library")
            .help("leave out one of them: `--static` is for executables");
        return Err(diag.into());
    }
    let triple = args.target.iter().flat_map(|t| t.split(',')).find(|t| *t != CUDA);
    match triple {
        // Text is the same for all, and needs no runtime.
        Some(triple) if artifacts.iter().any(|a| !a.is_text()) => Target::named(triple),
        _ => Ok(Target::host()),
    }
}

/// Prefix of the C names, where the outputs have such: as asked for, or the name
/// of the output without what marks it as a library.
fn prefix(args: &args::Compile, artifacts: &[Artifact], graph: &str) -> Result<String> {
    if !artifacts.iter().any(|a| a.has_names()) {
        return Ok(String::new());
    }
    let output = args.output.as_deref().filter(|o| *o != Path::new("-"));
    let stem = match output.and_then(Path::file_stem) {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => stem(args, graph).to_string_lossy().into_owned(),
    };
    let library = matches!(artifacts, [Artifact::StaticLibrary | Artifact::SharedLibrary]);
    let stem = stem.strip_prefix("lib").filter(|s| library && !s.is_empty()).unwrap_or(&stem);
    header::prefix(args.prefix.as_deref(), stem)
}

/// Name of the outputs: that of the file, or of the graph read from a pipe.
fn stem(args: &args::Compile, graph: &str) -> OsString {
    let from_stdin = args.graph.as_os_str() == "-";
    let stem = args.graph.file_stem().filter(|_| !from_stdin);
    stem.map_or_else(|| graph.into(), OsString::from)
}

/// Refuses to write over a graph that was read, by whatever name, or a directory. `option`
/// is what named the file, if the user did.
pub(super) fn check_destination(
    out: &Path,
    sources: &[PathBuf],
    option: Option<&str>,
) -> Result<()> {
    let shown = out.display();
    if out.is_dir() {
        let diag = Diag::error("E0803", format!("cannot write `{shown}`: it is a directory"));
        let (option, inside) = (option.unwrap_or("-o"), out.join("model"));
        let help = format!("name a file in it: `{option} {}`", inside.display());
        return Err(diag.help(help).into());
    }
    let Some(source) = sources.iter().find(|source| same_file(source, out)) else {
        return Ok(());
    };
    let source = source.display();
    let diag = match option {
        None => Diag::error("E0463", format!("the program would overwrite its source `{source}`"))
            .help("say where the program goes: `-o PATH`"),
        Some(option) => {
            let message = format!("`{option} {shown}` would overwrite the source `{source}`");
            Diag::error("E0463", message).help("choose another name for what is written")
        }
    };
    Err(diag.into())
}

/// Whether two paths lead to one file, through links of either kind.
fn same_file(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        match (a.metadata(), b.metadata()) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        }
    }
    #[cfg(not(unix))]
    {
        matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
    }
}
