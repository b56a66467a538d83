//! How long a program would take on a GPU, by its data sheet: a roofline.
//!
//! Nothing is run. The plan for a GPU says what is computed and copied; a step takes as
//! long as its arithmetic at the sheet's full rate, or as its bytes at the full rate of
//! the memory, whichever is more. No program reaches both, so this says what to expect
//! at best and which steps are worth looking at, not what a program takes. What it
//! leaves out is said with it: starting kernels, waiting, and what the CPU does.

use crate::driver::Compiled;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use tfc_abi::plan::{Entry, Epilogue, Func, HOST, Plan, Step, Steps};
use tfc_ir::diag::Diag;
use tfc_ir::kernel::{DType, Kernel, math};
use tfc_runtime::cli::bench::human;
use tfc_runtime::io::json::quote;
use tfc_runtime::profile::Sizes;

/// What a data sheet says of a GPU: operations and bytes a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sheet {
    /// How the command line names it.
    pub key: &'static str,
    /// How its maker names it.
    pub name: &'static str,
    /// Single precision, without tensor cores.
    pub f32: f64,
    /// Double precision, without tensor cores.
    pub f64: f64,
    /// f16 and bf16 on tensor cores, summed in f32, no zeros left out.
    pub tensor: f64,
    /// f32 rounded to TF32 on tensor cores, if it is asked for.
    pub tf32: f64,
    /// The GPU's own memory.
    pub memory: f64,
    /// To the CPU, or back.
    pub link: f64,
}

/// The GPUs that are known.
pub const SHEETS: [Sheet; 3] = [
    Sheet {
        key: "a100",
        name: "A100 SXM 80 GB",
        f32: 19_500.0,
        f64: 9_700.0,
        tensor: 312_000.0,
        tf32: 156_000.0,
        memory: 2_039.0,
        link: 32.0,
    },
    Sheet {
        key: "h100",
        name: "H100 SXM 80 GB",
        f32: 67_000.0,
        f64: 34_000.0,
        tensor: 989_000.0,
        tf32: 494_000.0,
        memory: 3_350.0,
        link: 64.0,
    },
    Sheet {
        key: "rtx4090",
        name: "GeForce RTX 4090",
        f32: 82_600.0,
        f64: 1_290.0,
        tensor: 165_200.0,
        tf32: 82_600.0,
        memory: 1_008.0,
        link: 32.0,
    },
];

/// The sheet of this name, if there is one.
pub fn sheet(key: &str) -> Option<&'static Sheet> {
    SHEETS.iter().find(|s| s.key == key)
}

/// What a step waits for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Its operations.
    Arithmetic,
    /// The GPU's memory.
    Memory,
    /// The way to the CPU and back.
    Link,
    /// It is the CPU's, and not in the estimate.
    Cpu,
}

impl Bound {
    fn text(self) -> &'static str {
        match self {
            Bound::Arithmetic => "arithmetic",
            Bound::Memory => "memory",
            Bound::Link => "copies",
            Bound::Cpu => "(the CPU)",
        }
    }
}

/// What one step would take.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepEstimate {
    /// As `tfc bench --by-step` names it.
    pub name: String,
    /// How many branches and loops it is inside of.
    pub depth: usize,
    /// Operations of floats.
    pub flops: u64,
    /// Bytes loaded, stored or copied.
    pub bytes: u64,
    /// By the sheet.
    pub time: Duration,
    /// What that follows from.
    pub bound: Bound,
}

/// What a call of an entry would take.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EntryEstimate {
    /// Its name.
    pub name: String,
    /// In the order of the plan, what is inside branches and loops after them.
    pub steps: Vec<StepEstimate>,
    /// Steps that the GPU is given in a call.
    pub given: usize,
    /// All steps one after the other: of a branch the longer side, of a loop one round.
    pub time: Duration,
}

/// Estimates every entry of a program that has these sizes of its run-time dims; those
/// that are not given are 64, within their range.
///
/// ```
/// use std::collections::BTreeMap;
/// let text = "graph g\ndim B\nentry f(x: f32[B, 512]) -> (y: f32[B, 512]) { return x + 1.0 }";
/// let graph = tfc::parse(text)?;
/// let mut timings = tfc::driver::Timings::default();
/// let options = tfc::Options::new();
/// let compiled = tfc::driver::compile(&graph, &graph.sources, &options, &mut timings)?;
/// let h100 = tfc::estimate::sheet("h100").unwrap();
/// let sizes = BTreeMap::from([("B".to_string(), 1024)]);
/// let entries = tfc::estimate::estimate(&compiled, h100, &sizes)?;
/// // The way there and back takes far longer than the sum.
/// let slowest = entries[0].steps.iter().max_by_key(|s| s.time).unwrap();
/// assert_eq!(slowest.bound, tfc::estimate::Bound::Link);
/// # Ok::<(), tfc::Error>(())
/// ```
pub fn estimate(
    compiled: &Compiled,
    sheet: &Sheet,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<EntryEstimate>> {
    let program = compiled.program();
    let dims = dims(&program.plan, sizes)?;
    let plan = tfc_codegen::ptx::on_gpu(&program.plan);
    let kernels: Vec<Kernel> = program
        .kernels
        .iter()
        .map(|k| {
            let mut k = k.clone();
            math::expand(&mut k);
            k
        })
        .collect();
    let of_users = plan.entries.iter().enumerate();
    let of_users =
        of_users.filter(|(i, e)| e.is_for_users() && plan.init != u32::try_from(*i).ok());
    of_users
        .map(|(_, entry)| {
            let no_size = || too_large(entry, &plan);
            let values: Option<Vec<i64>> = entry.exprs.iter().map(|e| e.eval(&dims)).collect();
            let values = values.ok_or_else(no_size)?;
            let len = |len: u32| usize::try_from(*values.get(len as usize)?).ok();
            let lens: Option<Vec<usize>> = entry.buffers.iter().map(|b| len(b.len)).collect();
            let lens = lens.ok_or_else(no_size)?;
            let of = Sizes { plan: &plan, entry, values: &values, lens: &lens };
            let tf32 = program.tf32;
            let (kernels, steps, given) = (&kernels, vec![], 0);
            let mut estimator = Estimator { of, kernels, sheet, tf32, steps, given };
            let time = estimator.list(&entry.steps, 0).ok_or_else(no_size)?;
            let Estimator { steps, given, .. } = estimator;
            Ok(EntryEstimate { name: entry.name.clone(), steps, given, time: nanos(time) })
        })
        .collect()
}

fn too_large(entry: &Entry, plan: &Plan) -> Error {
    Diag::error("E0508", format!("the sizes of `{}` cannot be worked out", entry.name))
        .note(format!("`{}` has {}", plan.name, crate::names(plan.dims.iter().map(|d| &*d.name))))
        .help("give sizes that fit: `--dim NAME=SIZE`")
        .into()
}

fn nanos(ns: f64) -> Duration {
    Duration::try_from_secs_f64(ns / 1e9).unwrap_or(Duration::MAX)
}

struct Estimator<'a> {
    of: Sizes<'a>,
    /// With elementary functions written out.
    kernels: &'a [Kernel],
    sheet: &'a Sheet,
    tf32: bool,
    steps: Vec<StepEstimate>,
    given: usize,
}

/// What a step asks of a GPU.
#[derive(Default)]
struct Asked {
    f32: u64,
    f64: u64,
    tensor: u64,
    tf32: u64,
    bytes: u64,
}

impl Estimator<'_> {
    /// Nanoseconds of a list.
    fn list(&mut self, steps: &Steps, depth: usize) -> Option<f64> {
        let mut sum = 0.0;
        for (step, dispatch) in steps.iter().zip(steps.dispatch()) {
            let at = self.steps.len();
            self.steps.push(StepEstimate {
                name: self.of.name(step),
                depth,
                flops: 0,
                bytes: 0,
                time: Duration::ZERO,
                bound: Bound::Cpu,
            });
            let time = match step {
                Step::If { then, otherwise, .. } => {
                    let then = self.list(then, depth + 1)?;
                    then.max(self.list(otherwise, depth + 1)?)
                }
                Step::While { head, body, .. } => {
                    self.list(head, depth + 1)? + self.list(body, depth + 1)?
                }
                _ if dispatch.device == HOST => continue,
                _ => {
                    self.given += 1;
                    let (asked, link) = self.asked(step)?;
                    let out = &mut self.steps[at];
                    out.flops = asked.f32 + asked.f64 + asked.tensor + asked.tf32;
                    out.bytes = asked.bytes;
                    let rate = |n: u64, per_ns: f64| n as f64 / per_ns;
                    let arithmetic = rate(asked.f32, self.sheet.f32)
                        + rate(asked.f64, self.sheet.f64)
                        + rate(asked.tensor, self.sheet.tensor)
                        + rate(asked.tf32, self.sheet.tf32);
                    let moved = if link { self.sheet.link } else { self.sheet.memory };
                    let moved = rate(asked.bytes, moved);
                    out.bound = match link {
                        true => Bound::Link,
                        false if arithmetic > moved => Bound::Arithmetic,
                        false => Bound::Memory,
                    };
                    let time = arithmetic.max(moved);
                    out.time = nanos(time);
                    time
                }
            };
            sum += time;
        }
        Some(sum)
    }

    /// What a step of the GPU asks of it, and whether that goes over the link.
    fn asked(&self, step: &Step) -> Option<(Asked, bool)> {
        let mut asked = Asked::default();
        match step {
            Step::Launch(l) => self.kernel(l.kernel, &l.bufs, &l.dims, None, &mut asked)?,
            Step::MatMul(m) => {
                self.product(step, m.dtype, [m.a, m.b, m.c], &m.epilogue, &mut asked)?;
            }
            Step::Conv(c) => {
                self.product(step, c.dtype, [c.lhs, c.rhs, c.out], &c.epilogue, &mut asked)?;
            }
            Step::Copy { src, dst } => {
                let on = |b: u32| self.of.entry.buffers.get(b as usize).map(|b| b.device);
                let link = on(*src)? != on(*dst)?;
                asked.bytes = self.bytes(*dst)?.saturating_mul(if link { 1 } else { 2 });
                return Some((asked, link));
            }
            Step::Call(c) if matches!(c.func, Func::ScatterAddRows | Func::ScatterSetRows) => {
                // The rows that are touched, not all there are.
                let [_, ids, update] = c.bufs[..] else { return None };
                let rows = if c.func == Func::ScatterAddRows { 3 } else { 2 };
                let update = self.bytes(update)?.saturating_mul(rows);
                asked.bytes = self.bytes(ids)?.saturating_add(update);
            }
            _ => {
                let mut sum = Some(0u64);
                step.buffers(&mut |b, _| {
                    sum = sum.and_then(|s| Some(s.saturating_add(self.bytes(b)?)));
                });
                asked.bytes = sum?;
            }
        }
        Some((asked, false))
    }

    fn bytes(&self, buf: u32) -> Option<u64> {
        let size = self.of.entry.buffers.get(buf as usize)?.dtype.size();
        Some((*self.of.lens.get(buf as usize)? as u64).saturating_mul(size as u64))
    }

    /// Each factor is read once; what is done with the sums is done in registers.
    fn product(
        &self,
        step: &Step,
        dtype: DType,
        [a, b, c]: [u32; 3],
        epilogue: &Option<Epilogue>,
        asked: &mut Asked,
    ) -> Option<()> {
        let flops = self.of.flops(step);
        match dtype {
            DType::F16 | DType::BF16 => asked.tensor = flops,
            DType::F64 => asked.f64 = flops,
            DType::F32 if self.tf32 => asked.tf32 = flops,
            _ => asked.f32 = flops,
        }
        asked.bytes = self.bytes(a)?.saturating_add(self.bytes(b)?);
        match epilogue {
            Some(e) => self.kernel(e.kernel, &e.bufs, &e.dims, Some(c), asked)?,
            None => asked.bytes = asked.bytes.saturating_add(self.bytes(c)?),
        }
        Some(())
    }

    /// Adds what a kernel does. Its loads of `product` are of registers.
    fn kernel(
        &self,
        number: u32,
        bufs: &[u32],
        dims: &[u32],
        product: Option<u32>,
        asked: &mut Asked,
    ) -> Option<()> {
        let kernel = self.kernels.get(number as usize)?;
        let dims: Option<Vec<i64>> =
            dims.iter().map(|d| self.of.values.get(*d as usize).copied()).collect();
        let work = kernel.work(&dims?)?;
        asked.f32 = asked.f32.saturating_add(work.f32);
        asked.f64 = asked.f64.saturating_add(work.f64);
        for (i, buf) in kernel.bufs.iter().enumerate() {
            let in_register = product.is_some() && bufs.get(i).copied() == product;
            let loads = if in_register { 0 } else { work.loads[i] };
            let elements = loads.saturating_add(work.stores[i]);
            let bytes = elements.saturating_mul(buf.dtype.size() as u64);
            asked.bytes = asked.bytes.saturating_add(bytes);
        }
        Some(())
    }
}

/// The estimates for people: every step, and what is left out.
pub fn text(entries: &[EntryEstimate], sheet: &Sheet) -> String {
    let tera = |per_ns: f64| per_ns / 1e3;
    let mut out = format!(
        "an estimate by the data sheet of {}; nothing was run\n\
         {:.1} TFLOP/s, {:.1} in f64, {:.0} on tensor cores ({:.0} in TF32); memory {:.0} GB/s, copies {:.0} GB/s\n",
        sheet.name,
        tera(sheet.f32),
        tera(sheet.f64),
        tera(sheet.tensor),
        tera(sheet.tf32),
        sheet.memory,
        sheet.link
    );
    for entry in entries {
        let _ = writeln!(out, "\n{}", entry.name);
        let _ = writeln!(
            out,
            "{:>10} {:>6} {:>9} {:>9}  {:10}  step",
            "time", "share", "FLOP", "bytes", "bound by"
        );
        let all = entry.time.as_secs_f64().max(1e-12);
        for s in &entry.steps {
            let (time, share) = match s.bound {
                Bound::Cpu => (String::new(), String::new()),
                _ => (human(s.time), format!("{:.1}%", 100.0 * s.time.as_secs_f64() / all)),
            };
            let _ = writeln!(
                out,
                "{time:>10} {share:>6} {:>9} {:>9}  {:10}  {:indent$}{}",
                scaled(s.flops),
                scaled(s.bytes),
                s.bound.text(),
                "",
                s.name,
                indent = 2 * s.depth,
            );
        }
        let inside = match entry.steps.iter().any(|s| s.depth > 0) {
            true => ", of a branch the longer side, of a loop one round",
            false => "",
        };
        let _ = writeln!(
            out,
            "{:>10} for the {} steps of the GPU one after the other{inside}",
            human(entry.time),
            entry.given
        );
    }
    out += "\nNot in it: what it takes to start each step, waiting, and the work of the CPU.\n";
    out
}

/// One JSON object for each entry, a line each.
pub fn json(entries: &[EntryEstimate], sheet: &Sheet) -> String {
    let mut out = String::new();
    for entry in entries {
        let steps: Vec<String> = entry
            .steps
            .iter()
            .filter(|s| s.bound != Bound::Cpu)
            .map(|s| {
                format!(
                    "{{\"step\":{},\"ns\":{},\"flops\":{},\"bytes\":{},\"bound\":{}}}",
                    quote(&s.name),
                    s.time.as_nanos(),
                    s.flops,
                    s.bytes,
                    quote(s.bound.text())
                )
            })
            .collect();
        let _ = writeln!(
            out,
            "{{\"estimate\":{},\"gpu\":{},\"ns\":{},\"steps\":[{}]}}",
            quote(&entry.name),
            quote(sheet.key),
            entry.time.as_nanos(),
            steps.join(",")
        );
    }
    out
}

/// A count in at most four digits: 512, 4.10k, 38.5M.
fn scaled(n: u64) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    match value {
        _ if n == 0 => String::new(),
        _ if unit == 0 => format!("{n}"),
        v if v < 9.995 => format!("{v:.2}{}", units[unit]),
        v if v < 99.95 => format!("{v:.1}{}", units[unit]),
        v => format!("{v:.0}{}", units[unit]),
    }
}

/// Size of a run-time dim nobody gave.
const DEFAULT_DIM: i64 = 64;

/// Every dim that was given a value is there.
pub(crate) fn known_dims(plan: &Plan, given: &BTreeMap<String, i64>) -> Result<()> {
    if let Some(name) = given.keys().find(|n| !plan.dims.iter().any(|d| d.name == **n)) {
        let known = crate::names(plan.dims.iter().map(|d| d.name.as_str()));
        let message = format!("`{}` has no dim `{name}`", plan.name);
        return Err(Diag::error("E0902", message).note(format!("it has {known}")).into());
    }
    Ok(())
}

/// A value for every dim of the plan.
pub(crate) fn dims(plan: &Plan, given: &BTreeMap<String, i64>) -> Result<Vec<i64>> {
    known_dims(plan, given)?;
    let value = |d: &tfc_abi::plan::DimInfo| {
        given.get(&d.name).copied().unwrap_or(DEFAULT_DIM.clamp(d.min, d.max.max(d.min)))
    };
    Ok(plan.dims.iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_at_most_four_digits() {
        let all = [0, 7, 999, 1000, 9_994, 9_996, 99_960, 999_600, 38_500_000, u64::MAX];
        let text = all.map(scaled);
        let want = ["", "7", "999", "1.00k", "9.99k", "10.0k", "100k", "1.00M", "38.5M", "18.4E"];
        assert_eq!(text, want);
    }
}
