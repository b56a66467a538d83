//! Conversions between register types, and the half floats of memory.
//!
//! f16 and bf16 never become CLIF types: their bits are integers, converted by
//! integer operations, so every target has them.

use super::value::Val;
use super::{Emit, LANES};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use tfc_kernel::{Scalar, ScalarOp, ScalarType};

impl Emit<'_> {
    pub(super) fn convert_scalar(&mut self, from: ScalarType, to: ScalarType, v: Value) -> Value {
        use ScalarType::*;
        match (from, to) {
            _ if from == to => v,
            (F32, F64) => self.b.ins().fpromote(types::F64, v),
            (F64, F32) => self.b.ins().fdemote(types::F32, v),
            (I32, I64) => self.b.ins().sextend(types::I64, v),
            (I64, I32) => self.b.ins().ireduce(types::I32, v),
            (I32 | I64, F32) => self.b.ins().fcvt_from_sint(types::F32, v),
            (I32 | I64, F64) => self.b.ins().fcvt_from_sint(types::F64, v),
            (F32 | F64, I32) => self.b.ins().fcvt_to_sint_sat(types::I32, v),
            (F32 | F64, I64) => self.b.ins().fcvt_to_sint_sat(types::I64, v),
            (Bool, I32) => self.b.ins().uextend(types::I32, v),
            (Bool, I64) => self.b.ins().uextend(types::I64, v),
            (Bool, F32 | F64) => {
                let v = self.b.ins().uextend(types::I32, v);
                self.convert_scalar(I32, to, v)
            }
            (I32 | I64, Bool) => self.b.ins().icmp_imm_s(IntCC::NotEqual, v, 0),
            (F32, Bool) => {
                let zero = self.scalar_const(Scalar::F32(0));
                self.b.ins().fcmp(FloatCC::NotEqual, v, zero)
            }
            (F64, Bool) => {
                let zero = self.scalar_const(Scalar::F64(0));
                self.b.ins().fcmp(FloatCC::NotEqual, v, zero)
            }
            (F32, F32) | (F64, F64) | (I32, I32) | (I64, I64) | (Bool, Bool) => v,
        }
    }

    pub(super) fn convert_lanes(&mut self, from: ScalarType, to: ScalarType, v: &Val) -> Val {
        use ScalarType::*;
        let parts = v.parts().to_vec();
        let parts = match (from, to) {
            _ if from == to => parts,
            (F32, F64) => parts.iter().flat_map(|p| self.promote(*p)).collect(),
            (F64, F32) => parts.chunks(2).map(|p| self.demote(p[0], p[1])).collect(),
            (I32, I64) => parts
                .iter()
                .flat_map(|p| [self.b.ins().swiden_low(*p), self.b.ins().swiden_high(*p)])
                .collect(),
            (I64, I32) => parts.chunks(2).map(|p| self.even_words(p[0], p[1])).collect(),
            (I32, F32) => {
                parts.iter().map(|p| self.b.ins().fcvt_from_sint(types::F32X4, *p)).collect()
            }
            (F32, I32) => {
                parts.iter().map(|p| self.b.ins().fcvt_to_sint_sat(types::I32X4, *p)).collect()
            }
            (I32, F64) => parts
                .iter()
                .flat_map(|p| {
                    let high = self.high_half(*p);
                    [*p, high].map(|half| {
                        let wide = self.b.ins().swiden_low(half);
                        self.b.ins().fcvt_from_sint(types::F64X2, wide)
                    })
                })
                .collect(),
            (Bool, I32) => self
                .masks(v, types::I32X4)
                .iter()
                .map(|m| self.b.ins().ushr_imm_u(*m, 31))
                .collect(),
            (Bool, I64) => self
                .masks(v, types::I64X2)
                .iter()
                .map(|m| self.b.ins().ushr_imm_u(*m, 63))
                .collect(),
            (Bool, F32) => self.masked_one(v, Scalar::I32(1f32.to_bits() as i32), types::I32X4),
            (Bool, F64) => self.masked_one(v, Scalar::I64(1f64.to_bits() as i64), types::I64X2),
            (I32 | I64 | F32 | F64, Bool) => {
                let zero = Val::Uniform(self.scalar_const(Scalar::of(from, 0.0)));
                return self.op(ScalarOp::Ne, Bool, &[from, from], &[v.clone(), zero]);
            }
            (F32 | F64, I64) | (F64, I32) | (I64, F32 | F64) => {
                return self.by_lane(to, &[from], std::slice::from_ref(v), &mut |e, v| {
                    e.convert_scalar(from, to, v[0])
                });
            }
            (F32, F32) | (F64, F64) | (I32, I32) | (I64, I64) | (Bool, Bool) => parts,
        };
        Val::Lanes(parts)
    }

    fn masked_one(
        &mut self,
        v: &Val,
        one: Scalar,
        mask: cranelift_codegen::ir::Type,
    ) -> Vec<Value> {
        let one = self.scalar_const(one);
        let one = self.b.ins().splat(mask, one);
        let float = if mask.lane_count() == LANES { types::F32X4 } else { types::F64X2 };
        let masks = self.masks(v, mask);
        masks
            .into_iter()
            .map(|m| {
                let bits = self.b.ins().band(m, one);
                self.cast_bits(float, bits)
            })
            .collect()
    }

    fn high_half(&mut self, v: Value) -> Value {
        let bytes: Vec<u8> = (8..16).chain(8..16).collect();
        let ty = self.type_of(v);
        self.shuffle(ty, v, v, &bytes)
    }

    fn promote(&mut self, v: Value) -> [Value; 2] {
        let high = self.high_half(v);
        [self.b.ins().fvpromote_low(v), self.b.ins().fvpromote_low(high)]
    }

    fn demote(&mut self, low: Value, high: Value) -> Value {
        let (low, high) = (self.b.ins().fvdemote(low), self.b.ins().fvdemote(high));
        let bytes: Vec<u8> = (0..8).chain(16..24).collect();
        self.shuffle(types::F32X4, low, high, &bytes)
    }

    fn int(&mut self, v: i32) -> Val {
        Val::Uniform(self.scalar_const(Scalar::I32(v)))
    }

    fn int_op(&mut self, op: ScalarOp, a: &Val, b: &Val) -> Val {
        let ty = ScalarType::I32;
        self.op(op, ty, &[ty, ty], &[a.clone(), b.clone()])
    }

    fn int_op_const(&mut self, op: ScalarOp, a: &Val, b: i32) -> Val {
        let b = self.int(b);
        self.int_op(op, a, &b)
    }

    fn less(&mut self, a: &Val, b: i32) -> Val {
        let b = self.int(b);
        let ty = ScalarType::I32;
        self.op(ScalarOp::Lt, ScalarType::Bool, &[ty, ty], &[a.clone(), b])
    }

    fn choose(&mut self, c: Val, a: Val, b: Val) -> Val {
        let ty = ScalarType::I32;
        self.op(ScalarOp::Select, ty, &[ScalarType::Bool, ty, ty], &[c, a, b])
    }

    fn bits(&mut self, v: &Val) -> Val {
        self.op(ScalarOp::Bitcast, ScalarType::I32, &[ScalarType::F32], std::slice::from_ref(v))
    }

    fn float(&mut self, v: &Val) -> Val {
        self.op(ScalarOp::Bitcast, ScalarType::F32, &[ScalarType::I32], std::slice::from_ref(v))
    }

    fn float_op_const(&mut self, op: ScalarOp, a: &Val, b: f32) -> Val {
        let ty = ScalarType::F32;
        let b = Val::Uniform(self.scalar_const(Scalar::F32(b.to_bits())));
        self.op(op, ty, &[ty, ty], &[a.clone(), b])
    }

    /// The f32 whose f16 bits are given.
    pub(super) fn half_to_float(&mut self, h: &Val) -> Val {
        let sign = self.int_op_const(ScalarOp::And, h, 0x8000);
        let sign = self.int_op_const(ScalarOp::Shl, &sign, 16);
        let magnitude = self.int_op_const(ScalarOp::And, h, 0x7fff);
        let moved = self.int_op_const(ScalarOp::Shl, &magnitude, 13);
        // The exponent is 112 too small; multiplying corrects it for subnormals
        // too.
        let tiny = self.float(&moved);
        let scaled = self.float_op_const(ScalarOp::Mul, &tiny, f32::from_bits((127 + 112) << 23));
        let finite = self.bits(&scaled);
        let special = self.int_op_const(ScalarOp::Or, &moved, 0x7f80_0000);
        let is_finite = self.less(&magnitude, 0x7c00);
        let v = self.choose(is_finite, finite, special);
        let v = self.int_op(ScalarOp::Or, &v, &sign);
        self.float(&v)
    }

    /// The bits of an f32 rounded to f16, ties to even.
    pub(super) fn float_to_half(&mut self, x: &Val) -> Val {
        let bits = self.bits(x);
        let sign = self.int_op_const(ScalarOp::ShrLogic, &bits, 16);
        let sign = self.int_op_const(ScalarOp::And, &sign, 0x8000);
        let magnitude = self.int_op_const(ScalarOp::And, &bits, 0x7fff_ffff);
        let last = self.int_op_const(ScalarOp::ShrLogic, &magnitude, 13);
        let last = self.int_op_const(ScalarOp::And, &last, 1);
        let normal = self.int_op_const(ScalarOp::Add, &magnitude, 0xfff - (112 << 23));
        let normal = self.int_op(ScalarOp::Add, &normal, &last);
        let normal = self.int_op_const(ScalarOp::ShrLogic, &normal, 13);
        // Adding 0.5 puts the last bit of an f16 subnormal at the last bit of the
        // f32 and rounds there.
        let small = self.float(&magnitude);
        let small = self.float_op_const(ScalarOp::Add, &small, 0.5);
        let small = self.bits(&small);
        let small = self.int_op_const(ScalarOp::Sub, &small, 0.5f32.to_bits() as i32);
        let is_small = self.less(&magnitude, 0x3880_0000);
        let finite = self.choose(is_small, small, normal);
        let infinite = self.int(0x7c00);
        let nan = self.int(0x7e00);
        let in_range = self.less(&magnitude, 0x4780_0000);
        let v = self.choose(in_range, finite, infinite);
        let is_number = self.less(&magnitude, 0x7f80_0001);
        let v = self.choose(is_number, v, nan);
        self.int_op(ScalarOp::Or, &v, &sign)
    }

    pub(super) fn brain_to_float(&mut self, h: &Val) -> Val {
        let v = self.int_op_const(ScalarOp::Shl, h, 16);
        self.float(&v)
    }

    /// The bits of an f32 rounded to bf16, ties to even.
    pub(super) fn float_to_brain(&mut self, x: &Val) -> Val {
        let bits = self.bits(x);
        let high = self.int_op_const(ScalarOp::ShrLogic, &bits, 16);
        let last = self.int_op_const(ScalarOp::And, &high, 1);
        let rounded = self.int_op_const(ScalarOp::Add, &bits, 0x7fff);
        let rounded = self.int_op(ScalarOp::Add, &rounded, &last);
        let rounded = self.int_op_const(ScalarOp::ShrLogic, &rounded, 16);
        let quiet = self.int_op_const(ScalarOp::Or, &high, 0x40);
        let magnitude = self.int_op_const(ScalarOp::And, &bits, 0x7fff_ffff);
        let is_number = self.less(&magnitude, 0x7f80_0001);
        self.choose(is_number, rounded, quiet)
    }
}
