//! Scalar operations on values, scalar or in lanes.

use super::Emit;
use super::constants::abs_mask;
use super::value::{Val, scalar_type, vector_type};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use tfc_kernel::{ScalarOp, ScalarType};

impl Emit<'_> {
    /// `op` of `args`, whose register types are `tys`; `to` is that of the result.
    pub(super) fn op(
        &mut self,
        op: ScalarOp,
        to: ScalarType,
        tys: &[ScalarType],
        args: &[Val],
    ) -> Val {
        if op == ScalarOp::Fma && !self.target.fma && to == ScalarType::F32 {
            return self.fma_without_instruction(args);
        }
        let uniform: Option<Vec<Value>> = args
            .iter()
            .map(|a| match a {
                Val::Uniform(v) => Some(*v),
                Val::Lanes(_) => None,
            })
            .collect();
        if let Some(scalars) = uniform {
            return Val::Uniform(self.scalar_op(op, to, tys, &scalars));
        }
        match op {
            ScalarOp::Convert => self.convert_lanes(tys[0], to, &args[0]),
            ScalarOp::Bitcast => {
                let vt = vector_type(to);
                let parts = args[0].parts().iter().map(|p| self.cast_bits(vt, *p)).collect();
                Val::Lanes(parts)
            }
            ScalarOp::Select => self.select_lanes(to, args),
            ScalarOp::Div | ScalarOp::Rem if !to.is_float() => {
                self.by_lane(to, tys, args, &mut |e, v| e.scalar_op(op, to, tys, v))
            }
            ScalarOp::Shl | ScalarOp::ShrArith | ScalarOp::ShrLogic => {
                let Val::Uniform(by) = args[1] else {
                    return self.by_lane(to, tys, args, &mut |e, v| e.scalar_op(op, to, tys, v));
                };
                let x = self.in_lanes(to, &args[0]);
                Val::Lanes(x.parts().iter().map(|p| self.shift(op, *p, by)).collect())
            }
            _ if tys[0] == ScalarType::Bool => self.mask_op(op, args),
            _ => {
                let lanes: Vec<Val> =
                    args.iter().zip(tys).map(|(a, ty)| self.in_lanes(*ty, a)).collect();
                let parts = (0..lanes[0].parts().len())
                    .map(|i| {
                        let v: Vec<Value> = lanes.iter().map(|a| a.parts()[i]).collect();
                        self.plain(op, tys[0], &v)
                    })
                    .collect();
                Val::Lanes(parts)
            }
        }
    }

    fn scalar_op(
        &mut self,
        op: ScalarOp,
        to: ScalarType,
        tys: &[ScalarType],
        v: &[Value],
    ) -> Value {
        match op {
            ScalarOp::Convert => self.convert_scalar(tys[0], to, v[0]),
            ScalarOp::Bitcast => self.cast_bits(scalar_type(to), v[0]),
            ScalarOp::Select => self.b.ins().select(v[0], v[1], v[2]),
            ScalarOp::Div if !to.is_float() => self.int_div(v[0], v[1]),
            ScalarOp::Rem if !to.is_float() => {
                let (_, _, divisor) = self.safe_divisor(v[1]);
                self.b.ins().srem(v[0], divisor)
            }
            ScalarOp::Not if to == ScalarType::Bool => self.b.ins().bxor_imm_u(v[0], 1),
            ScalarOp::Shl | ScalarOp::ShrArith | ScalarOp::ShrLogic => self.shift(op, v[0], v[1]),
            _ => self.plain(op, tys[0], v),
        }
    }

    fn shift(&mut self, op: ScalarOp, x: Value, by: Value) -> Value {
        match op {
            ScalarOp::Shl => self.b.ins().ishl(x, by),
            ScalarOp::ShrArith => self.b.ins().sshr(x, by),
            _ => self.b.ins().ushr(x, by),
        }
    }

    /// Whether the divisor is zero, whether it is -1, and one that cannot trap.
    fn safe_divisor(&mut self, y: Value) -> (Value, Value, Value) {
        let zero = self.b.ins().icmp_imm_s(IntCC::Equal, y, 0);
        let minus = self.b.ins().icmp_imm_s(IntCC::Equal, y, -1);
        let special = self.b.ins().bor(zero, minus);
        let ty = self.type_of(y);
        let one = self.b.ins().iconst(ty, 1);
        (zero, minus, self.b.ins().select(special, one, y))
    }

    fn int_div(&mut self, x: Value, y: Value) -> Value {
        let (zero, minus, divisor) = self.safe_divisor(y);
        let q = self.b.ins().sdiv(x, divisor);
        let neg = self.b.ins().ineg(x);
        let q = self.b.ins().select(minus, neg, q);
        let ty = self.type_of(x);
        let none = self.b.ins().iconst(ty, 0);
        self.b.ins().select(zero, none, q)
    }

    /// Operations that read the same for scalars and vectors.
    fn plain(&mut self, op: ScalarOp, ty: ScalarType, v: &[Value]) -> Value {
        use ScalarOp::*;
        let float = ty.is_float();
        let x = v[0];
        let y = v.get(1).copied().unwrap_or(x);
        let ins = self.b.ins();
        match (op, float) {
            (Add, true) => ins.fadd(x, y),
            (Add, false) => ins.iadd(x, y),
            (Sub, true) => ins.fsub(x, y),
            (Sub, false) => ins.isub(x, y),
            (Mul, true) => ins.fmul(x, y),
            (Mul, false) => ins.imul(x, y),
            (Div, _) => ins.fdiv(x, y),
            (Neg, true) => ins.fneg(x),
            (Neg, false) => ins.ineg(x),
            (Abs, true) => self.float_abs(x),
            (Abs, false) => ins.iabs(x),
            (Min | Max, true) => self.float_extreme(op, x, y),
            (Min, false) => self.int_extreme(IntCC::SignedLessThan, x, y),
            (Max, false) => self.int_extreme(IntCC::SignedGreaterThan, x, y),
            (Fma, _) => ins.fma(x, y, v[2]),
            (Sqrt, _) => ins.sqrt(x),
            (Floor, _) => ins.floor(x),
            (Ceil, _) => ins.ceil(x),
            (RoundEven, _) => ins.nearest(x),
            (Trunc, _) => ins.trunc(x),
            (And, _) => ins.band(x, y),
            (Or, _) => ins.bor(x, y),
            (Xor, _) => ins.bxor(x, y),
            (Not, _) => ins.bnot(x),
            (Eq, true) => ins.fcmp(FloatCC::Equal, x, y),
            (Eq, false) => ins.icmp(IntCC::Equal, x, y),
            (Ne, true) => ins.fcmp(FloatCC::NotEqual, x, y),
            (Ne, false) => ins.icmp(IntCC::NotEqual, x, y),
            (Lt, true) => ins.fcmp(FloatCC::LessThan, x, y),
            (Lt, false) => ins.icmp(IntCC::SignedLessThan, x, y),
            (Le, true) => ins.fcmp(FloatCC::LessThanOrEqual, x, y),
            (Le, false) => ins.icmp(IntCC::SignedLessThanOrEqual, x, y),
            (Rem | Shl | ShrArith | ShrLogic | Select | Convert | Bitcast, _)
            | (RoundF16 | RoundBF16 | WrapI8 | WrapU8 | Scale, _)
            | (Elementary(_), _) => {
                unreachable!("{op:?} is expanded or handled apart")
            }
        }
    }

    /// Clears the sign bit; Cranelift would make the mask anew each time.
    fn float_abs(&mut self, x: Value) -> Value {
        let (ty, bits, scalar) = match self.type_of(x) {
            types::F32X4 => (types::F32X4, types::I32X4, ScalarType::F32),
            types::F64X2 => (types::F64X2, types::I64X2, ScalarType::F64),
            _ => return self.b.ins().fabs(x),
        };
        let mask = self.scalar_const(abs_mask(scalar));
        let mask = self.splat(bits, mask);
        let x = self.cast_bits(bits, x);
        let x = self.b.ins().band(x, mask);
        self.cast_bits(ty, x)
    }

    /// `isnan(x) ? x : (x < y ? x : y)`, or `>` for the maximum. The inner choice
    /// is one machine instruction, and already gives `y` when `y` is NaN.
    fn float_extreme(&mut self, op: ScalarOp, x: Value, y: Value) -> Value {
        let (a, b) = if op == ScalarOp::Min { (x, y) } else { (y, x) };
        let less = self.b.ins().fcmp(FloatCC::LessThan, a, b);
        let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        let ty = self.type_of(x);
        if ty.is_vector() {
            let less = self.cast_bits(ty, less);
            let pick = self.b.ins().bitselect(less, x, y);
            let nan = self.cast_bits(ty, nan);
            self.b.ins().bitselect(nan, x, pick)
        } else {
            let pick = self.b.ins().select(less, x, y);
            self.b.ins().select(nan, x, pick)
        }
    }

    fn int_extreme(&mut self, cc: IntCC, x: Value, y: Value) -> Value {
        match self.type_of(x) {
            types::I64X2 => {
                let take = self.b.ins().icmp(cc, x, y);
                self.b.ins().bitselect(take, x, y)
            }
            _ if cc == IntCC::SignedLessThan => self.b.ins().smin(x, y),
            _ => self.b.ins().smax(x, y),
        }
    }

    /// Logic on masks, of the width the first one has.
    fn mask_op(&mut self, op: ScalarOp, args: &[Val]) -> Val {
        use ScalarOp::*;
        let width = self.mask_width(args);
        let masks: Vec<Vec<Value>> = args.iter().map(|a| self.masks(a, width)).collect();
        let parts = (0..masks[0].len())
            .map(|i| {
                let x = masks[0][i];
                let y = masks.get(1).map_or(x, |m| m[i]);
                let ins = self.b.ins();
                match op {
                    Not => ins.bnot(x),
                    And | Mul | Min => ins.band(x, y),
                    Or | Max | Add => ins.bor(x, y),
                    Xor | Ne => ins.bxor(x, y),
                    Eq => {
                        let differ = self.b.ins().bxor(x, y);
                        self.b.ins().bnot(differ)
                    }
                    // false < true
                    Lt => ins.band_not(y, x),
                    Le => ins.bor_not(y, x),
                    _ => unreachable!("the verifier rejects {op:?} of bools"),
                }
            })
            .collect();
        Val::Lanes(parts)
    }

    fn mask_width(&self, masks: &[Val]) -> Type {
        masks
            .iter()
            .find_map(|m| match m {
                Val::Lanes(parts) => Some(self.type_of(parts[0])),
                Val::Uniform(_) => None,
            })
            .unwrap_or(types::I32X4)
    }

    fn select_lanes(&mut self, ty: ScalarType, args: &[Val]) -> Val {
        if let Val::Uniform(c) = args[0] {
            let (x, y) = (self.in_lanes(ty, &args[1]), self.in_lanes(ty, &args[2]));
            let parts = x.parts().iter().zip(y.parts());
            return Val::Lanes(parts.map(|(x, y)| self.b.ins().select(c, *x, *y)).collect());
        }
        let width = match ty {
            ScalarType::Bool => self.mask_width(args),
            ScalarType::F32 | ScalarType::I32 => types::I32X4,
            ScalarType::F64 | ScalarType::I64 => types::I64X2,
        };
        let masks = self.masks(&args[0], width);
        let (x, y) = if ty == ScalarType::Bool {
            (self.masks(&args[1], width), self.masks(&args[2], width))
        } else {
            let (x, y) = (self.in_lanes(ty, &args[1]), self.in_lanes(ty, &args[2]));
            (x.parts().to_vec(), y.parts().to_vec())
        };
        let parts = masks
            .into_iter()
            .zip(x.into_iter().zip(y))
            .map(|(mask, (x, y))| {
                let ty = self.type_of(x);
                let mask = self.cast_bits(ty, mask);
                self.b.ins().bitselect(mask, x, y)
            })
            .collect();
        Val::Lanes(parts)
    }

    /// `a * b + c` of f32, rounded once, in f64: the product is exact there; the
    /// sum is rounded to odd, which makes the second rounding harmless.
    fn fma_without_instruction(&mut self, args: &[Val]) -> Val {
        use ScalarType::{Bool, F32, F64, I64};
        let wide: Vec<Val> = args
            .iter()
            .map(|a| self.op(ScalarOp::Convert, F64, &[F32], std::slice::from_ref(a)))
            .collect();
        let two = |e: &mut Self, op, a: &Val, b: &Val| {
            e.op(op, F64, &[F64, F64], &[a.clone(), b.clone()])
        };
        let (p, c) = (two(self, ScalarOp::Mul, &wide[0], &wide[1]), &wide[2]);
        let sum = two(self, ScalarOp::Add, &p, c);
        // The exact error of the sum.
        let c_part = two(self, ScalarOp::Sub, &sum, &p);
        let p_part = two(self, ScalarOp::Sub, &sum, &c_part);
        let c_err = two(self, ScalarOp::Sub, c, &c_part);
        let p_err = two(self, ScalarOp::Sub, &p, &p_part);
        let err = two(self, ScalarOp::Add, &c_err, &p_err);
        // Where the sum is inexact, infinite sums aside, set its last bit: first
        // step toward zero if the error points there.
        let zero = Val::Uniform(self.scalar_const(tfc_kernel::Scalar::F64(0)));
        let cmp = |e: &mut Self, op, a: &Val, b: &Val| {
            e.op(op, Bool, &[F64, F64], &[a.clone(), b.clone()])
        };
        let pos = cmp(self, ScalarOp::Lt, &zero, &err);
        let neg = cmp(self, ScalarOp::Lt, &err, &zero);
        let inexact = self.op(ScalarOp::Or, Bool, &[Bool, Bool], &[pos.clone(), neg.clone()]);
        let negative = cmp(self, ScalarOp::Lt, &sum, &zero);
        let down_if_pos = self.op(ScalarOp::And, Bool, &[Bool, Bool], &[negative.clone(), pos]);
        let positive = self.op(ScalarOp::Not, Bool, &[Bool], &[negative]);
        let down_if_neg = self.op(ScalarOp::And, Bool, &[Bool, Bool], &[positive, neg]);
        let down = self.op(ScalarOp::Or, Bool, &[Bool, Bool], &[down_if_pos, down_if_neg]);
        let bits = self.op(ScalarOp::Bitcast, I64, &[F64], std::slice::from_ref(&sum));
        let step = self.op(ScalarOp::Convert, I64, &[Bool], &[down]);
        let bits = self.op(ScalarOp::Sub, I64, &[I64, I64], &[bits, step]);
        let one = Val::Uniform(self.iconst(1));
        let odd = self.op(ScalarOp::Or, I64, &[I64, I64], &[bits, one]);
        let odd = self.op(ScalarOp::Bitcast, F64, &[I64], &[odd]);
        let sum = self.op(ScalarOp::Select, F64, &[Bool, F64, F64], &[inexact, odd, sum]);
        self.op(ScalarOp::Convert, F32, &[F64], &[sum])
    }
}
