//! The state of the simulated driver.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_void;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tfc_ptx_sim::{Arg, Device, Launch, Module};

pub type Status = i32;
pub const INVALID_VALUE: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const NO_DEVICE: Status = 100;
pub const INVALID_HANDLE: Status = 400;
pub const NOT_READY: Status = 600;
pub const ILLEGAL_ADDRESS: Status = 700;
pub const LAUNCH_FAILED: Status = 719;
const CAPTURE_UNSUPPORTED: Status = 900;
const CAPTURE_UNJOINED: Status = 904;

/// Instructions of one launch, unless told otherwise.
const LIMIT: u64 = 4_000_000_000;
const LAUNCH_TIMEOUT: Status = 702;

/// Something a stream is to do.
#[derive(Clone, Debug)]
pub enum Command {
    Launch {
        device: usize,
        function: usize,
        grid: [u32; 3],
        block: [u32; 3],
        args: Vec<u64>,
    },
    /// From pinned memory.
    Up {
        device: usize,
        dst: u64,
        src: usize,
        len: usize,
    },
    /// From memory that was read when the copy was asked for.
    UpNow {
        device: usize,
        dst: u64,
        bytes: Vec<u8>,
    },
    Down {
        device: usize,
        dst: usize,
        src: u64,
        len: usize,
    },
    Within {
        from: usize,
        to: usize,
        dst: u64,
        src: u64,
        len: usize,
    },
    Fill {
        device: usize,
        at: u64,
        value: u8,
        len: usize,
    },
    /// The event's recording of this number is done.
    Record(usize, u64),
    Wait(usize, u64),
    Graph(usize),
    Together(Together),
}

/// Something that other processes have a part in: asked again and again whether it is
/// done, with the bytes of some memory of the GPU, which it may change.
#[derive(Clone, Debug)]
pub struct Together {
    pub device: usize,
    /// Addresses and lengths.
    pub blocks: Vec<(u64, usize)>,
    pub work: Work,
    /// For the function.
    pub data: usize,
}

/// 0 when it is done, 1 as long as it is not.
pub type Work = unsafe extern "C" fn(*mut c_void, *const *mut u8) -> Status;

#[derive(Default)]
struct Stream {
    queue: VecDeque<Command>,
    /// What it records into instead of running.
    capture: Option<usize>,
    /// What went wrong on it, or on one it waited for.
    error: Option<Status>,
}

#[derive(Default)]
struct Event {
    recorded: u64,
    done: u64,
    /// Last recorded while a stream was being captured.
    capture: Option<usize>,
    error: Option<Status>,
}

#[derive(Default)]
struct Capture {
    origin: usize,
    streams: BTreeMap<usize, Vec<Command>>,
}

#[derive(Default)]
pub struct Counts {
    launches: u64,
    graphs: u64,
    up: u64,
    down: u64,
    within: u64,
    together: u64,
    /// Most streams with something to do at once.
    streams: usize,
}

pub struct Sim {
    pub devices: usize,
    pub fault: String,
    limit: usize,
    /// Instructions after which a launch takes too long.
    patience: u64,
    lost_at: Option<u64>,
    lost: bool,
    seed: u64,
    memory: Device,
    /// Allocations: device and length.
    blocks: BTreeMap<u64, (usize, usize)>,
    used: usize,
    pinned: BTreeMap<usize, Box<[u8]>>,
    modules: BTreeMap<usize, Module>,
    functions: BTreeMap<usize, (usize, String)>,
    streams: BTreeMap<usize, Stream>,
    events: BTreeMap<usize, Event>,
    captures: BTreeMap<usize, Capture>,
    graphs: BTreeMap<usize, BTreeMap<usize, Vec<Command>>>,
    execs: BTreeMap<usize, BTreeMap<usize, Vec<Command>>>,
    contexts: BTreeMap<usize, u32>,
    next: usize,
    counts: Counts,
}

static SIM: Mutex<Option<Sim>> = Mutex::new(None);

pub struct Guard(MutexGuard<'static, Option<Sim>>);

/// The one driver of the process.
pub fn sim() -> Guard {
    let mut sim = SIM.lock().unwrap_or_else(PoisonError::into_inner);
    sim.get_or_insert_with(Sim::new);
    Guard(sim)
}

impl std::ops::Deref for Guard {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it was just made"))
    }
}

impl std::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Sim {
        self.0.as_mut().unwrap_or_else(|| unreachable!("it was just made"))
    }
}

type Done<T = ()> = Result<T, Status>;

fn complain(what: &str) {
    eprintln!("simulated GPU: {what}");
}

impl Sim {
    fn new() -> Sim {
        let settings = std::env::var("TFC_SIM").unwrap_or_default();
        let word = |name: &str| {
            let words = settings.split(',').filter_map(|w| w.split_once('='));
            words.filter(|(n, _)| *n == name).find_map(|(_, v)| v.parse::<u64>().ok())
        };
        let fault = settings.split(',').find(|w| !w.contains('=')).unwrap_or_default();
        Sim {
            devices: word("devices").unwrap_or(1) as usize,
            fault: fault.to_string(),
            limit: word("memory").unwrap_or(1 << 32) as usize,
            patience: word("limit").unwrap_or(LIMIT),
            lost_at: word("lost"),
            lost: false,
            seed: word("order").unwrap_or(1),
            memory: Device::new(),
            blocks: BTreeMap::new(),
            used: 0,
            pinned: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            execs: BTreeMap::new(),
            contexts: BTreeMap::new(),
            next: 16,
            counts: Counts::default(),
        }
    }

    fn id(&mut self) -> usize {
        self.next += 16;
        self.next
    }

    fn draw(&mut self, n: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) as usize % n.max(1)
    }

    pub fn well(&self) -> Done {
        if self.lost { Err(ILLEGAL_ADDRESS) } else { Ok(()) }
    }

    pub fn retain(&mut self, device: usize) -> usize {
        *self.contexts.entry(device).or_default() += 1;
        device + 1
    }

    pub fn release(&mut self, device: usize) -> Done {
        let count = self.contexts.get_mut(&device).filter(|n| **n > 0).ok_or(INVALID_VALUE)?;
        *count -= 1;
        if self.contexts.values().all(|n| *n == 0) {
            self.end();
        }
        Ok(())
    }

    /// Nobody uses a GPU any more: nothing must be left.
    fn end(&mut self) {
        let left = [
            ("allocations", self.blocks.len()),
            ("pinned allocations", self.pinned.len()),
            ("modules", self.modules.len()),
            ("streams", self.streams.len()),
            ("events", self.events.len()),
            ("graphs", self.graphs.len() + self.execs.len()),
        ];
        let left: Vec<String> =
            left.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
        if !left.is_empty() && !self.lost {
            complain(&format!("left behind: {}", left.join(", ")));
            std::process::abort();
        }
        let c = std::mem::take(&mut self.counts);
        if let Ok(path) = std::env::var("TFC_SIM_LOG")
            && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
        {
            // As one write: other processes add lines of their own.
            let line = format!(
                "launches={} graphs={} up={} down={} within={} together={} streams={}\n",
                c.launches, c.graphs, c.up, c.down, c.within, c.together, c.streams
            );
            let _ = file.write_all(line.as_bytes());
        }
    }

    pub fn load(&mut self, text: &str) -> Done<usize> {
        let module = Module::parse(text).map_err(|e| {
            complain(&e.to_string());
            218
        })?;
        let id = self.id();
        self.modules.insert(id, module);
        Ok(id)
    }

    pub fn unload(&mut self, module: usize) -> Done {
        self.drain()?;
        self.functions.retain(|_, (of, _)| *of != module);
        self.modules.remove(&module).map(drop).ok_or(INVALID_HANDLE)
    }

    pub fn function(&mut self, module: usize, name: &str) -> Done<usize> {
        let known = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        known.entry(name).ok_or(500)?;
        let id = self.id();
        self.functions.insert(id, (module, name.to_string()));
        Ok(id)
    }

    /// Parameters of a function; all are of eight bytes.
    pub fn params(&self, function: usize) -> Done<usize> {
        let (module, name) = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let entry = self.modules.get(module).and_then(|m| m.entry(name));
        let params = &entry.ok_or(INVALID_HANDLE)?.params;
        if params.iter().any(|p| *p != 8) {
            complain("a parameter is not of eight bytes");
            return Err(INVALID_VALUE);
        }
        Ok(params.len())
    }

    pub fn alloc(&mut self, device: usize, len: usize) -> Done<u64> {
        self.well()?;
        if len == 0 {
            return Err(INVALID_VALUE);
        }
        if self.used + len > self.limit {
            return Err(OUT_OF_MEMORY);
        }
        let ptr = self.memory.alloc(len);
        self.blocks.insert(ptr, (device, len));
        self.used += len;
        Ok(ptr)
    }

    pub fn room(&self) -> (usize, usize) {
        (self.limit - self.used, self.limit)
    }

    pub fn free(&mut self, ptr: u64) -> Done {
        // As a driver does: what runs may still use it.
        self.drain()?;
        let Some((_, len)) = self.blocks.remove(&ptr) else {
            complain("memory is freed that was not allocated");
            return Err(INVALID_VALUE);
        };
        self.used -= len;
        self.memory.free(ptr).map_err(|_| INVALID_VALUE)
    }

    pub fn pin(&mut self, len: usize) -> usize {
        let mut block = vec![0u8; len.max(1)].into_boxed_slice();
        let at = block.as_mut_ptr().expose_provenance();
        self.pinned.insert(at, block);
        at
    }

    pub fn unpin(&mut self, at: usize) -> Done {
        self.drain()?;
        self.pinned.remove(&at).map(drop).ok_or(INVALID_VALUE)
    }

    /// Whether memory of the CPU is pinned.
    pub fn is_pinned(&self, at: usize, len: usize) -> bool {
        let before = self.pinned.range(..=at).next_back();
        before.is_some_and(|(start, block)| at + len <= start + block.len())
    }

    pub fn stream(&mut self) -> usize {
        let id = self.id();
        self.streams.insert(id, Stream::default());
        id
    }

    pub fn end_stream(&mut self, stream: usize) -> Done {
        self.drain()?;
        self.streams.remove(&stream).map(drop).ok_or(INVALID_HANDLE)
    }

    pub fn event(&mut self) -> usize {
        let id = self.id();
        self.events.insert(id, Event::default());
        id
    }

    pub fn end_event(&mut self, event: usize) -> Done {
        self.drain()?;
        self.events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
    }

    /// Puts a command at the end of a stream, or of what it records.
    pub fn push(&mut self, stream: usize, command: Command) -> Done {
        self.well()?;
        let s = self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?;
        match s.capture {
            Some(_) if matches!(command, Command::Together(_)) => {
                return Err(CAPTURE_UNSUPPORTED);
            }
            Some(c) => {
                let capture = self.captures.get_mut(&c).ok_or(INVALID_HANDLE)?;
                capture.streams.entry(stream).or_default().push(command);
            }
            None => s.queue.push_back(command),
        }
        let busy = self.streams.values().filter(|s| !s.queue.is_empty()).count();
        self.counts.streams = self.counts.streams.max(busy);
        Ok(())
    }

    pub fn record(&mut self, event: usize, stream: usize) -> Done {
        let capture = self.streams.get(&stream).ok_or(INVALID_HANDLE)?.capture;
        let e = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        e.recorded += 1;
        e.capture = capture;
        let number = e.recorded;
        self.push(stream, Command::Record(event, number))
    }

    pub fn wait(&mut self, stream: usize, event: usize) -> Done {
        let e = self.events.get(&event).ok_or(INVALID_HANDLE)?;
        let (number, capture) = (e.recorded, e.capture);
        let s = self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?;
        match (s.capture, capture) {
            // What waits for something that is being recorded is recorded too.
            (None, Some(c)) => s.capture = Some(c),
            (Some(a), Some(b)) if a == b => {}
            (Some(_), _) => return Err(CAPTURE_UNSUPPORTED),
            (None, None) => {}
        }
        if number == 0 { Ok(()) } else { self.push(stream, Command::Wait(event, number)) }
    }

    pub fn begin_capture(&mut self, stream: usize) -> Done {
        let id = self.id();
        let s = self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?;
        if s.capture.is_some() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        s.capture = Some(id);
        let streams = BTreeMap::from([(stream, vec![])]);
        self.captures.insert(id, Capture { origin: stream, streams });
        Ok(())
    }

    pub fn end_capture(&mut self, stream: usize) -> Done<usize> {
        let id = self.streams.get(&stream).and_then(|s| s.capture).ok_or(INVALID_HANDLE)?;
        let capture = self.captures.remove(&id).ok_or(INVALID_HANDLE)?;
        for s in self.streams.values_mut().filter(|s| s.capture == Some(id)) {
            s.capture = None;
        }
        for e in self.events.values_mut().filter(|e| e.capture == Some(id)) {
            // Outside of the graph it has never been recorded.
            (e.capture, e.recorded, e.done) = (None, 0, 0);
        }
        if capture.origin != stream {
            return Err(INVALID_HANDLE);
        }
        let origin = &capture.streams[&stream];
        let joined = |last: Option<&Command>| match last {
            None => true,
            Some(Command::Record(e, n)) => {
                origin.iter().any(|c| matches!(c, Command::Wait(a, b) if (a, b) == (e, n)))
            }
            Some(_) => false,
        };
        if !capture.streams.iter().all(|(s, list)| *s == stream || joined(list.last())) {
            return Err(CAPTURE_UNJOINED);
        }
        let graph = self.id();
        self.graphs.insert(graph, capture.streams);
        Ok(graph)
    }

    pub fn instantiate(&mut self, graph: usize) -> Done<usize> {
        let streams = self.graphs.get(&graph).ok_or(INVALID_HANDLE)?.clone();
        let id = self.id();
        self.execs.insert(id, streams);
        Ok(id)
    }

    pub fn end_graph(&mut self, graph: usize) -> Done {
        self.graphs.remove(&graph).map(drop).ok_or(INVALID_HANDLE)
    }

    pub fn end_exec(&mut self, exec: usize) -> Done {
        self.drain()?;
        self.execs.remove(&exec).map(drop).ok_or(INVALID_HANDLE)
    }

    pub fn is_capturing(&self, stream: usize) -> bool {
        self.streams.get(&stream).is_some_and(|s| s.capture.is_some())
    }

    /// Runs streams until this one has nothing left; false if that takes other processes.
    pub fn synchronise(&mut self, stream: usize) -> Done<bool> {
        self.well()?;
        if self.is_capturing(stream) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        while !self.streams.get(&stream).ok_or(INVALID_HANDLE)?.queue.is_empty() {
            if !self.advance()? {
                return Ok(false);
            }
        }
        let error = self.streams.get_mut(&stream).and_then(|s| s.error.take());
        self.well()?;
        error.map_or(Ok(true), Err)
    }

    /// Whether an event has been reached, after some stream has gone on.
    pub fn query(&mut self, event: usize) -> Done {
        self.well()?;
        let over = |s: &Sim| s.events.get(&event).map(|e| e.done >= e.recorded);
        if !over(self).ok_or(INVALID_HANDLE)? {
            self.advance()?;
            self.well()?;
        }
        match over(self) {
            Some(true) => self.events.get(&event).and_then(|e| e.error).map_or(Ok(()), Err),
            _ => Err(NOT_READY),
        }
    }

    /// What waits for other processes is left.
    fn drain(&mut self) -> Done {
        while !self.lost && self.streams.values().any(|s| !s.queue.is_empty()) {
            if !self.advance()? {
                break;
            }
        }
        Ok(())
    }

    /// One command of some stream that can go on; false if all wait for other processes.
    fn advance(&mut self) -> Done<bool> {
        let mut able: Vec<usize> = self
            .streams
            .iter()
            .filter(|(_, s)| match s.queue.front() {
                Some(Command::Wait(e, n)) => self.events.get(e).is_none_or(|e| e.done >= *n),
                Some(_) => true,
                None => false,
            })
            .map(|(id, _)| *id)
            .collect();
        if able.is_empty() {
            complain("every stream waits for another");
            return Err(self.lose(LAUNCH_FAILED));
        }
        let stream = loop {
            if able.is_empty() {
                return Ok(false);
            }
            let stream = able.swap_remove(self.draw(able.len()));
            let Some(Command::Together(t)) = self.streams[&stream].queue.front() else {
                break stream;
            };
            match self.together(&t.clone()) {
                Ok(false) => {}
                Ok(true) => {
                    self.counts.together += 1;
                    self.streams.get_mut(&stream).and_then(|s| s.queue.pop_front());
                    return Ok(true);
                }
                Err(why) => {
                    complain(&why);
                    self.streams.get_mut(&stream).and_then(|s| s.queue.pop_front());
                    self.fail(stream, Err(LAUNCH_FAILED));
                    return Ok(true);
                }
            }
        };
        let command = self.streams.get_mut(&stream).and_then(|s| s.queue.pop_front());
        match command {
            None => {}
            Some(Command::Record(e, n)) => {
                let error = self.streams.get_mut(&stream).and_then(|s| s.error.take());
                if let Some(e) = self.events.get_mut(&e) {
                    (e.done, e.error) = (e.done.max(n), error);
                }
            }
            Some(Command::Wait(e, _)) => {
                let error = self.events.get(&e).and_then(|e| e.error);
                self.fail(stream, error.map_or(Ok(()), Err));
            }
            Some(Command::Graph(exec)) => {
                let done = self.graph(exec);
                self.fail(stream, done);
            }
            Some(command) => {
                let done = self.carry_out(&command);
                self.fail(stream, done);
            }
        }
        Ok(true)
    }

    fn together(&mut self, t: &Together) -> Result<bool, String> {
        let mut blocks = vec![];
        for (at, len) in &t.blocks {
            self.owned(t.device, *at, *len)?;
            blocks.push(self.memory.read(*at, *len).map_err(|e| e.to_string())?);
        }
        let places: Vec<*mut u8> = blocks.iter_mut().map(|b| b.as_mut_ptr()).collect();
        let data = std::ptr::with_exposed_provenance_mut(t.data);
        // SAFETY: the function was given with its data, and knows the lengths.
        match unsafe { (t.work)(data, places.as_ptr()) } {
            0 => {}
            1 => return Ok(false),
            status => return Err(format!("what processes do together gave {status}")),
        }
        for ((at, _), bytes) in t.blocks.iter().zip(&blocks) {
            self.memory.write(*at, bytes).map_err(|e| e.to_string())?;
        }
        Ok(true)
    }

    /// Whoever waits for the stream is told what went wrong.
    fn fail(&mut self, stream: usize, done: Done) {
        if let (Err(status), Some(s)) = (done, self.streams.get_mut(&stream)) {
            s.error.get_or_insert(status);
        }
    }

    /// Runs a graph: its streams, and the events between them, are its own.
    fn graph(&mut self, exec: usize) -> Done {
        self.counts.graphs += 1;
        let mut streams: Vec<VecDeque<Command>> = match self.execs.get(&exec) {
            Some(streams) => streams.values().map(|s| s.iter().cloned().collect()).collect(),
            None => return Err(INVALID_HANDLE),
        };
        let mut done: BTreeSet<(usize, u64)> = BTreeSet::new();
        while streams.iter().any(|s| !s.is_empty()) {
            let able: Vec<usize> = (0..streams.len())
                .filter(|i| match streams[*i].front() {
                    Some(Command::Wait(e, n)) => done.contains(&(*e, *n)),
                    Some(_) => true,
                    None => false,
                })
                .collect();
            if able.is_empty() {
                complain("every stream of a graph waits for another");
                return Err(self.lose(LAUNCH_FAILED));
            }
            let next = able[self.draw(able.len())];
            match streams[next].pop_front() {
                Some(Command::Record(e, n)) => drop(done.insert((e, n))),
                Some(command) => self.carry_out(&command)?,
                None => {}
            }
        }
        Ok(())
    }

    fn lose(&mut self, status: Status) -> Status {
        self.lost = true;
        status
    }

    /// The memory is one allocation of this GPU.
    pub fn owned(&self, device: usize, at: u64, len: usize) -> Result<(), String> {
        let block = self.blocks.range(..=at).next_back();
        match block
            .filter(|(start, (_, size))| at.saturating_add(len as u64) <= **start + *size as u64)
        {
            Some((_, (owner, _))) if *owner == device => Ok(()),
            Some((_, (owner, _))) => Err(format!("GPU {device} uses memory of GPU {owner}")),
            None => Err(format!("{len} bytes at {at:#x} are no memory of GPU {device}")),
        }
    }

    fn carry_out(&mut self, command: &Command) -> Done {
        let done = self.attempt(command);
        if let Err(why) = &done {
            if why.contains("limit of instructions") {
                return Err(LAUNCH_TIMEOUT);
            }
            complain(why);
            return Err(LAUNCH_FAILED);
        }
        self.well()
    }

    fn attempt(&mut self, command: &Command) -> Result<(), String> {
        let text = |e: tfc_ptx_sim::Error| e.to_string();
        match command {
            Command::Launch { device, function, grid, block, args } => {
                self.counts.launches += 1;
                if self.lost_at == Some(self.counts.launches) {
                    self.lost = true;
                    return Ok(());
                }
                let (module, entry) = self.functions.get(function).ok_or("no such function")?;
                for arg in args {
                    // What looks like an address of some GPU must be of this one.
                    if let Err(why) = self.owned(*device, *arg, 1)
                        && self.owned_by_any(*arg)
                    {
                        return Err(why);
                    }
                }
                let args: Vec<Arg> = args.iter().map(|a| Arg::Ptr(*a)).collect();
                let launch =
                    Launch { entry, grid: *grid, block: *block, args: &args, limit: self.patience };
                let module = self.modules.get(module).ok_or("no such module")?;
                let ran = self.memory.launch(module, &launch);
                ran.map(drop).map_err(|e| format!("`{entry}`: {e}"))
            }
            Command::Up { device, dst, src, len } => {
                self.counts.up += 1;
                self.owned(*device, *dst, *len)?;
                let (start, block) =
                    self.pinned.range(..=*src).next_back().ok_or("unpinned memory")?;
                let bytes = block.get(src - start..src - start + len).ok_or("unpinned memory")?;
                self.memory.write(*dst, bytes).map_err(text)
            }
            Command::UpNow { device, dst, bytes } => {
                self.counts.up += 1;
                self.owned(*device, *dst, bytes.len())?;
                self.memory.write(*dst, bytes).map_err(text)
            }
            Command::Down { device, dst, src, len } => {
                self.counts.down += 1;
                self.owned(*device, *src, *len)?;
                let bytes = self.memory.read(*src, *len).map_err(text)?;
                let at = std::ptr::with_exposed_provenance_mut::<u8>(*dst);
                // SAFETY: whoever asked for the copy has this many bytes there until it is
                // done; pinned memory is checked when the copy is asked for.
                unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                Ok(())
            }
            Command::Within { from, to, dst, src, len } => {
                self.counts.within += 1;
                self.owned(*from, *src, *len)?;
                self.owned(*to, *dst, *len)?;
                let bytes = self.memory.read(*src, *len).map_err(text)?;
                self.memory.write(*dst, &bytes).map_err(text)
            }
            Command::Fill { device, at, value, len } => {
                self.owned(*device, *at, *len)?;
                self.memory.write(*at, &vec![*value; *len]).map_err(text)
            }
            Command::Record(..) | Command::Wait(..) | Command::Graph(_) | Command::Together(_) => {
                Ok(())
            }
        }
    }

    fn owned_by_any(&self, at: u64) -> bool {
        (0..self.devices).any(|d| self.owned(d, at, 1).is_ok())
    }
}
