//! Sums over the GPUs of a job's processes, by NCCL: tensors do not pass through the CPU.
//!
//! | file | job |
//! |---|---|
//! | [`library`] | the functions of `libnccl.so.2`, found when they are needed |
//! | [`scale`] | a tensor times this process's share of the examples |
//! | [`joint`] | tasks with exchanges between them: streams, events, deadlines |
//!
//! Nothing of the runtime refers to this module but [`TFC_NCCL`], which programs name that
//! have code for GPUs and can be part of a job; those with code for GPUs alone name
//! [`super::TFC_CUDA`].
//!
//! The communicator never waits inside of a call, so that every wait is one of ours and has
//! a deadline.

mod joint;
pub mod library;
pub mod scale;

use super::driver::{DevicePtr, Handle, value as cuda};
use super::{Direct, Entry, Gpu};
use crate::device::{Sequence, Task};
use crate::error::{Error, Result};
use crate::net::Group;
use crate::net::collective::Reduce;
use crate::net::direct::{Engine, Hindrance, Id};
use joint::Joint;
use library::{Config, Library, Status, UniqueId, value};
use scale::Scale;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tfc_abi::DType;

/// What the descriptor of a program points at that can be part of a job: how to use GPUs,
/// and how they exchange tensors.
#[unsafe(export_name = "tfc_nccl")]
pub static TFC_NCCL: Entry = Entry { direct: Some(connect), ..super::ALONE };

/// What there is of NCCL on a GPU, before others are known.
pub(super) struct Nccl {
    library: Arc<Library>,
    version: String,
    gpu: Arc<Gpu>,
    scale: Scale,
    /// Exchanges follow one another here, beside what computes.
    stream: Handle,
    state: Mutex<State>,
    /// Whether the others were found. Beside the state, which a run has until it is over.
    on: AtomicBool,
}

#[derive(Default)]
struct State {
    joined: Option<Joined>,
    /// After an exchange has failed none is begun.
    failed: Option<Error>,
}

/// A communicator, and the processes it is of.
#[derive(Clone)]
struct Joined {
    comm: Handle,
    group: Arc<Group>,
}

// SAFETY: handles of the driver and of the library may be used from any thread; calls on a
// communicator are made one at a time, under the lock of the state.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}
// SAFETY: as above.
unsafe impl Send for Joined {}

/// Why a call of the library came to nothing.
enum Trouble {
    /// It said so.
    Said(Status),
    /// Nothing happened in time.
    Late,
    /// The connection of this process has ended.
    Gone(usize),
}

/// How long to look again and again before sleeping in between.
const SPIN: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(100);

/// What a wait is for is looked at often, and the processor left to others.
struct Pause(Instant);

impl Pause {
    fn new() -> Pause {
        Pause(Instant::now())
    }

    fn take(&self) {
        match self.0.elapsed() < SPIN {
            true => std::thread::yield_now(),
            false => std::thread::sleep(NAP),
        }
    }
}

/// A process of the group that is gone, and since when that is known.
#[derive(Default)]
struct Lost(Option<(usize, Instant)>);

impl Lost {
    /// Looks again; gives it once what it had sent before has had time to arrive.
    fn look(&mut self, group: &Group) -> Option<usize> {
        // The first: others end because of it.
        self.0 = self.0.or_else(|| group.gone().map(|rank| (rank, Instant::now())));
        self.0.filter(|(_, seen)| seen.elapsed() >= group.grace()).map(|(rank, _)| rank)
    }
}

fn connect(gpu: &Arc<Gpu>) -> std::result::Result<Arc<dyn Direct>, Hindrance> {
    let (library, version) = library::open()?;
    let ready = || -> Result<Nccl> {
        let scale = Scale::load(gpu)?;
        gpu.make_current()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        let status = unsafe {
            (gpu.driver.stream_create)(&raw mut stream, cuda::STREAM_NON_BLOCKING as c_uint)
        };
        gpu.driver.check(status, "making a stream")?;
        let (state, on) = (Mutex::default(), AtomicBool::new(false));
        Ok(Nccl { library, version, gpu: gpu.clone(), scale, stream, state, on })
    };
    match ready() {
        Ok(nccl) => Ok(Arc::new(nccl)),
        Err(e) => {
            explain(&e);
            Err(Hindrance::DoesNotStart)
        }
    }
}

/// Processes tell each other no more than that NCCL does not start, and that `NCCL_DEBUG`
/// says why: here is what NCCL has no part in.
fn explain(e: &Error) {
    if std::env::var_os("NCCL_DEBUG").is_some_and(|level| !level.is_empty()) {
        eprintln!("note: NCCL does not start: {}", in_words(e));
    }
}

fn in_words(e: &Error) -> String {
    let notes: String = e.notes().iter().map(|n| format!("; {n}")).collect();
    format!("{}{notes}", e.message())
}

impl Nccl {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a call that has begun with this status has come to an end. The first
    /// exchange makes connections: until the others come to it, too, it has not.
    fn settle(
        &self,
        joined: &Joined,
        mut status: Status,
        deadline: Instant,
    ) -> std::result::Result<(), Trouble> {
        let (mut lost, pause) = (Lost::default(), Pause::new());
        while status == value::IN_PROGRESS {
            // SAFETY: the communicator is ours; the library writes a number.
            let asked = unsafe { (self.library.state)(joined.comm, &raw mut status) };
            if asked != 0 {
                return Err(Trouble::Said(asked));
            }
            if status == value::IN_PROGRESS {
                if Instant::now() >= deadline {
                    return Err(Trouble::Late);
                }
                if let Some(rank) = lost.look(&joined.group) {
                    return Err(Trouble::Gone(rank));
                }
                pause.take();
            }
        }
        if status == 0 { Ok(()) } else { Err(Trouble::Said(status)) }
    }

    /// What has gone wrong by itself since.
    fn check(&self, comm: Handle) -> std::result::Result<(), Trouble> {
        let mut status = 0;
        // SAFETY: the communicator is ours; the library writes a number.
        let asked = unsafe { (self.library.state)(comm, &raw mut status) };
        match [asked, status].into_iter().find(|s| ![0, value::IN_PROGRESS].contains(s)) {
            Some(status) => Err(Trouble::Said(status)),
            None => Ok(()),
        }
    }

    /// Has the exchanges of some tensors follow what is on the stream.
    fn give(
        &self,
        joined: &Joined,
        tensors: &[(DType, DevicePtr, usize)],
        how: Reduce,
    ) -> Result<std::result::Result<(), Trouble>> {
        let Joined { comm, group } = joined;
        self.gpu.make_current()?;
        if how == Reduce::Mean {
            let share = group.share();
            tensors.iter().try_for_each(|t| self.scale.give(*t, share, self.stream))?;
        }
        let op = match how {
            Reduce::Mean | Reduce::Sum => value::SUM,
            Reduce::Max => value::MAX,
            Reduce::Min => value::MIN,
        };
        // SAFETY: no pointer is passed.
        let mut status = unsafe { (self.library.group_start)() };
        for (dtype, at, bytes) in tensors {
            if ![0, value::IN_PROGRESS].contains(&status) {
                break;
            }
            let here = std::ptr::without_provenance_mut(*at as usize);
            let count = bytes / dtype.size();
            // SAFETY: the memory has as many elements, and nothing else uses it until the
            // stream has come so far.
            status = unsafe {
                (self.library.all_reduce)(here, here, count, kind(*dtype), op, *comm, self.stream)
            };
        }
        // SAFETY: a group was begun.
        let ended = unsafe { (self.library.group_end)() };
        if ![0, value::IN_PROGRESS].contains(&status) {
            return Ok(Err(Trouble::Said(status)));
        }
        Ok(self.settle(joined, ended, Instant::now() + group.timeout()))
    }

    /// Stops whatever the GPU waits for. The communicator is gone then.
    fn abort(&self, comm: Handle) {
        if self.gpu.make_current().is_ok() {
            // SAFETY: the communicator is ours, and not used again.
            unsafe { (self.library.abort)(comm) };
        }
    }

    /// The end of a communicator on which nothing goes on any more.
    fn close(&self, joined: &Joined) {
        let comm = joined.comm;
        if self.gpu.make_current().is_err() {
            return self.abort(comm);
        }
        // SAFETY: the communicator is ours.
        let status = unsafe { (self.library.finalize)(comm) };
        // The others may be gone: they are not waited for without end.
        match self.settle(joined, status, Instant::now() + Duration::from_secs(2)) {
            // SAFETY: as above; it is not used again.
            Ok(()) => drop(unsafe { (self.library.destroy)(comm) }),
            Err(_) => self.abort(comm),
        }
    }
}

/// What the library calls an element type.
fn kind(dtype: DType) -> c_int {
    match dtype {
        DType::I8 => value::INT8,
        DType::U8 | DType::Bool => value::UINT8,
        DType::I32 => value::INT32,
        DType::I64 => value::INT64,
        DType::F16 => value::FLOAT16,
        DType::BF16 => value::BFLOAT16,
        DType::F32 => value::FLOAT32,
        DType::F64 => value::FLOAT64,
    }
}

impl Engine for Nccl {
    fn name(&self) -> String {
        format!("NCCL {}", self.version)
    }

    fn id(&self) -> std::result::Result<Id, String> {
        self.gpu.make_current().map_err(|e| in_words(&e))?;
        let mut id = UniqueId([0; 128]);
        // SAFETY: the library writes as many bytes.
        match unsafe { (self.library.unique_id)(&raw mut id) } {
            0 => Ok(id.0),
            status => Err(self.library.says(status)),
        }
    }

    fn start(
        &self,
        group: &Arc<Group>,
        id: &Id,
        deadline: Instant,
    ) -> std::result::Result<(), String> {
        self.gpu.make_current().map_err(|e| in_words(&e))?;
        let mut config = Config {
            size: std::mem::size_of::<Config>(),
            magic: value::MAGIC,
            version: value::LEAST as u32,
            blocking: 0,
            rest: value::UNDEFINED,
        };
        let mut comm = std::ptr::null_mut();
        let (size, rank) = (group.size() as c_int, group.rank() as c_int);
        // SAFETY: the library writes a handle, and reads as much of the configuration as it
        // says there is.
        let status = unsafe {
            (self.library.init)(&raw mut comm, size, UniqueId(*id), rank, &raw mut config)
        };
        let joined = Joined { comm, group: group.clone() };
        let done = match comm.is_null() {
            true => Err(Trouble::Said(status)),
            false => self.settle(&joined, status, deadline),
        };
        let mut state = self.state();
        match done {
            Ok(()) => {
                state.joined = Some(joined);
                self.on.store(true, Ordering::Release);
                Ok(())
            }
            Err(why) => {
                let why = match why {
                    Trouble::Said(status) => self.library.says(status),
                    Trouble::Late => "the GPUs do not find each other in time".into(),
                    Trouble::Gone(rank) => format!("worker {} is gone", group.number(rank)),
                };
                if !comm.is_null() {
                    self.abort(comm);
                }
                Err(why)
            }
        }
    }

    fn stop(&self) {
        let State { joined, .. } = std::mem::take(&mut *self.state());
        self.on.store(false, Ordering::Release);
        if let Some(joined) = joined {
            self.close(&joined);
        }
    }
}

impl Direct for Nccl {
    fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    fn sequence(
        self: Arc<Self>,
        cuda: &Arc<super::Cuda>,
        tasks: &[Task],
        dims: &[i64],
    ) -> Result<Box<dyn Sequence>> {
        Ok(Box::new(Joint::new(self, cuda, tasks, dims)?))
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        self.stop();
        if self.gpu.make_current().is_ok() {
            // SAFETY: the stream is ours, and nothing runs on it.
            unsafe { (self.gpu.driver.stream_destroy)(self.stream) };
        }
    }
}
