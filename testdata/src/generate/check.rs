//! A generated graph in every float mode, against the interpreter.
//!
//! Rounding is all that may differ. How much that is, the interpreter says itself:
//! where a result is not within a few units in the last place of what it should be,
//! the graph is interpreted again and again with every computed value moved by as
//! much as its type rounds, and the result may be off by a small multiple of what
//! that does to it. If the result jumps, rounding decides it, and the comparison says
//! nothing; such comparisons are counted.
//!
//! Values nothing has rounded stay as they are (see [`super::Value::exact`]), so what
//! is decided by them must agree. [`super::rounding`] says which those are.

use super::rounding::{Nudged, Rounded, nudge, roundings, simple, unit};
use super::{Dims, Entry, bits, print_graph};
use crate::feeds::Rng;
use crate::scatter::scatter;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tfc::{Device, Math, Module, Options};
use tfc_ir::eval::{Array, Data, round_to};
use tfc_ir::graph::Func;
use tfc_ir::{DType, Graph, Tensor, interp};

pub const MODES: [Math; 3] = [Math::Default, Math::Strict, Math::Fast];

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub graphs: usize,
    /// Calls of compiled entries.
    pub calls: usize,
    /// Tensors that were compared.
    pub results: usize,
    /// Tensors that say nothing, because rounding decides what they are.
    pub undecided: usize,
    /// Calls that were refused by the interpreter and by the compiled code.
    pub refused: usize,
    /// Calls whose every operation was checked to the last bit.
    pub bits: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.graphs += other.graphs;
        self.calls += other.calls;
        self.results += other.results;
        self.undecided += other.undecided;
        self.refused += other.refused;
        self.bits += other.bits;
    }
}

/// An entry that does not do what it should.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub mode: Math,
    pub dims: Dims,
    pub what: String,
}

/// Compiles one graph of all entries in each mode and compares each entry at some
/// sizes. `Err` has the first failure.
pub fn check(entries: &[Entry], modes: &[Math], sizes: usize) -> Result<Counts, Failure> {
    let all: Vec<Vec<Dims>> = entries.iter().map(|e| e.assignments(sizes)).collect();
    check_at(entries, modes, &all)
}

/// [`check`] at given sizes for each entry.
pub fn check_at(entries: &[Entry], modes: &[Math], sizes: &[Vec<Dims>]) -> Result<Counts, Failure> {
    check_on(Device::Cpu, None, entries, modes, sizes)
}

/// [`check_at`] with code that runs on a device, its nodes on several at random if there
/// is a seed for that.
pub fn check_on(
    device: Device,
    scattered: Option<u64>,
    entries: &[Entry],
    modes: &[Math],
    sizes: &[Vec<Dims>],
) -> Result<Counts, Failure> {
    let fail = |seed: u64, mode: Math, dims: &Dims, what: String| Failure {
        seed,
        mode,
        dims: dims.clone(),
        what,
    };
    let first = entries.first().map_or(0, |e| e.seed);
    let whole = |mode: Math, what: String| fail(first, mode, &Dims::new(), what);
    let text = print_graph(entries);
    let subject = Subject::new(&text).map_err(|e| whole(Math::Default, e))?;
    let mut wanted = vec![];
    let mut counts = Counts { graphs: entries.len(), ..Counts::default() };
    for (entry, sizes) in entries.iter().zip(sizes) {
        for dims in sizes {
            let Some(feeds) = entry.feeds(dims) else { continue };
            let want = subject.interpret(entry, &feeds, None, false);
            wanted.push((entry, dims, feeds, want));
        }
    }
    for mode in modes.iter().copied() {
        let module = subject.compile(mode, device, scattered).map_err(|e| whole(mode, e))?;
        for (entry, dims, feeds, want) in &wanted {
            let got = subject.call(&module, &entry.name(), feeds);
            if let (Math::Strict, true, Ok(got)) = (mode, entry.elementwise, &got) {
                counts.bits += 1;
                bits::statements(entry)
                    .and_then(|alone| bits::check(entry, &alone, feeds, &got.tensors))
                    .map_err(|what| fail(entry.seed, mode, dims, what))?;
            }
            // Instructions of a GPU that only come near do so with simple numbers too.
            let near = mode == Math::Fast && device != Device::Cpu;
            let case = Judge { subject: &subject, entry, feeds, mode, near };
            case.judge(want, &got, &mut counts)
                .map_err(|what| fail(entry.seed, mode, dims, what))?;
        }
    }
    Ok(counts)
}

/// What a call gives: results, then variables.
#[derive(Clone, Debug)]
struct Outcome {
    tensors: Vec<(String, Tensor)>,
    /// Whether every value on the way was finite.
    finite: bool,
    /// Elements of the largest value on the way: no sum has more terms.
    longest: usize,
}

struct Subject {
    graph: Graph,
    /// With gradients written out.
    reference: Graph,
    state: interp::State,
}

/// Turns a panic into an error.
fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

impl Subject {
    fn new(text: &str) -> Result<Subject, String> {
        caught(|| {
            let graph = tfc::parse(text).map_err(|e| e.to_string())?;
            let reference =
                tfc_passes::pipeline::run_passes(&graph, &["differentiate"]).map_err(|diags| {
                    let lines = diags.iter().map(|d| format!("{}: {}", d.code, d.message));
                    lines.collect::<Vec<_>>().join("\n")
                })?;
            let state = interp::State::new(&reference).map_err(|e| e.to_string())?;
            Ok(Subject { graph, reference, state })
        })
    }

    fn compile(
        &self,
        math: Math,
        device: Device,
        scattered: Option<u64>,
    ) -> Result<Module, String> {
        let options = Options::new().math(math).threads(1).device(device);
        let mut graph = self.graph.clone();
        if let Some(seed) = scattered {
            scatter(&mut graph, seed);
        }
        caught(|| tfc::compile_with(&graph, &options).map_err(|e| e.to_string()))
    }

    fn func(&self, entry: &str) -> Result<&Func, String> {
        self.reference.entries.iter().find(|f| f.name == entry).ok_or("no such entry".to_string())
    }

    /// Interprets an entry; with a seed, every value is moved by what its type rounds. `near`
    /// says that operations may round where nothing has to be rounded.
    fn interpret(
        &self,
        entry: &Entry,
        feeds: &[(String, Tensor)],
        moved: Option<u64>,
        near: bool,
    ) -> Result<Outcome, String> {
        caught(|| {
            let func = self.func(&entry.name())?;
            let mut state = self.state.clone();
            let mut tensors: Vec<Tensor> = feeds.iter().map(|(_, t)| t.clone()).collect();
            let (mut finite, mut longest) = (true, 1);
            let mut rng = moved.map(|seed| Rng::named(&format!("moved {seed}")));
            let mut rounded = Rounded { func, values: BTreeSet::new() };
            if let Some(rng) = &mut rng {
                longest = tensors.iter().map(Tensor::len).max().unwrap_or(1);
                // The sizes come first, and are no part of the statements.
                let inexact = entry.params().map(|(_, v)| v.is_float() && v.exact.is_none());
                let params = func.regions[func.body].params.iter().zip(&mut tensors).skip(1);
                for ((param, tensor), _) in params.zip(inexact).filter(|(_, inexact)| *inexact) {
                    rounded.feed(*param, tensor, longest, rng);
                }
            }
            let mut watch = |value, array: &mut Array| {
                let Data::Float(values) = &mut array.data else { return };
                finite &= values.iter().all(|v| v.is_finite());
                longest = longest.max(values.len());
                if let Some(rng) = &mut rng {
                    let unit = unit(array.dtype) * roundings(array.dtype, longest) / 2.0;
                    let exact = !near && values.iter().all(|v| simple(*v));
                    let nudged = match rounded.of(value, exact) {
                        Nudged::Odd if near => Nudged::All,
                        nudged => nudged,
                    };
                    for v in values.iter_mut() {
                        // A number of its type: what is only moved on stays equal to it.
                        *v = round_to(array.dtype, nudge(*v, unit, nudged, rng));
                    }
                }
            };
            let results = interp::run_watched(
                &self.reference,
                func,
                &tensors,
                &mut state,
                &mut std::io::sink(),
                &mut watch,
            )
            .map_err(|e| e.to_string())?;
            let mut all: Vec<(String, Tensor)> =
                func.result_names.iter().map(|n| n.to_string()).zip(results).collect();
            let vars = self.graph.vars.iter();
            all.extend(vars.filter_map(|(id, v)| Some((v.name.to_string(), state.get(id)?))));
            Ok(Outcome { tensors: all, finite, longest })
        })
    }

    fn call(
        &self,
        module: &Module,
        entry: &str,
        feeds: &[(String, Tensor)],
    ) -> Result<Outcome, String> {
        caught(|| {
            let text = |e: tfc::Error| e.to_string();
            module.reset().map_err(text)?;
            let outputs = module.call(entry, feeds).map_err(text)?;
            let names: Vec<String> = outputs.names().map(str::to_string).collect();
            let mut all = vec![];
            for name in names {
                let tensor = outputs.tensor(&name).map_err(text)?;
                all.push((name, tensor));
            }
            for var in self.graph.vars.values() {
                all.push((var.name.to_string(), module.var_tensor(&var.name).map_err(text)?));
            }
            Ok(Outcome { tensors: all, finite: true, longest: 0 })
        })
    }
}

struct Judge<'a> {
    subject: &'a Subject,
    entry: &'a Entry,
    feeds: &'a [(String, Tensor)],
    mode: Math,
    near: bool,
}

impl Judge<'_> {
    fn judge(
        &self,
        want: &Result<Outcome, String>,
        got: &Result<Outcome, String>,
        counts: &mut Counts,
    ) -> Result<(), String> {
        counts.calls += 1;
        let (want, got) = match (want, got) {
            (Ok(want), Ok(got)) => (want, got),
            (Err(w), Err(g)) if code(w).is_some() && code(w) == code(g) => {
                counts.refused += 1;
                return Ok(());
            }
            (Ok(_), Err(g)) => return Err(format!("failed: {g}")),
            (Err(w), Ok(_)) => return Err(format!("should fail: {w}")),
            (Err(w), Err(g)) => return Err(format!("should fail with {w}, not {g}")),
        };
        // Fast mode may do anything to infinities and NaN.
        if self.mode == Math::Fast && !want.finite {
            counts.undecided += want.tensors.len();
            return Ok(());
        }
        if want.tensors.len() != got.tensors.len() {
            return Err(format!("{} results, not {}", got.tensors.len(), want.tensors.len()));
        }
        let mut moved: Option<Vec<Outcome>> = None;
        for (i, ((name, w), (_, g))) in want.tensors.iter().zip(&got.tensors).enumerate() {
            counts.results += 1;
            // It may also regroup products so that they overflow, which in f16 takes little.
            if self.mode == Math::Fast && w.dtype() == DType::F16 && overflows(w, g) {
                counts.undecided += 1;
                continue;
            }
            let units = unit(w.dtype()) * roundings(w.dtype(), want.longest);
            let Some(difference) = difference(w, g, |_, scale| units * scale) else { continue };
            let moved = moved.get_or_insert_with(|| {
                let run =
                    |seed| self.subject.interpret(self.entry, self.feeds, Some(seed), self.near);
                (0..6).filter_map(|seed| run(seed).ok()).collect()
            });
            if moved.len() < 6 {
                counts.undecided += 1;
                continue;
            }
            let others: Vec<&Tensor> = moved.iter().map(|m| &m.tensors[i].1).collect();
            match allowed(w, &others, units) {
                None => counts.undecided += 1,
                Some(allowed) => {
                    if let Some(how) = self::difference(w, g, |at, _| allowed[at]) {
                        let first = if how == difference { String::new() } else { difference };
                        return Err(format!("`{name}`: {how} {first}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether an element that should be finite is infinite or NaN.
fn overflows(want: &Tensor, got: &Tensor) -> bool {
    want.to_f64().iter().zip(got.to_f64()).any(|(w, g)| w.is_finite() && !g.is_finite())
}

/// How far each element may be off, given what moving all values does to it;
/// nothing if that is too much to tell anything.
fn allowed(want: &Tensor, moved: &[&Tensor], units: f64) -> Option<Vec<f64>> {
    if !want.dtype().is_float() {
        let want = want.to_i64();
        let same = moved.iter().all(|m| m.to_i64() == want);
        return same.then(|| vec![0.0; want.len()]);
    }
    let (want, unit) = (want.to_f64(), unit(want.dtype()));
    let moved: Vec<Vec<f64>> = moved.iter().map(|m| m.to_f64()).collect();
    let scale = typical(&want);
    let mut allowed = vec![];
    for (at, w) in want.iter().enumerate() {
        // Not a number once is not a number: a maximum would pass over it.
        if w.is_finite() && moved.iter().any(|m| !m[at].is_finite()) {
            return None;
        }
        let spread = moved.iter().map(|m| (m[at] - w).abs()).fold(0.0, f64::max);
        // Where everything cancels, what is left may be any small part of a rounding.
        let spread = if w.is_finite() { spread + 0.01 * unit } else { 0.0 };
        allowed.push(spread);
    }
    // Six runs may miss the worst case of one element; its neighbours had them too.
    let worst = allowed.iter().copied().fold(0.0, f64::max);
    let jump = worst > 0.05 * scale && worst > 2000.0 * unit;
    if jump {
        return None;
    }
    Some(
        want.iter()
            .zip(&allowed)
            .map(|(w, a)| units * w.abs().max(scale) + 4.0 * a + 2.0 * worst)
            .collect(),
    )
}

fn typical(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|v| v.is_finite());
    finite.clone().map(|v| v.abs()).sum::<f64>() / finite.count().max(1) as f64
}

/// The first element that is off by more than allowed.
fn difference(want: &Tensor, got: &Tensor, allowed: impl Fn(usize, f64) -> f64) -> Option<String> {
    if want.dtype() != got.dtype() || want.shape() != got.shape() {
        let text = |t: &Tensor| format!("{}{:?}", t.dtype(), t.shape());
        return Some(format!("expected {}, got {}", text(want), text(got)));
    }
    if !want.dtype().is_float() {
        let (w, g) = (want.to_i64(), got.to_i64());
        let at = w.iter().zip(&g).position(|(a, b)| a != b)?;
        return Some(format!("element {at}: expected {}, got {}", w[at], g[at]));
    }
    let (w, g) = (want.to_f64(), got.to_f64());
    let scale = typical(&w);
    for (at, (a, b)) in w.iter().zip(&g).enumerate() {
        if a == b || (a.is_nan() && b.is_nan()) {
            continue;
        }
        let allowed = allowed(at, a.abs().max(scale));
        // A difference that is NaN is one.
        let close = (a - b).abs() <= allowed;
        if !close {
            return Some(format!(
                "element {at}: expected {a}, got {b} (may be off by {allowed:e})"
            ));
        }
    }
    None
}

/// The first `E....` in a message.
pub(super) fn code(message: &str) -> Option<&str> {
    let at = message.match_indices('E').find(|(i, _)| {
        message.get(i + 1..i + 5).is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()))
    });
    at.and_then(|(i, _)| message.get(i..i + 5))
}

/// Checks seeds `from..to`, `group` to a graph, on `threads` threads; failures come
/// shrunk and printed, by seed.
pub fn check_many(
    from: u64,
    to: u64,
    group: u64,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> (Counts, BTreeMap<u64, String>) {
    let next = std::sync::atomic::AtomicU64::new(from);
    let found = std::sync::Mutex::new((Counts::default(), BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(group, std::sync::atomic::Ordering::Relaxed);
                    if first >= to {
                        return;
                    }
                    progress(first);
                    let (counts, failures) = check_group(first, (first + group).min(to));
                    let mut found = found.lock().expect("no panics inside");
                    found.0 += counts;
                    found.1.extend(failures);
                }
            });
        }
    });
    found.into_inner().expect("no panics inside")
}

/// One graph of these seeds; if it fails, each entry in a graph of its own.
fn check_group(from: u64, to: u64) -> (Counts, Vec<(u64, String)>) {
    let entries: Vec<Entry> = (from..to).map(Entry::generate).collect();
    let together = match check(&entries, &MODES, 3) {
        Ok(counts) => return (counts, vec![]),
        Err(failure) => failure,
    };
    let (mut counts, mut failures) = (Counts::default(), vec![]);
    for entry in &entries {
        match check(std::slice::from_ref(entry), &MODES, 3) {
            Ok(more) => counts += more,
            Err(failure) => {
                counts.graphs += 1;
                failures.push((entry.seed, super::shrink::report(entry, &failure)));
            }
        }
    }
    if failures.is_empty() {
        let text = print_graph(&entries);
        failures.push((from, format!("only together: {}\n{text}", together.what)));
    }
    (counts, failures)
}
