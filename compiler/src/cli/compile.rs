//! `tfc compile`.

use super::{Done, args};
use crate::driver::{self, Timings};
use crate::emit::{Artifact, Emitter, destinations};
use crate::error::Result;
use crate::link::LinkOptions;
use std::path::Path;
use tfc_ir::diag::Diag;

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
            Kernels => Artifact::Kernels,
            Plan => Artifact::Plan,
            Clif => Artifact::Clif,
            Asm => Artifact::Asm,
        }
    }
}

pub fn run(args: &args::Compile) -> Result<Done> {
    let mut timings = Timings::default();
    let loaded = timings.measure("front end", || super::load(&args.graph, &args.codegen.source))?;
    super::warn(&loaded.warnings, &loaded.sources);
    let graph = driver::select_entries(&loaded.graph, &args.entries)?;
    let options = super::options(&args.codegen);
    let mut compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    // Checkpoints are the whole graph's, whichever entries are compiled.
    compiled.program.plan.graph_hash = driver::graph_hash(&loaded.graph);

    let mut artifacts: Vec<Artifact> = args.emit.iter().map(|k| (*k).into()).collect();
    // A library is of no use without its header.
    let library =
        artifacts.iter().any(|a| matches!(a, Artifact::StaticLibrary | Artifact::SharedLibrary));
    if library && args.output.is_none() && !artifacts.contains(&Artifact::Header) {
        artifacts.push(Artifact::Header);
    }
    artifacts.sort();
    artifacts.dedup();

    let graph_text = tfc_ir::text::print(&compiled.graph);
    let emitter = Emitter {
        program: &compiled.program,
        graph_text: &graph_text,
        link: LinkOptions { linker: args.linker.clone(), symbols: args.symbols, exports: vec![] },
    };
    if args.output.as_deref() == Some(Path::new("-")) {
        return to_stdout(&emitter, &artifacts);
    }
    for (artifact, path) in
        destinations(&artifacts, args.output.as_deref(), &stem(args, &graph.name))
    {
        emitter.write(artifact, &path, &mut timings)?;
    }
    if args.codegen.timings {
        super::tell(&timings.table());
    }
    Ok(String::new().into())
}

fn to_stdout(emitter: &Emitter<'_>, artifacts: &[Artifact]) -> Result<Done> {
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

/// Name of the outputs: that of the file, or of the graph read from a pipe.
fn stem(args: &args::Compile, graph: &str) -> String {
    let from_stdin = args.graph.as_os_str() == "-";
    let stem = args.graph.file_stem().filter(|_| !from_stdin);
    stem.map_or_else(|| graph.to_string(), |s| s.to_string_lossy().into_owned())
}
