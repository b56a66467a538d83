//! Picking elements along an axis by index.

use super::bounds::IndexUse;
use super::util::*;
use super::{bounds, pull, scatter_add, sizes};
use crate::attr::AttrKind;
use crate::eval::Data;
use crate::facts::{IntRange, IntegersCx};
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, DType, Dim, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "gather",
    summary: "Replaces an axis of `x` by the axes of `ids`: the entries of `x` along `axis` that \
              `ids` names. An index out of range fails the call, a negative one too; with `bounds: \
              \"clamp\"` it means the nearest entry, and an empty axis gives zeros.",
    operands: &[Operand::one("x", ElementKind::Any), Operand::one("ids", ElementKind::Int)],
    attrs: &[
        AttrSpec {
            name: "axis",
            kind: AttrKind::Int,
            default: Some(|| Attr::Int(0)),
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
        let mut shape = x.shape[..axis].to_vec();
        shape.extend_from_slice(&ids.shape);
        shape.extend_from_slice(&x.shape[axis + 1..]);
        Ok(vec![TensorType::new(x.dtype, shape)])
    },
    // Every use of an entry adds to its gradient, however often it was named.
    grad: Grad::Vjp(|e, n, i| {
        if i != 0 {
            return None;
        }
        let (x, ids) = (e.ty(n.operands[0]), n.operands[1]);
        let axis = n.attrs.int("axis") as usize;
        let (rank, ids_rank) = (x.rank(), e.ty(ids).rank());
        // Scattering is by rows: bring the indexed axes to the front and back.
        let ct_perm: Vec<i64> = (axis..axis + ids_rank)
            .chain(0..axis)
            .chain(axis + ids_rank..rank + ids_rank - 1)
            .map(|a| a as i64)
            .collect();
        let mut front = vec![x.shape[axis].clone()];
        front.extend_from_slice(&x.shape[..axis]);
        front.extend_from_slice(&x.shape[axis + 1..]);
        let back: Vec<i64> =
            (1..=axis).chain(std::iter::once(0)).chain(axis + 1..rank).map(|a| a as i64).collect();
        let zeros = e.splat(0.0, x.dtype, &front);
        let ids = clamped(e, ids, &x.shape[axis]);
        let rows = e.transpose(n.ct, &ct_perm);
        Some(e.transpose(scatter_add::emit(e, zeros, ids, rows, &x.shape[axis]), &back))
    }),
    rules: &[],
    facts: Facts {
        moves: Moves::Picked,
        range: |cx| Range::new(0, cx.size(0)),
        integers,
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
        let ids_rank = k.operand_type(1).rank();
        let size = k.operand_type(0).shape[axis].clone();
        let id = k.operand(1, &at[axis..axis + ids_rank]);
        let id = pull::to_index(k, id);
        let id = pull::clamp(k, id, &size);
        let mut from = at[..axis].to_vec();
        from.push(k.dynamic(id));
        from.extend_from_slice(&at[axis + ids_rank..]);
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
            let id = ids[&at[axis..axis + ids.ndim()]].min(size - 1).max(0);
            let mut from = at[..axis].to_vec();
            from.push(id as usize);
            from.extend_from_slice(&at[axis + ids.ndim()..]);
            if size == 0 { Default::default() } else { a[&from[..]] }
        }))])
    }),
};

fn integers(cx: &IntegersCx<'_>) -> Option<IntRange> {
    // Of an empty axis it takes zeros.
    cx.range(0).filter(|_| !cx.operands[0].shape.iter().any(Dim::is_zero))
}

/// Indices as `gather` reads them, in a type that scattering takes.
fn clamped(e: &dyn Emit, ids: V, size: &Dim) -> V {
    let narrow = !ElementKind::Index.admits(e.ty(ids).dtype);
    let ids = if narrow { e.cast(ids, DType::I32) } else { ids };
    let last = e.sub(size_like(e, ids, size), e.splat_like(1.0, ids));
    e.binary(Op::Maximum, e.binary(Op::Minimum, ids, last), e.splat_like(0.0, ids))
}

/// A size in the type and shape of indices.
fn size_like(e: &dyn Emit, ids: V, size: &Dim) -> V {
    let ty = e.ty(ids);
    let attrs = Attrs::none()
        .with("size", Attr::Shape(vec![size.clone()]))
        .with("dtype", Attr::DType(ty.dtype));
    e.broadcast(e.emit(Op::DimSize, &[], attrs), &ty.shape, &[])
}

/// Rows that `ids` named, with zeros where an index is not one of `size` rows.
pub fn only_in_range(e: &dyn Emit, rows: V, ids: V, size: &Dim) -> V {
    let (shape, axes) = (e.ty(rows).shape, e.ty(ids).rank());
    let from = e.binary(Op::Ge, ids, e.splat_like(0.0, ids));
    let to = e.binary(Op::Lt, ids, size_like(e, ids, size));
    let axes: Vec<i64> = (0..axes as i64).collect();
    let good = e.broadcast(e.binary(Op::And, from, to), &shape, &axes);
    e.select(good, rows, e.splat_like(0.0, rows))
}

/// Rows by indices that are in range.
pub fn emit(e: &dyn Emit, x: V, ids: V, axis: i64) -> V {
    let attrs = Attrs::none().with("axis", Attr::Int(axis));
    e.emit(Op::Gather, &[x, ids], bounds::unchecked(Op::Gather, attrs))
}
