//! The angle of a point.

use super::util::*;
use crate::OpDef;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "atan2",
    summary: "Gives the angle, between -pi and pi, of the point (x, y) seen from the origin. The \
              signs of zeros count, as in C.",
    operands: &[Operand::one("y", ElementKind::Float), Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, i| {
        let [y, x] = *n.operands else { return None };
        let square = e.add(e.mul(x, x), e.mul(y, y));
        let side = if i == 0 { x } else { e.neg(y) };
        Some(e.mul(n.ct, e.div(side, square)))
    }),
    rules: &[],
    facts: Facts { range: |_| Range::new(0, Magnitude::at_most(2)), ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Atan2, a)),
    eval: Eval::Pure(|cx| eval_float2(cx, libm::atan2)),
};
