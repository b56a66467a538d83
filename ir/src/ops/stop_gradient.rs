//! A wall for gradients.

use super::util::*;
use crate::OpDef;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "stop_gradient",
    summary: "Passes a tensor on; gradients treat it as a constant.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Zero("`stop_gradient` was asked to stop it"),
    rules: RULES,
    facts: Facts { moves: Moves::Same, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|_, a| a[0]),
    eval: Eval::Pure(|cx| Ok(vec![cx.operands[0].clone()])),
};

const RULES: &[Rule] =
    &[Rule::exact("stop_gradient.drop", "(stop_gradient x)", "x", "gradients are taken by now")];
