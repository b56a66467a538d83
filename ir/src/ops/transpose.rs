//! Permuting axes.

use super::util::*;
use crate::attr::AttrKind;
use crate::kernel::Ix;
use crate::lower::Lower;
use crate::op::*;
use crate::{OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "transpose",
    summary: "Permutes axes: result axis i is operand axis `perm[i]`.",
    operands: &[Operand::one("x", Kind::Any)],
    attrs: &[AttrSpec {
        name: "perm",
        kind: AttrKind::Ints,
        default: None,
        doc: "for each result axis, the operand axis it comes from; source text may leave it out \
              to reverse all axes",
    }],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let x = &cx.operands[0];
        let perm = axes(cx, "perm", x.rank())?;
        if perm.len() != x.rank() {
            return Err(InferError::new("E0211", "`perm` must name every axis once")
                .at(Place::Attr("perm"), format!("names {} axes", perm.len()))
                .at(Place::Operand(0), format!("this is {x}, rank {}", x.rank())));
        }
        let shape: Vec<_> = perm.iter().map(|p| x.shape[*p].clone()).collect();
        Ok(vec![TensorType::new(x.dtype, shape)])
    },
    grad: Grad::Vjp(|e, n, _| {
        let perm = n.attrs.ints("perm");
        let mut inverse = vec![0; perm.len()];
        for (i, p) in perm.iter().enumerate() {
            inverse[*p as usize] = i as i64;
        }
        Some(e.transpose(n.ct, &inverse))
    }),
    rules: &[],
    lower: Lower::Index(|k, at| {
        let perm = k.attrs().ints("perm").to_vec();
        let mut from = vec![Ix::constant(0); perm.len()];
        for (i, p) in perm.iter().enumerate() {
            from[*p as usize] = at[i].clone();
        }
        k.operand(0, &from)
    }),
    eval: Eval::Pure(|cx| {
        let perm: Vec<usize> = cx.attrs.ints("perm").iter().map(|p| *p as usize).collect();
        Ok(vec![map_data!(&cx.operands[0], a => a
            .view()
            .permuted_axes(perm.clone())
            .as_standard_layout()
            .into_owned())])
    }),
};
