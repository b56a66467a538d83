//! Loops: one iteration after the other, or as the lanes of vectors.
//!
//! A vector loop is written twice: for whole vectors, several side by side if the
//! body is short, and for what is left, masked. A reduction keeps its partial
//! results in as many vectors as [`PARTIALS`] lanes take. In the masked copy they
//! take part in whole groups only; the terms of the last, incomplete group go
//! through the frame and are combined one by one at the end.

use super::lir::{Base, Cc, Class, Inst, Mem, Op, Pooled, V, W};
use super::table::{self, Row};
use super::value::{Val, parts};
use super::{Group, Result, Scope, Select, Unsupported, divergence};
use crate::schedule::{FEW, Vector};
use std::collections::BTreeMap;
use tfc_kernel::{Carried, Combine, GROUP, Loop, PARTIALS, Reg, ScalarOp, ScalarType, Stmt};

/// The bounds of a loop; a constant where it is known.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub lo: Option<V>,
    pub hi: End,
}

impl Bounds {
    /// The end, if it is a constant.
    pub(super) fn known(self) -> Option<i64> {
        match self.hi {
            End::Known(n) => Some(n),
            End::At(_) => None,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum End {
    Known(i64),
    At(V),
}

/// A reduction of the vector loop being written.
struct Reduction {
    carried: Carried,
    ty: ScalarType,
    /// The partial results, in order.
    partials: Vec<V>,
    /// Where the terms of the masked copy are, one place for each operand.
    terms: Vec<u32>,
    /// What is combined with the accumulator: the operation's other operands.
    op: ScalarOp,
    others: Vec<Reg>,
    acc_first: bool,
}

impl Select<'_> {
    pub(super) fn one_loop(&mut self, l: &Loop) -> Result<()> {
        let bounds = self.bounds(l);
        match self.schedule.vector(l.var) {
            Some(vector) if self.group.is_none() => self.vector_loop(l, vector, bounds),
            _ => match self.tiled(l) {
                Some(tiled) => self.tiled_loop(l, &tiled, bounds),
                None => self.serial_loop(l, bounds),
            },
        }
    }

    fn bounds(&mut self, l: &Loop) -> Bounds {
        if l.ranged {
            let at = 2 * self.ranged.min(1) as usize;
            let lo = self.load_word(self.range, at);
            let hi = self.load_word(self.range, at + 1);
            return Bounds { lo: Some(lo), hi: End::At(hi) };
        }
        let hi = match l.extent.as_const() {
            Some(n) => End::Known(n),
            None => End::At(self.dim(&l.extent)),
        };
        Bounds { lo: None, hi }
    }

    pub(super) fn jump_to(&mut self, cc: Cc, a: V, end: End, label: super::lir::Label) {
        match end {
            End::Known(n) => self.jump(cc, a, None, Some(n), label),
            End::At(v) => self.jump(cc, a, Some(v), None, label),
        }
    }

    pub(super) fn start(&mut self, bounds: Bounds) -> V {
        match bounds.lo {
            Some(lo) => self.copy(lo, W::W128),
            None => self.imm(0),
        }
    }

    pub(super) fn advance(&mut self, i: V, by: i64) {
        let src = [Some(i), None, None];
        self.push(Inst { dst: Some(i), src, imm: Some(by), ..Inst::new(Op::Add) });
    }

    /// Opens the scope of a loop whose code starts here.
    pub(super) fn open(&mut self, l: &Loop) {
        self.scopes.push(Scope { before: self.f.code.len(), sums: BTreeMap::new() });
        self.nest.push(l.var);
        self.ranged += u32::from(l.ranged);
    }

    pub(super) fn close(&mut self, l: &Loop) {
        self.scopes.pop();
        self.nest.pop();
        self.ranged -= u32::from(l.ranged);
    }

    pub(super) fn serial_loop(&mut self, l: &Loop, bounds: Bounds) -> Result<()> {
        let exit = self.f.label();
        let mut accs = vec![];
        for c in &l.carried {
            let value = self.carried_value(c, c.init)?;
            accs.push(self.fresh(&value));
        }
        self.ahead.extend(super::ahead::of(self.kernel, l));
        let i = self.start(bounds);
        let empty = match bounds.hi {
            End::Known(n) => n <= 0,
            End::At(_) => true,
        };
        if empty {
            self.jump_to(Cc::Ge, i, bounds.hi, exit);
        }
        let invariant = divergence::invariant(self.kernel, l);
        for (stmt, _) in l.body.iter().zip(&invariant).filter(|(_, fixed)| **fixed) {
            self.stmt(stmt)?;
        }
        self.open(l);
        self.vars.insert(l.var, i);
        let top = self.f.label();
        self.push(Inst::new(Op::Begin));
        self.here(top);
        for (c, acc) in l.carried.iter().zip(&accs) {
            self.regs.insert(c.acc, acc.clone());
        }
        for (stmt, _) in l.body.iter().zip(&invariant).filter(|(_, fixed)| !**fixed) {
            self.stmt(stmt)?;
        }
        let mut nexts = vec![];
        for c in &l.carried {
            let next = self.carried_value(c, c.next)?;
            // Others may still be read after the first is written.
            nexts.push(if l.carried.len() > 1 { self.fresh(&next) } else { next });
        }
        for (acc, next) in accs.iter().zip(&nexts) {
            self.overwrite(acc, next);
        }
        self.advance(i, 1);
        self.jump_to(Cc::Lt, i, bounds.hi, top);
        self.push(Inst::new(Op::End));
        self.here(exit);
        self.close(l);
        for (c, acc) in l.carried.iter().zip(accs) {
            self.regs.insert(c.result, acc);
        }
        Ok(())
    }

    /// The value of `reg` in the form `c` has in its loop.
    fn carried_value(&mut self, c: &Carried, reg: Reg) -> Result<Val> {
        let (value, ty) = (self.reg(reg), self.kernel.regs[c.acc]);
        let varying = self.group.as_ref().is_some_and(|g| g.varying.contains(&c.acc));
        Ok(if varying {
            Val::Lanes(self.in_lanes(ty, &value)?)
        } else if ty.is_float() {
            Val::Uniform(self.in_vector(&value)?)
        } else {
            Val::Uniform(self.in_general(&value)?)
        })
    }

    /// A copy in registers of its own.
    fn fresh(&mut self, value: &Val) -> Val {
        let w = self.width();
        match value {
            Val::Const(_) => value.clone(),
            Val::Uniform(v) => Val::Uniform(self.copy(*v, W::W128)),
            Val::Lanes(parts) => Val::Lanes(parts.iter().map(|v| self.copy(*v, w)).collect()),
        }
    }

    fn overwrite(&mut self, to: &Val, from: &Val) {
        let w = self.width();
        match (to, from) {
            (Val::Uniform(to), Val::Uniform(from)) => self.assign(*to, *from, W::W128),
            (Val::Lanes(to), Val::Lanes(from)) => {
                for (to, from) in to.iter().zip(from) {
                    self.assign(*to, *from, w);
                }
            }
            _ => {}
        }
    }

    fn vector_loop(&mut self, l: &Loop, vector: Vector, bounds: Bounds) -> Result<()> {
        let exit = self.f.label();
        let mut results = vec![];
        for c in &l.carried {
            let init = self.carried_value(c, c.init)?;
            results.push(self.fresh(&init));
        }
        let i = self.start(bounds);
        let known = match bounds.hi {
            End::Known(n) if bounds.lo.is_none() => Some(n),
            _ => None,
        };
        if known.is_none_or(|n| n <= 0) {
            self.jump_to(Cc::Ge, i, bounds.hi, exit);
        }
        let invariant = divergence::invariant(self.kernel, l);
        for (stmt, _) in l.body.iter().zip(&invariant).filter(|(_, fixed)| **fixed) {
            self.stmt(stmt)?;
        }
        self.open(l);
        self.vars.insert(l.var, i);
        let lanes = self.lanes() as i64;
        // What is written at once to give each partial result its turn.
        let least = if l.carried.is_empty() { 1 } else { PARTIALS / lanes };
        let mut unroll = i64::from(vector.unroll).max(least);
        self.group = Some(Group {
            var: l.var,
            varying: divergence::varying(l),
            unroll: unroll as usize,
            tail: vec![],
            left: None,
            tail8: BTreeMap::new(),
            scope: self.scopes.len() - 1,
            first: self.f.classes.len() as u32,
            constants: BTreeMap::new(),
            splats: BTreeMap::new(),
        });
        let mut reductions =
            l.carried.iter().map(|c| self.reduction(l, c)).collect::<Result<Vec<_>>>()?;
        if known.is_none_or(|n| n >= unroll * lanes) {
            self.whole_vectors(l, &invariant, i, bounds.hi, known, unroll, &reductions)?;
        }
        if l.carried.is_empty() && unroll > FEW && known.is_none_or(|n| n % (unroll * lanes) != 0) {
            if let Some(group) = &mut self.group {
                group.unroll = FEW as usize;
            }
            self.whole_vectors(l, &invariant, i, bounds.hi, None, FEW, &reductions)?;
            unroll = FEW;
        }
        let mut again = unroll > least;
        // Masks are cheap with AVX-512; without, masked stores are not.
        let few = least * lanes;
        if again && !self.evex && known.is_none_or(|n| n % (unroll * lanes) >= few) {
            if let Some(group) = &mut self.group {
                group.unroll = least as usize;
            }
            self.whole_vectors(l, &invariant, i, bounds.hi, None, least, &reductions)?;
            again = false;
        }
        let at_once = if again { unroll * lanes } else { few };
        if known.is_none_or(|n| n % at_once != 0) {
            self.rest(l, &invariant, i, bounds.hi, known, least, again, &mut reductions)?;
        }
        self.group = None;
        for (r, result) in reductions.iter().zip(&results) {
            self.finish(r, result, bounds, known)?;
        }
        self.close(l);
        self.here(exit);
        for (c, result) in l.carried.iter().zip(results) {
            self.regs.insert(c.result, result);
        }
        Ok(())
    }

    /// Runs whole vectors, `unroll` at a time.
    #[expect(clippy::too_many_arguments)]
    fn whole_vectors(
        &mut self,
        l: &Loop,
        invariant: &[bool],
        i: V,
        hi: End,
        known: Option<i64>,
        unroll: i64,
        reductions: &[Reduction],
    ) -> Result<()> {
        let step = unroll * self.lanes() as i64;
        let last = match hi {
            End::Known(n) => End::Known(n - step),
            End::At(v) => End::At(self.general(Op::Add, true, v, None, Some(-step))),
        };
        let (top, done) = (self.f.label(), self.f.label());
        if known.is_none() {
            self.jump_to(Cc::Gt, i, last, done);
        }
        self.push(Inst::new(Op::Begin));
        self.here(top);
        self.body(l, invariant, reductions, None)?;
        if let Some(ahead) = self.ahead.get(&l.var).cloned() {
            self.ask(&ahead, unroll as usize);
        }
        self.advance(i, step);
        self.jump_to(Cc::Le, i, last, top);
        self.push(Inst::new(Op::End));
        self.here(done);
        Ok(())
    }

    /// Runs what is left, `vectors` at a time, masked; more than once if `again`.
    #[expect(clippy::too_many_arguments)]
    fn rest(
        &mut self,
        l: &Loop,
        invariant: &[bool],
        i: V,
        hi: End,
        known: Option<i64>,
        vectors: i64,
        again: bool,
        reductions: &mut [Reduction],
    ) -> Result<()> {
        let lanes = self.lanes() as i64;
        for r in reductions.iter_mut().filter(|r| r.ty.is_float()) {
            let bytes = (PARTIALS as usize * 4 * parts(r.ty)) as u32;
            r.terms = r.others.iter().map(|_| self.f.place(bytes)).collect();
        }
        let (top, done) = (self.f.label(), self.f.label());
        if known.is_none() {
            self.jump_to(Cc::Ge, i, hi, done);
        }
        if again {
            self.push(Inst::new(Op::Begin));
            self.here(top);
        }
        let hi_value = match hi {
            End::Known(n) => self.imm(n),
            End::At(v) => v,
        };
        let left = self.general(Op::Sub, true, hi_value, Some(i), None);
        let mut tail = vec![];
        for u in 0..vectors {
            tail.push(self.first_lanes(left, u * lanes));
        }
        if let Some(group) = &mut self.group {
            group.unroll = vectors as usize;
            group.tail = tail;
            group.left = Some(left);
        }
        let mut whole = vec![];
        if reductions.iter().any(|r| r.ty.is_float()) {
            let groups = self.general(Op::And, true, left, None, Some(-GROUP));
            whole = (0..vectors).map(|u| self.first_lanes(groups, u * lanes)).collect();
        }
        self.body(l, invariant, reductions, Some(&whole))?;
        if again {
            self.advance(i, vectors * lanes);
            self.jump_to(Cc::Lt, i, hi, top);
            self.push(Inst::new(Op::End));
        }
        self.here(done);
        Ok(())
    }

    /// A mask of the lanes from `skip` on that are below `count`.
    pub(super) fn first_lanes(&mut self, count: V, skip: i64) -> V {
        let count = match skip {
            0 => count,
            _ => self.general(Op::Sub, true, count, None, Some(skip)),
        };
        if self.evex {
            let bits = self.plain(Op::LowBits, Class::General, &[count], None);
            return self.plain(Op::KFromGeneral, Class::Mask, &[bits], None);
        }
        let w = self.width();
        let counts = self.splat_int(count, w, false);
        let bytes = (0..self.lanes() as i32).flat_map(i32::to_le_bytes).collect();
        let lanes = self.pool_vector(Pooled::Bytes(bytes), w);
        self.row(&table::PCMPGTD, w, &[counts, lanes], None)
    }

    /// The body of a vector loop. `whole` are the lanes of whole groups, in the
    /// masked copy.
    fn body(
        &mut self,
        l: &Loop,
        invariant: &[bool],
        reductions: &[Reduction],
        whole: Option<&[V]>,
    ) -> Result<()> {
        for (stmt, _) in l.body.iter().zip(invariant).filter(|(_, fixed)| !**fixed) {
            let next = match stmt {
                Stmt::Op { dst, .. } => reductions.iter().find(|r| r.carried.next == *dst),
                _ => None,
            };
            match next {
                Some(r) => self.accumulate(r, whole)?,
                None => self.stmt(stmt)?,
            }
        }
        Ok(())
    }

    fn reduction(&mut self, l: &Loop, c: &Carried) -> Result<Reduction> {
        let ty = self.kernel.regs[c.acc];
        let made = l.body.iter().find_map(|stmt| match stmt {
            Stmt::Op { dst, op, args } if *dst == c.next => Some((*op, args.clone())),
            _ => None,
        });
        let Some((op, args)) = made else {
            return Err(Unsupported("a reduction over an inner loop"));
        };
        let others: Vec<Reg> = args.iter().copied().filter(|a| *a != c.acc).collect();
        let wanted = if op == ScalarOp::Fma { 2 } else { 1 };
        if others.len() != wanted || c.combine == Combine::Sequential {
            return Err(Unsupported("a reduction of another form"));
        }
        let (w, lanes) = (self.width(), self.lanes() as i64);
        let identity = Val::Const(c.combine.identity(ty));
        let identity = self.in_lanes(ty, &identity)?[0];
        let count = (PARTIALS / lanes) as usize * parts(ty);
        let partials: Vec<V> = (0..count).map(|_| self.copy(identity, w)).collect();
        self.f.precious.extend(&partials);
        Ok(Reduction {
            carried: c.clone(),
            ty,
            partials,
            terms: vec![],
            op,
            others,
            acc_first: args[0] == c.acc,
        })
    }

    /// Combines the partial results with what the body has computed.
    fn accumulate(&mut self, r: &Reduction, whole: Option<&[V]>) -> Result<()> {
        let operands: Vec<Vec<V>> = r
            .others
            .iter()
            .map(|reg| {
                let value = self.reg(*reg);
                self.in_lanes(r.ty, &value)
            })
            .collect::<Result<_>>()?;
        let (w, per, blocks) = (self.width(), parts(r.ty), r.partials.len());
        let Some(whole) = whole else {
            // Where grouping does not change the bits, the new terms go together
            // first: one step for the partial results, whose chain is what takes
            // long.
            let any_order = !r.ty.is_float() || matches!(r.op, ScalarOp::Max | ScalarOp::Min);
            if any_order && r.ty != ScalarType::Bool {
                let terms = &operands[0];
                for (at, acc) in r.partials.iter().enumerate() {
                    let mut of = terms.iter().skip(at).step_by(blocks).copied();
                    let Some(mut sum) = of.next() else { continue };
                    for term in of {
                        let pair = if r.acc_first { [sum, term] } else { [term, sum] };
                        sum = self.vector_op(r.op, r.ty, w, &pair)?;
                    }
                    self.combine(r, *acc, &[sum], None)?;
                }
                return Ok(());
            }
            for at in 0..operands[0].len() {
                let terms: Vec<V> = operands.iter().map(|o| o[at]).collect();
                self.combine(r, r.partials[at % blocks], &terms, None)?;
            }
            return Ok(());
        };
        for at in 0..operands[0].len() {
            let (instance, part) = (at / per, at % per);
            let mut mask = match &self.group {
                Some(group) if !r.ty.is_float() => group.tail[instance],
                _ => whole[instance],
            };
            if per == 2 {
                mask = self.split_mask(mask)[part];
            }
            let terms: Vec<V> = operands.iter().map(|o| o[at]).collect();
            self.combine(r, r.partials[at % blocks], &terms, Some(mask))?;
            for (place, term) in r.terms.iter().zip(&terms) {
                let to = Self::frame(*place, (at * w.bytes()) as i32);
                self.store_row(&table::STOREPS, w, *term, to, None, None);
            }
        }
        Ok(())
    }

    /// `acc` combined with one term, in the lanes of the mask.
    fn combine(&mut self, r: &Reduction, acc: V, terms: &[V], mask: Option<V>) -> Result<()> {
        let w = self.width();
        if r.ty == ScalarType::Bool {
            return self.combine_masks(r, acc, terms[0], mask);
        }
        let double = r.ty == ScalarType::F64;
        if r.op == ScalarOp::Fma {
            let src = [Some(terms[0]), Some(terms[1]), Some(acc)];
            let inst = Inst { src, w, ..Inst::new(Op::Fma { double, negated: false }) };
            return self.onto(r.ty, acc, inst, mask);
        }
        let float_max = r.ty.is_float() && matches!(r.op, ScalarOp::Max | ScalarOp::Min);
        let pair = if r.acc_first { [acc, terms[0]] } else { [terms[0], acc] };
        let row: Option<&'static Row> = match (r.op, r.ty) {
            (ScalarOp::Add, ScalarType::F32) => Some(&table::ADDPS),
            (ScalarOp::Add, ScalarType::F64) => Some(&table::ADDPD),
            (ScalarOp::Mul, ScalarType::F32) => Some(&table::MULPS),
            (ScalarOp::Mul, ScalarType::F64) => Some(&table::MULPD),
            (ScalarOp::Add, ScalarType::I32) => Some(&table::PADDD),
            (ScalarOp::Add, ScalarType::I64) => Some(&table::PADDQ),
            _ => None,
        };
        if let (Some(row), false) = (row, float_max) {
            let src = [Some(acc), Some(terms[0]), None];
            let inst = Inst { src, w, ..Inst::new(Op::Row(row)) };
            return self.onto(r.ty, acc, inst, mask);
        }
        let new = self.vector_op(r.op, r.ty, w, &pair)?;
        let new = match mask {
            Some(mask) => self.blend(r.ty, w, mask, new, acc),
            None => new,
        };
        self.assign(acc, new, w);
        Ok(())
    }

    /// An instruction whose result is the accumulator, in the lanes of the mask.
    fn onto(&mut self, ty: ScalarType, acc: V, inst: Inst, mask: Option<V>) -> Result<()> {
        let w = inst.w;
        match mask {
            Some(mask) if !self.evex => {
                let new = self.f.reg(Class::Vector);
                self.push(Inst { dst: Some(new), ..inst });
                let new = self.blend(ty, w, mask, new, acc);
                self.assign(acc, new, w);
            }
            mask => {
                let updates = mask.is_some();
                self.push(Inst { dst: Some(acc), mask, updates, ..inst });
            }
        }
        Ok(())
    }

    fn combine_masks(&mut self, r: &Reduction, acc: V, term: V, mask: Option<V>) -> Result<()> {
        let w = self.width();
        let mut new = self.mask_op(r.op, &[acc, term])?;
        if let Some(mask) = mask {
            let Val::Lanes(v) = self.select_lanes(ScalarType::Bool, &[mask], &[new], &[acc])?
            else {
                return Err(Unsupported("a reduction of another form"));
            };
            new = v[0];
        }
        self.assign(acc, new, w);
        Ok(())
    }

    /// The result of a reduction: its partial results in pairs, what was before the
    /// loop, then the terms of the last group.
    fn finish(
        &mut self,
        r: &Reduction,
        result: &Val,
        bounds: Bounds,
        known: Option<i64>,
    ) -> Result<()> {
        let (mut w, ty) = (self.width(), r.ty);
        let op = r.carried.combine.op();
        let mut v = r.partials.clone();
        if ty == ScalarType::Bool {
            let all = self.all_masks(op, &v)?;
            let args = [result.clone(), Val::Uniform(all)];
            let new = self.op(op, ty, &[ty, ty], &args)?;
            self.overwrite(result, &new);
            return Ok(());
        }
        while v.len() > 1 {
            let half = v.len() / 2;
            for at in 0..half {
                v[at] = self.vector_op(op, ty, w, &[v[at], v[at + half]])?;
            }
            v.truncate(half);
        }
        let mut one = v[0];
        while w != W::W128 {
            let high = self.row(&table::HIGH, w, &[one], Some(1));
            w = w.halved(1);
            one = self.vector_op(op, ty, w, &[one, high])?;
        }
        let turns: &[i64] = if parts(ty) == 2 { &[0x4e] } else { &[0x4e, 0xb1] };
        for turn in turns {
            let turned = self.row(&table::PSHUFD, w, &[one], Some(*turn));
            one = self.vector_op(op, ty, w, &[one, turned])?;
        }
        let total = match ty {
            // Of equal zeros the second is taken, so the lanes may differ.
            ScalarType::F32 => self.row(&table::BROADCASTSS, w, &[one], None),
            ScalarType::F64 => self.row(&table::BROADCASTSD, w, &[one], None),
            ScalarType::I32 => self.row(&table::MOVD_G, w, &[one], None),
            _ => self.row(&table::MOVQ_G, w, &[one], None),
        };
        let args = [result.clone(), Val::Uniform(total)];
        let new = self.op(op, ty, &[ty, ty], &args)?;
        self.overwrite(result, &new);
        if !r.terms.is_empty() {
            self.last_terms(r, result, bounds, known)?;
        }
        Ok(())
    }

    /// Whether all (or any, for `or`) lanes of the masks are set.
    fn all_masks(&mut self, op: ScalarOp, masks: &[V]) -> Result<V> {
        let mut one = masks[0];
        for mask in &masks[1..] {
            one = self.mask_op(op, &[one, *mask])?;
        }
        let bits = if self.evex {
            self.plain(Op::KToGeneral, Class::General, &[one], None)
        } else {
            self.row(&table::MOVMSKPS, self.width(), &[one], None)
        };
        let all = if self.evex { 0xffff } else { 0xff };
        let (cc, with) = if matches!(op, ScalarOp::And) { (Cc::Eq, all) } else { (Cc::Ne, 0) };
        Ok(self.general(Op::Set(cc), false, bits, None, Some(with)))
    }

    /// Combines the terms that fill no group, one by one.
    fn last_terms(
        &mut self,
        r: &Reduction,
        result: &Val,
        bounds: Bounds,
        known: Option<i64>,
    ) -> Result<()> {
        let (first, last) = (PARTIALS - GROUP, PARTIALS - 1);
        if let Some(n) = known {
            for lane in n & first..n & last {
                self.last_term(r, result, |place, size| {
                    Select::frame(place, (lane * size) as i32)
                })?;
            }
            return Ok(());
        }
        let n = match (bounds.hi, bounds.lo) {
            (End::At(hi), Some(lo)) => self.general(Op::Sub, true, hi, Some(lo), None),
            (End::At(hi), None) => hi,
            (End::Known(n), Some(lo)) => {
                let hi = self.imm(n);
                self.general(Op::Sub, true, hi, Some(lo), None)
            }
            (End::Known(n), None) => self.imm(n),
        };
        let lane = self.general(Op::And, true, n, None, Some(first));
        let end = self.general(Op::And, true, n, None, Some(last));
        let (top, done) = (self.f.label(), self.f.label());
        self.jump(Cc::Ge, lane, Some(end), None, done);
        self.push(Inst::new(Op::Begin));
        self.here(top);
        self.last_term(r, result, |place, size| Mem {
            base: Base::Frame(place),
            index: Some(lane),
            scale: size as u8,
            disp: 0,
        })?;
        self.advance(lane, 1);
        self.jump(Cc::Lt, lane, Some(end), None, top);
        self.push(Inst::new(Op::End));
        self.here(done);
        Ok(())
    }

    fn last_term(
        &mut self,
        r: &Reduction,
        result: &Val,
        at: impl Fn(u32, i64) -> Mem,
    ) -> Result<()> {
        let (row, size) = match r.ty {
            ScalarType::F64 => (&table::BROADCASTSD_M, 8),
            _ => (&table::BROADCASTSS_M, 4),
        };
        let mut args: Vec<Val> = r
            .terms
            .iter()
            .map(|place| Val::Uniform(self.load_row(row, W::W128, at(*place, size), None)))
            .collect();
        args.insert(if r.acc_first { 0 } else { args.len() }, result.clone());
        let tys = vec![r.ty; args.len()];
        let new = self.op(r.op, r.ty, &tys, &args)?;
        self.overwrite(result, &new);
        Ok(())
    }
}
