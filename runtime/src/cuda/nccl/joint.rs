//! Tasks of a GPU with exchanges among them.
//!
//! Exchanges cut the list of tasks into parts. A part is given to the driver as any other
//! sequence (from the second run on as a CUDA graph), and the next without waiting for it;
//! an exchange follows the part before it, on a stream of its own, so that what comes
//! behind it in the list is computed meanwhile. Before a part that uses what was exchanged,
//! the computing stream waits for the exchange. All of this is between events: the CPU
//! waits at the end, and only to look at the clock.
//!
//! Exchanges are not recorded in CUDA graphs: the share of the examples may change from
//! step to step, and a communicator that is aborted would take a recording with it.
//!
//! Invariants
//! - Nothing here writes a variable behind an exchange (`Batch::must_end`): when a run
//!   fails, what the GPU goes on to compute of tensors that are not combined is dropped.
//! - When a run is over, nothing of it is left on the GPU, whether it failed or not.

use super::{Joined, Lost, Nccl, Pause, Trouble};
use crate::cuda::Cuda;
use crate::cuda::driver::{DevicePtr, Handle, value as cuda_value};
use crate::cuda::sequence::Tasks;
use crate::device::{Sequence, Task, What};
use crate::error::{Error, Result};
use crate::net::collective::Reduce;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tfc_abi::DType;

enum Part {
    /// Tasks from this number on.
    Tasks(usize, Tasks),
    Exchange(usize),
    /// What follows uses what was exchanged.
    Join(usize),
}

struct Exchange {
    task: usize,
    tensors: Vec<(DType, DevicePtr, usize)>,
    how: Reduce,
    name: String,
    place: String,
    /// Recorded when its tensors are computed, and when they are combined.
    ready: Handle,
    done: Handle,
}

pub(super) struct Joint {
    nccl: Arc<Nccl>,
    cuda: Arc<Cuda>,
    parts: Vec<Part>,
    exchanges: Vec<Exchange>,
    /// Streams in use, of each GPU.
    used: Vec<usize>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Joint {}

/// Why a run ended before its time, and at which exchange.
enum Stop {
    /// The GPU or the driver.
    Own(Error),
    At(usize, Trouble),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Own(e)
    }
}

impl Joint {
    pub fn new(nccl: Arc<Nccl>, cuda: &Arc<Cuda>, tasks: &[Task], dims: &[i64]) -> Result<Joint> {
        let mut joint =
            Joint { nccl, cuda: cuda.clone(), parts: vec![], exchanges: vec![], used: vec![1] };
        // By task, the exchange it is.
        let mut known: Vec<Option<usize>> = vec![];
        let (mut first, mut joined) = (0, None);
        for (i, task) in tasks.iter().enumerate() {
            let needs = task.after.iter().filter_map(|a| known[*a as usize]).max();
            let What::Exchange { tensors, how, name, place } = &task.what else {
                if needs > joined {
                    joint.gather(&tasks[first..i], first, dims)?;
                    joint.parts.extend(needs.map(Part::Join));
                    (first, joined) = (i, needs);
                }
                known.push(None);
                continue;
            };
            joint.gather(&tasks[first..i], first, dims)?;
            first = i + 1;
            let tensor = |t: &(DType, *mut u8, usize)| (t.0, t.1.addr() as DevicePtr, t.2);
            let (ready, done) = (cuda.gpus[0].event()?, cuda.gpus[0].event()?);
            joint.parts.push(Part::Exchange(joint.exchanges.len()));
            known.push(Some(joint.exchanges.len()));
            joint.exchanges.push(Exchange {
                task: i,
                tensors: tensors.iter().map(tensor).collect(),
                how: *how,
                name: name.clone(),
                place: place.clone(),
                ready,
                done,
            });
        }
        joint.gather(&tasks[first..], first, dims)?;
        Ok(joint)
    }

    /// Tasks that stand between two exchanges. What they wait for of those before is done,
    /// or on the computing stream before them.
    fn gather(&mut self, tasks: &[Task], first: usize, dims: &[i64]) -> Result<()> {
        if tasks.is_empty() {
            return Ok(());
        }
        let own = |a: &u32| a.checked_sub(first as u32);
        let tasks: Vec<Task> = tasks
            .iter()
            .map(|t| Task { after: t.after.iter().filter_map(own).collect(), ..t.clone() })
            .collect();
        let tasks = Tasks::new(&self.cuda, &tasks, dims)?;
        self.used[0] = self.used[0].max(tasks.streams());
        self.parts.push(Part::Tasks(first, tasks));
        Ok(())
    }

    /// Gives the driver and the library everything there is to do.
    fn start(&mut self, joined: &Joined, streams: &[Vec<Handle>]) -> std::result::Result<(), Stop> {
        let Joint { nccl, cuda, parts, exchanges, .. } = self;
        let first = streams[0][0];
        for part in parts {
            match part {
                Part::Tasks(_, tasks) => tasks.start(streams)?,
                Part::Exchange(i) => begin(nccl, joined, *i, &exchanges[*i], first)?,
                Part::Join(i) => {
                    cuda.gpus[0].make_current()?;
                    // SAFETY: the stream and the event are ours.
                    let status = unsafe { (cuda.driver.stream_wait)(first, exchanges[*i].done, 0) };
                    cuda.driver.check(status, "waiting")?;
                }
            }
        }
        Ok(())
    }

    /// Waits for an exchange, as long as that makes sense.
    fn wait(&self, joined: &Joined, i: usize) -> std::result::Result<(), Stop> {
        let (nccl, group, x) = (&self.nccl, &joined.group, &self.exchanges[i]);
        self.cuda.gpus[0].make_current()?;
        // Since its tensors are there.
        let mut since: Option<Instant> = None;
        let (mut lost, pause) = (Lost::default(), Pause::new());
        while !self.is_over(x.done)? {
            if since.is_none() && self.is_over(x.ready)? {
                since = Some(Instant::now());
            }
            nccl.check(joined.comm).map_err(|why| Stop::At(i, why))?;
            let gone = lost.look(group);
            if let Some(since) = since {
                if since.elapsed() >= group.timeout() {
                    return Err(Stop::At(i, Trouble::Late));
                }
                if let Some(rank) = gone {
                    return Err(Stop::At(i, Trouble::Gone(rank)));
                }
            }
            pause.take();
        }
        let bytes: usize = x.tensors.iter().map(|t| t.2).sum();
        group.count(bytes as u64, since.map_or(Duration::ZERO, |since| since.elapsed()));
        Ok(())
    }

    fn is_over(&self, event: Handle) -> Result<bool> {
        // SAFETY: the event is ours.
        match unsafe { (self.cuda.driver.event_query)(event) } {
            cuda_value::NOT_READY => Ok(false),
            status => self.cuda.driver.check(status, "an exchange").map(|()| true),
        }
    }

    fn finish(&self, stream: Handle) -> Result<()> {
        self.cuda.gpus[0].make_current()?;
        // SAFETY: the stream is ours.
        let status = unsafe { (self.cuda.driver.stream_synchronise)(stream) };
        self.cuda.driver.check(status, "a step")
    }

    /// Ends what is left of a run that has failed, and says why it has.
    fn fail(&self, joined: &Joined, stop: Stop, first: Handle) -> Error {
        let Joined { comm, group } = joined;
        let (library, timeout) = (&self.nccl.library, group.timeout());
        // Before the library is told to forget it.
        let said = match &stop {
            Stop::At(_, Trouble::Said(status)) => {
                format!("NCCL says: {}", library.says(*status))
            }
            _ => format!("NCCL was told to stop waiting, for {timeout:?} at most"),
        };
        self.nccl.abort(*comm);
        // A GPU that has failed has nothing left to wait for.
        let _ = self.finish(self.nccl.stream).and_then(|()| self.finish(first));
        let about = |i: usize| (self.exchanges[i].name.as_str(), self.exchanges[i].place.as_str());
        match stop {
            Stop::Own(e) => e,
            Stop::At(i, Trouble::Gone(rank)) => {
                let (name, place) = about(i);
                group.lost(rank, name, place, &said)
            }
            Stop::At(i, trouble) => {
                let (name, place) = about(i);
                let late = matches!(trouble, Trouble::Late);
                // A process that has ended may be known to the GPUs first. Whoever has seen
                // it stays until the others have, too: they would take it for the first.
                let until = Instant::now() + group.grace();
                let mut gone = group.gone();
                while !late && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                    gone = gone.or_else(|| group.gone());
                }
                match gone {
                    Some(rank) => group.lost(rank, name, place, &said),
                    None => group.blame(name, place, &said, late),
                }
            }
        }
    }

    /// Runs something with the communicator; once it has failed, nothing.
    fn with(
        &mut self,
        run: impl FnOnce(&mut Joint, &Joined, &[Vec<Handle>]) -> std::result::Result<(), Stop>,
    ) -> Result<()> {
        let (nccl, cuda) = (self.nccl.clone(), self.cuda.clone());
        let mut state = nccl.state();
        if let Some(e) = &state.failed {
            return Err(e.clone());
        }
        let Some(joined) = state.joined.clone() else {
            return Err(Error::bug("an exchange of GPUs that do not know each other"));
        };
        let streams = cuda.lease(&self.used)?;
        run(self, &joined, &streams.handles).map_err(|stop| {
            let e = self.fail(&joined, stop, streams.handles[0][0]);
            (state.joined, state.failed) = (None, Some(e.clone()));
            e
        })
    }
}

/// Has an exchange follow what was given to the computing stream.
fn begin(
    nccl: &Nccl,
    joined: &Joined,
    i: usize,
    x: &Exchange,
    first: Handle,
) -> std::result::Result<(), Stop> {
    let driver = &nccl.gpu.driver;
    nccl.gpu.make_current()?;
    // SAFETY, of all calls here: the streams and the events are ours.
    // SAFETY: as said.
    driver.check(unsafe { (driver.event_record)(x.ready, first) }, "recording")?;
    // SAFETY: as said.
    driver.check(unsafe { (driver.stream_wait)(nccl.stream, x.ready, 0) }, "waiting")?;
    nccl.give(joined, &x.tensors, x.how)?.map_err(|why| Stop::At(i, why))?;
    // SAFETY: as said.
    driver.check(unsafe { (driver.event_record)(x.done, nccl.stream) }, "recording")?;
    Ok(())
}

impl Sequence for Joint {
    fn run(&mut self) -> Result<()> {
        self.with(|joint, joined, streams| {
            joint.start(joined, streams)?;
            (0..joint.exchanges.len()).try_for_each(|i| joint.wait(joined, i))?;
            // Nothing is left there that waits for others.
            Ok(joint.finish(streams[0][0])?)
        })
    }

    fn run_each(&mut self, done: &mut dyn FnMut(usize, Instant)) -> Result<()> {
        self.with(|joint, joined, streams| {
            for number in 0..joint.parts.len() {
                match &mut joint.parts[number] {
                    Part::Tasks(from, tasks) => {
                        let from = *from;
                        tasks.run_each(&mut |i, started| done(from + i, started))?;
                    }
                    Part::Exchange(i) => {
                        let (i, started) = (*i, Instant::now());
                        begin(&joint.nccl, joined, i, &joint.exchanges[i], streams[0][0])?;
                        joint.wait(joined, i)?;
                        done(joint.exchanges[i].task, started);
                    }
                    Part::Join(_) => {}
                }
            }
            Ok(())
        })
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        if self.cuda.gpus[0].make_current().is_err() {
            return;
        }
        for event in self.exchanges.iter().flat_map(|x| [x.ready, x.done]) {
            // SAFETY: the event is ours, and nobody waits for it.
            unsafe { (self.cuda.driver.event_destroy)(event) };
        }
    }
}
