//! Repetition along new axes or axes of size one.

use super::util::*;
use crate::attr::AttrKind;
use crate::facts::{Simpler, SimplerCx};
use crate::kernel::Ix;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::{Match, Rule};
use crate::vjp::V;
use crate::{Attr, Attrs, Dim, Op};
use crate::{OpDef, TensorType};
use ndarray::IxDyn;

pub const DEF: OpDef = OpDef {
    name: "broadcast",
    summary: "Repeats a tensor to a larger shape: operand axis i becomes result axis `axes[i]`.",
    operands: &[Operand::one("x", ElementKind::Any)],
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
                .at(
                    Blame::Attr("axes"),
                    format!(
                        "expected one axis for each of the operand, {} in all, increasing",
                        x.rank()
                    ),
                )
                .at(Blame::Operand(0), format!("this is {x}")));
        }
        for (i, axis) in axes.iter().enumerate() {
            if x.shape[i] != shape[*axis] && !x.shape[i].is_one() {
                return Err(InferError::new(
                    "E0203",
                    format!("axis {i} has size {} and cannot become {}", x.shape[i], shape[*axis]),
                )
                .at(Blame::Operand(0), format!("this is {x}"))
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
    rules: RULES,
    facts: Facts { moves: Moves::Repeated, axes: lies_along, simpler, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
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

fn simpler(cx: &SimplerCx<'_>) -> Option<Simpler> {
    let axes = cx.attrs.ints("axes");
    let in_order = || axes.iter().enumerate().all(|(i, a)| i as i64 == *a);
    if cx.operand(0).shape == cx.result.shape && in_order() {
        return Some(Simpler::Value(cx.operands[0]));
    }
    let (inner, attrs) = cx.through(0, Op::Broadcast)?;
    let axes = attrs.ints("axes").iter().map(|a| axes[*a as usize]).collect();
    let attrs = Attrs::none()
        .with("shape", Attr::Shape(cx.result.shape.to_vec()))
        .with("axes", Attr::Ints(axes));
    Some(Simpler::Node(Op::Broadcast, vec![inner], attrs))
}

fn lies_along(
    attrs: &Attrs,
    operand: &TensorType,
    result: &TensorType,
) -> Option<Vec<Option<usize>>> {
    let lies = |(from, to): (&Dim, &i64)| {
        let to = *to as usize;
        (*from == result.shape[to]).then_some(to)
    };
    Some(operand.shape.iter().zip(attrs.ints("axes")).map(lies).collect())
}

const RULES: &[Rule] = &[
    Rule::computed(
        "broadcast.same",
        "(broadcast:b x)",
        |m| (m.shape("x") == m.root_ty().shape).then(|| m.var("x")),
        "nothing is repeated",
    ),
    Rule::computed(
        "broadcast.broadcast",
        "(broadcast:b (broadcast:a x))",
        composed,
        "repeated once instead of twice",
    ),
    Rule::computed(
        "broadcast.reshape",
        "(broadcast:b (reshape:r x))",
        through_unit_axes,
        "axes of size one need no reshape",
    ),
    Rule::computed(
        "broadcast.kept_sum",
        "(broadcast:b (sum:s x))",
        |m| unkept(m, Op::Sum),
        "a kept axis is repeated as well as a dropped one",
    ),
    Rule::computed(
        "broadcast.kept_max",
        "(broadcast:b (max:s x))",
        |m| unkept(m, Op::ReduceMax),
        "a kept axis is repeated as well as a dropped one",
    ),
    Rule::computed(
        "broadcast.kept_mean",
        "(broadcast:b (mean:s x))",
        |m| unkept(m, Op::Mean),
        "a kept axis is repeated as well as a dropped one",
    ),
    Rule::exact(
        "broadcast.unary",
        "(@unary:f (broadcast:b x))",
        "(broadcast:b (@unary:f x))",
        "computed once per element, then repeated",
    ),
    Rule::exact(
        "broadcast.binary",
        "(@binary:f (broadcast:b x) (broadcast:b y))",
        "(broadcast:b (@binary:f x y))",
        "computed once per element, then repeated",
    ),
    Rule::exact(
        "broadcast.ternary",
        "(@ternary:f (broadcast:b x) (broadcast:b y) (broadcast:b z))",
        "(broadcast:b (@ternary:f x y z))",
        "computed once per element, then repeated",
    ),
    Rule::computed(
        "broadcast.binary_splat",
        "(@binary:f (broadcast:b x) #c)",
        |m| {
            let x = m.var("x");
            let y = smaller(m, "c", x)?;
            m.again("b", &[m.again("f", &[x, y])?])
        },
        "computed once per element, then repeated",
    ),
    Rule::computed(
        "broadcast.splat_binary",
        "(@binary:f #c (broadcast:b x))",
        |m| {
            let x = m.var("x");
            let y = smaller(m, "c", x)?;
            m.again("b", &[m.again("f", &[y, x])?])
        },
        "computed once per element, then repeated",
    ),
];

/// A splat with the shape of `like`.
fn smaller(m: &Match<'_>, splat: &str, like: V) -> Option<V> {
    let value = m.e.splat_of(m.var(splat))?;
    let e = m.emit();
    let scalar = e.emit(Op::Const, &[], Attrs::none().with("value", Attr::Tensor(value.into())));
    Some(e.broadcast(scalar, &e.ty(like).shape, &[]))
}

fn composed(m: &Match<'_>) -> Option<V> {
    let outer = m.ints("b", "axes");
    let axes: Option<Vec<i64>> =
        m.ints("a", "axes").iter().map(|i| outer.get(*i as usize).copied()).collect();
    // An axis the inner one repeats from size one must still be seen as one.
    Some(m.emit().broadcast(m.var("x"), &m.root_ty().shape, &axes?))
}

/// Where a reshape only adds or drops axes of size one, those that remain say
/// where the others go.
fn through_unit_axes(m: &Match<'_>) -> Option<V> {
    let e = m.emit();
    let (from, to) = (m.shape("x"), m.dims("r", "shape"));
    let out = m.root_ty().shape;
    let places = m.ints("b", "axes");
    let solid = |shape: &[Dim]| -> Vec<usize> {
        (0..shape.len()).filter(|i| !shape[*i].is_one()).collect()
    };
    let (a, b) = (solid(&from), solid(to));
    if a.len() != b.len() || a.iter().zip(&b).any(|(i, j)| from[*i] != to[*j]) {
        return None;
    }
    let kept: Vec<Dim> = a.iter().map(|i| from[*i].clone()).collect();
    let axes: Option<Vec<i64>> = b.iter().map(|j| places.get(*j).copied()).collect();
    // Dropping its unit axes is itself a reshape, unless there are none.
    if kept.len() != from.len() {
        return None;
    }
    Some(e.broadcast(m.var("x"), &out, &axes?))
}

/// A reduction that keeps its axes, then repeats them, may as well drop them.
fn unkept(m: &Match<'_>, op: Op) -> Option<V> {
    if !m.bool("s", "keep") {
        return None;
    }
    let e = m.emit();
    let reduced = m.ints("s", "axes");
    let attrs = m.head("s")?.attrs.clone().with("keep", Attr::Bool(false));
    let small = e.emit(op, &[m.var("x")], attrs);
    let places = m.ints("b", "axes");
    let axes: Vec<i64> =
        (0..places.len()).filter(|i| !reduced.contains(&(*i as i64))).map(|i| places[i]).collect();
    Some(e.broadcast(small, &m.root_ty().shape, &axes))
}
