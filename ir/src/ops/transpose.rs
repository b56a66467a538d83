//! Permuting axes.

use super::util::*;
use crate::attr::AttrKind;
use crate::facts::{Simpler, SimplerCx};
use crate::kernel::Ix;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::{Match, Rule};
use crate::vjp::V;
use crate::{Attr, Attrs, Op};
use crate::{OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "transpose",
    summary: "Permutes axes: result axis i is operand axis `perm[i]`.",
    operands: &[Operand::one("x", ElementKind::Any)],
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
                .at(Blame::Attr("perm"), format!("names {} axes", perm.len()))
                .at(Blame::Operand(0), format!("this is {x}, rank {}", x.rank())));
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
    rules: RULES,
    facts: Facts { moves: Moves::Reordered, axes: lies_along, simpler, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
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

fn simpler(cx: &SimplerCx<'_>) -> Option<Simpler> {
    let perm = cx.attrs.ints("perm");
    let identity = |p: &[i64]| p.iter().enumerate().all(|(i, a)| i as i64 == *a);
    if identity(perm) {
        return Some(Simpler::Value(cx.operands[0]));
    }
    let (inner, attrs) = cx.through(0, Op::Transpose)?;
    let first = attrs.ints("perm");
    let perm: Vec<i64> = perm.iter().map(|p| first[*p as usize]).collect();
    if identity(&perm) {
        return Some(Simpler::Value(inner));
    }
    let attrs = Attrs::none().with("perm", Attr::Ints(perm));
    Some(Simpler::Node(Op::Transpose, vec![inner], attrs))
}

fn lies_along(attrs: &Attrs, operand: &TensorType, _: &TensorType) -> Option<Vec<Option<usize>>> {
    let mut out = vec![None; operand.rank()];
    for (to, from) in attrs.ints("perm").iter().enumerate() {
        out[*from as usize] = Some(to);
    }
    Some(out)
}

const RULES: &[Rule] = &[
    Rule::computed(
        "transpose.same",
        "(transpose:p x)",
        |m| m.ints("p", "perm").is_sorted().then(|| m.var("x")),
        "no axis moves",
    ),
    Rule::computed(
        "transpose.transpose",
        "(transpose:p (transpose:q x))",
        composed,
        "axes move once instead of twice",
    ),
    Rule::exact(
        "transpose.unary",
        "(@unary:f (transpose:p x))",
        "(transpose:p (@unary:f x))",
        "views move outward, where they meet",
    ),
    Rule::exact(
        "transpose.binary",
        "(@binary:f (transpose:p x) (transpose:p y))",
        "(transpose:p (@binary:f x y))",
        "one transposition instead of two",
    ),
    Rule::computed(
        "transpose.broadcast",
        "(transpose:p (broadcast:b x))",
        broadcast_elsewhere,
        "repeated along the right axes at once",
    ),
    Rule::computed(
        "transpose.matmul",
        "(transpose:p (matmul:m a b))",
        swapped_product,
        "the product of the transposed, the other way round",
    ),
];

fn composed(m: &Match<'_>) -> Option<V> {
    let inner = m.ints("q", "perm");
    let perm: Option<Vec<i64>> =
        m.ints("p", "perm").iter().map(|i| inner.get(*i as usize).copied()).collect();
    Some(m.emit().transpose(m.var("x"), &perm?))
}

fn broadcast_elsewhere(m: &Match<'_>) -> Option<V> {
    let perm = m.ints("p", "perm");
    let axes: Option<Vec<i64>> = m
        .ints("b", "axes")
        .iter()
        .map(|a| perm.iter().position(|p| p == a).map(|i| i as i64))
        .collect();
    let axes = axes.filter(|a| a.is_sorted())?;
    Some(m.emit().broadcast(m.var("x"), &m.root_ty().shape, &axes))
}

/// The permutation swaps the last two of `rank` axes and nothing else.
pub fn swaps_last_two(perm: &[i64]) -> bool {
    let n = perm.len();
    n >= 2
        && perm[n - 2] == n as i64 - 1
        && perm[n - 1] == n as i64 - 2
        && perm[..n - 2].is_sorted()
}

fn swapped_product(m: &Match<'_>) -> Option<V> {
    if !swaps_last_two(m.ints("p", "perm")) {
        return None;
    }
    let attrs = Attrs::none()
        .with("trans_a", Attr::Bool(!m.bool("m", "trans_b")))
        .with("trans_b", Attr::Bool(!m.bool("m", "trans_a")));
    Some(m.e.emit(Op::MatMul, &[m.var("b"), m.var("a")], attrs))
}
