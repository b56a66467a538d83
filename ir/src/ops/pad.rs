//! Adding (or cutting) elements around and between those of a tensor.

use super::util::*;
use super::{pull, sizes, slice};
use crate::attr::AttrKind;
use crate::eval::{Array, Data, round_to, wrap_to};
use crate::facts::NONNEG;
use crate::kernel::{Reg, ScalarOp};
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, OpDef, TensorType};
use ndarray::ArrayD;

pub const DEF: OpDef = OpDef {
    name: "pad",
    summary: "Puts `low` elements of `value` before each axis, `high` after it and `interior` \
              between neighbours. Negative `low` and `high` cut elements off.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[
        AttrSpec {
            name: "low",
            kind: AttrKind::Offsets,
            default: None,
            doc: "for each axis, how many elements to add before it; may use run-time dims",
        },
        AttrSpec {
            name: "high",
            kind: AttrKind::Offsets,
            default: None,
            doc: "for each axis, how many elements to add after it; may use run-time dims",
        },
        AttrSpec {
            name: "interior",
            kind: AttrKind::Ints,
            default: Some(|| Attr::Ints(vec![])),
            doc: "for each axis, how many elements to add between neighbours; empty for none",
        },
        AttrSpec {
            name: "value",
            kind: AttrKind::Float,
            default: Some(|| Attr::float(0.0)),
            doc: "the value of the added elements",
        },
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let x = &cx.operands[0];
        sizes::entries(cx, "low", x.rank())?;
        sizes::entries(cx, "high", x.rank())?;
        if !cx.attrs.ints("interior").is_empty() {
            sizes::entries(cx, "interior", x.rank())?;
        }
        let interior = interior(cx.attrs, x.rank());
        if interior.iter().any(|i| !(0..1 << 24).contains(i)) {
            return Err(InferError::new(
                "E0235",
                "`interior` of `pad` must be small and not negative",
            )
            .at(Blame::Attr("interior"), "elements can be added between neighbours, not cut")
            .help("use `slice` with strides to drop elements"));
        }
        let mut shape = vec![];
        for (axis, between) in interior.into_iter().enumerate() {
            let (low, high) = (&cx.attrs.shape("low")[axis], &cx.attrs.shape("high")[axis]);
            let size = low.clone() + spread(&x.shape[axis], between) + high.clone();
            if size.is_always_negative() {
                return Err(InferError::new(
                    "E0235",
                    format!("`pad` cuts more than axis {axis} has: the result would have {size}"),
                )
                .at(Blame::Attr(if low.is_always_negative() { "low" } else { "high" }), "cut here")
                .at(Blame::Operand(0), format!("this is {x}")));
            }
            shape.push(size);
        }
        Ok(vec![TensorType::new(x.dtype, shape)])
    },
    grad: Grad::Vjp(|e, n, _| {
        let x = e.ty(n.operands[0]).shape;
        let interior = interior(n.attrs, x.len());
        let (low, high) = (n.attrs.shape("low"), n.attrs.shape("high"));
        let zero = Dim::constant(0);
        // Where nothing was put between neighbours, the opposite padding gives
        // the operand's elements (and zeros for those that were cut off).
        // Where something was, a strided slice does, after putting back what
        // was cut.
        let undo = |amount: &[Dim]| -> Vec<Dim> {
            (0..x.len())
                .map(|i| {
                    let keep = interior[i] > 0 && !amount[i].is_always_negative();
                    if keep { zero.clone() } else { zero.clone() - amount[i].clone() }
                })
                .collect()
        };
        let (undo_low, undo_high) = (undo(low), undo(high));
        let starts: Vec<Dim> = (0..x.len()).map(|i| low[i].clone() + undo_low[i].clone()).collect();
        let ends = (0..x.len())
            .map(|i| {
                let len = if x[i].is_zero() { zero.clone() } else { end(&x[i], interior[i]) };
                starts[i].clone() + len
            })
            .collect();
        let ct = emit(e, n.ct, undo_low, undo_high, vec![0; x.len()], 0.0);
        Some(slice::emit(e, ct, starts, ends, interior.iter().map(|i| i + 1).collect()))
    }),
    rules: &[],
    facts: Facts {
        range: |cx| {
            let positive = cx.attrs().float("value").is_sign_positive();
            Range::new(if positive { cx.facts(0) & NONNEG } else { 0 }, Magnitude::ANY)
        },
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let x = k.operand_type(0);
        let low = k.attrs().shape("low").to_vec();
        let high = k.attrs().shape("high").to_vec();
        let interior = interior(k.attrs(), at.len());
        let value = k.attrs().float("value");
        let mut inside: Option<Reg> = None;
        let (mut from, mut guarded) = (vec![], vec![]);
        for i in 0..at.len() {
            let shifted = pull::minus(&at[i], &low[i]);
            let cut = |d: &Dim| (Dim::constant(0) - d.clone()).is_never_negative();
            if interior[i] == 0 && cut(&low[i]) && cut(&high[i]) {
                from.push(shifted);
                continue;
            }
            let mut p = k.index(&shifted);
            if interior[i] > 0 {
                // `p = q * step + r`: real where `r` is zero. Below zero the
                // quotient rounds up, so look at the sign first.
                let (step, zero) = (pull::int(k, interior[i] + 1), pull::int(k, 0));
                let not_before = k.op(ScalarOp::Le, &[zero, p]);
                let rest = k.op(ScalarOp::Rem, &[p, step]);
                let on = k.op(ScalarOp::Eq, &[rest, zero]);
                let real = k.op(ScalarOp::And, &[not_before, on]);
                inside = Some(pull::and(k, inside, real));
                p = k.op(ScalarOp::Div, &[p, step]);
            }
            let real = pull::inside(k, p, &x.shape[i]);
            inside = Some(pull::and(k, inside, real));
            let p = pull::clamp(k, p, &x.shape[i]);
            from.push(k.dynamic(p));
            guarded.push(x.shape[i].clone());
        }
        let element = k.guarded(0, &from, &guarded);
        pull::guard(k, inside, element, value_of(x.dtype, value))
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let low = sizes::values(cx, "low")?;
        let interior = interior(cx.attrs, shape.len());
        let x = &cx.operands[0];
        let value = value_of(x.dtype, cx.attrs.float("value"));
        fn padded<T: Copy>(
            a: &ArrayD<T>,
            shape: &[usize],
            low: &[i64],
            interior: &[i64],
            value: T,
        ) -> ArrayD<T> {
            sizes::build(shape, |at| {
                let from: Option<Vec<usize>> = (0..at.len())
                    .map(|i| {
                        let p = (at[i] as i64).saturating_sub(low[i]);
                        let step = interior[i] + 1;
                        let real = p >= 0 && p % step == 0 && p / step < a.shape()[i] as i64;
                        real.then(|| (p / step) as usize)
                    })
                    .collect();
                from.map_or(value, |from| a[&from[..]])
            })
        }
        let data = match &x.data {
            Data::Float(a) => Data::Float(padded(a, &shape, &low, &interior, value)),
            Data::Int(a) => Data::Int(padded(a, &shape, &low, &interior, value as i64)),
            Data::Bool(a) => Data::Bool(padded(a, &shape, &low, &interior, value != 0.0)),
        };
        Ok(vec![Array { dtype: x.dtype, data }])
    }),
};

/// `value` as the element type holds it.
fn value_of(dtype: crate::DType, value: f64) -> f64 {
    if dtype.is_float() { round_to(dtype, value) } else { wrap_to(dtype, value as i64) as f64 }
}

/// Size of an axis after `interior` elements were put between neighbours. An
/// empty axis has no neighbours, and stays empty.
pub fn spread(size: &Dim, interior: i64) -> Dim {
    let never_empty = (size.clone() - Dim::constant(1)).is_never_negative();
    // 1, or 0 for an empty axis: sizes are far below the divisor.
    let some = if never_empty { Dim::constant(1) } else { size.ceil_div(1 << 62) };
    size.clone() * Dim::constant(interior + 1) - some * Dim::constant(interior)
}

/// The index after the last element, once they are apart; `-interior` for none.
fn end(size: &Dim, interior: i64) -> Dim {
    size.clone() * Dim::constant(interior + 1) - Dim::constant(interior)
}

/// One entry per axis.
pub fn interior(attrs: &Attrs, rank: usize) -> Vec<i64> {
    match attrs.ints("interior") {
        [] => vec![0; rank],
        given => given.to_vec(),
    }
}

pub fn emit(
    e: &dyn Emit,
    x: V,
    low: Vec<Dim>,
    high: Vec<Dim>,
    interior: Vec<i64>,
    value: f64,
) -> V {
    let none = low.iter().chain(&high).all(Dim::is_zero) && interior.iter().all(|i| *i == 0);
    if none {
        return x;
    }
    let interior = if interior.iter().all(|i| *i == 0) { vec![] } else { interior };
    let attrs = Attrs::none()
        .with("low", Attr::Shape(low))
        .with("high", Attr::Shape(high))
        .with("interior", Attr::Ints(interior))
        .with("value", Attr::float(value));
    e.emit(Op::Pad, &[x], attrs)
}
