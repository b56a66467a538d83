//! Counting along an axis.

use super::util::*;
use super::{pull, sizes};
use crate::attr::AttrKind;
use crate::eval::Array;
use crate::facts::{IntRange, IntegersCx};
use crate::lower::Lower;
use crate::op::*;
use crate::{Attr, DType, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "iota",
    summary: "Counts 0, 1, 2, ... along `axis`; all other axes repeat.",
    operands: &[],
    attrs: &[
        AttrSpec { name: "shape", kind: AttrKind::Shape, default: None, doc: "the result shape" },
        AttrSpec {
            name: "axis",
            kind: AttrKind::Int,
            default: Some(|| Attr::Int(0)),
            doc: "the axis to count along",
        },
        AttrSpec {
            name: "dtype",
            kind: AttrKind::DType,
            default: Some(|| Attr::DType(DType::I32)),
            doc: "the element type, a number type; counts wrap or round to it",
        },
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let shape = cx.attrs.shape("shape");
        let axis = cx.attrs.int("axis");
        if usize::try_from(axis).is_err() || axis as usize >= shape.len() {
            return Err(InferError::new(
                "E0207",
                format!("axis {axis} is out of range for a tensor of rank {}", shape.len()),
            )
            .at(Blame::Attr("axis"), "`axis` of `iota`")
            .at(Blame::Attr("shape"), format!("this has {} axes", shape.len())));
        }
        sizes::no_negative_size(cx, "shape")?;
        let dtype = sizes::dtype(cx.attrs);
        if dtype == DType::Bool {
            return Err(InferError::new("E0202", "`iota` counts in a number type")
                .at(Blame::Attr("dtype"), "this is bool"));
        }
        Ok(vec![TensorType::new(dtype, shape.to_vec())])
    },
    grad: Grad::Zero("it does not depend on anything"),
    rules: &[],
    facts: Facts { moves: Moves::Counted, integers, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let axis = k.attrs().int("axis") as usize;
        let count = k.index(&at[axis]);
        let dtype = k.result_type().dtype;
        pull::element(k, count, dtype)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let axis = cx.attrs.int("axis") as usize;
        let dtype = cx.results[0].dtype;
        Ok(vec![if dtype.is_float() {
            Array::float(dtype, sizes::build(&shape, |at| at[axis] as f64))
        } else {
            Array::int(dtype, sizes::build(&shape, |at| at[axis] as i64))
        }])
    }),
};

fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    let size = cx.result.shape.get(cx.attrs.int("axis") as usize)?;
    IntRange::indices_of(size, cx.result.dtype)
}
