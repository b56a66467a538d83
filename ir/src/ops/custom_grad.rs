//! A function with a gradient of its own.

use crate::OpDef;
use crate::lower::Lower;
use crate::op::*;

pub const DEF: OpDef = OpDef {
    name: "custom_grad",
    summary: "The value of the region `forward` on the operands. Its gradients are not derived: \
              the region `backward` gives them, one for each float operand, from the operands, \
              the value and the gradient flowing into it.",
    operands: &[Operand::many("operands", ElementKind::Any)],
    attrs: &[],
    regions: &["forward", "backward"],
    effect: Effect::Regions,
    stage: Stage::Source,
    infer: |cx| {
        let [forward, backward] = cx.regions else {
            return Err(InferError::new(
                "E0332",
                "a function with its own gradient has two blocks",
            )
            .at(Blame::Op, "expected `forward` and `backward`"));
        };
        if forward.len() != 1 {
            return Err(InferError::new(
                "E0332",
                format!(
                    "a function with its own gradient has one result, but this has {}",
                    forward.len()
                ),
            )
            .at(Blame::Op, "in this call"));
        }
        let (floats, places): (Vec<_>, Vec<usize>) =
            cx.operands.iter().zip(0..).filter(|(ty, _)| ty.dtype.is_float()).unzip();
        if floats.len() != backward.len() {
            return Err(InferError::new(
                "E0333",
                format!(
                    "there are {} gradients for {} operands that can have one",
                    backward.len(),
                    floats.len()
                ),
            )
            .at(Blame::Op, "in this call")
            .help("give one for each float operand, in order"));
        }
        for (i, (want, given)) in floats.iter().zip(backward).enumerate() {
            if *want != given {
                return Err(InferError::new(
                    "E0333",
                    format!("a gradient has the type of its operand, but gradient {i} is {given}"),
                )
                .at(Blame::Operand(places[i]), format!("this is {want}")));
            }
        }
        Ok(forward.clone())
    },
    // Differentiation puts `forward` in its place, and `backward` where the
    // gradient is.
    grad: Grad::Structural,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Never,
    eval: Eval::Interpreter,
};
