//! Programs on NVIDIA's GPUs, through the driver alone.
//!
//! | file | job |
//! |---|---|
//! | [`driver`] | the functions of `libcuda.so.1`, found when they are needed |
//! | [`memory`] | memory of a GPU, and memory to copy through |
//! | [`sequence`] | steps that follow one another: streams, events, CUDA graphs |
//! | [`nccl`] | exchanges with the GPUs of other processes |
//!
//! Nothing of the runtime refers to this module but [`TFC_CUDA`] and [`nccl::TFC_NCCL`], of
//! which programs with code for GPUs name one in their descriptor: the others are linked
//! without it.
//!
//! A GPU's context, its code and its streams are one [`Gpu`], which everything made on it
//! keeps alive; what was allocated is freed before the context is given back.

pub mod driver;
mod memory;
pub mod nccl;
mod sequence;

use crate::device::{Accelerator, Memory, Sequence, Task, What};
use crate::error::{Error, ErrorCode, Result};
use crate::io::inflate::inflate;
use crate::net::direct::{Engine, Hindrance};
use driver::{Driver, Handle, value};
use memory::{Block, Pinned};
use sequence::{STREAMS, Tasks};
use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tfc_abi::DType;
use tfc_abi::gpu::{Gpu as Code, GpuVersion};
use tfc_abi::place::{Placed, place};
use tfc_abi::plan::{DeviceId, HOST, Plan, Step};

/// Starts the GPUs of these numbers, with the best version of the program's code that all
/// of them can run.
type Open = fn(Code, &[u32], Option<Connect>) -> Result<Arc<dyn Accelerator>>;

/// What a program's descriptor points at: how to use GPUs.
#[repr(C)]
pub struct Entry {
    pub(crate) open: Open,
    /// How many GPUs there are.
    pub(crate) count: fn() -> Result<u32>,
    pub(crate) place: PlaceFn,
    /// For [`Entry::open`]: in programs that can be part of a job.
    pub(crate) direct: Option<Connect>,
}

/// See [`Entry`].
#[unsafe(export_name = "tfc_cuda")]
pub static TFC_CUDA: Entry = ALONE;

const ALONE: Entry =
    Entry { open, count: || count(&*the_driver()?), place: place_on, direct: None };

/// How a GPU exchanges tensors with those of other processes, or why it cannot.
type Connect = fn(&Arc<Gpu>) -> std::result::Result<Arc<dyn Direct>, Hindrance>;

/// See [`Connect`].
pub(crate) trait Direct: Engine {
    /// Whether it knows the others.
    fn is_on(&self) -> bool;

    /// As [`Accelerator::sequence`], of tasks with exchanges among them.
    fn sequence(
        self: Arc<Self>,
        cuda: &Arc<Cuda>,
        tasks: &[Task],
        dims: &[i64],
    ) -> Result<Box<dyn Sequence>>;
}

/// A plan for the CPU as one that uses the GPU of a number.
type PlaceFn = fn(&Plan, u32, &dyn Accelerator) -> Placed;

fn place_on(plan: &Plan, number: u32, accelerator: &dyn Accelerator) -> Placed {
    place(plan, number, &|entry, step| {
        let Step::Call(c) = step else { return true };
        let buffers = &plan.entries[entry as usize].buffers;
        let dtype = |i: usize| c.bufs.get(i).map_or(DType::I32, |b| buffers[*b as usize].dtype);
        accelerator.runs(c.func, dtype(0), dtype(1))
    })
}

/// The driver, or why there is none.
fn the_driver() -> Result<Arc<Driver>> {
    static DRIVER: OnceLock<std::result::Result<Arc<Driver>, Error>> = OnceLock::new();
    let start = || {
        let driver = driver::open().map_err(|why| no_gpu(&why))?;
        // SAFETY: the function takes no pointer.
        let status = unsafe { (driver.init)(0) };
        match status {
            0 => Ok(Arc::new(driver)),
            value::NO_DEVICE => Err(no_gpu("NVIDIA's driver finds no GPU on this machine")),
            value::SYSTEM_DRIVER_MISMATCH => Err(no_gpu(
                "NVIDIA's driver and the module in the kernel are of different versions",
            )),
            other => Err(no_gpu(&format!("NVIDIA's driver does not start: error {other}"))),
        }
    };
    DRIVER.get_or_init(start).clone()
}

fn no_gpu(why: &str) -> Error {
    Error::io(ErrorCode::NO_GPU, why)
        .help("run with `--device cpu`: a program for GPUs has code for the CPU too")
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub name: String,
    /// Compute capability, as 80 for 8.0.
    pub arch: u32,
    pub memory: usize,
    pub processors: u32,
}

/// The GPUs of this machine, in the driver's order, and the driver's version (as 12040
/// for CUDA 12.4).
pub fn devices() -> Result<(u32, Vec<Info>)> {
    let driver = the_driver()?;
    let (version, count) = (version(&driver)?, count(&driver)?);
    let infos = (0..count).map(|n| info(&driver, handle(&driver, n)?));
    Ok((version, infos.collect::<Result<_>>()?))
}

fn version(driver: &Driver) -> Result<u32> {
    let mut version = 0;
    // SAFETY: the driver writes a number.
    driver.check(unsafe { (driver.driver_version)(&raw mut version) }, "asking its version")?;
    Ok(u32::try_from(version).unwrap_or(0))
}

fn count(driver: &Driver) -> Result<u32> {
    let mut count = 0;
    // SAFETY: the driver writes a number.
    driver.check(unsafe { (driver.device_count)(&raw mut count) }, "counting GPUs")?;
    Ok(u32::try_from(count).unwrap_or(0))
}

fn handle(driver: &Driver, number: u32) -> Result<c_int> {
    let mut device = 0;
    // SAFETY: the driver writes a number.
    let status = unsafe { (driver.device_get)(&raw mut device, number as c_int) };
    driver.check(status, "finding the GPU")?;
    Ok(device)
}

fn info(driver: &Driver, device: c_int) -> Result<Info> {
    let mut name = [0u8; 128];
    // SAFETY: the driver writes at most so many bytes.
    let status =
        unsafe { (driver.device_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) };
    driver.check(status, "asking the GPU's name")?;
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    let attribute = |which| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the driver writes a number.
        let status = unsafe { (driver.device_attribute)(&raw mut value, which, device) };
        driver.check(status, "asking what the GPU can do")?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut memory = 0;
    // SAFETY: the driver writes a number.
    let status = unsafe { (driver.device_memory)(&raw mut memory, device) };
    driver.check(status, "asking the GPU's memory")?;
    Ok(Info {
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        arch: attribute(value::ATTRIBUTE_MAJOR)? * 10 + attribute(value::ATTRIBUTE_MINOR)?,
        memory,
        processors: attribute(value::ATTRIBUTE_PROCESSORS)?,
    })
}

/// One GPU in use.
pub(crate) struct Gpu {
    driver: Arc<Driver>,
    device: c_int,
    context: Handle,
    module: Handle,
    functions: BTreeMap<String, Handle>,
    /// Sets of streams that no run uses.
    idle: Mutex<Vec<Vec<Handle>>>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for Gpu {}

impl Gpu {
    fn new(driver: &Arc<Driver>, device: c_int, code: &GpuVersion, text: &[u8]) -> Result<Gpu> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        let status = unsafe { (driver.context_retain)(&raw mut context, device) };
        driver.check(status, "starting the GPU")?;
        let mut gpu = Gpu {
            driver: driver.clone(),
            device,
            context,
            module: std::ptr::null_mut(),
            functions: BTreeMap::new(),
            idle: Mutex::default(),
        };
        gpu.make_current()?;
        gpu.module = gpu.compile(text)?;
        let launches = code.kernels.iter().flatten();
        let products = code.contractions.iter().flat_map(|c| &c.launches);
        for entry in launches.chain(products).chain(code.routines.iter().map(|r| &r.launch)) {
            let name = CString::new(entry.name.as_str()).unwrap_or_default();
            let mut function = std::ptr::null_mut();
            // SAFETY: the module is loaded, and the name is a C string.
            let status =
                unsafe { (driver.module_function)(&raw mut function, gpu.module, name.as_ptr()) };
            driver.check(status, &format!("finding `{}`", entry.name))?;
            gpu.functions.insert(entry.name.clone(), function);
        }
        Ok(gpu)
    }

    /// Has the driver compile PTX, which ends in a zero.
    fn compile(&self, text: &[u8]) -> Result<Handle> {
        let mut module = std::ptr::null_mut();
        let mut log = vec![0u8; 2048];
        let mut options = [value::JIT_ERROR_LOG, value::JIT_ERROR_LOG_BYTES];
        // The size is passed as if it were a pointer.
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        // SAFETY: the text ends in a zero, and the options say how long the log is.
        let status = unsafe {
            (self.driver.module_load)(
                &raw mut module,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        let loaded = self.driver.check(status, "loading the program's code");
        loaded.map(|()| module).map_err(|e| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(0);
            match String::from_utf8_lossy(&log[..end]).lines().next() {
                Some(said) => e.note(format!("it says: {said}")),
                None => e,
            }
        })
    }

    fn make_current(&self) -> Result<()> {
        // SAFETY: the context is ours.
        self.driver.check(unsafe { (self.driver.context_use)(self.context) }, "using the GPU")
    }

    fn free_memory(&self) -> Option<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes two numbers.
        let status = unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) };
        (status == 0).then_some((free, total))
    }

    fn function(&self, name: &str) -> Result<Handle> {
        let found = self.functions.get(name).copied();
        found.ok_or_else(|| Error::bug(format!("the program has no entry `{name}`")))
    }

    fn event(&self) -> Result<Handle> {
        self.make_current()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        let status = unsafe {
            (self.driver.event_create)(&raw mut event, value::EVENT_DISABLE_TIMING as c_uint)
        };
        self.driver.check(status, "making an event")?;
        Ok(event)
    }

    /// A set of streams that nobody else uses.
    fn streams(&self) -> Result<Vec<Handle>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(streams) = idle {
            return Ok(streams);
        }
        self.make_current()?;
        let mut streams = vec![];
        for _ in 0..STREAMS {
            let mut stream = std::ptr::null_mut();
            // SAFETY: the driver writes a handle.
            let status = unsafe {
                (self.driver.stream_create)(&raw mut stream, value::STREAM_NON_BLOCKING as c_uint)
            };
            self.driver.check(status, "making a stream")?;
            streams.push(stream);
        }
        Ok(streams)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.make_current().is_ok() {
            let idle = std::mem::take(self.idle.get_mut().unwrap_or_else(PoisonError::into_inner));
            for stream in idle.into_iter().flatten() {
                // SAFETY: the stream is ours, and nothing runs on it.
                unsafe { (self.driver.stream_destroy)(stream) };
            }
            if !self.module.is_null() {
                // SAFETY: the module is ours, and nothing of it runs.
                unsafe { (self.driver.module_unload)(self.module) };
            }
        }
        // SAFETY: it was retained once, and everything on it is freed.
        unsafe { (self.driver.context_release)(self.device) };
    }
}

/// The GPUs of a model.
pub(crate) struct Cuda {
    driver: Arc<Driver>,
    gpus: Vec<Arc<Gpu>>,
    code: GpuVersion,
    /// Where empty buffers are, on each GPU.
    nothing: Vec<Block>,
    connect: Option<Connect>,
    /// See [`Direct`]; once it was asked for.
    direct: OnceLock<Arc<dyn Direct>>,
}

/// Streams of every GPU, for one run.
struct Lease<'a> {
    cuda: &'a Cuda,
    handles: Vec<Vec<Handle>>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        for (gpu, streams) in self.cuda.gpus.iter().zip(self.handles.drain(..)) {
            if !streams.is_empty() {
                gpu.idle.lock().unwrap_or_else(PoisonError::into_inner).push(streams);
            }
        }
    }
}

/// Releases of CUDA, and the newest version of PTX that their drivers read: as far as
/// programs use them.
const PTX: [(u32, u32); 2] = [(9000, 60), (11000, 70)];

fn open(code: Code, numbers: &[u32], connect: Option<Connect>) -> Result<Arc<dyn Accelerator>> {
    let driver = the_driver()?;
    let (release, count) = (version(&driver)?, count(&driver)?);
    let mut handles = vec![];
    let mut least = u32::MAX;
    for n in numbers {
        if *n >= count {
            let have = match count {
                1 => "there is one GPU, number 0".into(),
                n => format!("there are {n} GPUs, numbered from 0"),
            };
            return Err(no_gpu(&format!("there is no GPU number {n}: {have}")));
        }
        let device = handle(&driver, *n)?;
        least = least.min(info(&driver, device)?.arch);
        handles.push(device);
    }
    let reads = PTX.iter().rev().find(|(since, _)| *since <= release).map_or(0, |(_, ptx)| *ptx);
    let fits = |v: &&GpuVersion| v.arch <= least && v.ptx <= reads;
    let Some(version) = code.versions.iter().find(fits) else {
        let needs = code.versions.last();
        let (arch, ptx) = needs.map_or((0, 0), |v| (v.arch, v.ptx));
        let too_old = if ptx > reads { "NVIDIA's driver" } else { "the GPU" };
        return Err(Error::io(ErrorCode::GPU_TOO_OLD, format!("{too_old} is too old for this program"))
            .note(format!(
                "the program needs compute capability {}.{} and PTX {}.{}; the GPU has {}.{}, and the driver, for CUDA {}.{}, reads PTX {}.{}",
                arch / 10, arch % 10, ptx / 10, ptx % 10,
                least / 10, least % 10,
                release / 1000, release % 1000 / 10, reads / 10, reads % 10
            ))
            .help("update the driver, or run with `--device cpu`"));
    };
    let length = usize::try_from(version.text_len).unwrap_or(usize::MAX);
    let mut text = inflate(&version.text, length)
        .ok_or_else(|| Error::io(ErrorCode::DAMAGED_PROGRAM, "the code for GPUs is damaged"))?;
    text.push(0);
    let mut version = version.clone();
    version.text.clear();
    let gpus = handles.iter().map(|d| Gpu::new(&driver, *d, &version, &text).map(Arc::new));
    let gpus: Vec<Arc<Gpu>> = gpus.collect::<Result<_>>()?;
    let nothing = gpus.iter().map(|g| Block::new(g, 0)).collect::<Result<Vec<_>>>()?;
    let direct = OnceLock::new();
    let cuda = Cuda { driver, gpus, code: version, nothing, connect, direct };
    let zeros = vec![0; cuda.nothing[0].len()];
    for (i, block) in (1u32..).zip(&cuda.nothing) {
        // SAFETY: the block is as long as the zeros.
        unsafe { cuda.write(i, &zeros, block.start()) }?;
    }
    Ok(Arc::new(Handed(Arc::new(cuda))))
}

impl Cuda {
    fn gpu(&self, device: DeviceId) -> Result<&Arc<Gpu>> {
        debug_assert_ne!(device, HOST);
        self.gpus
            .get((device as usize).wrapping_sub(1))
            .ok_or_else(|| Error::bug(format!("device {device} is no GPU")))
    }

    /// Streams of the GPUs that are used, and of the first.
    fn lease(&self, used: &[usize]) -> Result<Lease<'_>> {
        let mut lease = Lease { cuda: self, handles: vec![] };
        for (i, (gpu, used)) in self.gpus.iter().zip(used).enumerate() {
            let streams = if *used > 0 || i == 0 { gpu.streams()? } else { vec![] };
            lease.handles.push(streams);
        }
        Ok(lease)
    }

    /// Waits for what it is given a stream for.
    fn at_once(
        &self,
        device: DeviceId,
        give: impl FnOnce(&Driver, Handle) -> c_int,
        doing: &str,
    ) -> Result<()> {
        let gpu = self.gpu(device)?;
        gpu.make_current()?;
        let mut used = vec![0; self.gpus.len()];
        used[device as usize - 1] = 1;
        let lease = self.lease(&used)?;
        let stream = lease.handles[device as usize - 1][0];
        self.driver.check(give(&self.driver, stream), doing)?;
        gpu.make_current()?;
        // SAFETY: the stream is ours.
        self.driver.check(unsafe { (self.driver.stream_synchronise)(stream) }, doing)
    }

    /// # Safety
    /// `dst` is memory of the device with as many bytes, and nothing else uses it.
    unsafe fn write(&self, device: DeviceId, src: &[u8], dst: *mut u8) -> Result<()> {
        let (at, from) = (dst.addr() as u64, src.as_ptr().cast());
        // SAFETY: the caller's promise; it is done before the source is gone.
        let give = |d: &Driver, stream| unsafe { (d.copy_up)(at, from, src.len(), stream) };
        self.at_once(device, give, "a copy to the GPU")
    }
}

/// What a model has of them.
struct Handed(Arc<Cuda>);

impl Accelerator for Handed {
    fn allocate(&self, device: DeviceId, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Block::new(self.0.gpu(device)?, bytes)?))
    }

    fn staging(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Pinned::new(&self.0.gpus[0], bytes)?))
    }

    fn nothing(&self, device: DeviceId) -> *mut u8 {
        let at = self.0.nothing.get((device as usize).wrapping_sub(1));
        at.map_or(std::ptr::null_mut(), |b| b.start())
    }

    fn runs(&self, func: tfc_abi::plan::Func, dtype: tfc_abi::DType, ids: tfc_abi::DType) -> bool {
        func == tfc_abi::plan::Func::Zero || self.0.code.routine(func, dtype, ids).is_some()
    }

    unsafe fn write(&self, device: DeviceId, src: &[u8], dst: *mut u8) -> Result<()> {
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.0.write(device, src, dst) }
    }

    unsafe fn read(&self, device: DeviceId, src: *const u8, dst: &mut [u8]) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        let (from, to, len) = (src.addr() as u64, dst.as_mut_ptr().cast(), dst.len());
        // SAFETY: the caller's promise; it is done before the destination is gone.
        let give = |d: &Driver, stream| unsafe { (d.copy_down)(to, from, len, stream) };
        self.0.at_once(device, give, "a copy from the GPU")
    }

    unsafe fn copy(
        &self,
        device: DeviceId,
        src: *const u8,
        dst: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (from, to) = (src.addr() as u64, dst.addr() as u64);
        // SAFETY: the caller's promise.
        let give = |d: &Driver, stream| unsafe { (d.copy_within)(to, from, bytes, stream) };
        self.0.at_once(device, give, "a copy within the GPU")
    }

    fn engine(&self) -> std::result::Result<Arc<dyn Engine>, Hindrance> {
        let cuda = &self.0;
        if let Some(known) = cuda.direct.get() {
            return Ok(known.clone());
        }
        let [gpu] = &cuda.gpus[..] else { return Err(Hindrance::SeveralGpus) };
        let connect = cuda.connect.ok_or(Hindrance::Missing)?;
        let direct = connect(gpu)?;
        Ok(cuda.direct.get_or_init(|| direct).clone())
    }

    fn exchanges(&self) -> bool {
        self.0.direct.get().is_some_and(|d| d.is_on())
    }

    fn sequence(&self, tasks: &[Task], dims: &[i64]) -> Result<Box<dyn Sequence>> {
        let exchange = |t: &Task| matches!(t.what, What::Exchange { .. });
        match self.0.direct.get().filter(|_| tasks.iter().any(exchange)) {
            Some(direct) => direct.clone().sequence(&self.0, tasks, dims),
            None => Ok(Box::new(Tasks::new(&self.0, tasks, dims)?)),
        }
    }
}
