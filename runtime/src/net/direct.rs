//! Exchanges that devices do among themselves, past the CPU: whether they can is decided by
//! all processes together, and when one fails, the group is asked whose fault it is.
//!
//! Invariants
//! - All processes of a group exchange this way, or none does.
//! - What is asked of the group here is asked by every process, whether it has a GPU or not.

use super::collective::Reduce;
use super::{Group, Moment, Transport, late, lost};
use crate::error::{Error, ErrorCode, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tfc_abi::DType;

/// What all processes must know to find each other, made by the chief.
pub type Id = [u8; 128];

/// How devices of one kind combine tensors over processes.
pub trait Engine: Send + Sync {
    /// As it is called in messages, with its version.
    fn name(&self) -> String;

    /// An error says why, as [`Engine::start`] does.
    fn id(&self) -> std::result::Result<Id, String>;

    /// Finds the others; all processes call it, stopped.
    fn start(
        &self,
        group: &Arc<Group>,
        id: &Id,
        deadline: Instant,
    ) -> std::result::Result<(), String>;

    /// Undoes [`Engine::start`], if that was called: the others could not, or there is
    /// another group.
    fn stop(&self);
}

/// Why a process cannot exchange tensors past the CPU. Of several, the greatest is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// It has no GPU, or was not told to use one.
    OnCpu = 1,
    SeveralGpus,
    TooOld,
    NotNccl,
    Missing,
    SwitchedOff,
    DoesNotStart,
}

const HINDRANCES: [Hindrance; 7] = [
    Hindrance::OnCpu,
    Hindrance::SeveralGpus,
    Hindrance::TooOld,
    Hindrance::NotNccl,
    Hindrance::Missing,
    Hindrance::SwitchedOff,
    Hindrance::DoesNotStart,
];

/// How tensors on devices go from process to process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// From device to device, by the engine of this name.
    Direct(String),
    /// Through the CPU, and why.
    ThroughCpu(String),
}

/// A peer that is gone may have done its part before: what it has sent still arrives.
const GRACE: Duration = Duration::from_secs(1);

impl Hindrance {
    /// Of the worker of a number; `known` is what that worker itself knows of it.
    fn text(self, worker: usize, known: Option<&str>) -> String {
        match self {
            Hindrance::OnCpu => format!("worker {worker} runs on the CPU"),
            Hindrance::SeveralGpus => "each worker has several GPUs".into(),
            Hindrance::TooOld => format!("NCCL on worker {worker} is older than 2.14"),
            Hindrance::NotNccl => format!("the library of worker {worker} is not NCCL"),
            Hindrance::Missing => format!("worker {worker} has no NCCL (`libnccl.so.2`)"),
            Hindrance::SwitchedOff => format!("worker {worker} was told so by TFC_NCCL=0"),
            Hindrance::DoesNotStart => {
                let why = known.map(|known| format!(": {known}"));
                let why = why.unwrap_or_else(|| "; NCCL_DEBUG=WARN says why".into());
                format!("NCCL does not start on worker {worker}{why}")
            }
        }
    }
}

impl Group {
    /// Has devices exchange tensors by themselves, if those of all processes can. Every
    /// process calls it, before the first exchange of a group. Whatever else comes of it, the
    /// engine is stopped.
    pub fn settle(
        self: &Arc<Self>,
        engine: std::result::Result<Arc<dyn Engine>, Hindrance>,
    ) -> Result<Way> {
        // What it knows is of a group that there was before.
        engine.iter().for_each(|e| e.stop());
        if self.size() == 1 {
            return Ok(Way::ThroughCpu("there is nobody to exchange tensors with".into()));
        }
        let mut known = None;
        let id = match &engine {
            Ok(engine) if self.is_chief() => engine.id().map_err(|why| {
                known = Some(why);
                Hindrance::DoesNotStart
            }),
            Ok(_) => Ok([0; 128]),
            Err(why) => Err(*why),
        };
        if let Some(why) = self.hindrance(id.as_ref().err().copied(), known.as_deref())? {
            return Ok(Way::ThroughCpu(why));
        }
        let (Ok(engine), Ok(mut id)) = (engine, id) else {
            return Err(Error::bug("a hindrance that nobody has heard of"));
        };
        self.broadcast(&mut id, "where the GPUs meet")?;
        // Those who could not start wait for the others at the next question.
        let started = engine.start(self, &id, Instant::now() + self.timeout / 2);
        let why = started.as_ref().err().map(|_| Hindrance::DoesNotStart);
        match self.hindrance(why, started.err().as_deref()) {
            Ok(None) => Ok(Way::Direct(engine.name())),
            Ok(Some(why)) => {
                engine.stop();
                Ok(Way::ThroughCpu(why))
            }
            Err(e) => {
                engine.stop();
                Err(e)
            }
        }
    }

    /// What keeps some process from it, with what is `known` if that is this one; none if
    /// nothing does.
    fn hindrance(&self, mine: Option<Hindrance>, known: Option<&str>) -> Result<Option<String>> {
        let last = self.size() as i64;
        // Of those with the greatest, the first process.
        let mine = mine.map_or(0, |why| (why as i64) << 32 | (last - self.rank() as i64));
        let worst = self.agree(mine, "whether GPUs exchange gradients by themselves")?;
        let found = HINDRANCES.iter().find(|h| **h as i64 == worst >> 32);
        let rank = usize::try_from(last - (worst & 0xffff_ffff)).unwrap_or(0);
        let known = known.filter(|_| rank == self.rank());
        Ok(found.map(|why| why.text(self.number(rank), known)))
    }

    /// How many processes of a lower rank are on this machine. Every process calls it.
    pub fn number_here(&self) -> Result<usize> {
        let (rank, mine) = (self.rank(), this_machine());
        let mut all = vec![0; 8 * self.size()];
        all[8 * rank..][..8].copy_from_slice(&mine.to_ne_bytes());
        let what = "which processes share a machine";
        self.all_reduce(&mut [(DType::I64, &mut all)], Reduce::Max, what, "")?;
        let of = |r: &usize| all[8 * *r..][..8] == mine.to_ne_bytes();
        Ok((0..rank).filter(of).count())
    }

    /// How long a process waits for another in a step.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Notes an exchange that was not the group's own.
    pub(crate) fn count(&self, bytes: u64, waited: Duration) {
        self.counters[0].fetch_add(1, Ordering::Relaxed);
        self.counters[1].fetch_add(bytes, Ordering::Relaxed);
        self.counters[2].fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// An exchange of devices that came to nothing, as an error that names the process to
    /// blame: one whose connection has ended, or who does not answer when all are asked.
    pub(crate) fn blame(&self, what: &str, place: &str, said: &str, too_late: bool) -> Error {
        let answers = self.timeout / 4;
        let moment = Moment {
            deadline: Instant::now() + answers.max(GRACE).min(self.timeout),
            ..self.moment(what, place)
        };
        let others = (0..self.size()).filter(|r| *r != self.rank());
        // Whoever came to this, too, says so; nothing else is exchanged from here on.
        let written = |r: &usize| self.transport.post(*r, vec![1], &moment);
        let asked: Vec<(usize, Result<()>)> = others.map(|r| (r, written(&r))).collect();
        let mut silent: Vec<usize> = vec![];
        for (rank, written) in asked {
            let mut answer = [0];
            let heard = written
                .and_then(|()| self.transport.exchange(None, Some((rank, &mut answer)), &moment));
            match heard {
                // Its connection has ended.
                Err(e) if e.code() == ErrorCode::PEER_LOST => return e.note(said),
                Err(e) if e.code() == ErrorCode::PEER_LATE => {
                    silent.push(self.number(rank));
                }
                // Any message will do.
                _ => {}
            }
        }
        let e = match silent[..] {
            [] if too_late => {
                let text = "the GPUs of the job did not exchange their tensors in time";
                super::about(Error::peer(ErrorCode::PEER_LATE, text), &moment)
                    .note("all workers answer: it is between the GPUs")
            }
            [] => {
                let text = "the GPUs of the job could not exchange their tensors";
                super::about(Error::peer(ErrorCode::PEER_LOST, text), &moment)
                    .note("all workers answer: it is between the GPUs")
            }
            [one] => late(one, &moment),
            [first, ref rest @ ..] => {
                let rest: Vec<String> = rest.iter().map(usize::to_string).collect();
                late(first, &moment).note(format!("nor did {}", rest.join(", ")))
            }
        };
        e.note(said)
    }

    /// A process whose connection has ended, if that is known.
    pub(crate) fn gone(&self) -> Option<usize> {
        self.transport.gone()
    }

    /// [`Group::gone`], as an error.
    pub(crate) fn lost(&self, rank: usize, what: &str, place: &str, said: &str) -> Error {
        let moment = self.moment(what, place);
        // Whoever has broken the group up has ended its connections, too.
        match self.transport.check(&moment) {
            Err(e) => e.note(said),
            Ok(()) => lost(self.number(rank), &moment, "its connection has ended").note(said),
        }
    }

    /// The number in the job of a process of the group.
    pub(crate) fn number(&self, rank: usize) -> usize {
        self.transport.number(rank)
    }

    /// How long what a process has sent before it was gone may take to arrive.
    pub(crate) fn grace(&self) -> Duration {
        GRACE.min(self.timeout)
    }
}

/// A number for the machine: not negative, and the same for its processes alone.
fn this_machine() -> i64 {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    // Of containers on one machine each has its own name, and GPUs of its own.
    let mut name = read("/proc/sys/kernel/random/boot_id");
    name.extend(read("/proc/sys/kernel/hostname"));
    let hash = crate::hash::hash(&name);
    let mut word = [0; 8];
    word.copy_from_slice(&hash[..8]);
    i64::from_ne_bytes(word) & i64::MAX
}
