//! `tfc opt`: the graph after each pass.

use super::{Done, args};
use crate::driver;
use crate::error::{Error, Result};
use std::fmt::Write;
use tfc_ir::diag::Diag;
use tfc_passes::egraph::{explain, rules};
use tfc_passes::pipeline::{self, Details, PASSES, Pass};

pub fn run(args: &args::Opt) -> Result<Done> {
    let Some(path) = args.graph.as_deref().filter(|_| !args.list) else { return Ok(list().into()) };
    let loaded = super::load(path, &args.codegen.source)?;
    super::warn(&loaded.warnings, &loaded.sources);
    let options = super::options(&args.codegen)?;
    let passes: Vec<&Pass> = match args.passes.is_empty() {
        true => driver::passes(&options),
        false => args.passes.iter().map(|name| find(name)).collect::<Result<_>>()?,
    };
    let mut settings = driver::settings(&loaded.sources, &options);
    settings.egraph.explain = args.explain.is_some();
    settings.egraph.disabled = args.without.iter().map(|r| rule(r)).collect::<Result<_>>()?;
    let mut timings = driver::Timings::default();
    let mut out = String::new();
    let graph = pipeline::run_each(loaded.graph, &passes, &settings, &mut |ran, graph| {
        timings.pass(ran);
        if let (Some(format), Details::Egraph(report)) = (args.explain, &ran.details) {
            out.push_str(&match format {
                args::ExplainFormat::Text => explain::text(&report.explanations, &loaded.sources),
                args::ExplainFormat::Json => explain::json(&report.explanations, &loaded.sources),
            });
        }
        if let (Some(_), Details::Placed(reasons)) = (args.explain, &ran.details) {
            out.extend(reasons.iter().map(|r| format!("{r}\n")));
        }
        if !args.last && args.explain.is_none() {
            let changed = if ran.changed { "" } else { " (changed nothing)" };
            let _ = writeln!(out, "// after {}{changed}", ran.name);
            if ran.changed {
                let _ = writeln!(out, "{}", tfc_ir::text::print(graph));
            }
        }
    })
    .map_err(|diags| Error::new(diags, loaded.sources.clone()))?;
    if args.last && args.explain.is_none() {
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

/// A rewrite rule by name.
fn rule(name: &str) -> Result<String> {
    let name = name.trim();
    let names = || rules::table().iter().map(|r| r.name.as_str());
    if names().any(|n| n == name) {
        return Ok(name.to_string());
    }
    let diag = Diag::error("E0902", format!("there is no rewrite rule `{name}`"));
    Err(match crate::nearest(name, names()) {
        Some(near) => diag.help(format!("did you mean `{near}`?")),
        None => diag.help("`tfc opt GRAPH --explain` shows the rules that were used"),
    }
    .into())
}

fn list() -> String {
    let width = PASSES.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for pass in PASSES {
        let _ = writeln!(out, "{:width$}  {}", pass.name, pass.description);
    }
    out
}
