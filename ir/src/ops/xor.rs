//! Exclusive disjunction.

use super::util::*;
use crate::OpDef;
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "xor",
    summary: "Combines truth values: true where exactly one is. On integers, bit by bit.",
    operands: &[Operand::one("a", ElementKind::Bits), Operand::one("b", ElementKind::Bits)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Zero("a truth value has no derivative"),
    rules: &[],
    facts: Facts::COMMUTES,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Xor, a)),
    eval: Eval::Pure(|cx| eval_bits2(cx, |a, b| a ^ b, |a, b| a ^ b)),
};
