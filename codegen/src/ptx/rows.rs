//! Loops that a team of 16 threads shares.
//!
//! What is not in a shared loop every thread of the team computes for itself, with
//! the same values; the first thread stores it. A barrier of the team stands before
//! and after whatever stores.

use super::emit::Emit;
use super::func::{Class, V};
use super::schedule::TEAM;
use tfc_kernel::{Dim, Loop, LoopKind, Stmt};

#[derive(Clone, Copy)]
pub(super) struct Team {
    /// The thread's number in the team.
    lane: V,
    /// The threads of the team among those of the warp.
    members: V,
    /// Whether the kernel loads from memory that it writes.
    meets: bool,
}

/// Lanes of a shuffle stay within 16: the mask of a segment, and its end.
const SEGMENT: u32 = (32 - TEAM) << 8 | 31;

impl Emit<'_> {
    pub(super) fn rows(&mut self, nest: &[&Loop], total: &Dim) {
        let thread = self.thread();
        let row = self.f.op(Class::B64, "shr.u64", &[&thread, &TEAM.trailing_zeros()]);
        self.leave_unless_below(row, total);
        let lane = self.f.op(Class::B64, "and.b64", &[&thread, &(TEAM - 1)]);
        let first = self.f.op(Class::Pred, "setp.eq.s64", &[&lane, &0]);
        let tid = self.f.special("%tid.x");
        let which = self.f.op(Class::B32, "and.b32", &[&tid, &TEAM]);
        let members = self.f.op(Class::B32, "shl.b32", &[&0xffff, &which]);
        let kernel = self.kernel;
        let meets = kernel.bufs.iter().any(|b| !b.alias.is_empty())
            || loads(&kernel.body, &|buf| kernel.bufs[buf as usize].written);
        self.team = Some(Team { lane, members, meets });
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
            self.f.line(format_args!("bar.warp.sync {}", team.members));
        }
    }

    /// A loop whose iterations are spread over the team.
    pub(super) fn spread(&mut self, l: &Loop) {
        let Some(team) = self.team else { return };
        self.meet(&l.body);
        match l.kind {
            LoopKind::Reduce { .. } => self.spread_partials(l, team),
            _ => {
                let n = self.dim(&l.extent);
                self.alone(|e| e.counted(l, &[], team.lane, n, i64::from(TEAM)));
            }
        }
        self.meet(&l.body);
    }

    /// Emits what each thread does for itself.
    fn alone(&mut self, f: impl FnOnce(&mut Self)) {
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
            self.alone(|e| e.counted(l, &mine, team.lane, grouped, i64::from(TEAM)));
            for ((c, mine), total) in l.carried.iter().zip(&mine).zip(&totals) {
                let mut v = mine[0];
                let mut half = TEAM / 2;
                while half > 0 {
                    let other = self.shuffle("down", v, half, team);
                    v = self.combine(c, v, other);
                    half /= 2;
                }
                let all = self.shuffle("idx", v, 0, team);
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

    /// Another thread's value.
    fn shuffle(&mut self, how: &str, v: V, by: u32, team: Team) -> V {
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
