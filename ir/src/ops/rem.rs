//! The remainder of a division.

use super::util::*;
use crate::facts::{IntRange, IntegersCx};
use crate::kernel::{Elementary, ScalarOp};
use crate::lower::Lower;
use crate::op::*;
use crate::{Op, OpDef};

pub const DEF: OpDef = OpDef {
    name: "rem",
    summary: "Gives the remainder of the division of `a` by `b`, with the sign of `a`. Integers by zero give zero.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        let [a, b] = *n.operands else { return None };
        // out = a - trunc(a / b) * b, and the quotient is constant between
        // jumps; it is whole, so rounding recovers it exactly.
        if i == 0 {
            return Some(n.ct);
        }
        let quotient = e.unary(Op::Round, e.div(e.sub(a, n.out), b));
        Some(e.neg(e.mul(n.ct, quotient)))
    }),
    rules: &[],
    facts: Facts { integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        let float = k.reg_type(a[0]).is_float();
        if float { k.call(Elementary::RemFloat, a) } else { k.op(ScalarOp::Rem, a) }
    }),
    eval: Eval::Pure(|cx| {
        eval_num2(cx, |a, b| a % b, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) })
    }),
};

fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let (a, b) = (cx.range(0)?, cx.range(1)?);
    (a.start >= 0 && b.start > 0).then(|| IntRange { start: 0, end: b.end - 1i64.into() })
}
