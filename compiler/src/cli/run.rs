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
use tfc_ir::diag::{Diag, SourceMap};
use tfc_ir::program::Program;
use tfc_ir::{Func, Graph, ValueId};
use tfc_runtime::Model;
use tfc_runtime::cli::Console;

pub fn run(args: &args::Run, json: bool) -> Result<Done> {
    let mut timings = Timings::default();
    let mut source = args.codegen.source.clone();
    let (lets, rest) = take("--let", &args.args)?;
    source.lets.extend(lets);
    // Both the compiler's and the program's.
    let (sandboxes, mut rest) = take("--sandbox", &rest)?;
    if let Some(dir) = sandboxes.last() {
        source.sandbox = Some(dir.into());
    }
    if let Some(dir) = &source.sandbox {
        rest.push(format!("--sandbox={}", dir.display()));
    }
    let loaded = timings.measure("front end", || super::load(&args.graph, &source))?;
    super::warn(&loaded.warnings, &loaded.sources);
    let (graph, mut rest) = restrict(&loaded.graph, &rest)?;
    // `tfc --message-format json run ..` means the program, too.
    if json {
        rest.splice(0..0, ["--message-format".to_string(), "json".to_string()]);
    }
    let mut options = super::options(&args.codegen)?;
    if let Ok(line) = tfc_runtime::cli::args::parse(&rest) {
        options.device = line.device.into();
    }
    let mut compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    // The program is a part of the file's graph; its checkpoints are the whole's.
    compiled.program.plan.graph_hash = driver::graph_hash(&loaded.graph);
    if args.codegen.timings {
        super::tell(&timings.table());
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

    fn load(&self, options: tfc_runtime::ModelOptions) -> tfc_runtime::Result<Model> {
        module::load(&self.0, options)
    }

    fn jobs(&self) -> Option<&'static tfc_runtime::cli::jobs::Jobs> {
        Some(&tfc_runtime::cli::jobs::TFC_JOBS)
    }
}

/// The graph the command line asks for, and the rest of the command line.
fn restrict(graph: &Graph, args: &[String]) -> Result<(Graph, Vec<String>)> {
    let (fetches, rest) = take("--fetch", args)?;
    let fetches: Vec<String> =
        fetches.iter().flat_map(|f| f.split(',')).map(str::to_string).collect();
    // A line the program does not understand, it says so itself.
    let Ok(line) = tfc_runtime::cli::args::parse(&rest) else { return Ok((graph.clone(), rest)) };
    let Some(name) = entry_of(graph, &line.words) else {
        if let Some(fetch) = fetches.first() {
            let diag = Diag::error("E0903", format!("`--fetch {fetch}` needs an entry"))
                .help("name the entry the node is in: `tfc run GRAPH ENTRY --fetch NAME`");
            return Err(diag.into());
        }
        return Ok((graph.clone(), rest));
    };
    let Some(entry) = graph.entries.iter().find(|e| e.name == name && !e.runner) else {
        return Err(driver::no_entry(graph, &name).into());
    };
    let params = param_names(entry);
    let inner: Vec<String> =
        line.feeds.iter().map(|(f, _)| f.clone()).filter(|f| !params.contains(f)).collect();
    // Only the entry that runs is compiled.
    let mut cut = driver::select_entries(graph, std::slice::from_ref(&name))?;
    if fetches.is_empty() && inner.is_empty() {
        return Ok((cut, rest));
    }
    cut = tfc_passes::restrict(&cut, &name, &fetches, &inner)
        .map_err(|diags| Error::new(diags, SourceMap::default()))?;
    // A feed of the entry that is not needed any more is no mistake: the line is
    // the one that runs all of it, and a fetch more.
    let left: Vec<String> =
        cut.entries.iter().find(|e| e.name == name).map(param_names).unwrap_or_default();
    let surplus: Vec<&String> = params.iter().filter(|p| !left.contains(p)).collect();
    let rest = without_feeds(rest, &surplus);
    Ok((cut, rest))
}

fn param_names(entry: &Func) -> Vec<String> {
    let name = |p: &ValueId| entry.values[*p].name.as_deref().map(str::to_string);
    entry.params().iter().filter_map(name).collect()
}

/// The entry a line is about, as the program will see it: after `bench`, which
/// is no entry, and the only one if none is named.
fn entry_of(graph: &Graph, words: &[String]) -> Option<String> {
    let mut callable = graph.entries.iter().filter(|e| !e.runner);
    let mut words = words.iter();
    let word = words.next();
    match word {
        Some(w) if w == "bench" && !callable.clone().any(|e| e.name == *w) => words.next().cloned(),
        Some(w) => Some(w.clone()),
        None => match (callable.next(), callable.next()) {
            (Some(only), None) => Some(only.name.clone()),
            _ => None,
        },
    }
}

/// The line without `--feed NAME=..` of these names.
fn without_feeds(args: Vec<String>, names: &[&String]) -> Vec<String> {
    let is_of =
        |value: &str| value.split_once('=').is_some_and(|(n, _)| names.iter().any(|s| *s == n));
    let mut out = vec![];
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--feed" {
            match args.next() {
                Some(value) if is_of(&value) => {}
                value => out.extend(std::iter::once(arg).chain(value)),
            }
        } else if !arg.strip_prefix("--feed=").is_some_and(is_of) {
            out.push(arg);
        }
    }
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn fetches_and_surplus_feeds_are_taken_out() {
        let args = words("predict --feed x=a.npy --fetch h --feed=z=[1,2] --fetch=p,q --json");
        let (fetches, rest) = take("--fetch", &args).unwrap();
        assert_eq!(fetches, ["h", "p,q"]);
        assert_eq!(rest, words("predict --feed x=a.npy --feed=z=[1,2] --json"));
        let z = "z".to_string();
        assert_eq!(without_feeds(rest, &[&z]), words("predict --feed x=a.npy --json"));
        assert!(take("--fetch", &words("predict --fetch")).is_err());
    }
}
