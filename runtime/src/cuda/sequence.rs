//! Tasks of a list that follow one another without the CPU.
//!
//! Each task has a stream; where it waits for one of another stream, an event stands
//! between them, so that what does not depend on each other overlaps. The second time the
//! same tasks run they are recorded as a CUDA graph, which later runs replay: one call of
//! the driver instead of one for each task. If the driver will not record, tasks are
//! launched one by one as before.
//!
//! Invariant: all addresses in a task are fixed. What the caller of an entry owns is copied
//! through pinned memory.

use super::driver::{DevicePtr, Handle, value};
use super::memory::Block;
use super::{Cuda, Gpu};
use crate::device::{Sequence, Task, What};
use crate::error::{Error, ErrorCode, Result};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;
use tfc_abi::gpu::GpuEntry;

/// Streams of a GPU that a sequence uses at most.
pub(super) const STREAMS: usize = 4;

/// One thing the driver is told to do.
enum Order {
    Launch { function: Handle, grid: [u32; 3], block: u32, args: Vec<u64> },
    Fill { at: DevicePtr, bytes: usize },
    Up { src: *const c_void, dst: DevicePtr, bytes: usize },
    Down { src: DevicePtr, dst: *mut c_void, bytes: usize },
    Within { src: DevicePtr, dst: DevicePtr, bytes: usize },
    Across { from: usize, src: DevicePtr, dst: DevicePtr, bytes: usize },
}

struct Placed {
    gpu: usize,
    stream: usize,
    orders: Vec<Order>,
    /// Earlier tasks of other streams that it waits for.
    waits: Vec<u32>,
    /// Recorded when it is done, if others wait for it.
    event: Option<Handle>,
}

pub(super) struct Tasks {
    cuda: Arc<Cuda>,
    list: Vec<Placed>,
    /// Streams in use, of each GPU.
    used: Vec<usize>,
    /// When the run begins, and the end of what each stream was given.
    begin: Handle,
    ends: Vec<(usize, usize, Handle)>,
    runs: u64,
    graph: Option<Handle>,
    _workspace: Vec<Block>,
}

// SAFETY: the addresses are of memory that the call in progress owns, and handles of the
// driver may be used from any thread.
unsafe impl Send for Tasks {}

fn address(ptr: *const u8) -> DevicePtr {
    ptr.addr() as DevicePtr
}

impl Tasks {
    pub fn new(cuda: &Arc<Cuda>, tasks: &[Task], dims: &[i64]) -> Result<Tasks> {
        let mut out = Tasks {
            cuda: cuda.clone(),
            list: vec![],
            used: vec![0; cuda.gpus.len()],
            begin: cuda.gpus[0].event()?,
            ends: vec![],
            runs: 0,
            graph: None,
            _workspace: vec![],
        };
        // The last task of each stream of each GPU.
        let mut tails = vec![[None; STREAMS]; cuda.gpus.len()];
        let mut awaited = vec![false; tasks.len()];
        for (i, task) in (0u32..).zip(tasks) {
            let gpu = (task.device as usize).saturating_sub(1).min(cuda.gpus.len() - 1);
            let orders = out.orders(gpu, &task.what, dims)?;
            let tails = &mut tails[gpu];
            let follows = |s: &usize| tails[*s].is_some_and(|t| task.after.contains(&t));
            let oldest = (0..STREAMS).min_by_key(|s| tails[*s].map_or(0, |t| t + 1)).unwrap_or(0);
            let stream = (0..STREAMS).find(follows).unwrap_or(oldest);
            let apart = |w: &u32| {
                let of: &Placed = &out.list[*w as usize];
                (of.gpu, of.stream) != (gpu, stream)
            };
            let waits: Vec<u32> = task.after.iter().copied().filter(apart).collect();
            waits.iter().for_each(|w| awaited[*w as usize] = true);
            tails[stream] = Some(i);
            out.used[gpu] = out.used[gpu].max(stream + 1);
            out.list.push(Placed { gpu, stream, orders, waits, event: None });
        }
        for (task, _) in out.list.iter_mut().zip(awaited).filter(|(_, awaited)| *awaited) {
            task.event = Some(cuda.gpus[task.gpu].event()?);
        }
        for (g, used) in out.used.iter().enumerate() {
            for stream in 0..*used {
                if (g, stream) != (0, 0) {
                    out.ends.push((g, stream, cuda.gpus[g].event()?));
                }
            }
        }
        Ok(out)
    }

    /// What a task is made of.
    fn orders(&mut self, gpu: usize, what: &What, dims: &[i64]) -> Result<Vec<Order>> {
        let cuda = self.cuda.clone();
        let at = &cuda.gpus[gpu];
        Ok(match what {
            What::Fill { bytes: 0, .. }
            | What::Up { bytes: 0, .. }
            | What::Down { bytes: 0, .. }
            | What::Copy { bytes: 0, .. } => vec![],
            // There are no rows to write to.
            What::Routine { ints, .. } if ints.first() == Some(&0) => vec![],
            What::Kernel { kernel, bufs, dims } => {
                let entry = cuda.code.kernels.get(*kernel as usize).and_then(Option::as_ref);
                launch(at, entry.ok_or_else(|| missing("a kernel"))?, bufs, None, dims)?
            }
            What::Contraction { entry, product, bufs } => {
                let found = cuda.code.contraction(*entry, *product);
                let found = found.ok_or_else(|| missing("a contraction"))?;
                let mut workspace = None;
                if let Some(bytes) = &found.workspace {
                    let bytes = bytes.eval(dims).and_then(|b| usize::try_from(b).ok());
                    let block = Block::new(at, bytes.ok_or_else(too_large)?)?;
                    workspace = Some(block.ptr());
                    self._workspace.push(block);
                }
                let mut orders = vec![];
                for entry in &found.launches {
                    orders.extend(launch(at, entry, bufs, workspace, dims)?);
                }
                orders
            }
            What::Routine { func, dtype, ids, bufs, ints } => {
                let entry = cuda.code.routine(*func, *dtype, *ids);
                launch(at, entry.ok_or_else(|| missing("a routine"))?, bufs, None, ints)?
            }
            What::Fill { at, bytes } => vec![Order::Fill { at: address(*at), bytes: *bytes }],
            What::Up { src, dst, bytes } => {
                vec![Order::Up { src: src.cast(), dst: address(*dst), bytes: *bytes }]
            }
            What::Down { src, dst, bytes } => {
                vec![Order::Down { src: address(*src), dst: dst.cast(), bytes: *bytes }]
            }
            What::Copy { from, src, dst, bytes } => {
                let (src, dst, bytes) = (address(*src), address(*dst), *bytes);
                let from = (*from as usize).saturating_sub(1);
                match from == gpu {
                    true => vec![Order::Within { src, dst, bytes }],
                    false => vec![Order::Across { from, src, dst, bytes }],
                }
            }
            What::Exchange { .. } => return Err(missing("an exchange")),
        })
    }

    /// Gives the driver all tasks, on these streams.
    fn submit(&self, streams: &[Vec<Handle>]) -> Result<()> {
        let driver = &self.cuda.driver;
        let first = streams[0][0];
        // SAFETY, of all calls here: handles are the driver's own and alive, and addresses
        // are valid for what the tasks do with them.
        let check = |status, doing: &str| driver.check(status, doing);
        self.cuda.gpus[0].make_current()?;
        // SAFETY: as said above.
        check(unsafe { (driver.event_record)(self.begin, first) }, "beginning")?;
        for (g, stream, _) in &self.ends {
            self.cuda.gpus[*g].make_current()?;
            // SAFETY: as said above.
            let status = unsafe { (driver.stream_wait)(streams[*g][*stream], self.begin, 0) };
            check(status, "waiting")?;
        }
        let mut current = usize::MAX;
        for task in &self.list {
            if current != task.gpu {
                current = task.gpu;
                self.cuda.gpus[current].make_current()?;
            }
            let stream = streams[task.gpu][task.stream];
            for wait in &task.waits {
                if let Some(event) = self.list[*wait as usize].event {
                    // SAFETY: as said above.
                    check(unsafe { (driver.stream_wait)(stream, event, 0) }, "waiting")?;
                }
            }
            for order in &task.orders {
                self.give(task.gpu, order, stream)?;
            }
            if let Some(event) = task.event {
                // SAFETY: as said above.
                check(unsafe { (driver.event_record)(event, stream) }, "recording")?;
            }
        }
        for (g, stream, event) in &self.ends {
            self.cuda.gpus[*g].make_current()?;
            // SAFETY: as said above.
            check(unsafe { (driver.event_record)(*event, streams[*g][*stream]) }, "recording")?;
            self.cuda.gpus[0].make_current()?;
            // SAFETY: as said above.
            check(unsafe { (driver.stream_wait)(first, *event, 0) }, "waiting")?;
        }
        Ok(())
    }

    fn give(&self, gpu: usize, order: &Order, stream: Handle) -> Result<()> {
        let driver = &self.cuda.driver;
        let (status, doing) = match order {
            Order::Launch { function, grid: [x, y, z], block, args } => {
                let mut params: Vec<*mut c_void> =
                    args.iter().map(|a| std::ptr::from_ref(a).cast_mut().cast()).collect();
                let (params, none) = (params.as_mut_ptr(), std::ptr::null_mut());
                // SAFETY: the entry has as many parameters, of eight bytes each.
                let status = unsafe {
                    (driver.launch)(*function, *x, *y, *z, *block, 1, 1, 0, stream, params, none)
                };
                (status, "a launch")
            }
            Order::Fill { at, bytes } => {
                // SAFETY: the memory has this many bytes.
                (unsafe { (driver.fill)(*at, 0, *bytes, stream) }, "filling memory")
            }
            Order::Up { src, dst, bytes } => {
                // SAFETY: both have this many bytes.
                (unsafe { (driver.copy_up)(*dst, *src, *bytes, stream) }, "a copy to the GPU")
            }
            Order::Down { src, dst, bytes } => {
                // SAFETY: as above.
                (unsafe { (driver.copy_down)(*dst, *src, *bytes, stream) }, "a copy from the GPU")
            }
            Order::Within { src, dst, bytes } => {
                // SAFETY: as above.
                (unsafe { (driver.copy_within)(*dst, *src, *bytes, stream) }, "a copy")
            }
            Order::Across { from, src, dst, bytes } => {
                let (to, from) = (self.cuda.gpus[gpu].context, self.cuda.gpus[*from].context);
                // SAFETY: as above; each address is in its context.
                let status = unsafe { (driver.copy_across)(*dst, to, *src, from, *bytes, stream) };
                (status, "a copy between GPUs")
            }
        };
        driver.check(status, doing)
    }

    /// Records the tasks as a graph; none if the driver would rather not.
    fn record(&self, streams: &[Vec<Handle>]) -> Option<Handle> {
        let driver = &self.cuda.driver;
        self.cuda.gpus[0].make_current().ok()?;
        let first = streams[0][0];
        // SAFETY: the stream is ours; nothing else is given to it meanwhile.
        if unsafe { (driver.capture_begin)(first, value::CAPTURE_THREAD_LOCAL) } != 0 {
            return None;
        }
        let given = self.submit(streams);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is being recorded; the driver writes a handle.
        let ended = unsafe { (driver.capture_end)(first, &raw mut graph) };
        if graph.is_null() {
            return None;
        }
        let mut exec = std::ptr::null_mut();
        if ended == 0 && given.is_ok() {
            // SAFETY: the graph is ours; the driver writes a handle.
            let status = unsafe { (driver.graph_instantiate)(&raw mut exec, graph, 0) };
            if status != 0 {
                exec = std::ptr::null_mut();
            }
        }
        // SAFETY: the graph is ours, and no longer needed.
        unsafe { (driver.graph_destroy)(graph) };
        (!exec.is_null()).then_some(exec)
    }
}

impl Tasks {
    /// Streams of the first GPU that it uses.
    pub fn streams(&self) -> usize {
        self.used[0]
    }

    /// Gives the driver all tasks; whatever follows on the first of these streams follows
    /// all of them.
    pub fn start(&mut self, streams: &[Vec<Handle>]) -> Result<()> {
        self.runs += 1;
        // Across GPUs, events would have to be recorded too.
        if self.runs == 2 && self.used.iter().filter(|n| **n > 0).count() == 1 && self.used[0] > 0 {
            self.graph = self.record(streams);
        }
        let Some(graph) = self.graph else { return self.submit(streams) };
        self.cuda.gpus[0].make_current()?;
        // SAFETY: the graph's memory is what it was recorded with.
        let status = unsafe { (self.cuda.driver.graph_launch)(graph, streams[0][0]) };
        self.cuda.driver.check(status, "a step")
    }
}

impl Sequence for Tasks {
    fn run(&mut self) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        let cuda = self.cuda.clone();
        let streams = cuda.lease(&self.used)?;
        self.start(&streams.handles)?;
        cuda.gpus[0].make_current()?;
        // SAFETY: the stream is ours.
        let status = unsafe { (cuda.driver.stream_synchronise)(streams.handles[0][0]) };
        cuda.driver.check(status, "a step")
    }

    fn run_each(&mut self, done: &mut dyn FnMut(usize, Instant)) -> Result<()> {
        let cuda = self.cuda.clone();
        let streams = cuda.lease(&self.used)?;
        for (i, task) in self.list.iter().enumerate() {
            let started = Instant::now();
            cuda.gpus[task.gpu].make_current()?;
            let stream = streams.handles[task.gpu][task.stream];
            for order in &task.orders {
                self.give(task.gpu, order, stream)?;
            }
            // SAFETY: the stream is ours.
            let status = unsafe { (cuda.driver.stream_synchronise)(stream) };
            cuda.driver.check(status, "a step")?;
            done(i, started);
        }
        Ok(())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let driver = &self.cuda.driver;
        if let Some(graph) = self.graph {
            // SAFETY: the graph is ours and does not run.
            unsafe { (driver.graph_exec_destroy)(graph) };
        }
        let events = self.list.iter().filter_map(|t| t.event);
        for event in events.chain(self.ends.iter().map(|e| e.2)).chain([self.begin]) {
            // SAFETY: the event is ours, and nobody waits for it.
            unsafe { (driver.event_destroy)(event) };
        }
    }
}

fn missing(what: &str) -> Error {
    Error::bug(format!("{what} of the plan has no code for GPUs"))
}

fn too_large() -> Error {
    Error::data(ErrorCode::OUT_OF_MEMORY, "these sizes are too large for a launch on a GPU")
}

/// The launch of an entry; nothing if there is nothing to do.
fn launch(
    gpu: &Gpu,
    entry: &GpuEntry,
    bufs: &[*mut u8],
    workspace: Option<DevicePtr>,
    dims: &[i64],
) -> Result<Vec<Order>> {
    let mut grid = [1u32; 3];
    for (i, (n, blocks)) in grid.iter_mut().zip(&entry.grid).enumerate() {
        let blocks = blocks.eval(dims).and_then(|b| u32::try_from(b).ok());
        let most = if i == 0 { i32::MAX as u32 } else { u32::from(u16::MAX) };
        *n = blocks.filter(|b| *b <= most).ok_or_else(too_large)?;
    }
    if grid.contains(&0) {
        return Ok(vec![]);
    }
    let sizes = dims.iter().map(|d| *d as u64);
    let args = bufs.iter().map(|b| address(*b)).chain(workspace).chain(sizes).collect();
    Ok(vec![Order::Launch { function: gpu.function(&entry.name)?, grid, block: entry.block, args }])
}
