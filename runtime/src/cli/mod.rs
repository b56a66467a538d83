//! The command line of a compiled program; `tfc run` behaves the same through it.
//!
//! | command | does |
//! |---|---|
//! | `ENTRY --feed ..` | one call; results printed or written |
//! | `ENTRY --feed .. --batch N [--epochs N]` | a call per batch; scalars averaged, rows joined |
//! | `ENTRY` that takes from queues or readers | runners started; a call until the input ends, or `--steps N` |
//! | `ENTRY --steps N` without feeds to cut | N calls |
//! | `bench ENTRY --feed ..` | calls again and again, and prints how long they took |
//! | `--signature`, `--help`, `--version` | about the program |
//!
//! An entry that trains takes `--checkpoint-dir` and `--resume`. When a run with
//! these or with `--state` is asked to stop, it saves and exits with code
//! [`INTERRUPTED`].
//!
//! Errors go to standard error with their code; the exit code is 1 for the
//! user's data, 2 for the command line, 3 for files, 101 for a bug.

pub mod args;
mod average;
mod batches;
pub mod bench;
mod boundary;
mod checkpoints;
mod destinations;
mod input;
pub mod jobs;
mod metrics;
mod progress;
mod rows;
mod served;
pub mod signals;
mod signature;
pub mod statefile;
mod stream;
mod sums;
mod tasks;
mod team;
mod trace;

use crate::call::CallOptions;
use crate::checkpoint;
use crate::error::{Error, ErrorCode, Result, closest, list};
use crate::files;
use crate::hash::{Hasher, hex};
use crate::io;
use crate::launcher;
use crate::model::{Model, ModelOptions};
use crate::net::Group;
use crate::pool::Pool;
use crate::profile::Profile;
use crate::queue::runners;
use crate::sandbox::Sandbox;
use crate::show;
use crate::tensor::{FeedView, TensorBuf};
use args::Args;
use checkpoints::Checkpoints;
use metrics::Metrics;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use sums::Finished;
use team::Team;
use tfc_abi::DType;
use tfc_abi::plan::{Entry, Home, Plan, Step};

/// Where a program writes.
pub struct Console<'a> {
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    /// Standard error is a terminal: a progress bar may be drawn.
    pub terminal: bool,
}

impl Console<'_> {
    /// Writes a line that was asked for to standard output. A closed one is no
    /// reason to fail, a full disk is: nobody should take silence for an answer.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let mut write = || {
            self.out.write_all(line.as_bytes())?;
            if !line.ends_with('\n') {
                self.out.write_all(b"\n")?;
            }
            self.out.flush()
        };
        match write() {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io(
                "E0803",
                format!("cannot write to standard output: {}", io::io_reason(&e)),
            )),
            _ => Ok(()),
        }
    }
}

/// What a program is, before it is loaded.
pub trait Program {
    fn plan(&self) -> Result<Plan>;
    fn load(&self, options: ModelOptions) -> Result<Model>;
    /// What it takes to be part of a job; none of a program that cannot be.
    fn jobs(&self) -> Option<&'static jobs::Jobs>;
}

/// Exit code of a run that was asked to stop, has saved, and can be resumed (the
/// "try again" of sysexits.h).
pub const INTERRUPTED: i32 = 75;

/// How a command ended, when not in an error.
enum End {
    Done,
    Interrupted,
}

/// Runs a command line (without the program's own name) and returns the exit
/// code.
pub fn main(program: &dyn Program, name: &str, words: &[String], console: &mut Console<'_>) -> i32 {
    signals::end_with_launcher();
    // Known even when the line does not parse: the error must come out right.
    let json = words.windows(2).any(|w| w[0] == "--message-format" && w[1] == "json")
        || words.iter().any(|w| w == "--message-format=json");
    let result = args::parse(words).and_then(|args| command(program, name, &args, console));
    // A closed standard output is no reason to fail.
    let _ = console.out.flush();
    crate::profile::leave();
    match result {
        Ok(End::Done) => 0,
        Ok(End::Interrupted) => INTERRUPTED,
        Err(e) => {
            if e.code() == ErrorCode::PEER_LATE {
                e.about().iter().for_each(|p| launcher::accuse(*p));
            }
            let text = if json { e.to_json() } else { e.to_string() };
            let _ = writeln!(console.err, "{text}");
            let _ = console.err.flush();
            e.exit_code()
        }
    }
}

fn command(
    program: &dyn Program,
    name: &str,
    args: &Args,
    console: &mut Console<'_>,
) -> Result<End> {
    if args.trace_job.is_some() {
        crate::profile::trace_process();
    }
    let plan = program.plan()?;
    if args.help
        && let Some(word) = args.words.first()
        && let Some((_, e)) = user_entries(&plan).find(|(_, e)| e.name == *word)
    {
        console.say(&signature::entry_help(&plan, e, name))?;
        return Ok(End::Done);
    }
    if args.help
        || (args.words.is_empty() && args.feeds.is_empty() && !args.signature) && !args.version
    {
        console.say(&signature::help(&plan, name))?;
        return Ok(End::Done);
    }
    if args.version {
        console.say(&format!("{} (tfc {})", plan.name, env!("CARGO_PKG_VERSION")))?;
        return Ok(End::Done);
    }
    if args.signature {
        let text = if args.json { signature::json(&plan) } else { signature::text(&plan, name) };
        console.say(&text)?;
        return Ok(End::Done);
    }
    let is_entry = |word: &str| user_entries(&plan).any(|(_, e)| e.name == word);
    let mut words = args.words.iter();
    let mut bench = false;
    let mut verb = words.next();
    if let Some(v) = verb
        && v == "bench"
        && !is_entry(v)
    {
        bench = true;
        verb = words.next();
    }
    let entry = match verb {
        Some(v) => find_entry(&plan, v)?,
        None => only_entry(&plan)?,
    };
    if let Some(extra) = words.next() {
        let e = Error::usage("E0914", format!("`{extra}` is one word too many"));
        return Err(e.help("give inputs as `--feed NAME=VALUE`"));
    }
    let alone = Team::alone();
    let session = Session {
        plan: &plan,
        entry,
        args,
        team: &alone,
        tasks: None,
        options: call_options(args),
    };
    session.check_names()?;
    if !bench {
        match program.jobs() {
            Some(jobs) => {
                if let Some(end) = (jobs.run)(&session, program, console)? {
                    return Ok(end);
                }
            }
            None => jobs::none(&session)?,
        }
        destinations::check(&session)?;
        session.advise(console);
    }
    let end = session.execute(program, bench, console)?;
    trace::alone(&session, console)?;
    Ok(end)
}

/// How the calls of a command are made.
fn call_options(args: &Args) -> CallOptions {
    match (crate::profile::of_process(), args.profile.is_some()) {
        (Some(profile), _) => CallOptions::new().profile(&profile),
        (None, true) => CallOptions::new().profile(&Arc::new(Profile::new())),
        (None, false) => CallOptions::new(),
    }
}

/// What a run came to.
#[derive(Default)]
struct Ran {
    /// By result of the entry; none if there is nothing to write.
    results: Vec<Option<Finished>>,
    /// Whole steps, in this run and those it went on from.
    steps: usize,
    /// Asked to stop.
    interrupted: bool,
    /// There was nothing left to do.
    complete: bool,
    /// What ended it; variables are those of the last whole step.
    failed: Option<Error>,
}

/// Tells other data from the same: a hash of a few blocks, spread over all of it.
/// With the length beside it, that is.
fn fingerprint(data: &io::Data) -> Result<String> {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 256;
    let mut hasher = Hasher::default();
    let (len, mut room) = (data.len(), vec![]);
    if len <= BLOCK * BLOCKS {
        hasher.update(data.bytes(0, len, &mut room)?);
    } else {
        for i in 0..BLOCKS {
            let at = (len - BLOCK) / (BLOCKS - 1) * i;
            hasher.update(data.bytes(at, BLOCK, &mut room)?);
        }
        hasher.update(data.bytes(len - BLOCK, BLOCK, &mut room)?);
    }
    Ok(hex(&hasher.finish()[..16]))
}

fn whole(feeds: Vec<io::Data>) -> Result<Vec<TensorBuf>> {
    feeds.into_iter().map(io::Data::whole).collect()
}

/// Entries a user can call, with their indices: not the initialiser, not
/// runners.
pub(crate) fn user_entries(plan: &Plan) -> impl Iterator<Item = (usize, &Entry)> {
    let init = plan.init.map(|i| i as usize);
    let users = move |(i, e): &(usize, &Entry)| Some(*i) != init && e.is_for_users();
    plan.entries.iter().enumerate().filter(users)
}

fn find_entry(plan: &Plan, name: &str) -> Result<usize> {
    if let Some((i, _)) = user_entries(plan).find(|(_, e)| e.name == name) {
        return Ok(i);
    }
    let names: Vec<&str> = user_entries(plan).map(|(_, e)| e.name.as_str()).collect();
    let mut e = Error::usage("E0911", format!("there is no entry `{name}`")).note(format!(
        "`{}` has {}",
        plan.name,
        list(names.iter().copied())
    ));
    if plan.entries.iter().any(|e| e.runner && e.name == name) {
        e = e.note(format!("`{name}` is a runner: it runs automatically when an entry needs it"));
        return Err(e);
    }
    Err(match closest(name, names.into_iter().chain(["bench"])) {
        Some(near) => e.help(format!("did you mean `{near}`?")),
        None => e,
    })
}

fn only_entry(plan: &Plan) -> Result<usize> {
    let entries: Vec<_> = user_entries(plan).collect();
    if let [(i, _)] = entries[..] {
        return Ok(i);
    }
    Err(Error::usage("E0911", "which entry should be run?")
        .help(format!("name one of {}", list(entries.iter().map(|(_, e)| e.name.as_str())))))
}

/// One command about one entry.
struct Session<'a> {
    plan: &'a Plan,
    entry: usize,
    args: &'a Args,
    /// The processes that run it together.
    team: &'a Team,
    /// The tasks of the cluster that the program was cut for.
    tasks: Option<Arc<Group>>,
    /// How its calls are made.
    options: CallOptions,
}

impl Session<'_> {
    fn entry(&self) -> &Entry {
        &self.plan.entries[self.entry]
    }

    /// Loads the program and runs the command.
    fn execute(
        &self,
        program: &dyn Program,
        bench: bool,
        console: &mut Console<'_>,
    ) -> Result<End> {
        let feeds = self.feeds()?;
        let mut checkpoints = match bench {
            true => None,
            false => Checkpoints::open(self, console)?,
        };
        let model = Arc::new(self.load(program, checkpoints.as_ref(), console)?);
        if self.args.cluster.is_some()
            && let Some(jobs) = program.jobs()
        {
            (jobs.attach)(self, &model)?;
        }
        if let Some(way) = self.team.begin(&model)? {
            self.say(console, &way);
        }
        if let Some(group) = &self.tasks {
            model.lead(group.clone())?;
        }
        if let Some(dir) = &self.args.checkpoint_dir {
            model.set_directory(Path::new(dir));
        }
        if bench {
            bench::run(&model, self, &whole(feeds)?, console)?;
            return Ok(End::Done);
        }
        let end = self.run(&model, feeds, checkpoints.as_mut(), console);
        self.write_profile()?;
        let end = end?;
        if self.tasks.is_some() {
            model.dismiss()?;
        }
        Ok(end)
    }

    /// Writes what the steps took, if that was asked for.
    fn write_profile(&self) -> Result<()> {
        match (&self.args.profile, &self.options.profile) {
            (Some(path), Some(profile)) => {
                let text = profile.trace();
                files::replace(Path::new(path), |f| f.write_all(text.as_bytes()))
            }
            _ => Ok(()),
        }
    }

    /// How the program is loaded.
    fn load_options(&self) -> Result<ModelOptions> {
        let pool = self.args.threads.map(|n| Arc::new(Pool::new(n)));
        let sandbox = match &self.args.sandbox {
            Some(dir) => Sandbox::below(Path::new(dir))?,
            None => Sandbox::default(),
        };
        let task = self.tasks.as_ref().map(|g| g.rank());
        Ok(ModelOptions {
            pool,
            sandbox,
            task,
            device: self.args.device,
            turn: self.team.turn,
            ..ModelOptions::default()
        })
    }

    /// Names of feeds and results exist, each once, none missing.
    fn check_names(&self) -> Result<()> {
        let e = self.entry();
        let params: Vec<&str> = e.params.iter().map(|p| p.name.as_str()).collect();
        let results: Vec<&str> = e.results.iter().map(|p| p.name.as_str()).collect();
        let given: Vec<&str> = self.args.feeds.iter().map(|(n, _)| n.as_str()).collect();
        known("E0502", "feed", e, &params, &given)?;
        let outs: Vec<&str> = self.args.outs.iter().map(|(n, _)| n.as_str()).collect();
        known("E0521", "result", e, &results, &outs)?;
        let missing: Vec<&str> = params.iter().copied().filter(|p| !given.contains(p)).collect();
        if let Some(first) = missing.first() {
            let mut error = Error::data(
                "E0501",
                format!("entry `{}` is missing feed {}", e.name, list(missing.iter().copied())),
            );
            for p in e.params.iter().filter(|p| missing.contains(&p.name.as_str())) {
                error = error.note(format!("`{}` is {}", p.name, p.text));
            }
            return Err(error.help(format!("add `--feed {first}={first}.npy`")));
        }
        Ok(())
    }

    /// The feeds, in the order of the entry's params. Where they are cut into batches,
    /// large ones stay in their files.
    fn feeds(&self) -> Result<Vec<io::Data>> {
        self.entry()
            .params
            .iter()
            .map(|p| {
                let text = self.args.feeds.iter().find(|(n, _)| *n == p.name);
                let text = text.map(|(_, t)| t.as_str()).unwrap_or_default();
                let value = match self.steps() {
                    true => io::lazy_feed(&p.name, p.dtype, text),
                    false => io::feed(&p.name, p.dtype, text).map(io::Data::Whole),
                };
                value.map_err(|e| match Path::new(text).exists() {
                    // Not a file, and was perhaps not meant to be one.
                    false if e.code() == ErrorCode::UNREADABLE_FILE => {
                        let e = e.note(format!("feed `{}` is {}", p.name, p.text));
                        match p.shape.is_empty() {
                            true => e.help(format!("give a number: `--feed {}=1`", p.name)),
                            false => e.help(format!(
                                "give a .npy, .npz or .safetensors file, or the numbers: \
                                 `--feed {}=[..]`",
                                p.name
                            )),
                        }
                    }
                    _ => e,
                })
            })
            .collect()
    }

    /// The run changes variables and has a place to save them.
    fn saves(&self) -> bool {
        !self.entry().writes.is_empty()
            && (self.args.state.is_some() || self.args.checkpoint_dir.is_some())
    }

    /// The entry is called again and again.
    fn steps(&self) -> bool {
        Session::calls_again(self.args)
    }

    fn calls_again(a: &Args) -> bool {
        a.batch.is_some() || a.epochs.is_some() || a.steps.is_some() || a.shuffle.is_some()
    }

    /// Says at the start what would otherwise be found out at the end: that
    /// nothing will be saved, or that nothing was learned.
    fn advise(&self, console: &mut Console<'_>) {
        let (e, a) = (self.entry(), self.args);
        if !e.writes.is_empty() {
            if !self.saves() && !saves_by_itself(&e.steps) {
                let text = format!(
                    "`{}` changes variables, which end with this run: keep them with `--state \
                     FILE.safetensors` or `--checkpoint-dir DIR`",
                    e.name
                );
                self.say(console, &text);
            }
            return;
        }
        let from_file = a.state.is_some() || a.restore.is_some() || a.cluster.is_some();
        let random = e.buffers.iter().find_map(|b| match b.home {
            Home::Var(v) => self.plan.vars.get(v as usize).filter(|v| v.random),
            _ => None,
        });
        if let Some(v) = random.filter(|_| !from_file) {
            let text = format!(
                "`{}` uses random initial values (`{}`), which nothing has trained: take trained \
                 ones with `--state FILE.safetensors` or `--restore`",
                e.name, v.name
            );
            self.say(console, &text);
        }
    }

    /// Something the user should know; not with `--quiet`.
    fn say(&self, console: &mut Console<'_>, text: &str) {
        if self.args.quiet {
            return;
        }
        let line = match self.args.json {
            true => format!("{{\"severity\":\"note\",\"message\":{}}}", io::json::quote(text)),
            false => format!("note: {text}"),
        };
        let _ = writeln!(console.err, "{line}");
    }

    fn warn(&self, console: &mut Console<'_>, e: &Error) {
        if !self.args.quiet {
            let _ = writeln!(console.err, "{}", e.to_warning(self.args.json));
        }
    }

    /// Loads the program, with variables from the checkpoint to resume, from
    /// `--state` or from `--restore`.
    fn load(
        &self,
        program: &dyn Program,
        checkpoints: Option<&Checkpoints<'_>>,
        console: &mut Console<'_>,
    ) -> Result<Model> {
        let options = self.load_options()?;
        if let Some(checkpoints) = checkpoints.filter(|c| c.resumes()) {
            let options = ModelOptions { skip_init: true, ..options };
            let model = self.prepared(program, options, console)?;
            checkpoints.restore(&model)?;
            return Ok(model);
        }
        let skip_init = self.state_file()?.is_some();
        let model = self.prepared(program, ModelOptions { skip_init, ..options }, console)?;
        for mut fit in self.given(console)? {
            fit.take(&model, |_| true)?;
        }
        Ok(model)
    }

    /// What `--state` and `--restore` have for the variables.
    fn given(&self, console: &mut Console<'_>) -> Result<Vec<checkpoint::Fit>> {
        let mut fits = vec![];
        if let Some(path) = self.state_file()? {
            checkpoint::check_whole(path)?;
            // What an entry changes is written back with everything else.
            let reads = self.reads();
            let all = !self.entry().writes.is_empty();
            let fit =
                checkpoint::fit_exactly(self.plan, path, |v| all || reads.contains(&(v as u32)))?;
            let unused = &fit.matched.unused;
            if !unused.is_empty() && !self.args.quiet {
                let _ = writeln!(
                    console.err,
                    "warning: `{}` also holds {}, which `{}` does not have",
                    path.display(),
                    list(unused.iter().map(String::as_str)),
                    self.plan.name
                );
            }
            fits.push(fit);
        }
        if let Some(path) = &self.args.restore {
            fits.push(self.restored(Path::new(path), console)?);
        }
        Ok(fits)
    }

    /// The variables that the entry uses and does not write.
    fn reads(&self) -> Vec<u32> {
        let e = self.entry();
        let vars = e.buffers.iter().filter_map(|b| match b.home {
            Home::Var(v) => Some(v),
            _ => None,
        });
        vars.filter(|v| !e.writes.contains(v)).collect()
    }

    /// The program with the files of `--data`. Nobody but us uses its queues.
    fn prepared(
        &self,
        program: &dyn Program,
        options: ModelOptions,
        console: &mut Console<'_>,
    ) -> Result<Model> {
        let model = program.load(options)?;
        let told = self.args.device == crate::Choice::Cpu;
        if let Some(why) = model.instead_text().filter(|_| !told) {
            self.say(console, &format!("this runs on the CPU: {why}"));
        }
        model.allow_nan(self.args.allow_nan);
        model.queues().use_alone();
        for (reader, paths) in &self.args.data {
            let paths = paths.split(',').map(str::to_owned).collect();
            model.queues().set_paths(reader, paths)?;
        }
        Ok(model)
    }

    /// `--restore`: of a directory, its newest checkpoint.
    fn restored(&self, path: &Path, console: &mut Console<'_>) -> Result<checkpoint::Fit> {
        let mut file = path.to_path_buf();
        if path.is_dir() {
            let manifest = checkpoint::find(path)?;
            let files = checkpoint::verify(&manifest)?.paths(&manifest);
            file = <[PathBuf; 1]>::try_from(files).map_or(manifest, |[only]| only);
        }
        let reads = self.reads();
        let needed = match self.entry().writes.is_empty() && !self.args.partial {
            true => Some((self.entry, reads.as_slice())),
            // What a training run does not find, it learns.
            false => None,
        };
        let fit = checkpoint::fit_some(self.plan, &file, &self.args.restore_map, needed)?;
        for line in fit.matched.report(&file) {
            self.say(console, &line);
        }
        Ok(fit)
    }

    /// The file of `--state`, if it is there. A first training run makes it; an
    /// entry that changes nothing has no use for one that is not there, and a
    /// mistyped name must not end in results of an untrained model.
    fn state_file(&self) -> Result<Option<&Path>> {
        let Some(path) = self.args.state.as_deref().map(Path::new) else { return Ok(None) };
        if checkpoint::is_data(path) && !self.entry().writes.is_empty() {
            let text = format!("`--state` would overwrite checkpoint `{}`", path.display());
            return Err(Error::usage("E0587", text)
                .help(format!("begin with its variables: `--restore {}`", path.display())));
        }
        if path.exists() {
            return Ok(Some(path));
        }
        if self.plan.vars.is_empty() || !self.entry().writes.is_empty() {
            return Ok(None);
        }
        let e = Error::io("E0804", format!("there is no file `{}`", path.display()))
            .note(format!("`{}` changes no variables, so it cannot make one", self.entry().name));
        Err(e.help("train first, or leave out `--state` to use the initial values"))
    }

    fn run(
        &self,
        model: &Arc<Model>,
        feeds: Vec<io::Data>,
        mut checkpoints: Option<&mut Checkpoints<'_>>,
        console: &mut Console<'_>,
    ) -> Result<End> {
        let a = self.args;
        let cut = a.batch.is_some() || a.epochs.is_some() || a.shuffle.is_some();
        let streams = runners::streams(model, self.entry);
        let again = a.steps.is_some() && !cut && model.batch_dim(self.entry).is_none();
        let saves = self.saves() || self.team.saves;
        let started = Instant::now();
        if saves && (streams || self.steps() || checkpoints.is_some()) {
            signals::listen();
        }
        let mut ran = if streams || again {
            stream::run(model, self, &whole(feeds)?, checkpoints.as_deref_mut(), console)?
        } else if self.steps() {
            batches::run(model, self, feeds, checkpoints.as_deref_mut(), console)?
        } else {
            let feeds = whole(feeds)?;
            let views: Vec<FeedView<'_>> = feeds.iter().map(TensorBuf::view).collect();
            let mut results = model.call_with(self.entry, &views, &self.options)?;
            let asked = self.team.after_step(model, &mut results, 1)?;
            let results = results.into_iter().map(|t| Some(Finished::Tensor(t))).collect();
            let mut ran = Ran { results, steps: 1, ..Ran::default() };
            if let Some(c) = &mut checkpoints {
                ran.interrupted = c.after_step(model, self, console, None, None, asked)?;
                ran.steps = c.step();
            }
            ran
        };
        // State first: it is what cannot be computed again.
        let saved = self.save(model, &ran, checkpoints.as_deref_mut());
        if let Some(e) = ran.failed.take() {
            return Err(match saved {
                Ok(Some(place)) => {
                    e.note(format!("the {} steps before it are in {place}", ran.steps))
                }
                Ok(None) => e,
                Err(why) => {
                    e.note(format!("what was learned before it is lost: {}", why.message()))
                }
            });
        }
        let place = saved?;
        if let Some(metrics) = self.team.metrics() {
            let time = started.elapsed();
            Metrics { steps: ran.steps, time, ..metrics }.report(self, console)?;
        }
        if ran.interrupted {
            let text = match (&checkpoints, place) {
                (Some(c), _) => c.interruption(),
                (None, Some(place)) => format!(
                    "stopped after step {}: the variables are saved in {place}, and the same \
                     command goes on with them, from the start of the data",
                    ran.steps
                ),
                (None, None) => "stopped before the first step: there is nothing to save".into(),
            };
            self.say(console, &text);
            return Ok(End::Interrupted);
        }
        let print = a.outs.is_empty() && !a.quiet;
        if print && !streams && (again || !self.steps()) {
            self.print_results(&ran.results, again, console)?;
        }
        self.write_results(&mut ran)?;
        Ok(End::Done)
    }

    /// Saves where the run is: to `--checkpoint-dir`, to `--state`, or to both.
    /// Says where, if anywhere.
    fn save(
        &self,
        model: &Model,
        ran: &Ran,
        checkpoints: Option<&mut Checkpoints<'_>>,
    ) -> Result<Option<String>> {
        if ran.steps == 0 || !self.saves() {
            return Ok(None);
        }
        let mut places = vec![];
        let mut outcome = Ok(());
        if let Some(path) = &self.args.state {
            outcome = statefile::save(model, Path::new(path));
            places.push(path.as_str());
        }
        if let Some(c) = checkpoints {
            outcome = c.save(model).and(outcome);
            places.extend(c.dir().to_str());
        }
        outcome.map(|()| Some(list(places)))
    }

    /// Results that `--out` asks for; several may share one archive.
    fn write_results(&self, ran: &mut Ran) -> Result<()> {
        let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (name, file) in &self.args.outs {
            let at = self.entry().results.iter().position(|p| p.name == *name);
            match at.filter(|i| ran.results.get(*i).is_some_and(Option::is_some)) {
                Some(at) => files.entry(file).or_default().push(at),
                None => {
                    let e =
                        Error::data("E0589", format!("there is no `{name}` to write to `{file}`"));
                    return Err(match (ran.complete, ran.steps) {
                        (true, 1..) => e
                            .note(format!(
                                "the run was complete already, with {} steps: nothing was computed",
                                ran.steps
                            ))
                            .help("leave out `--out`, or ask for more steps or epochs"),
                        _ => e.note("the input ended before the first step"),
                    });
                }
            }
        }
        for (file, members) in &files {
            let mut rows = BTreeMap::new();
            for at in members {
                if let Some(Some(Finished::Rows(r))) = ran.results.get_mut(*at) {
                    rows.insert(*at, r.file()?);
                }
            }
            let arrays: Vec<io::Array<'_>> = members
                .iter()
                .filter_map(|at| {
                    let name = self.entry().results[*at].name.as_str();
                    Some(match (ran.results[*at].as_ref()?, rows.get(at)) {
                        (Finished::Rows(r), Some(file)) => io::Array {
                            name,
                            dtype: r.dtype,
                            shape: &r.shape,
                            data: io::Contents::File(file),
                        },
                        (Finished::Tensor(t), _) => io::Array::of(name, t),
                        (Finished::Rows(_), None) => return None,
                    })
                })
                .collect();
            io::write_arrays(Path::new(file), &arrays)?;
        }
        for result in ran.results.drain(..) {
            if let Some(Finished::Rows(rows)) = result {
                rows.done();
            }
        }
        Ok(())
    }

    /// Averages are printed on the way, where an entry is called `again`.
    fn print_results(
        &self,
        results: &[Option<Finished>],
        again: bool,
        console: &mut Console<'_>,
    ) -> Result<()> {
        for (port, result) in self.entry().results.iter().zip(results) {
            let Some(Finished::Tensor(t)) = result else { continue };
            if again && port.shape.is_empty() && port.dtype.is_float() {
                continue;
            }
            let line = if self.args.json {
                result_json(&port.name, t)
            } else {
                format!("{}: {}", port.name, show::tensor(t.dtype, &t.shape, t.bytes()))
            };
            console.say(&line)?;
        }
        Ok(())
    }
}

/// Whether the graph itself writes files.
fn saves_by_itself(steps: &[Step]) -> bool {
    steps.iter().any(|s| match s {
        Step::Save { .. } => true,
        Step::If { then, otherwise, .. } => saves_by_itself(then) || saves_by_itself(otherwise),
        Step::While { head, body, .. } => saves_by_itself(head) || saves_by_itself(body),
        _ => false,
    })
}

/// Every name given is one of `names`, and none is given twice.
fn known(
    code: &'static str,
    what: &str,
    entry: &Entry,
    names: &[&str],
    given: &[&str],
) -> Result<()> {
    for (i, g) in given.iter().enumerate() {
        if !names.contains(g) {
            let e = Error::data(code, format!("entry `{}` has no {what} `{g}`", entry.name))
                .note(format!("its {what}s are {}", list(names.iter().copied())));
            return Err(match closest(g, names.iter().copied()) {
                Some(near) => e.help(format!("did you mean `{near}`?")),
                None => e,
            });
        }
        if given[..i].contains(g) {
            return Err(Error::usage("E0520", format!("{what} `{g}` is given twice")));
        }
    }
    Ok(())
}

/// A result as one line of JSON; what JSON has no number for is a string.
fn result_json(name: &str, t: &TensorBuf) -> String {
    let values: Vec<String> = (0..t.len())
        .map(|i| {
            let text = show::element(t.dtype, t.bytes(), i);
            let number = t.dtype != DType::Bool && t.get_f64(i).is_some_and(|v| !v.is_finite());
            if number { io::json::quote(&text) } else { text }
        })
        .collect();
    let shape: Vec<String> = t.shape.iter().map(|d| d.to_string()).collect();
    format!(
        "{{\"result\":{},\"dtype\":\"{}\",\"shape\":[{}],\"data\":[{}]}}",
        io::json::quote(name),
        t.dtype,
        shape.join(","),
        values.join(",")
    )
}
