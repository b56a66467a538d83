//! Several processes that train as one.
//!
//! | module | job |
//! |---|---|
//! | [`job`] | which process of how many this is, from the command line or the launcher's environment |
//! | [`muster`] | who is in the group, when a job begins and when a process is lost |
//! | [`mesh`] | the group: every process has a link to every other |
//! | [`line`] | what is said about processes that are lost |
//! | [`door`], [`call`] | connections that come in, and go out |
//! | [`link`], [`h2`], [`hpack`] | one connection: gRPC messages over HTTP/2 |
//! | [`local`] | the same between threads, for tests |
//! | [`mpi`] | an MPI library that is there when the program runs |
//! | [`ps`] | parameter servers |
//! | [`collective`] | sums over all processes, out of exchanges between two |
//! | [`alive`] | connections to hosts that have vanished end |
//! | [`clock`] | how far clocks are apart |
//! | [`beside`] | exchanges that go on while a step computes |
//! | [`direct`] | exchanges that GPUs do among themselves |
//! | [`counted`] | what goes to and comes from each process |
//! | [`tls`] | encryption, by an OpenSSL that is there when the program runs |
//! | [`post`] | messages from one process to another, which the sender does not wait for |
//!
//! The wire is gRPC, so that proxies, meshes and tools of clusters know what to do
//! with it; it is spoken by this module alone, because the runtime depends on no
//! crate.
//!
//! Invariants
//! - Every process does the same exchanges in the same order; each message carries
//!   the job's incarnation and the number of the exchange, and one that does not fit
//!   is an error, never data.
//! - All processes end up with the same bits: a sum is formed once, in an order that
//!   depends on the number of processes alone.
//! - Every wait has a deadline. When it passes, or a peer is gone, the error names
//!   the peer, what was waited for and its place in the graph.

mod alive;
mod beside;
mod call;
pub mod clock;
pub mod collective;
mod counted;
pub mod direct;
mod door;
#[cfg(test)]
mod flow;
mod h2;
#[cfg(test)]
mod hostile;
mod hpack;
pub mod job;
mod line;
mod link;
pub mod local;
mod mesh;
pub mod mpi;
mod muster;
pub mod post;
mod postman;
pub mod ps;
pub mod tls;

use crate::error::{Error, ErrorCode, Party, Result};
pub use beside::Begun;
use beside::Beside;
use collective::{Reduce, Work};
use counted::Counted;
use job::{Job, OnLoss};
pub use muster::Regrouped;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tfc_abi::DType;

/// How long a process waits for another in a step, by default.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the processes of a job have to find each other.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A tensor of so many bytes travels by itself.
const LARGE: usize = 256 << 10;

/// What is being exchanged, for messages, and until when it is worth waiting.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Which exchange of the job this is.
    pub sequence: u64,
    pub deadline: Instant,
    /// In the user's words: "the gradient of `w1`".
    pub what: &'a str,
    /// `file:line:column`, if known.
    pub place: &'a str,
}

/// Whether this process has been asked to stop: waits that may be long look at it.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// What carries bytes between the processes of a group.
pub trait Transport: Send + Sync {
    /// As it is called in messages.
    fn name(&self) -> &'static str;

    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// Sends to one peer while receiving from another, or only one of the two. The
    /// peer sends exactly as many bytes as are asked for.
    fn exchange(
        &self,
        out: Option<(usize, &[u8])>,
        into: Option<(usize, &mut [u8])>,
        moment: &Moment<'_>,
    ) -> Result<()>;

    /// Sends without waiting: the message is the transport's from here on. Messages to
    /// one peer arrive in order.
    fn post(&self, to: usize, data: Vec<u8>, moment: &Moment<'_>) -> Result<()>;

    /// Waits until all that was posted is out.
    fn flush(&self, moment: &Moment<'_>) -> Result<()>;

    /// How many processes of the job are on this machine, with this one; 0 if the
    /// transport is for tests.
    fn here(&self) -> usize;

    /// Whether a process that waits leaves its core to others.
    fn sleeps(&self) -> bool {
        true
    }

    /// A process whose connection has ended, if that is known without waiting.
    fn gone(&self) -> Option<usize> {
        None
    }

    /// What becomes of the group when a process is lost.
    fn outlives(&self) -> OnLoss {
        OnLoss::Stop
    }

    /// How many processes it may ever have.
    fn most(&self) -> usize {
        self.size()
    }

    /// The number that a process of the group has in messages: its rank when the job began.
    fn number(&self, rank: usize) -> usize {
        rank
    }

    /// Forms the group again after a loss. All that are left call it; then their ranks and
    /// their number may be others. It does not wait for others when it is to `stop`. `say` is
    /// told who is waited for.
    fn regroup(
        &self,
        _moment: &Moment<'_>,
        _stop: Stop<'_>,
        _say: &mut dyn FnMut(&str),
    ) -> Result<Regrouped> {
        Err(Error::bug("this engine cannot go on without a process that is lost"))
    }

    /// An error if the group is to be formed again.
    fn check(&self, _moment: &Moment<'_>) -> Result<()> {
        Ok(())
    }

    /// The chief says that the run is over; the others wait for that.
    fn farewell(&self, _moment: &Moment<'_>) -> Result<()> {
        Ok(())
    }

    /// This process ends because it is done.
    fn leave(&self) {}

    /// Calls of processes that were not let in.
    fn refused(&self) -> u64 {
        0
    }

    /// Whether the engine has sums of its own for such elements.
    fn reduces(&self, _dtype: DType) -> bool {
        false
    }

    /// The engine's own sum over all processes.
    fn all_reduce(
        &self,
        _data: &mut [u8],
        _dtype: DType,
        _op: Reduce,
        _moment: &Moment<'_>,
    ) -> Result<()> {
        Err(Error::bug("the engine has no sums of its own"))
    }
}

/// What a group has sent and waited for, since it was formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub exchanges: u64,
    pub bytes_reduced: u64,
    /// Nanoseconds spent in exchanges.
    pub waited: u64,
    /// Processes that were lost, how often the group was formed again, and calls of
    /// processes that were not let in.
    pub lost: u64,
    pub regrouped: u64,
    pub refused: u64,
}

/// The processes of a job, as one of them sees it.
pub struct Group {
    transport: Counted,
    timeout: Duration,
    sequence: AtomicU64,
    /// This process's share of the examples of the present step.
    share: Mutex<f64>,
    scratch: Mutex<Vec<u8>>,
    counters: [AtomicU64; 3],
    /// Losses, and how often the group was formed again.
    losses: [AtomicU64; 2],
    /// Messages sent to each process, and received from it.
    posted: Vec<[AtomicU64; 2]>,
    beside: Beside,
    /// That the process computes with.
    threads: AtomicUsize,
    overlaps: OnceLock<bool>,
}

impl Group {
    pub fn new(transport: Box<dyn Transport>, timeout: Duration) -> Group {
        let share = 1.0 / transport.size().max(1) as f64;
        let posted = (0..transport.most()).map(|_| Default::default()).collect();
        Group {
            posted,
            transport: Counted::new(transport),
            timeout,
            sequence: AtomicU64::new(0),
            share: Mutex::new(share),
            scratch: Mutex::default(),
            counters: Default::default(),
            losses: Default::default(),
            beside: Beside::default(),
            threads: AtomicUsize::new(1),
            overlaps: OnceLock::new(),
        }
    }

    /// Finds the other processes of a job. `graph` is the hash of the program: all
    /// of them must run the same.
    pub fn join(job: &Job, graph: &[u8; 32]) -> Result<Group> {
        let transport: Box<dyn Transport> = match job.mpi {
            true => Box::new(mpi::Mpi::start(graph, job)?),
            false => Box::new(mesh::Mesh::join(job, graph)?),
        };
        Ok(Group::new(transport, job.timeout))
    }

    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// How many processes it may ever have: as many as when the job began.
    pub fn most(&self) -> usize {
        self.transport.most()
    }

    /// The engine that carries the messages.
    pub fn engine(&self) -> &'static str {
        self.transport.name()
    }

    /// Whether this is the process that reports and saves.
    pub fn is_chief(&self) -> bool {
        self.rank() == 0
    }

    /// The part of `lo..hi` that this process works on. Parts differ by one at most,
    /// and together they are the whole, in order.
    pub fn part(&self, lo: usize, hi: usize) -> (usize, usize) {
        let (r, n, len) = (self.rank(), self.size(), hi.saturating_sub(lo));
        (lo + len * r / n, lo + len * (r + 1) / n)
    }

    /// Says how much of the step's examples this process has: what a mean over the
    /// processes weighs its value with.
    pub fn set_share(&self, mine: usize, all: usize) {
        let share = if all == 0 { 0.0 } else { mine as f64 / all as f64 };
        *self.share.lock().unwrap_or_else(PoisonError::into_inner) = share;
    }

    pub(crate) fn share(&self) -> f64 {
        *self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counters(&self) -> Counters {
        let [exchanges, bytes_reduced, waited] =
            std::array::from_fn(|i| self.counters[i].load(Ordering::Relaxed));
        let [lost, regrouped] = std::array::from_fn(|i| self.losses[i].load(Ordering::Relaxed));
        let refused = self.transport.refused();
        Counters { exchanges, bytes_reduced, waited, lost, regrouped, refused }
    }

    /// By number in the job: bytes sent to it, bytes received from it, and nanoseconds waited for these.
    /// Sums that the engine forms by itself are not in it.
    pub fn peers(&self) -> Vec<[u64; 3]> {
        self.transport.peers()
    }

    /// How often it was formed again: what processes have settled among themselves is over
    /// when the number is another.
    pub(crate) fn formation(&self) -> u64 {
        self.losses[1].load(Ordering::Relaxed)
    }

    fn moment<'a>(&self, what: &'a str, place: &'a str) -> Moment<'a> {
        Moment {
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            deadline: Instant::now() + self.timeout,
            what,
            place,
        }
    }

    /// Replaces each tensor by its combination over all processes.
    pub fn all_reduce(
        &self,
        parts: &mut [(DType, &mut [u8])],
        op: Reduce,
        what: &str,
        place: &str,
    ) -> Result<()> {
        if self.size() <= 1 {
            // Somebody may have come back.
            return self.transport.check(&self.moment(what, place));
        }
        let started = Instant::now();
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut first = 0;
        while first < parts.len() {
            // Neighbours of one element type travel together, unless they are large: what
            // a copy costs is more than what a message does.
            let dtype = parts[first].0;
            let small = |p: &&(DType, &mut [u8])| p.0 == dtype && p.1.len() < LARGE;
            let same = parts[first..].iter().take_while(small).count().max(1);
            let run = &mut parts[first..first + same];
            let bytes: usize = run.iter().map(|p| p.1.len()).sum();
            let moment = self.moment(what, place);
            if let [(_, data)] = run {
                self.reduce_one(data, dtype, op, &moment)?;
            } else {
                scratch.clear();
                run.iter().for_each(|p| scratch.extend_from_slice(p.1));
                self.reduce_one(&mut scratch, dtype, op, &moment)?;
                let mut at = 0;
                for (_, data) in run.iter_mut() {
                    data.copy_from_slice(&scratch[at..at + data.len()]);
                    at += data.len();
                }
            }
            self.counters[1].fetch_add(bytes as u64, Ordering::Relaxed);
            first += same;
        }
        self.counters[0].fetch_add(1, Ordering::Relaxed);
        self.counters[2].fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Begins something that the processes do together, such as [`Group::all_reduce`],
    /// to be done beside what the caller does until it finishes it. What is finished
    /// `at_once` need not be handed to another thread.
    ///
    /// # Safety
    /// What the task borrows must live, and nobody else use it, until
    /// [`Group::finish`] or [`Group::abandon`] has returned.
    pub unsafe fn begin(
        &self,
        task: Box<dyn FnOnce() -> Result<()> + Send + '_>,
        at_once: bool,
    ) -> Begun {
        // SAFETY: the task is dropped before what it borrows ends; see above.
        let task = unsafe {
            std::mem::transmute::<
                Box<dyn FnOnce() -> Result<()> + Send + '_>,
                Box<dyn FnOnce() -> Result<()> + Send>,
            >(task)
        };
        self.beside.begin(task, at_once || !self.overlaps())
    }

    /// Whether exchanges go on while a step computes. On one machine they take cores, as
    /// what they send is copied: without some to spare nothing would be gained.
    fn overlaps(&self) -> bool {
        let decide = || match std::env::var("TFC_OVERLAP").as_deref() {
            Ok("0") => false,
            Ok("1") => true,
            _ => {
                let (here, threads) = (self.transport.here(), self.threads.load(Ordering::Relaxed));
                let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
                let elsewhere = here < self.size() && self.transport.sleeps();
                elsewhere || cores >= here * (threads + 1)
            }
        };
        *self.overlaps.get_or_init(decide)
    }

    /// Says how many threads this process computes with.
    pub fn set_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// Waits for what was begun, and all that was begun before it.
    pub fn finish(&self, until: Begun) -> Result<()> {
        self.beside.finish(until)
    }

    /// Whether nobody has to wait for it.
    pub fn is_done(&self, begun: Begun) -> bool {
        self.beside.is_done(begun)
    }

    /// Ends what was begun, as far as it was not started; the processes are no longer
    /// together then.
    pub fn abandon(&self, until: Begun) {
        self.beside.abandon(until);
    }

    fn reduce_one(
        &self,
        data: &mut [u8],
        dtype: DType,
        op: Reduce,
        moment: &Moment<'_>,
    ) -> Result<()> {
        let (op, share) = match op {
            Reduce::Mean => (Reduce::Sum, Some(self.share())),
            op => (op, None),
        };
        if self.transport.reduces(dtype) {
            share.inspect(|share| collective::scale(data, dtype, *share));
            return self.transport.all_reduce(data, dtype, op, moment);
        }
        collective::all_reduce(&self.transport, data, Work { dtype, op, share }, moment)
    }

    /// What becomes of the group when a process is lost.
    pub fn on_loss(&self) -> OnLoss {
        self.transport.outlives()
    }

    /// Whether an error is the loss of a process that the group goes on after, once it is
    /// formed again ([`Group::regroup`]).
    pub fn outlives(&self, e: &Error) -> bool {
        let lost = [ErrorCode::PEER_LOST, ErrorCode::PEER_LATE].contains(&e.code());
        self.on_loss() != OnLoss::Stop && lost
    }

    /// After a failure: the processes that are left, or as many as there were, become the
    /// group, and agree on nothing else. The chief's variables and position are what they go
    /// on with. Who is waited for is said by the chief.
    pub fn regroup(&self, say: &mut dyn FnMut(&str)) -> Result<Regrouped> {
        self.regroup_unless(&|| false, say)
    }

    /// As [`Group::regroup`], unless this process is to `stop`: then there is no group any
    /// more. When the chief stops, the run is over for the others at its
    /// [`Group::farewell`]; when another one does, the chief stops, too.
    pub fn regroup_unless(&self, stop: Stop<'_>, say: &mut dyn FnMut(&str)) -> Result<Regrouped> {
        let moment = self.moment("who is left", "");
        let what = self.transport.regroup(&moment, stop, say)?;
        if what.stopped {
            return Ok(what);
        }
        self.beside.forgive();
        self.sequence.store(0, Ordering::Relaxed);
        self.posted.iter().flatten().for_each(|n| n.store(0, Ordering::Relaxed));
        self.losses[0].fetch_add(what.lost.len() as u64, Ordering::Relaxed);
        self.losses[1].fetch_add(1, Ordering::Relaxed);
        Ok(what)
    }

    /// The end of a run that outlives losses: the chief, when it has saved, says that the
    /// others may go, which wait for it.
    pub fn farewell(&self) -> Result<()> {
        self.transport.farewell(&self.moment("the end of the run", ""))
    }

    /// This process ends because it is done: it is not to be taken for lost.
    pub fn leave(&self) {
        self.transport.leave();
    }

    /// Everybody gets what the chief has.
    pub fn broadcast(&self, data: &mut [u8], what: &str) -> Result<()> {
        if self.size() <= 1 {
            return Ok(());
        }
        let moment = self.moment(what, "");
        collective::broadcast(&self.transport, data, &moment)
    }

    /// The sum of the numbers that the processes have.
    pub fn total(&self, number: u64, what: &str) -> Result<u64> {
        let mut bytes = number.to_ne_bytes();
        self.all_reduce(&mut [(DType::I64, &mut bytes)], Reduce::Sum, what, "")?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The largest of the numbers that the processes have.
    pub fn agree(&self, number: i64, what: &str) -> Result<i64> {
        let mut bytes = number.to_ne_bytes();
        self.all_reduce(&mut [(DType::I64, &mut bytes)], Reduce::Max, what, "")?;
        Ok(i64::from_ne_bytes(bytes))
    }
}

/// Waits until a link can be read from, or written to.
fn wait_for(link: &link::Link, read: bool, moment: &Moment<'_>) -> Result<()> {
    match mesh::ready(link, read, moment.deadline) {
        true => Ok(()),
        false => Err(late(link.peer, moment)),
    }
}

/// Says to the launcher, if there is one, that a worker hangs.
fn accuse(worker: usize) {
    crate::launcher::accuse(Party::Worker(worker));
}

/// A peer that is gone.
pub(crate) fn lost(peer: usize, moment: &Moment<'_>, why: &str) -> Error {
    let e = Error::peer(ErrorCode::PEER_LOST, format!("worker {peer} is gone: {why}"));
    about(e.concerning(Party::Worker(peer)), moment)
        .help("its own output says why it ended; `--resume` continues from the last checkpoint")
}

/// A peer that does not answer.
pub(crate) fn late(peer: usize, moment: &Moment<'_>) -> Error {
    about(
        Error::peer(ErrorCode::PEER_LATE, format!("worker {peer} did not answer in time"))
            .concerning(Party::Worker(peer)),
        moment,
    )
    .help("if it is only slow, give it longer with `--peer-timeout`")
}

/// A message that does not belong here.
pub(crate) fn stray(peer: usize, moment: &Moment<'_>, why: &str) -> Error {
    about(
        Error::peer(
            ErrorCode::BAD_MESSAGE,
            format!("worker {peer} sent something that does not fit: {why}"),
        ),
        moment,
    )
}

fn about(e: Error, moment: &Moment<'_>) -> Error {
    let e = e.note(format!("while exchanging {}", moment.what));
    if moment.place.is_empty() { e } else { e.note(format!("at {}", moment.place)) }
}
