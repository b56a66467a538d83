//! The PTX of a program and how its entries are launched, as the runtime reads them.

use super::routines::any_rows;
use super::{Compiled, Entry, Launch, Needs, module, routine};
use crate::CodegenError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_abi::DType;
use tfc_abi::gpu::{Gpu, GpuContraction, GpuEntry, GpuRoutine, GpuVersion};
use tfc_abi::place::place;
use tfc_abi::plan::{Expr, ExprOp, Func, Plan, Step};
use tfc_kernel::Dim;
use tfc_kernel::dim::Atom;
use tfc_kernel::program::Program;

/// How hard to pack the text: the usual compromise.
const LEVEL: u8 = 6;

/// Everything of a program that computes, for each of these GPUs (as 80 for `sm_80`) and,
/// always, for the oldest that can run it. Two that would be the same are one.
pub fn table(program: &Program, archs: &[u32]) -> Result<Gpu, CodegenError> {
    let mut archs = archs.to_vec();
    archs.push(super::BASELINE.arch);
    if program.tf32 {
        archs.push(super::AMPERE.arch);
    }
    archs.sort_unstable();
    archs.dedup();
    let mut versions: Vec<GpuVersion> = vec![];
    for arch in archs {
        let compiled = super::compile(program, arch)?;
        let version = version(program, &compiled)?;
        if versions.iter().all(|v| v.text != version.text) {
            versions.push(version);
        }
    }
    versions.reverse();
    Ok(Gpu { versions })
}

fn version(program: &Program, compiled: &Compiled) -> Result<GpuVersion, CodegenError> {
    let (mut launched, mut called) = (BTreeSet::new(), BTreeMap::new());
    for entry in &program.plan.entries {
        let dtype = |b: &u32| entry.buffers.get(*b as usize).map_or(DType::I32, |b| b.dtype);
        walk(&entry.steps, &mut |step| match step {
            Step::Launch(l) => drop(launched.insert(l.kernel)),
            Step::Call(c) => {
                let of = |i: usize| c.bufs.get(i).map_or(DType::I32, dtype);
                called.insert((c.func as u8, of(0) as u8, of(1) as u8), (c.func, of(0), of(1)));
            }
            _ => {}
        });
    }
    let mut text: Vec<Entry> = vec![];
    let mut kernels = vec![];
    for (i, (kernel, entry)) in (0u32..).zip(program.kernels.iter().zip(&compiled.kernels)) {
        let used = launched.contains(&i);
        if used {
            text.push(entry.clone());
        }
        kernels.push(used.then(|| launch(&entry.launch, &kernel.dims)).transpose()?);
    }
    let dims: Vec<Arc<str>> = program.plan.dims.iter().map(|d| d.name.as_str().into()).collect();
    let mut contractions = vec![];
    let mut named = BTreeSet::new();
    for ((entry, product), c) in &compiled.contractions {
        for entry in &c.entries {
            if named.insert(&entry.launch.entry) {
                text.push(entry.clone());
            }
        }
        let launches = c.entries.iter().map(|e| launch(&e.launch, &dims));
        contractions.push(GpuContraction {
            entry: *entry,
            product: *product,
            launches: launches.collect::<Result<_, _>>()?,
            workspace: c.workspace.as_ref().map(|w| expr(w, &dims)).transpose()?,
        });
    }
    let mut routines = vec![];
    for (func, dtype, ids) in called.into_values() {
        let Some(kernel) = routine(func, dtype, ids) else { continue };
        let (mut entry, _) = super::kernel(&kernel)?;
        entry.launch.grid[1] = any_rows();
        let launch = launch(&entry.launch, &kernel.dims)?;
        routines.push(GpuRoutine { func, dtype, ids, launch });
        text.push(entry);
    }
    let Needs { version, arch } = text.iter().fold(super::BASELINE, |n, e| n.and(e.needs));
    let text = module(&text);
    Ok(GpuVersion {
        arch,
        ptx: version,
        text_len: text.len() as u64,
        text: miniz_oxide::deflate::compress_to_vec(text.as_bytes(), LEVEL),
        kernels,
        contractions,
        routines,
    })
}

/// The plan as the runtime carries it out with a GPU: copies are steps of it.
pub fn on_gpu(plan: &Plan) -> Plan {
    let runs = |entry: u32, step: &Step| {
        let Step::Call(c) = step else { return true };
        let buffers = plan.entries.get(entry as usize).map_or(&[][..], |e| &e.buffers);
        let dtype = |i: usize| {
            let buffer = c.bufs.get(i).and_then(|b| buffers.get(*b as usize));
            buffer.map_or(DType::I32, |b| b.dtype)
        };
        c.func == Func::Zero || routine(c.func, dtype(0), dtype(1)).is_some()
    };
    place(plan, 0, &runs).plan
}

fn walk(steps: &[Step], visit: &mut dyn FnMut(&Step)) {
    for step in steps {
        visit(step);
        match step {
            Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } => {
                walk(a, visit);
                walk(b, visit);
            }
            _ => {}
        }
    }
}

fn launch(launch: &Launch, dims: &[Arc<str>]) -> Result<GpuEntry, CodegenError> {
    Ok(GpuEntry {
        name: launch.entry.clone(),
        grid: launch.grid.iter().map(|d| expr(d, dims)).collect::<Result<_, _>>()?,
        block: launch.block,
    })
}

/// A size over these dims, in postfix.
fn expr(dim: &Dim, dims: &[Arc<str>]) -> Result<Expr, CodegenError> {
    let mut ops = vec![];
    write(dim, dims, &mut ops)?;
    Ok(Expr(ops))
}

fn write(dim: &Dim, dims: &[Arc<str>], out: &mut Vec<ExprOp>) -> Result<(), CodegenError> {
    let terms = dim.terms();
    if terms.is_empty() {
        out.push(ExprOp::Const(0));
    }
    for (i, (atoms, coefficient)) in terms.iter().enumerate() {
        out.push(ExprOp::Const(*coefficient));
        for atom in atoms {
            match atom {
                Atom::Sym(name) => {
                    let at = dims.iter().position(|d| d == name).ok_or_else(|| {
                        CodegenError::Program(format!("a launch depends on `{name}`"))
                    })?;
                    out.push(ExprOp::Dim(at as u32));
                }
                Atom::FloorDiv(d, by) => {
                    write(d, dims, out)?;
                    out.push(ExprOp::FloorDiv(*by));
                }
            }
            out.push(ExprOp::Mul);
        }
        if i > 0 {
            out.push(ExprOp::Add);
        }
    }
    Ok(())
}
