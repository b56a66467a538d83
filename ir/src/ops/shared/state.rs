//! What ops on variables share.

use crate::TensorType;
use crate::op::{Blame, InferCx, InferError};

/// The type of the variable the op is about.
pub fn variable<'a>(cx: &InferCx<'a>) -> Result<&'a TensorType, InferError> {
    cx.var.filter(|v| v.symbol.is_variable()).map(|v| &v.ty).ok_or_else(|| {
        InferError::new("E0430", format!("`{}` needs a variable", cx.op))
            .at(Blame::Op, "this does not name a variable")
            .help("declare one at the top level: `var name: f32[..] = zeros`")
    })
}

/// The operand has exactly the variable's type.
pub fn assignable(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    let var = variable(cx)?;
    let value = &cx.operands[0];
    if value == var {
        return Ok(vec![]);
    }
    let mut err = InferError::new(
        "E0431",
        format!("`{}` cannot put {value} into a variable of type {var}", cx.op),
    )
    .at(Blame::Operand(0), format!("this is {value}"))
    .at(Blame::Op, format!("the variable is {var}"));
    if value.shape == var.shape {
        err = err.help(format!("convert the value: `cast(.., to: {})`", var.dtype));
    } else if value.shape.iter().any(|d| d.as_const().is_none()) {
        err = err.help(
            "a variable outlives the call, so its sizes are fixed: reduce the run-time axes first",
        );
    }
    Err(err)
}

/// As [`assignable`], for variables of numbers.
pub fn accumulable(cx: &InferCx<'_>) -> Result<Vec<TensorType>, InferError> {
    let var = variable(cx)?;
    if var.dtype == crate::DType::Bool {
        return Err(InferError::new("E0432", format!("`{}` needs a variable of numbers", cx.op))
            .at(Blame::Op, format!("the variable is {var}")));
    }
    assignable(cx)
}
