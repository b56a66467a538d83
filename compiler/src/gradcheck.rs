//! Gradients against finite differences.
//!
//! [`gradcheck`] takes every `grad` of a graph (those of `minimize` included),
//! runs it in the interpreter with all floats in `f64`, moves what it is taken by
//! a little to both sides, and compares. Some elements of each tensor are moved
//! alone, and all of them together along a random direction, so a wrong element
//! that was not sampled still shows.
//!
//! The point: feeds that are not given are random, run-time dims that are not
//! given are small, variables have their initial values, and what is
//! differentiated by is moved off that by a little noise, because zeros hide
//! mistakes. Where the slopes to both sides differ there is a kink; such elements
//! are counted and not judged.
//!
//! A gradient inside `if` or `while` is checked in the first few runs of its
//! block, at the values that come there: what the loop carries, what variables
//! hold. What cannot be checked is listed with the reason.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use tfc_ir::diag::{Diag, SourceMap};
use tfc_ir::interp::{self, State};
use tfc_ir::{DType, Func, Graph, Tensor, TensorType, ValueId};
use tfc_passes::probe::{Probe, probes};

/// How to check.
#[derive(Clone, Debug)]
pub struct GradcheckOptions {
    /// Only this entry.
    pub entry: Option<String>,
    /// Sizes of run-time dims.
    pub dims: BTreeMap<String, i64>,
    /// Values of parameters, of any element type that fits.
    pub feeds: BTreeMap<String, Tensor>,
    /// Elements of each tensor that are moved alone.
    pub samples: usize,
    /// Largest relative difference that passes.
    pub tolerance: f64,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for GradcheckOptions {
    fn default() -> GradcheckOptions {
        GradcheckOptions {
            entry: None,
            dims: BTreeMap::new(),
            feeds: BTreeMap::new(),
            samples: 8,
            tolerance: 1e-6,
            seed: 1,
        }
    }
}

/// One gradient: of a value, by a variable, parameter or other value.
#[derive(Clone, Debug)]
pub struct Row {
    /// The entry it is in.
    pub entry: String,
    /// What is differentiated.
    pub of: String,
    /// By what.
    pub by: String,
    /// Numbers compared.
    pub checked: usize,
    /// Elements at a kink.
    pub kinks: usize,
    /// Largest relative difference.
    pub worst: f64,
    /// Where that was (nowhere: along a direction), what the gradient says and
    /// what differences say.
    pub at: Option<Vec<usize>>,
    /// What the gradient says.
    pub gradient: f64,
    /// What finite differences say.
    pub difference: f64,
    /// Inside control flow: runs of the block it was checked in.
    pub runs: Option<usize>,
    /// Whether they agree.
    pub ok: bool,
}

/// A gradient that was not checked.
#[derive(Clone, Debug)]
pub struct Unchecked {
    /// The entry it is in.
    pub entry: String,
    /// What is differentiated.
    pub of: String,
    /// Why it could not be checked.
    pub why: String,
}

impl Row {
    /// The same gradient, checked at two points.
    fn and(self, other: Row) -> Row {
        let runs = self.runs.map(|n| n + other.runs.unwrap_or(0));
        let (checked, kinks) = (self.checked + other.checked, self.kinks + other.kinks);
        let worse = !other.ok && self.ok || other.ok == self.ok && other.worst > self.worst;
        let shown = if worse { other } else { self };
        Row { runs, checked, kinks, ..shown }
    }
}

/// What [`gradcheck`] found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was compared.
    pub rows: Vec<Row>,
    /// What could not be.
    pub unchecked: Vec<Unchecked>,
}

impl Report {
    /// Whether every gradient agrees.
    pub fn ok(&self) -> bool {
        self.rows.iter().all(|r| r.ok)
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let head = ["entry", "gradient of", "by", "checked", "largest error", ""];
        let mut lines: Vec<[String; 6]> = vec![head.map(str::to_string)];
        for r in &self.rows {
            let mut verdict = match (r.ok, r.kinks) {
                (false, _) => {
                    let place = match &r.at {
                        Some(at) => format!("at {at:?}"),
                        None => "along a direction".to_string(),
                    };
                    let (g, d) = (r.gradient, r.difference);
                    format!("OFF {place}: {g:.9e}, but differences say {d:.9e}")
                }
                (true, 0) => "ok".to_string(),
                (true, n) => format!("ok, {n} at a kink"),
            };
            match r.runs {
                None => {}
                Some(1) => verdict += ", in one run of its block",
                Some(n) => verdict += &format!(", in {n} runs of its block"),
            }
            let error = format!("{:.1e}", r.worst);
            let checked = r.checked.to_string();
            lines.push([r.entry.clone(), r.of.clone(), r.by.clone(), checked, error, verdict]);
        }
        let width = |c: usize| lines.iter().map(|l| l[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        let mut out = String::new();
        for l in &lines {
            let row = format!(
                "{:<w0$}  {:<w1$}  {:<w2$}  {:>w3$}  {:>w4$}  {}",
                l[0],
                l[1],
                l[2],
                l[3],
                l[4],
                l[5],
                w0 = widths[0],
                w1 = widths[1],
                w2 = widths[2],
                w3 = widths[3],
                w4 = widths[4],
            );
            let _ = writeln!(out, "{}", row.trim_end());
        }
        for u in &self.unchecked {
            let _ =
                writeln!(out, "{}: the gradient of {} is not checked: {}", u.entry, u.of, u.why);
        }
        out
    }

    /// One JSON object a line.
    pub fn json(&self) -> String {
        let mut out = String::new();
        for r in &self.rows {
            let line = serde_json::json!({
                "entry": r.entry,
                "of": r.of,
                "by": r.by,
                "checked": r.checked,
                "kinks": r.kinks,
                "error": r.worst,
                "at": r.at,
                "gradient": r.gradient,
                "difference": r.difference,
                "runs": r.runs,
                "ok": r.ok,
            });
            let _ = writeln!(out, "{line}");
        }
        for u in &self.unchecked {
            let line = serde_json::json!({ "entry": u.entry, "of": u.of, "unchecked": u.why });
            let _ = writeln!(out, "{line}");
        }
        out
    }
}

/// Compares every gradient a graph takes with finite differences.
///
/// ```
/// let graph = tfc::parse(
///     "graph g\n\
///      var w: f32[3] = ones\n\
///      entry step(x: f32[3]) -> (d: f32[3]) { return grad(sum(tanh(w * x)), wrt: w) }",
/// )?;
/// let report = tfc::gradcheck::gradcheck(&graph, &Default::default())?;
/// assert!(report.ok(), "{}", report.table());
/// assert_eq!(report.rows[0].by, "w");
/// # Ok::<(), tfc::Error>(())
/// ```
pub fn gradcheck(graph: &Graph, options: &GradcheckOptions) -> Result<Report> {
    check(graph, &SourceMap::default(), options)
}

/// As [`gradcheck`], with findings that point into `sources`.
pub(crate) fn check(
    graph: &Graph,
    sources: &SourceMap,
    options: &GradcheckOptions,
) -> Result<Report> {
    let names: Vec<String> = match &options.entry {
        Some(name) if !graph.entries.iter().any(|e| e.name == *name) => {
            return Err(crate::driver::no_entry(graph, name).into());
        }
        Some(name) => vec![name.clone()],
        None => graph.entries.iter().map(|e| e.name.clone()).collect(),
    };
    known_names(graph, &names, options)?;
    let mut report = Report::default();
    for name in names {
        let (found, unchecked) =
            probes(graph, &name).map_err(|diags| Error::new(diags, sources.clone()))?;
        let mut skip = |of: &str, why: &str| {
            let (entry, of, why) = (name.clone(), of.to_string(), why.to_string());
            report.unchecked.push(Unchecked { entry, of, why });
        };
        unchecked.iter().for_each(|u| skip(&u.of, u.why));
        for probe in &found {
            let points = Point::all(probe, options).map_err(|e| failed(e, sources))?;
            if points.is_empty() {
                skip(&probe.of, "its block never runs with these feeds; give others");
                continue;
            }
            for target in 0..probe.targets.len() {
                let mut row: Option<Row> = None;
                for point in &points {
                    let here = point.compare(target, options).map_err(|e| failed(e, sources))?;
                    row = Some(match row {
                        None => here,
                        Some(before) => before.and(here),
                    });
                }
                report.rows.extend(row);
            }
        }
    }
    Ok(report)
}

/// What the interpreter refuses, as an error about the graph.
fn failed(error: interp::Error, sources: &SourceMap) -> Error {
    let mut diag = Diag::error(error.code, error.message);
    if !error.span.is_none() {
        diag = diag.at(error.span, "here");
    }
    let help = "give values that fit: `--feed NAME=VALUE`, `--dim NAME=SIZE`";
    Error::new(vec![diag.help(help)], sources.clone())
}

/// Feeds and dims that nothing has are mistakes.
fn known_names(graph: &Graph, entries: &[String], options: &GradcheckOptions) -> Result<()> {
    let entries = || graph.entries.iter().filter(|e| entries.contains(&e.name));
    let params: Vec<&str> = entries()
        .flat_map(|e| e.params().iter().filter_map(|p| e.values[*p].name.as_deref()))
        .collect();
    if let Some(name) = options.feeds.keys().find(|n| !params.contains(&n.as_str())) {
        let diag = Diag::error("E0502", format!("there is no parameter `{name}`"));
        return Err(diag.note(format!("there are {}", crate::names(params.into_iter()))).into());
    }
    let dims = || graph.dims.iter().map(|d| &*d.name);
    if let Some(name) = options.dims.keys().find(|n| !dims().any(|d| d == n.as_str())) {
        let diag = Diag::error("E0902", format!("there is no dim `{name}`"));
        return Err(diag.note(format!("there are {}", crate::names(dims()))).into());
    }
    Ok(())
}

/// Size of a run-time dim nobody gave.
const DIM: i64 = 3;
/// How far targets are moved off their values.
const NOISE: f64 = 0.1;

/// Where a gradient is checked: feeds, variables, and the gradient there.
struct Point<'a> {
    probe: &'a Probe,
    state: State,
    feeds: Vec<Tensor>,
    /// What is added to each target.
    deltas: Vec<Tensor>,
    stopped: Vec<Tensor>,
    ct: Vec<f64>,
    gradients: Vec<Vec<f64>>,
    seed: u64,
}

/// Runs of a block in which a gradient inside it is checked.
const RUNS: i64 = 3;

impl<'a> Point<'a> {
    /// Where to check: at one point, or in some runs of the block around.
    fn all(
        probe: &'a Probe,
        options: &GradcheckOptions,
    ) -> std::result::Result<Vec<Point<'a>>, interp::Error> {
        if !probe.inside {
            return Ok(vec![Point::new(probe, options)?]);
        }
        let mut last = None;
        // Integers may say how often a loop runs, and any feed whether a branch is
        // taken: other feeds are tried until one gets there.
        for (attempt, integers) in [4, 2, 1, 4, 4, 4].into_iter().enumerate() {
            let options =
                GradcheckOptions { seed: options.seed + attempt as u64, ..options.clone() };
            let mut out = vec![];
            for run in 0..RUNS {
                match Point::in_run(probe, &options, integers, run) {
                    Ok(Some(point)) => out.push(point),
                    Ok(None) => break,
                    Err(e) => {
                        last = last.or(Some(e));
                        break;
                    }
                }
            }
            if !out.is_empty() {
                return Ok(out);
            }
        }
        last.map_or(Ok(vec![]), Err)
    }

    /// The point a block is at in one of its runs, if there is such a run.
    fn in_run(
        probe: &'a Probe,
        options: &GradcheckOptions,
        integers: u64,
        run: i64,
    ) -> std::result::Result<Option<Point<'a>>, interp::Error> {
        let graph = &probe.graph;
        let func = &graph.entries[0];
        let own = func.params().len() - 1;
        let dims = sizes(graph, func, options);
        let state = State::new(graph)?;
        let mut random = Random(options.seed);
        let feeds: Vec<Tensor> = func.params()[..own]
            .iter()
            .map(|p| feed(func, *p, &dims, options, integers, &mut random))
            .collect();
        let mut all = feeds.clone();
        all.push(Tensor::from_i64(DType::I64, vec![], [run]));
        let results = interp::run(graph, "gradient", &all, &mut state.clone())?;
        let Some((runs, results)) = results.split_last() else { return Ok(None) };
        if runs.to_i64().first().is_none_or(|n| *n <= run) {
            return Ok(None);
        }
        let first = 1 + probe.seeded as usize;
        let ct = if probe.seeded { results[1].to_f64() } else { vec![1.0] };
        let (gradients, stopped) = results[first..].split_at(probe.targets.len());
        let deltas = probe.targets.iter().zip(gradients);
        let deltas = deltas.map(|(t, g)| Tensor::splat(t.ty.dtype, g.shape().to_vec(), 0.0));
        Ok(Some(Point {
            probe,
            state,
            feeds,
            deltas: deltas.collect(),
            stopped: stopped.to_vec(),
            ct,
            gradients: gradients.iter().map(Tensor::to_f64).collect(),
            seed: options.seed,
        }))
    }

    fn new(
        probe: &'a Probe,
        options: &GradcheckOptions,
    ) -> std::result::Result<Point<'a>, interp::Error> {
        let graph = &probe.graph;
        let func = &graph.entries[0];
        let own = func.params().len() - probe.targets.len();
        let dims = sizes(graph, func, options);
        let state = State::new(graph)?;
        let mut last = None;
        // Labels of two classes; if that is more than there are, of one.
        for integers in [2, 1] {
            let mut random = Random(options.seed);
            let feeds: Vec<Tensor> = func.params()[..own]
                .iter()
                .map(|p| feed(func, *p, &dims, options, integers, &mut random))
                .collect();
            let deltas: Vec<Tensor> = probe
                .targets
                .iter()
                .map(|t| {
                    let given = t.param.is_some() && options.feeds.contains_key(&t.name);
                    let scale = if given { 0.0 } else { NOISE };
                    random.tensor(&t.ty, &dims, scale)
                })
                .collect();
            let all: Vec<Tensor> = feeds.iter().chain(&deltas).cloned().collect();
            match interp::run(graph, "gradient", &all, &mut state.clone()) {
                Ok(results) => {
                    let first = 1 + probe.seeded as usize;
                    let ct = match probe.seeded {
                        true => results[1].to_f64(),
                        false => vec![1.0],
                    };
                    let (gradients, stopped) = results[first..].split_at(probe.targets.len());
                    return Ok(Point {
                        probe,
                        state,
                        feeds,
                        deltas,
                        stopped: stopped.to_vec(),
                        ct,
                        gradients: gradients.iter().map(Tensor::to_f64).collect(),
                        seed: options.seed,
                    });
                }
                Err(e) => last = last.or(Some(e)),
            }
        }
        Err(last.unwrap_or(interp::Error {
            code: "E0899",
            message: "no point to check at".into(),
            span: tfc_ir::diag::Span::NONE,
        }))
    }

    /// The differentiated value, weighted by its cotangent, with a target moved.
    fn value(&self, target: usize, moved: &[f64]) -> std::result::Result<f64, interp::Error> {
        let mut deltas = self.deltas.clone();
        let shape = deltas[target].shape().to_vec();
        deltas[target] = Tensor::from_f64(DType::F64, shape, moved.iter().copied());
        let all: Vec<Tensor> =
            self.feeds.iter().chain(&deltas).chain(&self.stopped).cloned().collect();
        let results = interp::run(&self.probe.graph, "value", &all, &mut self.state.clone())?;
        Ok(results[0].to_f64().iter().zip(&self.ct).map(|(y, c)| y * c).sum())
    }

    fn compare(
        &self,
        target: usize,
        options: &GradcheckOptions,
    ) -> std::result::Result<Row, interp::Error> {
        let base = self.deltas[target].to_f64();
        let gradient = &self.gradients[target];
        let n = base.len();
        let mut random = Random(self.seed ^ (target as u64 + 1) << 32);
        let mut directions: Vec<(Option<usize>, Vec<f64>)> = vec![];
        for i in random.choose(n, options.samples) {
            let mut d = vec![0.0; n];
            d[i] = 1.0;
            directions.push((Some(i), d));
        }
        if n > 1 {
            let signs = (0..n).map(|_| if random.unit() < 0.5 { -1.0 } else { 1.0 });
            directions.push((None, signs.collect()));
        }
        let mut row = Row {
            entry: self.probe.entry.clone(),
            of: self.probe.of.clone(),
            by: self.probe.targets[target].name.clone(),
            checked: 0,
            kinks: 0,
            worst: 0.0,
            at: None,
            gradient: 0.0,
            difference: 0.0,
            runs: self.probe.inside.then_some(1),
            ok: true,
        };
        let here = self.value(target, &base)?;
        for (at, direction) in directions {
            let exact: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let slope = |step: f64| {
                let at = |h: f64| {
                    let moved: Vec<f64> =
                        base.iter().zip(&direction).map(|(b, d)| b + h * d).collect();
                    self.value(target, &moved)
                };
                Ok::<_, interp::Error>(((at(step)? - here) / step, (here - at(-step)?) / step))
            };
            // A kink between the points goes away with a smaller step; one at the
            // point does not.
            let mut error = f64::INFINITY;
            let mut numeric = 0.0;
            let mut kink = false;
            for step in [1e-5, 1e-6, 1e-4] {
                let (right, left) = slope(step)?;
                let middle = (right + left) / 2.0;
                // Rounding of the value, seen through the step.
                let floor = 1e-14 * here.abs().max(1.0) / step + 1e-9;
                let scale = exact.abs().max(middle.abs()).max(floor / options.tolerance);
                let off = (exact - middle).abs() / scale;
                let bend = (right - left).abs() / scale;
                kink |= step <= 1e-5 && bend > 0.01;
                // Not a number is never nearer.
                if off < error || error.is_infinite() {
                    (error, numeric) = (off, middle);
                }
                if error <= options.tolerance {
                    break;
                }
            }
            let ok = error <= options.tolerance;
            if !ok && kink {
                row.kinks += 1;
                continue;
            }
            row.checked += 1;
            if error > row.worst || !ok && row.ok {
                let index = at.map(|i| unravel(i, self.deltas[target].shape()));
                (row.worst, row.at) = (error, index);
                (row.gradient, row.difference) = (exact, numeric);
            }
            row.ok &= ok;
        }
        Ok(row)
    }
}

fn unravel(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut out = vec![0; shape.len()];
    for (o, n) in out.iter_mut().zip(shape).rev() {
        *o = i % n.max(&1);
        i /= n.max(&1);
    }
    out
}

/// A value for every run-time dim: given, told by a given feed, or small.
fn sizes(graph: &Graph, func: &Func, options: &GradcheckOptions) -> BTreeMap<String, i64> {
    let mut out: BTreeMap<String, i64> = BTreeMap::new();
    for d in &graph.dims {
        out.insert(d.name.to_string(), DIM.clamp(d.min, d.max.max(d.min)));
    }
    for p in func.params() {
        let given = func.values[*p].name.as_deref().and_then(|n| options.feeds.get(n));
        let Some(given) = given else { continue };
        for (dim, size) in func.ty(*p).shape.iter().zip(given.shape()) {
            if let Some(name) = dim.as_sym() {
                out.insert(name.to_string(), *size as i64);
            }
        }
    }
    out.extend(options.dims.iter().map(|(n, s)| (n.clone(), *s)));
    out
}

/// The given value of a parameter, or a random one.
fn feed(
    func: &Func,
    param: ValueId,
    dims: &BTreeMap<String, i64>,
    options: &GradcheckOptions,
    integers: u64,
    random: &mut Random,
) -> Tensor {
    let ty = func.ty(param);
    let given = func.values[param].name.as_deref().and_then(|n| options.feeds.get(n));
    if let Some(t) = given {
        let shape = t.shape().to_vec();
        return match ty.dtype.is_float() {
            true => Tensor::from_f64(ty.dtype, shape, t.to_f64()),
            false => t.clone(),
        };
    }
    if ty.dtype.is_float() {
        return random.tensor(ty, dims, 1.0);
    }
    let shape = shape(ty, dims);
    let n: usize = shape.iter().product();
    let values: Vec<i64> = (0..n).map(|_| (random.next() % integers) as i64).collect();
    Tensor::from_i64(ty.dtype, shape, values)
}

fn shape(ty: &TensorType, dims: &BTreeMap<String, i64>) -> Vec<usize> {
    let size = |d: &tfc_ir::Dim| d.eval(&|name| dims.get(name).copied()).unwrap_or(0);
    ty.shape.iter().map(|d| usize::try_from(size(d)).unwrap_or(0)).collect()
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform between `-scale` and `scale`.
    fn tensor(&mut self, ty: &TensorType, dims: &BTreeMap<String, i64>, scale: f64) -> Tensor {
        let shape = shape(ty, dims);
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|_| (self.unit() * 2.0 - 1.0) * scale).collect();
        Tensor::from_f64(ty.dtype, shape, values)
    }

    /// Some of the numbers below `n`, each once.
    fn choose(&mut self, n: usize, most: usize) -> Vec<usize> {
        if n <= most {
            return (0..n).collect();
        }
        let mut out = std::collections::BTreeSet::new();
        while out.len() < most {
            out.insert((self.next() % n as u64) as usize);
        }
        out.into_iter().collect()
    }
}
