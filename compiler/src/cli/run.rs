//! `tfc run`: compile in memory, then be the program.
//!
//! Everything after the graph file is the program's own command line, handled by
//! the code that handles it in an executable. Only three things are taken out of
//! it: `--let NAME=..`, `--fetch NAME`, and `--feed NAME=..` of a node that is no
//! parameter. The latter two cut the graph down to what the fetched nodes need
//! from the fed ones.

use super::{Done, args};
use crate::driver::{self, Timings};
use crate::error::{Error, Result};
use crate::module;
use std::io::IsTerminal;
use tfc_abi::plan::Plan;
use tfc_ir::Graph;
use tfc_ir::diag::{Diag, SourceMap};
use tfc_ir::program::Program;
use tfc_runtime::Model;
use tfc_runtime::cli::Console;

pub fn run(args: &args::Run) -> Result<Done> {
    let mut timings = Timings::default();
    let mut source = args.codegen.source.clone();
    let (lets, rest) = take("--let", &args.args)?;
    source.lets.extend(lets);
    let loaded = timings.measure("front end", || super::load(&args.graph, &source))?;
    super::warn(&loaded.warnings, &loaded.sources);
    let (graph, rest) = restrict(&loaded.graph, &rest)?;
    let options = super::options(&args.codegen);
    let mut compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    // The program is a part of the file's graph; its checkpoints are the whole's.
    compiled.program.plan.graph_hash = driver::graph_hash(&loaded.graph);
    if args.codegen.timings {
        eprint!("{}", timings.table());
    }
    let name = format!("tfc run {}", args.graph.display());
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let terminal = err.is_terminal();
    let mut console = Console { out: &mut out, err: &mut err, terminal };
    let code = tfc_runtime::cli::main(&InMemory(compiled.program), &name, &rest, &mut console);
    Ok(Done { text: String::new(), code: u8::try_from(code).unwrap_or(101) })
}

/// A program whose code is generated when it is first needed: `--help` needs
/// none.
struct InMemory(Program);

impl tfc_runtime::cli::Program for InMemory {
    fn plan(&self) -> tfc_runtime::Result<Plan> {
        Ok(self.0.plan.clone())
    }

    fn load(&self, options: tfc_runtime::Options) -> tfc_runtime::Result<Model> {
        module::load(&self.0, options)
    }
}

/// The graph the command line asks for, and the rest of the command line.
fn restrict(graph: &Graph, args: &[String]) -> Result<(Graph, Vec<String>)> {
    let (fetches, rest) = take("--fetch", args)?;
    let fetches: Vec<String> =
        fetches.iter().flat_map(|f| f.split(',')).map(str::to_string).collect();
    let Some(name) = rest.first().filter(|a| !a.starts_with('-')) else {
        if let Some(fetch) = fetches.first() {
            let diag = Diag::error("E0903", format!("`--fetch {fetch}` needs an entry"))
                .help("name the entry the node is in: `tfc run GRAPH ENTRY --fetch NAME`");
            return Err(diag.into());
        }
        return Ok((graph.clone(), rest));
    };
    let Some(entry) = graph.entries.iter().find(|e| e.name == *name && !e.runner) else {
        return Err(driver::no_entry(graph, name).into());
    };
    let params: Vec<&str> =
        entry.params().iter().filter_map(|p| entry.values[*p].name.as_deref()).collect();
    let feeds = fed(&rest);
    let inner: Vec<String> =
        feeds.iter().filter(|f| !params.contains(&f.as_str())).cloned().collect();
    // Only the entry that runs is compiled.
    let mut graph = driver::select_entries(graph, std::slice::from_ref(name))?;
    if !fetches.is_empty() || !inner.is_empty() {
        graph = tfc_passes::restrict(&graph, name, &fetches, &inner)
            .map_err(|diags| Error::new(diags, SourceMap::default()))?;
    }
    Ok((graph, rest))
}

/// Takes `OPTION VALUE` and `OPTION=VALUE` out: the values, and the rest.
fn take(option: &str, args: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let (mut values, mut rest) = (vec![], vec![]);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == option {
            match args.next() {
                Some(value) => values.push(value.clone()),
                None => {
                    return Err(Diag::error("E0913", format!("`{option}` needs a value")).into());
                }
            }
        } else if let Some(value) = arg.strip_prefix(option).and_then(|v| v.strip_prefix('=')) {
            values.push(value.to_string());
        } else {
            rest.push(arg.clone());
        }
    }
    Ok((values, rest))
}

/// Names of the feeds on a program's command line.
fn fed(args: &[String]) -> Vec<String> {
    let mut out = vec![];
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = match arg.as_str() {
            "--feed" => args.next().map(String::as_str),
            other => other.strip_prefix("--feed="),
        };
        if let Some((name, _)) = value.and_then(|v| v.split_once('=')) {
            out.push(name.trim().to_string());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn fetches_are_taken_out_and_feeds_seen() {
        let args = words("predict --feed x=a.npy --fetch h --feed=z=[1,2] --fetch=p,q --json");
        let (fetches, rest) = take("--fetch", &args).unwrap();
        assert_eq!(fetches, ["h", "p,q"]);
        assert_eq!(rest, words("predict --feed x=a.npy --feed=z=[1,2] --json"));
        assert_eq!(fed(&rest), ["x", "z"]);
        assert!(take("--fetch", &words("predict --fetch")).is_err());
    }
}
