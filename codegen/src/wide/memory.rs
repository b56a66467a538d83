//! Addresses, loads and stores.
//!
//! An address is `(buffer + terms of outer loops) + innermost variable * scale +
//! constant`: the part in parentheses is computed before the innermost loop, the
//! rest is part of the instruction.

use super::lir::{Base, Cc, Cell, Class, Inst, Mem, Op, Pooled, V, W};
use super::table::{self, Row};
use super::value::{Val, parts};
use super::{Result, Select, Unsupported};
use std::collections::BTreeMap;
use tfc_kernel::{DType, Dim, Ix, Reg, Scalar, ScalarOp, ScalarType};

/// `tail`, `left` and `tail8` of a group.
type Tail = (Vec<V>, Option<V>, BTreeMap<(usize, usize), V>);

/// Where the lanes of an access are.
enum Place {
    /// All lanes at one address.
    One(Mem),
    /// Neighbours: the address of the first lane.
    Row(Mem),
    /// The address of the first lane, and the distances of the others from it, in
    /// bytes: four-byte numbers, or eight-byte ones.
    Near(Mem, Vec<V>),
    Far(Mem, Vec<V>),
}

pub(super) fn cell(dtype: DType) -> Cell {
    match dtype {
        DType::I8 => Cell::I8,
        DType::U8 | DType::Bool => Cell::U8,
        DType::F16 | DType::BF16 => Cell::U16,
        DType::F32 | DType::I32 => Cell::I32,
        DType::F64 | DType::I64 => Cell::I64,
    }
}

impl Select<'_> {
    /// Replaces registers made by `Index` by what they stand for.
    pub(super) fn see_through(&self, ix: &Ix) -> Ix {
        let mut out = Ix { offset: ix.offset.clone(), terms: ix.terms.clone(), regs: vec![] };
        for (reg, stride) in &ix.regs {
            match self.indices.get(reg) {
                Some(inner) => out = out.plus(&inner.scale(stride)),
                None => out.regs.push((*reg, stride.clone())),
            }
        }
        out
    }

    /// `v * by * size`
    fn scaled(&mut self, v: V, by: &Dim, size: i64) -> V {
        match by.as_const() {
            Some(c) => match c.wrapping_mul(size) {
                1 => v,
                c if c > 0 && c.count_ones() == 1 => {
                    let by = Some(i64::from(c.trailing_zeros()));
                    self.general(Op::Shl, true, v, None, by)
                }
                c => self.general(Op::Mul, true, v, None, Some(c)),
            },
            None => {
                let bytes = self.dim(&(by.clone() * Dim::constant(size)));
                self.general(Op::Mul, true, v, Some(bytes), None)
            }
        }
    }

    /// The buffer's address (if there is one) plus `size` times those terms of `ix`
    /// that belong to loops and sizes, without its constant; computed before the
    /// outermost loop that does not change it.
    fn sum(&mut self, buf: Option<u32>, ix: &Ix, size: i64) -> Option<V> {
        let level = self.nest.iter().rposition(|var| ix.terms.iter().any(|(v, _)| v == var));
        let level = level.map_or(0, |at| at + 1);
        let key = (buf, ix.clone());
        // The scope inside which nothing of this changes, if the code is in one.
        let home = if level == 0 { 0 } else { level + 1 };
        if let Some(v) = self.scopes.get(home).and_then(|s| s.sums.get(&key)) {
            return Some(*v);
        }
        let made = if level == 0 {
            self.hoist(0, |s| s.sum_outside(buf, ix, size))
        } else {
            let var = self.nest[level - 1];
            let (mut rest, mut stride) = (ix.clone(), Dim::constant(0));
            rest.terms.retain(|(v, s)| {
                let other = *v != var;
                if !other {
                    stride = s.clone();
                }
                other
            });
            let before = self.sum(buf, &rest, size);
            let make = |s: &mut Self| {
                let i = s.vars[&var];
                let term = s.scaled(i, &stride, size);
                Some(match before {
                    Some(b) => s.general(Op::Add, true, b, Some(term), None),
                    None => term,
                })
            };
            if home < self.scopes.len() { self.hoist(home, make) } else { make(self) }
        };
        if let (Some(scope), Some(v)) = (self.scopes.get_mut(home), made) {
            scope.sums.insert(key, v);
        }
        made
    }

    /// What does not depend on any loop.
    fn sum_outside(&mut self, buf: Option<u32>, ix: &Ix, size: i64) -> Option<V> {
        let base = buf.map(|b| self.load_word(self.bufs, b as usize));
        if ix.offset.as_const().is_some() {
            return base;
        }
        let offset = self.dim(&(ix.offset.clone() * Dim::constant(size)));
        Some(match base {
            Some(b) => self.general(Op::Add, true, b, Some(offset), None),
            None => offset,
        })
    }

    /// The address of element `ix` of a buffer, without the registers that vary.
    pub(super) fn address(&mut self, buf: u32, ix: &Ix, size: i64) -> Mem {
        let constant = ix.offset.as_const().unwrap_or(0).wrapping_mul(size);
        let mut rest = Ix { offset: ix.offset.clone(), terms: ix.terms.clone(), regs: vec![] };
        if rest.offset.as_const().is_some() {
            rest.offset = Dim::constant(0);
        }
        let inner = self.nest.last().copied();
        let index = inner.and_then(|var| {
            let at = rest.terms.iter().position(|(v, _)| *v == var)?;
            Some((var, rest.terms.remove(at).1))
        });
        let mut base = self.sum(Some(buf), &rest, size);
        for (reg, stride) in &ix.regs {
            let v = match self.reg(*reg) {
                Val::Lanes(_) => continue,
                other => self.in_general(&other).ok(),
            };
            if let (Some(v), Some(b)) = (v, base) {
                let v = self.scaled(v, stride, size);
                base = Some(self.general(Op::Add, true, b, Some(v), None));
            }
        }
        let mut mem = Mem { base: base.map_or(Base::None, Base::Reg), ..Mem::default() };
        match i32::try_from(constant) {
            // Room for the lanes of every vector.
            Ok(c) if c.unsigned_abs() < 1 << 30 => mem.disp = c,
            _ => {
                if let Some(b) = base {
                    let b = self.general(Op::Add, true, b, None, Some(constant));
                    mem.base = Base::Reg(b);
                }
            }
        }
        if let Some((var, stride)) = index {
            let i = self.vars[&var];
            let bytes = stride.as_const().map(|s| s.wrapping_mul(size));
            match bytes {
                Some(scale @ (1 | 2 | 4 | 8)) => {
                    mem.index = Some(i);
                    mem.scale = scale as u8;
                }
                _ => {
                    mem.index = Some(self.scaled(i, &stride, size));
                    mem.scale = 1;
                }
            }
        }
        mem
    }

    /// The stride of the vector loop's variable, if the lanes are apart at all.
    fn varies(&self, ix: &Ix) -> bool {
        let Some(group) = &self.group else { return false };
        !ix.stride(group.var).is_zero()
            || ix.regs.iter().any(|(r, _)| matches!(self.regs[r], Val::Lanes(_)))
    }

    /// Elements between neighbouring lanes, if that is a constant.
    fn stride_of(&self, at: &Ix) -> Option<i64> {
        let var = self.group.as_ref()?.var;
        self.see_through(at).stride(var).as_const()
    }

    /// Whether the lanes are apart by more than the loop's own steps.
    pub(super) fn varies_by_register(&self, ix: &Ix) -> bool {
        let ix = self.see_through(ix);
        ix.regs.iter().any(|(r, _)| matches!(self.regs.get(r), Some(Val::Lanes(_))))
    }

    /// The value of `dst`, which is loaded.
    pub(super) fn load_for(&mut self, dst: Reg, buf: u32, at: &Ix) -> Result<Val> {
        let four = matches!(self.kernel.bufs[buf as usize].dtype, DType::F32 | DType::I32);
        let guarded = if self.group.is_some() && four { self.guarded(dst, at)? } else { None };
        let Some((at, masks)) = guarded else { return self.load(buf, at) };
        let masked = Some((masks, None, BTreeMap::new()));
        let before = self.swap_tail(masked);
        let value = self.load(buf, &at);
        self.swap_tail(before);
        value
    }

    /// Other lanes that count; gives those that did.
    fn swap_tail(&mut self, tail: Option<Tail>) -> Option<Tail> {
        let (group, tail) = (self.group.as_mut()?, tail?);
        Some((
            std::mem::replace(&mut group.tail, tail.0),
            std::mem::replace(&mut group.left, tail.1),
            std::mem::replace(&mut group.tail8, tail.2),
        ))
    }

    /// Every other element from `mem` on, for the vector `instance`: two vectors that
    /// overlap in one element, so that neither reaches beyond what is asked for.
    /// None if the lanes that count are not the first ones.
    fn every_other(&mut self, mem: Mem, instance: usize) -> Option<V> {
        let (w, lanes) = (self.width(), self.lanes() as i32);
        let group = self.group.as_ref()?;
        let (left, tail) = (group.left, group.tail.clone());
        let start = 2 * lanes * instance as i32;
        let [first, second] =
            [start, start + lanes - 1].map(|element| Mem { disp: mem.disp + 4 * element, ..mem });
        let masks = match (tail.get(instance), left) {
            _ if tail.is_empty() => [None, None],
            // Lane `l` wants element `2 l`.
            (Some(mask), _) if self.evex => {
                let bits = self.plain(Op::KToGeneral, Class::General, &[*mask], None);
                let low = self.plain(Op::Spread, Class::General, &[bits], None);
                let rest = Some(i64::from(lanes) - 1);
                let high = self.general(Op::Shr, false, low, None, rest);
                [low, high].map(|b| Some(self.plain(Op::KFromGeneral, Class::Mask, &[b], None)))
            }
            (_, Some(left)) if tail.len() == 1 => {
                let twice = self.general(Op::Shl, true, left, None, Some(1));
                let count = self.general(Op::Sub, true, twice, None, Some(1));
                [0, i64::from(lanes) - 1].map(|skip| Some(self.first_lanes(count, skip)))
            }
            _ => return None,
        };
        let row = (&table::LOADPS, &table::MASKLOADPS);
        let a = self.load_masked(row, w, first, masks[0]);
        let b = self.load_masked(row, w, second, masks[1]);
        let pairs = self.row(&table::SHUFPS, w, &[a, b], Some(0xd8));
        Some(if self.evex {
            let order = [0i64, 2, 4, 6, 1, 3, 5, 7].into_iter().flat_map(i64::to_le_bytes);
            let order = self.pool_vector(Pooled::Bytes(order.collect()), w);
            self.row(&table::PERMQ_V, w, &[order, pairs], None)
        } else {
            self.row(&table::PERMQ, w, &[pairs], Some(0xd8))
        })
    }

    fn place(&mut self, buf: u32, at: &Ix, dtype: DType) -> Result<Place> {
        let ix = self.see_through(at);
        let size = dtype.size() as i64;
        let mem = self.address(buf, &ix, size);
        if !self.varies(&ix) {
            return Ok(Place::One(mem));
        }
        let Some(var) = self.group.as_ref().map(|g| g.var) else {
            return Ok(Place::One(mem));
        };
        let stride = ix.stride(var);
        let regs: Vec<(Vec<V>, Dim)> = ix
            .regs
            .iter()
            .filter_map(|(r, s)| match self.reg(*r) {
                Val::Lanes(parts) => Some((parts, s.clone())),
                _ => None,
            })
            .collect();
        match stride.as_const() {
            Some(1) if regs.is_empty() => return Ok(Place::Row(mem)),
            // The distances of a few lanes fit into four bytes.
            Some(s) if regs.is_empty() && s.unsigned_abs() < 1 << 20 => {
                let w = self.width();
                let lanes = self.lanes();
                let distances = (0..self.unroll())
                    .map(|u| {
                        let bytes = (u * lanes..(u + 1) * lanes)
                            .flat_map(|lane| (lane as i32 * (s * size) as i32).to_le_bytes())
                            .collect();
                        self.pool_vector(Pooled::Bytes(bytes), w)
                    })
                    .collect();
                return Ok(Place::Near(mem, distances));
            }
            _ => {}
        }
        let int = ScalarType::I64;
        let mut sum = self.steps(&(stride * Dim::constant(size)))?;
        for (parts, stride) in regs {
            let by = match (stride.clone() * Dim::constant(size)).as_const() {
                Some(c) => Val::Const(Scalar::I64(c)),
                None => Val::Uniform(self.dim(&(stride * Dim::constant(size)))),
            };
            let args = [Val::Lanes(parts), by];
            let term = match &args[1] {
                Val::Const(Scalar::I64(1)) => args[0].clone(),
                Val::Const(Scalar::I64(c)) if *c > 0 && c.count_ones() == 1 => {
                    let by = Val::Const(Scalar::I64(i64::from(c.trailing_zeros())));
                    self.op(ScalarOp::Shl, int, &[int, int], &[args[0].clone(), by])?
                }
                _ => self.op(ScalarOp::Mul, int, &[int, int], &args)?,
            };
            sum = match sum {
                Some(sum) => Some(self.op(ScalarOp::Add, int, &[int, int], &[sum, term])?),
                None => Some(term),
            };
        }
        let Some(Val::Lanes(distances)) = sum else {
            return Err(Unsupported("lanes at no address"));
        };
        Ok(Place::Far(mem, distances))
    }

    /// `0, step, 2 * step, ..` over the lanes; none if the step is zero.
    fn steps(&mut self, step: &Dim) -> Result<Option<Val>> {
        if step.is_zero() {
            return Ok(None);
        }
        let w = self.width();
        let per = self.lanes() / 2;
        let factor = step.as_const();
        let lanes: Vec<V> = (0..2 * self.unroll())
            .map(|part| {
                let bytes = (part * per..(part + 1) * per)
                    .flat_map(|lane| (lane as i64).wrapping_mul(factor.unwrap_or(1)).to_le_bytes())
                    .collect();
                self.pool_vector(Pooled::Bytes(bytes), w)
            })
            .collect();
        let lanes = Val::Lanes(lanes);
        if factor.is_some() {
            return Ok(Some(lanes));
        }
        let int = ScalarType::I64;
        let by = Val::Uniform(self.dim(step));
        Ok(Some(self.op(ScalarOp::Mul, int, &[int, int], &[lanes, by])?))
    }

    /// An index as a number.
    pub(super) fn index_value(&mut self, ix: &Ix) -> Result<Val> {
        let constant = ix.offset.as_const().unwrap_or(0);
        let mut rest = Ix { offset: ix.offset.clone(), terms: ix.terms.clone(), regs: vec![] };
        if rest.offset.as_const().is_some() {
            rest.offset = Dim::constant(0);
        }
        let mut first = self.sum(None, &rest, 1);
        for (reg, stride) in &ix.regs {
            let v = match self.reg(*reg) {
                Val::Lanes(_) => continue,
                other => self.in_general(&other)?,
            };
            let v = self.scaled(v, stride, 1);
            first = Some(match first {
                Some(f) => self.general(Op::Add, true, f, Some(v), None),
                None => v,
            });
        }
        let first = match first {
            Some(f) if constant == 0 => Val::Uniform(f),
            Some(f) => Val::Uniform(self.general(Op::Add, true, f, None, Some(constant))),
            None => Val::Const(Scalar::I64(constant)),
        };
        let Some(var) = self.group.as_ref().map(|g| g.var) else { return Ok(first) };
        let int = ScalarType::I64;
        let mut value = first;
        if let Some(steps) = self.steps(&ix.stride(var))? {
            value = self.op(ScalarOp::Add, int, &[int, int], &[value, steps])?;
        }
        for (reg, stride) in &ix.regs {
            let reg = self.reg(*reg);
            if let Val::Lanes(_) = reg {
                let by = match stride.as_const() {
                    Some(c) => Val::Const(Scalar::I64(c)),
                    None => Val::Uniform(self.dim(stride)),
                };
                let term = match by {
                    Val::Const(Scalar::I64(1)) => reg,
                    by => self.op(ScalarOp::Mul, int, &[int, int], &[reg, by])?,
                };
                value = self.op(ScalarOp::Add, int, &[int, int], &[value, term])?;
            }
        }
        Ok(value)
    }

    /// The lanes that count of a vector, of four-byte lanes or of half of them with
    /// eight bytes each.
    fn tail(&mut self, instance: usize, part: Option<usize>) -> Option<V> {
        let group = self.group.as_ref()?;
        let mask = *group.tail.get(instance)?;
        let Some(part) = part else { return Some(mask) };
        if let Some(v) = group.tail8.get(&(instance, part)) {
            return Some(*v);
        }
        let halves = self.split_mask(mask);
        // In an inner loop it would be made again each time, and not be there after.
        if self.nest.last() == self.group.as_ref().map(|g| &g.var)
            && let Some(group) = &mut self.group
        {
            group.tail8.insert((instance, 0), halves[0]);
            group.tail8.insert((instance, 1), halves[1]);
        }
        Some(halves[part])
    }

    pub(super) fn load(&mut self, buf: u32, at: &Ix) -> Result<Val> {
        let dtype = self.kernel.bufs[buf as usize].dtype;
        match self.place(buf, at, dtype)? {
            Place::One(mem) => self.load_one(dtype, mem).map(Val::Uniform),
            Place::Row(mem) => {
                let mut out = vec![];
                let step = (self.lanes() * dtype.size()) as i32;
                for instance in 0..self.unroll() {
                    let mem = Mem { disp: mem.disp + instance as i32 * step, ..mem };
                    self.load_lanes(dtype, mem, instance, &mut out);
                }
                Ok(Val::Lanes(out))
            }
            Place::Near(mem, distances) => match dtype {
                DType::F32 | DType::I32 => {
                    let w = self.width();
                    if self.stride_of(at) == Some(2) {
                        let halves: Option<Vec<V>> =
                            (0..self.unroll()).map(|i| self.every_other(mem, i)).collect();
                        if let Some(out) = halves {
                            return Ok(Val::Lanes(out));
                        }
                    }
                    let out = distances
                        .iter()
                        .enumerate()
                        .map(|(i, d)| self.gather(&table::GATHERDPS, w, mem, *d, i, None))
                        .collect();
                    Ok(Val::Lanes(out))
                }
                DType::F64 | DType::I64 => {
                    let far: Vec<V> = distances
                        .iter()
                        .flat_map(|d| {
                            let (w, high) = (self.width(), self.high(*d));
                            [*d, high].map(|half| self.row(&table::PMOVSXDQ, w, &[half], None))
                        })
                        .collect();
                    Ok(self.gather_far(dtype, mem, &far))
                }
                _ => self.load_each(dtype, mem, &distances, false),
            },
            Place::Far(mem, distances) => match dtype {
                DType::F32 | DType::I32 | DType::F64 | DType::I64 => {
                    Ok(self.gather_far(dtype, mem, &distances))
                }
                _ => self.load_each(dtype, mem, &distances, true),
            },
        }
    }

    fn gather_far(&mut self, dtype: DType, mem: Mem, distances: &[V]) -> Val {
        let w = self.width();
        let mut out = vec![];
        for (i, d) in distances.iter().enumerate() {
            let (instance, part) = (i / 2, Some(i % 2));
            let row = match dtype.size() {
                8 => &table::GATHERQPD,
                _ => &table::GATHERQPS,
            };
            out.push(self.gather(row, w, mem, *d, instance, part));
        }
        if matches!(dtype, DType::F32 | DType::I32) {
            out = out.chunks(2).map(|halves| self.join(halves[0], halves[1])).collect();
        }
        Val::Lanes(out)
    }

    /// Elements at `mem` plus the distances.
    fn gather(
        &mut self,
        row: &'static Row,
        w: W,
        mem: Mem,
        distances: V,
        instance: usize,
        part: Option<usize>,
    ) -> V {
        let base = self.flat(mem);
        let mem = Mem { base: Base::Reg(base), index: Some(distances), scale: 1, disp: 0 };
        let dw = w.halved(row.halves[0]);
        let zero = self.constant(Scalar::I32(0), w);
        let dst = self.copy(zero, dw);
        if self.evex {
            // The instruction clears the mask.
            let mask = match self.tail(instance, part) {
                Some(mask) => self.copy(mask, w),
                None => {
                    let ones = self.imm(0xffff);
                    self.plain(Op::KFromGeneral, Class::Mask, &[ones], None)
                }
            };
            let inst = Inst { mask: Some(mask), updates: true, ..Inst::new(Op::Row(row)) };
            self.push(Inst { dst: Some(dst), mem: Some(mem), w, ..inst });
            return dst;
        }
        let mask = match self.tail(instance, part) {
            // Four-byte elements at eight-byte distances: half as many.
            Some(_) if dw != w => {
                let mask = self.tail(instance, None);
                match (mask, part) {
                    (Some(mask), Some(1)) => self.high(mask),
                    (Some(mask), _) => self.copy(mask, w),
                    (None, _) => dst,
                }
            }
            Some(mask) => self.copy(mask, w),
            None => {
                let ones = self.constant(Scalar::I32(-1), w);
                self.copy(ones, dw)
            }
        };
        let src = [Some(mask), None, None];
        let inst = Inst { src, updates: true, ..Inst::new(Op::Row(row)) };
        self.push(Inst { dst: Some(dst), mem: Some(mem), w, ..inst });
        dst
    }

    /// An address as a number.
    pub(super) fn flat(&mut self, mem: Mem) -> V {
        if let (Base::Reg(v), None, 0) = (mem.base, mem.index, mem.disp) {
            return v;
        }
        let dst = self.f.reg(Class::General);
        self.push(Inst { dst: Some(dst), mem: Some(mem), ..Inst::new(Op::Lea) });
        dst
    }

    pub(super) fn load_one(&mut self, dtype: DType, mem: Mem) -> Result<V> {
        let w = W::W128;
        let number = |s: &mut Self| {
            let dst = s.f.reg(Class::General);
            let op = Op::LoadGeneral(cell(dtype));
            s.push(Inst { dst: Some(dst), mem: Some(mem), ..Inst::new(op) });
            dst
        };
        Ok(match dtype {
            DType::F32 => self.load_row(&table::BROADCASTSS_M, w, mem, None),
            DType::F64 => self.load_row(&table::BROADCASTSD_M, w, mem, None),
            DType::I8 | DType::U8 | DType::I32 | DType::I64 => number(self),
            DType::Bool => {
                let v = number(self);
                self.general(Op::Set(Cc::Ne), false, v, None, Some(0))
            }
            DType::F16 => {
                let v = number(self);
                let v = self.splat_int(v, w, false);
                let v = self.row(&table::CVTPH2PS, w, &[v], None);
                self.row(&table::BROADCASTSS, w, &[v], None)
            }
            DType::BF16 => {
                let v = number(self);
                let v = self.general(Op::Shl, false, v, None, Some(16));
                self.splat_int(v, w, false)
            }
        })
    }

    /// One vector's worth of neighbours.
    fn load_lanes(&mut self, dtype: DType, mem: Mem, instance: usize, out: &mut Vec<V>) {
        let w = self.width();
        let ty = ScalarType::of(dtype);
        if parts(ty) == 2 {
            for part in 0..2 {
                let mem = Mem { disp: mem.disp + (part * w.bytes()) as i32, ..mem };
                let tail = self.tail(instance, Some(part));
                let row = (&table::LOADPD, &table::MASKLOADPD);
                out.push(self.load_masked(row, w, mem, tail));
            }
            return;
        }
        let tail = self.tail(instance, None);
        if matches!(dtype, DType::F32 | DType::I32) {
            let row = (&table::LOADPS, &table::MASKLOADPS);
            out.push(self.load_masked(row, w, mem, tail));
            return;
        }
        let row = match dtype {
            DType::F16 => &table::CVTPH2PS,
            DType::BF16 => &table::PMOVZXWD,
            DType::I8 => &table::PMOVSXBD,
            _ => &table::PMOVZXBD,
        };
        let v = match tail {
            Some(_) if !self.evex => {
                // There are no masked loads of these: by way of the frame.
                let place = self.f.place(32);
                self.copy_elements(dtype, instance, mem, Self::frame(place, 0), false);
                self.load_row(row, w, Self::frame(place, 0), None)
            }
            tail => self.load_row(row, w, mem, tail),
        };
        out.push(match dtype {
            DType::BF16 => self.row(&table::PSLLD_I, w, &[v], Some(16)),
            DType::Bool => {
                let zero = self.constant(Scalar::I32(0), w);
                if self.evex {
                    self.row(&table::PCMPD_K, w, &[v, zero], Some(4))
                } else {
                    self.row(&table::PCMPGTD, w, &[v, zero], None)
                }
            }
            _ => v,
        });
    }

    fn load_masked(
        &mut self,
        (plain, masked): (&'static Row, &'static Row),
        w: W,
        mem: Mem,
        tail: Option<V>,
    ) -> V {
        match tail {
            Some(mask) if !self.evex => {
                let dst = self.f.reg(Class::Vector);
                let src = [Some(mask), None, None];
                let op = Op::Row(masked);
                self.push(Inst { dst: Some(dst), src, mem: Some(mem), w, ..Inst::new(op) });
                dst
            }
            tail => self.load_row(plain, w, mem, tail),
        }
    }

    pub(super) fn store(&mut self, buf: u32, at: &Ix, value: &Val) -> Result<()> {
        let dtype = self.kernel.bufs[buf as usize].dtype;
        let ty = ScalarType::of(dtype);
        match self.place(buf, at, dtype)? {
            Place::One(_) if self.group.is_some() => {
                Err(Unsupported("a store of all lanes to one place"))
            }
            Place::One(mem) => self.store_one(dtype, mem, value),
            Place::Row(mem) => {
                let lanes = self.in_lanes(ty, value)?;
                let step = (self.lanes() * dtype.size()) as i32;
                for (instance, v) in lanes.chunks(parts(ty)).enumerate() {
                    let mem = Mem { disp: mem.disp + instance as i32 * step, ..mem };
                    self.store_lanes(dtype, mem, v, instance);
                }
                Ok(())
            }
            Place::Near(mem, distances)
                if self.evex && matches!(dtype, DType::F32 | DType::I32) =>
            {
                let lanes = self.in_lanes(ty, value)?;
                for (i, (d, v)) in distances.iter().zip(lanes).enumerate() {
                    self.scatter(&table::SCATTERDPS, mem, *d, v, i);
                }
                Ok(())
            }
            Place::Near(mem, distances) => self.store_each(dtype, mem, &distances, false, value),
            Place::Far(mem, distances) => self.store_each(dtype, mem, &distances, true, value),
        }
    }

    fn scatter(&mut self, row: &'static Row, mem: Mem, distances: V, v: V, instance: usize) {
        let w = self.width();
        let base = self.flat(mem);
        let mem = Mem { base: Base::Reg(base), index: Some(distances), scale: 1, disp: 0 };
        let mask = match self.tail(instance, None) {
            Some(mask) => self.copy(mask, w),
            None => {
                let ones = self.imm(0xffff);
                self.plain(Op::KFromGeneral, Class::Mask, &[ones], None)
            }
        };
        self.store_row(row, w, v, mem, Some(mask), None);
    }

    pub(super) fn store_one(&mut self, dtype: DType, mem: Mem, value: &Val) -> Result<()> {
        let w = W::W128;
        let number = match dtype {
            DType::F32 | DType::F64 => {
                let v = self.in_vector(value)?;
                let row = if dtype == DType::F64 { &table::STORESD } else { &table::STORESS };
                self.store_row(row, w, v, mem, None, None);
                return Ok(());
            }
            DType::F16 | DType::BF16 => {
                let v = self.in_vector(value)?;
                let bits = if dtype == DType::F16 {
                    self.row(&table::CVTPS2PH, w, &[v], Some(0))
                } else {
                    self.float_to_brain(w, v)
                };
                self.row(&table::MOVD_G, w, &[bits], None)
            }
            _ => self.in_general(value)?,
        };
        let src = [Some(number), None, None];
        let op = Op::StoreGeneral(cell(dtype));
        self.push(Inst { src, mem: Some(mem), ..Inst::new(op) });
        Ok(())
    }

    fn store_lanes(&mut self, dtype: DType, mem: Mem, v: &[V], instance: usize) {
        let w = self.width();
        match dtype {
            DType::F64 | DType::I64 => {
                for (part, v) in v.iter().enumerate() {
                    let mem = Mem { disp: mem.disp + (part * w.bytes()) as i32, ..mem };
                    let tail = self.tail(instance, Some(part));
                    self.store_masked((&table::STOREPD, &table::MASKSTOREPD), w, *v, mem, tail);
                }
            }
            DType::F32 | DType::I32 => {
                let tail = self.tail(instance, None);
                self.store_masked((&table::STOREPS, &table::MASKSTOREPS), w, v[0], mem, tail);
            }
            _ => self.store_narrow(dtype, mem, v[0], instance),
        }
    }

    fn store_masked(
        &mut self,
        (plain, masked): (&'static Row, &'static Row),
        w: W,
        v: V,
        mem: Mem,
        tail: Option<V>,
    ) {
        match tail {
            Some(mask) if !self.evex => {
                let src = [Some(mask), Some(v), None];
                self.push(Inst { src, mem: Some(mem), w, ..Inst::new(Op::Row(masked)) });
            }
            tail => self.store_row(plain, w, v, mem, tail, None),
        }
    }

    /// Elements narrower than four bytes.
    fn store_narrow(&mut self, dtype: DType, mem: Mem, v: V, instance: usize) {
        let w = self.width();
        let tail = self.tail(instance, None);
        let v = match dtype {
            DType::BF16 => self.float_to_brain(w, v),
            DType::Bool => {
                let (one, zero) =
                    (self.constant(Scalar::I32(1), w), self.constant(Scalar::I32(0), w));
                self.blend(ScalarType::I32, w, v, one, zero)
            }
            _ => v,
        };
        let (row, imm) = match dtype {
            DType::F16 => (&table::CVTPS2PH, Some(0)),
            DType::BF16 => (&table::PMOVDW, None),
            _ => (&table::PMOVDB, None),
        };
        if self.evex {
            self.store_row(row, w, v, mem, tail, imm);
            return;
        }
        let frame = tail.is_some().then(|| self.f.place(32));
        let to = frame.map_or(mem, |place| Self::frame(place, 0));
        match dtype {
            DType::F16 => self.store_row(row, w, v, to, None, imm),
            DType::BF16 => {
                let packed = self.pack_words(v);
                self.store_row(&table::STOREPS, W::W128, packed, to, None, None);
            }
            _ => {
                let keep = self.constant(Scalar::I32(0xff), w);
                let low = self.row(&table::PAND, w, &[v, keep], None);
                let words = self.pack_words(low);
                let bytes = self.row(&table::PACKUSWB, W::W128, &[words, words], None);
                self.store_row(&table::STORESD, W::W128, bytes, to, None, None);
            }
        }
        if frame.is_some() {
            self.copy_elements(dtype, instance, mem, to, true);
        }
    }

    /// The lower halves of four-byte lanes, whose upper halves are zero (AVX2).
    fn pack_words(&mut self, v: V) -> V {
        let w = self.width();
        let packed = self.row(&table::PACKUSDW, w, &[v, v], None);
        self.row(&table::PERMQ, w, &[packed], Some(0x08))
    }
}
