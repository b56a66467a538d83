//! Who is in the group: at the start of a job, and again when one of its workers is lost.
//!
//! Process 0, the chief, listens where the job says. The others call it (`Join`), and when
//! all have, each is told who belongs to the group and where the rest listen; then every
//! process calls those of lower rank (`Link`). Whoever runs another program, or claims a
//! rank that is taken, is refused and told why; it does not disturb the others.
//!
//! A job that is to live on after a loss ([`OnLoss`]) keeps the door open, and the calls as
//! [`Line`]s. The group *breaks* when a line ends, or somebody says that another is gone or
//! hangs: the chief tells all, and each ends its links, so that nobody goes on waiting.
//! Then all call again, and the chief decides who the group is: with `shrink` all that are
//! left, with `wait` as many as there were. What there is to agree on beyond that is the
//! chief's alone: variables, and the position in the data.
//!
//! Invariants
//! - A group has a number of its own (its *run*). What carries another one is refused.
//! - Links are of one run: what was on its way when the group broke is gone with them.
//! - A process is lost when its line has ended, when it does not answer in time
//!   ([`Job::answer`]), or when it answers and does not call within the time that a step may take.
//! - Whoever is asked to stop while the group is formed waits for nobody: the chief ends the
//!   run, and the others tell it to.

mod chief;
mod follower;

use super::call::{Call, Refused};
use super::job::{Job, OnLoss};
use super::line::{Cause, Kind, Line, Word};
use super::link::Link;
use super::mesh::{Formed, outlive_peers};
use super::tls::{self, Tls};
use super::{Moment, Stop, alive, hpack, late, lost};
use crate::error::{Error, ErrorCode, Party, Result};
use crate::hash::hex;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const JOIN: &str = "/tfc.Cluster/Join";
const LINK: &str = "/tfc.Cluster/Link";
/// The answer to whoever joins a run that has ended, and what it says when the run is to be
/// gone on with another time.
const OVER: &str = "tfc-over";
const STOPPED: &str = "stopped";
/// How long a process that is there may take to say so where steps are given less.
const LEAST_ANSWER: Duration = Duration::from_secs(1);
/// How long links to processes that have just called may take.
const LINKING: Duration = Duration::from_secs(20);
/// How often somebody who waits looks for what nobody tells it.
const LOOK: Duration = Duration::from_millis(50);
/// How often in a row a group may break while it is formed.
const ROUNDS: usize = 20;

/// What became of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regrouped {
    /// Processes that are in it no more, by their numbers in the job.
    pub lost: Vec<usize>,
    /// And those that have come.
    pub back: Vec<usize>,
    /// The chief has ended the run: there is no group any more.
    pub over: bool,
    /// This process was asked to stop, or another one: the group was not formed again.
    pub stopped: bool,
}

/// A process that has called the chief and waits for its answer.
struct Waiting {
    call: Call,
    address: String,
}

#[derive(Default)]
struct State {
    /// The group that there is or that is being formed; 0 before the first.
    run: u64,
    formed: Option<Arc<Formed>>,
    /// Their numbers in the job, in order.
    members: Vec<usize>,
    /// What broke it, and when.
    cause: Option<(Cause, Instant)>,
    /// The chief's lines by number; another's line to the chief.
    lines: BTreeMap<usize, Arc<Line>>,
    joining: BTreeMap<usize, Waiting>,
    linking: Vec<Call>,
    /// In how many groups, since one was last formed, others could not make a link to it.
    blamed: BTreeMap<usize, usize>,
    over: bool,
    /// A process was asked to stop while the group was formed.
    stopping: bool,
    /// Nobody musters any more.
    closed: bool,
    refused: u64,
}

impl State {
    /// The answer to whoever joins when the run has ended.
    fn over(&self) -> [(&'static str, &'static str); 1] {
        [(OVER, if self.stopping { STOPPED } else { "1" })]
    }
}

pub(super) struct Muster {
    job: Job,
    graph: String,
    tls: Option<Arc<Tls>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Why somebody was not let in, of late.
    turned_away: Mutex<Option<String>>,
}

/// Why there is no group yet.
enum Trouble {
    Fatal(Error),
    /// The chief is not there, or not any more.
    Chief(Error),
    /// The group broke while it was formed.
    Broke(Error),
    Over,
    /// This process was asked to stop, or another one, for which the chief has ended the run.
    Stopped,
}

impl Muster {
    /// Finds the other processes of a job.
    pub(super) fn join(job: &Job, graph: &[u8; 32]) -> Result<(Arc<Muster>, Arc<Formed>)> {
        outlive_peers();
        let tls = job.tls.as_ref().map(Tls::open).transpose()?;
        let muster = Arc::new(Muster {
            job: job.clone(),
            graph: hex(graph),
            tls,
            state: Mutex::default(),
            changed: Condvar::new(),
            turned_away: Mutex::default(),
        });
        let formed = match job.rank {
            0 => muster.receive().and_then(|()| {
                let formed = muster.call_together(true, &|| false, &mut |_| {})?;
                formed.ok_or_else(|| refused(0, Refused::Said("it was stopped".into()), job))
            }),
            _ => muster.follow(true, &|| false).map_err(|trouble| match trouble {
                Trouble::Over | Trouble::Stopped => {
                    refused(0, Refused::Said("the run is over".into()), job)
                }
                Trouble::Fatal(e) | Trouble::Chief(e) | Trouble::Broke(e) => e,
            }),
        };
        let formed = formed.inspect_err(|_| muster.close())?;
        if job.on_loss == OnLoss::Stop {
            muster.close();
        }
        Ok((muster, formed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    fn is_elastic(&self) -> bool {
        self.job.on_loss != OnLoss::Stop
    }

    /// Calls that were refused since the job began.
    pub(super) fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Nobody is let in from now on, and all lines end.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.formed = None;
        state.joining.clear();
        state.linking.clear();
        std::mem::take(&mut state.lines).values().for_each(|l| l.close());
        self.changed.notify_all();
    }

    /// Has the group of this run break, if it has not: its links end, and the chief tells
    /// the others why.
    pub(super) fn break_up(&self, run: u64, cause: Cause) {
        let mut state = self.state();
        if state.run != run || state.cause.is_some() || state.over {
            return;
        }
        state.cause = Some((cause.clone(), Instant::now()));
        if let Some(formed) = &state.formed {
            formed.close();
        }
        self.changed.notify_all();
        let lines: Vec<Arc<Line>> = state.lines.values().cloned().collect();
        drop(state);
        if self.job.rank == 0 {
            lines.iter().for_each(|l| l.say(&Word::Broken(cause.clone())));
        }
    }

    /// What an exchange of this run failed with, as the whole group knows it: somebody may
    /// have ended its links because a third is lost.
    pub(super) fn explain(&self, run: u64, e: Error, moment: &Moment<'_>) -> Error {
        let kind = match e.code() {
            ErrorCode::PEER_LOST => Kind::Lost,
            ErrorCode::PEER_LATE => Kind::Late,
            _ => return e,
        };
        let Some(peer) = worker(&e) else { return e };
        let own = Cause { peer, kind, why: e.message().to_owned() };
        if self.job.rank == 0 {
            self.break_up(run, own);
        } else {
            self.ask_chief(run, own);
        }
        let state = self.state();
        match &state.cause {
            Some((cause, _)) if state.run == run && cause.peer != peer => described(cause, moment),
            _ => e,
        }
    }

    /// Tells the chief what was found, and waits for its word.
    fn ask_chief(&self, run: u64, own: Cause) {
        let known = |state: &State| state.run != run || state.cause.is_some() || state.over;
        let mut state = self.state();
        let line = state.lines.get(&0).cloned();
        if let Some(line) = line.filter(|_| !known(&state)) {
            drop(state);
            line.say(&Word::Broken(own.clone()));
            state = self.state();
        }
        let until = Instant::now() + self.answer();
        while !known(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        drop(state);
        self.break_up(run, own);
    }

    /// A line to another process, and a thread that hears what is said there.
    fn attach(self: &Arc<Self>, peer: usize, run: u64, link: Link) -> io::Result<Arc<Line>> {
        alive::watch(link.stream.tcp(), self.job.timeout);
        let line = Line::new(peer, run, link);
        let (muster, own) = (self.clone(), line.clone());
        std::thread::Builder::new().name(format!("tfc-line-{peer}")).spawn(move || {
            own.listen(muster.job.size, &|word| muster.heard(&own, word));
            muster.ended(&own);
        })?;
        Ok(line)
    }

    fn heard(&self, line: &Arc<Line>, word: Word) {
        match word {
            Word::Broken(cause) => {
                let mut state = self.state();
                // What others find when it is broken follows from that.
                let whole = state.run == line.run && state.cause.is_none();
                if cause.kind == Kind::Unreachable && self.job.rank == 0 && whole {
                    // Which of the two it is nobody can tell; the chief is not the one.
                    let peer = if cause.peer == 0 { line.peer } else { cause.peer };
                    *state.blamed.entry(peer).or_default() += 1;
                }
                drop(state);
                // Who sees that the group is broken sees as well that the chief is there.
                line.set_here();
                self.break_up(line.run, cause);
                if self.job.rank > 0 {
                    line.say(&Word::Here);
                }
            }
            Word::Here if self.job.rank == 0 => line.set_here(),
            Word::Here => line.set_answered(),
            Word::Left => line.set_left(),
            Word::Over if self.job.rank > 0 => {
                self.state().over = true;
            }
            Word::Asked if self.job.rank == 0 => line.say(&Word::Here),
            Word::Stop if self.job.rank == 0 => self.state().stopping = true,
            Word::Over | Word::Asked | Word::Stop => {}
        }
        self.changed.notify_all();
    }

    fn ended(&self, line: &Arc<Line>) {
        if !line.has_left() {
            let why = "it has ended";
            self.break_up(
                line.run,
                Cause {
                    peer: line.peer,
                    kind: Kind::Lost,
                    why: format!("worker {} is gone: {why}", line.peer),
                },
            );
        }
        self.changed.notify_all();
    }

    fn answer(&self) -> Duration {
        self.job.timeout.min(self.job.answer).max(LEAST_ANSWER)
    }

    fn linking(&self) -> Duration {
        match self.is_elastic() {
            true => self.job.join_timeout.min(LINKING),
            false => self.job.join_timeout,
        }
    }

    /// Until when links may take that are made now, where all are to be there until then. Who
    /// came at the last moment has time for it, too.
    fn linked_by(&self, deadline: Instant) -> Instant {
        let now = Instant::now();
        deadline.min(now + self.linking()).max(now + self.answer())
    }

    /// The group is formed, unless it is broken already.
    fn settle(
        &self,
        run: u64,
        rank: usize,
        members: Vec<usize>,
        links: Vec<Option<Link>>,
    ) -> Result<Arc<Formed>> {
        links.iter().flatten().for_each(|l| alive::watch(l.stream.tcp(), self.job.timeout));
        let formed = Arc::new(Formed::new(run, rank, members.clone(), links));
        let mut state = self.state();
        if let Some((cause, _)) = &state.cause {
            return Err(described(cause, &forming()));
        }
        (state.formed, state.members) = (Some(formed.clone()), members);
        state.blamed.clear();
        Ok(formed)
    }

    /// Forms the group again, after it broke or something in it failed.
    pub(super) fn regroup(
        self: &Arc<Self>,
        before: &Formed,
        stop: Stop<'_>,
        say: &mut dyn FnMut(&str),
    ) -> Result<(Option<Arc<Formed>>, Regrouped)> {
        let unknown = Cause { peer: self.job.rank, kind: Kind::Lost, why: "a step failed".into() };
        match self.job.rank {
            0 => self.break_up(before.run, unknown),
            _ => self.ask_chief(before.run, unknown),
        }
        let over = Regrouped { over: true, ..Regrouped::default() };
        let stopped = Regrouped { stopped: true, ..Regrouped::default() };
        let formed = if self.job.rank == 0 {
            match self.call_together(false, stop, say)? {
                Some(formed) => formed,
                None => return Ok((None, stopped)),
            }
        } else {
            {
                let state = self.state();
                if state.over {
                    return Ok((None, over));
                }
                let line = state.lines.get(&0);
                let (gone, here) = line.map_or((true, false), |l| (l.is_gone(), l.is_here()));
                if !gone && !here {
                    super::accuse(0);
                }
                if !here && self.job.on_loss == OnLoss::Shrink {
                    let e = match &state.cause {
                        Some((cause, _)) if cause.peer == 0 => described(cause, &forming()),
                        _ if gone => lost(0, &forming(), "it has ended"),
                        _ => late(0, &forming()),
                    };
                    return Err(
                        e.note("a job cannot continue without its chief, which has the files")
                    );
                }
            }
            match self.follow(false, stop) {
                Ok(formed) => formed,
                Err(Trouble::Over) => return Ok((None, over)),
                Err(Trouble::Stopped) => return Ok((None, stopped)),
                Err(Trouble::Fatal(e) | Trouble::Chief(e) | Trouble::Broke(e)) => return Err(e),
            }
        };
        let but = |some: &[usize], others: &[usize]| {
            some.iter().filter(|m| !others.contains(m)).copied().collect::<Vec<usize>>()
        };
        let lost = but(&before.members, &formed.members);
        let back = but(&formed.members, &before.members);
        Ok((Some(formed), Regrouped { lost, back, ..Regrouped::default() }))
    }

    /// An error if the group is broken.
    pub(super) fn check(&self, moment: &Moment<'_>) -> Result<()> {
        match &self.state().cause {
            Some((cause, _)) => Err(described(cause, moment)),
            None => Ok(()),
        }
    }

    /// Whose loss has broken the group of a run, by its number in the job.
    pub(super) fn lost(&self, run: u64) -> Option<usize> {
        let state = self.state();
        state.cause.as_ref().filter(|_| state.run == run).map(|(cause, _)| cause.peer)
    }

    /// The chief has saved what there is, and the others may go; they wait for that, as long
    /// as the chief is there.
    pub(super) fn farewell(&self, moment: &Moment<'_>) -> Result<()> {
        let mut state = self.state();
        if self.job.rank == 0 {
            state.over = true;
            let lines: Vec<Arc<Line>> = state.lines.values().cloned().collect();
            let (over, waiting) = (state.over(), std::mem::take(&mut state.joining));
            drop(state);
            lines.iter().for_each(|l| l.say(&Word::Over));
            Call::dismiss_all(waiting.into_values().map(|w| w.call).collect(), &over);
            return Ok(());
        }
        let (mut next, mut asked) = (Instant::now() + self.job.timeout, false);
        while !state.over {
            if let Some((cause, _)) = &state.cause {
                return Err(described(cause, moment));
            }
            if Instant::now() < next {
                state = self.wait(state, LOOK);
                continue;
            }
            // However long it saves, it can say that it is there.
            let (run, line) = (state.run, state.lines.get(&0).cloned());
            drop(state);
            let answered = line.as_ref().is_some_and(|l| l.take_answer());
            match line {
                _ if answered => (next, asked) = (Instant::now() + self.job.timeout, false),
                Some(line) if !asked => {
                    line.say(&Word::Asked);
                    (next, asked) = (Instant::now() + self.answer(), true);
                }
                _ => {
                    let why = late(0, moment).message().to_owned();
                    self.break_up(run, Cause { peer: 0, kind: Kind::Late, why });
                }
            }
            state = self.state();
        }
        Ok(())
    }

    /// This process is done.
    pub(super) fn leave(&self) {
        if self.job.rank > 0 {
            let line = self.state().lines.get(&0).cloned();
            line.inspect(|l| {
                l.set_left();
                l.say(&Word::Left);
            });
        }
    }

    fn absent(&self, missing: &[usize], first: bool) -> Error {
        let job = &self.job;
        let have = if missing.len() == 1 { "has" } else { "have" };
        let seconds = job.join_timeout.as_secs_f64();
        let message = match first {
            true => {
                let of = format!("{} of {}", workers(missing), job.size);
                format!("{of} {have} not joined within {seconds} s")
            }
            false => format!("{} {have} not come back within {seconds} s", workers(missing)),
        };
        let away = self.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
        let e = Error::peer(ErrorCode::PEER_LATE, message)
            .concerning(Party::Worker(missing.first().copied().unwrap_or(0)))
            .note(format!("this is worker {}; the job meets at {}", job.rank, job.coordinator));
        match &*away {
            Some(why) => e.note(format!("a process was turned away: {why}")),
            None => e,
        }
        .help("start them, or give them longer with `--join-timeout`")
    }
}

/// The worker that an error is about.
fn worker(e: &Error) -> Option<usize> {
    e.about().iter().find_map(|p| match p {
        Party::Worker(number) => Some(*number),
        Party::Server(_) => None,
    })
}

/// `worker 1`, `workers 1, 2`
fn workers(numbers: &[usize]) -> String {
    let names: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("worker{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

/// Puts the link of somebody of higher rank where it belongs.
fn place(mut call: Call, run: u64, members: &[usize], links: &mut [Option<Link>]) -> Result<()> {
    let who = hpack::get(&call.headers, "tfc-rank").and_then(|n| n.parse::<usize>().ok());
    let at = members.iter().position(|m| Some(*m) == who);
    match at.filter(|at| links[*at].is_none() && *at > 0) {
        Some(at) => {
            let peer = members[at];
            let linked = call.answer(&[]).and_then(|()| call.into_link(peer, run));
            links[at] = Some(linked.map_err(|e| unreachable(peer, "", &e))?);
        }
        None => call.refuse("this is not a worker the job waits for"),
    }
    Ok(())
}

fn forming() -> Moment<'static> {
    Moment { sequence: 0, deadline: Instant::now(), what: "who is in the group", place: "" }
}

/// Why a group broke, for whoever was at something.
fn described(cause: &Cause, moment: &Moment<'_>) -> Error {
    let e = match cause.kind {
        Kind::Late => late(cause.peer, moment),
        _ => lost(cause.peer, moment, ""),
    };
    if cause.why.is_empty() { e } else { e.worded(&cause.why) }
}

fn unreachable(peer: usize, address: &str, e: &io::Error) -> Error {
    let at = if address.is_empty() { String::new() } else { format!(" at {address}") };
    let why = crate::io::io_reason(e);
    Error::peer(ErrorCode::PEER_LOST, format!("worker {peer} cannot be reached{at}: {why}"))
        .concerning(Party::Worker(peer))
}

/// What makes processes trust each other.
pub(super) const TRUSTED: &str = "give every process a valid certificate of the same authority: \
                                  `--tls-cert`, `--tls-key`, `--tls-ca`";

fn refused(peer: usize, why: Refused, job: &Job) -> Error {
    match why {
        Refused::Io(e)
            if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            let message = format!("worker {peer} did not let worker {} join in time", job.rank);
            Error::peer(ErrorCode::PEER_LATE, message)
                .note("it waits until all workers of the job are there")
                .help("start the others, or give them longer with `--join-timeout`")
        }
        Refused::Io(e) => match tls::distrust(&e) {
            Some(why) => {
                let message =
                    format!("worker {peer} and worker {} do not trust each other: {why}", job.rank);
                Error::peer(ErrorCode::NOT_TRUSTED, message).help(TRUSTED)
            }
            None => unreachable(peer, "", &e),
        },
        Refused::Said(why) => {
            let message = format!("worker {peer} refused worker {}: {why}", job.rank);
            Error::peer(ErrorCode::JOIN_REFUSED, message)
                .help("start every worker of a job with the same program and the same options")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// One loss makes links fail here and there; that a process cannot be reached is what is
    /// found in two groups, one after the other.
    #[test]
    fn who_cannot_be_reached_is_blamed_once_for_each_group() {
        let muster = Muster {
            job: Job { on_loss: OnLoss::Shrink, ..Job::new(0, 4, "a:1") },
            graph: String::new(),
            tls: None,
            state: Mutex::default(),
            changed: Condvar::new(),
            turned_away: Mutex::default(),
        };
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let form = |run: u64| {
            let mut state = muster.state();
            (state.run, state.formed, state.cause) = (run, None, None);
        };
        let complain = |from: usize, run: u64| {
            let wire = tls::Wire::Plain(there.try_clone().unwrap());
            let (allowed, decoder) = Default::default();
            let line = Line::new(from, run, Link::new(from, run, wire, allowed, decoder));
            let why = "connection refused".to_owned();
            muster.heard(&line, Word::Broken(Cause { peer: 1, kind: Kind::Unreachable, why }));
        };
        let blamed = || muster.state().blamed.get(&1).copied();
        form(7);
        complain(2, 7);
        complain(3, 7);
        assert_eq!(blamed(), Some(1), "two have found the same");
        form(8);
        complain(3, 7);
        assert_eq!(blamed(), Some(1), "it was about a group that is no more");
        complain(3, 8);
        assert_eq!(blamed(), Some(2));
        form(9);
        muster.settle(9, 0, vec![0], vec![None]).unwrap();
        assert_eq!(blamed(), None, "the group is whole");
    }
}
