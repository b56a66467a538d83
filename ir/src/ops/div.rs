//! Divides the first tensor by the second. Integers truncate toward zero, and by zero give zero.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "div",
    summary: "Divides the first tensor by the second. Integers truncate toward zero, and by zero give zero.",
    operands: &[Operand::one("a", Kind::Num), Operand::one("b", Kind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        let [_, b] = *n.operands else { return None };
        // d(a/b) = da/b - (a/b) db/b
        Some(if i == 0 { e.div(n.ct, b) } else { e.neg(e.div(e.mul(n.ct, n.out), b)) })
    }),
    rules: &[],
    lower: Lower::Map(|k, a| k.op(ScalarOp::Div, a)),
    eval: Eval::Pure(|cx| eval_num2(cx, |a, b| a / b, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) })),
};
