//! What holds for every kernel.
//!
//! The rules are those of the module doc, plus the typing of every operation. A
//! kernel that passes can be compiled and interpreted: neither looks again.
//! In-bounds addresses are the one thing not checked here; they depend on run-time
//! sizes, and the interpreter checks them.

use super::{
    Carried, Combine, Ix, Kernel, Loop, LoopKind, LoopVar, Reg, ScalarOp, ScalarType, Stmt,
};
use std::collections::BTreeSet;

/// The first broken rule of `kernel`.
pub fn verify(kernel: &Kernel) -> Result<(), String> {
    let known: BTreeSet<&str> = kernel.dims.iter().map(|d| &**d).collect();
    if known.len() != kernel.dims.len() {
        return Err("a dim is listed twice".into());
    }
    let mut v = Verify {
        kernel,
        known,
        defined: BTreeSet::new(),
        scope: vec![],
        live: BTreeSet::new(),
        open: vec![],
        vars: BTreeSet::new(),
    };
    for buf in &kernel.bufs {
        v.dim(&buf.len)?;
        let alone = |a: &u32| kernel.bufs.get(*a as usize).is_none_or(|b| b.written);
        if !buf.alias.is_empty() && (!buf.written || buf.alias.iter().any(alone)) {
            return Err("only what is written may share memory with what is read".into());
        }
        if !buf.align.is_power_of_two() || (buf.align as usize) < buf.dtype.size() {
            return Err(format!("a {} cannot be aligned to {} bytes", buf.dtype, buf.align));
        }
    }
    for (i, local) in kernel.locals.iter().enumerate() {
        v.dim(&local.len)?;
        v.dim(&local.home.stride)?;
        let home = kernel.bufs.get(local.home.buf as usize);
        if home.is_none_or(|h| !h.written || h.dtype != local.dtype) {
            return Err(format!("b{} has no home", kernel.bufs.len() + i));
        }
    }
    v.stmts(&kernel.body, 0, true)
}

struct Verify<'a> {
    kernel: &'a Kernel,
    known: BTreeSet<&'a str>,
    /// Every register that has a definition so far, in or out of scope.
    defined: BTreeSet<Reg>,
    /// Registers usable here, in order of definition, and as a set.
    scope: Vec<Reg>,
    live: BTreeSet<Reg>,
    /// Loops around here.
    open: Vec<LoopVar>,
    /// Loop variables used so far.
    vars: BTreeSet<LoopVar>,
}

impl Verify<'_> {
    fn dim(&self, dim: &crate::Dim) -> Result<(), String> {
        for sym in dim.syms() {
            if !self.known.contains(&*sym) {
                return Err(format!("the kernel has no dim `{sym}`"));
            }
        }
        Ok(())
    }

    fn define(&mut self, reg: Reg) -> Result<ScalarType, String> {
        let ty = *self.kernel.regs.get(reg).ok_or(format!("{reg} does not exist"))?;
        if !self.defined.insert(reg) {
            return Err(format!("{reg} is assigned twice"));
        }
        self.scope.push(reg);
        self.live.insert(reg);
        Ok(ty)
    }

    fn usable(&self, reg: Reg) -> Result<ScalarType, String> {
        let ty = *self.kernel.regs.get(reg).ok_or(format!("{reg} does not exist"))?;
        if self.live.contains(&reg) {
            Ok(ty)
        } else if self.defined.contains(&reg) {
            Err(format!("{reg} is used outside the loop that defines it"))
        } else {
            Err(format!("{reg} is used before its definition"))
        }
    }

    fn ix(&self, ix: &Ix) -> Result<(), String> {
        self.dim(&ix.offset)?;
        let mut last = None;
        for (var, stride) in &ix.terms {
            if !self.open.contains(var) {
                return Err(format!("{var} is used outside its loop"));
            }
            if last >= Some(*var) {
                return Err(format!("the terms of {ix} are not sorted"));
            }
            last = Some(*var);
            self.dim(stride)?;
        }
        for (reg, stride) in &ix.regs {
            if self.usable(*reg)? != ScalarType::I64 {
                return Err(format!("{reg} is an index but not i64"));
            }
            self.dim(stride)?;
        }
        Ok(())
    }

    /// The type of a buffer's elements, if it may be used here.
    fn buf(&self, buf: u32, store: bool) -> Result<ScalarType, String> {
        if let Some(local) = self.kernel.local(buf) {
            if local.within.is_some_and(|v| !self.open.contains(&v)) {
                return Err(format!("b{buf} is used outside the loop it lives in"));
            }
            self.ix(&local.home.base)?;
            return Ok(ScalarType::of(local.dtype));
        }
        let b = self.kernel.bufs.get(buf as usize);
        let b = b.ok_or(format!("there is no buffer b{buf}"))?;
        if store && !b.written {
            return Err(format!("b{buf} is stored to but not marked as written"));
        }
        Ok(ScalarType::of(b.dtype))
    }

    /// `outer`: nothing but ranged loops is around.
    fn stmts(&mut self, stmts: &[Stmt], ranged: u32, outer: bool) -> Result<(), String> {
        for stmt in stmts {
            match stmt {
                Stmt::Const { dst, value } => {
                    if self.define(*dst)? != value.ty() {
                        return Err(format!("{dst} has another type than its constant {value}"));
                    }
                }
                Stmt::Op { dst, op, args } => {
                    let tys =
                        args.iter().map(|a| self.usable(*a)).collect::<Result<Vec<_>, _>>()?;
                    let to = self.define(*dst)?;
                    if !well_typed(*op, to, &tys) {
                        let tys: Vec<&str> = tys.iter().map(|t| t.name()).collect();
                        let tys = tys.join(", ");
                        return Err(format!(
                            "{dst}: {op:?} of ({tys}) does not give {}",
                            to.name()
                        ));
                    }
                }
                Stmt::Index { dst, ix } => {
                    self.ix(ix)?;
                    if self.define(*dst)? != ScalarType::I64 {
                        return Err(format!("{dst} is an index but not i64"));
                    }
                }
                Stmt::Load { dst, buf, at } => {
                    self.ix(at)?;
                    let want = self.buf(*buf, false)?;
                    if self.define(*dst)? != want {
                        return Err(format!(
                            "{dst} is loaded from b{buf} but is not {}",
                            want.name()
                        ));
                    }
                }
                Stmt::Store { buf, at, value } => {
                    self.ix(at)?;
                    if self.usable(*value)? != self.buf(*buf, true)? {
                        return Err(format!("{value} has not the type b{buf} stores"));
                    }
                }
                Stmt::Loop(l) => self.one_loop(l, ranged, outer)?,
            }
        }
        Ok(())
    }

    fn one_loop(&mut self, l: &Loop, ranged: u32, outer: bool) -> Result<(), String> {
        if l.var.as_u32() >= self.kernel.loops || !self.vars.insert(l.var) {
            return Err(format!("the loop variable {} is not this loop's own", l.var));
        }
        if l.ranged && (!outer || ranged >= 2) {
            return Err(format!("the ranged loop {} is not one of the two outermost", l.var));
        }
        if l.ranged && l.kind != LoopKind::Parallel {
            return Err(format!("the ranged loop {} is not parallel", l.var));
        }
        if l.kind == LoopKind::Parallel && !l.carried.is_empty() {
            return Err(format!("the parallel loop {} carries values", l.var));
        }
        if l.kind == (LoopKind::Reduce { partials: true }) && !l.is_leaf() {
            return Err(format!("the loop {} has partial results and a loop inside", l.var));
        }
        self.dim(&l.extent)?;
        let depth = self.scope.len();
        let mut types = vec![];
        for c in &l.carried {
            types.push(self.usable(c.init)?);
        }
        for (c, ty) in l.carried.iter().zip(&types) {
            if self.define(c.acc)? != *ty {
                return Err(format!("{} and {} differ in type", c.acc, c.init));
            }
        }
        self.open.push(l.var);
        self.stmts(&l.body, ranged + u32::from(l.ranged), outer && l.ranged)?;
        for (c, ty) in l.carried.iter().zip(&types) {
            if self.usable(c.next)? != *ty {
                return Err(format!("{} and {} differ in type", c.next, c.acc));
            }
            if !combinable(c.combine, *ty) {
                return Err(format!("{:?} of {} is no reduction", c.combine, ty.name()));
            }
            match l.kind {
                LoopKind::Reduce { .. } => reduces(l, c)?,
                LoopKind::Scan => combines(l, c)?,
                LoopKind::Parallel | LoopKind::Sequential => {}
            }
        }
        self.open.pop();
        for reg in self.scope.drain(depth..) {
            self.live.remove(&reg);
        }
        for (c, ty) in l.carried.iter().zip(&types) {
            if self.define(c.result)? != *ty {
                return Err(format!("{} and {} differ in type", c.result, c.init));
            }
        }
        Ok(())
    }
}

fn combinable(combine: Combine, ty: ScalarType) -> bool {
    match combine {
        Combine::Sum | Combine::Prod | Combine::Max | Combine::Min => ty != ScalarType::Bool,
        Combine::And | Combine::Or => !ty.is_float(),
        Combine::Sequential => true,
    }
}

/// In a reduction `next` must be `combine(acc, other)`, and nothing else may look
/// at `acc`.
fn reduces(l: &Loop, c: &Carried) -> Result<(), String> {
    if uses(&l.body, c.acc) != 1 {
        return Err(format!("{} in the loop {} is not a plain reduction", c.acc, l.var));
    }
    combines(l, c)
}

/// In a reduction or a scan `next` must be `combine(acc, other)`.
fn combines(l: &Loop, c: &Carried) -> Result<(), String> {
    let fail = || Err(format!("{} in the loop {} is not a plain reduction", c.acc, l.var));
    let made = l.body.iter().any(|stmt| match stmt {
        Stmt::Op { dst, op, args } if *dst == c.next => match (c.combine, op) {
            (Combine::Sum, ScalarOp::Fma) => args[2] == c.acc,
            (Combine::Sum, ScalarOp::Add)
            | (Combine::Prod, ScalarOp::Mul)
            | (Combine::Max, ScalarOp::Max)
            | (Combine::Min, ScalarOp::Min)
            | (Combine::And, ScalarOp::And)
            | (Combine::Or, ScalarOp::Or) => args.contains(&c.acc),
            _ => false,
        },
        // An inner loop may go on with the same reduction.
        Stmt::Loop(inner) => inner.carried.iter().any(|i| {
            i.init == c.acc
                && i.result == c.next
                && i.combine == c.combine
                && reduces(inner, i).is_ok()
        }),
        _ => false,
    });
    if made { Ok(()) } else { fail() }
}

fn uses(stmts: &[Stmt], reg: Reg) -> usize {
    let in_ix = |ix: &Ix| ix.regs.iter().filter(|(r, _)| *r == reg).count();
    stmts
        .iter()
        .map(|stmt| match stmt {
            Stmt::Const { .. } => 0,
            Stmt::Op { args, .. } => args.iter().filter(|a| **a == reg).count(),
            Stmt::Index { ix, .. } | Stmt::Load { at: ix, .. } => in_ix(ix),
            Stmt::Store { at, value, .. } => in_ix(at) + usize::from(*value == reg),
            Stmt::Loop(l) => {
                let carried: usize = l
                    .carried
                    .iter()
                    .map(|c| usize::from(c.init == reg) + usize::from(c.next == reg))
                    .sum();
                carried + uses(&l.body, reg)
            }
        })
        .sum()
}

/// Whether `op` of operands of types `tys` gives a `to`.
fn well_typed(op: ScalarOp, to: ScalarType, tys: &[ScalarType]) -> bool {
    use ScalarOp::*;
    use ScalarType::*;
    let (unary, binary) = (tys.len() == 1, tys.len() == 2 && tys[0] == tys[1]);
    let Some(&ty) = tys.first() else { return false };
    let number = ty != Bool;
    let int = matches!(ty, I32 | I64);
    let same = ty == to;
    match op {
        Add | Sub | Mul | Div | Min | Max => binary && same && number,
        Rem | Shl | ShrArith | ShrLogic => binary && same && int,
        Neg | Abs => unary && same && number,
        Fma => tys == [ty; 3] && same && ty.is_float(),
        Sqrt | Floor | Ceil | RoundEven | Trunc => unary && same && ty.is_float(),
        And | Or | Xor => binary && same && !ty.is_float(),
        Not => unary && same && !ty.is_float(),
        Eq | Ne => binary && to == Bool,
        Lt | Le => binary && to == Bool && number,
        Select => tys.len() == 3 && ty == Bool && tys[1] == to && tys[2] == to,
        Convert => unary,
        Bitcast => unary && matches!((ty, to), (F32 | I32, F32 | I32) | (F64 | I64, F64 | I64)),
        RoundF16 | RoundBF16 => unary && same && ty == F32,
        WrapI8 | WrapU8 => unary && same && ty == I32,
        Scale => binary && same && ty.is_float(),
        Elementary(function) => {
            tys.len() == function.def().arity
                && tys.iter().all(|t| *t == ty)
                && same
                && ty.is_float()
        }
    }
}
