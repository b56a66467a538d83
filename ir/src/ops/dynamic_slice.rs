//! A box of a tensor at a place computed at run time.

use super::util::*;
use super::{bounds, dynamic_update_slice, pull, sizes};
use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::kernel::{Ix, Reg};
use crate::lower::{Lower, Pull};
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "dynamic_slice",
    summary: "Takes a box of the given sizes that begins at `starts`, one integer scalar for each \
              axis. A box that sticks out fails the call; with `bounds: \"clamp\"` it is moved so \
              that it fits.",
    operands: &[Operand::one("x", ElementKind::Any), Operand::many("starts", ElementKind::Int)],
    attrs: &[
        AttrSpec {
            name: "sizes",
            kind: AttrKind::Shape,
            default: None,
            doc: "for each axis, the size of the box",
        },
        bounds::attr("a box that sticks out: \"check\" fails, \"clamp\" moves it"),
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        bounds::valid(cx)?;
        let x = &cx.operands[0];
        sizes::entries(cx, "sizes", x.rank())?;
        sizes::no_negative_size(cx, "sizes")?;
        starts(cx, 1)?;
        let size = cx.attrs.shape("sizes");
        fits(cx, x, size)
            .map_err(|err| err.at(Blame::Attr("sizes"), "the box must fit in the tensor"))?;
        Ok(vec![TensorType::new(x.dtype, size.to_vec())])
    },
    grad: Grad::Vjp(|e, n, i| {
        (i == 0).then(|| {
            let zeros = e.splat_like(0.0, n.operands[0]);
            dynamic_update_slice::emit(e, zeros, n.ct, &n.operands[1..])
        })
    }),
    rules: &[],
    facts: Facts { moves: Moves::Picked, ..Facts::NONE },
    indices: Indices::Or(bounds::CLAMP, |cx| {
        bounds::boxed(cx.operands[0], cx.attrs.shape("sizes"), 1)
    }),
    needs: |cx, need| crate::require::box_fits(cx, cx.attrs.shape("sizes"), need),
    cost: crate::cost::picked,
    lower: Lower::Index(|k, at| {
        let (x, size) = (k.operand_type(0).shape, k.result_type().shape);
        let from: Vec<Ix> = (0..at.len())
            .map(|i| {
                let start = start(k, 1 + i, &x[i], &size[i]);
                k.dynamic(start).plus(&at[i])
            })
            .collect();
        k.operand(0, &from)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let starts = start_values(cx, &shape, &cx.operands[1..])?;
        Ok(vec![map_data!(&cx.operands[0], a => sizes::build(&shape, |at| {
            let from: Vec<usize> = at.iter().zip(&starts).map(|(p, s)| p + s).collect();
            a[&from[..]]
        }))])
    }),
};

/// The operands from `first` are one scalar for each axis.
pub fn starts(cx: &InferCx<'_>, first: usize) -> Result<(), InferError> {
    let x = &cx.operands[0];
    let given = cx.operands.len() - first;
    if given != x.rank() {
        return Err(InferError::new(
            "E0238",
            format!("`{}` needs {} starts, one for each axis, but has {given}", cx.op, x.rank()),
        )
        .at(Blame::Operand(0), format!("this is {x}")));
    }
    (first..cx.operands.len()).try_for_each(|i| sizes::scalar(cx, i, "a start"))
}

/// A box of these sizes could lie inside the tensor.
pub fn fits(cx: &InferCx<'_>, x: &TensorType, size: &[Dim]) -> Result<(), InferError> {
    let too_large = |i: &usize| (x.shape[*i].clone() - size[*i].clone()).is_always_negative();
    match (0..x.rank()).find(too_large) {
        None => Ok(()),
        Some(i) => Err(InferError::new(
            "E0238",
            format!("a box of size {} is larger than axis {i} of size {}", size[i], x.shape[i]),
        )
        .at(Blame::Operand(0), format!("`{}` on {x}", cx.op))),
    }
}

/// Start of the box along one axis, clamped so that the box fits.
pub fn start(k: &mut dyn Pull, operand: usize, axis: &Dim, size: &Dim) -> Reg {
    let given = k.operand(operand, &[]);
    let given = pull::to_index(k, given);
    let last = k.index(&pull::ix(&(axis.clone() - size.clone())));
    pull::clamp_to(k, given, last)
}

pub fn start_values(
    cx: &EvalCx<'_>,
    size: &[usize],
    starts: &[Array],
) -> Result<Vec<usize>, String> {
    let shape = cx.operands[0].shape();
    let mut out = vec![];
    for (i, start) in starts.iter().enumerate() {
        let Data::Int(start) = &start.data else { return Err("expected integers".into()) };
        let last = shape[i].checked_sub(size[i]).ok_or_else(|| {
            format!("a box of size {} is larger than axis {i} of size {}", size[i], shape[i])
        })?;
        if bounds::is_checked(cx.attrs) {
            bounds::verify(start, i, shape[i] as i64, size[i] as i64)?;
        }
        let start = start.first().copied().unwrap_or(0);
        out.push(start.clamp(0, last as i64) as usize);
    }
    Ok(out)
}

/// A box that fits, or is moved so that it does.
pub fn emit(e: &dyn Emit, x: V, starts: &[V], size: &[Dim]) -> V {
    let operands = [&[x], starts].concat();
    let attrs = Attrs::none().with("sizes", Attr::Shape(size.to_vec()));
    e.emit(Op::DynamicSlice, &operands, bounds::unchecked(Op::DynamicSlice, attrs))
}
