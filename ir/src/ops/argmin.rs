//! Where the smallest element is.

use super::util::*;
use crate::OpDef;
use crate::lower::{Lower, Reduction};
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "argmin",
    summary: "Gives the index of the smallest element along an axis: the first of equal ones, and the \
              first NaN if there is one. Along an axis that turns out empty it is 0.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: ARG_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_arg,
    grad: Grad::Undefined("argmin has no derivative: its result is an index"),
    rules: &[],
    facts: Facts { integers: arg_integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Reduce(Reduction::ArgMin),
    eval: Eval::Pure(|cx| {
        eval_arg(
            cx,
            |new, best| new < best || (new.is_nan() && !best.is_nan()),
            |new, best| new < best,
        )
    }),
};
