//! An MPI library, loaded when a program that `mpirun` started runs; nothing links it.
//!
//! Open MPI's binary interface (4 and 5) is used: handles are the addresses of its
//! global objects. Sums over all processes are the library's own. Its calls cannot be
//! given a deadline, so a thread watches the clock: when one takes too long, it says
//! which and ends the process, upon which `mpirun` ends the job.
//!
//! A process that is lost ends the job as well, unless the library can live with it
//! ([`ulfm`]).

mod ulfm;

use super::collective::Reduce;
use super::job::{Job, OnLoss};
use super::{Moment, Regrouped, Stop, Transport, late};
use crate::error::{Error, ErrorCode, Result};
use crate::hash::hex;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;
use tfc_abi::DType;
use ulfm::Ulfm;

type Handle = *mut c_void;

type SendRecv = unsafe extern "C" fn(
    *const c_void,
    c_int,
    Handle,
    c_int,
    c_int,
    *mut c_void,
    c_int,
    Handle,
    c_int,
    c_int,
    Handle,
    *mut c_void,
) -> c_int;
type Send = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle) -> c_int;
type Receive =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut c_void) -> c_int;
type Isend =
    unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Wait = unsafe extern "C" fn(*mut Handle, *mut c_void) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> c_int;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Ask = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type SetHandler = unsafe extern "C" fn(Handle, Handle) -> c_int;

/// The functions and objects of the library.
struct Library {
    sendrecv: SendRecv,
    send: Send,
    recv: Receive,
    isend: Isend,
    wait: Wait,
    test: Test,
    all_reduce: AllReduce,
    finalize: Finalize,
    rank_of: Ask,
    size_of: Ask,
    set_handler: SetHandler,
    ulfm: Option<Ulfm>,
    errors_return: Handle,
    world: Handle,
    byte: Handle,
    f32: Handle,
    f64: Handle,
    i32: Handle,
    i64: Handle,
    sum: Handle,
    max: Handle,
    min: Handle,
}

// SAFETY: the handles are addresses of objects that live as long as the library, which
// is never unloaded; the functions may be called from any thread (`MPI_THREAD_SERIALIZED`
// is asked for, and calls are made one at a time).
unsafe impl std::marker::Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The processes of the job, as the library knows them.
#[derive(Clone, Copy)]
struct World {
    comm: Handle,
    rank: usize,
    size: usize,
}

// SAFETY: as for the handles of the library.
unsafe impl std::marker::Send for World {}

impl World {
    /// Who it is when all others are waited for, if there is only one.
    fn other(&self) -> Option<usize> {
        (self.size == 2).then_some(usize::from(self.rank == 0))
    }
}

/// Those that are left.
#[derive(Clone)]
struct Left {
    world: World,
    /// Their numbers in the job, by rank.
    numbers: Arc<[usize]>,
}

impl Left {
    fn number(&self, rank: usize) -> usize {
        self.numbers.get(rank).copied().unwrap_or(rank)
    }
}

pub struct Mpi {
    left: Mutex<Left>,
    /// How many there were at first.
    most: usize,
    on_loss: OnLoss,
    library: Library,
    /// One call at a time.
    turn: Mutex<()>,
    watch: Arc<Watch>,
    posted: Mutex<Vec<Posted>>,
}

/// A message on its way: its memory stays where it is until the library is done.
struct Posted {
    request: Handle,
    to: usize,
    _data: Vec<u8>,
}

// SAFETY: a request is a handle of the library's, used by one thread at a time.
unsafe impl std::marker::Send for Posted {}

/// What is being waited for, and until when.
#[derive(Default)]
struct Watch {
    now: Mutex<Watched>,
    changed: Condvar,
}

#[derive(Default)]
enum Watched {
    #[default]
    Nothing,
    Until(Instant, String),
    Over,
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const NOW_AND_GLOBAL: c_int = 0x102;
const SERIALIZED: c_int = 2;
/// The one tag: messages between two processes keep their order.
const TAG: c_int = 7;
/// `MPI_IN_PLACE` of Open MPI.
const IN_PLACE: *const c_void = std::ptr::without_provenance(1);

/// Names to try; `TFC_MPI` comes first.
const NAMES: [&str; 3] = ["libmpi.so.40", "libmpi.so", "libmpi.dylib"];

fn missing(why: &str) -> Error {
    Error::io(ErrorCode::BAD_JOB, format!("the MPI library cannot be used: {why}"))
        .note("`mpirun` started this process, so MPI carries the messages of the job")
        .help("name Open MPI's library with TFC_MPI=/path/to/libmpi.so.40")
}

fn open() -> Result<*mut c_void> {
    let own = std::env::var("TFC_MPI").ok();
    let mut why = String::new();
    for name in own.as_deref().into_iter().chain(NAMES) {
        let Ok(text) = CString::new(name) else { continue };
        // SAFETY: the name is a C string; the library is never unloaded.
        let library = unsafe { dlopen(text.as_ptr(), NOW_AND_GLOBAL) };
        if !library.is_null() {
            return Ok(library);
        }
        if why.is_empty() {
            // SAFETY: what `dlerror` gives is a C string or null.
            let said = unsafe { dlerror() };
            if !said.is_null() {
                // SAFETY: as above.
                why = unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned();
            }
        }
    }
    Err(missing(&why))
}

impl Mpi {
    /// Starts MPI and makes sure that everybody runs the same program.
    pub(super) fn start(graph: &[u8; 32], job: &Job) -> Result<Mpi> {
        let deadline = Instant::now() + job.join_timeout;
        let library = open()?;
        let find = |name: &str| -> Result<*mut c_void> {
            let text = CString::new(name).unwrap_or_default();
            // SAFETY: the library is open, and the name is a C string.
            let at = unsafe { dlsym(library, text.as_ptr()) };
            match at.is_null() {
                true => Err(missing(&format!("it has no `{name}`; only Open MPI's does"))),
                false => Ok(at),
            }
        };
        type Init = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
        macro_rules! function {
            ($name:literal, $t:ty) => {
                // SAFETY: the functions of MPI have these signatures, by its standard.
                unsafe { std::mem::transmute::<*mut c_void, $t>(find($name)?) }
            };
        }
        let init = function!("MPI_Init_thread", Init);
        let library = Library {
            sendrecv: function!("MPI_Sendrecv", SendRecv),
            send: function!("MPI_Send", Send),
            recv: function!("MPI_Recv", Receive),
            isend: function!("MPI_Isend", Isend),
            wait: function!("MPI_Wait", Wait),
            test: function!("MPI_Test", Test),
            all_reduce: function!("MPI_Allreduce", AllReduce),
            finalize: function!("MPI_Finalize", Finalize),
            rank_of: function!("MPI_Comm_rank", Ask),
            size_of: function!("MPI_Comm_size", Ask),
            set_handler: function!("MPI_Comm_set_errhandler", SetHandler),
            ulfm: Ulfm::find(&|name| find(name).ok()),
            errors_return: find("ompi_mpi_errors_return")?,
            world: find("ompi_mpi_comm_world")?,
            byte: find("ompi_mpi_byte")?,
            f32: find("ompi_mpi_float")?,
            f64: find("ompi_mpi_double")?,
            i32: find("ompi_mpi_int32_t")?,
            i64: find("ompi_mpi_int64_t")?,
            sum: find("ompi_mpi_op_sum")?,
            max: find("ompi_mpi_op_max")?,
            min: find("ompi_mpi_op_min")?,
        };
        let watch = Arc::new(Watch::default());
        let watcher = watch.clone();
        let started =
            std::thread::Builder::new().name("tfc-watch".into()).spawn(move || watcher.run());
        started.map_err(|e| missing(&crate::io::io_reason(&e)))?;
        let within = job.join_timeout.as_secs_f64();
        let text = format!("the workers have not joined by MPI within {within} s");
        let late = Error::peer(ErrorCode::PEER_LATE, text)
            .note("MPI starts when all of them are there, and does not say who is missing")
            .help("start them, or give them longer with `--join-timeout`");
        watch.set(Watched::Until(deadline, late.to_string()));
        let mut given = 0;
        // SAFETY: MPI takes null for the arguments of the program; the numbers are
        // places to write to.
        let code =
            unsafe { init(std::ptr::null_mut(), std::ptr::null_mut(), SERIALIZED, &mut given) };
        if code != 0 || given < SERIALIZED {
            watch.set(Watched::Over);
            return Err(missing("it does not start"));
        }
        watch.set(Watched::Nothing);
        let world = library.enter(library.world);
        let mpi = Mpi {
            left: Mutex::new(Left { world, numbers: (0..world.size).collect() }),
            most: world.size,
            on_loss: job.on_loss,
            library,
            turn: Mutex::default(),
            watch,
            posted: Mutex::default(),
        };
        mpi.same_program(graph, deadline)?;
        Ok(mpi)
    }

    fn same_program(&self, graph: &[u8; 32], deadline: Instant) -> Result<()> {
        let moment = Moment { sequence: 0, deadline, what: "the programs' hashes", place: "" };
        let [mut low, mut high] = [*graph; 2];
        for (bytes, op) in [(&mut low, Reduce::Min), (&mut high, Reduce::Max)] {
            self.all_reduce(bytes, DType::I64, op, &moment)?;
        }
        if low == high {
            return Ok(());
        }
        Err(Error::peer(ErrorCode::JOIN_REFUSED, "the workers do not all run the same program")
            .note(format!("the graph of worker {} is {}", self.rank(), hex(graph)))
            .help("start every worker of a job with the same program"))
    }

    /// Those that are left, by their numbers in the job; all of them ask.
    fn count(&self, left: &Left, own: usize, moment: &Moment<'_>) -> Result<Arc<[usize]>> {
        let mut there = vec![0u8; self.most * 8];
        there[own * 8..][..8].copy_from_slice(&1i64.to_ne_bytes());
        self.reduce(left, &mut there, DType::I64, Reduce::Max, moment)?;
        Ok((0..self.most).filter(|n| there[n * 8..][..8] != [0; 8]).collect())
    }

    fn left(&self) -> Left {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reduce(
        &self,
        left: &Left,
        data: &mut [u8],
        dtype: DType,
        op: Reduce,
        moment: &Moment<'_>,
    ) -> Result<()> {
        let l = &self.library;
        let Some(kind) = self.kind(dtype) else {
            return Err(Error::bug("MPI has no such elements"));
        };
        let op = match op {
            Reduce::Sum | Reduce::Mean => l.sum,
            Reduce::Max => l.max,
            Reduce::Min => l.min,
        };
        let comm = left.world.comm;
        let other = left.world.other();
        for part in data.chunks_mut(1 << 30) {
            let count = (part.len() / dtype.size()) as c_int;
            // SAFETY: the buffer has this many elements.
            self.call(left, moment, other, || unsafe {
                (l.all_reduce)(IN_PLACE, part.as_mut_ptr().cast(), count, kind, op, comm)
            })?;
        }
        Ok(())
    }

    /// What the library calls an element type that it has with our meaning.
    fn kind(&self, dtype: DType) -> Option<Handle> {
        let l = &self.library;
        match dtype {
            DType::F32 => Some(l.f32),
            DType::F64 => Some(l.f64),
            DType::I32 => Some(l.i32),
            DType::I64 => Some(l.i64),
            DType::F16 | DType::BF16 | DType::I8 | DType::U8 | DType::Bool => None,
        }
    }

    /// Runs one call of the library among those that are left, with the clock watched. Where
    /// not one `peer` is waited for but all are, the library does not say whose fault it is.
    fn call(
        &self,
        left: &Left,
        moment: &Moment<'_>,
        peer: Option<usize>,
        call: impl FnOnce() -> c_int,
    ) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = |code: ErrorCode, text: &str| {
            super::about(Error::peer(code, text), moment).note("MPI does not say which")
        };
        let late = match peer {
            Some(peer) => late(left.number(peer), moment),
            None => unknown(ErrorCode::PEER_LATE, "one of the others did not answer in time")
                .help("if it is only slow, give it longer with `--peer-timeout`"),
        };
        let mut text = late.to_string();
        text += "\n  = note: MPI cannot be asked to stop waiting: this process ends here";
        self.watch.set(Watched::Until(moment.deadline, text));
        let code = call();
        self.watch.set(Watched::Nothing);
        match code {
            0 => Ok(()),
            code => {
                let ulfm = self.library.ulfm.as_ref();
                let why = format!("MPI's error {code}");
                Err(match ulfm.and_then(|u| u.revoke(&left.world)).or(peer) {
                    Some(gone) => super::lost(left.number(gone), moment, &why),
                    None => {
                        unknown(ErrorCode::PEER_LOST, &format!("one of the others is gone: {why}"))
                            .help("its own output says why it ended")
                    }
                })
            }
        }
    }
}

impl Library {
    /// A communicator whose errors are returned, instead of ending the process.
    fn enter(&self, comm: Handle) -> World {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is one of the library's, which has been started; the
        // numbers are places to write to.
        unsafe {
            (self.set_handler)(comm, self.errors_return);
            (self.rank_of)(comm, &mut rank);
            (self.size_of)(comm, &mut size);
        }
        World { comm, rank: rank.max(0) as usize, size: size.max(1) as usize }
    }
}

impl Watch {
    fn set(&self, what: Watched) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            now = match &*now {
                Watched::Over => return,
                Watched::Nothing => self.changed.wait(now).unwrap_or_else(PoisonError::into_inner),
                Watched::Until(deadline, text) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        eprintln!("{text}");
                        std::process::exit(crate::error::ErrorKind::Peer.exit_code());
                    }
                    let waited = self.changed.wait_timeout(now, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn counted(len: usize) -> Result<c_int> {
    c_int::try_from(len).map_err(|_| Error::bug("a message is too long for MPI"))
}

impl Transport for Mpi {
    fn name(&self) -> &'static str {
        "MPI"
    }

    fn rank(&self) -> usize {
        self.left().world.rank
    }

    fn size(&self) -> usize {
        self.left().world.size
    }

    fn exchange(
        &self,
        out: Option<(usize, &[u8])>,
        into: Option<(usize, &mut [u8])>,
        moment: &Moment<'_>,
    ) -> Result<()> {
        let (l, left) = (&self.library, self.left());
        let comm = left.world.comm;
        match (out, into) {
            (Some((to, data)), Some((from, place))) => {
                let (n, m) = (counted(data.len())?, counted(place.len())?);
                // SAFETY: both buffers have as many bytes as said; a null status is
                // allowed.
                self.call(&left, moment, Some(from), || unsafe {
                    (l.sendrecv)(
                        data.as_ptr().cast(),
                        n,
                        l.byte,
                        to as c_int,
                        TAG,
                        place.as_mut_ptr().cast(),
                        m,
                        l.byte,
                        from as c_int,
                        TAG,
                        comm,
                        std::ptr::null_mut(),
                    )
                })
            }
            (Some((to, data)), None) => {
                let n = counted(data.len())?;
                // SAFETY: as above.
                self.call(&left, moment, Some(to), || unsafe {
                    (l.send)(data.as_ptr().cast(), n, l.byte, to as c_int, TAG, comm)
                })
            }
            (None, Some((from, place))) => {
                let n = counted(place.len())?;
                // SAFETY: as above.
                self.call(&left, moment, Some(from), || unsafe {
                    let status = std::ptr::null_mut();
                    let to = place.as_mut_ptr().cast();
                    (l.recv)(to, n, l.byte, from as c_int, TAG, comm, status)
                })
            }
            (None, None) => Ok(()),
        }
    }

    fn post(&self, to: usize, data: Vec<u8>, moment: &Moment<'_>) -> Result<()> {
        let (l, n) = (&self.library, counted(data.len())?);
        let left = self.left();
        let comm = left.world.comm;
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have arrived meanwhile.
        for i in (0..posted.len()).rev() {
            let (peer, request) = (posted[i].to, &mut posted[i].request);
            let mut done = 0;
            // SAFETY: the request is one that is not finished; a null status is allowed.
            self.call(&left, moment, Some(peer), || unsafe {
                (l.test)(request, &mut done, std::ptr::null_mut())
            })?;
            if done != 0 {
                posted.swap_remove(i);
            }
        }
        let mut request = std::ptr::null_mut();
        // SAFETY: the data stays where it is until the request is finished.
        self.call(&left, moment, Some(to), || unsafe {
            (l.isend)(data.as_ptr().cast(), n, l.byte, to as c_int, TAG, comm, &mut request)
        })?;
        posted.push(Posted { request, to, _data: data });
        Ok(())
    }

    fn flush(&self, moment: &Moment<'_>) -> Result<()> {
        let left = self.left();
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        for mut message in posted.drain(..) {
            let (request, to) = (&mut message.request, message.to);
            // SAFETY: as above.
            self.call(&left, moment, Some(to), || unsafe {
                (self.library.wait)(request, std::ptr::null_mut())
            })?;
        }
        Ok(())
    }

    fn here(&self) -> usize {
        let said = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok();
        said.and_then(|n| n.parse().ok()).unwrap_or(self.size())
    }

    /// The library looks for messages without end.
    fn sleeps(&self) -> bool {
        false
    }

    fn most(&self) -> usize {
        self.most
    }

    fn number(&self, rank: usize) -> usize {
        self.left().number(rank)
    }

    fn outlives(&self) -> OnLoss {
        match (self.on_loss, &self.library.ulfm) {
            (OnLoss::Shrink, Some(_)) => OnLoss::Shrink,
            _ => OnLoss::Stop,
        }
    }

    fn regroup(
        &self,
        moment: &Moment<'_>,
        _stop: Stop<'_>,
        _say: &mut dyn FnMut(&str),
    ) -> Result<Regrouped> {
        let Some(ulfm) = &self.library.ulfm else {
            return Err(Error::bug("this MPI library ends with the first process that is lost"));
        };
        // What was on its way stays where it is: the library may still look at it.
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *posted).leak();
        drop(posted);
        let before = self.left();
        let own = before.number(before.world.rank);
        let mut now = before.clone();
        let numbers = loop {
            let mut made = std::ptr::null_mut();
            self.call(&now, moment, now.world.other(), || {
                ulfm.shrink(&now.world).map(|comm| made = comm).err().unwrap_or(0)
            })?;
            // Until they are counted, who has which number among them is not known.
            now.world = self.library.enter(made);
            match self.count(&now, own, moment) {
                // Another one is lost meanwhile. Whoever has counted before that hears of it
                // in its next exchange, and leaves it out of the same communicator.
                Err(e) if e.code() == ErrorCode::PEER_LOST && now.world.size > 1 => {}
                counted => break counted?,
            }
        };
        let world = now.world;
        let lost = before.numbers.iter().filter(|n| !numbers.contains(n)).copied().collect();
        let chief = numbers.first() == Some(&0);
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Left { world, numbers };
        match chief {
            true => Ok(Regrouped { lost, ..Regrouped::default() }),
            false => Err(super::lost(0, moment, "the chief has the files of the run")),
        }
    }

    fn reduces(&self, dtype: DType) -> bool {
        self.kind(dtype).is_some()
    }

    fn all_reduce(
        &self,
        data: &mut [u8],
        dtype: DType,
        op: Reduce,
        moment: &Moment<'_>,
    ) -> Result<()> {
        self.reduce(&self.left(), data, dtype, op, moment)
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        let deadline = Instant::now() + super::PEER_TIMEOUT;
        let text = "the other processes of the job did not end in time".to_owned();
        self.watch.set(Watched::Until(deadline, text));
        // An unwinding process ends without it: the others may be waiting for us.
        if !std::thread::panicking() {
            // SAFETY: MPI was started, and nothing calls it after this.
            unsafe { (self.library.finalize)() };
        }
        self.watch.set(Watched::Over);
    }
}
