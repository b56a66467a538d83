//! `tfc simulate`: what training with many processes would come to, as a table and a
//! picture; and how far that is off runs on this machine.

use super::bench::{dims, feeds, parse_dims};
use super::{Done, args};
use crate::driver::{self, Options, Timings};
use crate::emit::{Artifact, Emitter};
use crate::error::Result;
use crate::link::{LinkOptions, TempDir};
use crate::module::Module;
use crate::simulate::{Job, Machine, Mode, Prediction, short, svg};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tfc_abi::plan::{Plan, Step};
use tfc_ir::Graph;
use tfc_ir::diag::Diag;
use tfc_runtime::cli::bench::{Effort, measure};
use tfc_runtime::net::{Group, job as jobs};
use tfc_runtime::{FeedView, TensorBuf};

/// Steps of a run that a prediction is compared with.
const STEPS: usize = 12;

pub fn run(args: &args::Simulate) -> Result<Done> {
    let mut timings = Timings::default();
    let loaded = super::load(&args.graph, &args.codegen.source)?;
    super::keep_sources(&args.graph, &loaded, "--svg", args.svg.as_deref())?;
    let options = Options { threads: Some(1), ..super::options(&args.codegen)? }.replicas(true);
    let entry = the_entry(&loaded.graph, args.entry.as_deref())?;
    let graph = driver::select_entries(&loaded.graph, std::slice::from_ref(&entry))?;
    let compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    let module = Module::from_compiled(&compiled, &options)?;
    let plan = module.model().plan();
    let index = module.model().entry(&entry)?;
    let Some(traffic) = Traffic::of(plan, index) else {
        let message = format!("`{entry}` averages no gradients");
        return Err(Diag::error("E0707", message)
            .help("name an entry with `minimize`: `--entry NAME`")
            .into());
    };
    let mut given = parse_dims(&args.dims)?;
    if let Some(dim) = module.model().batch_dim(index) {
        given.insert(plan.dims[dim as usize].name.clone(), args.batch as i64);
    }
    let dims = dims(plan, &given)?;
    let inputs = feeds(&plan.entries[index], plan, &dims)?;
    let compute = match args.step {
        Some(step) => step.as_secs_f64(),
        None => {
            let views: Vec<FeedView<'_>> = inputs.iter().map(TensorBuf::view).collect();
            let effort = Effort { time: Duration::from_millis(500), calls: None, warmup: 2 };
            let times = measure(effort, || module.model().call(index, &views).map(drop))?;
            times.median().as_secs_f64()
        }
    };
    let job = Job {
        mode: mode(args),
        servers: args.ps,
        compute,
        bytes: traffic.bytes,
        messages: traffic.messages,
        batch: args.batch,
        straggler: args.straggler,
    };
    let machine = Machine {
        bandwidth: args.net * 1e9,
        latency: args.latency * 1e-9,
        update: 4e9,
        cores: None,
    };
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: {:.3} ms of work on {} examples, {} of gradients in {} messages a step",
        entry,
        compute * 1e3,
        args.batch,
        bytes(traffic.bytes),
        traffic.messages
    );
    let rows: Vec<Prediction> =
        counts(args.workers).into_iter().map(|n| job.predict(&machine, n)).collect();
    table(&mut out, &rows);
    if args.check {
        check(&mut out, args, &job, &compiled, &entry, &inputs)?;
    }
    if let Some(path) = &args.svg {
        let title = format!("{} of {}, {:?}", entry, graph.name, args.mode).to_lowercase();
        let picture = svg(&title, &rows);
        tfc_runtime::files::replace(path, |out| out.write_all(picture.as_bytes()))?;
        let _ = writeln!(out, "the curve is in {}", path.display());
    }
    Ok(out.into())
}

fn the_entry(graph: &Graph, asked: Option<&str>) -> Result<String> {
    if let Some(name) = asked {
        return Ok(name.to_string());
    }
    let found = graph.entries.iter().find(|e| e.name == "train" && !e.runner);
    match found.or(graph.entries.iter().find(|e| !e.runner)) {
        Some(e) => Ok(e.name.clone()),
        None => Err(Diag::error("E0911", "the graph has no entry to train with").into()),
    }
}

fn mode(args: &args::Simulate) -> Mode {
    match args.mode {
        args::SimulatedMode::Sync => Mode::Sync,
        args::SimulatedMode::PsSync => Mode::PsSync,
        args::SimulatedMode::PsAsync => Mode::PsAsync,
        args::SimulatedMode::Backup => Mode::Backup { spare: args.spare },
        args::SimulatedMode::Average => Mode::Average { every: args.every },
    }
}

/// What the version of an entry for several processes exchanges in a step.
struct Traffic {
    bytes: f64,
    messages: usize,
}

impl Traffic {
    fn of(plan: &Plan, entry: usize) -> Option<Traffic> {
        let of = Some(entry as u32);
        let replica = plan.entries.iter().find(|e| e.replica_of == of)?;
        let (mut bytes, mut messages) = (0.0, 0);
        for step in &replica.steps {
            let Step::Exchange(x) = step else { continue };
            messages += 1;
            for b in &x.bufs {
                let buffer = &replica.buffers[*b as usize];
                let len = replica.exprs[buffer.len as usize].as_const().unwrap_or(0);
                bytes += len as f64 * buffer.dtype.size() as f64;
            }
        }
        (messages > 0).then_some(Traffic { bytes, messages })
    }
}

/// Ten rows or so from the first number to the last.
fn counts((first, last): (usize, usize)) -> Vec<usize> {
    if last - first < 12 {
        return (first..=last).collect();
    }
    let nice = [1usize, 2, 5].into_iter().flat_map(|d| (0..4).map(move |e| d * 10usize.pow(e)));
    let quarters = (1..4).map(|q| last * q / 4);
    let mut out: Vec<usize> =
        nice.chain(quarters).chain([first, last]).filter(|n| (first..=last).contains(n)).collect();
    out.sort_unstable();
    out.dedup();
    out
}

fn table(out: &mut String, rows: &[Prediction]) {
    let _ = writeln!(
        out,
        "{:>8} {:>12} {:>12} {:>14} {:>8}",
        "workers", "median", "90 %", "examples/s", "speedup"
    );
    let each = rows.first().map_or(1.0, |r| r.throughput / r.workers as f64);
    for r in rows {
        let _ = writeln!(
            out,
            "{:>8} {:>9.3} ms {:>9.3} ms {:>14} {:>8.1}",
            r.workers,
            r.median * 1e3,
            r.slow * 1e3,
            short(r.throughput),
            r.throughput / each
        );
    }
}

fn bytes(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n if n >= 1e3 => format!("{:.1} kB", n / 1e3),
        n => format!("{n:.0} bytes"),
    }
}

/// Runs of 1, 2 and 4 processes here, and what would have been predicted for them from
/// what this machine's loopback does.
fn check(
    out: &mut String,
    args: &args::Simulate,
    job: &Job,
    compiled: &driver::Compiled,
    entry: &str,
    inputs: &[TensorBuf],
) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (bandwidth, latency) = loopback(job.bytes.max(1e5) as usize)?;
    let here = Machine { bandwidth, latency, update: 4e9, cores: Some(cores) };
    // Whatever was asked for, the machine and its messages are the same: one mode is enough.
    let asked = job.mode;
    let job = Job { mode: Mode::Sync, straggler: None, ..*job };
    let dir = TempDir::new()?;
    let exe = dir.path().join("model");
    let emitter = Emitter {
        program: compiled.program(),
        graph: compiled.graph(),
        link: LinkOptions::default(),
        prefix: "model",
        cpu: tfc_codegen::Cpu::Portable,
        gpus: None,
    };
    emitter.write(Artifact::Executable, &exe, &mut Timings::default())?;
    let _ = writeln!(
        out,
        "\nruns on this machine{} ({cores} cores; loopback {} MB/s, {:.0} us):",
        if asked == Mode::Sync { "" } else { ", all in mode `sync`" },
        short(bandwidth / 1e6),
        latency * 1e6
    );
    let _ =
        writeln!(out, "{:>8} {:>12} {:>12} {:>8}", "workers", "predicted", "measured", "off by");
    for n in [1, 2, 4] {
        let predicted = job.predict(&here, n).median;
        let measured = launch(&exe, dir.path(), entry, args.batch, n, compiled, inputs)?;
        let _ = writeln!(
            out,
            "{n:>8} {:>9.3} ms {:>9.3} ms {:>7.0} %",
            predicted * 1e3,
            measured * 1e3,
            (predicted / measured - 1.0) * 100.0
        );
    }
    Ok(())
}

/// Seconds of a step of so many processes, the best of a few epochs.
fn launch(
    exe: &Path,
    dir: &Path,
    entry: &str,
    batch: usize,
    workers: usize,
    compiled: &driver::Compiled,
    inputs: &[TensorBuf],
) -> Result<f64> {
    let plan = &compiled.program().plan;
    let Some(e) = plan.entries.iter().find(|e| e.name == entry) else {
        return Err(crate::Error::bug("the entry is gone"));
    };
    let total = batch * workers;
    let mut command = Command::new(std::env::current_exe().map_err(io)?);
    command.args(["launch", "-n", &workers.to_string(), "--threads", "1"]).arg(exe).arg(entry);
    for (port, input) in e.params.iter().zip(inputs) {
        // As many examples as all steps of an epoch need: the same again and again.
        let path = dir.join(format!("{}.{workers}.npy", port.name));
        let copies = if port.shape.is_empty() { 1 } else { workers * STEPS };
        let mut shape = input.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first *= copies;
        }
        let bytes = input.bytes().repeat(copies);
        let Some(all) = TensorBuf::from_bytes(input.dtype, &shape, &bytes) else {
            return Err(crate::Error::bug("a feed has the wrong size"));
        };
        let mut file = std::fs::File::create(&path).map_err(io)?;
        tfc_runtime::io::npy::write(&mut file, &all).map_err(io)?;
        command.arg("--feed").arg(format!("{}={}", port.name, path.display()));
    }
    command.args(["--batch", &total.to_string(), "--epochs", "4", "--allow-nan"]);
    let output = command.stdin(Stdio::null()).output().map_err(io)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    // `.. N examples in S s (R examples/s)`, for each epoch.
    let rate = |line: &str| -> Option<f64> {
        let (_, rest) = line.split_once(" s (")?;
        rest.split_once(" examples/s")?.0.trim().parse().ok()
    };
    let best = said.lines().filter_map(rate).fold(0.0, f64::max);
    if !output.status.success() || best <= 0.0 {
        let last = said.lines().last().unwrap_or_default().to_string();
        return Err(Diag::error("E0705", format!("a run with {workers} processes failed"))
            .note(last)
            .into());
    }
    Ok(total as f64 / best)
}

fn io(e: std::io::Error) -> Diag {
    Diag::error("E0803", e.to_string())
}

/// What messages between two processes of this machine do: bytes in a second when both
/// send, and seconds for a small one.
fn loopback(len: usize) -> Result<(f64, f64)> {
    let port = super::launch::ports::Reserved::any().map_err(io)?;
    let at = port.address().to_string();
    let there = at.clone();
    let other = std::thread::spawn(move || {
        let group = Group::join(&jobs::Job::new(1, 2, there), &[0; 32])?;
        exchange(&group, len)
    });
    let group = Group::join(&jobs::Job::new(0, 2, at), &[0; 32])?;
    let mine = exchange(&group, len)?;
    other.join().map_err(|_| crate::Error::bug("a thread is gone"))??;
    Ok(mine)
}

fn exchange(group: &Group, len: usize) -> tfc_runtime::Result<(f64, f64)> {
    use tfc_runtime::net::collective::Reduce;
    let sum = |len: usize| -> tfc_runtime::Result<f64> {
        let mut data = vec![0u8; len.next_multiple_of(4)];
        let mut best = f64::MAX;
        for _ in 0..12 {
            let started = Instant::now();
            group.all_reduce(&mut [(tfc_abi::DType::F32, &mut data)], Reduce::Sum, "a test", "")?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok(best)
    };
    let small = sum(64)?;
    let large = sum(len)?;
    // Two processes pass on all bytes once, in two rounds.
    Ok((len as f64 / (large - small).max(1e-9), small / 2.0))
}
