//! Addresses, loads and stores.
//!
//! An address is written as (buffer + outer terms) + innermost term, so that
//! everything but the last addition leaves the innermost loop; constants go into
//! the instruction's displacement.

use super::value::{Val, parts_per_group, vector_type};
use super::{Emit, LANES};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use tfc_kernel::{DType, Dim};
use tfc_kernel::{Ix, Scalar, ScalarOp, ScalarType};

/// Where the lanes of an access are.
enum Place {
    /// All lanes at one address.
    One(Value, i32),
    /// Neighbours: the address of the first lane of the first group.
    Row(Value, i32),
    /// Neighbours, going down: the address of the first lane, as for `Row`.
    RowDown(Value, i32),
    /// One address per lane, group after group.
    Scattered(Vec<(Value, i32)>),
}

fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

impl Emit<'_> {
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

    fn scaled(&mut self, v: Value, by: &Dim, size: i64) -> Value {
        match by.as_const() {
            Some(c) => {
                let c = c.wrapping_mul(size);
                match c {
                    1 => v,
                    c if c > 0 && c.count_ones() == 1 => {
                        self.b.ins().ishl_imm_u(v, i64::from(c.trailing_zeros()))
                    }
                    _ => self.b.ins().imul_imm_s(v, c),
                }
            }
            None => {
                let d = self.dim(by);
                let bytes = if size == 1 { d } else { self.b.ins().imul_imm_s(d, size) };
                self.b.ins().imul(v, bytes)
            }
        }
    }

    /// `base + size * ix`, for the first lane and without the registers that vary;
    /// the constant part is returned apart.
    fn linear(&mut self, base: Option<Value>, ix: &Ix, size: i64) -> (Value, i64) {
        let mut sum = base;
        let mut add = |e: &mut Self, v: Value| {
            sum = Some(match sum {
                Some(s) => e.b.ins().iadd(s, v),
                None => v,
            });
        };
        let mut constant = 0;
        match ix.offset.as_const() {
            Some(c) => constant = c.wrapping_mul(size),
            None => {
                let d = self.dim(&ix.offset);
                let v = if size == 1 { d } else { self.b.ins().imul_imm_s(d, size) };
                add(self, v);
            }
        }
        let nest = self.nest.clone();
        for var in nest {
            if let Some((_, stride)) = ix.terms.iter().find(|(v, _)| *v == var) {
                let i = self.vars[&var];
                let v = self.scaled(i, stride, size);
                add(self, v);
            }
        }
        for (reg, stride) in &ix.regs {
            if let Val::Uniform(v) = self.reg(*reg) {
                let v = self.scaled(v, stride, size);
                add(self, v);
            }
        }
        let sum = match sum {
            Some(s) => s,
            None => self.iconst(0),
        };
        (sum, constant)
    }

    fn place(&mut self, buf: u32, at: &Ix, dtype: DType) -> Place {
        let ix = self.see_through(at);
        let size = dtype.size() as i64;
        let base = self.bufs[buf as usize];
        let (first, constant) = self.linear(Some(base), &ix, size);
        let (first, disp) = match i32::try_from(constant) {
            // Room for the lanes of every group.
            Ok(c) if c.checked_add(1 << 16).is_some() => (first, c),
            _ => (self.b.ins().iadd_imm_s(first, constant), 0),
        };
        let Some(group) = self.group.clone() else { return Place::One(first, disp) };
        let stride = ix.stride(group.var);
        let varying: Vec<_> =
            ix.regs.iter().filter(|(r, _)| matches!(self.reg(*r), Val::Lanes(_))).collect();
        match stride.as_const() {
            Some(0) if varying.is_empty() => return Place::One(first, disp),
            Some(1) if varying.is_empty() => return Place::Row(first, disp),
            Some(-1) if varying.is_empty() => return Place::RowDown(first, disp),
            _ => {}
        }
        let mut out = vec![];
        let step = (!stride.is_zero()).then(|| {
            let one = self.iconst(1);
            self.scaled(one, &stride, size)
        });
        let mut address = first;
        for group in 0..self.groups() {
            for lane in 0..LANES as usize {
                let mut v = address;
                for (reg, stride) in &varying {
                    let Val::Lanes(parts) = self.reg(*reg) else { continue };
                    let part =
                        self.extract(ScalarType::I64, &parts[2 * group..2 * group + 2], lane);
                    let term = self.scaled(part, stride, size);
                    v = self.b.ins().iadd(v, term);
                }
                out.push((v, disp));
                if let Some(step) = step {
                    address = self.b.ins().iadd(address, step);
                }
            }
        }
        Place::Scattered(out)
    }

    /// An index as a number.
    pub(super) fn index_value(&mut self, ix: &Ix) -> Val {
        let (first, constant) = self.linear(None, ix, 1);
        let first = if constant == 0 { first } else { self.b.ins().iadd_imm_s(first, constant) };
        let Some(group) = self.group.clone() else { return Val::Uniform(first) };
        let mut value = Val::Uniform(first);
        let stride = ix.stride(group.var);
        if !stride.is_zero() {
            let step = self.dim(&stride);
            let mut lanes = vec![];
            let mut v = first;
            for _ in 0..self.groups() {
                let mut group = vec![];
                for _ in 0..LANES {
                    group.push(v);
                    v = self.b.ins().iadd(v, step);
                }
                lanes.extend(self.assemble(ScalarType::I64, &group));
            }
            value = Val::Lanes(lanes);
        }
        for (reg, stride) in &ix.regs {
            let reg = self.reg(*reg);
            if let Val::Lanes(_) = reg {
                let by = Val::Uniform(self.dim(stride));
                let ty = ScalarType::I64;
                let term = self.op(ScalarOp::Mul, ty, &[ty, ty], &[reg, by]);
                value = self.op(ScalarOp::Add, ty, &[ty, ty], &[value, term]);
            }
        }
        value
    }

    pub(super) fn load(&mut self, buf: u32, at: &Ix) -> Val {
        let dtype = self.kernel.bufs[buf as usize].dtype;
        let ty = ScalarType::of(dtype);
        match self.place(buf, at, dtype) {
            Place::One(p, disp) => Val::Uniform(self.load_scalar(dtype, p, disp)),
            Place::Row(p, disp) => self.load_rows(dtype, p, disp, false),
            Place::RowDown(p, disp) => self.load_rows(dtype, p, disp, true),
            Place::Scattered(places) => {
                let mut parts = vec![];
                for group in places.chunks(LANES as usize) {
                    let lanes: Vec<Value> =
                        group.iter().map(|(p, d)| self.load_scalar(dtype, *p, *d)).collect();
                    parts.extend(self.assemble(ty, &lanes));
                }
                Val::Lanes(parts)
            }
        }
    }

    fn load_rows(&mut self, dtype: DType, p: Value, disp: i32, down: bool) -> Val {
        let ty = ScalarType::of(dtype);
        let bytes = dtype.size() as i32 * LANES as i32;
        let mut parts = vec![];
        for group in 0..self.groups() as i32 {
            let at = if down {
                disp - group * bytes - (bytes - dtype.size() as i32)
            } else {
                disp + group * bytes
            };
            let mut row = self.load_row(dtype, p, at);
            if down {
                row = self.reversed(&row);
            }
            parts.extend(row);
        }
        let lanes = Val::Lanes(parts);
        match dtype {
            DType::F16 => self.half_to_float(&lanes),
            DType::BF16 => self.brain_to_float(&lanes),
            DType::Bool => {
                let zero = Val::Uniform(self.scalar_const(Scalar::I32(0)));
                let int = ScalarType::I32;
                self.op(ScalarOp::Ne, ty, &[int, int], &[lanes, zero])
            }
            _ => lanes,
        }
    }

    /// One group of neighbours; half floats as their bits, bools as integers.
    fn load_row(&mut self, dtype: DType, p: Value, at: i32) -> Vec<Value> {
        match dtype {
            DType::F32 | DType::F64 | DType::I32 | DType::I64 => {
                let ty = ScalarType::of(dtype);
                (0..parts_per_group(ty) as i32)
                    .map(|i| self.b.ins().load(vector_type(ty), flags(), p, at + 16 * i))
                    .collect()
            }
            DType::F16 | DType::BF16 => vec![self.b.ins().uload16x4(flags(), p, at)],
            DType::I8 | DType::U8 | DType::Bool => {
                let word = self.b.ins().load(types::I32, flags(), p, at);
                let v = self.b.ins().scalar_to_vector(types::I32X4, word);
                let v = self.cast_bits(types::I8X16, v);
                if dtype == DType::I8 {
                    let v = self.b.ins().swiden_low(v);
                    vec![self.b.ins().swiden_low(v)]
                } else {
                    let v = self.b.ins().uwiden_low(v);
                    vec![self.b.ins().uwiden_low(v)]
                }
            }
        }
    }

    /// The lanes of one group in the opposite order.
    fn reversed(&mut self, parts: &[Value]) -> Vec<Value> {
        let ty = self.type_of(parts[0]);
        let size = 16 / ty.lane_count() as u8;
        let bytes: Vec<u8> =
            (0..16 / size).rev().flat_map(|lane| lane * size..(lane + 1) * size).collect();
        parts.iter().rev().map(|p| self.shuffle(ty, *p, *p, &bytes)).collect()
    }

    fn load_scalar(&mut self, dtype: DType, p: Value, at: i32) -> Value {
        let f = flags();
        match dtype {
            DType::F32 => self.b.ins().load(types::F32, f, p, at),
            DType::F64 => self.b.ins().load(types::F64, f, p, at),
            DType::I32 => self.b.ins().load(types::I32, f, p, at),
            DType::I64 => self.b.ins().load(types::I64, f, p, at),
            DType::I8 => self.b.ins().sload8(types::I32, f, p, at),
            DType::U8 => self.b.ins().uload8(types::I32, f, p, at),
            DType::Bool => {
                let v = self.b.ins().load(types::I8, f, p, at);
                self.b.ins().icmp_imm_s(IntCC::NotEqual, v, 0)
            }
            DType::F16 | DType::BF16 => {
                let bits = Val::Uniform(self.b.ins().uload16(types::I32, f, p, at));
                let v = if dtype == DType::F16 {
                    self.half_to_float(&bits)
                } else {
                    self.brain_to_float(&bits)
                };
                v.parts()[0]
            }
        }
    }

    pub(super) fn store(&mut self, buf: u32, at: &Ix, value: Val) {
        let dtype = self.kernel.bufs[buf as usize].dtype;
        let ty = ScalarType::of(dtype);
        let place = self.place(buf, at, dtype);
        // What is written, as plain integers where memory is narrower.
        let (value, ty) = match dtype {
            DType::F16 => (self.float_to_half(&value), ScalarType::I32),
            DType::BF16 => (self.float_to_brain(&value), ScalarType::I32),
            _ => (value, ty),
        };
        match place {
            Place::One(p, disp) => {
                // A uniform address in a vector loop: the last iteration wins.
                let v = match &value {
                    Val::Uniform(v) => *v,
                    Val::Lanes(parts) => {
                        let per = parts.len() / self.groups();
                        let last = parts[parts.len() - per..].to_vec();
                        self.extract(ty, &last, LANES as usize - 1)
                    }
                };
                self.store_scalar(dtype, v, p, disp);
            }
            Place::Row(p, disp) => self.store_rows(dtype, ty, &value, p, disp, false),
            Place::RowDown(p, disp) => self.store_rows(dtype, ty, &value, p, disp, true),
            Place::Scattered(places) => {
                let lanes = self.in_lanes(ty, &value);
                let per = lanes.parts().len() / self.groups();
                for (group, places) in places.chunks(LANES as usize).enumerate() {
                    let parts = lanes.parts()[group * per..(group + 1) * per].to_vec();
                    for (lane, (p, d)) in places.iter().enumerate() {
                        let v = self.extract(ty, &parts, lane);
                        self.store_scalar(dtype, v, *p, *d);
                    }
                }
            }
        }
    }

    fn store_rows(
        &mut self,
        dtype: DType,
        ty: ScalarType,
        value: &Val,
        p: Value,
        disp: i32,
        down: bool,
    ) {
        let lanes = self.in_lanes(ty, value);
        let per = lanes.parts().len() / self.groups();
        let bytes = dtype.size() as i32 * LANES as i32;
        for (group, parts) in lanes.parts().chunks(per).enumerate() {
            let (at, parts) = if down {
                let at = disp - group as i32 * bytes - (bytes - dtype.size() as i32);
                (at, self.reversed(parts))
            } else {
                (disp + group as i32 * bytes, parts.to_vec())
            };
            match dtype {
                DType::F32 | DType::F64 | DType::I32 | DType::I64 => {
                    for (i, part) in parts.iter().enumerate() {
                        self.b.ins().store(flags(), *part, p, at + 16 * i as i32);
                    }
                }
                DType::F16 | DType::BF16 => {
                    let v = self.b.ins().unarrow(parts[0], parts[0]);
                    let v = self.cast_bits(types::I64X2, v);
                    let v = self.b.ins().extractlane(v, 0);
                    self.b.ins().store(flags(), v, p, at);
                }
                DType::I8 | DType::U8 | DType::Bool => {
                    // A mask has ones to spare: one bit of it is the bool.
                    let keep = if dtype == DType::Bool { 1 } else { 0xff };
                    let keep = self.b.ins().iconst(types::I32, keep);
                    let keep = self.b.ins().splat(types::I32X4, keep);
                    let v = self.b.ins().band(parts[0], keep);
                    let v = self.b.ins().unarrow(v, v);
                    let v = self.b.ins().unarrow(v, v);
                    let v = self.cast_bits(types::I32X4, v);
                    let v = self.b.ins().extractlane(v, 0);
                    self.b.ins().store(flags(), v, p, at);
                }
            }
        }
    }

    fn store_scalar(&mut self, dtype: DType, v: Value, p: Value, at: i32) {
        match dtype {
            DType::F16 | DType::BF16 => {
                self.b.ins().istore16(flags(), v, p, at);
            }
            DType::I8 | DType::U8 => {
                self.b.ins().istore8(flags(), v, p, at);
            }
            _ => {
                self.b.ins().store(flags(), v, p, at);
            }
        }
    }
}
