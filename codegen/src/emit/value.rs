//! What a register is in CLIF.
//!
//! `Uniform` values are scalars: f32, f64, i32, i64, and i8 (0 or 1) for bool.
//! `Lanes` hold one group after the other, each as one 128-bit vector for
//! four-byte types and two for eight-byte types. A bool in lanes is a mask, all
//! ones or all zeros per lane, as wide as the values it was made from: `i32x4`
//! or a pair of `i64x2`.

use super::{Emit, LANES};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type, Value, types};
use tfc_kernel::ScalarType;

#[derive(Clone, Debug)]
pub(super) enum Val {
    Uniform(Value),
    Lanes(Vec<Value>),
}

impl Val {
    pub(super) fn parts(&self) -> &[Value] {
        match self {
            Val::Uniform(v) => std::slice::from_ref(v),
            Val::Lanes(parts) => parts,
        }
    }
}

pub(super) fn scalar_type(ty: ScalarType) -> Type {
    match ty {
        ScalarType::F32 => types::F32,
        ScalarType::F64 => types::F64,
        ScalarType::I32 => types::I32,
        ScalarType::I64 => types::I64,
        ScalarType::Bool => types::I8,
    }
}

/// The vector type of one part; masks as wide as four-byte values.
pub(super) fn vector_type(ty: ScalarType) -> Type {
    match ty {
        ScalarType::F32 => types::F32X4,
        ScalarType::F64 => types::F64X2,
        ScalarType::I32 | ScalarType::Bool => types::I32X4,
        ScalarType::I64 => types::I64X2,
    }
}

/// Vectors per group.
pub(super) fn parts_per_group(ty: ScalarType) -> usize {
    if vector_type(ty).lane_count() == LANES { 1 } else { 2 }
}

impl Emit<'_> {
    pub(super) fn groups(&self) -> usize {
        self.group.as_ref().map_or(1, |g| g.unroll as usize)
    }

    pub(super) fn type_of(&self, v: Value) -> Type {
        self.b.func.dfg.value_type(v)
    }

    /// Reinterprets the bits of a value of the same size.
    pub(super) fn cast_bits(&mut self, to: Type, v: Value) -> Value {
        if self.type_of(v) == to {
            return v;
        }
        // Lanes are numbered as in memory on the little-endian machines we
        // generate code for.
        let flags = MemFlagsData::new().with_endianness(Endianness::Little);
        self.b.ins().bitcast(to, flags, v)
    }

    /// `val` in lanes; masks in their canonical four-byte form.
    pub(super) fn in_lanes(&mut self, ty: ScalarType, val: &Val) -> Val {
        match val {
            Val::Lanes(_) if ty == ScalarType::Bool => Val::Lanes(self.masks(val, types::I32X4)),
            Val::Lanes(_) => val.clone(),
            Val::Uniform(v) if ty == ScalarType::Bool => {
                Val::Lanes(vec![self.splat_mask(*v, types::I32X4); self.groups()])
            }
            Val::Uniform(v) => {
                let part = self.splat(vector_type(ty), *v);
                Val::Lanes(vec![part; self.groups() * parts_per_group(ty)])
            }
        }
    }

    fn splat_mask(&mut self, v: Value, mask: Type) -> Value {
        let wide = self.b.ins().uextend(mask.lane_type(), v);
        let ones = self.b.ins().ineg(wide);
        self.b.ins().splat(mask, ones)
    }

    /// The parts of a bool as masks of type `mask` (`i32x4` or `i64x2`).
    pub(super) fn masks(&mut self, val: &Val, mask: Type) -> Vec<Value> {
        match val {
            Val::Uniform(v) => {
                let part = self.splat_mask(*v, mask);
                vec![part; self.groups() * (LANES / mask.lane_count()) as usize]
            }
            Val::Lanes(parts) if self.type_of(parts[0]) == mask => parts.clone(),
            Val::Lanes(parts) if mask == types::I32X4 => {
                parts.chunks(2).map(|p| self.even_words(p[0], p[1])).collect()
            }
            Val::Lanes(parts) => parts
                .iter()
                .flat_map(|p| [self.b.ins().swiden_low(*p), self.b.ins().swiden_high(*p)])
                .collect(),
        }
    }

    /// The low halves of four eight-byte lanes, as `i32x4`.
    pub(super) fn even_words(&mut self, low: Value, high: Value) -> Value {
        let bytes: Vec<u8> = [0u8, 8, 16, 24].iter().flat_map(|b| *b..*b + 4).collect();
        self.shuffle(types::I32X4, low, high, &bytes)
    }

    pub(super) fn shuffle(&mut self, to: Type, a: Value, b: Value, bytes: &[u8]) -> Value {
        let (a, b) = (self.cast_bits(types::I8X16, a), self.cast_bits(types::I8X16, b));
        let mask = self.b.func.dfg.immediates.push(bytes.to_vec().into());
        let v = self.b.ins().shuffle(a, b, mask);
        self.cast_bits(to, v)
    }

    /// One lane of one group (given by its parts) as a scalar.
    pub(super) fn extract(&mut self, ty: ScalarType, parts: &[Value], lane: usize) -> Value {
        let per = self.type_of(parts[0]).lane_count() as usize;
        let v = self.b.ins().extractlane(parts[lane / per], (lane % per) as u8);
        if ty == ScalarType::Bool { self.b.ins().icmp_imm_s(IntCC::NotEqual, v, 0) } else { v }
    }

    /// One group made of scalars.
    pub(super) fn assemble(&mut self, ty: ScalarType, lanes: &[Value]) -> Vec<Value> {
        let vt = vector_type(ty);
        lanes
            .chunks(vt.lane_count() as usize)
            .map(|lanes| {
                let mut part = None;
                for (i, v) in lanes.iter().enumerate() {
                    let v = if ty == ScalarType::Bool {
                        let wide = self.b.ins().uextend(types::I32, *v);
                        self.b.ins().ineg(wide)
                    } else {
                        *v
                    };
                    part = Some(match part {
                        None => self.b.ins().scalar_to_vector(vt, v),
                        Some(p) => self.b.ins().insertlane(p, v, i as u8),
                    });
                }
                part.unwrap_or_else(|| unreachable!("a group has lanes"))
            })
            .collect()
    }

    /// Applies a scalar function lane by lane.
    pub(super) fn by_lane(
        &mut self,
        to: ScalarType,
        tys: &[ScalarType],
        args: &[Val],
        f: &mut dyn FnMut(&mut Self, &[Value]) -> Value,
    ) -> Val {
        let mut out = vec![];
        for group in 0..self.groups() {
            let mut lanes = vec![];
            for lane in 0..LANES as usize {
                let scalars: Vec<Value> = args
                    .iter()
                    .zip(tys)
                    .map(|(arg, ty)| match arg {
                        Val::Uniform(v) => *v,
                        Val::Lanes(parts) => {
                            let per = parts.len() / self.groups();
                            let parts = parts[group * per..(group + 1) * per].to_vec();
                            self.extract(*ty, &parts, lane)
                        }
                    })
                    .collect();
                lanes.push(f(self, &scalars));
            }
            out.extend(self.assemble(to, &lanes));
        }
        Val::Lanes(out)
    }
}
