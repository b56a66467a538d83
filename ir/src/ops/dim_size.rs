//! A size as a value.

use super::util::*;
use crate::attr::AttrKind;
use crate::eval::Array;
use crate::facts::NONNEG;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::{Attr, DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "dim_size",
    summary: "Gives a size, which may depend on dims known when the program runs, as a scalar.",
    operands: &[],
    attrs: &[
        AttrSpec {
            name: "size",
            kind: AttrKind::Shape,
            default: None,
            doc: "the size, as a shape of one axis: `[B]`, `[B * T]`",
        },
        AttrSpec {
            name: "dtype",
            kind: AttrKind::DType,
            default: Some(|| Attr::DType(DType::I64)),
            doc: "the number type of the result",
        },
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let size = cx.attrs.shape("size");
        if size.len() != 1 {
            return Err(InferError::new("E0230", "`dim_size` gives one size")
                .at(Blame::Attr("size"), format!("this has {} sizes", size.len()))
                .help("write one size in brackets: `dim_size(size: [B])`"));
        }
        let dtype = cx.attrs.dtype("dtype").unwrap_or(DType::I64);
        if dtype == DType::Bool {
            return Err(InferError::new("E0202", "a size cannot be a bool")
                .at(Blame::Attr("dtype"), "expected a number type"));
        }
        Ok(vec![TensorType::scalar(dtype)])
    },
    grad: Grad::Zero("a size does not depend on values"),
    rules: &[],
    facts: Facts {
        moves: Moves::Counted,
        range: |_| Range::new(NONNEG, Magnitude { lo: 0, hi: 63 }),
        ..Facts::NONE
    },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, _| {
        let size = k.attrs().shape("size").first().cloned().unwrap_or(0i64.into());
        let value = k.index(&super::pull::ix(&size));
        let dtype = k.result_type().dtype;
        super::pull::element(k, value, dtype)
    }),
    eval: Eval::Pure(|cx| {
        let size = cx.attrs.shape("size").first().and_then(|d| d.eval(cx.dims));
        let size = size.ok_or("the size is not known")?;
        let dtype = cx.attrs.dtype("dtype").unwrap_or(DType::I64);
        Ok(vec![if dtype.is_float() {
            Array::float(dtype, from_vec(&[], vec![size as f64]))
        } else {
            Array::int(dtype, from_vec(&[], vec![size]))
        }])
    }),
};
