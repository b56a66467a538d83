//! Scalar operations. Each lane of a thread does its own.

use super::emit::Emit;
use super::func::{Class, V, immediate};
use tfc_kernel::{Elementary as Function, Scalar, ScalarOp, ScalarType};

/// The suffix of arithmetic on signed integers and floats.
fn suffix(ty: ScalarType) -> &'static str {
    match ty {
        ScalarType::F32 => "f32",
        ScalarType::F64 => "f64",
        ScalarType::I32 => "s32",
        ScalarType::I64 => "s64",
        ScalarType::Bool => "pred",
    }
}

/// The suffix of operations on bits.
fn bits(ty: ScalarType) -> &'static str {
    match ty {
        ScalarType::F32 | ScalarType::I32 => "b32",
        ScalarType::F64 | ScalarType::I64 => "b64",
        ScalarType::Bool => "pred",
    }
}

/// Whether there is an instruction that comes near a function.
pub(super) fn approximate(op: ScalarOp, ty: ScalarType) -> bool {
    let known = [Function::Exp, Function::Log].map(ScalarOp::Elementary);
    known.contains(&op) && ty == ScalarType::F32
}

impl Emit<'_> {
    /// One operation. `known` are the values of operands that are constants.
    pub(super) fn scalar_op(
        &mut self,
        op: ScalarOp,
        to: ScalarType,
        from: ScalarType,
        args: &[V],
        known: &[Option<Scalar>],
    ) -> V {
        use ScalarOp::*;
        let ty = from;
        let class = Class::of(to);
        let (s, b) = (suffix(ty), bits(ty));
        let float = ty.is_float();
        let x = args[0];
        let f = &mut self.f;
        // The second operand, as a number where it is one: the assembler does the rest.
        let y: String = match (known.get(1), args.get(1)) {
            (Some(Some(c)), _) if ty != ScalarType::Bool => immediate(*c),
            (_, Some(y)) => y.to_string(),
            _ => String::new(),
        };
        let two = |f: &mut super::func::Func, name: String| f.op(class, &name, &[&x, &y]);
        match op {
            Add | Sub if float => {
                two(f, format!("{}.rn.{s}", if op == Add { "add" } else { "sub" }))
            }
            Add => two(f, format!("add.{s}")),
            Sub => two(f, format!("sub.{s}")),
            Mul if float => two(f, format!("mul.rn.{s}")),
            Mul => two(f, format!("mul.lo.{s}")),
            Div if self.fast && ty == ScalarType::F32 => two(f, "div.full.f32".into()),
            Div if float => two(f, format!("div.rn.{s}")),
            Div => self.divide("div", ty, args, known),
            Rem => self.divide("rem", ty, args, known),
            Neg => f.op(class, &format!("neg.{s}"), &[&x]),
            Abs => f.op(class, &format!("abs.{s}"), &[&x]),
            Min | Max if float => {
                // NaN of either comes out; of zeros the second: not what `min` gives.
                let nan = f.op(Class::Pred, &format!("setp.nan.{s}"), &[&x, &x]);
                let cmp = if op == Min { "lt" } else { "gt" };
                let p = f.op(Class::Pred, &format!("setp.{cmp}.or.{s}"), &[&x, &y, &nan]);
                f.op(class, &format!("selp.{b}"), &[&x, &y, &p])
            }
            Min => two(f, format!("min.{s}")),
            Max => two(f, format!("max.{s}")),
            Fma => f.op(class, &format!("fma.rn.{s}"), &[&x, &args[1], &args[2]]),
            Sqrt if self.fast && ty == ScalarType::F32 => f.op(class, "sqrt.approx.f32", &[&x]),
            Sqrt => f.op(class, &format!("sqrt.rn.{s}"), &[&x]),
            Floor => f.op(class, &format!("cvt.rmi.{s}.{s}"), &[&x]),
            Ceil => f.op(class, &format!("cvt.rpi.{s}.{s}"), &[&x]),
            RoundEven => f.op(class, &format!("cvt.rni.{s}.{s}"), &[&x]),
            Trunc => f.op(class, &format!("cvt.rzi.{s}.{s}"), &[&x]),
            And => two(f, format!("and.{b}")),
            Or => two(f, format!("or.{b}")),
            Xor => two(f, format!("xor.{b}")),
            Not => f.op(class, &format!("not.{b}"), &[&x]),
            Shl => self.shift("shl", b, ty, args, known),
            ShrArith => self.shift("shr", s, ty, args, known),
            ShrLogic => {
                let unsigned = if ty == ScalarType::I64 { "u64" } else { "u32" };
                self.shift("shr", unsigned, ty, args, known)
            }
            Eq | Ne if ty == ScalarType::Bool => {
                let differ = f.op(Class::Pred, "xor.pred", &[&x, &args[1]]);
                if op == Ne { differ } else { f.op(Class::Pred, "not.pred", &[&differ]) }
            }
            Eq => two(f, format!("setp.eq.{s}")),
            Ne if float => two(f, format!("setp.neu.{s}")),
            Ne => two(f, format!("setp.ne.{s}")),
            Lt => two(f, format!("setp.lt.{s}")),
            Le => two(f, format!("setp.le.{s}")),
            Select if to == ScalarType::Bool => {
                let yes = f.op(Class::Pred, "and.pred", &[&x, &args[1]]);
                let other = f.op(Class::Pred, "not.pred", &[&x]);
                let no = f.op(Class::Pred, "and.pred", &[&other, &args[2]]);
                f.op(Class::Pred, "or.pred", &[&yes, &no])
            }
            Select => f.op(class, &format!("selp.{}", bits(to)), &[&args[1], &args[2], &x]),
            Convert => self.convert(from, to, x),
            Bitcast if from == to => x,
            Bitcast => f.op(class, &format!("mov.{b}"), &[&x]),
            // In base two, which is what there are instructions for.
            Elementary(Function::Exp) => {
                let log2_e = immediate(Scalar::of(ty, std::f64::consts::LOG2_E));
                let x = f.op(class, "mul.rn.f32", &[&x, &log2_e]);
                f.op(class, "ex2.approx.f32", &[&x])
            }
            Elementary(Function::Log) => {
                let ln_2 = immediate(Scalar::of(ty, std::f64::consts::LN_2));
                let y = f.op(class, "lg2.approx.f32", &[&x]);
                f.op(class, "mul.rn.f32", &[&y, &ln_2])
            }
            RoundF16 | RoundBF16 | WrapI8 | WrapU8 | Scale | Elementary(_) => {
                unreachable!("expanded before code generation")
            }
        }
    }

    /// Division of integers: by zero gives zero.
    fn divide(&mut self, op: &str, ty: ScalarType, args: &[V], known: &[Option<Scalar>]) -> V {
        let (class, s) = (Class::of(ty), suffix(ty));
        let (x, y) = (args[0], args[1]);
        let f = &mut self.f;
        match known.get(1).copied().flatten() {
            Some(Scalar::I32(0) | Scalar::I64(0)) => f.constant(Scalar::of(ty, 0.0)),
            Some(c @ (Scalar::I32(_) | Scalar::I64(_))) => {
                f.op(class, &format!("{op}.{s}"), &[&x, &immediate(c)])
            }
            _ => {
                let zero = f.op(Class::Pred, &format!("setp.eq.{s}"), &[&y, &0]);
                let b = bits(ty);
                let by = f.op(class, &format!("selp.{b}"), &[&1, &y, &zero]);
                let q = f.op(class, &format!("{op}.{s}"), &[&x, &by]);
                f.op(class, &format!("selp.{b}"), &[&0, &q, &zero])
            }
        }
    }

    /// The amount is taken modulo the width; PTX would clamp it.
    fn shift(
        &mut self,
        op: &str,
        suffix: &str,
        ty: ScalarType,
        args: &[V],
        known: &[Option<Scalar>],
    ) -> V {
        let class = Class::of(ty);
        let last = if ty == ScalarType::I64 { 63 } else { 31 };
        let f = &mut self.f;
        let amount = match known.get(1).copied().flatten() {
            Some(Scalar::I32(v)) => (i64::from(v) & last).to_string(),
            Some(Scalar::I64(v)) => (v & last).to_string(),
            _ => {
                let by = match ty {
                    ScalarType::I64 => f.op(Class::B32, "cvt.u32.u64", &[&args[1]]),
                    _ => args[1],
                };
                f.op(Class::B32, "and.b32", &[&by, &last]).to_string()
            }
        };
        f.op(class, &format!("{op}.{suffix}"), &[&args[0], &amount])
    }

    pub(super) fn convert(&mut self, from: ScalarType, to: ScalarType, x: V) -> V {
        use ScalarType::*;
        let class = Class::of(to);
        let f = &mut self.f;
        let one = |f: &mut super::func::Func, op: &str| f.op(class, op, &[&x]);
        match (from, to) {
            _ if from == to => x,
            (F32, F64) => one(f, "cvt.f64.f32"),
            (F64, F32) => one(f, "cvt.rn.f32.f64"),
            (I32, I64) => one(f, "cvt.s64.s32"),
            (I64, I32) => one(f, "cvt.u32.u64"),
            (I32, F32) => one(f, "cvt.rn.f32.s32"),
            (I64, F32) => one(f, "cvt.rn.f32.s64"),
            (I32, F64) => one(f, "cvt.rn.f64.s32"),
            (I64, F64) => one(f, "cvt.rn.f64.s64"),
            (F32, I32) => one(f, "cvt.rzi.s32.f32"),
            // NaN must give 0; it gives the smallest number here.
            (F32, I64) => self.int_of(x, "f32", "s64", class),
            (F64, I32) => self.int_of(x, "f64", "s32", class),
            (F64, I64) => self.int_of(x, "f64", "s64", class),
            (Bool, F32 | F64 | I32 | I64) => {
                let (yes, no) = (Scalar::of(to, 1.0), Scalar::of(to, 0.0));
                let op = format!("selp.{}", Class::of(to).ty());
                f.op(class, &op, &[&immediate(yes), &immediate(no), &x])
            }
            (F32, Bool) => f.op(class, "setp.neu.f32", &[&x, &"0f00000000"]),
            (F64, Bool) => f.op(class, "setp.neu.f64", &[&x, &"0d0000000000000000"]),
            (I32, Bool) => f.op(class, "setp.ne.s32", &[&x, &0]),
            (I64, Bool) => f.op(class, "setp.ne.s64", &[&x, &0]),
            (F32, F32) | (F64, F64) | (I32, I32) | (I64, I64) | (Bool, Bool) => x,
        }
    }

    fn int_of(&mut self, x: V, from: &str, to: &str, class: Class) -> V {
        let f = &mut self.f;
        let v = f.op(class, &format!("cvt.rzi.{to}.{from}"), &[&x]);
        let nan = f.op(Class::Pred, &format!("setp.nan.{from}"), &[&x, &x]);
        f.op(class, &format!("selp.{}", class.ty()), &[&0, &v, &nan])
    }
}
