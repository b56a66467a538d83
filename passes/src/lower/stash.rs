//! Elementary functions that several loops over a row would compute are
//! computed once.
//!
//! A row kernel runs loops over the same elements one after the other: softmax
//! sums exponentials in one and divides them in the next. Fusion repeats what the
//! loops share, which is right for what is cheap. Where it is not, the first loop
//! leaves the value in a local buffer and those after it load it from there. The
//! buffer's home is where the last loop will store its result: a CPU keeps the row
//! there, in cache, without memory of its own. What is to be stored as it is, the
//! first loop stores in the result itself.
//!
//! Invariant: the home is stored to by one loop only, loaded by none, serves one
//! local buffer, and holds the value with all its bits.

use cranelift_entity::PrimaryMap;
use std::collections::BTreeMap;
use tfc_ir::DType;
use tfc_ir::kernel::{Home, Ix, Kernel, Local, Loop, LoopVar, Reg, ScalarType, Stmt};

/// What computing a value must cost to be worth a store and a load.
const WORTH: u32 = 16;

/// Returns whether anything changed.
pub(crate) fn stash(kernel: &mut Kernel) -> bool {
    let mut body = std::mem::take(&mut kernel.body);
    let mut changed = false;
    // A buffer serves once, so this ends.
    while let Some(places) = places(&body, kernel)
        && stash_in(&mut body, &places, None, kernel)
    {
        changed = true;
    }
    kernel.body = body;
    changed
}

/// Type of what each buffer can hold for a while; none for buffers that cannot.
type Places = Vec<Option<ScalarType>>;

fn places(body: &[Stmt], kernel: &Kernel) -> Option<Places> {
    let mut touched = vec![(0, 0); kernel.bufs.len()];
    count(body, &mut touched);
    for local in &kernel.locals {
        touched[local.home.buf as usize].0 += 1;
    }
    let places: Places = kernel
        .bufs
        .iter()
        .zip(touched)
        .map(|(buf, (loads, stores))| {
            let whole = matches!(buf.dtype, DType::F32 | DType::F64);
            (whole && loads == 0 && stores == 1).then(|| ScalarType::of(buf.dtype))
        })
        .collect();
    places.iter().any(Option::is_some).then_some(places)
}

/// Loads from and stores to each buffer.
fn count(stmts: &[Stmt], touched: &mut [(u32, u32)]) {
    for s in stmts {
        match s {
            Stmt::Load { buf, .. } => {
                touched.get_mut(*buf as usize).into_iter().for_each(|t| t.0 += 1);
            }
            Stmt::Store { buf, .. } => {
                touched.get_mut(*buf as usize).into_iter().for_each(|t| t.1 += 1);
            }
            Stmt::Loop(l) => count(&l.body, touched),
            _ => {}
        }
    }
}

/// `within` is the loop around the statements.
fn stash_in(
    stmts: &mut [Stmt],
    places: &Places,
    within: Option<LoopVar>,
    kernel: &mut Kernel,
) -> bool {
    for last in (1..stmts.len()).rev() {
        for first in 0..last {
            if let Some(found) = find(&stmts[first], &stmts[last], places, &kernel.regs) {
                apply(&mut stmts[first..=last], &found, within, kernel);
                return true;
            }
        }
    }
    stmts.iter_mut().any(|s| match s {
        Stmt::Loop(l) => stash_in(&mut l.body, places, Some(l.var), kernel),
        _ => false,
    })
}

struct Found {
    /// What is computed, as both loops spell it.
    key: String,
    buf: u32,
    /// Where the last loop stores, and its variable.
    at: Ix,
    last: Loop,
    /// Whether it is the very value that the last loop stores.
    is_result: bool,
}

/// A loop without loops in it that runs in full.
fn leaf(stmt: &Stmt) -> Option<&Loop> {
    match stmt {
        Stmt::Loop(l) if !l.ranged && !l.body.iter().any(|s| matches!(s, Stmt::Loop(_))) => Some(l),
        _ => None,
    }
}

/// The dearest value both loops compute that the second's result can make room
/// for.
fn find(
    first: &Stmt,
    last: &Stmt,
    places: &Places,
    regs: &PrimaryMap<Reg, ScalarType>,
) -> Option<Found> {
    let (first, last) = (leaf(first)?, leaf(last)?);
    if first.extent != last.extent {
        return None;
    }
    let earlier = keys(first);
    let later = keys(last);
    let mut best: Option<((u32, bool), Found)> = None;
    for (i, s) in last.body.iter().enumerate() {
        let Stmt::Store { buf, at, value: result } = s else { continue };
        let plain = at.regs.is_empty() && !at.stride(last.var).is_zero();
        // A local buffer has been given to a value already.
        let place = places.get(*buf as usize).copied().flatten();
        let Some(held) = place.filter(|_| plain) else { continue };
        for value in later.iter().filter(|v| v.at < i && regs[v.reg] == held) {
            let shared = earlier.iter().any(|e| e.key == value.key);
            // Best of all where the value itself is to be stored.
            let is_result = value.reg == *result;
            let rank = (value.cost, is_result);
            if shared && value.cost >= WORTH && best.as_ref().is_none_or(|b| b.0 < rank) {
                let (key, at, last) = (value.key.clone(), at.clone(), last.clone());
                best = Some((rank, Found { key, buf: *buf, at, last, is_result }));
            }
        }
    }
    best.map(|b| b.1)
}

struct Value {
    reg: Reg,
    /// Position in the body.
    at: usize,
    key: String,
    /// Of everything computed for it in the loop.
    cost: u32,
}

/// What the operations of a loop compute, spelled out so that equal text is an
/// equal value: the loop's own variable has no name.
fn keys(l: &Loop) -> Vec<Value> {
    let mut known: BTreeMap<Reg, (String, u32)> = BTreeMap::new();
    let mut out = vec![];
    for (at, s) in l.body.iter().enumerate() {
        let name = |r: &Reg| known.get(r).map_or_else(|| format!("{r:?}"), |k| k.0.clone());
        let index = |ix: &Ix| {
            let terms: Vec<String> = ix
                .terms
                .iter()
                .map(|(v, s)| if *v == l.var { format!("i*{s}") } else { format!("{v:?}*{s}") })
                .collect();
            let regs: Vec<String> =
                ix.regs.iter().map(|(r, s)| format!("{}*{s}", name(r))).collect();
            format!("[{} {terms:?} {regs:?}]", ix.offset)
        };
        match s {
            Stmt::Const { dst, value } => {
                known.insert(*dst, (format!("{value:?}"), 0));
            }
            Stmt::Load { dst, buf, at } => {
                known.insert(*dst, (format!("b{buf}{}", index(at)), 1));
            }
            Stmt::Index { dst, ix } => {
                known.insert(*dst, (index(ix), 1));
            }
            Stmt::Op { dst, op, args } => {
                let key =
                    format!("{op:?}({})", args.iter().map(name).collect::<Vec<_>>().join(","));
                let below: u32 = args.iter().filter_map(|a| known.get(a)).map(|k| k.1).sum();
                let cost = below + op.cost();
                known.insert(*dst, (key.clone(), cost));
                out.push(Value { reg: *dst, at, key, cost });
            }
            Stmt::Store { .. } | Stmt::Loop(_) => {}
        }
    }
    out
}

/// The first loop stores the value, those after it load it.
fn apply(stmts: &mut [Stmt], found: &Found, within: Option<LoopVar>, kernel: &mut Kernel) {
    let last = found.last.var;
    let (buf, place) = if found.is_result {
        (found.buf, found.at.clone())
    } else {
        let mut base = found.at.clone();
        base.terms.retain(|(v, _)| *v != last);
        kernel.locals.push(Local {
            dtype: kernel.bufs[found.buf as usize].dtype,
            len: found.last.extent.clone(),
            within,
            home: Home { buf: found.buf, base, stride: found.at.stride(last) },
        });
        ((kernel.bufs.len() + kernel.locals.len() - 1) as u32, Ix::var(last))
    };
    let mut stored = false;
    for s in stmts {
        let Some(l) = leaf(s).filter(|l| l.extent == found.last.extent) else { continue };
        let Some(value) = keys(l).into_iter().find(|v| v.key == found.key) else { continue };
        let var = l.var;
        let mut at = place.clone();
        for (v, _) in at.terms.iter_mut().filter(|(v, _)| *v == last) {
            *v = var;
        }
        let Stmt::Loop(l) = s else { continue };
        if stored {
            l.body[value.at] = Stmt::Load { dst: value.reg, buf, at };
            // Where it was to be stored anyway, it is already.
            let result = |s: &Stmt| matches!(s, Stmt::Store { buf: b, value: v, .. } if *b == buf && *v == value.reg);
            l.body.retain(|s| !result(s));
        } else {
            stored = true;
            l.body.insert(value.at + 1, Stmt::Store { buf, at, value: value.reg });
        }
    }
}
