//! The sign.

use super::util::*;
use crate::OpDef;
use crate::facts::FINITE;
use crate::kernel::{Scalar, ScalarOp};
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "sign",
    summary: "Gives -1, 0 or 1 by the sign of every element; zeros and NaN stay as they are.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Zero("the sign is constant wherever it has a derivative"),
    rules: RULES,
    facts: Facts { range: |cx| Range::new(cx.facts(0) & FINITE, Magnitude::UNIT), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| {
        let ty = k.reg_type(a[0]);
        let zero = k.constant(Scalar::of(ty, 0.0));
        let one = k.constant(Scalar::of(ty, 1.0));
        let minus = k.constant(Scalar::of(ty, -1.0));
        let (below, above) = (k.op(ScalarOp::Lt, &[a[0], zero]), k.op(ScalarOp::Lt, &[zero, a[0]]));
        let rest = k.op(ScalarOp::Select, &[above, one, a[0]]);
        k.op(ScalarOp::Select, &[below, minus, rest])
    }),
    eval: Eval::Pure(|cx| {
        let sign = |x: f64| match x {
            _ if x > 0.0 => 1.0,
            _ if x < 0.0 => -1.0,
            _ => x,
        };
        eval_num(cx, sign, i64::signum)
    }),
};

const RULES: &[Rule] =
    &[Rule::exact("sign.sign", "(sign (sign x))", "(sign x)", "already -1, 0 or 1")];
