//! Batched matrix multiplication.

use super::util::*;
use crate::attr::AttrKind;
use crate::eval::{Array, Data};
use crate::facts::{RangeCx, Simpler, SimplerCx};
use crate::lower::{Contraction, Lower};
use crate::magnitude::bits;
use crate::op::*;
use crate::rule::{Match, Rule};
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, Dim, Op, OpDef, TensorType};
use ndarray::{ArrayD, ArrayView2, Ix2};

const TRANSPOSE: fn() -> Attr = || Attr::Bool(false);

pub const DEF: OpDef = OpDef {
    name: "matmul",
    summary: "Multiplies matrices in the last two axes; leading axes are batches and must agree.",
    operands: &[Operand::one("a", ElementKind::Num), Operand::one("b", ElementKind::Num)],
    attrs: &[
        AttrSpec {
            name: "trans_a",
            kind: AttrKind::Bool,
            default: Some(TRANSPOSE),
            doc: "whether `a` is stored transposed",
        },
        AttrSpec {
            name: "trans_b",
            kind: AttrKind::Bool,
            default: Some(TRANSPOSE),
            doc: "whether `b` is stored transposed",
        },
    ],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        let (a, b) = (&cx.operands[0], &cx.operands[1]);
        if a.dtype != b.dtype {
            return Err(InferError::new("E0206", "`matmul` needs operands of one element type")
                .at(Blame::Operand(0), format!("this is {}", a.dtype))
                .at(Blame::Operand(1), format!("this is {}", b.dtype))
                .help(super::util::convert_one(a.dtype, b.dtype)));
        }
        for (i, ty) in [a, b].into_iter().enumerate() {
            if ty.rank() < 2 {
                return Err(InferError::new("E0212", "`matmul` needs at least two axes")
                    .at(Blame::Operand(i), format!("this is {ty}"))
                    .help("reshape a vector to one row or one column first"));
            }
        }
        let (m, ka) = matrix(a, cx.attrs.bool("trans_a"));
        let (kb, n) = matrix(b, cx.attrs.bool("trans_b"));
        if ka != kb {
            return Err(InferError::new(
                "E0213",
                format!("`matmul` cannot join these shapes: inner sizes {ka} and {kb} differ"),
            )
            .at(Blame::Operand(0), format!("this is {a}, inner size {ka}"))
            .at(Blame::Operand(1), format!("this is {b}, inner size {kb}")));
        }
        let (la, lb) = (&a.shape[..a.rank() - 2], &b.shape[..b.rank() - 2]);
        if la != lb {
            return Err(InferError::new("E0214", "`matmul` needs equal leading (batch) axes")
                .at(Blame::Operand(0), format!("this is {a}"))
                .at(Blame::Operand(1), format!("this is {b}")));
        }
        let mut shape = la.to_vec();
        shape.extend([m, n]);
        Ok(vec![TensorType::new(a.dtype, shape)])
    },
    grad: Grad::Vjp(|e, n, i| {
        let [a, b] = *n.operands else { return None };
        let (ta, tb) = (n.attrs.bool("trans_a"), n.attrs.bool("trans_b"));
        // With C = op(A) op(B): dop(A) = dC op(B)ᵀ, dop(B) = op(A)ᵀ dC; where an
        // operand is stored transposed, so is its gradient.
        Some(match (i, ta, tb) {
            (0, false, _) => product(e, n.ct, b, false, !tb),
            (0, true, _) => product(e, b, n.ct, tb, true),
            (_, _, false) => product(e, a, n.ct, !ta, false),
            (_, _, true) => product(e, n.ct, a, true, ta),
        })
    }),
    rules: RULES,
    facts: Facts { range, simpler, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Contract(Contraction::MatMul),
    eval: Eval::Pure(|cx| {
        let shape = result_shape(cx, 0)?;
        let (ta, tb) = (cx.attrs.bool("trans_a"), cx.attrs.bool("trans_b"));
        let dtype = cx.operands[0].dtype;
        Ok(vec![match (&cx.operands[0].data, &cx.operands[1].data) {
            (Data::Float(a), Data::Float(b)) => {
                Array::float(dtype, batched(a, b, &shape, |a, b| flip(a, ta).dot(&flip(b, tb)))?)
            }
            (Data::Int(a), Data::Int(b)) => Array::int(
                dtype,
                batched(a, b, &shape, |a, b| {
                    let (a, b) = (flip(a, ta), flip(b, tb));
                    ndarray::Array2::from_shape_fn((a.nrows(), b.ncols()), |(i, j)| {
                        (0..a.ncols())
                            .fold(0i64, |s, k| s.wrapping_add(a[[i, k]].wrapping_mul(b[[k, j]])))
                    })
                })?,
            ),
            _ => return Err("expected two number operands of one type".into()),
        }])
    }),
};

/// `matmul(transpose(a), b)` reads `a` as it is stored.
fn simpler(cx: &SimplerCx<'_>) -> Option<Simpler> {
    let mut attrs = cx.attrs.clone();
    let mut operands = cx.operands.to_vec();
    let mut changed = false;
    for (i, name) in ["trans_a", "trans_b"].into_iter().enumerate() {
        let Some((inner, inner_attrs)) = cx.through(i, Op::Transpose) else { continue };
        let perm = inner_attrs.ints("perm");
        let n = perm.len();
        let swaps = n >= 2
            && perm[..n - 2].iter().enumerate().all(|(i, a)| i as i64 == *a)
            && perm[n - 2..] == [n as i64 - 1, n as i64 - 2];
        if swaps {
            operands[i] = inner;
            attrs.set(name, Attr::Bool(!attrs.bool(name)));
            changed = true;
        }
    }
    changed.then_some(Simpler::Node(Op::MatMul, operands, attrs))
}

fn range(cx: &dyn RangeCx) -> Range {
    let a = cx.operand(0);
    let inner = if cx.attrs().bool("trans_a") { 2 } else { 1 };
    let inner = a.rank().checked_sub(inner).and_then(|i| a.shape[i].as_const());
    Range::new(0, cx.size(0).times(cx.size(1)).summed(bits(inner)))
}

const RULES: &[Rule] = &[
    Rule::computed(
        "matmul.transposed_a",
        "(matmul:m (transpose:p a) b)",
        |m| untransposed(m, "trans_a"),
        "the product reads it either way",
    ),
    Rule::computed(
        "matmul.transposed_b",
        "(matmul:m a (transpose:p b))",
        |m| untransposed(m, "trans_b"),
        "the product reads it either way",
    ),
    Rule::exact(
        "matmul.neg_a",
        "(matmul:m (neg a) b)",
        "(neg (matmul:m a b))",
        "the sign moves outward",
    )
    .round(),
    Rule::exact(
        "matmul.neg_b",
        "(matmul:m a (neg b))",
        "(neg (matmul:m a b))",
        "the sign moves outward",
    )
    .round(),
    Rule::computed(
        "matmul.scaled_a",
        "(matmul:m (mul a #c) b)",
        scaled_outside,
        "constants move outward, where they meet",
    )
    .within(shrinks_a_bounded_product)
    .round(),
    Rule::computed(
        "matmul.scaled_b",
        "(matmul:m a (mul b #c))",
        scaled_outside,
        "constants move outward, where they meet",
    )
    .within(shrinks_a_bounded_product)
    .round(),
];

fn untransposed(m: &Match<'_>, which: &'static str) -> Option<V> {
    if !super::transpose::swaps_last_two(m.ints("p", "perm")) {
        return None;
    }
    let attrs = m.head("m")?.attrs.clone().with(which, Attr::Bool(!m.bool("m", which)));
    Some(m.e.emit(Op::MatMul, &[m.var("a"), m.var("b")], attrs))
}

/// Whether the product itself is bounded, and the constant only makes it smaller.
fn shrinks_a_bounded_product(m: &Match<'_>) -> bool {
    let a = m.shape("a");
    let at = if m.bool("m", "trans_a") { 2 } else { 1 };
    let inner = a.len().checked_sub(at).and_then(|i| a[i].as_const());
    let product = m.magnitude("a").times(m.magnitude("b")).summed(bits(inner));
    !m.root_ty().dtype.is_float()
        || m.splat("c").is_some_and(|c| c.abs() <= 1.0) && m.bounded(product)
}

fn scaled_outside(m: &Match<'_>) -> Option<V> {
    let e = m.emit();
    let c = m.splat("c").filter(|c| c.is_finite() && *c != 0.0)?;
    let product = m.again("m", &[m.var("a"), m.var("b")])?;
    Some(e.mul(product, e.splat_like(c, product)))
}

/// Rows and columns of the matrix an operand stands for.
fn matrix(ty: &TensorType, transposed: bool) -> (Dim, Dim) {
    let (r, c) = (ty.shape[ty.rank() - 2].clone(), ty.shape[ty.rank() - 1].clone());
    if transposed { (c, r) } else { (r, c) }
}

fn product(e: &dyn Emit, a: V, b: V, trans_a: bool, trans_b: bool) -> V {
    let attrs =
        Attrs::none().with("trans_a", Attr::Bool(trans_a)).with("trans_b", Attr::Bool(trans_b));
    e.emit(Op::MatMul, &[a, b], attrs)
}

fn flip<T>(a: ArrayView2<'_, T>, transposed: bool) -> ArrayView2<'_, T> {
    if transposed { a.reversed_axes() } else { a }
}

fn batched<T: Copy>(
    a: &ArrayD<T>,
    b: &ArrayD<T>,
    shape: &[usize],
    multiply: impl Fn(ArrayView2<'_, T>, ArrayView2<'_, T>) -> ndarray::Array2<T>,
) -> Result<ArrayD<T>, String> {
    let stack = |x: &ArrayD<T>| {
        let s = x.shape().to_vec();
        let (r, c) = (s[s.len() - 2], s[s.len() - 1]);
        let values: Vec<T> = x.iter().copied().collect();
        (values, r, c)
    };
    let ((av, ar, ac), (bv, br, bc)) = (stack(a), stack(b));
    let batch: usize = shape[..shape.len() - 2].iter().product();
    let mut out = Vec::with_capacity(shape.iter().product());
    for i in 0..batch {
        let a = ArrayView2::from_shape(Ix2(ar, ac), &av[i * ar * ac..(i + 1) * ar * ac]);
        let b = ArrayView2::from_shape(Ix2(br, bc), &bv[i * br * bc..(i + 1) * br * bc]);
        let (a, b) = (a.map_err(|e| e.to_string())?, b.map_err(|e| e.to_string())?);
        out.extend(multiply(a, b).iter().copied());
    }
    Ok(from_vec(shape, out))
}
