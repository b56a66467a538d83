//! `tfc opt`: the graph after each pass.

use super::{Done, args};
use crate::driver;
use crate::error::{Error, Result};
use std::fmt::Write;
use tfc_ir::diag::Diag;
use tfc_passes::pipeline::{self, PASSES, Pass};

pub fn run(args: &args::Opt) -> Result<Done> {
    let Some(path) = args.graph.as_deref().filter(|_| !args.list) else { return Ok(list().into()) };
    let loaded = super::load(path, &args.codegen.source)?;
    super::warn(&loaded.warnings, &loaded.sources);
    let passes: Vec<&Pass> = if args.passes.is_empty() {
        PASSES.iter().collect()
    } else {
        args.passes.iter().map(|name| find(name)).collect::<Result<_>>()?
    };
    let options = super::options(&args.codegen);
    let settings = driver::settings(&loaded.sources, &options);
    let mut timings = driver::Timings::default();
    let mut out = String::new();
    let graph = pipeline::run_each(loaded.graph, &passes, &settings, &mut |ran, graph| {
        timings.add(ran.name, ran.time);
        if !args.last {
            let changed = if ran.changed { "" } else { " (changed nothing)" };
            let _ = writeln!(out, "// after {}{changed}", ran.name);
            if ran.changed {
                let _ = writeln!(out, "{}", tfc_ir::text::print(graph));
            }
        }
    })
    .map_err(|diags| Error::new(diags, loaded.sources))?;
    if args.last {
        out = tfc_ir::text::print(&graph);
    }
    if args.codegen.timings {
        eprint!("{}", timings.table());
    }
    Ok(out.into())
}

fn find(name: &str) -> Result<&'static Pass> {
    PASSES.iter().find(|p| p.name == name.trim()).ok_or_else(|| {
        let names = || PASSES.iter().map(|p| p.name);
        let diag = Diag::error("E0902", format!("there is no pass `{name}`"));
        match crate::nearest(name, names()) {
            Some(near) => diag.help(format!("did you mean `{near}`?")),
            None => diag.note(format!("the passes are {}", crate::names(names()))),
        }
        .into()
    })
}

fn list() -> String {
    let width = PASSES.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for pass in PASSES {
        let _ = writeln!(out, "{:width$}  {}", pass.name, pass.description);
    }
    out
}
