//! One command, run by several processes at once.
//!
//! Each takes its part of every batch; the gradients are averaged in the step itself.
//! The first process, the chief, is the one that reads and writes files, and reports:
//! it sends the variables it starts with to the others, and says where in the data
//! the run begins. A signal to one of them stops all after the same step.

use super::args::{Args, Mode};
use super::average::Average;
use super::metrics::Metrics;
use super::{Console, Session, signals, trace};
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::net::clock::Offset;
use crate::net::collective::Reduce;
use crate::net::direct::Way;
use crate::net::job::{Job, OnLoss};
use crate::net::{Group, Regrouped};
use crate::queue::uses_queue;
use crate::tensor::TensorBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tfc_abi::DType;
use tfc_abi::plan::{Entry, Plan, QueueAction};

/// Stands for the number of a worker in names of files.
const RANK: &str = "{rank}";

/// How a run goes on after the loss of a process.
pub(super) enum After<const N: usize> {
    /// From where this process is: it is the chief.
    Here,
    /// From where the chief is.
    There([usize; N]),
    /// It does not: the chief has ended it.
    Over,
    /// It does not: a process was asked to stop.
    Stopped,
    /// It does not, for this reason.
    Failed(Error),
}

/// How long it may take until all of those that are asked to stop together know.
const ALL_ASKED: Duration = Duration::from_millis(500);

pub(super) struct Team {
    group: Option<Arc<Group>>,
    /// The workers only meet from time to time.
    average: Option<Average>,
    /// Every worker has data of its own.
    private: bool,
    /// The run is saved, by the chief.
    pub(super) saves: bool,
    /// Who has said that there are others, where that is not plain.
    pub(super) found: Option<String>,
    /// How many of the workers before this one are on this machine.
    pub(super) turn: usize,
    /// It goes, and the others go on.
    leaves: AtomicBool,
}

impl Team {
    /// Nobody else.
    pub(super) fn alone() -> Team {
        let leaves = AtomicBool::new(false);
        let (group, average, private, saves, found) = (None, None, false, false, None);
        Team { group, average, private, saves, found, turn: 0, leaves }
    }

    /// Joins the job that the environment describes, if there is one.
    pub(super) fn join(
        plan: &Plan,
        entry: usize,
        args: &Args,
        saves: bool,
    ) -> Result<Option<Team>> {
        if args.mode == Some(Mode::Local) {
            return Ok(None);
        }
        let Some(mut job) = Job::from_environment()? else {
            return args.mode.map_or(Ok(None), |mode| Err(nobody(mode)));
        };
        job.timeout = args.peer_timeout.unwrap_or(job.timeout);
        job.join_timeout = args.join_timeout.unwrap_or(job.join_timeout);
        job.on_loss = args.on_loss;
        args.encrypt(&mut job)?;
        let e = &plan.entries[entry];
        let average = match args.mode {
            Some(Mode::Average) => Some(Average::new(plan, entry, args)?),
            _ => None,
        };
        if average.is_none() && plan.replica(entry).is_none() {
            return Err(nothing_to_share(e, job.size));
        }
        let own = |text: &str| text.contains(RANK);
        let private = args.feeds.iter().chain(&args.data).any(|(_, text)| own(text));
        if args.on_loss != OnLoss::Stop {
            can_go_on(plan, entry, args, private)?;
        }
        let group = Group::join(&job, &plan.graph_hash)?;
        if group.on_loss() != args.on_loss {
            return Err(cannot_outlive(
                args.on_loss,
                &format!("its messages are carried by {}", group.engine()),
            ));
        }
        // Who comes later cannot be asked with the others.
        let turn = match args.on_loss {
            OnLoss::Stop => group.number_here()?,
            OnLoss::Shrink | OnLoss::Wait => job.rank,
        };
        let (group, found) = (Some(Arc::new(group)), job.introduction());
        let leaves = AtomicBool::new(false);
        Ok(Some(Team { group, average, private, saves, found, turn, leaves }))
    }

    /// The job goes on after a loss.
    pub(super) fn is_elastic(&self) -> bool {
        self.group.as_ref().is_some_and(|g| g.on_loss() != OnLoss::Stop)
    }

    pub(super) fn size(&self) -> usize {
        self.group.as_ref().map_or(1, |g| g.size())
    }

    pub(super) fn is_chief(&self) -> bool {
        self.group.as_ref().is_none_or(|g| g.is_chief())
    }

    /// What the chief's messages came to.
    pub(super) fn metrics(&self) -> Option<Metrics> {
        let g = self.group.as_ref().filter(|g| g.is_chief() && g.most() > 1)?;
        let peers = g.peers();
        let sum = |i: usize| peers.iter().map(|p| p[i]).sum();
        let others = peers.iter().enumerate().filter(|(r, p)| *r > 0 && p[1] > 0);
        let waits = others.map(|(r, p)| (format!("worker {r}"), Duration::from_nanos(p[2])));
        let mut waits: Vec<(String, Duration)> = waits.collect();
        if waits.is_empty() {
            // The engine's own sums.
            let waited = Duration::from_nanos(g.counters().waited);
            waits.push(("the others".to_owned(), waited));
        }
        Some(Metrics {
            mode: if self.average.is_some() { "average" } else { "sync" },
            workers: g.size(),
            lost: g.counters().lost,
            regrouped: g.counters().regrouped,
            refused: g.counters().refused,
            sent: sum(0),
            received: sum(1),
            waits,
            ..Metrics::default()
        })
    }

    /// How far this process's clock is off, if a trace of the job is wanted.
    pub(super) fn clock(&self, args: &Args) -> Result<Offset> {
        self.group.as_ref().map_or(Ok(Offset::default()), |g| trace::begin(args, g))
    }

    /// The end of a job of which a trace is wanted.
    pub(super) fn trace(
        &self,
        session: &Session<'_>,
        clock: Offset,
        console: &mut Console<'_>,
    ) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), |g| trace::end(session, g, clock, console))
    }

    /// What the run is, in a line for people.
    pub(super) fn describe(&self) -> Option<String> {
        let g = self.group.as_ref()?;
        if let Some(average) = &self.average {
            return Some(average.describe(g.size()));
        }
        Some(format!(
            "{} workers train together over {}: each takes its part of every batch",
            g.size(),
            g.engine()
        ))
    }

    /// The options with `{rank}` in names of files replaced by the number of this worker.
    pub(super) fn own_files(&self, args: &Args) -> Args {
        let rank = self.group.as_ref().map_or(0, |g| g.rank()).to_string();
        let own = |list: &[(String, String)]| {
            list.iter().map(|(n, text)| (n.clone(), text.replace(RANK, &rank))).collect()
        };
        Args { feeds: own(&args.feeds), data: own(&args.data), ..args.clone() }
    }

    /// What is left to a process that is not the chief: it neither reads nor writes
    /// the files of the run.
    pub(super) fn strip(args: &Args) -> Args {
        Args {
            quiet: true,
            state: None,
            restore: None,
            restore_map: vec![],
            checkpoint_dir: None,
            save_every: None,
            keep: None,
            resume: false,
            resume_anyway: false,
            outs: vec![],
            profile: None,
            metrics: None,
            ..args.clone()
        }
    }

    /// Gives everybody the chief's variables, if that can be done once and for all. What
    /// there is to say of how gradients travel, it gives.
    pub(super) fn begin(&self, model: &Model) -> Result<Option<String>> {
        if self.is_elastic() { Ok(None) } else { self.share(model) }
    }

    /// Where the chief is, for everybody; with its variables, where somebody may be lost
    /// meanwhile.
    pub(super) fn start<const N: usize>(
        &self,
        model: &Model,
        session: &Session<'_>,
        console: &mut Console<'_>,
        at: [usize; N],
    ) -> Result<[usize; N]> {
        if !self.is_elastic() {
            return self.tell(at);
        }
        let told = self.share(model).and_then(|way| {
            way.iter().for_each(|text| session.say(console, text));
            self.tell(at)
        });
        match told {
            Err(e) => match self.regroup(model, session, console, e, at) {
                After::There(at) => Ok(at),
                // The first step fails, and hears of it.
                After::Here | After::Stopped => Ok(at),
                After::Over => Err(Error::peer(ErrorCode::JOIN_REFUSED, "the run is over")),
                After::Failed(e) => Err(e),
            },
            started => started,
        }
    }

    /// Lets the model's steps use the group, and gives everybody the chief's
    /// variables. What there is to say of how gradients travel, it gives.
    fn share(&self, model: &Model) -> Result<Option<String>> {
        let Some(group) = &self.group else { return Ok(None) };
        let mut said = None;
        if self.average.is_none() {
            model.join(group.clone());
            said = match model.connect_devices()? {
                _ if group.size() == 1 => None,
                Way::Direct(engine) => Some(format!("gradients go from GPU to GPU by {engine}")),
                Way::ThroughCpu(why) if model.has_gpus() => {
                    Some(format!("gradients go through the CPU: {why}"))
                }
                Way::ThroughCpu(_) => None,
            };
        }
        let mut values = vec![];
        for var in 0..model.plan().vars.len() {
            let mut value = model.read_var(var)?;
            let what = format!("variable `{}`", model.plan().vars[var].name);
            group.broadcast(value.bytes_mut(), &what)?;
            values.push((var, value));
        }
        let mut positions = model.queues().positions();
        let numbers: Vec<i64> = positions.iter().flat_map(|(_, p)| p).copied().collect();
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        if !bytes.is_empty() {
            group.broadcast(&mut bytes, "how far the data was used")?;
        }
        if !self.is_chief() {
            model.write_vars(values)?;
            let places = positions.iter_mut().flat_map(|(_, p)| p);
            for (n, b) in places.zip(bytes.chunks_exact(8)) {
                let mut word = [0; 8];
                word.copy_from_slice(b);
                *n = i64::from_ne_bytes(word);
            }
            if positions.iter().any(|(_, p)| p.iter().any(|n| *n != 0)) {
                model.queues().set_positions(&positions)?;
            }
        }
        if let Some(average) = &self.average {
            average.begin(model)?;
        }
        Ok(said)
    }

    /// With data of their own the workers have different numbers of steps: all do as
    /// many as the one that has most.
    pub(super) fn agree_steps(&self, steps: usize) -> Result<Option<usize>> {
        let Some(group) = self.group.as_ref().filter(|_| self.private) else { return Ok(None) };
        let most =
            group.agree(i64::try_from(steps).unwrap_or(i64::MAX), "how many steps there are")?;
        Ok(Some(usize::try_from(most).unwrap_or(usize::MAX)))
    }

    /// The end of a run.
    pub(super) fn finish(&self, model: &Model) -> Result<()> {
        match (&self.group, &self.average) {
            (Some(group), Some(average)) => average.finish(model, group),
            _ => Ok(()),
        }
    }

    /// Whether a run goes on when this happens to a step.
    pub(super) fn outlives(&self, e: &Error) -> bool {
        self.group.as_ref().is_some_and(|g| g.outlives(e))
    }

    /// After an error: if it is a loss that is outlived, those that are left, or all when they
    /// are back, go on where the chief is, which all of them are told.
    pub(super) fn regroup<const N: usize>(
        &self,
        model: &Model,
        session: &Session<'_>,
        console: &mut Console<'_>,
        why: Error,
        at: [usize; N],
    ) -> After<N> {
        let (mut why, chief) = (why, self.is_chief());
        let Some(group) = &self.group else { return After::Failed(why) };
        let direct = model.exchanges_by_gpus();
        while self.outlives(&why) {
            if chief {
                session.warn(console, &why);
            }
            let stop = || signals::raised() && !self.may_leave();
            let what = group.regroup_unless(&stop, &mut |text| {
                if chief {
                    session.say(console, text);
                }
            });
            match what {
                Err(e) => return After::Failed(e),
                Ok(what) if what.over => return After::Over,
                Ok(what) if what.stopped => return After::Stopped,
                Ok(what) if chief => session.say(console, &self.regrouped(&what)),
                Ok(_) => {}
            }
            let told = self.share(model).and_then(|way| {
                // It is said once.
                let changed = direct != model.exchanges_by_gpus();
                way.iter().filter(|_| changed).for_each(|text| session.say(console, text));
                self.tell(at)
            });
            match told {
                Ok(_) if chief => return After::Here,
                Ok(at) => return After::There(at),
                // Perhaps another one.
                Err(e) => why = e,
            }
        }
        After::Failed(why)
    }

    /// What is said when the group was formed again.
    fn regrouped(&self, what: &Regrouped) -> String {
        let n = self.size();
        let names = |list: &[usize]| {
            let names: Vec<String> = list.iter().map(|n| format!("worker {n}")).collect();
            let verb = if list.len() == 1 { "is" } else { "are" };
            format!("{} {verb}", names.join(", "))
        };
        let all = if n == 1 { "one worker is".to_owned() } else { format!("{n} workers are") };
        let who = match (&what.lost[..], &what.back[..]) {
            ([], []) => format!("{all} there again"),
            ([], back) => format!("{} back, {all} there", names(back)),
            (lost, []) => format!("{} lost, {all} left", names(lost)),
            (lost, back) => format!("{} lost, {} back, {all} left", names(lost), names(back)),
        };
        format!("{who}: the run goes on from the last whole step")
    }

    /// The end of a run that outlives losses: the chief has saved, and the others may go.
    pub(super) fn dismiss(&self) -> Result<()> {
        self.group.as_ref().filter(|g| g.is_chief()).map_or(Ok(()), |g| g.farewell())
    }

    /// Waits for that.
    pub(super) fn wait_for_chief(&self) -> Result<()> {
        let waits = self.group.as_ref().filter(|g| !g.is_chief() && !self.leaves());
        waits.map_or(Ok(()), |g| g.farewell())
    }

    /// This process is done.
    pub(super) fn leave(&self) {
        self.group.iter().for_each(|g| g.leave());
    }

    /// Numbers of the chief's, for everybody.
    pub(super) fn tell<const N: usize>(&self, numbers: [usize; N]) -> Result<[usize; N]> {
        let Some(group) = &self.group else { return Ok(numbers) };
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| (*n as u64).to_ne_bytes()).collect();
        group.broadcast(&mut bytes, "where the run begins")?;
        let mut out = [0; N];
        for (n, b) in out.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(b);
            *n = u64::from_ne_bytes(word) as usize;
        }
        Ok(out)
    }

    /// Examples a batch must have so that everybody gets as many as the graph needs, however
    /// many of them are there at present: they all do the same steps.
    pub(super) fn smallest(&self, each: usize) -> usize {
        let all = self.group.as_ref().map_or(1, |g| g.most());
        if all == 1 || self.private { each } else { each.max(1) * all }
    }

    pub(super) fn check_batch(&self, batch: usize, each: usize) -> Result<()> {
        let least = self.smallest(each);
        let all = self.group.as_ref().map_or(1, |g| g.most());
        if batch >= least || all == 1 || self.private {
            return Ok(());
        }
        Err(Error::data(
            ErrorCode::CANNOT_SHARE,
            format!("a batch of {batch} cannot be shared by {all} workers"),
        )
        .help(format!("use at least {least}, or fewer workers")))
    }

    /// The part of the examples `lo..hi` of a step that is ours.
    pub(super) fn part(&self, lo: usize, hi: usize) -> (usize, usize) {
        let Some(group) = self.group.as_ref().filter(|_| !self.private) else { return (lo, hi) };
        let (mine_lo, mine_hi) = group.part(lo, hi);
        group.set_share(mine_hi - mine_lo, hi - lo);
        (mine_lo, mine_hi)
    }

    /// After a step: its float scalars become those of all examples, and a signal to
    /// one process is one to all. True when the run should stop here: whoever asks for
    /// signals itself may see one that the others have not heard of.
    pub(super) fn after_step(
        &self,
        model: &Model,
        results: &mut [TensorBuf],
        examples: usize,
    ) -> Result<bool> {
        let Some(group) = &self.group else { return Ok(signals::raised()) };
        // They stop where they meet, so that all of them do.
        if let Some(average) = &self.average
            && !average.step(model, group, examples)?
        {
            return Ok(false);
        }
        let mut scalars: Vec<&mut TensorBuf> =
            results.iter_mut().filter(|t| t.shape.is_empty() && t.dtype.is_float()).collect();
        let mut parts: Vec<(DType, &mut [u8])> = vec![];
        for t in &mut scalars {
            parts.push((t.dtype, t.bytes_mut()));
        }
        let own: Vec<Vec<u8>> = parts.iter().map(|(_, bytes)| bytes.to_vec()).collect();
        let asked = signals::raised() && !self.may_leave();
        // If all are asked, the chief is, too, and they stop together.
        let leaves = self.may_leave() && signals::raised_for().is_some_and(|t| t > ALL_ASKED);
        let combined = group
            .all_reduce(&mut parts, Reduce::Mean, "the results of the step", "")
            .and_then(|()| group.agree(asked.into(), "whether to stop"));
        // Without the others' they are those of this worker's part.
        if combined.is_err() {
            parts.iter_mut().zip(&own).for_each(|((_, bytes), own)| bytes.copy_from_slice(own));
        }
        let stop = combined? > 0;
        self.leaves.store(leaves && !stop, Ordering::Release);
        Ok(stop || leaves)
    }

    /// Whether the others go on when this worker does not.
    fn may_leave(&self) -> bool {
        // A process that ends by itself is not lost to MPI.
        let grpc = |g: &&Arc<Group>| !g.is_chief() && g.engine() != "MPI";
        self.group.as_ref().filter(grpc).is_some_and(|g| g.on_loss() == OnLoss::Shrink)
    }

    /// Whether this worker goes, and the others go on.
    pub(super) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }
}

/// A mode was asked for that takes other processes, and there are none.
pub(super) fn nobody(mode: Mode) -> Error {
    let mode = match mode {
        Mode::Average => "average",
        Mode::Local | Mode::Sync => "sync",
        Mode::PsSync | Mode::PsAsync | Mode::Backup => {
            return Error::usage(ErrorCode::BAD_JOB, "there are no parameter servers")
                .help("start the job with `tfc launch --ps 1 --workers 2 ..`");
        }
    };
    Error::usage(ErrorCode::BAD_JOB, "there is nobody to train with")
        .note(format!("`--mode {mode}` needs the environment of a launcher"))
        .help("start the processes with `tfc launch -n 2 ..`, `mpirun` or `srun`")
}

/// What can be gone on with when a worker is lost: where all know where they are in the data.
fn can_go_on(plan: &Plan, entry: usize, args: &Args, private: bool) -> Result<()> {
    let e = &plan.entries[entry];
    let takes = |q: usize| uses_queue(e, q as u32, QueueAction::takes);
    let why = if args.mode == Some(Mode::Average) {
        "in mode `average` every worker has variables of its own"
    } else if private {
        "every worker has data of its own"
    } else if (0..plan.queues.len()).any(takes) {
        "it takes its input from queues and readers"
    } else if !Session::calls_again(args) {
        "it is called once: `--batch` or `--steps` makes steps of it"
    } else if args.trace_job.is_some() {
        "`--trace-job` takes the same processes from the beginning to the end"
    } else {
        return Ok(());
    };
    Err(cannot_outlive(args.on_loss, why))
}

fn cannot_outlive(on_loss: OnLoss, why: &str) -> Error {
    Error::usage(ErrorCode::BAD_JOB, "this job cannot go on without a worker that is lost")
        .note(why.to_owned())
        .help(format!(
            "`--on-loss {}` works in mode `sync`, with batches of one set of data, over gRPC{}; \
             otherwise `tfc launch --restarts 3` starts all workers again",
            on_loss.name(),
            match on_loss {
                OnLoss::Shrink => " or where `mpirun --with-ft ulfm` starts the workers",
                _ => "",
            }
        ))
}

pub(super) fn nothing_to_share(e: &Entry, size: usize) -> Error {
    Error::usage(
        ErrorCode::CANNOT_SHARE,
        format!("`{}` has nothing that {size} workers could do together", e.name),
    )
    .note("it trains nothing: there are no gradients to average, and no `all_reduce`")
    .help("run it alone, or with `--mode local` in every process")
}
