//! Where the time of calls goes: every step that ran, when, and on which thread.
//!
//! A call that is given a [`Profile`] in its [`crate::CallOptions`] leaves an
//! [`Event`] there for each step it carries out. Calls without one pay a test of a
//! null pointer per step.
//!
//! What a step did is told by its sizes at that call: multiply-adds of
//! contractions, and the bytes of the buffers it touches, each counted once.

use crate::io::json::quote;
use crate::net::clock::Offset;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tfc_abi::plan::{Conv, ConvKind, Entry, MatMul, Plan, Step};

/// More events are counted, not kept: a trace of a long run stays a file that can be
/// opened.
const MAX_EVENTS: usize = 1 << 20;

/// What calls did, step by step.
#[derive(Debug)]
pub struct Profile {
    origin: Instant,
    /// The same, by the clock that all processes of a machine share.
    began: SystemTime,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// Numbers of steps by their address in the plan, which stays where it is.
    numbers: BTreeMap<usize, usize>,
    /// And of what is no step.
    named: BTreeMap<String, usize>,
    steps: Vec<StepTotal>,
    events: Vec<Event>,
}

/// All that was seen of one step of the plan.
#[derive(Clone, Debug)]
pub struct StepTotal {
    pub name: String,
    pub runs: u64,
    pub time: Duration,
    /// Floating-point operations of contractions, over all runs.
    pub flops: u64,
    /// Bytes of the buffers it touches, over all runs.
    pub bytes: u64,
}

/// One run of one step.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    step: usize,
    thread: usize,
    start: Duration,
    took: Duration,
}

/// The best this machine was measured to do, for comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    /// Single-precision floating-point operations a nanosecond.
    pub gflops: f64,
    /// Bytes read and written a nanosecond, beyond the caches.
    pub gbytes: f64,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile { origin: Instant::now(), began: SystemTime::now(), found: Mutex::default() }
    }
}

/// The sizes of a call.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Sizes<'a> {
    pub plan: &'a Plan,
    pub entry: &'a Entry,
    pub values: &'a [i64],
    pub lens: &'a [usize],
}

impl Profile {
    pub fn new() -> Profile {
        Profile::default()
    }

    #[cold]
    pub(crate) fn record(&self, step: &Step, sizes: Sizes<'_>, started: Instant) {
        let took = started.elapsed();
        let thread = thread_number();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let next = found.steps.len();
        let number = *found.numbers.entry(std::ptr::from_ref(step).addr()).or_insert(next);
        if number == next {
            let (runs, time) = (0, Duration::ZERO);
            found.steps.push(StepTotal { name: sizes.name(step), runs, time, flops: 0, bytes: 0 });
        }
        let total = &mut found.steps[number];
        total.runs += 1;
        total.time += took;
        total.flops += sizes.flops(step);
        total.bytes += sizes.bytes(step);
        if found.events.len() < MAX_EVENTS {
            let start = started.saturating_duration_since(self.origin);
            found.events.push(Event { step: number, thread, start, took });
        }
    }

    /// Notes something that is no step of a plan, such as waiting for another process.
    pub(crate) fn note(&self, name: &str, started: Instant) {
        let took = started.elapsed();
        let thread = thread_number();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let next = found.steps.len();
        let number = *found.named.entry(name.to_owned()).or_insert(next);
        if number == next {
            let (runs, time) = (0, Duration::ZERO);
            found.steps.push(StepTotal { name: name.to_owned(), runs, time, flops: 0, bytes: 0 });
        }
        found.steps[number].runs += 1;
        found.steps[number].time += took;
        if found.events.len() < MAX_EVENTS {
            let start = started.saturating_duration_since(self.origin);
            found.events.push(Event { step: number, thread, start, took });
        }
    }

    /// All steps that ran, the longest first.
    pub fn steps(&self) -> Vec<StepTotal> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut steps = found.steps.clone();
        steps.sort_by_key(|s| std::cmp::Reverse(s.time));
        steps
    }

    /// A table of the steps of `calls` calls: what each took of one of them, its
    /// share, and how fast that is against `peaks`, if they are known.
    pub fn table(&self, calls: usize, peaks: Option<Peaks>) -> String {
        let steps = self.steps();
        let calls = calls.max(1) as f64;
        let all: Duration = steps.iter().map(|s| s.time).sum();
        let mut out = format!(
            "{:>10} {:>6} {:>6} {:>16} {:>16}  step\n",
            "time", "share", "runs", "GFLOP/s", "GB/s"
        );
        for s in &steps {
            let ns = (s.time.as_nanos() as f64).max(1.0);
            let rate = |amount: u64, peak: Option<f64>| match (amount as f64 / ns, peak) {
                _ if amount == 0 => String::new(),
                (rate, Some(peak)) => format!("{rate:.1} ({:.0} %)", 100.0 * rate / peak),
                (rate, None) => format!("{rate:.1}"),
            };
            let _ = writeln!(
                out,
                "{:>10} {:>5.1}% {:>6} {:>16} {:>16}  {}",
                crate::cli::bench::human(s.time.div_f64(calls)),
                100.0 * s.time.as_secs_f64() / all.as_secs_f64().max(1e-12),
                (s.runs as f64 / calls).round(),
                rate(s.flops, peaks.map(|p| p.gflops)),
                rate(s.bytes, peaks.map(|p| p.gbytes)),
                s.name,
            );
        }
        let _ = match peaks {
            Some(Peaks { gflops, gbytes }) => writeln!(
                out,
                "peaks of this machine, measured: {gflops:.0} GFLOP/s, {gbytes:.1} GB/s"
            ),
            None => writeln!(out, "each step of the GPU alone, until it is done"),
        };
        out
    }

    /// The events in the trace format of Chrome, which Perfetto opens.
    pub fn trace(&self) -> String {
        format!("{{\"traceEvents\":[\n{}\n]}}\n", self.events(1, Duration::ZERO).join(",\n"))
    }

    fn events(&self, process: usize, after: Duration) -> Vec<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let events = found.events.iter().map(|e| {
            let us = |d: Duration| d.as_nanos() as f64 / 1e3;
            format!(
                "{{\"name\":{},\"ph\":\"X\",\"pid\":{process},\"tid\":{},\"ts\":{:.3},\"dur\":{:.3}}}",
                quote(&found.steps[e.step].name),
                e.thread,
                us(after + e.start),
                us(e.took)
            )
        });
        events.collect()
    }
}

/// The profile of this process as one of a job of which a trace is wanted: by its launcher
/// (`TFC_TRACE` is the folder to leave it in), or with [`trace_process`].
pub fn of_process() -> Option<Arc<Profile>> {
    let wanted = || std::env::var_os("TFC_TRACE").filter(|dir| !dir.is_empty());
    OF_PROCESS.get_or_init(|| wanted().map(|_| Arc::new(Profile::new()))).clone()
}

static OF_PROCESS: OnceLock<Option<Arc<Profile>>> = OnceLock::new();

/// Notes what this process does from now on.
pub fn trace_process() {
    OF_PROCESS.get_or_init(|| Some(Arc::new(Profile::new())));
}

/// Parameter servers are numbered from here on in a trace.
pub const SERVERS: usize = 10_000;

/// What one process of a job did.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Which process it is.
    pub number: usize,
    /// What is to be added to its times.
    pub clock: Offset,
    /// Events, one in a line, with times of its own clock.
    pub events: String,
}

impl Trace {
    /// What this process did so far; of more than that many bytes the beginning.
    pub fn of_process(number: usize, clock: Offset, most: usize) -> Trace {
        let Some(profile) = of_process() else {
            return Trace { number, clock, ..Trace::default() };
        };
        let after = profile.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut events = String::new();
        for line in profile.events(number, after) {
            if events.len() + line.len() + 1 > most {
                break;
            }
            events += &line;
            events.push('\n');
        }
        Trace { number, clock, events }
    }

    /// As it travels.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Offset { ahead, within } = self.clock;
        format!("{} {ahead} {within}\n{}", self.number, self.events).into_bytes()
    }

    /// None of what is no trace.
    pub fn from_bytes(bytes: &[u8]) -> Option<Trace> {
        let (head, events) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let mut words = head.split(' ');
        let number = words.next()?.parse().ok()?;
        let clock =
            Offset { ahead: words.next()?.parse().ok()?, within: words.next()?.parse().ok()? };
        Some(Trace { number, clock, events: events.to_owned() })
    }

    fn name(&self) -> String {
        match self.number.checked_sub(SERVERS) {
            Some(server) => format!("parameter server {server}"),
            None => format!("worker {}", self.number),
        }
    }
}

/// Leaves what this process did where its launcher looks for it.
pub(crate) fn leave() {
    let Some(dir) = std::env::var_os("TFC_TRACE").filter(|_| of_process().is_some()) else {
        return;
    };
    let set = |name: &str, default: &str| {
        std::env::var(name).ok().filter(|v| !v.is_empty()).unwrap_or(default.into())
    };
    let (role, rank) = (set("TFC_ROLE", "worker"), set("TFC_RANK", "0"));
    let number = rank.parse::<usize>().unwrap_or(0) + if role == "ps" { SERVERS } else { 0 };
    let path = Path::new(&dir).join(format!("{number}.events"));
    let text = Trace::of_process(number, Offset::default(), usize::MAX).events;
    // The job does not fail because nobody can see how it ran.
    let _ = crate::files::replace(&path, |out| std::io::Write::write_all(out, text.as_bytes()));
}

/// Puts together what the processes of a job have left: one trace, that begins with the
/// first event of any. The number of processes in it.
pub fn merge(dir: &Path) -> std::io::Result<(String, usize)> {
    let mut files: Vec<(usize, PathBuf)> = vec![];
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|n| n.to_str()).and_then(|n| n.parse().ok());
        files.extend(number.map(|n| (n, path)));
    }
    let mut all = vec![];
    for (number, path) in files {
        let events = std::fs::read_to_string(path)?;
        all.push(Trace { number, clock: Offset::default(), events });
    }
    let count = all.len();
    Ok((join(all), count))
}

/// One trace of several processes, by one clock; how far the others were off it stands
/// beside the events.
pub fn join(mut all: Vec<Trace>) -> String {
    all.sort_by_key(|t| t.number);
    let stamp =
        |e: &str| -> Option<f64> { e.split("\"ts\":").nth(1)?.split(',').next()?.parse().ok() };
    let mut timed: Vec<(f64, &str)> = vec![];
    let (mut names, mut clocks) = (vec![], vec![]);
    for t in &all {
        let (number, name) = (t.number, quote(&t.name()));
        names.push(format!(
            "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{number},\"args\":{{\"name\":{name}}}}}"
        ));
        let us = |n: i64| n as f64 / 1e3;
        let (ahead, within) = (us(t.clock.ahead), us(t.clock.within));
        clocks.push(format!("{name}:{{\"added_us\":{ahead:.3},\"within_us\":{within:.3}}}"));
        timed.extend(t.events.lines().filter_map(|e| Some((stamp(e)? + ahead, e))));
    }
    let first = timed.iter().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
    let events = timed.iter().filter_map(|(at, e)| {
        let (before, rest) = e.split_once("\"ts\":")?;
        let (_, rest) = rest.split_once(',')?;
        Some(format!("{before}\"ts\":{:.3},{rest}", at - first))
    });
    let lines: Vec<String> = names.into_iter().chain(events).collect();
    format!(
        "{{\"traceEvents\":[\n{}\n],\n\"otherData\":{{\"clocks\":{{{}}}}}}}\n",
        lines.join(",\n"),
        clocks.join(",")
    )
}

impl Sizes<'_> {
    fn size(&self, e: u32) -> u64 {
        u64::try_from(self.values[e as usize]).unwrap_or(0)
    }

    fn kernel(&self, number: u32) -> &str {
        self.plan.kernels.get(number as usize).map_or("?", String::as_str)
    }

    pub fn name(&self, step: &Step) -> String {
        let then = |epilogue: &Option<tfc_abi::plan::Epilogue>| match epilogue {
            Some(e) => format!(", then {}", self.kernel(e.kernel)),
            None => String::new(),
        };
        match step {
            Step::Launch(l) => self.kernel(l.kernel).to_string(),
            Step::MatMul(m) => {
                let [rows, k, n] = [m.m, m.k, m.n].map(|e| self.size(e));
                let batch = match self.size(m.batch) {
                    1 => String::new(),
                    b => format!("{b} x "),
                };
                format!("matmul {batch}{rows}x{k}x{n}{}", then(&m.epilogue))
            }
            Step::Conv(c) => {
                let kind = match c.kind {
                    ConvKind::Forward => "conv",
                    ConvKind::GradInput => "conv_grad_input",
                    ConvKind::GradFilter => "conv_grad_filter",
                };
                let [batch, from, to, h, w] =
                    [c.batch, c.in_channels, c.out_channels, c.out_h, c.out_w]
                        .map(|e| self.size(e));
                let [kh, kw] = c.kernel;
                let stride = c.stride[0];
                let groups =
                    if c.groups > 1 { format!(", {} groups", c.groups) } else { String::new() };
                format!(
                    "{kind} {kh}x{kw}/{stride} {from}->{to} of {batch}x{h}x{w}{groups}{}",
                    then(&c.epilogue)
                )
            }
            Step::Call(c) => c.func.signature().name.to_string(),
            Step::Copy { .. } => "copy".into(),
            Step::Print { .. } => "print".into(),
            Step::Assert { .. } => "assert".into(),
            Step::CheckIndex(_) => "check of indices".into(),
            Step::CheckFinite(_) => "check of a loss".into(),
            Step::Push { .. } => "push".into(),
            Step::Pop { .. } => "pop".into(),
            Step::Save { .. } => "save".into(),
            Step::Restore { .. } => "restore".into(),
            Step::If { .. } => "if".into(),
            Step::While { .. } => "while".into(),
            Step::Queue(_) => "queue".into(),
            Step::Exchange(_) => "exchange".into(),
            Step::Send(m) => format!("send {}", m.name),
            Step::Recv(m) => format!("recv {}", m.name),
        }
    }

    pub fn flops(&self, step: &Step) -> u64 {
        let product = |list: &[u32]| list.iter().fold(1u64, |n, e| n.saturating_mul(self.size(*e)));
        match step {
            Step::MatMul(MatMul { m, n, k, batch, .. }) => {
                product(&[*m, *n, *k, *batch]).saturating_mul(2)
            }
            Step::Conv(c @ Conv { kernel: [kh, kw], groups, .. }) => {
                let outputs = product(&[c.batch, c.out_channels, c.out_h, c.out_w]);
                let each = self.size(c.in_channels) / u64::from((*groups).max(1));
                outputs.saturating_mul(each).saturating_mul(2 * u64::from(kh * kw))
            }
            _ => 0,
        }
    }

    fn bytes(&self, step: &Step) -> u64 {
        let mut seen = vec![];
        let mut sum = 0u64;
        step.buffers(&mut |b, _| {
            if !seen.contains(&b) {
                seen.push(b);
                let size = self.entry.buffers[b as usize].dtype.size();
                sum = sum.saturating_add((self.lens[b as usize] * size) as u64);
            }
        });
        sum
    }
}

/// Threads in the order in which they first did a step.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|n| *n)
}
