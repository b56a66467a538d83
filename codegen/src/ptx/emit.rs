//! A scheduled kernel as an entry.
//!
//! Invariants
//! - A register of the kernel is one register, or one for each of the neighbouring
//!   iterations (lanes) a thread runs.
//! - Sizes are computed at entry, before anything that may be skipped.

use super::func::{Class, Func, V};
use super::keep::Kept;
use super::rows::Team;
use super::schedule::{self, BLOCK, LANES, Schedule, Shape, TURN};
use super::{Entry, memory};
use std::collections::{BTreeMap, BTreeSet};
use tfc_kernel::{Carried, Dim, Ix, Kernel, Loop, LoopKind, LoopVar, PARTIALS, Reg, Scalar, Stmt};

pub(super) struct Emit<'a> {
    pub f: Func,
    pub kernel: &'a Kernel,
    pub bufs: Vec<V>,
    /// Sizes that are in a register.
    pub dims: BTreeMap<Dim, V>,
    pub regs: BTreeMap<Reg, Vec<V>>,
    /// Registers that are constants.
    pub known: BTreeMap<Reg, Scalar>,
    /// Loop variables; the first lane's of `lane_var`.
    pub vars: BTreeMap<LoopVar, V>,
    pub lanes: usize,
    pub lane_var: Option<LoopVar>,
    /// Stores are done where this holds.
    pub guard: Option<V>,
    pub team: Option<Team>,
    /// Threads of a block.
    pub threads: u32,
    /// Values of loads that do not come from their buffer, by the register loaded.
    pub loaded: BTreeMap<Reg, V>,
    /// What is kept of a row, if anything.
    pub kept: Option<Kept>,
    /// The iteration of a loop that is written out: its variable, what is added to it, and
    /// how many came before.
    pub round: Option<(LoopVar, i64, usize)>,
    /// Elements that are kept, by place and iteration.
    pub elements: BTreeMap<(usize, usize), V>,
    /// Approximate instructions will do.
    pub fast: bool,
}

/// Starts an entry: parameters in registers, sizes computed.
pub(super) fn start<'a>(kernel: &'a Kernel, more: &[Dim]) -> Emit<'a> {
    let mut f = Func::new();
    let bufs = (0..kernel.bufs.len())
        .map(|i| f.op(Class::B64, "ld.param.u64", &[&format!("[b{i}]")]))
        .collect();
    let dims = kernel
        .dims
        .iter()
        .enumerate()
        .map(|(i, name)| (Dim::sym(name), f.op(Class::B64, "ld.param.s64", &[&format!("[d{i}]")])))
        .collect();
    let mut e = Emit {
        f,
        kernel,
        bufs,
        dims,
        regs: BTreeMap::new(),
        known: BTreeMap::new(),
        vars: BTreeMap::new(),
        lanes: 1,
        lane_var: None,
        guard: None,
        team: None,
        threads: BLOCK,
        loaded: BTreeMap::new(),
        kept: None,
        round: None,
        elements: BTreeMap::new(),
        fast: false,
    };
    let mut sizes: BTreeSet<Dim> = more.iter().cloned().collect();
    collect_sizes(&kernel.body, &mut sizes);
    for dim in sizes {
        if dim.as_const().is_none() {
            e.dim(&dim);
        }
    }
    e
}

/// Names and types of an entry's parameters.
pub(super) fn params(kernel: &Kernel) -> Vec<(String, &'static str)> {
    let bufs = (0..kernel.bufs.len()).map(|i| (format!("b{i}"), "u64"));
    let dims = (0..kernel.dims.len()).map(|i| (format!("d{i}"), "s64"));
    bufs.chain(dims).collect()
}

fn collect_sizes(stmts: &[Stmt], out: &mut BTreeSet<Dim>) {
    for stmt in stmts {
        match stmt {
            Stmt::Index { ix, .. } | Stmt::Load { at: ix, .. } | Stmt::Store { at: ix, .. } => {
                out.insert(ix.offset.clone());
                out.extend(ix.terms.iter().map(|(_, d)| d.clone()));
                out.extend(ix.regs.iter().map(|(_, d)| d.clone()));
            }
            Stmt::Loop(l) => {
                out.insert(l.extent.clone());
                collect_sizes(&l.body, out);
            }
            Stmt::Const { .. } | Stmt::Op { .. } => {}
        }
    }
}

/// The entry of a kernel that is verified and has its elementary functions expanded, but
/// for those that have an instruction if it is to be `fast`.
pub(super) fn entry(kernel: &Kernel, schedule: &Schedule, fast: bool) -> Entry {
    let nest = schedule::nest(kernel);
    let extents: Vec<Dim> = nest.iter().map(|l| l.extent.clone()).collect();
    let total = Dim::product(&extents);
    let tiles = |l: &&Loop| l.extent.ceil_div(i64::from(TURN));
    let mut more = vec![total.clone()];
    if matches!(schedule.shape, Shape::Turn { .. }) {
        more.extend(nest.iter().map(tiles));
    }
    let mut e = start(kernel, &more);
    e.threads = schedule.launch.block;
    e.fast = fast;
    match &schedule.shape {
        Shape::Map { lanes } => e.map(&nest, &total, *lanes),
        Shape::Rows { team } => e.rows(&nest, &total, *team),
        Shape::Turn { loads } => e.turn(&nest, loads),
    }
    e.f.finish(&schedule.launch.entry, &params(kernel), schedule.launch.clone())
}

impl Emit<'_> {
    pub(super) fn lane(&self, reg: Reg, lane: usize) -> V {
        let v = &self.regs[&reg];
        v[lane % v.len()]
    }

    /// The number of the thread in the grid.
    pub(super) fn thread(&mut self) -> V {
        let block = self.f.special("%ctaid.x");
        let tid = self.f.special("%tid.x");
        let tid = self.f.op(Class::B64, "cvt.u64.u32", &[&tid]);
        self.f.op(Class::B64, "mad.wide.u32", &[&block, &self.threads, &tid])
    }

    pub(super) fn leave_unless_below(&mut self, i: V, total: &Dim) {
        let total = self.dim(total);
        let past = self.f.op(Class::Pred, "setp.ge.s64", &[&i, &total]);
        self.f.line(format_args!("@{past} ret"));
    }

    /// The loop variables of a nest from the number of its iteration.
    pub(super) fn decode(&mut self, nest: &[&Loop], number: V) {
        let mut rest = number;
        for (i, l) in nest.iter().enumerate().rev() {
            let var = if i == 0 { rest } else { self.remainder(&mut rest, &l.extent) };
            self.vars.insert(l.var, var);
        }
    }

    /// The remainder by a size; `rest` becomes the quotient.
    fn remainder(&mut self, rest: &mut V, size: &Dim) -> V {
        let by = match size.as_const() {
            Some(c) => c.to_string(),
            None => self.dim(size).to_string(),
        };
        let quotient = self.f.op(Class::B64, "div.u64", &[rest, &by]);
        let back = self.f.op(Class::B64, "mul.lo.s64", &[&quotient, &by]);
        let remainder = self.f.op(Class::B64, "sub.s64", &[rest, &back]);
        *rest = quotient;
        remainder
    }

    /// What stands before the nest's loops, and the innermost body.
    pub(super) fn body_of(&mut self, nest: &[&Loop]) {
        let kernel = self.kernel;
        let bodies = std::iter::once(&kernel.body).chain(nest.iter().map(|l| &l.body));
        for (i, body) in bodies.enumerate() {
            // All but the innermost end with the next loop of the nest.
            let own = if i < nest.len() { &body[..body.len() - 1] } else { body };
            self.stmts(own);
        }
    }

    fn map(&mut self, nest: &[&Loop], total: &Dim, lanes: u32) {
        let thread = self.thread();
        if lanes == 1 {
            self.leave_unless_below(thread, total);
            self.decode(nest, thread);
            self.body_of(nest);
            return;
        }
        let i = self.f.op(Class::B64, "shl.b64", &[&thread, &LANES.trailing_zeros()]);
        self.leave_unless_below(i, total);
        self.decode(nest, i);
        let Some(inner) = nest.last() else { return };
        let whole = total.div_exact(&Dim::constant(i64::from(LANES))).is_some();
        let (tail, end) = (self.f.label(), self.f.label());
        let n = self.dim(total);
        if !whole {
            let last = self.f.op(Class::B64, "add.s64", &[&i, &LANES]);
            let over = self.f.op(Class::Pred, "setp.gt.s64", &[&last, &n]);
            self.f.line(format_args!("@{over} bra {tail}"));
        }
        let dims = self.dims.clone();
        (self.lanes, self.lane_var) = (LANES as usize, Some(inner.var));
        self.body_of(nest);
        (self.lanes, self.lane_var) = (1, None);
        if whole {
            return;
        }
        // The last thread's elements, one by one.
        self.dims = dims;
        self.f.line(format_args!("bra {end}"));
        self.f.place(&tail);
        let i = self.f.copy(i);
        self.vars.insert(inner.var, i);
        let again = self.f.label();
        self.f.place(&again);
        self.body_of(nest);
        self.f.op_to(i, "add.s64", &[&i, &1]);
        let more = self.f.op(Class::Pred, "setp.lt.s64", &[&i, &n]);
        self.f.line(format_args!("@{more} bra {again}"));
        self.f.place(&end);
    }

    /// Tiles of 32 by 32, eight rows at a time: loads that are side by side along the
    /// outer of the two loops go to shared memory first.
    fn turn(&mut self, nest: &[&Loop], loads: &[usize]) {
        let [.., a, b] = nest else { unreachable!("a nest of two") };
        let mut rest = {
            let block = self.f.special("%ctaid.x");
            self.f.op(Class::B64, "cvt.u64.u32", &[&block])
        };
        let tiles = |l: &Loop| l.extent.ceil_div(i64::from(TURN));
        let tile_b = self.remainder(&mut rest, &tiles(b));
        let tile_a = self.remainder(&mut rest, &tiles(a));
        self.decode(&nest[..nest.len() - 2], rest);
        let tid = self.f.special("%tid.x");
        let x = self.f.op(Class::B32, "and.b32", &[&tid, &(TURN - 1)]);
        let y = self.f.op(Class::B32, "shr.u32", &[&tid, &TURN.trailing_zeros()]);
        let (wx, wy) = (
            self.f.op(Class::B64, "cvt.u64.u32", &[&x]),
            self.f.op(Class::B64, "cvt.u64.u32", &[&y]),
        );
        let (ea, eb) = (self.dim(&a.extent), self.dim(&b.extent));
        let at = |e: &mut Self, tile: V, in_tile: V, plus: u32| {
            let v = e.f.op(Class::B64, "mad.lo.s64", &[&tile, &TURN, &in_tile]);
            if plus == 0 { v } else { e.f.op(Class::B64, "add.s64", &[&v, &plus]) }
        };
        let step = BLOCK / TURN;
        let staged: Vec<(Reg, u32, Ix)> = b
            .body
            .iter()
            .filter_map(|s| match s {
                Stmt::Load { dst, buf, at } => Some((*dst, *buf, at.clone())),
                _ => None,
            })
            .enumerate()
            .filter(|(i, _)| loads.contains(i))
            .map(|(_, load)| load)
            .collect();
        let places: Vec<(u32, u32)> = staged
            .iter()
            .map(|(_, buf, _)| {
                let size = self.kernel.bufs[*buf as usize].dtype.size() as u32;
                (self.f.shared((TURN + 1) * TURN * size), size)
            })
            .collect();
        let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
        // Element (row, column) of the tile of load `j`, rows along `b`.
        let cell = |e: &mut Self, j: usize, row: V, col: V| {
            let (base, size) = places[j];
            let n = e.f.op(Class::B32, "mad.lo.u32", &[&row, &(TURN + 1), &col]);
            let v = e.f.op(Class::B32, "mad.lo.u32", &[&n, &size, &shared]);
            format!("[{v}+{base}]")
        };
        for r in 0..TURN / step {
            let (va, vb) = (at(self, tile_a, wx, 0), at(self, tile_b, wy, r * step));
            let skip = self.skip_outside(va, ea, vb, eb);
            self.vars.insert(a.var, va);
            self.vars.insert(b.var, vb);
            let row = self.f.op(Class::B32, "add.s32", &[&y, &(r * step)]);
            for (j, (_, buf, ix)) in staged.iter().enumerate() {
                let (ty, class) = memory::memory_type(self.kernel.bufs[*buf as usize].dtype);
                let from = self.index(ix, 0);
                let from = self.address(*buf, from);
                let v = self.f.reg(class);
                self.f.line(format_args!("ld.global.{ty} {v}, {from}"));
                let to = cell(self, j, row, x);
                self.f.line(format_args!("st.shared.{ty} {to}, {v}"));
            }
            self.f.place(&skip);
        }
        self.f.line(format_args!("bar.sync 0"));
        for r in 0..TURN / step {
            let (va, vb) = (at(self, tile_a, wy, r * step), at(self, tile_b, wx, 0));
            let skip = self.skip_outside(va, ea, vb, eb);
            self.vars.insert(a.var, va);
            self.vars.insert(b.var, vb);
            let col = self.f.op(Class::B32, "add.s32", &[&y, &(r * step)]);
            for (j, (dst, buf, _)) in staged.iter().enumerate() {
                let from = cell(self, j, x, col);
                let dtype = self.kernel.bufs[*buf as usize].dtype;
                let v = self.load_from("shared", dtype, &[from], 1)[0];
                self.loaded.insert(*dst, v);
            }
            self.body_of(nest);
            self.f.place(&skip);
        }
    }

    /// Jumps to the label it gives unless both are in range.
    fn skip_outside(&mut self, a: V, ea: V, b: V, eb: V) -> String {
        let skip = self.f.label();
        let out = self.f.op(Class::Pred, "setp.ge.s64", &[&a, &ea]);
        let out = self.f.op(Class::Pred, "setp.ge.or.s64", &[&b, &eb, &out]);
        self.f.line(format_args!("@{out} bra {skip}"));
        skip
    }

    pub(super) fn stmts(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Const { dst, value } => {
                self.known.insert(*dst, *value);
                let v = self.f.constant(*value);
                self.regs.insert(*dst, vec![v]);
            }
            Stmt::Op { dst, op, args } => {
                let to = self.kernel.regs[*dst];
                let types: Vec<_> = args.iter().map(|a| self.kernel.regs[*a]).collect();
                // Of a choice the first operand is the condition.
                let from = match op {
                    tfc_kernel::ScalarOp::Select => to,
                    _ => types[0],
                };
                let known: Vec<_> = args.iter().map(|a| self.known.get(a).copied()).collect();
                let width = args.iter().map(|a| self.regs[a].len()).max().unwrap_or(1);
                let v = (0..width)
                    .map(|lane| {
                        let vs: Vec<V> = args.iter().map(|a| self.lane(*a, lane)).collect();
                        self.scalar_op(*op, to, from, &vs, &known)
                    })
                    .collect();
                self.regs.insert(*dst, v);
            }
            Stmt::Index { dst, ix } => {
                let width = if self.varies(ix) { self.lanes } else { 1 };
                let v = (0..width).map(|lane| self.index_value(ix, lane)).collect();
                self.regs.insert(*dst, v);
            }
            Stmt::Load { dst, buf, at } => {
                let v = match self.loaded.get(dst) {
                    Some(v) => vec![*v],
                    None => self.load_or_keep(*buf, at),
                };
                self.regs.insert(*dst, v);
            }
            Stmt::Store { buf, at, value } => {
                let v = self.regs[value].clone();
                if self.keep_stored(*buf, at, &v) {
                    return;
                }
                self.meet(std::slice::from_ref(stmt));
                self.store(*buf, at, &v);
                self.meet(std::slice::from_ref(stmt));
            }
            Stmt::Loop(l) => self.one_loop(l),
        }
    }

    fn one_loop(&mut self, l: &Loop) {
        if self.team.is_some() && schedule::is_shared(l) {
            return self.spread(l);
        }
        if l.kind == (LoopKind::Reduce { partials: true }) {
            return self.partials_in_order(l);
        }
        let totals = self.inits(l);
        let (zero, n) = (self.f.int(0), self.dim(&l.extent));
        self.in_order(l, &totals, zero, n);
        self.results(l, &totals);
    }

    /// Registers that hold the carried values, with the initial ones in them.
    pub(super) fn inits(&mut self, l: &Loop) -> Vec<Vec<V>> {
        l.carried
            .iter()
            .map(|c| (0..self.lanes).map(|i| self.f.copy(self.lane(c.init, i))).collect())
            .collect()
    }

    pub(super) fn results(&mut self, l: &Loop, totals: &[Vec<V>]) {
        for (c, v) in l.carried.iter().zip(totals) {
            self.regs.insert(c.result, v.clone());
        }
    }

    /// Runs iterations `from..to` one after the other on the carried values.
    pub(super) fn in_order(&mut self, l: &Loop, carried: &[Vec<V>], from: V, to: V) {
        self.counted(l, carried, from, to, 1);
    }

    /// Iterations `from, from + step, ..` below `to`.
    pub(super) fn counted(&mut self, l: &Loop, carried: &[Vec<V>], from: V, to: V, step: i64) {
        let i = self.f.copy(from);
        let (again, end) = (self.f.label(), self.f.label());
        let none = self.f.op(Class::Pred, "setp.ge.s64", &[&i, &to]);
        self.f.line(format_args!("@{none} bra {end}"));
        self.f.place(&again);
        self.vars.insert(l.var, i);
        self.iteration(l, carried);
        self.f.op_to(i, "add.s64", &[&i, &step]);
        let more = self.f.op(Class::Pred, "setp.lt.s64", &[&i, &to]);
        self.f.line(format_args!("@{more} bra {again}"));
        self.f.place(&end);
    }

    /// One iteration; the loop's variable is set.
    pub(super) fn iteration(&mut self, l: &Loop, carried: &[Vec<V>]) {
        for (c, v) in l.carried.iter().zip(carried) {
            self.regs.insert(c.acc, v.clone());
        }
        self.stmts(&l.body);
        let nexts: Vec<Vec<V>> = l.carried.iter().map(|c| self.regs[&c.next].clone()).collect();
        // What is carried may change places.
        let old: BTreeSet<V> = carried.iter().flatten().copied().collect();
        let nexts: Vec<Vec<V>> = nexts
            .into_iter()
            .map(|vs| {
                vs.into_iter()
                    .map(|v| if carried.len() > 1 && old.contains(&v) { self.f.copy(v) } else { v })
                    .collect()
            })
            .collect();
        for (to, from) in carried.iter().zip(&nexts) {
            for (lane, to) in to.iter().enumerate() {
                let from = from[lane % from.len()];
                if from != *to {
                    self.f.mov(*to, from);
                }
            }
        }
    }

    pub(super) fn combine(&mut self, c: &Carried, a: V, b: V) -> V {
        let ty = self.kernel.regs[c.acc];
        self.scalar_op(c.combine.op(), ty, ty, &[a, b], &[])
    }

    /// The whole groups of four among the iterations of a loop.
    pub(super) fn grouped(&mut self, l: &Loop) -> V {
        let n = self.dim(&l.extent);
        self.f.op(Class::B64, "and.b64", &[&n, &-tfc_kernel::GROUP])
    }

    /// A reduction with partial results in one thread. The partial results move
    /// round, one place an iteration, so that the first is always the next one's; the
    /// rounds are filled up, so that at the end each is in its place again.
    fn partials_in_order(&mut self, l: &Loop) {
        let totals = self.inits(l);
        let n = self.dim(&l.extent);
        let grouped = self.grouped(l);
        let skip = self.f.label();
        let none = self.f.op(Class::Pred, "setp.lt.s64", &[&grouped, &1]);
        self.f.line(format_args!("@{none} bra {skip}"));
        // partials[carried][place][lane]
        let places = PARTIALS as usize;
        let partials: Vec<Vec<Vec<V>>> = l
            .carried
            .iter()
            .map(|c| {
                let identity = c.combine.identity(self.kernel.regs[c.acc]);
                let identity = self.f.constant(identity);
                (0..places)
                    .map(|_| (0..self.lanes).map(|_| self.f.copy(identity)).collect())
                    .collect()
            })
            .collect();
        let rounds = self.f.op(Class::B64, "add.s64", &[&grouped, &(PARTIALS - 1)]);
        let rounds = self.f.op(Class::B64, "and.b64", &[&rounds, &-PARTIALS]);
        let i = self.f.int(0);
        let (again, filled) = (self.f.label(), self.f.label());
        self.f.place(&again);
        let past = self.f.op(Class::Pred, "setp.ge.s64", &[&i, &grouped]);
        self.f.line(format_args!("@{past} bra {filled}"));
        self.vars.insert(l.var, i);
        let first: Vec<Vec<V>> = partials.iter().map(|p| p[0].clone()).collect();
        self.iteration(l, &first);
        self.f.place(&filled);
        for p in &partials {
            for lane in 0..self.lanes {
                let round: Vec<V> = p.iter().map(|place| place[lane]).collect();
                let head = self.f.copy(round[0]);
                for pair in round.windows(2) {
                    self.f.mov(pair[0], pair[1]);
                }
                self.f.mov(round[places - 1], head);
            }
        }
        self.f.op_to(i, "add.s64", &[&i, &1]);
        let more = self.f.op(Class::Pred, "setp.lt.s64", &[&i, &rounds]);
        self.f.line(format_args!("@{more} bra {again}"));
        for (at, c) in l.carried.iter().enumerate() {
            for lane in 0..self.lanes {
                let mut tree: Vec<V> = partials[at].iter().map(|p| p[lane]).collect();
                while tree.len() > 1 {
                    let half = tree.len() / 2;
                    tree = (0..half).map(|p| self.combine(c, tree[p], tree[p + half])).collect();
                }
                let total = totals[at][lane];
                let sum = self.combine(c, total, tree[0]);
                self.f.mov(total, sum);
            }
        }
        self.f.place(&skip);
        self.in_order(l, &totals, grouped, n);
        self.results(l, &totals);
    }
}
