//! One element of each row, by index.

use super::bounds::IndexUse;
use super::util::*;
use super::{bounds, pull, scatter_add, sizes};
use crate::attr::AttrKind;
use crate::eval::Data;
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, DType, Dim, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "take_along",
    summary: "Takes elements of `x` along `axis`: element `i` of a row of the result is the one of \
              the same row of `x` that `ids` names there. The other axes of `x` and `ids` are the \
              same. An index out of range fails the call, a negative one too; with `bounds: \
              \"clamp\"` it means the nearest element, and an empty axis gives zeros.",
    operands: &[Operand::one("x", ElementKind::Any), Operand::one("ids", ElementKind::Int)],
    attrs: &[
        AttrSpec {
            name: "axis",
            kind: AttrKind::Int,
            default: None,
            doc: "the axis of `x` that `ids` index",
        },
        bounds::attr("indices out of range: \"check\" fails, \"clamp\" takes the nearest"),
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        bounds::valid(cx)?;
        let (x, ids) = (&cx.operands[0], &cx.operands[1]);
        let axis = check_axis(cx, "axis", cx.attrs.int("axis"), x.rank())?;
        let differs = |a: &usize| *a != axis && x.shape[*a] != ids.shape[*a];
        if x.rank() != ids.rank() || (0..x.rank()).any(|a| differs(&a)) {
            return Err(InferError::new(
                "E0203",
                format!("`take_along` needs `x` and `ids` of one shape but for axis {axis}"),
            )
            .at(Blame::Operand(0), format!("this is {x}"))
            .at(Blame::Operand(1), format!("this is {ids}")));
        }
        Ok(vec![TensorType::new(x.dtype, ids.shape.clone())])
    },
    grad: Grad::Vjp(|e, n, i| {
        let axis = n.attrs.int("axis") as usize;
        (i == 0).then(|| spread(e, &e.ty(n.operands[0]), n.operands[1], axis, n.ct))
    }),
    rules: &[],
    facts: Facts {
        moves: Moves::Picked,
        range: |cx| Range::new(0, cx.size(0)),
        // Of an empty axis it takes zeros.
        integers: |cx| cx.range(0).filter(|_| !cx.operands[0].shape.iter().any(Dim::is_zero)),
        ..Facts::NONE
    },
    indices: Indices::Or(bounds::CLAMP, |cx| {
        let axis = cx.attrs.int("axis") as usize;
        vec![IndexUse::one(1, axis, cx.operands[0].shape[axis].clone())]
    }),
    needs: crate::require::nothing,
    cost: crate::cost::picked,
    lower: Lower::Index(|k, at| {
        let axis = k.attrs().int("axis") as usize;
        let size = k.operand_type(0).shape[axis].clone();
        let id = k.operand(1, at);
        let id = pull::to_index(k, id);
        let id = pull::clamp(k, id, &size);
        let mut from = at.to_vec();
        from[axis] = k.dynamic(id);
        let element = k.guarded(0, &from, std::slice::from_ref(&size));
        let some = pull::nonempty(k, &[size]);
        pull::guard(k, some, element, 0.0)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let axis = cx.attrs.int("axis") as usize;
        let Data::Int(ids) = &cx.operands[1].data else { return Err("expected indices".into()) };
        let size = cx.operands[0].shape()[axis] as i64;
        if bounds::is_checked(cx.attrs) {
            bounds::verify(ids, axis, size, 1)?;
        }
        Ok(vec![map_data!(&cx.operands[0], a => sizes::build(&shape, |at| {
            let mut from = at.to_vec();
            from[axis] = ids[at].min(size - 1).max(0) as usize;
            if size == 0 { Default::default() } else { a[&from[..]] }
        }))])
    }),
};

/// Elements by indices that are in range.
pub fn emit(e: &dyn Emit, x: V, ids: V, axis: i64) -> V {
    let attrs = Attrs::none().with("axis", Attr::Int(axis));
    e.emit(Op::TakeAlong, &[x, ids], bounds::unchecked(Op::TakeAlong, attrs))
}

/// The gradient: each element of `ct` is added where it was taken from.
pub fn spread(e: &dyn Emit, x: &TensorType, ids: V, axis: usize, ct: V) -> V {
    let shape = e.ty(ids).shape;
    let size = |d: &Dim| {
        let attrs = Attrs::none()
            .with("size", Attr::Shape(vec![d.clone()]))
            .with("dtype", Attr::DType(DType::I64));
        e.broadcast(e.emit(Op::DimSize, &[], attrs), &shape, &[])
    };
    // As the forward pass reads them.
    let ids = e.cast(ids, DType::I64);
    let last = e.sub(size(&x.shape[axis]), e.splat_like(1.0, ids));
    let ids = e.binary(Op::Maximum, e.binary(Op::Minimum, ids, last), e.splat_like(0.0, ids));
    // The place of each element among all of `x`.
    let mut place: Option<V> = None;
    let mut stride = Dim::constant(1);
    for a in (0..shape.len()).rev() {
        let along = if a == axis {
            ids
        } else {
            let attrs = Attrs::none()
                .with("shape", Attr::Shape(shape.to_vec()))
                .with("axis", Attr::Int(a as i64))
                .with("dtype", Attr::DType(DType::I64));
            e.emit(Op::Iota, &[], attrs)
        };
        let part = if stride.is_one() { along } else { e.mul(along, size(&stride)) };
        place = Some(place.map_or(part, |sum| e.add(sum, part)));
        stride = stride * x.shape[a].clone();
    }
    let count = [Dim::product(shape.iter())];
    let place = e.reshape(place.unwrap_or(ids), &count);
    let zeros = e.splat(0.0, x.dtype, &[x.elements()]);
    let sum = scatter_add::emit(e, zeros, place, e.reshape(ct, &count), &x.elements());
    e.reshape(sum, &x.shape)
}
