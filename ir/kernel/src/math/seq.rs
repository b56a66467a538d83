//! Writes straight-line kernel code. Operations take the type of their first
//! operand; constants take the type the sequence is for.

use crate::{Reg, Scalar, ScalarOp, ScalarType, Stmt};
use cranelift_entity::PrimaryMap;

pub(super) struct Seq<'a> {
    regs: &'a mut PrimaryMap<Reg, ScalarType>,
    out: Vec<Stmt>,
    /// The float type of the function.
    pub ty: ScalarType,
}

impl<'a> Seq<'a> {
    pub fn new(regs: &'a mut PrimaryMap<Reg, ScalarType>, ty: ScalarType) -> Seq<'a> {
        Seq { regs, out: vec![], ty }
    }

    /// The statements, `result` renamed to `dst`.
    pub fn finish(mut self, result: Reg, dst: Reg) -> Vec<Stmt> {
        match self.out.last_mut() {
            Some(Stmt::Op { dst: last, .. }) if *last == result => *last = dst,
            _ => self.out.push(Stmt::Op { dst, op: ScalarOp::Convert, args: vec![result] }),
        }
        self.out
    }

    pub fn is_f32(&self) -> bool {
        self.ty == ScalarType::F32
    }

    /// Runs `f` for another float type.
    pub fn with<T>(&mut self, ty: ScalarType, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.ty, ty);
        let result = f(self);
        self.ty = outer;
        result
    }

    fn emit(&mut self, ty: ScalarType, op: ScalarOp, args: &[Reg]) -> Reg {
        let dst = self.regs.push(ty);
        self.out.push(Stmt::Op { dst, op, args: args.to_vec() });
        dst
    }

    pub fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        let ty = self.regs[args[0]];
        self.emit(ty, op, args)
    }

    pub fn scalar(&mut self, value: Scalar) -> Reg {
        let dst = self.regs.push(value.ty());
        self.out.push(Stmt::Const { dst, value });
        dst
    }

    /// A float constant.
    pub fn c(&mut self, value: f64) -> Reg {
        self.scalar(Scalar::of(self.ty, value))
    }

    /// One of two constants, by the sequence's type.
    pub fn pick(&mut self, f32: f64, f64: f64) -> Reg {
        let value = if self.is_f32() { f32 } else { f64 };
        self.c(value)
    }

    /// An integer constant as wide as the float type.
    pub fn i(&mut self, value: i64) -> Reg {
        let scalar = if self.is_f32() { Scalar::I32(value as i32) } else { Scalar::I64(value) };
        self.scalar(scalar)
    }

    fn int_type(&self) -> ScalarType {
        if self.is_f32() { ScalarType::I32 } else { ScalarType::I64 }
    }

    pub fn add(&mut self, a: Reg, b: Reg) -> Reg {
        self.op(ScalarOp::Add, &[a, b])
    }

    pub fn sub(&mut self, a: Reg, b: Reg) -> Reg {
        self.op(ScalarOp::Sub, &[a, b])
    }

    pub fn mul(&mut self, a: Reg, b: Reg) -> Reg {
        self.op(ScalarOp::Mul, &[a, b])
    }

    pub fn div(&mut self, a: Reg, b: Reg) -> Reg {
        self.op(ScalarOp::Div, &[a, b])
    }

    pub fn fma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        self.op(ScalarOp::Fma, &[a, b, c])
    }

    /// `a * 2^n` for an integral n.
    pub fn scale(&mut self, a: Reg, n: Reg) -> Reg {
        self.op(ScalarOp::Scale, &[a, n])
    }

    pub fn neg(&mut self, a: Reg) -> Reg {
        self.op(ScalarOp::Neg, &[a])
    }

    pub fn abs(&mut self, a: Reg) -> Reg {
        self.op(ScalarOp::Abs, &[a])
    }

    pub fn round(&mut self, a: Reg) -> Reg {
        self.op(ScalarOp::RoundEven, &[a])
    }

    pub fn trunc(&mut self, a: Reg) -> Reg {
        self.op(ScalarOp::Trunc, &[a])
    }

    pub fn and(&mut self, a: Reg, b: Reg) -> Reg {
        self.op(ScalarOp::And, &[a, b])
    }

    pub fn or(&mut self, a: Reg, b: Reg) -> Reg {
        self.op(ScalarOp::Or, &[a, b])
    }

    pub fn xor(&mut self, a: Reg, b: Reg) -> Reg {
        self.op(ScalarOp::Xor, &[a, b])
    }

    pub fn not(&mut self, a: Reg) -> Reg {
        self.op(ScalarOp::Not, &[a])
    }

    pub fn shl(&mut self, a: Reg, by: i64) -> Reg {
        let by = self.shift_amount(a, by);
        self.op(ScalarOp::Shl, &[a, by])
    }

    pub fn shr(&mut self, a: Reg, by: i64) -> Reg {
        let by = self.shift_amount(a, by);
        self.op(ScalarOp::ShrLogic, &[a, by])
    }

    pub fn sar(&mut self, a: Reg, by: i64) -> Reg {
        let by = self.shift_amount(a, by);
        self.op(ScalarOp::ShrArith, &[a, by])
    }

    fn shift_amount(&mut self, like: Reg, by: i64) -> Reg {
        let value = match self.regs[like] {
            ScalarType::I64 => Scalar::I64(by),
            _ => Scalar::I32(by as i32),
        };
        self.scalar(value)
    }

    pub fn lt(&mut self, a: Reg, b: Reg) -> Reg {
        self.emit(ScalarType::Bool, ScalarOp::Lt, &[a, b])
    }

    pub fn le(&mut self, a: Reg, b: Reg) -> Reg {
        self.emit(ScalarType::Bool, ScalarOp::Le, &[a, b])
    }

    pub fn eq(&mut self, a: Reg, b: Reg) -> Reg {
        self.emit(ScalarType::Bool, ScalarOp::Eq, &[a, b])
    }

    pub fn ne(&mut self, a: Reg, b: Reg) -> Reg {
        self.emit(ScalarType::Bool, ScalarOp::Ne, &[a, b])
    }

    pub fn select(&mut self, c: Reg, a: Reg, b: Reg) -> Reg {
        let ty = self.regs[a];
        self.emit(ty, ScalarOp::Select, &[c, a, b])
    }

    pub fn convert(&mut self, a: Reg, to: ScalarType) -> Reg {
        self.emit(to, ScalarOp::Convert, &[a])
    }

    /// The bits of a float as an integer.
    pub fn bits(&mut self, a: Reg) -> Reg {
        let ty = self.int_type();
        self.emit(ty, ScalarOp::Bitcast, &[a])
    }

    /// The float with the given bits.
    pub fn float(&mut self, a: Reg) -> Reg {
        self.emit(self.ty, ScalarOp::Bitcast, &[a])
    }

    /// The smaller of `x` and a constant; NaN stays. One instruction, unlike
    /// `Min`, which must look for NaN on both sides.
    pub fn at_most(&mut self, x: Reg, c: f64) -> Reg {
        let c = self.c(c);
        let above = self.lt(c, x);
        self.select(above, c, x)
    }

    /// The larger of `x` and a constant; NaN stays.
    pub fn at_least(&mut self, x: Reg, c: f64) -> Reg {
        let c = self.c(c);
        let below = self.lt(x, c);
        self.select(below, c, x)
    }

    /// Magnitude of `x`, which is not negative, with the sign of `sign`.
    pub fn with_sign(&mut self, x: Reg, sign: Reg) -> Reg {
        let bit = self.i(if self.is_f32() { i64::from(i32::MIN) } else { i64::MIN });
        let sign = self.bits(sign);
        let sign = self.and(sign, bit);
        let x = self.bits(x);
        let both = self.or(x, sign);
        self.float(both)
    }

    /// `x` itself where its magnitude is below `limit`, else `otherwise`.
    pub fn small_is(&mut self, x: Reg, limit: f64, otherwise: Reg) -> Reg {
        let limit = self.c(limit);
        let magnitude = self.abs(x);
        let small = self.lt(magnitude, limit);
        self.select(small, x, otherwise)
    }

    /// A polynomial by Horner's rule; coefficients lowest first.
    pub fn poly<T: Copy + Into<f64>>(&mut self, x: Reg, coefs: &[T]) -> Reg {
        let mut rest = coefs.iter().rev().map(|c| (*c).into());
        let top = rest.next().unwrap_or(0.0);
        let mut v = self.c(top);
        for c in rest {
            let c = self.c(c);
            v = self.fma(v, x, c);
        }
        v
    }

    /// The same polynomial as two interleaved ones, in `x2`, the square of `x`: as
    /// many operations as `poly`, in a chain half as long.
    pub fn poly_in_pairs(&mut self, x: Reg, x2: Reg, coefs: &[f64]) -> Reg {
        let mut sum: Option<Reg> = None;
        for pair in coefs.chunks(2).rev() {
            let mut v = self.c(pair[0]);
            if let Some(odd) = pair.get(1) {
                let odd = self.c(*odd);
                v = self.fma(odd, x, v);
            }
            sum = Some(match sum {
                Some(sum) => self.fma(sum, x2, v),
                None => v,
            });
        }
        sum.unwrap_or_else(|| self.c(0.0))
    }
}
