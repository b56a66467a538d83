//! Stopping the program where a number is not finite.

use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, OpDef};

const fn text(name: &'static str, doc: &'static str) -> AttrSpec {
    AttrSpec { name, kind: AttrKind::Str, default: Some(|| Attr::Str(String::new())), doc }
}

pub const DEF: OpDef = OpDef {
    name: "check_finite",
    summary: "Fails the call if `x` is NaN or infinite anywhere. With `from`, the values `x` was \
              computed from, it fails only if it was computed there: a NaN where none of them is \
              NaN, an infinity where all of them are finite.",
    operands: &[Operand::one("x", ElementKind::Float), Operand::many("from", ElementKind::Float)],
    attrs: &[
        text("name", "what `x` is called, for the message"),
        text("user", "the op `x` is the result of; none for a loss"),
        text("names", "what the others are called, with commas between"),
    ],
    regions: &[],
    effect: Effect::Io,
    stage: Stage::Core,
    infer: |_| Ok(vec![]),
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::CheckFinite),
    eval: Eval::Interpreter,
};

/// Whether a check of these values fails.
pub fn fails(x: &Array, from: &[Array]) -> bool {
    let any = |a: &Array, test: fn(f64) -> bool| match &a.data {
        Data::Float(a) => a.iter().any(|v| test(*v)),
        _ => false,
    };
    let bad = |v: f64| !v.is_finite();
    if from.is_empty() {
        return any(x, bad);
    }
    let new_nan = any(x, f64::is_nan) && !from.iter().any(|a| any(a, f64::is_nan));
    new_nan || any(x, f64::is_infinite) && !from.iter().any(|a| any(a, bad))
}
