//! `tfc gradcheck`: every gradient of a graph against finite differences.

use super::{Done, args, bench};
use crate::error::{Exit, Result};
use crate::gradcheck::{self, GradcheckOptions};
use crate::value;
use std::collections::BTreeMap;
use tfc_ir::diag::Diag;
use tfc_ir::{Graph, Tensor};

pub fn run(args: &args::Gradcheck) -> Result<Done> {
    let loaded = super::load(&args.graph, &args.source)?;
    super::warn(&loaded.warnings, &loaded.sources);
    let options = GradcheckOptions {
        entry: args.entry.clone(),
        dims: bench::parse_dims(&args.dims)?,
        feeds: feeds(&loaded.graph, &args.feeds)?,
        samples: args.samples,
        tolerance: args.tolerance,
        seed: args.seed,
    };
    let report = gradcheck::check(&loaded.graph, &loaded.sources, &options)?;
    if report.rows.is_empty() && report.unchecked.is_empty() {
        let diag = Diag::error("E0334", format!("`{}` takes no gradients", loaded.graph.name))
            .help(
                "`grad(y, wrt: x)` and `minimize` take gradients; there is nothing else to check",
            );
        return Err(diag.into());
    }
    let text = if args.json { report.json() } else { report.table() };
    Ok(Done { text, code: if report.ok() { 0 } else { Exit::Graph as u8 } })
}

/// `NAME=VALUE`, as programs take them; the element type is the parameter's.
fn feeds(graph: &Graph, given: &[String]) -> Result<BTreeMap<String, Tensor>> {
    let mut out = BTreeMap::new();
    for text in given {
        let Some((name, value)) = text.split_once('=') else {
            let message = format!("`--feed {text}` is not of the form NAME=VALUE");
            return Err(Diag::error("E0914", message).help("for example `--feed x=x.npy`").into());
        };
        let name = name.trim();
        let ty = graph.entries.iter().find_map(|e| {
            let named = |p: &&tfc_ir::ValueId| e.values[**p].name.as_deref() == Some(name);
            e.params().iter().find(named).map(|p| e.ty(*p).clone())
        });
        // A name nothing has is told by the check itself.
        let dtype = ty.map_or(tfc_ir::DType::F32, |t| t.dtype);
        let buf = tfc_runtime::io::feed(name, dtype, value)?;
        out.insert(name.to_string(), value::tensor_of(&buf));
    }
    Ok(out)
}
