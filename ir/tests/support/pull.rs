//! A lowering run directly: one element at a time, every address checked.

use super::Case;
use cranelift_entity::PrimaryMap;
use half::{bf16, f16};
use tfc_ir::eval::{Array, Data};
use tfc_ir::kernel::{Combine, Ix, Reg, Scalar, ScalarOp, ScalarType};
use tfc_ir::lower::Pull;
use tfc_ir::{Attrs, Dim, Tensor, TensorType};

pub fn run(
    case: &Case,
    lower: fn(&mut dyn Pull, &[Ix]) -> Reg,
    ty: &TensorType,
    fixed: &TensorType,
) -> Array {
    let shape = fixed.static_shape().expect("fixed sizes");
    let mut values = vec![];
    for flat in 0..shape.iter().product::<usize>() {
        let mut rest = flat;
        let mut at = vec![Ix::constant(0); shape.len()];
        for (i, size) in shape.iter().enumerate().rev() {
            at[i] = Ix::constant((rest % size) as i64);
            rest /= size;
        }
        let mut machine = Machine { case, ty, regs: PrimaryMap::new() };
        let reg = lower(&mut machine, &at);
        let value = machine.regs[reg];
        assert_eq!(value.ty(), ScalarType::of(ty.dtype), "{}", case.op.name());
        values.push(as_f64(value));
    }
    Array::from_tensor(&Tensor::from_f64(ty.dtype, shape, values))
}

struct Machine<'a> {
    case: &'a Case,
    ty: &'a TensorType,
    regs: PrimaryMap<Reg, Scalar>,
}

fn as_f64(v: Scalar) -> f64 {
    match v {
        Scalar::F32(b) => f32::from_bits(b) as f64,
        Scalar::F64(b) => f64::from_bits(b),
        Scalar::I32(v) => v as f64,
        Scalar::I64(v) => v as f64,
        Scalar::Bool(v) => v as u8 as f64,
    }
}

fn as_i64(v: Scalar) -> i64 {
    match v {
        Scalar::I32(v) => v as i64,
        Scalar::I64(v) => v,
        Scalar::Bool(v) => v as i64,
        _ => as_f64(v) as i64,
    }
}

fn of_i64(ty: ScalarType, v: i64) -> Scalar {
    match ty {
        ScalarType::I32 => Scalar::I32(v as i32),
        ScalarType::I64 => Scalar::I64(v),
        ScalarType::Bool => Scalar::Bool(v != 0),
        _ => Scalar::of(ty, v as f64),
    }
}

impl Machine<'_> {
    fn dim(&self, d: &Dim) -> i64 {
        d.eval(&|name| self.case.dims.get(name).copied()).expect("a bound dim")
    }

    fn ix(&self, ix: &Ix) -> i64 {
        assert!(ix.terms.is_empty());
        let regs = ix.regs.iter().map(|(r, s)| {
            let Scalar::I64(v) = self.regs[*r] else { panic!("an index is i64") };
            v * self.dim(s)
        });
        self.dim(&ix.offset) + regs.sum::<i64>()
    }

    fn compute(&self, op: ScalarOp, args: &[Reg]) -> Scalar {
        let v: Vec<Scalar> = args.iter().map(|r| self.regs[*r]).collect();
        let ty = v[0].ty();
        if op == ScalarOp::Select {
            let Scalar::Bool(cond) = v[0] else { panic!("a condition is bool") };
            assert_eq!(v[1].ty(), v[2].ty());
            return if cond { v[1] } else { v[2] };
        }
        assert!(v.iter().all(|x| x.ty() == ty), "{op:?} on {v:?}");
        let (x, y) = (v[0], v.get(1).copied().unwrap_or(v[0]));
        if ty.is_float() {
            let (a, b) = (as_f64(x), as_f64(y));
            return match op {
                ScalarOp::Eq => Scalar::Bool(a == b),
                ScalarOp::Ne => Scalar::Bool(a != b),
                ScalarOp::Lt => Scalar::Bool(a < b),
                ScalarOp::Le => Scalar::Bool(a <= b),
                ScalarOp::Add => Scalar::of(ty, a + b),
                ScalarOp::Sub => Scalar::of(ty, a - b),
                ScalarOp::Mul => Scalar::of(ty, a * b),
                ScalarOp::Div => Scalar::of(ty, a / b),
                ScalarOp::Max if a.is_nan() || b.is_nan() => Scalar::of(ty, f64::NAN),
                ScalarOp::Max => Scalar::of(ty, a.max(b)),
                ScalarOp::RoundF16 => Scalar::of(ty, f16::from_f64(a).to_f64()),
                ScalarOp::RoundBF16 => Scalar::of(ty, bf16::from_f64(a).to_f64()),
                _ => panic!("{op:?} on floats"),
            };
        }
        let (a, b) = (as_i64(x), as_i64(y));
        match op {
            ScalarOp::Eq => Scalar::Bool(a == b),
            ScalarOp::Ne => Scalar::Bool(a != b),
            ScalarOp::Lt => Scalar::Bool(a < b),
            ScalarOp::Le => Scalar::Bool(a <= b),
            ScalarOp::Add => of_i64(ty, a.wrapping_add(b)),
            ScalarOp::Sub => of_i64(ty, a.wrapping_sub(b)),
            ScalarOp::Mul => of_i64(ty, a.wrapping_mul(b)),
            ScalarOp::Div => of_i64(ty, a.checked_div(b).unwrap_or(0)),
            ScalarOp::Rem => of_i64(ty, a.checked_rem(b).unwrap_or(0)),
            ScalarOp::Min => of_i64(ty, a.min(b)),
            ScalarOp::Max => of_i64(ty, a.max(b)),
            ScalarOp::And => of_i64(ty, a & b),
            ScalarOp::Or => of_i64(ty, a | b),
            ScalarOp::WrapI8 => of_i64(ty, a as i8 as i64),
            ScalarOp::WrapU8 => of_i64(ty, a as u8 as i64),
            _ => panic!("{op:?} on integers"),
        }
    }
}

impl Pull for Machine<'_> {
    fn operand(&mut self, i: usize, at: &[Ix]) -> Reg {
        let (ty, array) = &self.case.operands[i];
        assert_eq!(at.len(), ty.rank(), "operand {i}");
        let at: Vec<i64> = at.iter().map(|ix| self.ix(ix)).collect();
        let reg = ScalarType::of(ty.dtype);
        let count: usize = array.shape().iter().product();
        let value = if count == 0 {
            assert!(at.iter().all(|p| *p == 0), "{at:?} of an empty operand");
            Scalar::of(reg, 77.0)
        } else {
            let at: Vec<usize> = at.iter().map(|p| *p as usize).collect();
            match &array.data {
                Data::Float(a) => Scalar::of(reg, a[&at[..]]),
                Data::Int(a) => of_i64(reg, a[&at[..]]),
                Data::Bool(a) => Scalar::Bool(a[&at[..]]),
            }
        };
        self.regs.push(value)
    }

    fn operand_type(&self, i: usize) -> TensorType {
        self.case.operands[i].0.clone()
    }

    fn operand_count(&self) -> usize {
        self.case.operands.len()
    }

    fn result_type(&self) -> TensorType {
        self.ty.clone()
    }

    fn attrs(&self) -> &Attrs {
        &self.case.attrs
    }

    fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        let value = self.compute(op, args);
        self.regs.push(value)
    }

    fn convert(&mut self, x: Reg, to: ScalarType) -> Reg {
        let x = self.regs[x];
        let value =
            if x.ty().is_float() { Scalar::of(to, as_f64(x)) } else { of_i64(to, as_i64(x)) };
        self.regs.push(value)
    }

    fn bitcast(&mut self, _: Reg, _: ScalarType) -> Reg {
        panic!("movement does not look at bits")
    }

    fn constant(&mut self, value: Scalar) -> Reg {
        self.regs.push(value)
    }

    fn reg_type(&self, x: Reg) -> ScalarType {
        self.regs[x].ty()
    }

    fn index(&mut self, ix: &Ix) -> Reg {
        let value = Scalar::I64(self.ix(ix));
        self.regs.push(value)
    }

    fn reduce(
        &mut self,
        combine: Combine,
        extents: &[Dim],
        body: &mut dyn FnMut(&mut dyn Pull, &[Ix]) -> Reg,
    ) -> Reg {
        let sizes: Vec<i64> = extents.iter().map(|d| self.dim(d)).collect();
        let mut acc: Option<Reg> = None;
        for flat in 0..sizes.iter().product::<i64>() {
            let mut rest = flat;
            let mut at = vec![Ix::constant(0); sizes.len()];
            for (i, size) in sizes.iter().enumerate().rev() {
                at[i] = Ix::constant(rest % size);
                rest /= size;
            }
            let value = body(self, &at);
            let op = match combine {
                Combine::Sum => ScalarOp::Add,
                Combine::Max => ScalarOp::Max,
                Combine::Min => ScalarOp::Min,
                _ => panic!("no op here reduces by {combine:?}"),
            };
            acc = Some(match acc {
                None => value,
                Some(acc) => self.op(op, &[acc, value]),
            });
        }
        acc.expect("windows are not empty")
    }
}
