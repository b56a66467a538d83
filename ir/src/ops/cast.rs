//! Conversion between element types.

use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::facts::{FINITE, IntRange, IntegersCx, NONNEG, NONPOS, RangeCx, Simpler, SimplerCx};
use crate::kernel::{Reg, Scalar, ScalarOp, ScalarType};
use crate::lower::{Lower, Pull};
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::{Match, Rule};
use crate::vjp::V;
use crate::{DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "cast",
    summary: "Converts elements to another type. Floats become integers by truncation, with \
              saturation; NaN becomes 0. Numbers become bool by `!= 0`.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[AttrSpec {
        name: "to",
        kind: AttrKind::DType,
        default: None,
        doc: "the element type",
    }],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let to = cx.attrs.dtype("to").unwrap_or(DType::F32);
        Ok(vec![TensorType::new(to, cx.operands[0].shape.clone())])
    },
    grad: Grad::Vjp(|e, n, _| {
        let from = e.ty(n.operands[0]).dtype;
        let to = e.ty(n.out).dtype;
        (from.is_float() && to.is_float()).then(|| e.cast(n.ct, from))
    }),
    rules: RULES,
    facts: Facts { moves: Moves::Converted, range, integers, simpler, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        let to = k.result_type().dtype;
        let float = k.reg_type(a[0]).is_float();
        if rounds_twice(k.reg_type(a[0]), to) {
            let wide = k.convert(a[0], ScalarType::F64);
            return round_to_odd(k, wide);
        }
        let whole = k.convert(a[0], ScalarType::of(to));
        // Registers are wider than these types, and saturate at their own range.
        match to {
            DType::I8 if float => limit(k, whole, -128, 127),
            DType::U8 if float => limit(k, whole, 0, 255),
            _ => whole,
        }
    }),
    eval: Eval::Pure(|cx| {
        let to = cx.attrs.dtype("to").unwrap_or(DType::F32);
        // Saturate to the target's own range, as the compiled code does.
        let to_int = |v: f64| match to {
            DType::I8 => v as i8 as i64,
            DType::U8 => v as u8 as i64,
            DType::I32 => v as i32 as i64,
            _ => v as i64,
        };
        let x = &cx.operands[0];
        Ok(vec![match (&x.data, to) {
            (Data::Float(a), t) if t.is_float() => Array::float(t, a.clone()),
            (Data::Float(a), DType::Bool) => Array::bool(a.mapv(|v| v != 0.0)),
            (Data::Float(a), t) => Array::int(t, a.mapv(to_int)),
            (Data::Int(a), t) if t.is_float() => Array::float(t, a.mapv(|v| v as f64)),
            (Data::Int(a), DType::Bool) => Array::bool(a.mapv(|v| v != 0)),
            (Data::Int(a), t) => Array::int(t, a.clone()),
            (Data::Bool(a), t) if t.is_float() => Array::float(t, a.mapv(|v| v as u8 as f64)),
            (Data::Bool(a), DType::Bool) => Array::bool(a.clone()),
            (Data::Bool(a), t) => Array::int(t, a.mapv(|v| v as i64)),
        }])
    }),
};

fn simpler(cx: &SimplerCx<'_>) -> Option<Simpler> {
    let same = cx.operand(0).dtype == cx.result.dtype;
    same.then(|| Simpler::Value(cx.operands[0]))
}

fn range(cx: &dyn RangeCx) -> Range {
    let integer = |hi: i16| Magnitude { lo: 0, hi };
    match cx.operand(0).dtype {
        DType::Bool => Range::new(NONNEG | FINITE, Magnitude::UNIT),
        DType::U8 => Range::new(NONNEG | FINITE, integer(8)),
        DType::I8 => Range::new(FINITE, integer(8)),
        from @ (DType::I32 | DType::I64) => {
            let facts = if cx.result().dtype == DType::F16 { 0 } else { FINITE };
            Range::new(facts, integer(if from == DType::I32 { 31 } else { 63 }))
        }
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            Range::new(cx.facts(0) & (NONNEG | NONPOS), cx.size(0))
        }
    }
}

fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    if !cx.operands[0].dtype.is_int() {
        return None;
    }
    cx.range(0)?.within(cx.result.dtype)
}

const RULES: &[Rule] = &[
    Rule::computed(
        "cast.same",
        "(cast:k x)",
        |m| (m.ty("x").dtype == m.root_ty().dtype).then(|| m.var("x")),
        "no change of type",
    ),
    Rule::computed(
        "cast.cast",
        "(cast:k (cast:j x))",
        through_wider,
        "nothing was lost on the way",
    )
    .when(|m| m.head("j").is_some()),
];

/// Skips a conversion to a type that holds every value of the one before.
fn through_wider(m: &Match<'_>) -> Option<V> {
    let (from, to) = (m.ty("x").dtype, m.root_ty().dtype);
    let middle = m.head("j")?.attrs.dtype("to")?;
    let holds = match (from, middle) {
        (a, b) if a == b => true,
        (DType::Bool, _) => true,
        (DType::F16 | DType::BF16, DType::F32 | DType::F64) => true,
        (DType::F32, DType::F64) => true,
        (DType::I8 | DType::U8, DType::I32 | DType::I64 | DType::F32 | DType::F64) => true,
        (DType::I32, DType::I64 | DType::F64) => true,
        _ => false,
    };
    // To `bool` and between signs the direct conversion may mean something else.
    let same_meaning =
        from.is_float() || middle.is_float() || from == DType::Bool || to != DType::Bool;
    let direct = from.is_float() == middle.is_float() || to.is_float();
    (holds && same_meaning && direct).then(|| m.emit().cast(m.var("x"), to))
}

/// Whether a number of this type would be rounded once to the `f32` of the
/// register, and then again to `to`. (Integers that `f16` can hold are exact in
/// `f32`.)
fn rounds_twice(from: ScalarType, to: DType) -> bool {
    match from {
        ScalarType::F64 => matches!(to, DType::F16 | DType::BF16),
        ScalarType::I32 | ScalarType::I64 => to == DType::BF16,
        ScalarType::F32 | ScalarType::Bool => false,
    }
}

/// `tfc_abi::float::round_to_odd`, after which rounding to a half-precision type
/// is as good as rounding the `f64` itself.
fn round_to_odd(k: &mut dyn Pull, x: Reg) -> Reg {
    let near = k.convert(x, ScalarType::F32);
    let back = k.convert(near, ScalarType::F64);
    let (zero, one) = (k.constant(Scalar::I32(0)), k.constant(Scalar::I32(1)));
    let (size, back_size) = (k.op(ScalarOp::Abs, &[x]), k.op(ScalarOp::Abs, &[back]));
    let away = k.op(ScalarOp::Lt, &[size, back_size]);
    let away = k.op(ScalarOp::Select, &[away, one, zero]);
    // NaN differs from itself, and stays NaN with its last bit set.
    let inexact = k.op(ScalarOp::Ne, &[back, x]);
    let inexact = k.op(ScalarOp::Select, &[inexact, one, zero]);
    let bits = k.bitcast(near, ScalarType::I32);
    let bits = k.op(ScalarOp::Sub, &[bits, away]);
    let bits = k.op(ScalarOp::Or, &[bits, inexact]);
    k.bitcast(bits, ScalarType::F32)
}

fn limit(k: &mut dyn Pull, x: Reg, lo: i32, hi: i32) -> Reg {
    let (lo, hi) = (k.constant(Scalar::I32(lo)), k.constant(Scalar::I32(hi)));
    let x = k.op(ScalarOp::Max, &[x, lo]);
    k.op(ScalarOp::Min, &[x, hi])
}
