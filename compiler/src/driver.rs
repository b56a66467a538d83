//! From a resolved graph to a lowered program: the one place that calls the
//! passes, times them, and turns their findings into errors.

use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tfc_ir::Graph;
use tfc_ir::diag::{Diag, SourceMap};
use tfc_ir::program::Program;
pub use tfc_passes::cluster::Cluster;
use tfc_passes::egraph::{self, FloatMode};
use tfc_passes::pipeline::{self, Details, PASSES, Pass, PassOptions};
use tfc_passes::recompute;
use tfc_runtime::Print;

/// How to compile, and how to run what was compiled in memory.
///
/// ```
/// use tfc::{Math, Options};
/// let options = Options::new().math(Math::Fast).threads(2);
/// assert_eq!(options.threads, Some(2));
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// Which float rewrites are allowed.
    pub math: Math,
    /// Lower the graph as written.
    pub no_opt: bool,
    /// Bytes that the gradient of a loop may keep of its iterations at a time; above
    /// that, iterations are computed again in the backward pass. All are kept if none.
    pub loop_memory: Option<u64>,
    /// Bytes that the variables and the working memory of a call may take together: more
    /// is error E0594, when the graph is compiled or, where run-time dims have a part in
    /// it, when an entry is called. Any number if none.
    pub max_memory: Option<u64>,
    /// Compute the forward pass of training steps again in the backward pass to save memory;
    /// see [`Options::recompute`].
    pub recompute: bool,
    /// Threads of a module's own; the process's pool (`TFC_THREADS`, or every CPU)
    /// if none.
    pub threads: Option<usize>,
    /// Gets what the graph prints, a line at a time; standard error if none.
    pub print: Option<Print>,
    /// Do not check indices: those out of range are clamped to the nearest entry,
    /// or dropped, as the op can. Updates of rows are checked all the same.
    pub unchecked: bool,
    /// Check every result, and name the first op that makes a NaN, or an infinity
    /// from finite numbers. The graph is lowered as written, and slow.
    pub check_numerics: bool,
    /// Refuse what the graph reads or writes outside of this directory when it runs;
    /// see [`Options::sandbox`].
    pub sandbox: Option<PathBuf>,
    /// Also compile the versions of entries that several processes run together; see
    /// [`Module::join`](crate::Module::join). Executables have them.
    pub replicas: bool,
    /// Leave variables zero: see [`Options::bare`].
    pub bare: bool,
    /// What to run on.
    pub device: Device,
    /// On GPUs, multiply f32 rounded to TF32; see [`Options::tf32`].
    pub tf32: bool,
    /// The tasks to cut the program for; see [`Options::cluster`].
    pub cluster: Option<Cluster>,
}

/// What a module runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its number. The CPU does what only it can do: files, queues,
    /// what the graph prints.
    Cuda(u32),
}

impl From<tfc_runtime::Choice> for Device {
    fn from(choice: tfc_runtime::Choice) -> Device {
        match choice {
            tfc_runtime::Choice::Any | tfc_runtime::Choice::Cpu => Device::Cpu,
            tfc_runtime::Choice::Gpu => Device::Cuda(0),
            tfc_runtime::Choice::Cuda(number) => Device::Cuda(number),
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Says which float rewrites are allowed.
    #[must_use]
    pub fn math(mut self, math: Math) -> Options {
        self.math = math;
        self
    }

    /// Lowers the graph as written, or not.
    #[must_use]
    pub fn no_opt(mut self, no_opt: bool) -> Options {
        self.no_opt = no_opt;
        self
    }

    /// Limits what the gradient of a loop may keep.
    #[must_use]
    pub fn loop_memory(mut self, bytes: u64) -> Options {
        self.loop_memory = Some(bytes);
        self
    }

    /// Limits what the variables and the working memory of a call take together.
    #[must_use]
    pub fn max_memory(mut self, bytes: u64) -> Options {
        self.max_memory = Some(bytes);
        self
    }

    /// Saves memory in training steps, or not: what the backward pass needs of the forward
    /// pass is kept in part, and the rest computed a second time, piece by piece, with the
    /// same results. A step takes at most one more forward pass. With
    /// [`Options::max_memory`], no more is computed again than it takes to keep to it, which
    /// may be nothing.
    ///
    /// ```
    /// let graph = tfc::parse(
    ///     "graph g\nuse optim\nuse layer\ndim B\n\
    ///      model net(x: f32[B, 64]) -> f32[B, 64] {\n\
    ///        h = x\n\
    ///        for i in 0..12 { h = tanh(layer.dense(h, units: 64)) }\n\
    ///        return h\n\
    ///      }\n\
    ///      entry train(x: f32[B, 64]) -> (loss: f32[]) {\n\
    ///        loss = mean((net(x) - x) ** 2)\n\
    ///        minimize loss with optim.sgd(lr: 0.1)\n\
    ///        return loss\n\
    ///      }",
    /// )?;
    /// let module = tfc::compile_with(&graph, &tfc::Options::new().recompute(true))?;
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[must_use]
    pub fn recompute(mut self, recompute: bool) -> Options {
        self.recompute = recompute;
        self
    }

    /// Leaves out checks of indices, or not.
    #[must_use]
    pub fn unchecked(mut self, unchecked: bool) -> Options {
        self.unchecked = unchecked;
        self
    }

    /// Checks every result for NaN and infinities, or not.
    ///
    /// ```
    /// let graph = tfc::parse("graph g\nentry f(x: f32[2]) -> (y: f32[2]) { return log(x) }")?;
    /// let module = tfc::compile_with(&graph, &tfc::Options::new().check_numerics(true))?;
    /// let error = module.call("f", (&ndarray::array![1.0f32, -1.0],)).unwrap_err();
    /// assert!(error.to_string().contains("`log` made the first NaN at [1]"), "{error}");
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[must_use]
    pub fn check_numerics(mut self, check: bool) -> Options {
        self.check_numerics = check;
        self
    }

    /// Confines a module to a directory: what its graph names (`save`, `restore`,
    /// files of readers) must lie below it, or is error E0810. Paths given from Rust,
    /// such as to [`Module::save_checkpoint`](crate::Module::save_checkpoint), are not
    /// confined. For what a graph names when it is loaded, see
    /// [`load_inside`](crate::load_inside).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let text = "graph g\nvar n: f32[] = 1\nentry keep() { save(n, path: \"/tmp/n.safetensors\") }";
    /// let module = tfc::compile_with(&tfc::parse(text)?, &tfc::Options::new().sandbox(dir))?;
    /// let error = module.call("keep", ()).unwrap_err();
    /// assert_eq!(error.code(), tfc::ErrorCode::OUTSIDE_SANDBOX);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[must_use]
    pub fn sandbox(mut self, dir: impl Into<PathBuf>) -> Options {
        self.sandbox = Some(dir.into());
        self
    }

    /// Compiles what several processes run together, or not.
    #[must_use]
    pub fn replicas(mut self, replicas: bool) -> Options {
        self.replicas = replicas;
        self
    }

    /// Leaves variables zero, and their memory address space until it is used: for workers
    /// and parameter servers, which have some rows of large tables
    /// ([`Module::worker`](crate::Module::worker)).
    #[must_use]
    pub fn bare(mut self, bare: bool) -> Options {
        self.bare = bare;
        self
    }

    /// Runs the module on a device. Without that device loading fails (E0840).
    ///
    /// ```no_run
    /// use tfc::{Device, Options};
    /// let graph = tfc::parse("graph g\nentry f(x: f32[2]) -> (y: f32[2]) { return x + 1.0 }")?;
    /// let module = tfc::compile_with(&graph, &Options::new().device(Device::Cuda(0)))?;
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[must_use]
    pub fn device(mut self, device: Device) -> Options {
        self.device = device;
        self
    }

    /// Lets GPUs since Ampere compute products and convolutions of f32 on their tensor
    /// cores, or not: factors are rounded to TF32 then, which keeps 10 of their 23 bits
    /// behind the point; sums are in f32.
    #[must_use]
    pub fn tf32(mut self, tf32: bool) -> Options {
        self.tf32 = tf32;
        self
    }

    /// Cuts the program into a part for each task of a cluster, joined by messages; `on`
    /// says which task computes what, and the compiler where nothing does. A process
    /// that runs the program by itself is all of them. One of a group is its own part:
    /// see [`Module::lead`](crate::Module::lead).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// let graph = tfc::parse(
    ///     "graph g\nentry f(x: f32[2]) -> (z: f32[2]) {\n  \
    ///      y = exp(x) on \"/job:w/task:1\"\n  return y * 2.0\n}",
    /// )?;
    /// let options = tfc::Options::new().cluster(tfc::Cluster::of("w", 2));
    /// let module = tfc::compile_with(&graph, &options)?;
    /// let other = tfc::compile_with(&graph, &options)?;
    /// let mut groups = tfc::net::local::groups(2, Duration::from_secs(10)).into_iter();
    /// let (first, second) = (groups.next().unwrap(), groups.next().unwrap());
    /// let helper = std::thread::spawn(move || other.serve(Arc::new(second)));
    /// module.lead(Arc::new(first))?;
    /// let out = module.call("f", (&ndarray::array![0.0f32, 1.0],))?;
    /// assert_eq!(out.array::<f32>("z")?[[0]], 2.0);
    /// module.dismiss()?;
    /// helper.join().unwrap()?;
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[must_use]
    pub fn cluster(mut self, cluster: Cluster) -> Options {
        self.cluster = Some(cluster);
        self
    }

    /// Gives the module this many threads of its own.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Options {
        self.threads = Some(threads);
        self
    }

    /// Hands what the graph prints to a function instead of standard error.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// let graph = tfc::parse("graph g\nentry f(x: f32[]) { print(x, label: \"x\") }")?;
    /// let lines = Arc::new(Mutex::new(vec![]));
    /// let sink = lines.clone();
    /// let options = tfc::Options::new().print(move |line| sink.lock().unwrap().push(line.to_string()));
    /// tfc::compile_with(&graph, &options)?.call("f", (1.5f32,))?;
    /// assert_eq!(*lines.lock().unwrap(), ["x: f32[] 1.5"]);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[must_use]
    pub fn print(mut self, print: impl Fn(&str) + Send + Sync + 'static) -> Options {
        self.print = Some(Arc::new(print));
        self
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("math", &self.math)
            .field("no_opt", &self.no_opt)
            .field("replicas", &self.replicas)
            .field("bare", &self.bare)
            .field("device", &self.device)
            .field("tf32", &self.tf32)
            .field("cluster", &self.cluster)
            .field("loop_memory", &self.loop_memory)
            .field("max_memory", &self.max_memory)
            .field("recompute", &self.recompute)
            .field("threads", &self.threads)
            .field("unchecked", &self.unchecked)
            .field("check_numerics", &self.check_numerics)
            .field("sandbox", &self.sandbox)
            .field("print", &self.print.is_some())
            .finish()
    }
}

/// Which float rewrites are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Math {
    /// Only those that keep every bit.
    Strict,
    /// Also those that round differently.
    #[default]
    Default,
    /// Also those that change NaN, infinities or the sign of zero.
    Fast,
}

impl Math {
    fn mode(self) -> FloatMode {
        match self {
            Math::Strict => FloatMode::Strict,
            Math::Default => FloatMode::Rounding,
            Math::Fast => FloatMode::Fast,
        }
    }
}

/// What each step took.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// Steps and their times.
    pub rows: Vec<(String, Duration)>,
    /// What passes say about their work, a line each.
    pub notes: String,
}

impl Timings {
    /// Does some work, and adds its time to a row.
    pub fn measure<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = work();
        self.add(name, start.elapsed());
        out
    }

    /// Adds to a row, so that a step done several times is one row.
    pub fn add(&mut self, name: &str, took: Duration) {
        match self.rows.iter_mut().find(|(n, _)| n == name) {
            Some((_, t)) => *t += took,
            None => self.rows.push((name.to_string(), took)),
        }
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let width = self.rows.iter().map(|(n, _)| n.len()).max().unwrap_or(0).max(5);
        let total: Duration = self.rows.iter().map(|(_, t)| *t).sum();
        let mut out = String::new();
        for (name, took) in self.rows.iter().chain([&("total".to_string(), total)]) {
            out.push_str(&format!("{name:width$}  {:>9.3} ms\n", took.as_secs_f64() * 1e3));
        }
        out + &self.notes
    }

    /// Takes down a pass: its time, why the search for rewrites stopped, what
    /// its rules cost, what is kept for the backward pass.
    pub fn pass(&mut self, ran: &pipeline::Ran) {
        self.add(ran.name, ran.time);
        match &ran.details {
            Details::None | Details::Placed(_) => {}
            Details::Egraph(report) => self.notes.push_str(&report.timings()),
            Details::Saved(entries) => {
                for s in entries.iter().filter(|s| s.repeated > 0) {
                    self.notes.push_str(&format!(
                        "kept for the backward pass of {}: {} -> {} bytes, {} ops repeated\n",
                        s.entry, s.before, s.after, s.repeated
                    ));
                }
            }
        }
    }
}

/// Keeps only the named entries, and the runners they may need; all when none
/// is named.
pub fn select_entries(graph: &Graph, names: &[String]) -> Result<Graph> {
    if names.is_empty() {
        return Ok(graph.clone());
    }
    let mut out = graph.clone();
    for name in names {
        if !graph.entries.iter().any(|e| e.name == *name && !e.runner) {
            return Err(no_entry(graph, name).into());
        }
    }
    out.entries.retain(|e| e.runner || names.contains(&e.name));
    Ok(out)
}

pub(crate) fn no_entry(graph: &Graph, name: &str) -> Diag {
    let known = || graph.entries.iter().filter(|e| !e.runner).map(|e| e.name.as_str());
    let diag = Diag::error("E0911", format!("there is no entry `{name}`")).note(format!(
        "`{}` has {}",
        graph.name,
        crate::names(known())
    ));
    if graph.entries.iter().any(|e| e.runner && e.name == name) {
        return diag.note(format!(
            "`{name}` is a runner: it runs automatically when an entry takes what it puts into queues"
        ));
    }
    match crate::nearest(name, known()) {
        Some(near) => diag.help(format!("did you mean `{near}`?")),
        None => diag,
    }
}

/// What checkpoints know a graph by: a hash of its text as the front end left it.
/// Comments, names of files and how it was laid out do not matter.
pub fn graph_hash(graph: &Graph) -> [u8; 32] {
    tfc_runtime::hash::hash(tfc_ir::text::print(graph).as_bytes())
}

/// Variables whose first values are drawn at random, by name. Passes may compute
/// them beforehand, so this is asked of the graph as it was written.
fn random_variables(graph: &Graph) -> BTreeSet<String> {
    let mut drawn = BTreeSet::new();
    let mut names = BTreeSet::new();
    graph.init.walk(&mut |_, node| {
        let random =
            node.op.name().starts_with("random") || node.operands.iter().any(|v| drawn.contains(v));
        if random {
            drawn.extend(node.results.iter().copied());
            names.extend(node.var.map(|v| graph.vars[v].name.clone()));
        }
    });
    names
}

/// Passes lowering cannot do without.
const REQUIRED: &[&str] = &[
    "checks",
    "differentiate",
    "replicas",
    "expand",
    "numerics",
    "recompute",
    "place",
    "partition",
    "devices",
];

/// The passes these options ask for.
pub(crate) fn passes(options: &Options) -> Vec<&'static Pass> {
    let as_written = options.no_opt || options.check_numerics;
    PASSES.iter().filter(|p| !as_written || REQUIRED.contains(&p.name)).collect()
}

/// An optimized graph and what it was lowered to.
///
/// Only [`compile`] makes one: its parts belong together, which is what makes it
/// safe to run them. So those of two programs cannot be mixed:
///
/// ```compile_fail,E0616
/// fn mixed(mut one: tfc::Compiled, other: tfc::Compiled) -> tfc::Compiled {
///     one.program = other.program;
///     one
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Compiled {
    pub(crate) graph: Graph,
    pub(crate) program: Program,
}

impl Compiled {
    /// The graph after all passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Its plan, kernels and constants.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// Runs all passes and lowers; findings point into `sources`.
pub fn compile(
    graph: &Graph,
    sources: &SourceMap,
    options: &Options,
    timings: &mut Timings,
) -> Result<Compiled> {
    let hash = graph_hash(graph);
    let random = random_variables(graph);
    let failed = |diags: Vec<Diag>| Error::new(diags, sources.clone());
    let settings = settings(sources, options);
    let passes = passes(options);
    let at = passes.iter().position(|p| p.name == "recompute").unwrap_or(passes.len());
    let graph = pipeline::run_each(graph.clone(), &passes[..at], &settings, &mut |ran, _| {
        timings.pass(ran);
    })
    .map_err(failed)?;
    let mut finish = |recompute: u8| {
        let settings = PassOptions { recompute, ..settings.clone() };
        let mut note = |ran: &pipeline::Ran, _: &Graph| timings.pass(ran);
        let graph =
            pipeline::run_rest(graph.clone(), &passes, at, &settings, &mut note).map_err(failed)?;
        let lowered = timings.measure("lower", || tfc_passes::lower(&graph, sources));
        let mut program = lowered.map_err(failed)?;
        program.plan.max_memory = options.max_memory.unwrap_or(0);
        program.plan.recompute = options.recompute;
        check_memory(&program.plan).map(|()| (graph, program))
    };
    let (graph, mut program) = match (options.recompute, options.max_memory) {
        (false, _) => finish(0)?,
        (true, None) => finish(recompute::ALL)?,
        (true, Some(_)) => least(&mut finish, &|(_, program)| keeps_at_most(&program.plan))?,
    };
    program.plan.graph_hash = hash;
    program.plan.strict = options.math == Math::Strict;
    program.fast = options.math == Math::Fast;
    program.tf32 = options.tf32;
    for (task, known) in
        program.plan.tasks.iter_mut().zip(options.cluster.iter().flat_map(|c| &c.tasks))
    {
        task.address = known.address.clone();
    }
    for var in &mut program.plan.vars {
        var.random = random.contains(&var.name);
    }
    Ok(Compiled { graph, program })
}

/// What is made with as little computed again as it takes, in eighths of the forward pass.
/// Where some number of them does, so do all above it. What does not `keep` to the limit with
/// all of them stays so: it is for calls of many sizes, and smaller ones may.
fn least<T>(make: &mut dyn FnMut(u8) -> Result<T>, keeps: &dyn Fn(&T) -> bool) -> Result<T> {
    if let Some(made) = make(0).ok().filter(keeps) {
        return Ok(made);
    }
    let mut made = make(recompute::ALL)?;
    if !keeps(&made) {
        return Ok(made);
    }
    let (mut too_little, mut enough) = (0, recompute::ALL);
    while enough - too_little > 1 {
        let middle = (too_little + enough) / 2;
        match make(middle).ok().filter(keeps) {
            Some(better) => (made, enough) = (better, middle),
            None => too_little = middle,
        }
    }
    Ok(made)
}

/// Whether the entries whose sizes are known keep to the limit there is; the others are
/// looked at when they are called.
fn check_memory(plan: &tfc_abi::plan::Plan) -> Result<()> {
    for entry in plan.entries.iter().filter(|e| plan.max_memory > 0 && e.is_for_users()) {
        let values: Option<Vec<i64>> = entry.exprs.iter().map(|e| e.eval(&[])).collect();
        if let Some(values) = values.filter(|_| tfc_runtime::bind::used_dims(entry).is_empty()) {
            tfc_runtime::budget::check(plan, entry, &values)?;
        }
    }
    Ok(())
}

/// Whether training steps keep to the limit with run-time dims as large as they may be: those
/// of any size do not. What else there is takes the same however much is computed again.
fn keeps_at_most(plan: &tfc_abi::plan::Plan) -> bool {
    let largest: Vec<i64> = plan.dims.iter().map(|d| d.max).collect();
    let sized = |e: &&tfc_abi::plan::Entry| !tfc_runtime::bind::used_dims(e).is_empty();
    let steps = plan.entries.iter().filter(|e| e.is_for_users() && !e.writes.is_empty());
    steps.filter(sized).all(|entry| {
        let values: Option<Vec<i64>> = entry.exprs.iter().map(|e| e.eval(&largest)).collect();
        values.is_some_and(|v| tfc_runtime::budget::check(plan, entry, &v).is_ok())
    })
}

pub(crate) fn settings(sources: &SourceMap, options: &Options) -> PassOptions {
    let egraph = egraph::Rewriting { mode: options.math.mode(), ..egraph::Rewriting::default() };
    PassOptions {
        recompute: if options.recompute { recompute::ALL } else { 0 },
        sources: sources.clone(),
        loop_memory: options.loop_memory,
        unchecked: options.unchecked,
        check_numerics: options.check_numerics,
        // A program is shared by its parts or by its examples, not by both.
        replicas: options.replicas && options.cluster.is_none(),
        cluster: options.cluster.clone(),
        gpus: options.device != Device::Cpu,
        egraph,
        ..PassOptions::default()
    }
}
