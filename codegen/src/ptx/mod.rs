//! Kernel IR to PTX, the assembly of NVIDIA's GPUs, as text.
//!
//! Code map
//! - [`schedule`]: which loops are threads, and how many of them a launch takes;
//! - [`emit`]: statements and loops of a scheduled kernel; [`rows`]: loops that
//!   threads share; [`best`]: those that look for an element; [`scan`]: running sums; [`ops`]: scalar operations; [`memory`]: addresses, loads and
//!   stores;
//! - [`contract`]: matrix products and convolutions as one kind of product; [`sides`]:
//!   where its factors' elements are; [`stage`]: their way to shared memory; [`tile`]:
//!   the tiled product; [`tensor`]: products of matrices on tensor cores; [`mma`]: others
//!   there; [`depthwise`]: convolutions with a filter for each channel;
//! - [`routines`]: what the runtime does on the CPU by itself;
//! - [`table`]: all of it as the runtime reads it;
//! - [`func`]: the text of one entry: registers, labels, instructions.
//!
//! # Calling convention
//!
//! An entry's parameters are the addresses of its buffers (`.u64`), in the order of
//! `Kernel::bufs`, then its run-time dims (`.s64`), in the order of `Kernel::dims`.
//! Every buffer starts at a multiple of 16 bytes, and even an empty one has 16 bytes
//! that may be read. Blocks have one axis of threads. A launch ([`Launch`]) says how
//! many blocks, as sizes over the dims; if one of them is zero there is nothing to
//! launch. Entries are named `tfc_` and the kernel's name.
//!
//! # Invariants
//! - The same bits as on the CPU: `.rn` on every operation of floats, so that the
//!   assembler contracts nothing; fma where kernel IR has it and nowhere else; no
//!   `.ftz`, and no `.approx` unless a program is compiled with fast math. NaNs may
//!   differ in their payload.
//! - Sums are made in the order kernel IR gives them, partial results included.
//!   There are no atomics. Contractions have an order of their own, which depends on
//!   sizes alone.
//! - Control flow depends on sizes alone, but for the threads past the end, and on what
//!   a whole block agrees about, so every barrier is reached by all.
//! - The text starts with the lowest `.version` and `.target` its instructions need.

mod best;
mod contract;
mod depthwise;
mod emit;
mod func;
mod keep;
mod memory;
mod mma;
mod ops;
mod routines;
mod rows;
mod scan;
pub mod schedule;
mod sides;
mod stage;
mod table;
mod tensor;
mod tile;

pub use contract::{Contracted, Request, contraction};
pub use routines::routine;
pub use schedule::Schedule;
pub use table::{on_gpu, table};

use crate::CodegenError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_abi::plan::BufId;
use tfc_kernel::program::Program;
use tfc_kernel::{Dim, Kernel};

/// How an entry is started.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub entry: String,
    /// Blocks along each axis, over the kernel's dims.
    pub grid: [Dim; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory, already part of the entry.
    pub shared: u32,
}

impl std::fmt::Display for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [x, y, z] = &self.grid;
        write!(f, "{} blocks of {} threads", product(&[x, y, z]), self.block)?;
        if self.shared > 0 {
            write!(f, ", {} bytes shared", self.shared)?;
        }
        Ok(())
    }
}

/// Factors that are not one, with `x` between them.
fn product(dims: &[&Dim]) -> String {
    let factors: Vec<String> = dims.iter().filter(|d| !d.is_one()).map(|d| d.to_string()).collect();
    if factors.is_empty() { "1".into() } else { factors.join(" x ") }
}

/// What a GPU must be able to do, in the order of `.target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needs {
    /// `.version`, as 60 for 6.0.
    pub version: u32,
    /// `.target`, as 70 for `sm_70`.
    pub arch: u32,
}

/// Volta, and the first version that has it.
pub const BASELINE: Needs = Needs { version: 60, arch: 70 };
/// Ampere: tensor cores for bf16 and f16 of the shapes we use.
pub const AMPERE: Needs = Needs { version: 70, arch: 80 };

impl Needs {
    pub fn and(self, other: Needs) -> Needs {
        Needs { version: self.version.max(other.version), arch: self.arch.max(other.arch) }
    }
}

/// One entry as text, without the head of a module.
#[derive(Clone, Debug)]
pub struct Entry {
    pub text: String,
    pub launch: Launch,
    pub needs: Needs,
}

/// A module of these entries.
pub fn module(entries: &[Entry]) -> String {
    let needs = entries.iter().fold(BASELINE, |n, e| n.and(e.needs));
    let mut out = format!(
        ".version {}.{}\n.target sm_{}\n.address_size 64\n",
        needs.version / 10,
        needs.version % 10,
        needs.arch
    );
    for entry in entries {
        out.push('\n');
        out.push_str(&entry.text);
    }
    out
}

/// The entry of one kernel, and how its loops were made threads.
pub fn kernel(kernel: &Kernel) -> Result<(Entry, Schedule), CodegenError> {
    kernel_for(kernel, false)
}

/// [`kernel`], with approximate instructions if it is to be `fast`.
pub fn kernel_for(kernel: &Kernel, fast: bool) -> Result<(Entry, Schedule), CodegenError> {
    let kernel = crate::prepare_but(kernel, &|op, ty| fast && ops::approximate(op, ty))?;
    let schedule = schedule::choose(&kernel);
    Ok((emit::entry(&kernel, &schedule, fast), schedule))
}

/// The entries of a program.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Of each kernel, in the order of the program.
    pub kernels: Vec<Entry>,
    pub schedules: Vec<Schedule>,
    /// As in `Program::contractions`.
    pub contractions: BTreeMap<(u32, BufId), Contracted>,
}

impl Compiled {
    /// Each once: equal contractions have the same ones.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let all = self.kernels.iter().chain(self.contractions.values().flat_map(|c| &c.entries));
        let mut seen = BTreeSet::new();
        all.filter(move |e| seen.insert(&e.launch.entry))
    }

    /// All entries as one module.
    pub fn text(&self) -> String {
        module(&self.entries().cloned().collect::<Vec<_>>())
    }

    /// How loops become threads, for people.
    pub fn schedule_text(&self) -> String {
        let kernels = self.schedules.iter().map(|s| s.to_string());
        let contractions = self.contractions.values().map(|c| c.text.clone());
        kernels.chain(contractions).collect::<Vec<_>>().join("\n")
    }
}

/// Everything of a program that computes. `arch` is the newest GPU whose instructions may
/// be used, as 80 for `sm_80`.
pub fn compile(program: &Program, arch: u32) -> Result<Compiled, CodegenError> {
    let mut out = Compiled { kernels: vec![], schedules: vec![], contractions: BTreeMap::new() };
    for k in &program.kernels {
        let (entry, schedule) = kernel_for(k, program.fast)?;
        out.kernels.push(entry);
        out.schedules.push(schedule);
    }
    let dims: Vec<Arc<str>> = program.plan.dims.iter().map(|d| d.name.as_str().into()).collect();
    // What differs in names alone is there once.
    let mut known: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for ((entry, buf), c) in &program.contractions {
        let of = program.plan.entries.get(*entry as usize).map_or("", |e| e.name.as_str());
        // The number too: the initial values have an entry without a name.
        let name = format!("{of}_{entry}_product_{buf}");
        let epilogue =
            c.epilogue.as_ref().and_then(|e| Some((e, program.kernels.get(e.kernel as usize)?)));
        let (fast, tf32) = (program.fast, program.tf32);
        let request =
            Request { name: &name, product: &c.product, epilogue, dims: &dims, arch, fast, tf32 };
        let mut contracted = contraction(&request);
        let nameless = |e: &Entry| e.text.replacen(&e.launch.entry, "", 1);
        let key: String = contracted.entries.iter().map(nameless).collect();
        let same = known.entry(key).or_insert_with(|| contracted.entries.clone());
        contracted.entries.clone_from(same);
        out.contractions.insert((*entry, *buf), contracted);
    }
    Ok(out)
}
