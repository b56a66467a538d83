//! The command line, declared.

use crate::estimate::{SHEETS, Sheet};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use tfc_runtime::Choice;
use tfc_runtime::cli::{args as program, bench};

#[derive(Parser, Debug)]
#[command(
    name = "tfc",
    version,
    about = "Compiles dataflow graphs - models, their gradients, optimizers and state - into native programs.",
    after_help = "Try it:\n  tfc compile mlp.graph -o mlp && ./mlp --help\n\nExit codes: 1 the graph or the data is wrong, 2 usage, 3 input/output, 4 a peer was lost, 101 a bug in tfc.",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// How to write errors; with json, also what `bench` measures
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "human")]
    pub message_format: MessageFormat,

    /// When to use colour
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MessageFormat {
    /// With the source lines they refer to
    Human,
    /// One line each: file:line:col: error[code]: message
    Short,
    /// One JSON object per line, for editors
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Compile a graph to an executable, a library or any intermediate stage
    Compile(Compile),
    /// Compile in memory and run, exactly as the executable would
    Run(Run),
    /// Make a project to start from
    New(New),
    /// Check a graph without compiling it
    Check(Check),
    /// Format graph files in place
    Fmt(Fmt),
    /// Run passes and print the graph after each
    Opt(Opt),
    /// Show entries, dims, variables, cost per node and the memory plan
    Inspect(Inspect),
    /// Explain an error code
    Explain(Explain),
    /// Measure an entry on generated data
    Bench(Bench),
    /// Run several processes of a program on this machine, as one job
    Launch(Launch),
    /// Predict how fast training with many processes would be
    Simulate(Simulate),
    /// List, check and compare checkpoints
    Ckpt(Ckpt),
    /// Compare every gradient of a graph with finite differences
    Gradcheck(Gradcheck),
    /// List the ops, or describe one
    Ops(Ops),
    /// List the devices that programs can run on here
    Devices,
    /// Print a completion script for a shell
    Completions(Completions),
}

/// Options every command that reads a graph takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Source {
    /// Replace the value of a top-level `let` of the graph
    #[arg(long = "let", value_name = "NAME=VALUE")]
    pub lets: Vec<String>,

    /// Refuse what the graph names outside of this folder: files it uses, reads and, when it
    /// runs, writes
    #[arg(long, value_name = "DIR")]
    pub sandbox: Option<PathBuf>,
}

/// Options every command that compiles takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Codegen {
    #[command(flatten)]
    pub source: Source,

    /// Keep every float operation exactly as written: no reordering, no reassociation
    #[arg(long, conflicts_with = "fast_math")]
    pub strict: bool,

    /// Allow rewrites that change special values (NaN, infinities, signed zero)
    #[arg(long)]
    pub fast_math: bool,

    /// On Ampere and newer GPUs, compute products of f32 on tensor cores, with factors rounded to
    /// TF32 (10 bits after the point)
    #[arg(long)]
    pub tf32: bool,

    /// Do not optimize: lower the graph as written
    #[arg(long, conflicts_with = "fast_math")]
    pub no_opt: bool,

    /// Do not check indices: `gather` and the dynamic slices clamp those out of range, `one_hot`
    /// gives zeros
    #[arg(long)]
    pub unchecked: bool,

    /// Find the first operation that makes a NaN, or an infinity from finite numbers: checks
    /// every result, and is slow
    #[arg(long, conflicts_with = "fast_math")]
    pub check_numerics: bool,

    /// How much memory the gradient of a loop may use at a time to keep its iterations, such as
    /// 64M or 2G; beyond it the backward pass recomputes iterations [default: keep all]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub loop_memory: Option<u64>,

    /// How much memory variables and the working memory of a call may take together, such as 64M
    /// or 2G; an entry that needs more is an error that says where it needs most [default: any
    /// amount]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_memory: Option<u64>,

    /// Save memory in training steps: keep only part of what the backward pass needs of the
    /// forward pass, and recompute the rest, with the same results. With `--max-memory`,
    /// recompute as little as it takes
    #[arg(long)]
    pub recompute: bool,

    /// Cut the program into a part for each task of the cluster that this TOML file describes
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,

    /// Print to standard error how long each step of the compiler took
    #[arg(long)]
    pub timings: bool,
}

/// `64M`: a number of bytes, with K, M or G for powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1u64 << 30,
        _ => return Err("expected a number of bytes, such as 4096, 64M or 2G".into()),
    };
    let count: u64 =
        digits.parse().map_err(|_| "expected a number of bytes, such as 4096, 64M or 2G")?;
    count.checked_mul(unit).filter(|n| *n > 0).ok_or_else(|| "expected at least one byte".into())
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  tfc compile mlp.graph -o mlp              an executable
  tfc compile mlp.graph --emit lib,header   libmlp.a and mlp.h for C
  tfc compile mlp.graph --emit clif         Cranelift's IR of every kernel, as mlp.clif")]
pub struct Compile {
    /// The graph file; `-` reads standard input
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,

    /// Where to write; with several outputs, the name to derive theirs from
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,

    /// What to write, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "exe", value_name = "KIND")]
    pub emit: Vec<EmitKind>,

    /// C compiler driver to link with [default: cc, gcc or clang, whichever is found]
    #[arg(long, value_name = "PATH")]
    pub linker: Option<String>,

    /// Keep symbol names in the output
    #[arg(long)]
    pub symbols: bool,

    /// What the C names of a library begin with [default: the name of the output]
    #[arg(long, value_name = "NAME")]
    pub prefix: Option<String>,

    /// Which processors the code is for
    #[arg(long, value_enum, value_name = "CPU", default_value = "portable")]
    pub cpu: CpuKind,

    /// The machine the program is for, by its Rust name, such as aarch64-unknown-linux-gnu or
    /// x86_64-unknown-linux-musl [default: this one]; `cuda` adds code for NVIDIA GPUs,
    /// alone or after a comma
    #[arg(long, value_name = "TRIPLE|cuda")]
    pub target: Option<String>,

    /// GPUs whose special instructions the program may use, such as sm_80,sm_90; older ones,
    /// down to sm_70, can still run it
    #[arg(long, value_delimiter = ',', value_name = "ARCH", value_parser = gpu_arch)]
    pub gpu_arch: Vec<u32>,

    /// Make an executable that needs no libraries from the machine it runs on
    #[arg(long = "static")]
    pub fixed: bool,

    /// Compile only these entries
    #[arg(long = "entry", value_name = "NAME")]
    pub entries: Vec<String>,

    #[command(flatten)]
    pub codegen: Codegen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CpuKind {
    /// New and old: versions of each kernel for SSE4.1, AVX2 and AVX-512, chosen when the program starts
    Portable,
    /// Any from the last fifteen years: one version, smaller and slower
    Baseline,
    /// The one in this machine
    Native,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum EmitKind {
    /// An executable
    Exe,
    /// A static library (lib<name>.a), with its header
    Lib,
    /// A shared library (lib<name>.so), with its header
    Shared,
    /// An object file (<name>.o), without the runtime
    Obj,
    /// The C header (<name>.h)
    Header,
    /// The optimized graph (<name>.opt.graph)
    Graph,
    /// Which ops share a kernel (<name>.fused)
    Fused,
    /// The kernels and other steps in order, without memory (<name>.steps)
    Steps,
    /// The kernels, as loop nests (<name>.kernels)
    Kernels,
    /// The steps and the memory plan (<name>.plan)
    Plan,
    /// Cranelift's IR of each kernel (<name>.clif)
    Clif,
    /// Machine code, disassembled (<name>.s)
    Asm,
    /// The kernels for NVIDIA GPUs (<name>.ptx)
    Ptx,
    /// Which loops of the kernels become GPU threads (<name>.gpu-schedule)
    GpuSchedule,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  tfc run mlp.graph predict --feed x=x.npy --out class=class.npy
  tfc run mlp.graph train --feed x=xs.npy --feed y=ys.npy --batch 64 --epochs 3
  tfc run mlp.graph predict --feed x=x.npy --fetch h     the node named `h`, and only what it needs
  tfc run mlp.graph --help                               what the program itself takes")]
pub struct Run {
    #[command(flatten)]
    pub codegen: Codegen,

    /// The graph file; `-` reads standard input
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,

    /// The entry and its options, as for the executable; in addition,
    /// `--fetch NAME` and `--feed NAME=VALUE` may name any node of the entry
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:
  tfc new my-net --template convnet && cat my-net/README.md")]
pub struct New {
    /// The project's directory; its last part becomes the name of the graph
    #[arg(value_name = "NAME")]
    pub path: PathBuf,

    /// Which template to start from
    #[arg(long, value_enum, value_name = "KIND", default_value = "mlp")]
    pub template: Template,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Template {
    /// Dense layers on points in the plane
    Mlp,
    /// Convolutions on small pictures
    Convnet,
    /// An LSTM on sequences
    Rnn,
    /// A causal transformer on sequences
    Transformer,
}

#[derive(Args, Debug)]
pub struct Check {
    /// Graph files; `-` reads standard input
    #[arg(value_name = "GRAPH", required = true)]
    pub graphs: Vec<PathBuf>,

    /// Fail on warnings too
    #[arg(long)]
    pub deny_warnings: bool,

    #[command(flatten)]
    pub source: Source,
}

#[derive(Args, Debug)]
pub struct Fmt {
    /// Graph files; `-` formats standard input to standard output
    #[arg(value_name = "GRAPH", required = true)]
    pub graphs: Vec<PathBuf>,

    /// Change nothing; fail if a file is not formatted
    #[arg(long)]
    pub check: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  tfc opt mlp.graph                        the graph after each pass
  tfc opt mlp.graph --passes cse,dce       these passes alone
  tfc opt mlp.graph --explain              which rules made which node, and from which line
  tfc opt mlp.graph --explain=json         the same, one object per line
  tfc opt mlp.graph --last --timings       what each pass and each rule cost")]
pub struct Opt {
    /// The graph file; `-` reads standard input
    #[arg(value_name = "GRAPH", required_unless_present = "list")]
    pub graph: Option<PathBuf>,

    /// Passes to run in this order, separated by commas [default: all of them]
    #[arg(long, value_delimiter = ',', value_name = "PASS")]
    pub passes: Vec<String>,

    /// Print only the last graph
    #[arg(long)]
    pub last: bool,

    /// Instead of graphs, print where every node came from: the source line and
    /// the rewrite rules between
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text"
    )]
    pub explain: Option<ExplainFormat>,

    /// Rewrite rules not to use, by the names that `--explain` shows
    #[arg(long, value_delimiter = ',', value_name = "RULE")]
    pub without: Vec<String>,

    /// List the passes
    #[arg(long)]
    pub list: bool,

    #[command(flatten)]
    pub codegen: Codegen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum NodeOrder {
    /// As in the graph
    Text,
    Flops,
    Bytes,
    Params,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExplainFormat {
    /// One line per node
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Args, Debug)]
#[command(
    after_help = "A multiply-add counts as one of the multiply-adds and as two of the flops; \
matrix products and convolutions are made of them. Flops also count elementwise ops, reductions \
and pooling.

Examples:
  tfc inspect resnet50.graph                     parameters, cost of one example, memory
  tfc inspect resnet50.graph --layers            by layer
  tfc inspect resnet50.graph --entry train --dim B=32 --nodes --sort flops
  tfc inspect resnet50.graph --dim B=32 --memory memory.svg"
)]
pub struct Inspect {
    /// The graph file; `-` reads standard input
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,

    /// Only this entry
    #[arg(long, value_name = "NAME")]
    pub entry: Option<String>,

    /// Value of a run-time dim, to give numbers instead of formulas
    #[arg(long = "dim", value_name = "NAME=SIZE")]
    pub dims: Vec<String>,

    /// One line for each call that owns variables: output, parameters, multiply-adds
    #[arg(long)]
    pub layers: bool,

    /// One line per node
    #[arg(long)]
    pub nodes: bool,

    /// Order of layers and nodes, largest first
    #[arg(long, value_enum, value_name = "BY", default_value = "text")]
    pub sort: NodeOrder,

    /// As one JSON object
    #[arg(long)]
    pub json: bool,

    /// Draw the memory of a call: which tensors are alive when, and where
    #[arg(long, value_name = "SVG", conflicts_with_all = ["layers", "nodes", "json"])]
    pub memory: Option<PathBuf>,

    #[command(flatten)]
    pub codegen: Codegen,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// The code, such as E0203; without one, lists them all
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "A compiled program measures its entries with `bench ENTRY` and the same options, on data it \
is fed. `--message-format json` gives one JSON object per line.

Examples:
  tfc bench mlp.graph train --dim B=64 --threads 1
  tfc bench mlp.graph predict --time 500ms --message-format json
  tfc bench mlp.graph train --device cuda --estimate h100
  ./mlp bench predict --feed x=x.npy --time 500ms"
)]
pub struct Bench {
    /// The graph file
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,

    /// Only this entry
    #[arg(value_name = "ENTRY")]
    pub entry: Option<String>,

    /// Value of a run-time dim [default: 64, within its range]
    #[arg(long = "dim", value_name = "NAME=SIZE")]
    pub dims: Vec<String>,

    /// How long to measure each entry, such as 500ms or 2s
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration)]
    pub time: Duration,

    /// How many calls to measure, instead of --time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub calls: Option<u64>,

    /// How many calls to make before measuring
    #[arg(long, default_value_t = bench::DEFAULT_WARMUP, value_name = "N")]
    pub warmup: usize,

    /// Also show the time of each step of a call, compared with the best this machine can do
    #[arg(long)]
    pub by_step: bool,

    /// Write when each step ran, for ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// What to run on: cpu, cuda, or a GPU by number: cuda:1 [default: cpu]
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub device: Option<Choice>,

    /// Run nothing, but estimate times from the data sheet of a GPU: a100, h100 or rtx4090
    #[arg(long, value_name = "GPU", value_parser = sheet)]
    pub estimate: Option<&'static Sheet>,

    #[command(flatten)]
    pub codegen: Codegen,
}

/// `sm_80` as 80.
fn gpu_arch(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("sm_").and_then(|n| n.trim_end_matches('a').parse().ok());
    let known = number.filter(|n| (70..=130).contains(n));
    known.ok_or_else(|| "expected an architecture since Volta, such as sm_80".into())
}

/// `h100`.
fn sheet(text: &str) -> Result<&'static Sheet, String> {
    let known = crate::names(SHEETS.iter().map(|s| s.key));
    crate::estimate::sheet(text).ok_or_else(|| format!("expected a GPU that is known: {known}"))
}

/// `cpu`, `cuda` or `cuda:1`.
fn device(text: &str) -> Result<Choice, String> {
    Choice::parse(text).ok_or_else(|| "expected cpu, cuda, or a GPU by number: cuda:1".into())
}

/// As a program's own `--time`.
fn duration(text: &str) -> Result<Duration, String> {
    program::duration(text).ok_or_else(|| "expected a duration, such as 500ms or 2s".into())
}

#[derive(Args, Debug)]
#[command(after_help = "PATH is a directory of checkpoints or one of their files.")]
pub struct Ckpt {
    #[command(subcommand)]
    pub action: CkptAction,
}

#[derive(Subcommand, Debug)]
pub enum CkptAction {
    /// Steps, times, sizes and graphs
    Ls {
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Compare every file with its hash; exits with 1 if one is torn
    Verify {
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Compare two checkpoints or .safetensors files tensor by tensor; exits with 1 if they differ
    Diff {
        #[arg(value_name = "A")]
        a: PathBuf,
        #[arg(value_name = "B")]
        b: PathBuf,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
#[command(
    after_help = "Everything is computed in f64. Feeds that are not given are random, dims small.

Examples:
  tfc gradcheck mlp.graph
  tfc gradcheck mlp.graph train --dim B=4 --feed y=[0,3,1,2]"
)]
pub struct Gradcheck {
    /// The graph file; `-` reads standard input
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,

    #[command(flatten)]
    pub source: Source,

    /// Only this entry
    #[arg(value_name = "ENTRY")]
    pub entry: Option<String>,

    /// Value of a parameter: a file or a literal [default: random]
    #[arg(long = "feed", value_name = "NAME=VALUE")]
    pub feeds: Vec<String>,

    /// Value of a run-time dim [default: 3, within its range]
    #[arg(long = "dim", value_name = "NAME=SIZE")]
    pub dims: Vec<String>,

    /// Elements of each tensor to check one by one; all are checked together
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub samples: usize,

    /// Largest relative difference that passes
    #[arg(long, default_value_t = 1e-6, value_name = "E")]
    pub tolerance: f64,

    /// Seed of the random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// As one JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Ops {
    /// The op, library or library function to describe: `matmul`, `nn`, `nn.dense`
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// As markdown: the op reference
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Args, Debug)]
pub struct Completions {
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  tfc launch -n 2 ./mlp train --feed x=x.npy --feed y=y.npy --batch 64 --state mlp.safetensors
  tfc launch -n 4 --restarts 3 ./mlp train --feed x=x.npy --feed y=y.npy --batch 64 --checkpoint-dir ck

On a cluster the same program runs under `mpirun`, `srun` or torchrun.")]
pub struct Launch {
    /// Number of processes
    #[arg(short = 'n', long = "workers", value_name = "N", default_value = "2", value_parser = workers)]
    pub workers: usize,

    /// Number of parameter servers to run as well
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = servers)]
    pub ps: usize,

    /// How often to restart from the last checkpoint, at most, when a process fails: all
    /// processes, or, with parameter servers, only the one that failed
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub restarts: usize,

    /// Threads of each process [default: the machine's cores, divided among them]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Write one trace of what all processes did, for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Start nothing; print a file that starts the job on a cluster
    #[arg(long, value_name = "WHERE")]
    pub print: Option<Manifest>,

    /// The program and its own command line
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SimulatedMode {
    /// Gradients averaged over all workers, around a ring
    Sync,
    /// Parameter servers; a step waits for all workers
    PsSync,
    /// Parameter servers; no worker waits for others
    PsAsync,
    /// As ps-sync, with the gradients of all workers but `--spare`
    Backup,
    /// An average over all workers after every `--every` steps
    Average,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  tfc simulate examples/mlp.graph --workers 1..64
  tfc simulate train.graph --mode backup --spare 4 --workers 8..200 --ps 17 --net 10Gbit --straggler 0.05:5
  tfc simulate train.graph --check --svg curve.svg

The time of a step on one process is measured here, unless `--step` says it; the rest follows
from the bytes of the gradients and the network.")]
pub struct Simulate {
    /// The graph file; `-` reads standard input
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,

    /// The entry that trains [default: `train`, or the first]
    #[arg(long, value_name = "NAME")]
    pub entry: Option<String>,

    /// How the processes train together
    #[arg(long, value_enum, default_value = "sync")]
    pub mode: SimulatedMode,

    /// How many workers: a number, or a range
    #[arg(long, value_name = "FIRST..LAST", default_value = "1..200", value_parser = range)]
    pub workers: (usize, usize),

    /// Parameter servers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub ps: usize,

    /// Workers that `--mode backup` does not wait for
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub spare: usize,

    /// Steps between the averages of `--mode average`
    #[arg(long, value_name = "STEPS", default_value_t = 16)]
    pub every: usize,

    /// Bandwidth of each process, each way
    #[arg(long, value_name = "RATE", default_value = "10Gbit", value_parser = tfc_passes::cluster::bandwidth)]
    pub net: f64,

    /// How long until a message is noticed
    #[arg(long, value_name = "TIME", default_value = "30us", value_parser = tfc_passes::cluster::latency)]
    pub latency: f64,

    /// How often a worker is slow, and how many times as long its step then takes
    #[arg(long, value_name = "CHANCE:FACTOR", value_parser = straggler)]
    pub straggler: Option<crate::simulate::Straggler>,

    /// Examples of each worker in a step
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub batch: usize,

    /// Size of another run-time dim
    #[arg(long = "dim", value_name = "NAME=SIZE")]
    pub dims: Vec<String>,

    /// How long a step of one worker takes; do not measure it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub step: Option<Duration>,

    /// Also run 1, 2 and 4 processes here in mode `sync`, and report how far off a prediction of
    /// that was
    #[arg(long)]
    pub check: bool,

    /// Draw the throughput over the number of workers
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    #[command(flatten)]
    pub codegen: Codegen,
}

/// `8` or `1..200`.
fn range(text: &str) -> Result<(usize, usize), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 1 <= first && first <= last && last <= 100_000 => {
            Ok((first, last))
        }
        _ => Err("expected a number of workers, or a range such as 1..200".into()),
    }
}

/// `0.05:5`.
fn straggler(text: &str) -> Result<crate::simulate::Straggler, String> {
    let parsed = text.split_once(':').and_then(|(chance, factor)| {
        let (chance, factor): (f64, f64) = (chance.parse().ok()?, factor.parse().ok()?);
        let sensible = (0.0..=1.0).contains(&chance) && (1.0..=1e6).contains(&factor);
        sensible.then_some(crate::simulate::Straggler { chance, factor })
    });
    parsed.ok_or_else(|| "expected CHANCE:FACTOR, such as 0.05:5".into())
}

fn workers(text: &str) -> Result<usize, String> {
    let n: usize = text.parse().map_err(|_| "expected a number of processes")?;
    if (1..=1024).contains(&n) { Ok(n) } else { Err("expected 1 to 1024 processes".into()) }
}

/// Where a job is to be started.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Manifest {
    /// Indexed jobs of Kubernetes
    K8s,
    /// A batch script
    Slurm,
}

fn servers(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(n @ 0..=1024) => Ok(n),
        _ => Err("must be 0 to 1024".into()),
    }
}
