//! Stopping the program when an index is out of range.

use super::{bounds, sizes};
use crate::attr::AttrKind;
use crate::eval::Data;
use crate::lower::{Lower, StepKind};
use crate::op::*;
use crate::{Attr, Dim, OpDef};

pub const DEF: OpDef = OpDef {
    name: "check_index",
    summary: "Fails the call unless every index, and the `width - 1` after it, is one that an axis \
              of this size has: what ops with `bounds: \"check\"` come down to.",
    operands: &[Operand::one("ids", ElementKind::Int)],
    attrs: &[
        AttrSpec {
            name: "size",
            kind: AttrKind::Shape,
            default: None,
            doc: "the size of the axis, as a shape of one axis: `[B]`",
        },
        AttrSpec {
            name: "width",
            kind: AttrKind::Shape,
            default: Some(|| Attr::Shape(vec![Dim::constant(1)])),
            doc: "how many entries are used from each index on, written as `size` is",
        },
        AttrSpec {
            name: "axis",
            kind: AttrKind::Int,
            default: Some(|| Attr::Int(0)),
            doc: "the number of the axis, for the message",
        },
        AttrSpec {
            name: "name",
            kind: AttrKind::Str,
            default: Some(|| Attr::Str(String::new())),
            doc: "what the indices are called, for the message",
        },
        AttrSpec {
            name: "user",
            kind: AttrKind::Str,
            default: Some(|| Attr::Str(String::new())),
            doc: "the op that uses them, for the message",
        },
    ],
    regions: &[],
    effect: Effect::Io,
    stage: Stage::Core,
    infer: |cx| {
        sizes::entries(cx, "size", 1)?;
        sizes::entries(cx, "width", 1)?;
        Ok(vec![])
    },
    grad: Grad::Zero("it has no result"),
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Step(StepKind::CheckIndex),
    eval: Eval::Pure(|cx| {
        let Data::Int(ids) = &cx.operands[0].data else { return Err("expected indices".into()) };
        let (size, width) = (sizes::values(cx, "size")?[0], sizes::values(cx, "width")?[0]);
        bounds::verify(ids, cx.attrs.int("axis") as usize, size, width)?;
        Ok(vec![])
    }),
};
