//! The command line, taken apart.

use crate::error::{Error, Result, closest};
use crate::net::job::{Job, OnLoss};
use crate::place::Choice;
use std::path::PathBuf;
use std::time::Duration;

/// How the processes of a job work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each by itself, whatever the environment says.
    Local,
    /// As one: gradients are averaged in every step.
    Sync,
    /// The same, by parameter servers.
    PsSync,
    /// Parameter servers apply gradients as they come.
    PsAsync,
    /// They average those of the first workers of a step.
    Backup,
    /// Each by itself for some steps; then the weights are averaged.
    Average,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args {
    pub help: bool,
    pub version: bool,
    pub signature: bool,
    pub quiet: bool,
    pub json: bool,
    pub threads: Option<usize>,
    /// Words that are not options: the verb and what follows it.
    pub words: Vec<String>,
    pub feeds: Vec<(String, String)>,
    pub outs: Vec<(String, String)>,
    pub state: Option<String>,
    pub batch: Option<usize>,
    pub epochs: Option<usize>,
    pub steps: Option<usize>,
    pub shuffle: Option<u64>,
    /// Readers and their files.
    pub data: Vec<(String, String)>,
    pub time: Option<Duration>,
    pub calls: Option<usize>,
    pub warmup: Option<usize>,
    /// `bench` says what each step takes.
    pub by_step: bool,
    /// Where a trace of the steps goes.
    pub profile: Option<String>,
    /// Where a trace of all processes of a job goes.
    pub trace_job: Option<String>,
    /// Where counters of a job's messages go.
    pub metrics: Option<String>,
    pub checkpoint_dir: Option<String>,
    pub save_every: Option<usize>,
    pub keep: Option<usize>,
    pub resume: bool,
    /// Although the data or the way it is cut is not that of the saved run.
    pub resume_anyway: bool,
    pub restore: Option<String>,
    /// Beginnings of names, of variables and of tensors in the file.
    pub restore_map: Vec<(String, String)>,
    /// An entry may run without some of its variables in the file.
    pub partial: bool,
    pub allow_nan: bool,
    pub sandbox: Option<String>,
    pub mode: Option<Mode>,
    /// Parameter servers to take the variables from.
    pub cluster: Option<String>,
    /// Workers whose gradients make a step.
    pub need: Option<usize>,
    /// Steps between two averages.
    pub local_steps: Option<usize>,
    /// The entry that makes a step of an average.
    pub outer: Option<String>,
    /// Steps that a worker may be ahead of another.
    pub staleness: Option<usize>,
    /// A step computes with all updates that were acknowledged before it began.
    pub strong: bool,
    pub peer_timeout: Option<Duration>,
    pub join_timeout: Option<Duration>,
    pub on_loss: OnLoss,
    pub device: Choice,
    /// The task of a cluster that this process is.
    pub role: Option<String>,
    /// Certificate, key and authority.
    pub tls: [Option<PathBuf>; 3],
}

impl Args {
    /// Has the job encrypt its messages, if the command line says so.
    pub(super) fn encrypt(&self, job: &mut Job) -> Result<()> {
        let [cert, key, ca] = self.tls.clone();
        job.use_tls(cert, key, ca)
    }
}

/// Every option: name, what it takes, what it does.
pub const OPTIONS: &[(&str, &str, &str)] = &[
    (
        "--feed",
        "NAME=VALUE",
        "an input: a .npy, .npz or .safetensors file, a literal, or any file for bytes (u8)",
    ),
    ("--out", "NAME=FILE", "write a result to a file instead of printing it"),
    ("--state", "FILE", "variables: read if the file exists, written if the entry changes them"),
    (
        "--batch",
        "N",
        "cut the feeds into batches of N [default: all in one]; rows of results are joined, scalars averaged",
    ),
    ("--epochs", "N", "go through the feeds N times"),
    ("--steps", "N", "stop after N steps: a step is a batch, or a call if no feeds are cut"),
    (
        "--data",
        "READER=PATH",
        "other files for a reader; if it has several parts, one file for each, separated by commas",
    ),
    ("--shuffle", "SEED", "a new order of examples every epoch"),
    ("--checkpoint-dir", "DIR", "save checkpoints of the run here"),
    ("--save-every", "N", "a checkpoint every N steps [default: every epoch]"),
    ("--keep", "K", "checkpoints to keep [default: 5]"),
    ("--resume", "", "continue from the newest good checkpoint, or start if there is none"),
    (
        "--resume-anyway",
        "",
        "as --resume, even if the entry, the batch or the data differs from the saved run",
    ),
    ("--restore", "FILE", "start with the values a file has for variables of the same names"),
    ("--restore-map", "NEW=OLD", "look for variables `NEW..` under `OLD..` in that file"),
    ("--partial", "", "run an entry even if `--restore` has only some of its variables"),
    ("--allow-nan", "", "continue if a loss is NaN or infinite, and save variables that are"),
    ("--sandbox", "DIR", "refuse to read or write what the graph names outside of this folder"),
    (
        "--mode",
        "MODE",
        "how the processes of a job train: local, each on its own; sync, as one [default]; average, averaging weights from time to time; with parameter servers ps-sync [default], ps-async or backup",
    ),
    (
        "--cluster",
        "SERVERS",
        "take the variables from the parameter servers of a running job: HOST:PORT,HOST:PORT, or a cluster file",
    ),
    ("--local-steps", "K", "average: how many steps each worker does between two averages"),
    (
        "--outer",
        "ENTRY",
        "average: the entry that gets how far each weight has moved, `delta_w` for `w`",
    ),
    ("--need", "M", "backup: a step uses the first M gradients and drops later ones"),
    ("--staleness", "N", "ps-async: no worker is more than N steps ahead of another"),
    (
        "--consistency",
        "strong",
        "with parameter servers: every read sees only whole updates, and all that were acknowledged before it",
    ),
    (
        "--role",
        "TASK",
        "which task of its cluster this process is, such as /job:ps/task:1 (also TFC_ROLE)",
    ),
    ("--peer-timeout", "DURATION", "how long a step waits for another process [default: 120s]"),
    ("--join-timeout", "DURATION", "how long the processes have to find each other [default: 60s]"),
    (
        "--on-loss",
        "stop|shrink|wait",
        "when a worker is lost: stop (the default), continue with those that are left, or wait until it is back",
    ),
    ("--tls-cert", "FILE", "encrypt messages: the certificate of this process (also TFC_TLS_CERT)"),
    ("--tls-key", "FILE", "its key (also TFC_TLS_KEY)"),
    ("--tls-ca", "FILE", "the authority whose certificates are trusted (also TFC_TLS_CA)"),
    ("--time", "DURATION", "how long `bench` measures, such as 500ms or 2s [default: 1s]"),
    ("--calls", "N", "how many calls `bench` measures, instead of --time"),
    ("--warmup", "N", "how many calls to make before `bench` measures [default: 3]"),
    ("--by-step", "", "with `bench`: also show the time of each step of a call"),
    ("--profile", "FILE.json", "write when each step ran, for ui.perfetto.dev"),
    (
        "--trace-job",
        "FILE.json",
        "write when each step ran on every process of a job, on one clock, for ui.perfetto.dev",
    ),
    (
        "--metrics",
        "FILE.json",
        "write figures about the messages of a job: bytes, waits by peer, gradients that came too late, staleness",
    ),
    (
        "--device",
        "cpu|cuda|cuda:N",
        "what to run on [default: a GPU, if there is one and the program has code for it]",
    ),
    ("--threads", "N", "threads to use (also TFC_THREADS); results are the same with any number"),
    ("--message-format", "human|json", "how errors and results are written"),
    ("--quiet", "", "print nothing but errors"),
    ("--signature", "", "inputs, outputs and variables, with lines ready to paste"),
    ("--version", "", "name and version"),
    ("--help", "", "this text"),
];

pub fn parse(args: &[String]) -> Result<Args> {
    let mut out = Args::default();
    let mut rest = args.iter();
    let mut only_words = false;
    while let Some(arg) = rest.next() {
        if only_words || !arg.starts_with('-') || arg == "-" {
            out.words.push(arg.clone());
            continue;
        }
        if arg == "--" {
            only_words = true;
            continue;
        }
        let (name, mut inline) = match arg.split_once('=') {
            Some((n, v)) if n.starts_with("--") => (n, Some(v.to_owned())),
            _ => (arg.as_str(), None),
        };
        let name = match name {
            "-h" => "--help",
            "-V" => "--version",
            "-q" => "--quiet",
            n => n,
        };
        let mut value = || {
            inline.take().or_else(|| rest.next().cloned()).ok_or_else(|| {
                let takes = OPTIONS.iter().find(|o| o.0 == name).map_or("a value", |o| o.1);
                Error::usage("E0913", format!("`{name}` needs {takes} after it"))
            })
        };
        match name {
            "--help" => out.help = true,
            "--version" => out.version = true,
            "--signature" => out.signature = true,
            "--quiet" => out.quiet = true,
            "--allow-nan" => out.allow_nan = true,
            "--sandbox" => out.sandbox = Some(value()?),
            "--role" => out.role = Some(value()?),
            "--tls-cert" => out.tls[0] = Some(value()?.into()),
            "--tls-key" => out.tls[1] = Some(value()?.into()),
            "--tls-ca" => out.tls[2] = Some(value()?.into()),
            "--feed" => out.feeds.push(pair(name, value()?)?),
            "--out" => out.outs.push(pair(name, value()?)?),
            "--data" => out.data.push(pair(name, value()?)?),
            "--state" => out.state = Some(value()?),
            "--batch" => out.batch = Some(positive(name, &value()?)?),
            "--epochs" => out.epochs = Some(positive(name, &value()?)?),
            "--steps" => out.steps = Some(positive(name, &value()?)?),
            "--checkpoint-dir" => out.checkpoint_dir = Some(value()?),
            "--resume" => out.resume = true,
            "--resume-anyway" => (out.resume, out.resume_anyway) = (true, true),
            "--partial" => out.partial = true,
            "--restore" => out.restore = Some(value()?),
            "--restore-map" => out.restore_map.push(renaming(name, value()?)?),
            "--keep" => out.keep = Some(positive(name, &value()?)?),
            "--save-every" => {
                let v = value()?;
                let number = v.strip_suffix("steps").unwrap_or(&v);
                out.save_every = Some(positive(name, number)?);
            }
            "--threads" => out.threads = Some(positive(name, &value()?)?),
            "--shuffle" => {
                let v = value()?;
                out.shuffle = Some(v.parse().map_err(|_| bad(name, &v, "a seed, such as 1"))?);
            }
            "--time" | "--peer-timeout" | "--join-timeout" => {
                let v = value()?;
                let wanted = "a duration of ten years at most, such as 500ms";
                let d = duration(&v).ok_or_else(|| bad(name, &v, wanted))?;
                match name {
                    "--time" => out.time = Some(d),
                    "--peer-timeout" => out.peer_timeout = Some(d),
                    _ => out.join_timeout = Some(d),
                }
            }
            "--on-loss" => {
                let v = value()?;
                out.on_loss =
                    OnLoss::from_name(&v).ok_or_else(|| bad(name, &v, "stop, shrink or wait"))?;
            }
            "--mode" => {
                out.mode = Some(match value()?.as_str() {
                    "local" => Mode::Local,
                    "sync" => Mode::Sync,
                    "ps-sync" => Mode::PsSync,
                    "ps-async" => Mode::PsAsync,
                    "backup" => Mode::Backup,
                    "average" => Mode::Average,
                    v => {
                        let modes = "local, sync, average, ps-sync, ps-async or backup";
                        return Err(bad(name, v, modes));
                    }
                });
            }
            "--by-step" => out.by_step = true,
            "--profile" => out.profile = Some(value()?),
            "--trace-job" => out.trace_job = Some(value()?),
            "--metrics" => out.metrics = Some(value()?),
            "--device" => {
                let v = value()?;
                let known = Choice::parse(&v);
                out.device = known.ok_or_else(|| bad(name, &v, "cpu, cuda or cuda:1"))?;
            }
            "--cluster" => out.cluster = Some(value()?),
            "--local-steps" => out.local_steps = Some(positive(name, &value()?)?),
            "--outer" => out.outer = Some(value()?),
            "--need" => out.need = Some(positive(name, &value()?)?),
            "--consistency" => match value()?.as_str() {
                "strong" => out.strong = true,
                v => return Err(bad(name, v, "strong")),
            },
            "--staleness" => {
                let v = value()?;
                out.staleness = Some(v.parse().map_err(|_| bad(name, &v, "a number of steps"))?);
            }
            "--calls" => out.calls = Some(positive(name, &value()?)?),
            "--warmup" => {
                let v = value()?;
                out.warmup = Some(v.parse().map_err(|_| bad(name, &v, "a number"))?);
            }
            "--message-format" => match value()?.as_str() {
                "json" => out.json = true,
                "human" => out.json = false,
                v => return Err(bad(name, v, "human or json")),
            },
            _ => return Err(unknown(arg)),
        }
        if inline.is_some() {
            return Err(Error::usage("E0914", format!("`{name}` takes no value")));
        }
    }
    if out.threads.is_none() {
        out.threads = threads_from_outside()?;
    }
    Ok(out)
}

/// The number of threads the environment asks for, if it does.
pub fn threads_from_outside() -> Result<Option<usize>> {
    match std::env::var("TFC_THREADS") {
        Ok(value) if !value.is_empty() => positive("TFC_THREADS", &value).map(Some),
        _ => Ok(None),
    }
}

fn unknown(arg: &str) -> Error {
    let name = arg.split('=').next().unwrap_or(arg);
    let e = Error::usage("E0912", format!("there is no option `{name}`"));
    // What other programs call it.
    let meant = match name {
        "--seed" | "--random-seed" => {
            return e
                .note("seeds of initial values and random ops are in the graph")
                .help("`--shuffle SEED` is the order of the examples");
        }
        "--lr" | "--learning-rate" => {
            return e
                .note("the learning rate is in the graph")
                .help("make it a parameter of the entry, and give it with `--feed lr=0.01`");
        }
        "--input" | "--in" => Some("--feed"),
        "--output" => Some("--out"),
        "--batch-size" | "--batch_size" => Some("--batch"),
        "--load" | "--weights" | "--model" => Some("--state"),
        "--checkpoint" | "--ckpt" | "--checkpoints" => Some("--checkpoint-dir"),
        _ => None,
    };
    if let Some(meant) = meant {
        return e.help(format!("it is called `{meant}` here"));
    }
    match closest(name, OPTIONS.iter().map(|o| o.0)) {
        Some(near) => e.help(format!("did you mean `{near}`?")),
        None => e.help("`--help` lists the options"),
    }
}

fn bad(name: &str, value: &str, wanted: &str) -> Error {
    Error::usage("E0914", format!("`{value}` is not a value for `{name}`: it must be {wanted}"))
}

fn positive(name: &str, value: &str) -> Result<usize> {
    value
        .parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| bad(name, value, "a number greater than zero"))
}

fn pair(name: &str, value: String) -> Result<(String, String)> {
    match value.split_once('=') {
        Some((n, v)) if !n.is_empty() && !v.is_empty() => Ok((n.to_owned(), v.to_owned())),
        _ => Err(bad(name, &value, "NAME=VALUE")),
    }
}

/// As [`pair`]; either side may be empty: `encoder.=` drops a beginning.
fn renaming(name: &str, value: String) -> Result<(String, String)> {
    match value.split_once('=') {
        Some((new, old)) => Ok((new.to_owned(), old.to_owned())),
        None => Err(bad(name, &value, "NEW=OLD")),
    }
}

/// The longest wait that anybody may ask for. Several of them in a row still end at a time
/// that the system's clocks can express.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// `2s`, `500ms`, `1.5s`, or seconds; ten years at most.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text {
        t if t.ends_with("ms") => (&t[..t.len() - 2], 1e-3),
        t if t.ends_with("us") => (&t[..t.len() - 2], 1e-6),
        t if t.ends_with('s') => (&t[..t.len() - 1], 1.0),
        t => (t, 1.0),
    };
    let seconds: f64 = number.trim().parse().ok()?;
    let duration = Duration::try_from_secs_f64(seconds * unit).ok();
    duration.filter(|d| !d.is_zero() && *d <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn takes_a_line_apart() {
        let a = parse(&words(
            "train --feed x=a.npy --feed=y=[1] --batch 64 --epochs=3 --shuffle 7 -q --time 1.5ms",
        ))
        .unwrap();
        assert_eq!(a.words, ["train"]);
        assert_eq!(a.feeds, [("x".into(), "a.npy".into()), ("y".into(), "[1]".into())]);
        assert_eq!((a.batch, a.epochs, a.shuffle, a.quiet), (Some(64), Some(3), Some(7), true));
        assert_eq!(a.time, Some(Duration::from_micros(1500)));
    }

    #[test]
    fn explains_what_is_wrong() {
        let e = |t: &str| parse(&words(t)).unwrap_err().to_string();
        assert_eq!(
            e("--bach 3"),
            "error[E0912]: there is no option `--bach`\n  = help: did you mean `--batch`?"
        );
        assert!(e("--batch 0").contains("a number greater than zero"));
        assert!(e("--batch").contains("`--batch` needs N after it"));
        assert!(e("--feed x").contains("NAME=VALUE"));
        assert!(e("--quiet=3").contains("takes no value"));
        assert!(e("--time -1s").contains("duration"));
        assert!(e("--time 1e999").contains("duration"));
        let long = e("--join-timeout 1e19");
        assert!(long.contains("`1e19` is not a value for `--join-timeout`"), "{long}");
        assert!(long.contains("a duration of ten years at most"), "{long}");
        assert!(parse(&words("--join-timeout 3e8 --peer-timeout 315360000s")).is_ok());
        assert!(e("--message-format xml").contains("human or json"));
    }
}
