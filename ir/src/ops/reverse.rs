//! Elements in the opposite order.

use super::pull;
use super::util::*;
use crate::attr::AttrKind;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;
use crate::{Attr, Attrs, Dim, Op, OpDef};
use ndarray::Axis;

pub const DEF: OpDef = OpDef {
    name: "reverse",
    summary: "Reverses the order of elements along the given axes.",
    operands: &[Operand::one("x", ElementKind::Any)],
    attrs: &[AttrSpec {
        name: "axes",
        kind: AttrKind::Ints,
        default: None,
        doc: "the axes to reverse",
    }],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        axes(cx, "axes", cx.operands[0].rank())?;
        Ok(vec![cx.operands[0].clone()])
    },
    grad: Grad::Vjp(|e, n, _| {
        let axes = n.attrs.ints("axes").to_vec();
        Some(e.emit(Op::Reverse, &[n.ct], Attrs::none().with("axes", Attr::Ints(axes))))
    }),
    rules: RULES,
    facts: Facts { moves: Moves::Reordered, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Index(|k, at| {
        let shape = k.result_type().shape;
        let axes = k.attrs().ints("axes").to_vec();
        let mut from = at.to_vec();
        for a in axes {
            let a = a as usize;
            let last = pull::ix(&(shape[a].clone() - Dim::constant(1)));
            from[a] = last.plus(&at[a].scale(&Dim::constant(-1)));
        }
        k.operand(0, &from)
    }),
    eval: Eval::Pure(|cx| {
        let axes = cx.attrs.ints("axes");
        Ok(vec![map_data!(&cx.operands[0], a => {
            let mut view = a.view();
            for axis in axes {
                view.invert_axis(Axis(*axis as usize));
            }
            view.as_standard_layout().into_owned()
        })])
    }),
};

const RULES: &[Rule] = &[
    Rule::computed(
        "reverse.none",
        "(reverse:r x)",
        |m| m.ints("r", "axes").is_empty().then(|| m.var("x")),
        "nothing to turn",
    ),
    Rule::exact("reverse.reverse", "(reverse:r (reverse:r x))", "x", "turned back"),
    Rule::exact(
        "reverse.unary",
        "(@unary:f (reverse:r x))",
        "(reverse:r (@unary:f x))",
        "views move outward, where they meet",
    ),
];
