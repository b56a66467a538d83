//! Loops that a team of threads shares: 16 of a warp, or a block.
//!
//! What is not in a shared loop every thread of the team computes for itself, with
//! the same values; the first thread stores it. A barrier of the team stands before
//! and after whatever stores. Rows that fit are kept in registers ([`super::keep`]).

use super::best::best;
use super::emit::Emit;
use super::func::{Class, V};
use super::keep::keep;
use super::scan::scan;
use super::schedule::{self, CHUNK, TEAM};
use tfc_kernel::{Carried, DType, Dim, Ix, Loop, LoopKind, Reg, ScalarType, Stmt};

#[derive(Clone, Copy)]
pub(super) struct Team {
    /// The thread's number in the team.
    pub lane: V,
    /// The threads that shuffle among those of the warp.
    members: V,
    pub size: u32,
    /// Whether the kernel loads from memory that it writes.
    meets: bool,
}

/// Where a block's terms meet.
struct Stage {
    /// Of each carried value: registers, and where they are kept.
    terms: Vec<Vec<(Reg, DType, u32)>>,
    shared: V,
    tid: V,
    /// Not among the first 16 threads.
    others: V,
}

/// Lanes of a shuffle stay within 16: the mask of a segment, and its end.
const SEGMENT: u32 = (32 - TEAM) << 8 | 31;

impl Emit<'_> {
    pub(super) fn rows(&mut self, nest: &[&Loop], total: &Dim, size: u32) {
        let thread = self.thread();
        let row = self.f.op(Class::B64, "shr.u64", &[&thread, &size.trailing_zeros()]);
        // All of a block, or none of it.
        self.leave_unless_below(row, total);
        let lane = self.f.op(Class::B64, "and.b64", &[&thread, &(size - 1)]);
        let first = self.f.op(Class::Pred, "setp.eq.s64", &[&lane, &0]);
        let tid = self.f.special("%tid.x");
        let which = self.f.op(Class::B32, "and.b32", &[&tid, &TEAM]);
        let members = self.f.op(Class::B32, "shl.b32", &[&0xffff, &which]);
        let kernel = self.kernel;
        let meets = kernel.bufs.iter().any(|b| !b.alias.is_empty())
            || loads(&kernel.body, &|buf| kernel.bufs[buf as usize].written);
        self.team = Some(Team { lane, members, size, meets });
        let body = nest.last().map_or(&kernel.body, |l| &l.body);
        self.kept = keep(kernel, body, size);
        self.guard = Some(first);
        self.decode(nest, row);
        self.body_of(nest);
    }

    /// What a team's threads loaded and stored is behind all of them after this, if
    /// `stmts` store and the kernel loads what it stores.
    pub(super) fn meet(&mut self, stmts: &[Stmt]) {
        if let Some(team) = self.team
            && team.meets
            && stores(stmts)
        {
            match team.size {
                TEAM => self.f.line(format_args!("bar.warp.sync {}", team.members)),
                _ => self.f.line(format_args!("bar.sync 0")),
            }
        }
    }

    /// A loop whose iterations are spread over the team.
    pub(super) fn spread(&mut self, l: &Loop) {
        let Some(team) = self.team else { return };
        self.meet(&l.body);
        match l.kind {
            LoopKind::Reduce { .. } => self.spread_partials(l, team),
            LoopKind::Scan => {
                if let Some(scan) = scan(l) {
                    self.spread_scan(l, &scan, team);
                }
            }
            LoopKind::Sequential => {
                if let Some(best) = best(l) {
                    self.spread_best(l, &best, team);
                }
            }
            _ => match self.kept.as_ref().map(|k| k.length) {
                Some(length) => {
                    self.alone(|e| e.rounds(l, team, 0..length, &mut |e, _| e.iteration(l, &[])));
                }
                None => {
                    let n = self.dim(&l.extent);
                    self.alone(|e| e.counted(l, &[], team.lane, n, i64::from(team.size)));
                }
            },
        }
        self.meet(&l.body);
    }

    /// The iterations of a loop that are the thread's, written out. `body` is told how far
    /// into the range the team is.
    pub(super) fn rounds(
        &mut self,
        l: &Loop,
        team: Team,
        range: std::ops::Range<i64>,
        body: &mut dyn FnMut(&mut Self, i64),
    ) {
        let size = i64::from(team.size);
        self.vars.insert(l.var, team.lane);
        for first in range.clone().step_by(team.size as usize) {
            let skip = self.f.label();
            let partly = range.end - first < size;
            if partly {
                let left = range.end - first;
                let none = self.f.op(Class::Pred, "setp.ge.s64", &[&team.lane, &left]);
                self.f.line(format_args!("@{none} bra {skip}"));
            }
            self.round = Some((l.var, first, (first / size) as usize));
            body(self, first - range.start);
            self.round = None;
            if partly {
                self.f.place(&skip);
            }
        }
    }

    /// An element, from a register if it is kept there.
    pub(super) fn load_or_keep(&mut self, buf: u32, at: &Ix) -> Vec<V> {
        let Some((var, _, round)) = self.round else { return self.load(buf, at) };
        let place = self.kept.as_ref().and_then(|k| k.place(buf, at, var));
        match place.map(|p| (p, round)) {
            None => self.load(buf, at),
            Some(key) => {
                if let Some(v) = self.elements.get(&key) {
                    return vec![*v];
                }
                let v = self.load(buf, at);
                self.elements.insert(key, v[0]);
                v
            }
        }
    }

    /// Keeps what is stored; whether it need not be stored.
    pub(super) fn keep_stored(&mut self, buf: u32, at: &Ix, value: &[V]) -> bool {
        let Some((var, _, round)) = self.round else { return false };
        let Some(kept) = &self.kept else { return false };
        let Some(place) = kept.place(buf, at, var) else { return false };
        let unneeded = kept.is_unneeded(var, place);
        let v = self.f.copy(value[0]);
        self.elements.insert((place, round), v);
        unneeded
    }

    /// Emits what each thread does for itself.
    pub(super) fn alone(&mut self, f: impl FnOnce(&mut Self)) {
        let (team, guard) = (self.team.take(), self.guard.take());
        f(self);
        (self.team, self.guard) = (team, guard);
    }

    fn spread_partials(&mut self, l: &Loop, team: Team) {
        let totals = self.inits(l);
        let grouped = self.grouped(l);
        let n = self.dim(&l.extent);
        let constant = l.extent.as_const();
        if constant.is_none_or(|n| n >= tfc_kernel::GROUP) {
            let skip = self.f.label();
            if constant.is_none() {
                let none = self.f.op(Class::Pred, "setp.lt.s64", &[&grouped, &1]);
                self.f.line(format_args!("@{none} bra {skip}"));
            }
            let mine: Vec<Vec<V>> = l
                .carried
                .iter()
                .map(|c| {
                    let identity = c.combine.identity(self.kernel.regs[c.acc]);
                    let v = self.f.constant(identity);
                    vec![self.f.copy(v)]
                })
                .collect();
            let all: Vec<V> = match team.size {
                TEAM => {
                    match self.kept.as_ref().map(|k| k.length) {
                        Some(length) => self.alone(|e| {
                            e.rounds(l, team, 0..length, &mut |e, _| e.iteration(l, &mine));
                        }),
                        None => self.alone(|e| {
                            e.counted(l, &mine, team.lane, grouped, i64::from(TEAM));
                        }),
                    }
                    let together = |e: &mut Self, (c, mine): (&Carried, &Vec<V>)| {
                        let v = e.tree(c, mine[0], team);
                        e.shuffle("idx", v, 0, team)
                    };
                    l.carried.iter().zip(&mine).map(|x| together(self, x)).collect()
                }
                _ => self.staged(l, &mine, grouped, team),
            };
            for ((c, all), total) in l.carried.iter().zip(all).zip(&totals) {
                let sum = self.combine(c, total[0], all);
                self.f.mov(total[0], sum);
            }
            self.f.place(&skip);
        }
        if constant.is_none_or(|n| n % tfc_kernel::GROUP != 0) {
            // The iterations that fill no group: all threads, the first one stores.
            self.in_order(l, &totals, grouped, n);
        }
        self.results(l, &totals);
    }

    /// The partial results of 16 threads as one, in the first of them.
    fn tree(&mut self, c: &Carried, mine: V, team: Team) -> V {
        let mut v = mine;
        let mut half = TEAM / 2;
        while half > 0 {
            let other = self.shuffle("down", v, half, team);
            v = self.combine(c, v, other);
            half /= 2;
        }
        v
    }

    /// A block's reduction: all threads compute terms and leave them in shared memory, a
    /// chunk at a time; the first 16 threads add them to their partial results.
    fn staged(&mut self, l: &Loop, mine: &[Vec<V>], grouped: V, team: Team) -> Vec<V> {
        // The terms of each carried value: registers, and where they are kept.
        let mut bytes = 0;
        let mut terms: Vec<Vec<(Reg, DType, u32)>> = vec![];
        for c in &l.carried {
            let args = schedule::combination(l, c).map_or(&[][..], |(_, args)| args);
            let mut of = vec![];
            for reg in args.iter().filter(|a| **a != c.acc) {
                let dtype = kept(self.kernel.regs[*reg]);
                of.push((*reg, dtype, bytes));
                bytes += CHUNK * dtype.size() as u32;
            }
            terms.push(of);
        }
        let results = bytes;
        self.f.share(bytes + 8 * l.carried.len() as u32);
        let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
        let tid = self.f.special("%tid.x");
        let others = self.f.op(Class::Pred, "setp.ge.u32", &[&tid, &TEAM]);
        let stage = Stage { terms, shared, tid, others };
        match self.kept.as_ref().map(|k| k.length) {
            Some(length) => {
                for first in (0..length).step_by(CHUNK as usize) {
                    let end = length.min(first + i64::from(CHUNK));
                    self.alone(|e| {
                        e.rounds(l, team, first..end, &mut |e, at| e.leave(l, &stage, tid, at));
                    });
                    self.f.line(format_args!("bar.sync 0"));
                    let count = self.f.op(Class::B32, "mov.u32", &[&(end - first)]);
                    self.add_up(l, mine, &stage, count);
                }
            }
            None => self.chunks(l, mine, &stage, grouped, team),
        }
        // The first thread has the result and hands it to all.
        let told = self.f.label();
        self.f.line(format_args!("@{others} bra {told}"));
        for (i, (c, mine)) in l.carried.iter().zip(mine).enumerate() {
            let v = self.tree(c, mine[0], team);
            let place = format!("[{shared}+{}]", results + 8 * i as u32);
            self.store_to("shared", kept(self.kernel.regs[c.acc]), &[place], &[v]);
        }
        self.f.place(&told);
        self.f.line(format_args!("bar.sync 0"));
        let all = l.carried.iter().enumerate().map(|(i, c)| {
            let place = format!("[{shared}+{}]", results + 8 * i as u32);
            self.load_from("shared", kept(self.kernel.regs[c.acc]), &[place], 1)[0]
        });
        let all = all.collect();
        // The next loop may use the same memory.
        self.f.line(format_args!("bar.sync 0"));
        all
    }

    /// Chunk after chunk of a row of any length.
    fn chunks(&mut self, l: &Loop, mine: &[Vec<V>], stage: &Stage, grouped: V, team: Team) {
        let base = self.f.int(0);
        let again = self.f.label();
        self.f.place(&again);
        let end = self.f.op(Class::B64, "add.s64", &[&base, &CHUNK]);
        let end = self.f.op(Class::B64, "min.s64", &[&end, &grouped]);
        let i = self.f.op(Class::B64, "add.s64", &[&base, &team.lane]);
        let (more_terms, computed) = (self.f.label(), self.f.label());
        let none = self.f.op(Class::Pred, "setp.ge.s64", &[&i, &end]);
        self.f.line(format_args!("@{none} bra {computed}"));
        self.f.place(&more_terms);
        self.vars.insert(l.var, i);
        self.alone(|e| {
            let at = e.f.op(Class::B64, "sub.s64", &[&i, &base]);
            let at = e.f.op(Class::B32, "cvt.u32.u64", &[&at]);
            e.leave(l, stage, at, 0);
        });
        self.f.op_to(i, "add.s64", &[&i, &team.size]);
        let more = self.f.op(Class::Pred, "setp.lt.s64", &[&i, &end]);
        self.f.line(format_args!("@{more} bra {more_terms}"));
        self.f.place(&computed);
        self.f.line(format_args!("bar.sync 0"));
        let count = self.f.op(Class::B64, "sub.s64", &[&end, &base]);
        let count = self.f.op(Class::B32, "cvt.u32.u64", &[&count]);
        self.add_up(l, mine, stage, count);
        self.f.op_to(base, "add.s64", &[&base, &CHUNK]);
        let more = self.f.op(Class::Pred, "setp.lt.s64", &[&base, &grouped]);
        self.f.line(format_args!("@{more} bra {again}"));
    }

    /// Computes the terms of an iteration and leaves them in shared memory, at `at + plus`
    /// of the chunk.
    fn leave(&mut self, l: &Loop, stage: &Stage, at: V, plus: i64) {
        for s in &l.body {
            let last = |c: &Carried| matches!(s, Stmt::Op { dst, .. } if *dst == c.next);
            if !l.carried.iter().any(last) {
                self.stmts(std::slice::from_ref(s));
            }
        }
        for (reg, dtype, base) in stage.terms.iter().flatten() {
            let place = self.cell(stage, at, *dtype, *base + plus as u32 * dtype.size() as u32);
            let v = self.lane(*reg, 0);
            self.store_to("shared", *dtype, &[place], &[v]);
        }
    }

    /// The place of a term in shared memory.
    fn cell(&mut self, stage: &Stage, at: V, dtype: DType, base: u32) -> String {
        let at = self.f.op(Class::B32, "mad.lo.u32", &[&at, &dtype.size(), &stage.shared]);
        format!("[{at}+{base}]")
    }

    /// Adds the terms of a chunk to the partial results of the first 16 threads.
    fn add_up(&mut self, l: &Loop, mine: &[Vec<V>], stage: &Stage, count: V) {
        let idle = self.f.label();
        self.f.line(format_args!("@{} bra {idle}", stage.others));
        let at = self.f.copy(stage.tid);
        // A term may be a register of the code around, which keeps its value.
        let around = self.regs.clone();
        for side_by_side in [4, 1] {
            let (next, done) = (self.f.label(), self.f.label());
            self.f.place(&next);
            let last = self.f.op(Class::B32, "add.u32", &[&at, &((side_by_side - 1) * TEAM)]);
            let none = self.f.op(Class::Pred, "setp.ge.u32", &[&last, &count]);
            self.f.line(format_args!("@{none} bra {done}"));
            let mut loaded: Vec<Vec<V>> = vec![];
            for k in 0..side_by_side {
                let mut step = vec![];
                for (_, dtype, base) in stage.terms.iter().flatten() {
                    let base = base + k * TEAM * dtype.size() as u32;
                    let place = self.cell(stage, at, *dtype, base);
                    step.extend(self.load_from("shared", *dtype, &[place], 1));
                }
                loaded.push(step);
            }
            for step in loaded {
                let mut values = step.into_iter();
                for ((c, mine), of) in l.carried.iter().zip(mine).zip(&stage.terms) {
                    for (reg, ..) in of {
                        self.regs.insert(*reg, values.by_ref().take(1).collect());
                    }
                    self.regs.insert(c.acc, vec![mine[0]]);
                    let Some((op, args)) = schedule::combination(l, c) else { continue };
                    let vs: Vec<V> = args.iter().map(|a| self.lane(*a, 0)).collect();
                    let ty = self.kernel.regs[c.acc];
                    let v = self.scalar_op(op, ty, ty, &vs, &[]);
                    self.f.mov(mine[0], v);
                }
            }
            self.f.op_to(at, "add.u32", &[&at, &(side_by_side * TEAM)]);
            self.f.line(format_args!("bra {next}"));
            self.f.place(&done);
        }
        self.regs = around;
        self.f.place(&idle);
        self.f.line(format_args!("bar.sync 0"));
    }

    /// Another thread's value.
    pub(super) fn shuffle(&mut self, how: &str, v: V, by: u32, team: Team) -> V {
        let one = |e: &mut Self, v: V| {
            let dst = e.f.reg(v.class);
            e.f.line(format_args!(
                "shfl.sync.{how}.b32 {dst}, {v}, {by}, {SEGMENT}, {}",
                team.members
            ));
            dst
        };
        match v.class {
            Class::F32 | Class::B32 | Class::B16 => one(self, v),
            Class::Pred => {
                let word = self.f.op(Class::B32, "selp.b32", &[&1, &0, &v]);
                let word = one(self, word);
                self.f.op(Class::Pred, "setp.ne.u32", &[&word, &0])
            }
            Class::F64 | Class::B64 => {
                let (low, high) = (self.f.reg(Class::B32), self.f.reg(Class::B32));
                self.f.line(format_args!("mov.b64 {{{low}, {high}}}, {v}"));
                let (low, high) = (one(self, low), one(self, high));
                let dst = self.f.reg(v.class);
                self.f.line(format_args!("mov.b64 {dst}, {{{low}, {high}}}"));
                dst
            }
        }
    }
}

/// How a register is kept in shared memory.
pub(super) fn kept(ty: ScalarType) -> DType {
    match ty {
        ScalarType::F32 => DType::F32,
        ScalarType::F64 => DType::F64,
        ScalarType::I32 => DType::I32,
        ScalarType::I64 => DType::I64,
        ScalarType::Bool => DType::Bool,
    }
}

fn stores(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::Store { .. } => true,
        Stmt::Loop(l) => stores(&l.body),
        _ => false,
    })
}

/// Whether there is a load from such a buffer.
fn loads(stmts: &[Stmt], which: &dyn Fn(u32) -> bool) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::Load { buf, .. } => which(*buf),
        Stmt::Loop(l) => loads(&l.body, which),
        _ => false,
    })
}
