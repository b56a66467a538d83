//! `tfc bench`: how fast the entries of a graph run on generated data. Measured
//! and reported as by a program's own `bench`.

use super::{Done, args};
use crate::driver::{self, Compiled, Device, Options, Timings};
use crate::error::Result;
use crate::estimate;
pub(super) use crate::estimate::{dims, known_dims};
use crate::module::Module;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use tfc_abi::plan::{Entry, Plan};
use tfc_ir::diag::Diag;
use tfc_runtime::cli::bench::{Effort, Times, human, measure, profiled_calls};
use tfc_runtime::io::json::quote;
use tfc_runtime::profile::Profile;
use tfc_runtime::queue::runners::Runners;
use tfc_runtime::{CallOptions, Choice, FeedView, TensorBuf};

pub fn run(args: &args::Bench, json: bool) -> Result<Done> {
    let mut timings = Timings::default();
    let loaded = timings.measure("front end", || super::load(&args.graph, &args.codegen.source))?;
    super::keep_sources(&args.graph, &loaded, "--trace", args.trace.as_deref())?;
    let names: Vec<String> = args.entry.iter().cloned().collect();
    let graph = driver::select_entries(&loaded.graph, &names)?;
    let threads = match args.threads {
        None => tfc_runtime::cli::args::threads_from_outside()?,
        given => given,
    };
    let device = args.device.map_or(Device::Cpu, Device::from);
    let options = Options { threads, device, ..super::options(&args.codegen)? };
    let compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    if let Some(sheet) = args.estimate {
        return estimated(args, &compiled, sheet, json);
    }
    let module = timings.measure("codegen", || Module::from_compiled(&compiled, &options))?;
    if let Some(why) = module.instead().filter(|_| args.device.is_none()) {
        super::tell(&format!("this runs on the CPU: {why}\n"));
    }
    // A wait that nobody could end is an error, as in a program.
    module.model().queues().use_alone();
    let plan = module.model().plan();
    let given = parse_dims(&args.dims)?;
    let dims = dims(plan, &given)?;
    let mut out = String::new();
    if !json {
        let _ = writeln!(
            out,
            "{:<16} {:>12} {:>12} {:>12} {:>12}",
            "entry", "min", "median", "mean", "calls/s"
        );
    }
    let calls = args.calls.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let effort = Effort { time: args.time, calls, warmup: args.warmup };
    let threads = module.model().pool().threads();
    let profile = Arc::new(Profile::new());
    let by_step = CallOptions::new().profile(&profile);
    let mut calls_by_step = 0;
    for (index, entry) in module.model().entries() {
        let feeds = feeds(entry, plan, &dims)?;
        let views: Vec<FeedView<'_>> = feeds.iter().map(TensorBuf::view).collect();
        let runners = Runners::start(module.model(), index)?;
        let times = measure(effort, || module.model().call(index, &views).map(|_| ()))?;
        if args.by_step || args.trace.is_some() {
            calls_by_step += profiled_calls(&times);
            for _ in 0..profiled_calls(&times) {
                module.model().call_with(index, &views, &by_step)?;
            }
        }
        runners.finish()?;
        let line = if json {
            let sizes = plan.dims.iter().zip(&dims);
            let sizes: Vec<String> =
                sizes.map(|(d, n)| format!("{}:{n}", quote(&d.name))).collect();
            times.json(&entry.name, threads, &[("dims", format!("{{{}}}", sizes.join(",")))])
        } else {
            row(&entry.name, &times)
        };
        let _ = writeln!(out, "{line}");
    }
    if args.by_step && !json {
        // What the CPU can do says nothing about a GPU.
        let cpu = device == Device::Cpu;
        let peaks = cpu.then(|| tfc_runtime::peaks::measure(module.model().pool()));
        out += &profile.table(calls_by_step, peaks);
    }
    if let Some(path) = &args.trace {
        let text = profile.trace();
        tfc_runtime::files::replace(path, |f| f.write_all(text.as_bytes()))?;
    }
    if args.codegen.timings {
        super::tell(&timings.table());
    }
    Ok(out.into())
}

/// What the data sheet of a GPU promises.
fn estimated(
    args: &args::Bench,
    compiled: &Compiled,
    sheet: &estimate::Sheet,
    json: bool,
) -> Result<Done> {
    if args.device == Some(Choice::Cpu) {
        let message = "an estimate is of a GPU, not of the CPU";
        return Err(Diag::error("E0903", message)
            .help("leave out `--device cpu`, or `--estimate`")
            .into());
    }
    let entries = estimate::estimate(compiled, sheet, &parse_dims(&args.dims)?)?;
    let out = match json {
        true => estimate::json(&entries, sheet),
        false => estimate::text(&entries, sheet),
    };
    Ok(out.into())
}

/// `NAME=SIZE` pairs.
pub(super) fn parse_dims(given: &[String]) -> Result<BTreeMap<String, i64>> {
    let mut out = BTreeMap::new();
    for text in given {
        let parsed = text.split_once('=').and_then(|(name, size)| {
            let size: i64 = size.trim().parse().ok()?;
            (size >= 0).then(|| (name.trim().to_string(), size))
        });
        match parsed {
            Some((name, size)) => out.insert(name, size),
            None => {
                let message = format!("`--dim {text}` is not of the form NAME=SIZE");
                return Err(Diag::error("E0914", message).help("for example `--dim B=64`").into());
            }
        };
    }
    Ok(out)
}

/// Small numbers that keep every op in its ordinary range: floats in -1..1,
/// integers 0.
pub(super) fn feeds(entry: &Entry, plan: &Plan, dims: &[i64]) -> Result<Vec<TensorBuf>> {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut out = vec![];
    for port in &entry.params {
        let shape: Option<Vec<usize>> = port
            .shape
            .iter()
            .map(|id| {
                let size = entry.exprs.get(*id as usize)?.eval(dims)?;
                usize::try_from(size).ok()
            })
            .collect();
        let Some(shape) = shape else {
            let message = format!("the size of `{}` cannot be worked out", port.name);
            return Err(Diag::error("E0508", message)
                .note(format!("`{}` is {} in `{}`", port.name, port.text, plan.name))
                .help("give sizes that fit: `--dim NAME=SIZE`")
                .into());
        };
        let n: usize = shape.iter().product();
        let tensor = tfc_ir::Tensor::from_f64(
            port.dtype,
            shape.clone(),
            (0..n).map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let unit = (seed >> 40) as f64 / (1u64 << 24) as f64;
                if port.dtype.is_float() { unit * 2.0 - 1.0 } else { 0.0 }
            }),
        );
        match TensorBuf::from_bytes(port.dtype, &shape, tensor.bytes()) {
            Some(buf) => out.push(buf),
            None => return Err(crate::Error::bug("a feed has the wrong size")),
        }
    }
    Ok(out)
}

fn row(entry: &str, times: &Times) -> String {
    format!(
        "{entry:<16} {:>12} {:>12} {:>12} {:>12.0}",
        human(times.min()),
        human(times.median()),
        human(times.mean()),
        1.0 / times.mean().as_secs_f64().max(1e-12)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_are_parsed_or_refused() {
        assert_eq!(parse_dims(&["B=64".into()]).unwrap()["B"], 64);
        for bad in ["B", "B=x", "B=-1", "=", "B=9999999999999999999999"] {
            assert!(parse_dims(&[bad.to_string()]).is_err(), "{bad}");
        }
    }
}
