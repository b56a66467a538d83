//! A loaded program: its plan, its kernels, its variables.

use crate::bind::{bare_dim, used_dims};
use crate::call::{CallOptions, PLAIN};
use crate::device::{Accelerator, Cpu, Memory};
use crate::error::{Error, ErrorCode, Result, closest, list};
use crate::exec::{Context, Idle, Run};
use crate::gemm::prepack::PackCache;
use crate::guard::{self, Guard};
use crate::mem::Bytes;
use crate::net::Group;
use crate::net::direct::{Hindrance, Way};
use crate::parts::Parts;
use crate::place::{Choice, Chosen, choose};
use crate::pool::Pool;
use crate::queue::Queues;
use crate::sandbox::Sandbox;
use crate::state::State;
use crate::tensor::{FeedView, ResultView, TensorBuf, byte_len};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tfc_abi::plan::{Entry, HOST, Home, PartOf, Plan, Port, Step};
use tfc_abi::{ABI_VERSION, BUFFER_ALIGN, DType, KernelFn, ProgramDesc, Version, cpu};

/// A program ready to be called, from any number of threads.
///
/// Calls that only read variables run side by side; a call that writes some
/// runs alone on those (see [`crate::state`]).
pub struct Model {
    pub(crate) plan: Plan,
    pub(crate) cpu: Cpu,
    /// What carries out steps of other devices than the CPU.
    pub(crate) accelerator: Option<Arc<dyn Accelerator>>,
    /// See [`tfc_abi::place::Placed`].
    origins: Vec<Vec<u32>>,
    /// By variable, the entry that gives it its first value, in a program loaded bare.
    pub(crate) starts: Vec<Option<usize>>,
    /// Why it runs on the CPU although it has code for GPUs.
    instead: Option<Error>,
    pub(crate) consts: Consts,
    /// Constants on other devices, by device from 1.
    device_consts: Vec<Box<dyn Memory>>,
    pub(crate) state: State,
    queues: Queues,
    pub(crate) pool: Arc<Pool>,
    /// Constants and variables as products want them.
    pub(crate) packs: PackCache,
    entries: Vec<EntryState>,
    /// Losses and saved variables may be NaN or infinite.
    allow_nan: AtomicBool,
    /// Where relative paths of `save` and `restore` begin.
    directory: Mutex<PathBuf>,
    /// Where paths of the graph may lead.
    sandbox: Sandbox,
    /// The processes it trains with.
    group: std::sync::OnceLock<Arc<Group>>,
    /// The formation of the group ([`Group::formation`]) in which devices were last connected.
    connected: AtomicU64,
    /// Which of how many processes this one is, to queues and readers.
    share: std::sync::OnceLock<(usize, usize)>,
    /// The tasks it was cut for.
    pub(crate) parts: Parts,
    /// Where `print` goes; standard error if nowhere.
    print: Option<Print>,
    /// What the kernels live in (JIT memory); dropped last.
    _keep: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// Gets what a graph prints, a line at a time without its end.
pub type Print = Arc<dyn Fn(&str) + Send + Sync>;

/// Constant data: the program's own, or a copy where that is not aligned.
pub(crate) struct Consts {
    ptr: *const u8,
    len: usize,
    _copy: Option<Bytes>,
    /// One copy of each, in tests (see [`crate::guard`]).
    apart: Vec<Bytes>,
}

// SAFETY: constant data is never written.
unsafe impl Send for Consts {}
// SAFETY: as above.
unsafe impl Sync for Consts {}

impl Consts {
    /// Constant number `index`, which begins at `offset`.
    pub(crate) fn ptr(&self, index: u32, offset: u64) -> *const u8 {
        if let Some(own) = self.apart.get(index as usize) {
            return own.as_ptr();
        }
        debug_assert!(offset <= self.len as u64);
        self.ptr.wrapping_add(offset as usize)
    }
}

/// A call whose feeds fit.
pub struct Prepared<'a> {
    model: &'a Model,
    /// The entry that was asked for; what is run may be a version of it.
    whole: usize,
    entry: &'a Entry,
    state: &'a EntryState,
    feeds: &'a [FeedView<'a>],
    /// Given back when this is gone; always there until then.
    ctx: Option<Box<Context>>,
}

impl Prepared<'_> {
    /// The entry's results, by name and type.
    pub fn results(&self) -> &[Port] {
        &self.entry.results
    }

    /// The shape of a result (or a feed) of this call.
    pub fn shape(&self, port: &Port) -> Vec<usize> {
        self.ctx.as_ref().map_or_else(Vec::new, |ctx| ctx.shape(port))
    }

    /// One size of that shape.
    pub fn size(&self, port: &Port, axis: usize) -> usize {
        let value = |ctx: &Context| ctx.values.get(*port.shape.get(axis)? as usize).copied();
        let size = self.ctx.as_ref().and_then(|ctx| value(ctx));
        size.and_then(|s| usize::try_from(s).ok()).unwrap_or(0)
    }

    /// Runs it, writing results into the caller's memory.
    pub fn run(mut self, results: &mut [ResultView<'_>], options: &CallOptions) -> Result<()> {
        let Some(ctx) = &mut self.ctx else { return Err(Error::bug("a call without a context")) };
        ctx.place(self.entry, self.state, self.feeds, results)?;
        let joint = match self.model.plan.tasks.is_empty() {
            true => None,
            false => self.model.summon(self.whole, self.feeds)?,
        };
        let ran = Run::new(self.model, self.entry, ctx, self.state, options)
            .and_then(|mut run| run.all());
        let Some(joint) = joint else { return ran };
        ran.and_then(|()| joint.finish()).inspect_err(|e| self.model.parts.fail(e))
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Some(ctx) = self.ctx.take() {
            self.state.idle.give_back(ctx);
        }
    }
}

/// What is worked out once per entry.
pub(crate) struct EntryState {
    pub(crate) used_dims: Vec<u32>,
    /// Variables read and not written, for locking.
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    /// Variables that are what they were at the start of a call wherever a product or a
    /// convolution takes them for its right operand: they may be kept packed.
    pub(crate) steady: Vec<u32>,
    /// Buffers in the caller's memory: (buffer, number of the param or result).
    pub(crate) params: Vec<(u32, u32)>,
    pub(crate) results: Vec<(u32, u32)>,
    /// Buffers that are variables.
    pub(crate) vars: Vec<(u32, u32)>,
    /// The feeds, where no size depends on a dim: nothing is left to bind.
    pub(crate) fixed: Option<Vec<FixedFeed>>,
    /// Where each slot is.
    pub(crate) slot_devices: Vec<u32>,
    /// It may be stopped in the middle.
    pub(crate) loops: bool,
    /// It reads variables from files.
    pub(crate) restores: bool,
    idle: Idle,
}

/// What a feed must be.
pub(crate) struct FixedFeed {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: usize,
}

/// How to load a program.
#[derive(Default)]
pub struct ModelOptions {
    /// `None`: the pool of the process.
    pub pool: Option<Arc<Pool>>,
    /// Gets what the graph prints; standard error if none.
    pub print: Option<Print>,
    /// Where the paths that the graph names may lead.
    pub sandbox: Sandbox,
    /// Leave variables zero; [`Model::init`] fills them.
    pub skip_init: bool,
    /// As `skip_init`, for a process that uses little of the variables: their memory is
    /// address space until it is touched, and [`Model::start`] fills one at a time.
    pub bare: bool,
    /// What to run on.
    pub device: Choice,
    /// Of the processes of a job on this machine, which one this is: they take the GPUs in
    /// turn.
    pub turn: usize,
    /// Initialise the variables of this task alone, of a program that was cut for
    /// several.
    pub task: Option<usize>,
    /// Kept alive as long as the model.
    pub keep: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl Model {
    /// Loads a program and initialises its variables.
    ///
    /// # Safety
    /// `desc` points at a compiled program: its plan, kernel table and constants
    /// are valid for the life of the model, and the kernels do what the plan
    /// says.
    pub unsafe fn load(desc: &ProgramDesc) -> Result<Model> {
        // SAFETY: the caller's promise.
        unsafe { Model::load_with(desc, ModelOptions::default()) }
    }

    /// As [`Model::load`], with options.
    ///
    /// # Safety
    /// As [`Model::load`].
    pub unsafe fn load_with(desc: &ProgramDesc, options: ModelOptions) -> Result<Model> {
        // SAFETY: the caller's promise.
        let plan = unsafe { read_plan(desc) }?;
        let table = choose_kernels(desc)?;
        if desc.kernel_count != plan.kernels.len() {
            return Err(damaged("the table of kernels has the wrong length"));
        }
        // SAFETY: the table has `kernel_count` entries.
        let kernels = unsafe { slice(table, desc.kernel_count) }.to_vec();
        // SAFETY: the caller promises `consts_len` bytes.
        let consts = unsafe { slice(desc.consts, desc.consts_len) };
        if plan.consts.iter().any(|c| c.offset + c.len > consts.len() as u64) {
            return Err(damaged("the constants are cut short"));
        }
        let copy = if (consts.as_ptr() as usize).is_multiple_of(BUFFER_ALIGN) {
            None
        } else {
            Some(Bytes::from_slice(consts)?)
        };
        let mut apart = vec![];
        if guard::mode() != Guard::Off {
            for c in &plan.consts {
                apart.push(Bytes::from_slice(&consts[c.offset as usize..][..c.len as usize])?);
            }
        }
        let consts = Consts {
            ptr: copy.as_ref().map_or(consts.as_ptr(), |c| c.as_ptr()),
            len: consts.len(),
            _copy: copy,
            apart,
        };
        // SAFETY: the caller's promise.
        let chosen = unsafe { choose(desc, plan, options.device, options.turn) }?;
        let Chosen { placed, accelerator, instead } = chosen;
        let mut plan = placed.plan;
        let mut origins = placed.origins;
        let starts = match options.bare {
            true => plan.add_starts(),
            false => vec![],
        };
        let init = plan.init.and_then(|i| origins.get(i as usize)).cloned().unwrap_or_default();
        origins.resize(plan.entries.len(), init);
        let device_consts = device_consts(&plan, &consts, accelerator.as_deref())?;
        let state = State::new(&plan, accelerator.as_ref(), options.bare)?;
        let queues = Queues::new(&plan, &options.sandbox)?;
        let variables = (0..plan.vars.len()).map(|v| state.byte_len(v)).sum::<usize>();
        // Twice as much: filters of convolutions by tiles are up to four times as large
        // as they are plain, and the last lanes of any pack may be empty.
        let packs = PackCache::new(variables.saturating_add(consts.len).saturating_mul(2));
        let entries = plan.entries.iter().map(EntryState::new).collect();
        let pool = options.pool.unwrap_or_else(Pool::global);
        // SAFETY: the caller's promise: it is none, or the runtime's own.
        let conv = unsafe { desc.conv.cast::<crate::conv::Entry>().as_ref() };
        let model = Model {
            cpu: Cpu { pool: pool.clone(), kernels, conv },
            plan,
            accelerator,
            origins,
            starts,
            instead,
            consts,
            device_consts,
            state,
            queues,
            pool,
            packs,
            entries,
            allow_nan: AtomicBool::new(false),
            directory: Mutex::default(),
            sandbox: options.sandbox,
            group: std::sync::OnceLock::new(),
            connected: AtomicU64::new(0),
            share: std::sync::OnceLock::new(),
            parts: Parts::default(),
            print: options.print,
            _keep: options.keep,
        };
        if !options.skip_init && !options.bare {
            model.first_values(options.task)?;
            model.state.accept_infinities(&model.plan.vars, |_| true)?;
        }
        Ok(model)
    }

    /// Gives every variable its initial value, empties queues and takes readers
    /// back to their first record.
    pub fn init(&self) -> Result<()> {
        self.queues.set_positions(&[])?;
        match self.plan.init {
            Some(i) => self.run(i as usize, &[], &mut []),
            None => Ok(()),
        }
    }

    /// As [`Model::init`], before anybody else has joined.
    fn first_values(&self, task: Option<usize>) -> Result<()> {
        let Some(init) = self.plan.init else { return Ok(()) };
        let own = task.and_then(|task| self.part(init as usize, task));
        self.run(own.unwrap_or(init as usize), &[], &mut [])
    }

    /// A task's part of an entry.
    fn part(&self, entry: usize, task: usize) -> Option<usize> {
        let part = Some(PartOf { whole: Some(entry as u32), task: task as u32 });
        self.plan.entries.iter().position(|e| e.part == part)
    }

    /// Whether losses that are minimized, and variables that are saved, may be NaN
    /// or infinite. By default they are errors: E0533, E0534.
    pub fn allow_nan(&self, allowed: bool) {
        self.allow_nan.store(allowed, Ordering::Relaxed);
    }

    pub(crate) fn allows_nan(&self) -> bool {
        self.allow_nan.load(Ordering::Relaxed)
    }

    /// Says where files that the graph saves and restores lie; the working
    /// directory by default.
    pub fn set_directory(&self, dir: &Path) {
        *self.directory.lock().unwrap_or_else(PoisonError::into_inner) = dir.to_path_buf();
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Hands on a line that the graph prints.
    pub(crate) fn print(&self, line: &str) {
        match &self.print {
            Some(print) => print(line),
            // With standard error closed or full there is nobody to tell.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Why it runs on the CPU although it has code for GPUs and was not told to, or although
    /// the graph places parts of it on GPUs: there is none, or it cannot be used.
    pub fn instead(&self) -> Option<&Error> {
        self.instead.as_ref()
    }

    /// [`Model::instead`] in a sentence, with what is placed on GPUs.
    pub fn instead_text(&self) -> Option<String> {
        let why = self.instead.as_ref()?.message();
        Some(match crate::place::asks(&self.plan) {
            Some(asks) => format!("{why}; {asks}"),
            None => why.to_string(),
        })
    }

    /// The number of one of the plan's entries.
    pub(crate) fn entry_number(&self, entry: &Entry) -> u32 {
        self.plan.entries.iter().position(|e| std::ptr::eq(e, entry)).unwrap_or(0) as u32
    }

    /// The buffer that one stands for in the plan that the program carries.
    pub(crate) fn origin(&self, entry: u32, buf: u32) -> u32 {
        self.origins[entry as usize][buf as usize]
    }

    /// Where a constant is on a device.
    pub(crate) fn constant(&self, device: u32, index: u32) -> *mut u8 {
        let offset = self.plan.consts[index as usize].offset;
        match (device as usize).checked_sub(1).and_then(|d| self.device_consts.get(d)) {
            Some(all) => all.start().wrapping_add(offset as usize),
            None => self.consts.ptr(index, offset).cast_mut(),
        }
    }

    /// Queues and readers.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Bytes of constants and variables kept a second time, as products want them.
    pub fn packed_bytes(&self) -> usize {
        self.packs.bytes()
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The entries a user may call, with their indices.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let init = self.plan.init.map(|i| i as usize);
        let users = move |(i, e): &(usize, &Entry)| Some(*i) != init && e.is_for_users();
        self.plan.entries.iter().enumerate().filter(users)
    }

    /// Index of the entry of this name.
    pub fn entry(&self, name: &str) -> Result<usize> {
        if let Some((i, _)) = self.entries().find(|(_, e)| e.name == name) {
            return Ok(i);
        }
        let names = || self.entries().map(|(_, e)| e.name.as_str());
        let e = Error::usage("E0911", format!("there is no entry `{name}`")).note(format!(
            "`{}` has {}",
            self.plan.name,
            list(names())
        ));
        Err(match closest(name, names()) {
            Some(near) => e.help(format!("did you mean `{near}`?")),
            None => e,
        })
    }

    fn entry_at(&self, entry: usize) -> Result<(&Entry, &EntryState)> {
        match (self.plan.entries.get(entry), self.entries.get(entry)) {
            (Some(e), Some(s)) => Ok((e, s)),
            _ => Err(Error::usage("E0911", format!("there is no entry number {entry}"))),
        }
    }

    /// Calls an entry: `feeds` in the order of its params, results owned.
    pub fn call(&self, entry: usize, feeds: &[FeedView<'_>]) -> Result<Vec<TensorBuf>> {
        self.call_with(entry, feeds, PLAIN)
    }

    /// As [`Model::call`], with a deadline and the like.
    pub fn call_with(
        &self,
        entry: usize,
        feeds: &[FeedView<'_>],
        options: &CallOptions,
    ) -> Result<Vec<TensorBuf>> {
        let prepared = self.prepare(entry, feeds)?;
        let ports = prepared.entry.results.iter();
        let mut results = ports
            .map(|p| TensorBuf::zeros(p.dtype, &prepared.shape(p)))
            .collect::<Result<Vec<TensorBuf>>>()?;
        let mut views: Vec<ResultView<'_>> =
            results.iter_mut().map(|r| ResultView { data: r.bytes_mut() }).collect();
        prepared.run(&mut views, options)?;
        Ok(results)
    }

    /// Calls an entry, writing results into the caller's memory. Allocates
    /// nothing when the run-time dims are those of an earlier call.
    ///
    /// Results must not overlap feeds.
    pub fn run(
        &self,
        entry: usize,
        feeds: &[FeedView<'_>],
        results: &mut [ResultView<'_>],
    ) -> Result<()> {
        self.run_with(entry, feeds, results, PLAIN)
    }

    /// As [`Model::run`], with a deadline and the like.
    pub fn run_with(
        &self,
        entry: usize,
        feeds: &[FeedView<'_>],
        results: &mut [ResultView<'_>],
        options: &CallOptions,
    ) -> Result<()> {
        self.prepare(entry, feeds)?.run(results, options)
    }

    /// The shapes the results of a call with these feeds would have.
    pub fn result_shapes(&self, entry: usize, feeds: &[FeedView<'_>]) -> Result<Vec<Vec<usize>>> {
        let prepared = self.prepare(entry, feeds)?;
        Ok(prepared.entry.results.iter().map(|p| prepared.shape(p)).collect())
    }

    /// Looks at the feeds of a call: the sizes of its results are known then.
    pub fn prepare<'a>(&'a self, entry: usize, feeds: &'a [FeedView<'a>]) -> Result<Prepared<'a>> {
        let whole = entry;
        let entry = self.version(entry);
        let (e, state) = self.entry_at(entry)?;
        let mut prepared =
            Prepared { model: self, whole, entry: e, state, feeds, ctx: Some(state.idle.take()) };
        if let Some(ctx) = &mut prepared.ctx {
            ctx.prepare(self, entry, e, state, feeds)?;
        }
        Ok(prepared)
    }

    /// Frees memory that calls have left for later ones.
    ///
    /// Without it, working memory that is far too large for the calls of late is
    /// freed by itself: after 32 calls in a row that needed less than a quarter.
    pub fn trim(&self) {
        self.entries.iter().for_each(|e| e.idle.clear());
        self.packs.clear();
    }

    /// Bytes that calls have left for later ones.
    pub fn working_memory(&self) -> usize {
        self.entries.iter().map(|e| e.idle.kept()).sum::<usize>() + self.packed_bytes()
    }

    /// From now on calls are made together with the other processes of a group: entries
    /// that combine values over processes run in their version for several.
    pub fn join(&self, group: Arc<Group>) {
        group.set_threads(self.pool.threads());
        // The first group stays.
        let _ = self.group.set(group);
    }

    /// From now on tensors that are on GPUs go from GPU to GPU, where all processes of the
    /// group it has joined can do that; gives what came of it. All of them call this at the
    /// same time, before their first step. When the group is formed again, tensors go through
    /// the CPU until it is called again.
    pub fn connect_devices(&self) -> Result<Way> {
        let Some(group) = self.group() else {
            return Ok(Way::ThroughCpu("it has joined no group".into()));
        };
        let none = Err(Hindrance::OnCpu);
        self.connected.store(group.formation(), Ordering::Relaxed);
        group.settle(self.accelerator.as_ref().map_or(none, |a| a.engine()))
    }

    /// Whether they do.
    #[inline]
    pub(crate) fn exchanges_by_gpus(&self) -> bool {
        let together = || self.group().map(|g| g.formation());
        self.accelerator.as_ref().is_some_and(|a| a.exchanges())
            && together() == Some(self.connected.load(Ordering::Relaxed))
    }

    /// Whether it runs on a GPU.
    pub(crate) fn has_gpus(&self) -> bool {
        self.accelerator.is_some()
    }

    pub fn group(&self) -> Option<&Arc<Group>> {
        self.group.get()
    }

    /// From now on entries take, of what comes out of queues and readers, the share of the
    /// `rank`-th of `size` processes that all have the same pipeline.
    pub fn share_data(&self, rank: usize, size: usize) {
        let _ = self.share.set((rank, size));
    }

    /// The share of what comes out of queues and readers that is this process's.
    pub(crate) fn data_share(&self) -> (usize, usize) {
        match (self.share.get(), self.group()) {
            (Some(share), _) => *share,
            (None, Some(group)) => (group.rank(), group.size()),
            (None, None) => (0, 1),
        }
    }

    /// The version of an entry that is to be run.
    fn version(&self, entry: usize) -> usize {
        if let Some(task) = self.parts.task() {
            return self.part(entry, task).unwrap_or(entry);
        }
        if self.group.get().is_none_or(|g| g.size() == 1) {
            return entry;
        }
        self.plan.replica(entry).unwrap_or(entry)
    }

    /// Variables an entry reads and does not write.
    pub fn reads(&self, entry: usize) -> &[u32] {
        self.entries.get(entry).map_or(&[], |e| &e.reads)
    }

    /// The dim every param that has one has as its first size: what a data set
    /// is cut along.
    pub fn batch_dim(&self, entry: usize) -> Option<u32> {
        let e = self.plan.entries.get(entry)?;
        let mut dims = e
            .params
            .iter()
            .filter_map(|p| p.shape.first())
            .filter_map(|id| bare_dim(&e.exprs[*id as usize]));
        let first = dims.next()?;
        dims.all(|d| d == first).then_some(first)
    }
}

impl EntryState {
    fn new(entry: &Entry) -> EntryState {
        let mut writes = entry.writes.clone();
        writes.sort_unstable();
        writes.dedup();
        let mut reads: Vec<u32> = entry
            .buffers
            .iter()
            .filter_map(|b| if let Home::Var(v) = b.home { Some(v) } else { None })
            .filter(|v| writes.binary_search(v).is_err())
            .collect();
        reads.sort_unstable();
        reads.dedup();
        let mut steady = [reads.clone(), written_last(entry, &writes)].concat();
        steady.sort_unstable();
        let (mut params, mut results, mut vars) = (vec![], vec![], vec![]);
        for (i, b) in (0u32..).zip(&entry.buffers) {
            match b.home {
                Home::Param(p) => params.push((i, p)),
                Home::Result(r) => results.push((i, r)),
                Home::Var(v) => vars.push((i, v)),
                Home::Const(_) | Home::Slot(..) => {}
            }
        }
        let mut slot_devices = vec![HOST; entry.slots.len()];
        for b in &entry.buffers {
            if let Home::Slot(first, count) = b.home {
                slot_devices[first as usize..(first + count) as usize].fill(b.device);
            }
        }
        let used_dims = used_dims(entry);
        let fixed_feed = |p: &Port| {
            let sizes = p.shape.iter().map(|e| entry.exprs[*e as usize].as_const());
            let shape: Option<Vec<usize>> = sizes.map(|s| usize::try_from(s?).ok()).collect();
            let shape = shape?;
            Some(FixedFeed { dtype: p.dtype, bytes: byte_len(p.dtype, &shape)?, shape })
        };
        let fixed = entry.params.iter().map(fixed_feed).collect::<Option<Vec<_>>>();
        EntryState {
            fixed: fixed.filter(|_| used_dims.is_empty()),
            used_dims,
            reads,
            writes,
            steady,
            params,
            results,
            vars,
            slot_devices,
            loops: any_step(&entry.steps, &mut |s| matches!(s, Step::While { .. })),
            restores: any_step(&entry.steps, &mut |s| matches!(s, Step::Restore { .. })),
            idle: Idle::default(),
        }
    }
}

/// A copy of all constants for each device that uses some.
fn device_consts(
    plan: &Plan,
    consts: &Consts,
    accelerator: Option<&dyn Accelerator>,
) -> Result<Vec<Box<dyn Memory>>> {
    let Some(accelerator) = accelerator else { return Ok(vec![]) };
    let mut out = vec![];
    for device in 1..plan.devices.len() as u32 {
        let memory = accelerator.allocate(device, consts.len)?;
        // SAFETY: there are as many bytes of constants, and of memory.
        unsafe { accelerator.write(device, slice(consts.ptr, consts.len), memory.start()) }?;
        out.push(memory);
    }
    Ok(out)
}

/// Of these variables, those that no step writes before another one takes them for the right
/// operand of a product or a convolution.
fn written_last(entry: &Entry, vars: &[u32]) -> Vec<u32> {
    let var = |b: u32| match entry.buffers[b as usize].home {
        Home::Var(v) => Some(v),
        _ => None,
    };
    let (mut written, mut late) = (BTreeSet::new(), BTreeSet::new());
    for step in entry.steps.iter() {
        // A loop that writes a variable comes back to its other steps.
        step.buffers(&mut |b, write| written.extend(var(b).filter(|_| write)));
        any_step(std::slice::from_ref(step), &mut |s| {
            let right = match s {
                Step::MatMul(m) => var(m.b),
                Step::Conv(c) => var(c.rhs),
                _ => None,
            };
            late.extend(right.filter(|v| written.contains(v)));
            false
        });
    }
    vars.iter().copied().filter(|v| !late.contains(v)).collect()
}

/// Whether some step is such, in whichever branch.
fn any_step(steps: &[Step], what: &mut dyn FnMut(&Step) -> bool) -> bool {
    steps.iter().any(|s| {
        what(s)
            || match s {
                Step::If { then, otherwise, .. } => {
                    any_step(then, what) || any_step(otherwise, what)
                }
                Step::While { head, body, .. } => any_step(head, what) || any_step(body, what),
                _ => false,
            }
    })
}

/// The plan of a program, decoded and checked.
///
/// # Safety
/// `desc.plan` points at `desc.plan_len` bytes.
pub unsafe fn read_plan(desc: &ProgramDesc) -> Result<Plan> {
    if desc.version != ABI_VERSION {
        return Err(Error::io(
            "E0806",
            format!(
                "the program was compiled for runtime version {}, this is version {ABI_VERSION}",
                desc.version
            ),
        )
        .help("compile the graph again with this version of tfc"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(desc.plan, desc.plan_len) };
    let plan = Plan::decode(bytes).map_err(|e| damaged(&e.to_string()))?;
    plan.check().map_err(|e| damaged(&e.to_string()))?;
    Ok(plan)
}

/// # Safety
/// `ptr` is valid for `len` items, or `len` is zero.
unsafe fn slice<'a, T>(ptr: *const T, len: usize) -> &'a [T] {
    if len == 0 || ptr.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(ptr, len) }
    }
}

fn damaged(why: &str) -> Error {
    Error::io("E0806", "the compiled program is damaged").note(why)
}

/// Restricts a program to versions up to this one of [`cpu::LEVELS`], for tests and
/// comparisons: results do not depend on it.
const CPU_LIMIT: &str = "TFC_CPU";

/// The kernels of the best version this CPU can run.
fn choose_kernels(desc: &ProgramDesc) -> Result<*const KernelFn> {
    let limit = match std::env::var(CPU_LIMIT) {
        Err(_) => u32::MAX,
        Ok(name) => match cpu::LEVELS.iter().find(|(level, _)| *level == name) {
            Some((_, features)) => *features,
            None => {
                let known = cpu::LEVELS.map(|(level, _)| level).join("`, `");
                return Err(Error::usage(
                    ErrorCode::CPU_LACKS,
                    format!("{CPU_LIMIT} is `{name}`, which is no CPU level"),
                )
                .help(format!("set it to `{known}`, or not at all")));
            }
        },
    };
    // SAFETY: the caller of `load` promises that the descriptor is well formed.
    let versions = unsafe { slice(desc.versions, desc.version_count as usize) };
    let able = |v: &&Version| missing_features(v.features).is_empty();
    let allowed = |v: &&Version| v.features & !limit == 0;
    if let Some(version) = versions.iter().find(|v| able(v) && allowed(v)) {
        return Ok(version.kernels);
    }
    // One that was compiled for a better CPU than the limit says is still better
    // than none.
    match versions.iter().rev().find(|v| able(v)) {
        Some(version) => Ok(version.kernels),
        None => match versions.last() {
            Some(least) => Err(lacks(&missing_features(least.features))),
            None => Err(damaged("there is no code")),
        },
    }
}

/// Whether this CPU has these features.
pub fn check_cpu(needed: u32) -> Result<()> {
    let missing = missing_features(needed);
    if missing.is_empty() { Ok(()) } else { Err(lacks(&missing)) }
}

fn lacks(missing: &str) -> Error {
    Error::io(
        ErrorCode::CPU_LACKS,
        format!("this program was compiled for a CPU with {missing}, which this one lacks"),
    )
    .help("compile it for plainer CPUs: `tfc compile --cpu baseline`")
}

/// Names of the features in `needed` this CPU does not have.
fn missing_features(needed: u32) -> String {
    #[cfg(target_arch = "x86_64")]
    macro_rules! has {
        ($name:tt) => {
            std::is_x86_feature_detected!($name)
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    macro_rules! has {
        ($name:tt) => {
            false
        };
    }
    // Asks the CPU and, for the wide registers, whether the system saves them.
    let table: &[(u32, &str, bool)] = &[
        (cpu::SSE41, "SSE4.1", has!("sse4.1")),
        (cpu::AVX, "AVX", has!("avx")),
        (cpu::FMA, "FMA", has!("fma")),
        (cpu::AVX2, "AVX2", has!("avx2")),
        (cpu::F16C, "F16C", has!("f16c")),
        (cpu::BMI2, "BMI2", has!("bmi2")),
        (cpu::AVX512F, "AVX-512F", has!("avx512f")),
        (cpu::AVX512DQ, "AVX-512DQ", has!("avx512dq")),
        (cpu::AVX512BW, "AVX-512BW", has!("avx512bw")),
        (cpu::AVX512VL, "AVX-512VL", has!("avx512vl")),
    ];
    let known = table.iter().fold(0, |m, (bit, _, _)| m | bit);
    let mut names: Vec<&str> = table
        .iter()
        .filter(|(bit, _, have)| needed & bit != 0 && !have)
        .map(|(_, name, _)| *name)
        .collect();
    if needed & !known != 0 {
        names.push("features newer than this runtime");
    }
    names.join(", ")
}
