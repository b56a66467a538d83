//! Repetition along new axes or axes of size one.

use super::util::*;
use crate::attr::AttrKind;
use crate::kernel::Ix;
use crate::lower::Lower;
use crate::op::*;
use crate::{OpDef, TensorType};
use ndarray::IxDyn;

pub const DEF: OpDef = OpDef {
    name: "broadcast",
    summary: "Repeats a tensor to a larger shape: operand axis i becomes result axis `axes[i]`.",
    operands: &[Operand::one("x", Kind::Any)],
    attrs: &[
        AttrSpec { name: "shape", kind: AttrKind::Shape, default: None, doc: "the result shape" },
        AttrSpec {
            name: "axes",
            kind: AttrKind::Ints,
            default: None,
            doc: "for each operand axis, the result axis it becomes; increasing",
        },
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let x = &cx.operands[0];
        let shape = cx.attrs.shape("shape");
        let axes = axes(cx, "axes", shape.len())?;
        if axes.len() != x.rank() || !axes.is_sorted() {
            return Err(InferError::new("E0209", "`axes` does not fit the operand of `broadcast`")
                .at(Place::Attr("axes"), format!("expected {} increasing axes", x.rank()))
                .at(Place::Operand(0), format!("this is {x}")));
        }
        for (i, axis) in axes.iter().enumerate() {
            if x.shape[i] != shape[*axis] && !x.shape[i].is_one() {
                return Err(InferError::new(
                    "E0203",
                    format!("axis {i} has size {} and cannot become {}", x.shape[i], shape[*axis]),
                )
                .at(Place::Operand(0), format!("this is {x}"))
                .help("only an axis of size 1 can be repeated"));
            }
        }
        Ok(vec![TensorType::new(x.dtype, shape.to_vec())])
    },
    grad: Grad::Vjp(|e, n, _| {
        let x = e.ty(n.operands[0]);
        let shape = e.ty(n.out).shape;
        let axes = n.attrs.ints("axes");
        let summed: Vec<i64> = (0..shape.len() as i64)
            .filter(|a| match axes.iter().position(|b| b == a) {
                None => true,
                Some(i) => x.shape[i] != shape[*a as usize],
            })
            .collect();
        Some(e.reshape(e.sum(n.ct, &summed), &x.shape))
    }),
    rules: &[],
    lower: Lower::Index(|k, at| {
        let x = k.operand_type(0);
        let shape = k.result_type().shape;
        let axes = k.attrs().ints("axes").to_vec();
        let from: Vec<Ix> = axes
            .iter()
            .enumerate()
            .map(|(i, a)| {
                let a = *a as usize;
                if x.shape[i] == shape[a] { at[a].clone() } else { Ix::constant(0) }
            })
            .collect();
        k.operand(0, &from)
    }),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let mut middle = vec![1; shape.len()];
        for (i, a) in cx.attrs.ints("axes").iter().enumerate() {
            middle[*a as usize] = cx.operands[0].shape()[i];
        }
        let middle = IxDyn(&middle);
        Ok(vec![map_data!(&cx.operands[0], a => a
            .to_shape(middle.clone())
            .map_err(|e| e.to_string())?
            .broadcast(IxDyn(&shape))
            .ok_or("shapes do not broadcast")?
            .to_owned())])
    }),
};
