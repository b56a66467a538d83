//! Runs one op on arrays, by its reference semantics and by its lowering, and
//! insists that they agree.

mod pull;

use std::collections::BTreeMap;
use tfc_ir::build::infer;
use tfc_ir::eval::{Array, Data};
use tfc_ir::lower::Lower;
use tfc_ir::op::{Eval, EvalCx, InferError};
use tfc_ir::{Attr, Attrs, DType, Dim, Op, Tensor, TensorType};

/// splitmix64
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: i64) -> i64 {
        (self.bits() % n as u64) as i64
    }

    /// Small multiples of 1/8, so that sums are exact.
    pub fn array(&mut self, dtype: DType, shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        let values = (0..count).map(|_| (self.below(33) - 16) as f64);
        let values: Vec<f64> = values.map(|v| if dtype.is_float() { v / 8.0 } else { v }).collect();
        Array::from_tensor(&Tensor::from_f64(dtype, shape.to_vec(), values))
    }
}

pub fn sym(name: &str) -> Dim {
    Dim::sym(name)
}

pub fn n(size: i64) -> Dim {
    Dim::constant(size)
}

pub fn ints(dtype: DType, shape: &[usize], values: &[i64]) -> Array {
    Array::from_tensor(&Tensor::from_i64(dtype, shape.to_vec(), values.iter().copied()))
}

pub fn floats(shape: &[usize], values: &[f64]) -> Array {
    Array::from_tensor(&Tensor::from_f64(DType::F32, shape.to_vec(), values.iter().copied()))
}

/// An op under test: operands with types that may name dims.
#[derive(Clone)]
pub struct Case {
    pub op: Op,
    pub operands: Vec<(TensorType, Array)>,
    pub attrs: Attrs,
    pub dims: BTreeMap<String, i64>,
}

pub fn case(op: Op) -> Case {
    let mut attrs = Attrs::none();
    for spec in op.def().attrs {
        if let Some(default) = spec.default {
            attrs.set(spec.name, default());
        }
    }
    Case { op, operands: vec![], attrs, dims: BTreeMap::new() }
}

#[allow(dead_code)]
impl Case {
    /// An operand whose type is that of the array.
    pub fn arg(self, array: Array) -> Case {
        let shape: Vec<Dim> = array.shape().iter().map(|d| Dim::from(*d)).collect();
        self.typed(&shape, array)
    }

    /// An operand whose shape is written with dims.
    pub fn typed(mut self, shape: &[Dim], array: Array) -> Case {
        self.operands.push((TensorType::new(array.dtype, shape.to_vec()), array));
        self
    }

    pub fn dim(mut self, name: &str, value: i64) -> Case {
        self.dims.insert(name.into(), value);
        self
    }

    pub fn ints(mut self, name: &'static str, value: &[i64]) -> Case {
        self.attrs.set(name, Attr::Ints(value.to_vec()));
        self
    }

    /// What to do about indices out of range.
    pub fn bounds(mut self, value: &str) -> Case {
        self.attrs.set("bounds", Attr::Str(value.to_string()));
        self
    }

    pub fn int(mut self, name: &'static str, value: i64) -> Case {
        self.attrs.set(name, Attr::Int(value));
        self
    }

    pub fn shape(mut self, name: &'static str, value: &[Dim]) -> Case {
        self.attrs.set(name, Attr::Shape(value.to_vec()));
        self
    }

    pub fn sizes(self, name: &'static str, value: &[i64]) -> Case {
        let value: Vec<Dim> = value.iter().map(|v| n(*v)).collect();
        self.shape(name, &value)
    }

    pub fn float(mut self, name: &'static str, value: f64) -> Case {
        self.attrs.set(name, Attr::float(value));
        self
    }

    pub fn dtype(mut self, value: DType) -> Case {
        self.attrs.set("dtype", Attr::DType(value));
        self
    }

    pub fn infer(&self) -> Result<TensorType, InferError> {
        let types: Vec<TensorType> = self.operands.iter().map(|(t, _)| t.clone()).collect();
        Ok(infer(self.op, &types, &self.attrs, None, &[])?.remove(0))
    }

    /// The error code inference gives.
    pub fn code(&self) -> &'static str {
        let err = self.infer().expect_err("an ill-typed case");
        assert!(!err.message.is_empty() && !err.labels.is_empty(), "{err:?}");
        err.code
    }

    /// The result, by `eval`; checked against the op's lowering.
    pub fn run(&self) -> Array {
        self.try_run().unwrap_or_else(|e| panic!("{}: {e}", self.op.name()))
    }

    pub fn try_run(&self) -> Result<Array, String> {
        let ty = self.infer().unwrap_or_else(|e| panic!("{}: {e:?}", self.op.name()));
        let lookup = |name: &str| self.dims.get(name).copied();
        let fixed = |ty: &TensorType| {
            let shape: Vec<Dim> =
                ty.shape.iter().map(|d| n(d.eval(&lookup).expect("a bound dim"))).collect();
            TensorType::new(ty.dtype, shape)
        };
        for (ty, array) in &self.operands {
            let expected = fixed(ty).static_shape();
            assert_eq!(expected.as_deref(), Some(array.shape()), "operand {ty}");
        }
        let arrays: Vec<Array> = self.operands.iter().map(|(_, a)| a.clone()).collect();
        let Eval::Pure(eval) = self.op.def().eval else { panic!("not pure") };
        let results = [fixed(&ty)];
        let cx = EvalCx { operands: &arrays, attrs: &self.attrs, results: &results, dims: &lookup };
        let result = eval(&cx)?.remove(0);
        assert_eq!(result.dtype, ty.dtype);
        assert_eq!(Some(result.shape().to_vec()), results[0].static_shape());
        if let Lower::Index(_) = self.op.def().lower {
            let types: Vec<TensorType> = self.operands.iter().map(|(t, _)| t.clone()).collect();
            let direct = pull::Direct {
                op: self.op,
                operands: &arrays,
                types: &types,
                attrs: &self.attrs,
                result: &ty,
                dims: &lookup,
            };
            let shape = result.shape().to_vec();
            let lowered = Array::from_tensor(&Tensor::from_f64(ty.dtype, shape, direct.run()));
            assert_close(&result, &lowered, self.op.name());
        }
        Ok(result)
    }
}

pub fn values(array: &Array) -> Vec<f64> {
    match &array.data {
        Data::Float(a) => a.iter().copied().collect(),
        Data::Int(a) => a.iter().map(|v| *v as f64).collect(),
        Data::Bool(a) => a.iter().map(|v| *v as u8 as f64).collect(),
    }
}

pub fn assert_close(a: &Array, b: &Array, what: &str) {
    assert_eq!(a.dtype, b.dtype, "{what}");
    assert_eq!(a.shape(), b.shape(), "{what}");
    let tolerance = if a.dtype.is_float() { 1e-6 } else { 0.0 };
    for (i, (x, y)) in values(a).into_iter().zip(values(b)).enumerate() {
        let same = x == y || (x.is_nan() && y.is_nan());
        let near = (x - y).abs() <= tolerance * x.abs().max(1.0);
        assert!(same || near, "{what}: element {i} is {x} by `eval` and {y} by lowering");
    }
}
