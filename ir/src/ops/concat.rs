//! Tensors one after the other.

use super::util::*;
use super::{pull, sizes, slice};
use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::{Dim, OpDef, TensorType};
use ndarray::Axis;

pub const DEF: OpDef = OpDef {
    name: "concat",
    summary: "Joins tensors along an axis; all other axes must agree.",
    operands: &[Operand::one("x", ElementKind::Any), Operand::many("more", ElementKind::Any)],
    attrs: &[AttrSpec {
        name: "axis",
        kind: AttrKind::Int,
        default: None,
        doc: "the axis to join along",
    }],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let first = &cx.operands[0];
        let axis = check_axis(cx, "axis", cx.attrs.int("axis"), first.rank())?;
        let mut total = first.shape[axis].clone();
        for (i, ty) in cx.operands.iter().enumerate().skip(1) {
            sizes::same_dtype(cx, 0, i)?;
            let fits = ty.rank() == first.rank()
                && (0..ty.rank()).all(|a| a == axis || ty.shape[a] == first.shape[a]);
            if !fits {
                let differs = (0..ty.rank().min(first.rank()))
                    .find(|a| *a != axis && ty.shape[*a] != first.shape[*a])
                    .filter(|_| ty.rank() == first.rank());
                let what = match differs {
                    Some(a) => {
                        format!("sizes {} and {} of axis {a} differ", first.shape[a], ty.shape[a])
                    }
                    None => format!("ranks {} and {} differ", first.rank(), ty.rank()),
                };
                return Err(InferError::new(
                    "E0236",
                    format!("`concat` along axis {axis} cannot join these tensors: {what}"),
                )
                .at(Blame::Operand(0), format!("this is {first}"))
                .at(Blame::Operand(i), format!("this is {ty}"))
                .help(format!("all axes but axis {axis} must be equal")));
            }
            total = total + ty.shape[axis].clone();
        }
        let mut shape = first.shape.clone();
        shape[axis] = total;
        Ok(vec![TensorType::new(first.dtype, shape)])
    },
    grad: Grad::Vjp(|e, n, i| {
        let axis = n.attrs.int("axis") as usize;
        let before = n.operands[..i]
            .iter()
            .fold(Dim::constant(0), |sum, v| sum + e.ty(*v).shape[axis].clone());
        let mut ends = e.ty(n.operands[i]).shape;
        let mut starts = vec![Dim::constant(0); ends.len()];
        ends[axis] = before.clone() + ends[axis].clone();
        starts[axis] = before;
        let strides = vec![1; ends.len()];
        Some(slice::emit(e, n.ct, starts, ends, strides))
    }),
    rules: &[],
    // From the last operand to the first: `p < end of operand i ? operand i :
    // those after it`.
    facts: Facts { moves: Moves::Joined, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let axis = k.attrs().int("axis") as usize;
        let mut end = Dim::constant(0);
        let mut parts = vec![];
        for i in 0..k.operand_count() {
            let start = end.clone();
            end = end + k.operand_type(i).shape[axis].clone();
            if !k.operand_type(i).shape[axis].is_zero() {
                parts.push((i, start, end.clone()));
            }
        }
        let p = k.index(&at[axis]);
        let mut value = None;
        for (i, start, end) in parts.iter().rev() {
            let element = if parts.len() > 1 {
                let local = k.index(&pull::minus(&at[axis], start));
                let size = end.clone() - start.clone();
                let local = pull::clamp(k, local, &size);
                let mut from = at.to_vec();
                from[axis] = k.dynamic(local);
                k.guarded(*i, &from, &[size])
            } else {
                k.operand(*i, at)
            };
            value = Some(match value {
                None => element,
                Some(later) => {
                    let end = k.index(&pull::ix(end));
                    let here = k.op(ScalarOp::Lt, &[p, end]);
                    k.op(ScalarOp::Select, &[here, element, later])
                }
            });
        }
        // Without parts no element is ever asked for: any value will do.
        value.unwrap_or_else(|| k.operand(0, at))
    }),
    eval: Eval::Pure(|cx| {
        let axis = Axis(cx.attrs.int("axis") as usize);
        macro_rules! joined {
            ($kind:ident) => {{
                let mut views = vec![];
                for x in cx.operands {
                    match &x.data {
                        Data::$kind(a) => views.push(a.view()),
                        _ => return Err("operands of different types".into()),
                    }
                }
                let joined = ndarray::concatenate(axis, &views).map_err(|e| e.to_string())?;
                Data::$kind(joined.as_standard_layout().into_owned())
            }};
        }
        let data = match &cx.operands[0].data {
            Data::Float(_) => joined!(Float),
            Data::Int(_) => joined!(Int),
            Data::Bool(_) => joined!(Bool),
        };
        Ok(vec![Array { dtype: cx.operands[0].dtype, data }])
    }),
};
