//! A lowering run directly: one element at a time, every address checked.
//!
//! [`Direct`] answers an op's requests with values instead of registers of a
//! kernel: asked for an addition, it adds.
#![allow(dead_code, reason = "each test binary uses its part")]

use cranelift_entity::PrimaryMap;
use tfc_ir::eval::{Array, Data};
use tfc_ir::kernel::{Combine, Ix, Reg, Scalar, ScalarOp, ScalarType};
use tfc_ir::lower::{Lower, Pull};
use tfc_ir::{Attrs, DType, Dim, Op, TensorType};

/// One op applied to arrays.
pub struct Direct<'a> {
    pub op: Op,
    pub operands: &'a [Array],
    /// Types as inference sees them, with run-time dims.
    pub types: &'a [TensorType],
    pub attrs: &'a Attrs,
    pub result: &'a TensorType,
    pub dims: &'a dyn Fn(&str) -> Option<i64>,
}

impl Direct<'_> {
    /// The lowering's answer at every index, in row-major order.
    pub fn run(&self) -> Vec<f64> {
        let shape: Vec<i64> = self.result.shape.iter().map(|d| self.size(d)).collect();
        (0..shape.iter().product::<i64>()).map(|i| self.element(&unflatten(i, &shape))).collect()
    }

    fn size(&self, dim: &Dim) -> i64 {
        dim.eval(self.dims).expect("a bound dim")
    }

    fn element(&self, at: &[i64]) -> f64 {
        let mut k = Machine { of: self, regs: PrimaryMap::new() };
        let at: Vec<Ix> = at.iter().map(|i| Ix::constant(*i)).collect();
        let reg = match self.op.def().lower {
            Lower::Map(lower) => {
                let args: Vec<Reg> = (0..self.operands.len()).map(|i| k.operand(i, &at)).collect();
                let reg = lower(&mut k, &args);
                // As the lowering pass does after every `Map`.
                match self.result.dtype {
                    DType::F16 => k.op(ScalarOp::RoundF16, &[reg]),
                    DType::BF16 => k.op(ScalarOp::RoundBF16, &[reg]),
                    DType::I8 => k.op(ScalarOp::WrapI8, &[reg]),
                    DType::U8 => k.op(ScalarOp::WrapU8, &[reg]),
                    _ => reg,
                }
            }
            Lower::Index(lower) => lower(&mut k, &at),
            _ => panic!("{} is not pulled", self.op.name()),
        };
        let value = k.regs[reg];
        let want = ScalarType::of(self.result.dtype);
        assert_eq!(value.ty(), want, "register type of {}", self.op.name());
        value.f64()
    }
}

/// Row-major index of an element.
fn unflatten(mut element: i64, shape: &[i64]) -> Vec<i64> {
    let mut at = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        at[axis] = element % shape[axis];
        element /= shape[axis];
    }
    at
}

struct Machine<'a> {
    of: &'a Direct<'a>,
    regs: PrimaryMap<Reg, Val>,
}

impl Machine<'_> {
    fn value(&self, ix: &Ix) -> i64 {
        assert!(ix.terms.is_empty(), "indices are evaluated, not looped over");
        let regs = ix.regs.iter().map(|(r, stride)| {
            let I64(v) = self.regs[*r] else { panic!("an index is i64") };
            v * self.of.size(stride)
        });
        self.of.size(&ix.offset) + regs.sum::<i64>()
    }
}

impl Pull for Machine<'_> {
    fn guarded(&mut self, i: usize, at: &[Ix], sizes: &[Dim]) -> Reg {
        if sizes.iter().all(|size| self.of.size(size) > 0) {
            return self.operand(i, at);
        }
        // The operand may not even be empty: nothing can be said of it.
        let ty = ScalarType::of(self.of.operands[i].dtype);
        self.regs.push(Val::of(Scalar::of(ty, 77.0)))
    }

    fn operand(&mut self, i: usize, at: &[Ix]) -> Reg {
        let array = &self.of.operands[i];
        let ty = ScalarType::of(array.dtype);
        let at: Vec<i64> = at.iter().map(|ix| self.value(ix)).collect();
        assert_eq!(at.len(), array.shape().len(), "operand {i}");
        let inside = |(p, s): (&i64, &usize)| (0..*s as i64).contains(p);
        assert!(at.iter().zip(array.shape()).all(inside), "{at:?} is outside {:?}", array.shape());
        let at: Vec<usize> = at.iter().map(|p| *p as usize).collect();
        let value = match &array.data {
            Data::Float(a) => Val::float(ty, a[&at[..]]),
            Data::Int(a) => Val::int(ty, a[&at[..]]),
            Data::Bool(a) => Bool(a[&at[..]]),
        };
        self.regs.push(value)
    }

    fn operand_type(&self, i: usize) -> TensorType {
        self.of.types[i].clone()
    }

    fn operand_count(&self) -> usize {
        self.of.types.len()
    }

    fn result_type(&self) -> TensorType {
        self.of.result.clone()
    }

    fn attrs(&self) -> &Attrs {
        self.of.attrs
    }

    fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        let args: Vec<Val> = args.iter().map(|r| self.regs[*r]).collect();
        self.regs.push(apply(op, &args))
    }

    fn convert(&mut self, x: Reg, to: ScalarType) -> Reg {
        let x = self.regs[x];
        let float = x.ty().is_float();
        self.regs.push(match to {
            ScalarType::F32 | ScalarType::F64 if float => Val::float(to, x.f64()),
            // Once rounded, not twice.
            ScalarType::F32 => F32(x.i64() as f32),
            ScalarType::F64 => F64(x.i64() as f64),
            ScalarType::I32 if float => I32(x.f64() as i32),
            ScalarType::I32 => I32(x.i64() as i32),
            ScalarType::I64 if float => I64(x.f64() as i64),
            ScalarType::I64 => I64(x.i64()),
            ScalarType::Bool => Bool(x.f64() != 0.0),
        })
    }

    fn bitcast(&mut self, x: Reg, to: ScalarType) -> Reg {
        let value = match (self.regs[x], to) {
            (F32(v), ScalarType::I32) => I32(v.to_bits() as i32),
            (I32(v), ScalarType::F32) => F32(f32::from_bits(v as u32)),
            (F64(v), ScalarType::I64) => I64(v.to_bits() as i64),
            (I64(v), ScalarType::F64) => F64(f64::from_bits(v as u64)),
            (v, to) => panic!("{v:?} has not the width of {to:?}"),
        };
        self.regs.push(value)
    }

    fn constant(&mut self, value: Scalar) -> Reg {
        self.regs.push(Val::of(value))
    }

    fn reg_type(&self, x: Reg) -> ScalarType {
        self.regs[x].ty()
    }

    fn index(&mut self, ix: &Ix) -> Reg {
        let value = self.value(ix);
        self.regs.push(I64(value))
    }

    fn reduce(
        &mut self,
        combine: Combine,
        extents: &[Dim],
        body: &mut dyn FnMut(&mut dyn Pull, &[Ix]) -> Reg,
    ) -> Reg {
        let extents: Vec<i64> = extents.iter().map(|d| self.of.size(d)).collect();
        let mut acc: Option<Reg> = None;
        for step in 0..extents.iter().product::<i64>() {
            let at: Vec<Ix> = unflatten(step, &extents).into_iter().map(Ix::constant).collect();
            let next = body(self, &at);
            let op = match combine {
                Combine::Sum => ScalarOp::Add,
                Combine::Prod => ScalarOp::Mul,
                Combine::Max => ScalarOp::Max,
                Combine::Min => ScalarOp::Min,
                Combine::And => ScalarOp::And,
                Combine::Or => ScalarOp::Or,
                Combine::Sequential => panic!("not a reduction"),
            };
            acc = Some(match acc {
                None => next,
                Some(acc) => self.op(op, &[acc, next]),
            });
        }
        acc.expect("windows are not empty")
    }
}

/// The value of a register.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Val {
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    Bool(bool),
}

use Val::*;

impl Val {
    fn of(scalar: Scalar) -> Val {
        match scalar {
            Scalar::F32(bits) => F32(f32::from_bits(bits)),
            Scalar::F64(bits) => F64(f64::from_bits(bits)),
            Scalar::I32(v) => I32(v),
            Scalar::I64(v) => I64(v),
            Scalar::Bool(v) => Bool(v),
        }
    }

    fn ty(self) -> ScalarType {
        match self {
            F32(_) => ScalarType::F32,
            F64(_) => ScalarType::F64,
            I32(_) => ScalarType::I32,
            I64(_) => ScalarType::I64,
            Bool(_) => ScalarType::Bool,
        }
    }

    fn f64(self) -> f64 {
        match self {
            F32(v) => v as f64,
            F64(v) => v,
            I32(v) => v as f64,
            I64(v) => v as f64,
            Bool(v) => v as u8 as f64,
        }
    }

    fn i64(self) -> i64 {
        match self {
            F32(v) => v as i64,
            F64(v) => v as i64,
            I32(v) => v as i64,
            I64(v) => v,
            Bool(v) => v as i64,
        }
    }

    fn float(ty: ScalarType, v: f64) -> Val {
        if ty == ScalarType::F32 { F32(v as f32) } else { F64(v) }
    }

    fn int(ty: ScalarType, v: i64) -> Val {
        if ty == ScalarType::I32 { I32(v as i32) } else { I64(v) }
    }
}

/// What the closed set of scalar ops means.
fn apply(op: ScalarOp, a: &[Val]) -> Val {
    use ScalarOp::*;
    let ty = a[0].ty();
    if op == Select {
        assert_eq!(a[1].ty(), a[2].ty(), "{op:?}");
        return if a[0] == Bool(true) { a[1] } else { a[2] };
    }
    assert!(a.iter().all(|v| v.ty() == ty), "{op:?} of {a:?}");
    let compare = match op {
        Eq => Some(a[0] == a[1]),
        Ne => Some(a[0] != a[1]),
        Lt if ty.is_float() => Some(a[0].f64() < a[1].f64()),
        Le if ty.is_float() => Some(a[0].f64() <= a[1].f64()),
        Lt => Some(a[0].i64() < a[1].i64()),
        Le => Some(a[0].i64() <= a[1].i64()),
        _ => None,
    };
    if let Some(v) = compare {
        assert_ne!(ty, ScalarType::Bool, "comparisons are of numbers");
        return Bool(v);
    }
    match ty {
        ScalarType::Bool => {
            let truth = |i: usize| a[i] == Bool(true);
            Bool(match op {
                And => truth(0) & truth(1),
                Or => truth(0) | truth(1),
                Xor => truth(0) ^ truth(1),
                Not => !truth(0),
                _ => panic!("{op:?} of bool"),
            })
        }
        ScalarType::I32 | ScalarType::I64 => {
            let (x, y) = (a[0].i64(), a.get(1).map_or(0, |v| v.i64()));
            let bits = if ty == ScalarType::I32 { 32 } else { 64 };
            Val::int(
                ty,
                match op {
                    Add => x.wrapping_add(y),
                    Sub => x.wrapping_sub(y),
                    Mul => x.wrapping_mul(y),
                    Div if y == 0 => 0,
                    Div => x.wrapping_div(y),
                    Rem if y == 0 => 0,
                    Rem => x.wrapping_rem(y),
                    Neg => x.wrapping_neg(),
                    Abs => x.wrapping_abs(),
                    Min => x.min(y),
                    Max => x.max(y),
                    And => x & y,
                    Or => x | y,
                    Xor => x ^ y,
                    Not => !x,
                    Shl => x.wrapping_shl((y % bits) as u32),
                    ShrArith => x >> (y % bits),
                    ShrLogic if bits == 32 => ((x as u32) >> (y % bits)) as i64,
                    ShrLogic => ((x as u64) >> (y % bits)) as i64,
                    WrapI8 => x as i8 as i64,
                    WrapU8 => x as u8 as i64,
                    _ => panic!("{op:?} of {ty:?}"),
                },
            )
        }
        ScalarType::F32 | ScalarType::F64 => {
            // f64 holds sums, products, quotients and roots of f32 well enough
            // to round correctly.
            let (x, y) = (a[0].f64(), a.get(1).map_or(0.0, |v| v.f64()));
            let nan = x.is_nan() || y.is_nan();
            let zeros = x == 0.0 && y == 0.0;
            Val::float(
                ty,
                match op {
                    Add => x + y,
                    Sub => x - y,
                    Mul => x * y,
                    Div => x / y,
                    Fma => x.mul_add(y, a[2].f64()),
                    Neg => -x,
                    Abs => x.abs(),
                    Min | Max if nan => f64::NAN,
                    Min if zeros => {
                        if x.is_sign_negative() {
                            x
                        } else {
                            y
                        }
                    }
                    Max if zeros => {
                        if x.is_sign_negative() {
                            y
                        } else {
                            x
                        }
                    }
                    Min => x.min(y),
                    Max => x.max(y),
                    Sqrt => x.sqrt(),
                    Floor => x.floor(),
                    Ceil => x.ceil(),
                    RoundEven => x.round_ties_even(),
                    Trunc => x.trunc(),
                    RoundF16 => tfc_ir::eval::round_to(DType::F16, x),
                    RoundBF16 => tfc_ir::eval::round_to(DType::BF16, x),
                    Elementary(function) => {
                        (function.def().reference)(&[x, y][..function.def().arity])
                    }
                    _ => panic!("{op:?} of {ty:?}"),
                },
            )
        }
    }
}
