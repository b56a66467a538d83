//! Every op's lowering against its `eval`, without a compiler in between.
//!
//! [`Direct`] answers an op's requests with values instead of registers of a
//! kernel: asked for an addition, it adds. So an op whose `lower` and `eval`
//! disagree is found here, before any pass or backend is involved.

mod rows;

use cranelift_entity::{EntityRef, PrimaryMap};
use rows::*;
use std::collections::BTreeSet;
use tfc_ir::build::{self, Builder, GraphEmit};
use tfc_ir::diag::Span;
use tfc_ir::eval::{Array, Data};
use tfc_ir::graph::DimDecl;
use tfc_ir::interp::{self, State};
use tfc_ir::kernel::{Combine, Ix, Reg, Scalar, ScalarOp, ScalarType};
use tfc_ir::lower::{Lower, Pull};
use tfc_ir::op::{Eval, EvalCx, Kind};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Op, Tensor, TensorType, ValueId};

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
                    Pow => x.powf(y),
                    RemFloat => x % y,
                    Exp => elementary(Op::Exp, x),
                    Log => elementary(Op::Log, x),
                    Log1p => elementary(Op::Log1p, x),
                    Expm1 => elementary(Op::Expm1, x),
                    Sin => elementary(Op::Sin, x),
                    Cos => elementary(Op::Cos, x),
                    Tanh => elementary(Op::Tanh, x),
                    Sigmoid => elementary(Op::Sigmoid, x),
                    Erf => elementary(Op::Erf, x),
                    Rsqrt => elementary(Op::Rsqrt, x),
                    _ => panic!("{op:?} of {ty:?}"),
                },
            )
        }
    }
}

/// Backends expand these from one definition, so here `eval` may stand for it.
fn elementary(op: Op, x: f64) -> f64 {
    let x = Array::from_tensor(&Tensor::splat(DType::F64, vec![], x));
    eval(op, &[x], &Attrs::none(), TensorType::scalar(DType::F64)).to_tensor().to_f64()[0]
}

fn eval(op: Op, operands: &[Array], attrs: &Attrs, result: TensorType) -> Array {
    let Eval::Pure(eval) = op.def().eval else { panic!("{} is not evaluated", op.name()) };
    let cx = EvalCx { operands, attrs, results: &[result], dims: &size };
    eval(&cx).unwrap_or_else(|e| panic!("{}: {e}", op.name())).remove(0)
}

struct Direct<'a> {
    operands: &'a [Array],
    types: &'a [TensorType],
    attrs: &'a Attrs,
    result: &'a TensorType,
    regs: PrimaryMap<Reg, Val>,
}

impl Direct<'_> {
    fn value(&self, ix: &Ix) -> i64 {
        assert!(ix.terms.is_empty(), "indices are evaluated, not looped over");
        let regs =
            ix.regs.iter().map(|(r, stride)| self.regs[*r].i64() * stride.eval(&size).unwrap());
        ix.offset.eval(&size).unwrap() + regs.sum::<i64>()
    }

    fn load(&mut self, i: usize, at: &[usize]) -> Reg {
        let dtype = self.operands[i].dtype;
        let value = match &self.operands[i].data {
            Data::Float(a) => Val::float(ScalarType::of(dtype), a[at]),
            Data::Int(a) => Val::int(ScalarType::of(dtype), a[at]),
            Data::Bool(a) => Bool(a[at]),
        };
        self.regs.push(value)
    }
}

impl Pull for Direct<'_> {
    fn operand(&mut self, i: usize, at: &[Ix]) -> Reg {
        let shape = self.operands[i].shape().to_vec();
        assert_eq!(at.len(), shape.len());
        let at: Vec<usize> = at.iter().map(|ix| self.value(ix) as usize).collect();
        assert!(at.iter().zip(&shape).all(|(a, s)| a < s), "{at:?} is outside {shape:?}");
        self.load(i, &at)
    }

    fn operand_type(&self, i: usize) -> TensorType {
        self.types[i].clone()
    }

    fn operand_count(&self) -> usize {
        self.types.len()
    }

    fn result_type(&self) -> TensorType {
        self.result.clone()
    }

    fn attrs(&self) -> &Attrs {
        self.attrs
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
        let extents: Vec<i64> = extents.iter().map(|d| d.eval(&size).unwrap()).collect();
        let total: i64 = extents.iter().product();
        assert!(total > 0, "the tables have no empty windows");
        let mut acc: Option<Reg> = None;
        for step in 0..total {
            let (mut rest, mut at) = (step, vec![Ix::constant(0); extents.len()]);
            for axis in (0..extents.len()).rev() {
                at[axis] = Ix::constant(rest % extents[axis]);
                rest /= extents[axis];
            }
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
        acc.unwrap_or(Reg::new(0))
    }
}

/// The lowering's answer at every index.
fn lowered(
    op: Op,
    operands: &[Array],
    types: &[TensorType],
    attrs: &Attrs,
    result: &TensorType,
) -> Vec<f64> {
    let shape: Vec<i64> = result.shape.iter().map(|d| d.eval(&size).unwrap()).collect();
    let mut out = vec![];
    for element in 0..shape.iter().product::<i64>() {
        let (mut rest, mut at) = (element, vec![0usize; shape.len()]);
        for axis in (0..shape.len()).rev() {
            at[axis] = (rest % shape[axis]) as usize;
            rest /= shape[axis];
        }
        let mut k = Direct { operands, types, attrs, result, regs: PrimaryMap::new() };
        let reg = match op.def().lower {
            Lower::Map(lower) => {
                let args: Vec<Reg> = (0..operands.len()).map(|i| k.load(i, &at)).collect();
                let reg = lower(&mut k, &args);
                // As the lowering pass does after every `Map`.
                match result.dtype {
                    DType::F16 => k.op(ScalarOp::RoundF16, &[reg]),
                    DType::BF16 => k.op(ScalarOp::RoundBF16, &[reg]),
                    DType::I8 => k.op(ScalarOp::WrapI8, &[reg]),
                    DType::U8 => k.op(ScalarOp::WrapU8, &[reg]),
                    _ => reg,
                }
            }
            Lower::Index(lower) => {
                let at: Vec<Ix> = at.iter().map(|i| Ix::constant(*i as i64)).collect();
                lower(&mut k, &at)
            }
            _ => panic!("{} is not pulled", op.name()),
        };
        let value = k.regs[reg];
        assert_eq!(value.ty(), ScalarType::of(result.dtype), "register type of {}", op.name());
        out.push(if let I64(v) = value { v as f64 } else { value.f64() });
    }
    out
}

fn same(dtype: DType, got: f64, want: f64) -> bool {
    let tolerance = match dtype {
        DType::F64 => 1e-13,
        DType::F32 => 1e-6,
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 0.0,
    };
    if got == 0.0 && want == 0.0 {
        return got.is_sign_negative() == want.is_sign_negative();
    }
    got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= tolerance * want.abs()
}

/// Values worth trying.
fn specials(dtype: DType, ternary: bool) -> Vec<f64> {
    let nan = f64::NAN;
    let inf = f64::INFINITY;
    match dtype {
        DType::Bool => vec![0.0, 1.0],
        DType::I8 => vec![-128.0, -3.0, -1.0, 0.0, 1.0, 2.0, 7.0, 127.0],
        DType::U8 => vec![0.0, 1.0, 2.0, 7.0, 128.0, 255.0],
        DType::I32 => vec![i32::MIN as f64, -3.0, -1.0, 0.0, 1.0, 2.0, 31.0, i32::MAX as f64],
        DType::I64 => vec![i64::MIN as f64, -3.0, -1.0, 0.0, 1.0, 2.0, 63.0, (1i64 << 52) as f64],
        _ if ternary => vec![-inf, -1.5, -0.0, 0.0, 1.0, inf, nan],
        _ => vec![
            -inf, -300.0, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-6, 0.5, 1.0, 1.5, 2.0, 3.5, 50.0, inf,
            nan,
        ],
    }
}

/// All combinations of special values, as one tensor an operand.
fn combinations(dtypes: &[DType]) -> Vec<Array> {
    let lists: Vec<Vec<f64>> = dtypes.iter().map(|d| specials(*d, dtypes.len() > 2)).collect();
    let total: usize = lists.iter().map(Vec::len).product();
    let mut stride = 1;
    lists
        .iter()
        .zip(dtypes)
        .map(|(list, dtype)| {
            let values = (0..total).map(|i| list[i / stride % list.len()]);
            let tensor = Tensor::from_f64(*dtype, vec![total], values);
            stride *= list.len();
            Array::from_tensor(&tensor)
        })
        .collect()
}

#[test]
fn elementwise_ops_mean_what_they_compile_to() {
    let mut tried = 0;
    for &op in Op::ALL {
        let def = op.def();
        if !matches!(def.lower, Lower::Map(_)) {
            continue;
        }
        for dtype in DType::ALL {
            let dtypes: Option<Vec<DType>> = def
                .operands
                .iter()
                .map(|o| match o.kind {
                    Kind::Bool => Some(DType::Bool),
                    kind => kind.admits(dtype).then_some(dtype),
                })
                .collect();
            let Some(dtypes) = dtypes else { continue };
            let targets = if op == Op::Cast { &DType::ALL[..] } else { &[dtype] };
            for &to in targets {
                let mut attrs = Attrs::none();
                if op == Op::Cast {
                    attrs.set("to", Attr::DType(to));
                }
                let operands = combinations(&dtypes);
                let types: Vec<TensorType> = operands
                    .iter()
                    .map(|a| TensorType::new(a.dtype, vec![Dim::from(a.shape()[0])]))
                    .collect();
                let result = build::infer(op, &types, &attrs, None, &[]).unwrap().remove(0);
                let want = eval(op, &operands, &attrs, result.clone()).to_tensor().to_f64();
                let got = lowered(op, &operands, &types, &attrs, &result);
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let inputs: Vec<f64> =
                        operands.iter().map(|a| a.to_tensor().to_f64()[i]).collect();
                    assert!(
                        same(result.dtype, *got, *want),
                        "{} of {inputs:?} ({dtype} to {}): {got} lowered, {want} by eval",
                        def.name,
                        result.dtype
                    );
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 10_000, "{tried}");
}

/// The operands of a row, and their types.
fn operands(row: &Row, dtype: DType) -> (Vec<Array>, Vec<TensorType>) {
    let mut random = Random(42);
    row.inputs
        .iter()
        .map(|input| match input {
            In::Random(shape, lo, hi) => (
                Array::from_tensor(&random.tensor(dtype, shape, *lo, *hi)),
                TensorType::new(dtype, shape.clone()),
            ),
            In::Given(tensor) => {
                let shape: Vec<Dim> = tensor.shape().iter().map(|d| Dim::from(*d)).collect();
                (Array::from_tensor(tensor), TensorType::new(tensor.dtype(), shape))
            }
        })
        .unzip()
}

/// Attributes with defaults filled in.
fn complete(row: &Row) -> Attrs {
    let mut attrs = row.attrs.clone();
    for spec in row.op.def().attrs {
        if let (None, Some(default)) = (attrs.get(spec.name), spec.default) {
            attrs.set(spec.name, default());
        }
    }
    attrs
}

#[test]
fn index_ops_mean_what_they_compile_to() {
    for row in rows().into_iter().chain(other_rows()) {
        if !matches!(row.op.def().lower, Lower::Index(_)) {
            continue;
        }
        for dtype in [DType::F32, DType::F64] {
            let (operands, types) = operands(&row, dtype);
            let attrs = complete(&row);
            let result = build::infer(row.op, &types, &attrs, None, &[])
                .unwrap_or_else(|e| panic!("{}: {e:?}", row.op.name()))
                .remove(0);
            let concrete: Vec<Dim> =
                result.shape.iter().map(|d| Dim::constant(d.eval(&size).unwrap())).collect();
            let concrete = TensorType::new(result.dtype, concrete);
            let want = eval(row.op, &operands, &attrs, concrete).to_tensor().to_f64();
            let got = lowered(row.op, &operands, &types, &attrs, &result);
            assert_eq!(got.len(), want.len());
            // Windows are summed in another order.
            let scale = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let name = row.op.name();
                let close = same(result.dtype, *got, *want)
                    || result.dtype.is_float() && (got - want).abs() <= 1e-6 * scale;
                assert!(close, "{name} at {i}: {got} lowered, {want} by eval");
                if name.starts_with("random") {
                    assert_eq!(got, want, "random numbers agree bit for bit");
                }
            }
        }
    }
}

/// A graph with one entry that applies the op, or its expansion, to parameters.
fn entry(row: &Row, types: &[TensorType], expand: bool) -> Graph {
    let mut graph = Graph::default();
    for (name, _) in [B, T] {
        graph.dims.push(DimDecl { name: name.into(), min: 0, max: i64::MAX, span: Span::NONE });
    }
    let mut func = Func::new("f");
    let mut b = Builder::new(&mut func, &graph.vars);
    b.param(TensorType::new(DType::Bool, vec![Dim::sym(B.0), Dim::sym(T.0)]), None);
    let params: Vec<ValueId> = types.iter().map(|t| b.param(t.clone(), None)).collect();
    let result = match row.op.def().lower {
        Lower::Expand(body) if expand => {
            let e = GraphEmit::new(&mut b);
            let operands: Vec<_> = params.iter().map(|p| e.opaque(*p)).collect();
            let out = e.value(body(&e, &operands, &complete(row)));
            e.finish().unwrap_or_else(|err| panic!("{}: {err:?}", row.op.name()));
            out
        }
        _ => b.emit(row.op, &params, complete(row)).unwrap(),
    };
    func.result_names = vec!["out".into()];
    func.regions[func.body].results = vec![result];
    graph.entries.push(func);
    tfc_ir::verify::assert_valid(&graph, tfc_ir::op::Stage::Core, row.op.name());
    graph
}

#[test]
fn expansions_mean_the_same() {
    for row in rows().into_iter().chain(other_rows()) {
        if !matches!(row.op.def().lower, Lower::Expand(_)) {
            continue;
        }
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let (arrays, types) = operands(&row, dtype);
            let dims = Tensor::splat(DType::Bool, vec![B.1 as usize, T.1 as usize], 0.0);
            let feeds: Vec<Tensor> =
                std::iter::once(dims).chain(arrays.iter().map(Array::to_tensor)).collect();
            let [want, got] = [false, true].map(|expand| {
                let graph = entry(&row, &types, expand);
                let mut state = State::zeros(&graph).unwrap();
                interp::run(&graph, "f", &feeds, &mut state).unwrap().remove(0)
            });
            assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()));
            let scale = want.to_f64().iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (got, want) in got.to_f64().into_iter().zip(want.to_f64()) {
                let close = same(dtype, got, want) || (got - want).abs() <= 1e-6 * scale;
                assert!(close, "{}: {got} expanded, {want} by eval", row.op.name());
            }
        }
    }
}

#[test]
fn every_pulled_or_expanded_op_has_a_row() {
    let covered: BTreeSet<Op> = rows().iter().chain(other_rows().iter()).map(|r| r.op).collect();
    let missing: Vec<&str> = Op::ALL
        .iter()
        .filter(|op| matches!(op.def().lower, Lower::Index(_) | Lower::Expand(_)))
        .filter(|op| !covered.contains(op))
        .map(|op| op.name())
        .collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}
