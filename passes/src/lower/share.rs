//! Kernels that differ by constants alone are one kernel.
//!
//! Every variable has its initialiser with a seed of its own, and every variable is
//! moved by the same optimizer: code for each would be most of what is generated.
//! Where kernels differ only by the values of constants, by how many iterations
//! their ranged loops have and by how long their buffers are, one of them stays. It
//! loads the constants from a small buffer behind the others and takes the sizes as
//! dims; neither is a cost in a loop, since bounds of ranged loops come from the
//! call anyway.
//!
//! Kernels that no step runs are dropped.
//!
//! Invariant: what the kernels compute stays the same to the bit.

use super::Build;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tfc_abi::plan::{Buffer, Entry, Expr, ExprId, ExprOp, Home, Launch, Step};
use tfc_ir::kernel::{Ix, Kernel, KernelBuf, Scalar, ScalarType, Stmt};
use tfc_ir::{DType, Dim, Tensor};

/// What a launch of a merged kernel passes besides: constants by type, and sizes.
#[derive(Clone, Default)]
struct Extra {
    consts: Vec<u32>,
    dims: Vec<i64>,
}

pub(crate) fn share(build: &mut Build, entries: &mut [Entry]) {
    let mut epilogues = BTreeSet::new();
    let mut used = BTreeSet::new();
    for entry in entries.iter_mut() {
        visit(&mut entry.steps, &mut |step| match step {
            Step::Launch(l) => {
                used.insert(l.kernel);
            }
            step => epilogues.extend(epilogue(step).map(|k| *k)),
        });
    }
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for id in used.difference(&epilogues) {
        let kernel = &build.kernels[*id as usize];
        // Local buffers are numbered behind the others, which become more here.
        if kernel.locals.is_empty() {
            groups.entry(skeleton(kernel)).or_default().push(*id);
        }
    }
    let mut merged: BTreeMap<u32, (u32, Extra)> = BTreeMap::new();
    for ids in groups.into_values().filter(|ids| ids.len() > 1) {
        merge(build, &ids, &mut merged);
    }
    let kept: BTreeSet<u32> = used
        .iter()
        .filter(|id| merged.get(id).is_none_or(|(into, _)| into == *id))
        .chain(&epilogues)
        .copied()
        .collect();
    let number: BTreeMap<u32, u32> = kept.iter().zip(0..).map(|(old, new)| (*old, new)).collect();
    for entry in entries.iter_mut() {
        let mut steps = std::mem::take(&mut entry.steps);
        visit(&mut steps, &mut |step| {
            if let Step::Launch(l) = step {
                if let Some((into, extra)) = merged.get(&l.kernel) {
                    l.kernel = *into;
                    pass(build, extra, l, entry);
                }
                l.kernel = number[&l.kernel];
            } else if let Some(kernel) = epilogue(step) {
                *kernel = number[kernel];
            }
        });
        entry.steps = steps;
    }
    for contraction in build.contractions.values_mut() {
        if let Some(e) = &mut contraction.epilogue {
            e.kernel = number[&e.kernel];
        }
    }
    let mut at = 0..;
    build.kernels.retain(|_| at.next().is_some_and(|i| kept.contains(&i)));
}

/// Every step, those of branches and loops too.
fn visit(steps: &mut [Step], f: &mut dyn FnMut(&mut Step)) {
    for step in steps {
        match step {
            Step::If { then, otherwise, .. } => {
                visit(then, f);
                visit(otherwise, f);
            }
            Step::While { head, body, .. } => {
                visit(head, f);
                visit(body, f);
            }
            other => f(other),
        }
    }
}

fn epilogue(step: &mut Step) -> Option<&mut u32> {
    let epilogue = match step {
        Step::MatMul(m) => &mut m.epilogue,
        Step::Conv(c) => &mut c.epilogue,
        _ => return None,
    };
    epilogue.as_mut().map(|e| &mut e.kernel)
}

/// The places in a kernel where constants are that may differ.
fn slots(kernel: &mut Kernel, f: &mut dyn FnMut(Slot<'_>)) {
    for buf in &mut kernel.bufs {
        f(Slot::Size(&mut buf.len));
    }
    stmt_slots(&mut kernel.body, f);
}

enum Slot<'a> {
    Size(&'a mut Dim),
    Const(&'a mut Stmt),
}

fn stmt_slots(stmts: &mut [Stmt], f: &mut dyn FnMut(Slot<'_>)) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => {
                if l.ranged {
                    f(Slot::Size(&mut l.extent));
                }
                stmt_slots(&mut l.body, f);
            }
            Stmt::Const { value, .. } if value.ty() != ScalarType::Bool => f(Slot::Const(stmt)),
            _ => {}
        }
    }
}

/// The kernel as text, without what may differ.
fn skeleton(kernel: &Kernel) -> String {
    let mut kernel = kernel.clone();
    kernel.name.clear();
    slots(&mut kernel, &mut |slot| match slot {
        Slot::Size(dim) if dim.as_const().is_some() => *dim = Dim::constant(0),
        Slot::Size(_) => {}
        Slot::Const(stmt) => {
            if let Stmt::Const { value, .. } = stmt {
                *value = Scalar::of(value.ty(), 0.0);
            }
        }
    });
    format!("{kernel:?}")
}

/// Makes the first of these kernels serve for all.
fn merge(build: &mut Build, ids: &[u32], merged: &mut BTreeMap<u32, (u32, Extra)>) {
    // By slot, the values the kernels have.
    let mut sizes: Vec<Vec<Option<i64>>> = vec![];
    let mut consts: Vec<Vec<Scalar>> = vec![];
    for id in ids {
        let (mut s, mut c) = (vec![], vec![]);
        slots(&mut build.kernels[*id as usize].clone(), &mut |slot| match slot {
            Slot::Size(dim) => s.push(dim.as_const()),
            Slot::Const(Stmt::Const { value, .. }) => c.push(*value),
            Slot::Const(_) => {}
        });
        sizes.push(s);
        consts.push(c);
    }
    let across = |i: usize| -> Vec<Scalar> { consts.iter().map(|c| c[i]).collect() };
    let lengths = |i: usize| -> Vec<Option<i64>> { sizes.iter().map(|s| s[i]).collect() };
    // Slots that differ alike are one parameter.
    let mut size_params: Vec<Vec<Option<i64>>> = vec![];
    let mut const_params: BTreeMap<ScalarType, Vec<Vec<Scalar>>> = BTreeMap::new();
    for i in 0..sizes[0].len() {
        let values = lengths(i);
        if values.iter().any(|v| *v != values[0]) && !size_params.contains(&values) {
            size_params.push(values);
        }
    }
    for i in 0..consts[0].len() {
        let values = across(i);
        let of = const_params.entry(values[0].ty()).or_default();
        if values.iter().any(|v| *v != values[0]) && !of.contains(&values) {
            of.push(values);
        }
    }
    const_params.retain(|_, values| !values.is_empty());
    let mut kernel = build.kernels[ids[0] as usize].clone();
    let first = kernel.bufs.len() as u32;
    let buffer_of = |ty: ScalarType| match const_params.keys().position(|t| *t == ty) {
        Some(at) => first + at as u32,
        None => unreachable!("no {ty:?} is passed to the shared kernel"),
    };
    let (mut size, mut constant) = (0, 0);
    slots(&mut kernel, &mut |slot| match slot {
        Slot::Size(dim) => {
            let values = lengths(size);
            size += 1;
            if let Some(at) = size_params.iter().position(|p| *p == values) {
                *dim = Dim::sym(&size_name(at));
            }
        }
        Slot::Const(stmt) => {
            let values = across(constant);
            constant += 1;
            let ty = values[0].ty();
            let at = const_params.get(&ty).and_then(|of| of.iter().position(|p| *p == values));
            if let (Some(at), Stmt::Const { dst, .. }) = (at, &*stmt) {
                let at = Ix::constant(at as i64);
                *stmt = Stmt::Load { dst: *dst, buf: buffer_of(ty), at };
            }
        }
    });
    for (ty, values) in &const_params {
        let len = Dim::constant(values.len() as i64);
        kernel.bufs.push(KernelBuf::new(dtype(*ty), len, false));
    }
    kernel.dims.extend((0..size_params.len()).map(size_name));
    build.kernels[ids[0] as usize] = kernel;
    for (k, id) in ids.iter().enumerate() {
        let consts = const_params
            .iter()
            .map(|(ty, params)| {
                let bytes: Vec<u8> = params.iter().flat_map(|p| bytes(p[k])).collect();
                let tensor = Tensor::from_bytes(dtype(*ty), vec![params.len()], bytes.into());
                let Some(tensor) = tensor else {
                    unreachable!("constants have the bytes they need")
                };
                build.tensor(&Arc::new(tensor))
            })
            .collect();
        let dims = size_params.iter().filter_map(|p| p[k]).collect();
        merged.insert(*id, (ids[0], Extra { consts, dims }));
    }
}

/// No dim of a graph has such a name.
fn size_name(i: usize) -> Arc<str> {
    format!("#{i}").into()
}

fn dtype(ty: ScalarType) -> DType {
    match ty {
        ScalarType::F32 => DType::F32,
        ScalarType::F64 => DType::F64,
        ScalarType::I32 => DType::I32,
        ScalarType::I64 => DType::I64,
        ScalarType::Bool => DType::Bool,
    }
}

fn bytes(value: Scalar) -> Vec<u8> {
    match value {
        Scalar::F32(bits) => bits.to_le_bytes().to_vec(),
        Scalar::F64(bits) => bits.to_le_bytes().to_vec(),
        Scalar::I32(v) => v.to_le_bytes().to_vec(),
        Scalar::I64(v) => v.to_le_bytes().to_vec(),
        Scalar::Bool(v) => vec![u8::from(v)],
    }
}

/// Adds what a merged kernel takes to a launch.
fn pass(build: &Build, extra: &Extra, launch: &mut Launch, entry: &mut Entry) {
    for id in &extra.consts {
        let info = &build.consts[*id as usize];
        let (home, dtype) = (Home::Const(*id), info.dtype);
        let len = number(entry, info.shape.iter().product());
        let known = entry.buffers.iter().position(|b| b.home == home);
        let buf = known.unwrap_or_else(|| {
            let device = tfc_abi::plan::HOST;
            entry.buffers.push(Buffer { dtype, len, shape: vec![len], home, device });
            entry.buffers.len() - 1
        });
        launch.bufs.push(buf as u32);
    }
    for size in &extra.dims {
        let size = number(entry, *size);
        launch.dims.push(size);
    }
}

/// A number as an expression.
fn number(entry: &mut Entry, n: i64) -> ExprId {
    let expr = Expr(vec![ExprOp::Const(n)]);
    let known = entry.exprs.iter().position(|e| *e == expr);
    known.unwrap_or_else(|| {
        entry.exprs.push(expr);
        entry.exprs.len() - 1
    }) as ExprId
}
