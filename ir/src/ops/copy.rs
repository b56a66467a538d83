//! A tensor on another device.

use super::util::*;
use crate::OpDef;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "copy",
    summary: "The same tensor on the device that the node is placed on. The compiler makes it \
              where a tensor is used on another device than the one that computes it; where both \
              are the same it does nothing.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|_, n, _| Some(n.ct)),
    rules: &[],
    facts: Facts { moves: Moves::Same, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    // The plan begins with one memory: copies are put in when it is known what devices there
    // are, wherever a value is needed elsewhere than it is.
    lower: Lower::Reshape,
    eval: Eval::Pure(|cx| Ok(vec![cx.operands[0].clone()])),
};
