//! Indices as unit vectors.

use super::bounds::IndexUse;
use super::util::*;
use super::{bounds, pull, sizes};
use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::facts::{FINITE, NONNEG};
use crate::kernel::{ScalarOp, ScalarType};
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::{Attr, DType, Dim, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "one_hot",
    summary: "Adds a last axis of size `depth` that is one at the index and zero elsewhere. An \
              index out of range fails the call; with `bounds: \"drop\"` it gives zeros.",
    operands: &[Operand::one("ids", ElementKind::Int)],
    attrs: &[
        AttrSpec { name: "depth", kind: AttrKind::Int, default: None, doc: "size of the new axis" },
        AttrSpec {
            name: "dtype",
            kind: AttrKind::DType,
            default: Some(|| Attr::DType(DType::F32)),
            doc: "the element type of the result",
        },
        bounds::attr(
            "indices out of range: \"check\" fails, \"drop\" gives zeros, \"trust\" says that \
             there are none",
        ),
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        bounds::valid(cx)?;
        let depth = cx.attrs.int("depth");
        if depth < 0 {
            return Err(InferError::new("E0231", format!("a size cannot be {depth}"))
                .at(Blame::Attr("depth"), "the size of the new axis"));
        }
        let mut shape = cx.operands[0].shape.clone();
        shape.push(Dim::constant(depth));
        Ok(vec![TensorType::new(sizes::dtype(cx.attrs), shape)])
    },
    grad: Grad::Zero("integers have no gradient"),
    rules: &[],
    facts: Facts {
        moves: Moves::Counted,
        range: |_| Range::new(NONNEG | FINITE, Magnitude::UNIT),
        ..Facts::NONE
    },
    indices: Indices::Or(bounds::DROP, |cx| {
        vec![IndexUse::one(0, cx.operands[0].rank(), cx.attrs.int("depth").into())]
    }),
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let (last, ids) = match at.split_last() {
            Some(parts) => parts,
            None => return pull::int(k, 0),
        };
        let id = k.operand(0, ids);
        let id = pull::to_index(k, id);
        let here = k.index(last);
        let hot = k.op(ScalarOp::Eq, &[id, here]);
        match ScalarType::of(k.result_type().dtype) {
            ScalarType::Bool => hot,
            ty => k.convert(hot, ty),
        }
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let Data::Int(ids) = &cx.operands[0].data else { return Err("expected indices".into()) };
        if bounds::is_checked(cx.attrs) {
            bounds::verify(ids, ids.ndim(), cx.attrs.int("depth"), 1)?;
        }
        let hot = sizes::build(&shape, |at| {
            let (last, at) = (at[at.len() - 1], &at[..at.len() - 1]);
            ids[at] == last as i64
        });
        let dtype = cx.results[0].dtype;
        Ok(vec![match dtype {
            DType::Bool => Array::bool(hot),
            d if d.is_float() => Array::float(d, hot.mapv(|h| h as u8 as f64)),
            d => Array::int(d, hot.mapv(|h| h as i64)),
        }])
    }),
};
