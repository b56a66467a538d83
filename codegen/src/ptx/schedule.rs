//! Which loops of a kernel are threads.
//!
//! A kernel starts with a nest of parallel loops, possibly empty. Each iteration
//! of the nest is one of these:
//! - a thread's own work, alone or with its three neighbours ([`Shape::Map`]):
//!   elementwise kernels, sums over columns, scans, pooling, gathers;
//! - the work of a team of threads ([`Shape::Rows`]), where the body has loops that
//!   threads can share: softmax, normalisation, sums and largest elements along rows. A
//!   reduction with
//!   partial results has 16 of them. A team of 16 threads keeps one in each; where rows
//!   are long the team is a block, which computes the terms together and leaves their
//!   sums to its first 16 threads. Either way the sum has the CPU's bits;
//! - an element of a tile that a block turns in shared memory ([`Shape::Turn`]):
//!   transposes.
//!
//! Invariant: the schedule depends on the kernel alone, so the same kernel always
//! gives the same sums.

use super::Launch;
use super::best::best;
use super::keep::keep;
use super::scan::scan;
use std::fmt;
use tfc_kernel::{
    Carried, Dim, Ix, Kernel, Loop, LoopKind, LoopVar, PARTIALS, Reg, ScalarOp, Stmt,
};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Threads that share a row: one for each partial result.
pub const TEAM: u32 = PARTIALS as u32;
/// Threads of a block that is made of teams: few, so that few rows are many blocks.
const TEAMS: u32 = 64;
/// Terms of a sum that are in shared memory at once, where the team is a block.
pub const CHUNK: u32 = 1024;
/// Rows from which on a team is a block.
const LONG: i64 = 512;
/// Neighbouring iterations one thread takes, in 16 bytes of f32.
pub const LANES: u32 = 4;
/// Rows and columns of a tile that is turned.
pub const TURN: u32 = 32;

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A thread for each iteration of the nest, or for `lanes` neighbouring ones.
    Map { lanes: u32 },
    /// A team of so many threads for each iteration of the nest: [`TEAM`] or [`BLOCK`].
    Rows { team: u32 },
    /// A block for each tile of the two innermost loops of the nest. The loads, by
    /// their place among the loads of the body, go through shared memory.
    Turn { loads: Vec<usize> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub kernel: String,
    pub shape: Shape,
    /// Loops of the nest, outermost first.
    pub nest: Vec<(LoopVar, Dim)>,
    /// Whether rows stay in registers; see [`super::keep`].
    pub kept: bool,
    /// The other loops: variable, extent, how deep, and what becomes of it.
    pub inner: Vec<(LoopVar, Dim, usize, &'static str)>,
    pub launch: Launch,
}

/// The name of a kernel's entry.
pub fn entry_name(kernel: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("tfc_{}", kernel.chars().map(plain).collect::<String>())
}

/// The loops of the nest, outermost first.
pub(super) fn nest(kernel: &Kernel) -> Vec<&Loop> {
    let mut out = vec![];
    let mut body = &kernel.body;
    while let Some(l) = next(body) {
        body = &l.body;
        out.push(l);
    }
    out
}

/// The one parallel loop that a body ends with, if all before it can be done by each
/// thread again.
fn next(body: &[Stmt]) -> Option<&Loop> {
    let (Stmt::Loop(l), before) = body.split_last()? else { return None };
    let pure = before.iter().all(|s| !matches!(s, Stmt::Loop(_) | Stmt::Store { .. }));
    (pure && l.kind == LoopKind::Parallel).then_some(l)
}

pub fn choose(kernel: &Kernel) -> Schedule {
    let nest = nest(kernel);
    let body = nest.last().map_or(&kernel.body, |l| &l.body);
    let shared = nest.is_empty() && body.iter().any(|s| matches!(s, Stmt::Loop(_)));
    let shape = if shares(body) || shared {
        let long = nest.is_empty() || longest(body) >= LONG;
        Shape::Rows { team: if long && staged(body) { BLOCK } else { TEAM } }
    } else if let Some(loads) = turned(kernel, &nest) {
        Shape::Turn { loads }
    } else if vectorises(&nest) {
        Shape::Map { lanes: LANES }
    } else {
        Shape::Map { lanes: 1 }
    };
    let extents: Vec<Dim> = nest.iter().map(|l| l.extent.clone()).collect();
    let total = Dim::product(&extents);
    let one = || Dim::constant(1);
    let grid = match &shape {
        Shape::Map { lanes } => {
            [total.ceil_div(i64::from(*lanes)).ceil_div(i64::from(BLOCK)), one(), one()]
        }
        Shape::Rows { team: TEAM } => [total.ceil_div(i64::from(TEAMS / TEAM)), one(), one()],
        Shape::Rows { .. } => [total.clone(), one(), one()],
        Shape::Turn { .. } => {
            let [outer @ .., a, b] = extents.as_slice() else { unreachable!("a nest of two") };
            let tiles = |d: &Dim| d.ceil_div(i64::from(TURN));
            [Dim::product(outer) * tiles(a) * tiles(b), one(), one()]
        }
    };
    let mut inner = vec![];
    let team = match shape {
        Shape::Rows { team } => team,
        _ => 0,
    };
    describe(body, nest.len() + 1, team, &mut inner);
    let block = if team == TEAM { TEAMS } else { BLOCK };
    let kept = team > 0 && keep(kernel, body, team).is_some();
    Schedule {
        kept,
        kernel: kernel.name.clone(),
        shape,
        nest: nest.iter().map(|l| (l.var, l.extent.clone())).collect(),
        inner,
        launch: Launch { entry: entry_name(&kernel.name), grid, block, shared: 0 },
    }
}

/// Whether a team of threads has something to share in this body: a reduction with
/// partial results, a parallel loop, a scan, or a loop that looks for the best element.
pub(super) fn shares(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Loop(l) => is_shared(l) || (!in_order(l) && shares(&l.body)),
        _ => false,
    })
}

/// Whether iterations of the loop itself are spread over a team.
pub(super) fn is_shared(l: &Loop) -> bool {
    match l.kind {
        LoopKind::Reduce { partials } => partials,
        LoopKind::Parallel => !shares(&l.body),
        LoopKind::Sequential => best(l).is_some(),
        LoopKind::Scan => scan(l).is_some(),
    }
}

/// The longest of the loops a team shares, at least.
fn longest(body: &[Stmt]) -> i64 {
    let of = |s: &Stmt| match s {
        Stmt::Loop(l) if is_shared(l) => l.extent.eval(&|_| Some(1)).unwrap_or(0),
        Stmt::Loop(l) => longest(&l.body),
        _ => 0,
    };
    body.iter().map(of).max().unwrap_or(0)
}

/// What a carried value is combined with, and how: the statement that makes the next one.
pub(super) fn combination<'a>(l: &'a Loop, c: &Carried) -> Option<(ScalarOp, &'a [Reg])> {
    l.body.iter().find_map(|s| match s {
        Stmt::Op { dst, op, args } if *dst == c.next => Some((*op, args.as_slice())),
        _ => None,
    })
}

/// Whether the terms of every sum can be left in shared memory for others to add, and
/// fit there.
fn staged(body: &[Stmt]) -> bool {
    body.iter().all(|s| {
        let Stmt::Loop(l) = s else { return true };
        if l.kind == LoopKind::Scan && is_shared(l) {
            return false;
        }
        if l.kind != (LoopKind::Reduce { partials: true }) {
            return staged(&l.body);
        }
        let mut terms = 0;
        for c in &l.carried {
            match combination(l, c) {
                Some((_, args)) if !l.body.iter().any(|s| looks_at(s, c.next)) => {
                    terms += args.len() - 1;
                }
                _ => return false,
            }
        }
        terms <= 4
    })
}

/// Whether a statement that is no loop uses a register.
fn looks_at(s: &Stmt, reg: Reg) -> bool {
    let ix = |ix: &Ix| ix.regs.iter().any(|(r, _)| *r == reg);
    match s {
        Stmt::Const { .. } => false,
        Stmt::Op { args, .. } => args.contains(&reg),
        Stmt::Index { ix: at, .. } | Stmt::Load { at, .. } => ix(at),
        Stmt::Store { at, value, .. } => ix(at) || *value == reg,
        Stmt::Loop(_) => true,
    }
}

fn in_order(l: &Loop) -> bool {
    matches!(l.kind, LoopKind::Scan | LoopKind::Sequential)
}

fn describe(
    body: &[Stmt],
    depth: usize,
    team: u32,
    out: &mut Vec<(LoopVar, Dim, usize, &'static str)>,
) {
    for stmt in body {
        let Stmt::Loop(l) = stmt else { continue };
        let spread = team > 0 && is_shared(l);
        let what = match (spread, l.kind) {
            (true, LoopKind::Parallel) => "spread over the team",
            (true, LoopKind::Scan) => {
                "terms spread over the team, combined in order by each thread"
            }
            (true, LoopKind::Sequential) => "the best of each thread, then shuffles",
            (true, _) if team == TEAM => "a partial result in each thread, then shuffles",
            (true, _) => "terms spread over the team, partial results in 16 threads",
            (false, LoopKind::Reduce { partials: true }) => "in order, 16 partial results",
            (false, _) => "in order",
        };
        out.push((l.var, l.extent.clone(), depth, what));
        describe(&l.body, depth + 1, if spread { 0 } else { team }, out);
    }
}

/// Whether a thread can take neighbouring iterations of the innermost loop with one
/// access: a leaf that stores side by side, in groups that no row ends in.
fn vectorises(nest: &[&Loop]) -> bool {
    let Some(l) = nest.last() else { return false };
    let whole = nest.len() == 1 || l.extent.as_const().is_some_and(|n| n % i64::from(LANES) == 0);
    whole
        && l.body.iter().all(|s| match s {
            Stmt::Loop(_) => false,
            Stmt::Store { at, .. } => wide(at, l.var),
            _ => true,
        })
}

/// Whether `LANES` iterations of `var` are side by side and start at a multiple of
/// `LANES`.
pub(super) fn wide(at: &Ix, var: LoopVar) -> bool {
    let multiple = |d: &Dim| d.div_exact(&Dim::constant(i64::from(LANES))).is_some();
    at.stride(var).is_one()
        && multiple(&at.offset)
        && at.terms.iter().all(|(v, s)| *v == var || multiple(s))
        && at.regs.iter().all(|(_, s)| multiple(s))
}

/// Loads of a plain nest of two or more loops that read side by side along the last
/// loop but one, while stores are side by side along the last.
fn turned(kernel: &Kernel, nest: &[&Loop]) -> Option<Vec<usize>> {
    let [.., a, b] = nest else { return None };
    let plain = nest.iter().all(|l| {
        let last = l.var == b.var;
        l.body.iter().all(|s| match s {
            Stmt::Loop(_) => !last,
            Stmt::Store { at, .. } => last && at.stride(b.var).is_one(),
            Stmt::Load { .. } => last,
            _ => true,
        })
    });
    let small = |l: &Loop| l.extent.as_const().is_some_and(|n| n < 8);
    if !plain || small(a) || small(b) {
        return None;
    }
    let loads: Vec<usize> = b
        .body
        .iter()
        .filter_map(|s| match s {
            Stmt::Load { buf, at, .. } => Some((*buf, at)),
            _ => None,
        })
        .enumerate()
        .filter(|(_, (buf, at))| {
            let far = at.stride(b.var);
            at.stride(a.var).is_one()
                && !far.is_zero()
                && !far.is_one()
                && at.regs.is_empty()
                && !kernel.bufs[*buf as usize].written
        })
        .map(|(i, _)| i)
        .collect();
    (!loads.is_empty() && loads.len() <= 4).then_some(loads)
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.kernel, self.launch)?;
        let nest: Vec<String> = self.nest.iter().map(|(v, d)| format!("{v} of {d}")).collect();
        let nest = if nest.is_empty() { "once".into() } else { nest.join(", ") };
        match &self.shape {
            Shape::Map { lanes: 1 } => writeln!(f, "  {nest}: a thread each")?,
            Shape::Map { lanes } => writeln!(f, "  {nest}: a thread for {lanes} neighbours")?,
            Shape::Rows { team } => {
                let kept = if self.kept { ", rows in registers" } else { "" };
                writeln!(f, "  {nest}: a team of {team} threads each{kept}")?;
            }
            Shape::Turn { loads } => writeln!(
                f,
                "  {nest}: tiles of {TURN} x {TURN}, {} turned in shared memory",
                if loads.len() == 1 { "one load".into() } else { format!("{} loads", loads.len()) }
            )?,
        }
        for (var, extent, depth, what) in &self.inner {
            writeln!(f, "{:1$}{var} of {extent}: {what}", "", 2 * depth)?;
        }
        Ok(())
    }
}
