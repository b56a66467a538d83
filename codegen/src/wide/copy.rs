//! Copies of statements in which more is known than in the text: counters that are
//! constants, or that have narrower bounds.
//!
//! What follows is worked out here: comparisons that always come out the same way, limits
//! that are never reached, selections between two sides of which one is never taken. What
//! was computed once is not computed again. Everything else stays in its order, so that
//! results have the same bits.

use std::collections::BTreeMap;
use tfc_kernel::{Dim, Ix, Kernel, Loop, LoopVar, Reg, Scalar, ScalarOp, ScalarType, Stmt, interp};

/// What is known of integers and truth values.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// Integers as sums of counters.
    pub ints: BTreeMap<Reg, Ix>,
    values: BTreeMap<Reg, Scalar>,
    /// The least and the greatest value of counters.
    pub bounds: BTreeMap<LoopVar, (i64, i64)>,
}

impl Facts {
    /// What statements say of the registers they make, at any depth.
    pub(super) fn learn(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Const { dst, value } => self.is(*dst, *value),
                Stmt::Index { dst, ix } => {
                    let ix = self.spelled_out(ix);
                    self.ints.insert(*dst, ix);
                }
                Stmt::Loop(l) => {
                    if let (Some(n), false) = (l.extent.as_const(), l.ranged) {
                        self.bounds.insert(l.var, (0, n - 1));
                    }
                    self.learn(&l.body);
                }
                _ => {}
            }
        }
    }

    fn is(&mut self, reg: Reg, value: Scalar) {
        self.values.insert(reg, value);
        if let Scalar::I64(n) = value {
            self.ints.insert(reg, Ix::constant(n));
        }
    }

    /// An index without the registers that are sums themselves.
    fn spelled_out(&self, ix: &Ix) -> Ix {
        let plain = Ix { regs: vec![], ..ix.clone() };
        ix.regs.iter().fold(plain, |sum, (reg, stride)| match self.ints.get(reg) {
            Some(known) => sum.plus(&known.scale(stride)),
            None => sum.plus(&Ix::reg(*reg).scale(stride)),
        })
    }

    /// `b - a`, as a sum of counters.
    pub(super) fn difference(&self, a: Reg, b: Reg) -> Option<Ix> {
        let (a, b) = (self.ints.get(&a)?, self.ints.get(&b)?);
        let ix = b.plus(&a.scale(&Dim::constant(-1)));
        ix.regs.is_empty().then_some(ix)
    }

    /// The least and the greatest value of a sum of counters.
    pub(super) fn bounds(&self, ix: &Ix) -> Option<(i64, i64)> {
        let offset = ix.offset.as_const().filter(|_| ix.regs.is_empty())?;
        ix.terms.iter().try_fold((offset, offset), |(least, most), (var, stride)| {
            let (s, (lo, hi)) = (stride.as_const()?, *self.bounds.get(var)?);
            let (a, b) = (s.checked_mul(lo)?, s.checked_mul(hi)?);
            Some((least.checked_add(a.min(b))?, most.checked_add(a.max(b))?))
        })
    }

    /// Whether `b - a` is always at least `least` (true), or never (false).
    fn exceeds(&self, a: Reg, b: Reg, least: i64) -> Option<bool> {
        let (lo, hi) = self.bounds(&self.difference(a, b)?)?;
        if lo >= least { Some(true) } else { (hi < least).then_some(false) }
    }
}

/// What two statements have in common if they make the same value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Const(Scalar),
    Op(ScalarOp, Vec<Reg>, ScalarType),
    Index(Ix),
}

pub(super) struct Copy<'k> {
    pub kernel: &'k mut Kernel,
    pub facts: Facts,
    /// What counters of the text are in the copy.
    pub counters: BTreeMap<LoopVar, Ix>,
    /// What registers of the text are called in the copy.
    regs: BTreeMap<Reg, Reg>,
    made: BTreeMap<Made, Reg>,
    /// Whether loops become their steps, one after the other.
    writes_out: bool,
    pub out: Vec<Stmt>,
}

impl<'k> Copy<'k> {
    pub(super) fn new(kernel: &'k mut Kernel, facts: Facts, writes_out: bool) -> Copy<'k> {
        let (counters, regs, made) = Default::default();
        Copy { kernel, facts, counters, regs, made, writes_out, out: vec![] }
    }

    pub(super) fn stmts(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) if self.writes_out => self.steps(l),
                Stmt::Loop(l) => self.one_loop(l),
                Stmt::Const { dst, value } => self.constant(*dst, *value),
                Stmt::Op { dst, op, args } => self.op(*dst, *op, args),
                Stmt::Index { dst, ix } => {
                    let ix = self.index(ix);
                    let known = self.facts.spelled_out(&ix);
                    if let Some(n) = known.as_const() {
                        self.constant(*dst, Scalar::I64(n));
                        continue;
                    }
                    let made = Made::Index(ix.clone());
                    let dst = self.define(*dst, made, |dst| Stmt::Index { dst, ix });
                    self.facts.ints.insert(dst, known);
                }
                Stmt::Load { dst, buf, at } => {
                    let at = self.index(at);
                    let dst = self.fresh(*dst);
                    self.out.push(Stmt::Load { dst, buf: *buf, at });
                }
                Stmt::Store { buf, at, value } => {
                    let (at, value) = (self.index(at), self.reg(*value));
                    self.out.push(Stmt::Store { buf: *buf, at, value });
                }
            }
        }
    }

    fn op(&mut self, dst: Reg, op: ScalarOp, args: &[Reg]) {
        let args: Vec<Reg> = args.iter().map(|r| self.reg(*r)).collect();
        let ty = self.kernel.regs[dst];
        if let Some(same) = self.one_of(op, &args) {
            self.regs.insert(dst, same);
            return;
        }
        if let Some(value) = self.outcome(op, &args, ty) {
            return self.constant(dst, value);
        }
        let sum = match op {
            ScalarOp::Sub if ty == ScalarType::I64 => self.facts.difference(args[1], args[0]),
            _ => None,
        };
        if let Some(n) = sum.as_ref().and_then(Ix::as_const) {
            return self.constant(dst, Scalar::I64(n));
        }
        let made = Made::Op(op, args.clone(), ty);
        self.define(dst, made, |dst| Stmt::Op { dst, op, args });
    }

    /// The operand that an operation always gives.
    fn one_of(&self, op: ScalarOp, args: &[Reg]) -> Option<Reg> {
        let truth = |r: Reg| match self.facts.values.get(&r) {
            Some(Scalar::Bool(b)) => Some(*b),
            _ => None,
        };
        match (op, args) {
            (ScalarOp::And, [a, b]) => match (truth(*a), truth(*b)) {
                (Some(true), _) | (_, Some(false)) => Some(*b),
                (_, Some(true)) | (Some(false), _) => Some(*a),
                _ => None,
            },
            (ScalarOp::Select, [condition, yes, no]) => {
                truth(*condition).map(|c| if c { *yes } else { *no })
            }
            (ScalarOp::Min, [a, b]) => self.lesser(*a, *b).map(|[less, _]| less),
            (ScalarOp::Max, [a, b]) => self.lesser(*a, *b).map(|[_, more]| more),
            _ => None,
        }
    }

    /// Two integers in order, if that is always the same.
    fn lesser(&self, a: Reg, b: Reg) -> Option<[Reg; 2]> {
        let in_order = |a, b| self.facts.exceeds(a, b, 0) == Some(true);
        match (in_order(a, b), in_order(b, a)) {
            (true, _) => Some([a, b]),
            (_, true) => Some([b, a]),
            _ => None,
        }
    }

    /// What an operation always gives.
    fn outcome(&self, op: ScalarOp, args: &[Reg], ty: ScalarType) -> Option<Scalar> {
        match (op, args) {
            (ScalarOp::Le, [a, b]) => {
                if let Some(holds) = self.facts.exceeds(*a, *b, 0) {
                    return Some(Scalar::Bool(holds));
                }
            }
            (ScalarOp::Lt, [a, b]) => {
                if let Some(holds) = self.facts.exceeds(*a, *b, 1) {
                    return Some(Scalar::Bool(holds));
                }
            }
            _ => {}
        }
        // Floats are left to the machine.
        let whole = |v: &Scalar| !v.ty().is_float();
        let values: Option<Vec<Scalar>> =
            args.iter().map(|r| self.facts.values.get(r).copied().filter(whole)).collect();
        interp::apply(op, ty, &values?).ok()
    }

    fn one_loop(&mut self, l: &Loop) {
        let var = self.counter();
        self.counters.insert(l.var, Ix::var(var));
        if let Some(bounds) = self.facts.bounds.get(&l.var).copied() {
            self.facts.bounds.insert(var, bounds);
        }
        let inits: Vec<Reg> = l.carried.iter().map(|c| self.reg(c.init)).collect();
        for c in &l.carried {
            self.fresh(c.acc);
        }
        let (made, before) = (self.made.clone(), std::mem::take(&mut self.out));
        self.stmts(&l.body);
        let body = std::mem::replace(&mut self.out, before);
        // What is made inside is not there outside.
        self.made = made;
        let carried = l.carried.iter().zip(inits).map(|(c, init)| tfc_kernel::Carried {
            init,
            acc: self.reg(c.acc),
            next: self.reg(c.next),
            ..c.clone()
        });
        let mut carried: Vec<_> = carried.collect();
        for (to, c) in carried.iter_mut().zip(&l.carried) {
            to.result = self.fresh(c.result);
        }
        self.out.push(Stmt::Loop(Loop { var, carried, body, ..l.clone() }));
    }

    /// The iterations of a loop, one after the other.
    fn steps(&mut self, l: &Loop) {
        let inits: Vec<Reg> = l.carried.iter().map(|c| self.reg(c.init)).collect();
        for (c, init) in l.carried.iter().zip(inits) {
            self.regs.insert(c.acc, init);
        }
        for step in 0..l.extent.as_const().unwrap_or(0) {
            self.counters.insert(l.var, Ix::constant(step));
            self.stmts(&l.body);
            let nexts: Vec<Reg> = l.carried.iter().map(|c| self.reg(c.next)).collect();
            for (c, next) in l.carried.iter().zip(nexts) {
                self.regs.insert(c.acc, next);
            }
        }
        for c in &l.carried {
            let last = self.reg(c.acc);
            self.regs.insert(c.result, last);
        }
    }

    /// A counter that the text does not have.
    pub(super) fn counter(&mut self) -> LoopVar {
        let var = LoopVar::from_u32(self.kernel.loops);
        self.kernel.loops += 1;
        var
    }

    fn constant(&mut self, dst: Reg, value: Scalar) {
        let dst = self.define(dst, Made::Const(value), |dst| Stmt::Const { dst, value });
        self.facts.is(dst, value);
    }

    fn define(&mut self, dst: Reg, made: Made, stmt: impl FnOnce(Reg) -> Stmt) -> Reg {
        if let Some(known) = self.made.get(&made) {
            self.regs.insert(dst, *known);
            return *known;
        }
        let fresh = self.fresh(dst);
        self.made.insert(made, fresh);
        self.out.push(stmt(fresh));
        fresh
    }

    fn fresh(&mut self, reg: Reg) -> Reg {
        let ty = self.kernel.regs[reg];
        let fresh = self.kernel.regs.push(ty);
        self.regs.insert(reg, fresh);
        fresh
    }

    fn reg(&self, reg: Reg) -> Reg {
        self.regs.get(&reg).copied().unwrap_or(reg)
    }

    fn index(&self, ix: &Ix) -> Ix {
        let plain = Ix { offset: ix.offset.clone(), terms: vec![], regs: vec![] };
        let mut out = ix.terms.iter().fold(plain, |sum, (var, stride)| {
            let counter = self.counters.get(var).cloned().unwrap_or_else(|| Ix::var(*var));
            sum.plus(&counter.scale(stride))
        });
        out.regs = ix.regs.iter().map(|(r, stride)| (self.reg(*r), stride.clone())).collect();
        out
    }
}
