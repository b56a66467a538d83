//! One or more applications of every op that has a gradient, or that is lowered
//! by pulling or expansion: whoever adds an op adds its row.
//!
//! The tables drive `gradients.rs` and `lowering.rs`.
#![allow(dead_code, reason = "each test binary uses its part")]

use tfc_ir::{Attr, Attrs, DType, Dim, Op, Tensor};

/// An operand.
pub enum In {
    /// Random floats in a range.
    Random(Vec<Dim>, f64, f64),
    /// These values; differentiated if they are floats.
    Given(Tensor),
}

pub struct Row {
    pub op: Op,
    pub inputs: Vec<In>,
    pub attrs: Attrs,
}

// Run-time dims of the table, and the sizes fed for them.
pub const B: (&str, i64) = ("B", 3);
pub const T: (&str, i64) = ("T", 2);

pub fn b() -> Dim {
    Dim::sym(B.0)
}

pub fn t() -> Dim {
    Dim::sym(T.0)
}

pub fn n(size: i64) -> Dim {
    Dim::constant(size)
}

pub fn x(shape: &[Dim]) -> In {
    In::Random(shape.to_vec(), -2.0, 2.0)
}

pub fn within(shape: &[Dim], lo: f64, hi: f64) -> In {
    In::Random(shape.to_vec(), lo, hi)
}

pub fn floats(values: &[f64]) -> In {
    In::Given(Tensor::from_f64(DType::F64, vec![values.len()], values.iter().copied()))
}

pub fn ints(shape: &[usize], values: &[i64]) -> In {
    In::Given(Tensor::from_i64(DType::I32, shape.to_vec(), values.iter().copied()))
}

pub fn row(op: Op, inputs: Vec<In>) -> Row {
    Row { op, inputs, attrs: Attrs::none() }
}

impl Row {
    pub fn with(mut self, name: &'static str, value: Attr) -> Row {
        self.attrs.set(name, value);
        self
    }

    pub fn ints(self, name: &'static str, value: &[i64]) -> Row {
        self.with(name, Attr::Ints(value.to_vec()))
    }

    pub fn shape(self, name: &'static str, value: &[Dim]) -> Row {
        self.with(name, Attr::Shape(value.to_vec()))
    }

    pub fn bounds(self, value: &str) -> Row {
        self.with("bounds", Attr::Str(value.to_string()))
    }

    pub fn int(self, name: &'static str, value: i64) -> Row {
        self.with(name, Attr::Int(value))
    }

    pub fn flag(self, name: &'static str) -> Row {
        self.with(name, Attr::Bool(true))
    }
}

/// Ops with a gradient.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![];
    for op in [
        Op::Neg,
        Op::Abs,
        Op::Exp,
        Op::Expm1,
        Op::Sin,
        Op::Cos,
        Op::Tanh,
        Op::Atan,
        Op::Sinh,
        Op::Cosh,
        Op::Asinh,
        Op::Sigmoid,
        Op::Erf,
        Op::Erfc,
        Op::Relu,
    ] {
        rows.push(row(op, vec![x(&[b(), n(2)])]));
        rows.push(row(op, vec![x(&[])]));
    }
    for how in ["mean", "sum", "max", "min"] {
        let how = Attr::Str(how.to_string());
        rows.push(row(Op::AllReduce, vec![x(&[b(), n(2)])]).with("op", how));
    }
    for op in [Op::Log, Op::Sqrt, Op::Rsqrt] {
        rows.push(row(op, vec![within(&[b()], 0.3, 3.0)]));
    }
    for op in [Op::Asin, Op::Acos, Op::Tan, Op::Atanh] {
        rows.push(row(op, vec![within(&[b(), n(2)], -0.9, 0.9)]));
    }
    rows.push(row(Op::Copy, vec![x(&[b(), n(2)])]));
    rows.push(row(Op::Acosh, vec![within(&[b()], 1.2, 4.0)]));
    rows.push(row(Op::Cbrt, vec![within(&[b()], 0.3, 3.0)]));
    rows.push(row(Op::Cbrt, vec![within(&[b()], -3.0, -0.3)]));
    rows.push(row(Op::Atan2, vec![x(&[b(), n(2)]), within(&[b(), n(2)], 0.3, 2.0)]));
    rows.push(row(Op::Atan2, vec![within(&[b()], 0.3, 2.0), within(&[b()], -2.0, -0.3)]));
    rows.push(row(Op::Log1p, vec![within(&[b()], -0.7, 2.0)]));
    for op in [Op::Add, Op::Sub, Op::Mul, Op::Maximum, Op::Minimum] {
        rows.push(row(op, vec![x(&[b(), n(2)]), x(&[b(), n(2)])]));
    }
    rows.push(row(Op::Div, vec![x(&[b()]), within(&[b()], 0.5, 2.0)]));
    rows.push(row(Op::Pow, vec![within(&[b()], 0.3, 2.0), x(&[b()])]));
    rows.push(row(Op::Rem, vec![within(&[b()], 5.1, 5.9), within(&[b()], 2.1, 2.4)]));
    rows.push(row(
        Op::Clamp,
        vec![x(&[n(9)]), within(&[n(9)], -1.5, -0.5), within(&[n(9)], 0.5, 1.0)],
    ));
    let truth = Tensor::from_i64(DType::Bool, vec![3], [1, 0, 1]);
    rows.push(row(Op::Select, vec![In::Given(truth), x(&[n(3)]), x(&[n(3)])]));
    rows.push(row(Op::Cast, vec![x(&[b()])]).with("to", Attr::DType(DType::F64)));

    for op in [Op::Sum, Op::Mean, Op::Prod, Op::ReduceMax, Op::ReduceMin] {
        let input = || vec![x(&[b(), n(4), t()])];
        rows.push(row(op, input()).ints("axes", &[1]));
        rows.push(row(op, input()).ints("axes", &[2, 0]));
        rows.push(row(op, input()).ints("axes", &[0, 2]).flag("keep"));
        rows.push(row(op, input()).ints("axes", &[]));
        rows.push(row(op, vec![x(&[])]).ints("axes", &[]));
    }
    for op in [Op::CumSum, Op::CumProd] {
        let input = || vec![x(&[t(), b()])];
        rows.push(row(op, input()).int("axis", 1));
        rows.push(row(op, input()).int("axis", 1).flag("exclusive"));
        rows.push(row(op, input()).int("axis", 0).flag("reverse"));
        rows.push(row(op, input()).int("axis", 1).flag("reverse").flag("exclusive"));
    }

    rows.extend(movement_rows());
    rows.extend(window_rows());
    rows
}

fn movement_rows() -> Vec<Row> {
    let scalar = |v| ints(&[], &[v]);
    vec![
        row(Op::Broadcast, vec![x(&[b(), n(1)])])
            .shape("shape", &[n(2), b(), n(3)])
            .ints("axes", &[1, 2]),
        row(Op::Reshape, vec![x(&[b(), n(4)])]).shape("shape", &[n(2), b(), n(2)]),
        row(Op::Transpose, vec![x(&[b(), n(4), t()])]).ints("perm", &[2, 0, 1]),
        row(Op::Slice, vec![x(&[b(), n(7)])])
            .shape("starts", &[n(0), n(1)])
            .shape("ends", &[b(), n(6)])
            .ints("strides", &[1, 2]),
        row(Op::Concat, vec![x(&[b(), n(1)]), x(&[b(), t()]), x(&[b(), n(2)])]).int("axis", 1),
        row(Op::Pad, vec![x(&[b(), n(3)])])
            .shape("low", &[t(), n(0)])
            .shape("high", &[n(0), n(1)])
            .ints("interior", &[0, 2]),
        // A stride along a run-time axis.
        row(Op::Slice, vec![x(&[b(), t()])])
            .shape("starts", &[n(0), n(0)])
            .shape("ends", &[b(), t()])
            .ints("strides", &[2, 1]),
        // Cutting, spreading and both; by run-time amounts too.
        row(Op::Pad, vec![x(&[b() + n(1), n(3)])])
            .shape("low", &[n(-1), n(-2)])
            .shape("high", &[t(), n(-1)])
            .ints("interior", &[0, 2]),
        row(Op::Pad, vec![x(&[t(), n(3)])])
            .shape("low", &[b() - t(), n(1)])
            .shape("high", &[n(1), n(-1)])
            .ints("interior", &[0, 1]),
        row(Op::Reverse, vec![x(&[b(), n(3)])]).ints("axes", &[1, 0]),
        row(Op::TakeAlong, vec![x(&[n(2), n(4)]), ints(&[2, 3], &[1, 3, 1, 0, 2, 2])])
            .int("axis", 1)
            .bounds("clamp"),
        row(Op::TakeAlong, vec![x(&[n(4), n(2)]), ints(&[3, 2], &[1, -3, 1, 0, 9, 2])])
            .int("axis", 0)
            .bounds("clamp"),
        row(Op::Sort, vec![x(&[b(), n(4)])]).int("axis", 1),
        row(Op::Sort, vec![x(&[n(4), t(), b()])]).int("axis", 0).flag("descending"),
        row(Op::TopK, vec![x(&[b(), n(4)])]).int("k", 2).int("axis", 1),
        row(Op::Gather, vec![x(&[n(4), t()]), ints(&[5], &[1, 3, 1, 0, 9])])
            .int("axis", 0)
            .bounds("clamp"),
        row(Op::Gather, vec![x(&[t(), n(4)]), ints(&[2, 2], &[1, 3, 1, -1])])
            .int("axis", 1)
            .bounds("clamp"),
        row(Op::Gather, vec![x(&[b(), n(4), t()]), ints(&[], &[2])]).int("axis", 1),
        row(Op::DynamicSlice, vec![x(&[n(4), n(5)]), scalar(1), scalar(9)])
            .shape("sizes", &[n(2), n(3)])
            .bounds("clamp"),
        row(Op::DynamicUpdateSlice, vec![x(&[n(4), b()]), x(&[n(2), t()]), scalar(3), scalar(0)])
            .bounds("clamp"),
        row(Op::ScatterAdd, vec![x(&[n(4), t()]), ints(&[3], &[1, 3, 1]), x(&[n(3), t()])]),
        row(Op::MatMul, vec![x(&[b(), n(4)]), x(&[n(4), t()])]),
        row(Op::MatMul, vec![x(&[n(2), n(4), b()]), x(&[n(2), t(), n(4)])])
            .flag("trans_a")
            .flag("trans_b"),
    ]
}

fn window_rows() -> Vec<Row> {
    let image = || x(&[t(), n(2), n(4), n(5)]);
    // Windows of 2 x 2, two apart, one row of padding above: 2 x 2 results.
    let conv = |row: Row| row.ints("stride", &[2, 2]).ints("pad", &[1, 0, 0, 0]);
    let filter = || x(&[n(4), n(1), n(2), n(2)]);
    let conv = |row: Row| conv(row).int("groups", 2).ints("dilation", &[1, 2]);
    let out = || x(&[t(), n(4), n(2), n(2)]);
    let pool = |row: Row| row.ints("window", &[2, 2]).ints("pad", &[0, 0, 0, 1]);
    let pooled = || x(&[t(), n(2), n(2), n(3)]);
    let indices = || ints(&[2, 2, 2, 3], &[0, 2, 4, 10, 13, 19].repeat(4));
    let shape = [t(), n(2), n(4), n(5)];
    // Overlapping windows of run-time images, padded unevenly.
    let wide = |row: Row| row.ints("stride", &[1, 2]).ints("pad", &[1, 0, 2, 1]);
    let big = || x(&[n(1), n(2), b() + n(4), t() + n(3)]);
    vec![
        wide(row(Op::Conv2d, vec![big(), x(&[n(3), n(2), n(3), n(2)])])).ints("dilation", &[2, 1]),
        wide(row(Op::AvgPool, vec![big()])).ints("window", &[2, 3]),
        wide(row(Op::MaxPool, vec![big()])).ints("window", &[2, 3]),
        conv(row(Op::Conv2d, vec![image(), filter()])),
        conv(row(Op::Conv2dGradInput, vec![out(), filter()])).shape("shape", &shape),
        conv(row(Op::Conv2dGradFilter, vec![image(), out()])).ints("kernel", &[2, 2]),
        pool(row(Op::AvgPool, vec![image()])),
        pool(row(Op::AvgPoolGrad, vec![pooled()])).shape("shape", &shape),
        pool(row(Op::MaxPool, vec![image()])),
        pool(row(Op::MaxPoolGrad, vec![x(&[n(2), n(2), n(2), n(3)]), indices()]))
            .shape("shape", &[n(2), n(2), n(4), n(5)]),
        pool(row(Op::MaxPoolTake, vec![x(&[n(2), n(2), n(4), n(5)]), indices()])),
    ]
}

/// Ops without a gradient that are lowered by pulling or expansion.
pub fn other_rows() -> Vec<Row> {
    let key = |v: i64| In::Given(Tensor::from_i64(DType::I64, vec![], [v]));
    let mut rows = vec![row(Op::TopKIndex, vec![x(&[b(), n(4)])]).int("k", 2).int("axis", 1)];
    for dtype in [DType::I64, DType::U8, DType::F32, DType::F16] {
        let dtype = Attr::DType(dtype);
        rows.push(
            row(Op::DimSize, vec![])
                .shape("size", &[b() * t() + n(300)])
                .with("dtype", dtype.clone()),
        );
        rows.push(
            row(Op::Iota, vec![])
                .shape("shape", &[t(), n(300)])
                .int("axis", 1)
                .with("dtype", dtype),
        );
    }
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for op in [Op::RandomUniform, Op::RandomNormal, Op::RandomTruncatedNormal] {
            for seed in [0, -1, 0x1234_5678_9abc_def0] {
                rows.push(
                    row(op, vec![key(seed)])
                        .shape("shape", &[t(), b(), n(3)])
                        .int("stream", u32::MAX as i64)
                        .with("dtype", Attr::DType(dtype)),
                );
            }
        }
    }
    rows.push(row(Op::RandomPermutation, vec![key(-7)]).shape("shape", &[b()]).int("stream", 9));
    rows.push(row(Op::RandomBits, vec![key(-7)]).shape("shape", &[b(), n(7)]).int("lane", 9));
    rows.push(
        row(Op::RandomBernoulli, vec![key(3)])
            .shape("shape", &[b(), n(9)])
            .with("p", Attr::float(0.3)),
    );
    rows.push(
        row(Op::OneHot, vec![ints(&[2, 3], &[0, 1, 4, -1, 3, 2])]).int("depth", 4).bounds("drop"),
    );
    // The second operand must be the pooled first one.
    let image = |shape: [usize; 4], values: &[f64]| {
        In::Given(Tensor::from_f64(DType::F64, shape.to_vec(), values.iter().copied()))
    };
    rows.push(
        row(
            Op::MaxPoolIndex,
            vec![
                image([1, 1, 2, 5], &[1.0, 3.0, -1.0, -2.0, 7.0, 3.0, 2.0, -1.0, -5.0, 7.0]),
                image([1, 1, 1, 3], &[3.0, -1.0, 7.0]),
            ],
        )
        .ints("window", &[2, 2])
        .ints("pad", &[0, 0, 0, 1]),
    );
    rows
}

/// splitmix64
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, lo: f64, hi: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        lo + (hi - lo) * ((z ^ (z >> 31)) >> 11) as f64 * (-53f64).exp2()
    }

    pub fn tensor(&mut self, dtype: DType, shape: &[Dim], lo: f64, hi: f64) -> Tensor {
        let shape: Vec<usize> = shape.iter().map(|d| d.eval(&size).unwrap() as usize).collect();
        let count = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|_| self.next(lo, hi)).collect();
        Tensor::from_f64(dtype, shape, values)
    }
}

/// Sizes of the run-time dims of the table.
pub fn size(name: &str) -> Option<i64> {
    [B, T].into_iter().find(|d| d.0 == name).map(|d| d.1)
}
