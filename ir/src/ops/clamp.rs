//! Limiting values to an interval.

use super::util::*;
use crate::eval::{Array, Data};
use crate::facts::{IntRange, IntegersCx};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "clamp",
    summary: "Limits `x` to the interval from `lo` to `hi`: min(max(x, lo), hi). NaN stays NaN. \
              At the ends of the interval the gradient goes to `x`.",
    operands: &[
        Operand::one("x", ElementKind::Num),
        Operand::one("lo", ElementKind::Num),
        Operand::one("hi", ElementKind::Num),
    ],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    // Everywhere, exactly one of the three gets all of the gradient.
    grad: Grad::Vjp(|e, n, i| {
        let [x, lo, hi] = *n.operands else { return None };
        let below = e.binary(Op::Lt, x, lo);
        let above = e.binary(Op::Gt, e.binary(Op::Maximum, x, lo), hi);
        let gets = match i {
            0 => e.unary(Op::Not, e.binary(Op::Or, below, above)),
            1 => e.binary(Op::And, below, e.unary(Op::Not, above)),
            _ => above,
        };
        Some(e.select(gets, n.ct, e.splat_like(0.0, n.ct)))
    }),
    rules: &[],
    facts: Facts { integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        let x = k.op(ScalarOp::Max, &[a[0], a[1]]);
        k.op(ScalarOp::Min, &[x, a[2]])
    }),
    eval: Eval::Pure(|cx| {
        let [x, lo, hi] = cx.operands else { return Err("expected three operands".into()) };
        Ok(vec![match (&x.data, &lo.data, &hi.data) {
            (Data::Float(x_), Data::Float(lo), Data::Float(hi)) => {
                Array::float(x.dtype, zip(&zip(x_, lo, float_max), hi, float_min))
            }
            (Data::Int(x_), Data::Int(lo), Data::Int(hi)) => {
                Array::int(x.dtype, zip(&zip(x_, lo, i64::max), hi, i64::min))
            }
            _ => return Err("expected numbers of one type".into()),
        }])
    }),
};

/// Where the bounds cross, the upper one wins.
fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let (low, high) = (cx.range(1)?, cx.range(2)?);
    Some(IntRange { start: low.start.min(high.start), end: high.end })
}
