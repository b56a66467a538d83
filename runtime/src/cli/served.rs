//! A job with parameter servers: what a worker does, and what a server does.
//!
//! Where a worker is in the data follows from the step alone, and which step is next
//! the servers know. So a worker that was restarted, or comes late, takes the
//! variables and goes on. The chief is the worker with files: it brings the variables
//! to servers that have none, from the last checkpoint if there is one, saves them, and
//! reports.

use super::args::{Args, Mode};
use super::checkpoints::Checkpoints;
use super::input::Input;
use super::metrics::Metrics;
use super::sums::Sums;
use super::team::{self, Team};
use super::{Console, End, Program, Ran, Session, signals, trace};
use crate::checkpoint::{self, Manifest};
use crate::error::{Error, ErrorCode, Party, Result, list};
use crate::model::{Model, ModelOptions};
use crate::net::clock::Offset;
use crate::net::job::Job;
use crate::net::ps::carry::{self, Beginning, Origin};
use crate::net::ps::client::{Client, Stepped, again, positions_at};
use crate::net::ps::layout::Layout;
use crate::net::ps::server::{Rule, Server};
use crate::pool::Pool;
use crate::tensor::TensorBuf;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tfc_abi::DType;
use tfc_abi::plan::Plan;

/// A process of such a job.
pub(super) struct Served {
    job: Job,
    rule: Rule,
    /// The mode, and what it means.
    name: &'static str,
    mode: &'static str,
}

impl Served {
    /// The job that the environment describes, if it has parameter servers.
    pub(super) fn find(args: &Args) -> Result<Option<Served>> {
        if args.strong && args.mode == Some(Mode::Average) {
            return Err(Error::usage(
                "E0914",
                "`--consistency strong` cannot be had with `average`",
            )
            .note("each worker computes with variables of its own between two averages"));
        }
        let asked = match args.mode {
            Some(Mode::Local | Mode::Average) => return Ok(None),
            Some(mode @ (Mode::PsSync | Mode::PsAsync | Mode::Backup)) => Some(mode),
            Some(Mode::Sync) | None => None,
        };
        let found = Job::from_environment()?.filter(|j| !j.servers.is_empty());
        let mut job = match (found, asked, args.mode) {
            (Some(_), None, Some(Mode::Sync)) => {
                return Err(Error::usage(
                    ErrorCode::BAD_JOB,
                    "`--mode sync` has no use for parameter servers",
                )
                .help("leave out `--ps`, or take `--mode ps-sync`"));
            }
            (Some(job), ..) => job,
            (None, None, _) => return Ok(None),
            (None, Some(mode), _) => return Err(team::nobody(mode)),
        };
        job.timeout = args.peer_timeout.unwrap_or(job.timeout);
        job.join_timeout = args.join_timeout.unwrap_or(job.join_timeout);
        job.checkpoints = args.checkpoint_dir.as_ref().map(PathBuf::from);
        args.encrypt(&mut job)?;
        let usage = |text: String| Err(Error::usage("E0914", text));
        let (rule, mode) = match asked.unwrap_or(Mode::PsSync) {
            Mode::PsAsync => {
                let staleness = args.staleness.map(|n| n as u64);
                (Rule::Apart { staleness }, "each worker's gradients are applied as they come")
            }
            Mode::Backup => match args.need {
                Some(need) if need <= job.size => {
                    (Rule::Together { need }, "a step takes the first gradients that come")
                }
                Some(need) => {
                    return usage(format!("`--need {need}` is more than {} workers", job.size));
                }
                None => return usage("`--mode backup` needs `--need`, such as --need 3".into()),
            },
            _ => (Rule::Together { need: job.size }, "a step takes the gradients of all"),
        };
        if args.staleness.is_some() && !matches!(rule, Rule::Apart { .. }) {
            return usage("`--staleness` goes with `--mode ps-async`".into());
        }
        if args.need.is_some() && asked != Some(Mode::Backup) {
            return usage("`--need` goes with `--mode backup`".into());
        }
        let name = match asked {
            Some(Mode::PsAsync) => "ps-async",
            Some(Mode::Backup) => "backup",
            _ => "ps-sync",
        };
        Ok(Some(Served { job, rule, name, mode }))
    }

    pub(super) fn run(
        &self,
        program: &dyn Program,
        plan: &Plan,
        entry: usize,
        args: &Args,
        console: &mut Console<'_>,
    ) -> Result<End> {
        let alone = Team::alone();
        if self.job.server {
            return self.serve(program, entry, args);
        }
        if self.job.rank == 0 {
            let session = Session {
                plan,
                entry,
                args,
                team: &alone,
                tasks: None,
                options: super::call_options(args),
            };
            if let Some(text) = self.job.introduction() {
                session.say(console, &text);
            }
            session.say(
                console,
                &format!(
                    "{} workers and {} parameter servers: {}",
                    self.job.size,
                    self.job.servers.len(),
                    self.mode
                ),
            );
            super::destinations::check(&session)?;
            session.advise(console);
            return self.work(program, &session, console);
        }
        let helper = Team::strip(args);
        let (mut out, mut err) = (std::io::sink(), std::io::stderr());
        let mut silent = Console { out: &mut out, err: &mut err, terminal: false };
        let session = Session {
            plan,
            entry,
            args: &helper,
            team: &alone,
            tasks: None,
            options: super::call_options(&helper),
        };
        self.work(program, &session, &mut silent)
    }

    fn serve(&self, program: &dyn Program, entry: usize, args: &Args) -> Result<End> {
        signals::listen();
        let pool = args.threads.map(|n| Arc::new(Pool::new(n)));
        // What it has of variables is its own, and not where the program has room for them.
        let model = program.load(ModelOptions { pool, bare: true, ..ModelOptions::default() })?;
        model.allow_nan(args.allow_nan);
        let server = Server::new(Arc::new(model), entry, &self.job, self.rule)?;
        Arc::new(server).serve(&self.job, &signals::raised)?;
        Ok(End::Done)
    }

    /// The program, with room for its variables of which only what is used is memory.
    fn load(
        &self,
        program: &dyn Program,
        session: &Session<'_>,
        console: &mut Console<'_>,
    ) -> Result<Model> {
        let options = ModelOptions { bare: true, ..session.load_options()? };
        session.prepared(program, options, console)
    }

    /// The run goes on from a checkpoint: servers read what is theirs.
    fn go_back_to(
        &self,
        model: &Model,
        layout: &Layout,
        manifest: &Manifest,
        path: &Path,
    ) -> Result<Beginning> {
        let served = layout.served();
        checkpoint::resume_some(model, manifest, path, |v| !served.contains(&(v as u32)))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let positions = positions_at(model, layout.gradients, manifest.step);
        Ok(Beginning { step: manifest.step, from: Origin::Checkpoint(name), positions })
    }

    fn work(
        &self,
        program: &dyn Program,
        session: &Session<'_>,
        console: &mut Console<'_>,
    ) -> Result<End> {
        let (a, n) = (session.args, self.job.size);
        let feeds = session.feeds()?;
        let mut checkpoints = Checkpoints::open(session, console)?;
        let layout = Layout::new(session.plan, session.entry, self.job.servers.len())?;
        let model = self.load(program, session, console)?;
        let first = match checkpoints.as_ref().and_then(Checkpoints::resumed) {
            Some((manifest, path)) => self.go_back_to(&model, &layout, manifest, path)?,
            None => begin_anew(session, &model, &layout, console)?,
        };
        let (rank, model) = (self.job.rank, Arc::new(model));
        let mut input = Input::new(&model, session, layout.gradients, feeds, (rank, n))?;
        if let Some(c) = &mut checkpoints {
            if let Some(examples) = input.examples() {
                c.begin(session, console, examples)?;
            }
            c.identify(session, console, input.identity(session)?)?;
        }
        signals::listen();
        let mut client = Client::new(&model, session.entry, &self.job, Some(self.job.rank))?;
        // Where no step is done without this worker, what it has is what there is.
        client.strong = a.strong && self.rule != (Rule::Together { need: n });
        let first = Some(first);
        let (model, started) = (&*model, Instant::now());
        let input = &mut input;
        let (leaves, clocks) = (false, vec![]);
        let mut worker =
            Worker { served: self, session, model, client, first, leaves, input, started, clocks };
        // The job may go back before all is saved.
        loop {
            let ran = worker.train(checkpoints.as_mut(), console)?;
            if let Some(end) = worker.finish(ran, checkpoints.as_mut(), console)? {
                return Ok(end);
            }
        }
    }
}

/// The run begins: workers have the first values of what servers do not have, and these
/// are told where to get theirs from.
fn begin_anew(
    session: &Session<'_>,
    model: &Model,
    layout: &Layout,
    console: &mut Console<'_>,
) -> Result<Beginning> {
    let own = layout.own();
    own.iter().try_for_each(|v| model.start(*v as usize))?;
    let own = |v: usize| own.contains(&(v as u32));
    let mut fits = session.given(console)?;
    for fit in &mut fits {
        fit.take(model, own)?;
    }
    let from = if fits.is_empty() { Origin::First } else { Origin::Files(fits) };
    model.queues().set_positions(&[])?;
    let positions = positions_at(model, layout.gradients, 0);
    Ok(Beginning { step: 0, from, positions })
}

/// `--cluster`: the variables of a job that is running, for an entry that reads them.
pub(super) fn attach(session: &Session<'_>, model: &Model) -> Result<()> {
    let Some(text) = &session.args.cluster else { return Ok(()) };
    if !session.entry().writes.is_empty() {
        let name = &session.entry().name;
        return Err(Error::usage("E0914", format!("`--cluster` is for reading: `{name}` writes"))
            .help("workers of a job find their servers through the environment"));
    }
    let list = match text.ends_with(".toml") {
        false => text.clone(),
        true => {
            let path = Path::new(text);
            let file =
                std::fs::read_to_string(path).map_err(|e| crate::io::cannot_read(path, &e))?;
            servers_in(&file).ok_or_else(|| {
                Error::data(ErrorCode::BAD_JOB, format!("`{text}` names no parameter servers"))
                    .help("such as `tasks = [\"10.0.0.1:7000\"]` under `[job.ps]`")
            })?
        }
    };
    let mut job = Job::of_task(0, 1, String::new())?;
    job.servers = list.split(',').map(|at| at.trim().to_owned()).collect();
    job.timeout = session.args.peer_timeout.unwrap_or(job.timeout);
    job.join_timeout = session.args.join_timeout.unwrap_or(job.join_timeout);
    session.args.encrypt(&mut job)?;
    let reads = model.reads(session.entry).to_vec();
    Client::attach(model, &job)?.take(model, &reads, session.args.strong)
}

/// The addresses of a cluster file's `[job.ps]`, by commas.
fn servers_in(toml: &str) -> Option<String> {
    let bare = |l: &str| l.split('#').next().unwrap_or("").trim().to_owned();
    let mut lines = toml.lines().map(bare).skip_while(|l| l != "[job.ps]").skip(1);
    let table: String = lines.by_ref().take_while(|l| !l.starts_with("[")).collect();
    let tasks = table.split_once("tasks")?.1.trim_start().strip_prefix('=')?;
    let list = tasks.trim_start().strip_prefix('[')?.split_once(']')?.0;
    let all = list.split(',').map(|a| a.trim().trim_matches(['"', '\'']));
    let all: Vec<&str> = all.filter(|a| !a.is_empty()).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// How long the chief waits for those that may go.
const GOING: Duration = Duration::from_secs(10);

struct Worker<'a> {
    served: &'a Served,
    session: &'a Session<'a>,
    model: &'a Model,
    client: Client,
    /// What the chief begins the run with, until it has.
    first: Option<Beginning>,
    /// It goes, and the others go on.
    leaves: bool,
    input: &'a mut Input,
    started: Instant,
    /// How far the clocks of servers are ahead, if a trace is wanted: the chief's of all of
    /// them, others' of the first.
    clocks: Vec<Offset>,
}

impl Worker<'_> {
    fn is_chief(&self) -> bool {
        self.served.job.rank == 0
    }

    /// Whether the others can go on without this worker.
    fn may_leave(&mut self) -> Result<bool> {
        match self.served.rule {
            _ if self.is_chief() => Ok(false),
            Rule::Apart { .. } => Ok(true),
            Rule::Together { need } if need == self.served.job.size => Ok(false),
            Rule::Together { need } => Ok(self.left()?.is_some_and(|n| n > need)),
        }
    }

    /// How many workers are still at work, if that can be said.
    fn left(&mut self) -> Result<Option<usize>> {
        match self.client.status() {
            Ok(counts) => Ok(Some(counts.working.len() + 1)),
            Err(e) if again(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The next step of the job; the model has the servers' variables.
    fn sync(&mut self, wait: Duration, console: &mut Console<'_>) -> Result<u64> {
        // Whatever comes of it, data is taken from where it then is.
        self.input.rest();
        let mut first = self.first.take();
        let (served, session, model) = (self.served, self.session, self.model);
        let layout = self.client.layout().clone();
        let mut give = || -> Result<Beginning> {
            if let Some(first) = first.take() {
                return Ok(first);
            }
            let found = match &served.job.checkpoints {
                Some(dir) => checkpoint::newest(dir, session.plan)?.found,
                None => None,
            };
            let begin = match found {
                Some((manifest, path)) => served.go_back_to(model, &layout, &manifest, &path)?,
                None => {
                    // What there is to say about files was said at the start.
                    let (mut out, mut err) = (std::io::sink(), std::io::sink());
                    let mut silent = Console { out: &mut out, err: &mut err, terminal: false };
                    begin_anew(session, model, &layout, &mut silent)?
                }
            };
            let step = begin.step;
            session.say(
                console,
                &format!("a parameter server was restarted: the job goes on from step {step}"),
            );
            Ok(begin)
        };
        let chief = self.served.job.rank == 0;
        self.client.sync(model, if chief { Some(&mut give) } else { None }, wait)
    }

    fn train(
        &mut self,
        mut checkpoints: Option<&mut Checkpoints<'_>>,
        console: &mut Console<'_>,
    ) -> Result<Ran> {
        let (session, job) = (self.session, &self.served.job);
        let again = job.timeout;
        let first = self.sync(job.join_timeout.max(again), console)?;
        self.align()?;
        let (mut step, total) = (first, self.input.steps());
        let mut told = false;
        let mut part_of = u64::MAX;
        let mut sums = Sums::averages(session, None)?;
        let mut started = Instant::now();
        let mut progress = self.input.progress(session, step, console);
        while step < total {
            let part = self.input.part(step);
            if part != part_of {
                part_of = part;
                sums = Sums::averages(session, None)?;
                started = Instant::now();
                progress = self.input.progress(session, step, console);
            }
            self.input.go_to(self.model, step, &self.client.positions)?;
            let (views, share, examples) = self.input.take(step)?;
            let mut out = match self.client.compute(self.model, &views, &session.options) {
                Ok(Some(out)) => out,
                Ok(None) => {
                    step = self.sync(again, console)?;
                    part_of = u64::MAX;
                    continue;
                }
                // No more comes out of queues and readers, here and for everybody.
                Err(e) if e.is_end_of_input() => {
                    self.input.rest();
                    break;
                }
                Err(e) => return Err(e),
            };
            if signals::raised() && !told {
                told = true;
                if self.may_leave()? {
                    self.leaves = true;
                    progress.finish(console);
                    return Ok(Ran { steps: step as usize, interrupted: true, ..Ran::default() });
                }
                self.client.stop()?;
            }
            let (next, scalars, stop) = match self.client.step(self.model, step, share, &out)? {
                Stepped::Done { next, scalars, stop } => (next, scalars, stop),
                Stepped::Lost => {
                    step = self.sync(again, console)?;
                    part_of = u64::MAX;
                    continue;
                }
            };
            average(&mut out, &self.client.layout().scalars, scalars.as_deref());
            out.truncate(self.client.layout().results);
            sums.add(out, examples)?;
            progress.step(console, &sums.scalars(session), sums.examples(), started.elapsed());
            let over = next >= total;
            if self.input.part(next) != part || over {
                progress.finish(console);
                self.input.report(session, console, (step, next), &sums, started.elapsed());
                sums = Sums::averages(session, None)?;
            }
            if let Some(c) = &mut checkpoints {
                let (model, client, input) = (self.model, &mut self.client, &mut *self.input);
                let (positions, last) = (client.positions.clone(), stop || over);
                let at = &mut |step| input.position(model, step, &positions);
                c.after_served_step(model, session, console, (step, next), at, last, client)?;
            }
            step = next;
            if stop {
                progress.finish(console);
                return Ok(Ran { steps: step as usize, interrupted: true, ..Ran::default() });
            }
        }
        progress.finish(console);
        if sums.examples() > 0 {
            self.input.report(session, console, (step, step), &sums, started.elapsed());
        }
        let steps = usize::try_from(step).unwrap_or(usize::MAX);
        if step == first {
            session.say(console, &format!("the run is complete: {step} steps are done"));
            return Ok(Ran { steps, complete: true, ..Ran::default() });
        }
        Ok(Ran { steps, ..Ran::default() })
    }

    /// Does something that all servers have a part in; when one is lost meanwhile, again
    /// after it has its variables back. None if these are not those of the last step.
    fn settled<T>(
        &mut self,
        steps: usize,
        console: &mut Console<'_>,
        act: &mut dyn FnMut(&mut Client, &Model) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            match act(&mut self.client, self.model) {
                Err(e) if again(&e) => {}
                other => return other.map(Some),
            }
            if self.sync(self.served.job.timeout, console)? < steps as u64 {
                return Ok(None);
            }
        }
    }

    /// Finds out how far clocks are apart, if a trace is wanted and that is not known.
    fn align(&mut self) -> Result<()> {
        if self.session.args.trace_job.is_none() || !self.clocks.is_empty() {
            return Ok(());
        }
        let servers = if self.is_chief() { self.served.job.servers.len() } else { 1 };
        let mut clocks = vec![];
        for server in 0..servers {
            match self.client.clock(server) {
                // The next step finds out what is wrong with it.
                Err(e) if again(&e) => return Ok(()),
                clock => clocks.push(clock?),
            }
        }
        self.clocks = clocks;
        Ok(())
    }

    /// As [`Session::save`], of what servers have.
    fn save(
        &mut self,
        ran: &Ran,
        checkpoints: Option<&mut Checkpoints<'_>>,
    ) -> Result<Option<String>> {
        if ran.steps == 0 || !self.session.saves() {
            return Ok(None);
        }
        let mut places = vec![];
        let mut outcome = Ok(());
        if let Some(path) = &self.session.args.state {
            outcome = carry::save_state(&mut self.client, self.model, Path::new(path));
            places.push(path.as_str());
        }
        if let Some(c) = checkpoints {
            let (model, input) = (self.model, &mut *self.input);
            let positions = self.client.positions.clone();
            let at = &mut |step| input.position(model, step, &positions);
            let saved = c.save_served(model, &mut self.client, at);
            outcome = saved.and(outcome);
            places.extend(c.dir().to_str());
        }
        outcome.map(|()| Some(list(places)))
    }

    /// Waits until the chief has what came out: if a server is lost before, there is
    /// more to do. None if it is so.
    fn stay(&mut self) -> Result<Option<End>> {
        let (since, patience) = (Instant::now(), self.client.patience());
        loop {
            match self.client.status() {
                Ok(counts) if counts.released => return Ok(Some(End::Done)),
                // It may be away, or hang: what it does, it asks servers for.
                Ok(counts) => {
                    let alone = since.elapsed();
                    if counts.silent.unwrap_or(alone).min(alone) > patience {
                        break;
                    }
                }
                Err(e) if again(&e) => return Ok(None),
                Err(e) => return Err(e),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(Error::peer(ErrorCode::PEER_LATE, "worker 0, the chief, was not heard of in time")
            .concerning(Party::Worker(0))
            .note("all steps are done, but it has not said that the variables are saved"))
    }

    /// Ends this worker's part; the chief waits for the others, and saves. None if the
    /// job went back, and there are steps to do again.
    fn finish(
        &mut self,
        mut ran: Ran,
        mut checkpoints: Option<&mut Checkpoints<'_>>,
        console: &mut Console<'_>,
    ) -> Result<Option<End>> {
        let done = ran.steps;
        let wanted = self.session.args.trace_job.is_some();
        if wanted && !self.is_chief() {
            // The job does not fail because nobody can see how it ran.
            let _ = self.client.hand_in(self.clocks.first().copied().unwrap_or_default());
        }
        if self.settled(done, console, &mut |client, _| client.leave())?.is_none() {
            return Ok(None);
        }
        match self.is_chief() {
            false if ran.interrupted => {
                // Somebody else may have left at the same time.
                if self.leaves
                    && let Rule::Together { need } = self.served.rule
                    && self.left()?.is_some_and(|n| n < need)
                {
                    self.client.stop()?;
                }
                return Ok(Some(End::Interrupted));
            }
            false => return self.stay(),
            true => {}
        }
        let patience = self.served.job.timeout;
        let (mut since, mut updates) = (Instant::now(), 0);
        let counts = loop {
            let counts = self.settled(done, console, &mut |client, _| client.status())?;
            let Some(counts) = counts else { return Ok(None) };
            if counts.stale[2] != updates {
                (since, updates) = (Instant::now(), counts.stale[2]);
            }
            if counts.working.is_empty() {
                break counts;
            }
            if since.elapsed() > patience {
                let names = counts.working.iter().map(|r| format!("worker {r}"));
                let names: Vec<String> = names.collect();
                let text = format!("{} did not say that it is done", names.join(", "));
                self.session.say(console, &text);
                break counts;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let saved = loop {
            match self.save(&ran, checkpoints.as_deref_mut()) {
                Err(e) if again(&e) => {}
                other => break other,
            }
            if self.sync(patience, console)? < done as u64 {
                return Ok(None);
            }
        };
        if wanted {
            match self.client.traces(&self.clocks) {
                Ok(all) => trace::write(self.session, all, console)?,
                Err(e) => self.session.warn(console, &e),
            }
        }
        // With the variables safe, the others are free to go, and then the servers.
        let released = match &self.session.args.checkpoint_dir {
            Some(_) => self.settled(done, console, &mut |client, _| client.release()).map(drop),
            None => self.client.release(),
        };
        let until = Instant::now() + patience.min(GOING);
        while released.is_ok() && Instant::now() < until {
            match self.client.status() {
                Ok(counts) if counts.present.iter().any(|r| *r > 0) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => break,
            }
        }
        // One that was restarted is called again.
        let ended = self.client.shutdown().or_else(|_| self.client.shutdown());
        let place = saved?;
        ended?;
        let total: u64 = counts.dropped.iter().sum();
        if total > 0 {
            let each = counts.dropped.iter().enumerate().filter(|(_, n)| **n > 0);
            let each: Vec<String> = each.map(|(r, n)| format!("{n} of worker {r}")).collect();
            let text = format!("{total} gradients came too late: {}", each.join(", "));
            self.session.say(console, &text);
        }
        let [sum, most, times] = counts.stale;
        if times > 0 {
            let mean = sum as f64 / times as f64;
            let text = format!(
                "{times} updates, of variables that were {mean:.1} updates old on average and \
                 {most} at most"
            );
            self.session.say(console, &text);
        }
        let [sent, received] = self.client.traffic;
        let waited = self.client.waited.iter().enumerate();
        let metrics = Metrics {
            mode: self.served.name,
            workers: self.served.job.size,
            servers: self.served.job.servers.len(),
            steps: ran.steps,
            time: self.started.elapsed(),
            sent,
            received,
            waits: waited.map(|(s, d)| (format!("server {s}"), *d)).collect(),
            dropped: counts.dropped.clone(),
            stale: counts.stale,
            ..Metrics::default()
        };
        metrics.report(self.session, console)?;
        if ran.interrupted {
            let text = match (&checkpoints, place) {
                (Some(c), _) => c.interruption(),
                (None, Some(place)) => {
                    format!("stopped after step {}: the variables are saved in {place}", ran.steps)
                }
                (None, None) => format!("stopped after step {}", ran.steps),
            };
            self.session.say(console, &text);
            return Ok(Some(End::Interrupted));
        }
        self.session.write_results(&mut ran)?;
        Ok(Some(End::Done))
    }
}

/// Puts averages over all workers where a worker's own scalars are.
fn average(out: &mut [TensorBuf], places: &[usize], values: Option<&[f64]>) {
    for (place, value) in places.iter().zip(values.unwrap_or(&[])) {
        let Some(t) = out.get_mut(*place) else { continue };
        match t.dtype {
            DType::F32 => t.bytes_mut().copy_from_slice(&(*value as f32).to_ne_bytes()),
            DType::F64 => t.bytes_mut().copy_from_slice(&value.to_ne_bytes()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_cluster_file() {
        let list = |text: &str| servers_in(text);
        let two = Some("a:1,b:2".to_owned());
        let file = "[job.worker]\ntasks = 2\n[job.ps] # two\ntasks = [\"a:1\", 'b:2']\n[net]\n";
        assert_eq!(list(file), two);
        assert_eq!(list("[job.ps]\ntasks = [\n  'a:1', # first\n  'b:2',\n]"), two);
        assert_eq!(list("[job.ps]\ntasks = 2"), None);
        assert_eq!(list("[job.worker]\ntasks = [\"a:1\"]"), None);
    }
}
