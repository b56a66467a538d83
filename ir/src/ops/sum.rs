//! Summation over axes.

use super::util::*;
use crate::OpDef;
use crate::facts::{NONNEG, NONPOS, RangeCx};
use crate::lower::{Lower, Reduction};
use crate::magnitude::{Magnitude, bits};
use crate::op::*;
use crate::rule::{Fact, Match, Rule};
use crate::vjp::V;
use crate::{DType, Dim, Op};

pub const DEF: OpDef = OpDef {
    name: "sum",
    summary: "Sums over the given axes; over no elements it is 0.",
    operands: &[Operand::one("x", ElementKind::Num)],
    attrs: REDUCE_ATTRS,
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: infer_reduce,
    grad: Grad::Vjp(|e, n, _| {
        let shape = e.ty(n.operands[0]).shape;
        Some(unreduced(e, n.ct, &shape, n.attrs.ints("axes"), n.attrs.bool("keep")))
    }),
    rules: RULES,
    facts: Facts { range, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Reduce(Reduction::Sum),
    eval: Eval::Pure(|cx| eval_reduce(cx, (0.0, |a, b| a + b), (0, i64::wrapping_add))),
};

fn range(cx: &dyn RangeCx) -> Range {
    let axes = cx.attrs().ints("axes");
    let shape = &cx.operand(0).shape;
    let over = axes.iter().map(|a| shape.get(*a as usize).and_then(Dim::as_const));
    let count = over.fold(0, |sum: i16, n| sum.saturating_add(bits(n))).min(bits(None));
    let mask = axes.iter().fold(0u32, |m, a| m | 1 << (*a as u32).min(31));
    // Each row of `exp(x - max(x))` has an element that is one.
    let ones = || cx.peaks_under(0, Op::Exp).iter().any(|p| *p != 0 && p & !mask == 0);
    let lo = match cx.has(0, Fact::NonNeg) {
        true if ones() => 0,
        true => cx.size(0).lo,
        false => i16::MIN,
    };
    let size = Magnitude { lo, ..cx.size(0).summed(count) };
    Range::new(cx.facts(0) & (NONNEG | NONPOS), size)
}

const RULES: &[Rule] = &[
    Rule::computed(
        "sum.none",
        "(sum:s x)",
        |m| m.ints("s", "axes").is_empty().then(|| m.var("x")),
        "no axis to sum over",
    ),
    Rule::computed(
        "sum.unit",
        "(sum:s x)",
        over_unit_axes,
        "one element is its own sum, but for -0",
    )
    .round(),
    Rule::computed("sum.sum", "(sum:s (sum:t x))", composed, "one reduction instead of two")
        .round(),
    Rule::exact("sum.neg", "(sum:s (neg x))", "(neg (sum:s x))", "fewer elements to negate")
        .round(),
    Rule::computed(
        "sum.scaled",
        "(sum:s (mul x #c))",
        |m| {
            let c = m.splat("c")?;
            let y = m.again("s", &[m.var("x")])?;
            Some(m.emit().mul(y, m.emit().splat_like(c, y)))
        },
        "fewer elements to scale",
    )
    .within(|m| m.splat("c").is_some_and(|c| c.abs() >= 1.0) || bounded_sum(m))
    .round(),
    Rule::computed(
        "sum.broadcast",
        "(sum:s (broadcast:b x))",
        of_repeated,
        "a multiple instead of a sum",
    )
    .round(),
    Rule::computed(
        "sum.transpose",
        "(sum:s (transpose:p x))",
        of_transposed,
        "sums in any order of axes",
    )
    .round(),
    Rule::computed(
        "sum.reshape",
        "(sum:s (reshape:r x))",
        of_reshaped,
        "all elements, whatever their shape",
    )
    .round(),
    Rule::computed(
        "sum.factor",
        "(sum:s (mul x (broadcast:b y)))",
        |m| common_factor(m, Op::Mul),
        "one factor for the whole sum",
    )
    .within(bounded_sum)
    .refine(),
    Rule::computed(
        "sum.divisor",
        "(sum:s (div x (broadcast:b y)))",
        |m| common_factor(m, Op::Div),
        "one divisor for the whole sum",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .within(bounded_sum)
    .refine(),
    Rule::computed(
        "sum.weights",
        "(sum:s (add x (mul y (broadcast:b (div w (sum:s y))))))",
        |m| {
            let w = constant_along(m, "w")?;
            let e = m.emit();
            Some(e.add(e.sum(m.var("x"), m.ints("s", "axes")), w))
        },
        "weights over their sum add up to one; so the slope of a softmax along its axis is nothing",
    )
    .when(|m| m.root_ty().dtype.is_float())
    .within(bounded_sum)
    .refine(),
    Rule::computed(
        "sum.one_hot",
        "(sum:s (one_hot:o ids))",
        of_one_hot,
        "each row has a single one, if its index is in range",
    )
    .when(|m| m.str("o", "bounds") != super::bounds::DROP)
    .assume("ids", Fact::InRange),
    Rule::computed(
        "sum.matmul_rows",
        "(sum:s (matmul:m a b))",
        |m| of_product(m, true),
        "one row instead of a matrix",
    )
    .within(|m| m.bounded(m.magnitude("a").summed(48)))
    .refine(),
    Rule::computed(
        "sum.matmul_columns",
        "(sum:s (matmul:m a b))",
        |m| of_product(m, false),
        "one column instead of a matrix",
    )
    .within(|m| m.bounded(m.magnitude("b").summed(48)))
    .refine(),
];

/// Whether the sum of `x` along the axes of the sum `s` cannot overflow.
pub fn bounded_sum(m: &Match<'_>) -> bool {
    let shape = m.shape("x");
    let size = |a: &i64| shape.get(*a as usize).and_then(|d| d.as_const());
    let count = m.ints("s", "axes").iter().map(|a| bits(size(a))).sum();
    m.bounded(m.magnitude("x").summed(count))
}

fn over_unit_axes(m: &Match<'_>) -> Option<V> {
    let shape = m.shape("x");
    let axes = m.ints("s", "axes");
    (!axes.is_empty() && axes.iter().all(|a| shape[*a as usize].is_one()))
        .then(|| m.emit().reshape(m.var("x"), &m.root_ty().shape))
}

/// Axes of the operand that a reduction without `keep` leaves, in order.
fn left(m: &Match<'_>, label: &str, rank: usize) -> Option<Vec<i64>> {
    let axes = m.ints(label, "axes");
    (!m.bool(label, "keep")).then(|| (0..rank as i64).filter(|a| !axes.contains(a)).collect())
}

fn composed(m: &Match<'_>) -> Option<V> {
    let remaining = left(m, "t", m.ty("x").rank())?;
    if m.bool("s", "keep") {
        return None;
    }
    let mut axes = m.ints("t", "axes").to_vec();
    for a in m.ints("s", "axes") {
        axes.push(*remaining.get(*a as usize)?);
    }
    axes.sort();
    Some(m.emit().sum(m.var("x"), &axes))
}

/// Axes a broadcast adds are not summed, but counted.
fn of_repeated(m: &Match<'_>) -> Option<V> {
    let e = m.emit();
    let shape = m.dims("b", "shape");
    let places = m.ints("b", "axes");
    let from = m.shape("x");
    left(m, "s", shape.len())?;
    let mut count = 1i64;
    let mut inner = vec![];
    for a in m.ints("s", "axes") {
        match places.iter().position(|p| p == a) {
            Some(i) if from[i] == shape[*a as usize] => inner.push(i as i64),
            Some(_) => return None,
            None => count = count.checked_mul(shape[*a as usize].as_const()?)?,
        }
    }
    let dtype = m.root_ty().dtype;
    // Every count up to here is exact in the type.
    if inner.len() == m.ints("s", "axes").len()
        || count > 256 && dtype != DType::F32 && dtype != DType::F64
        || count > 1 << 24
        || count == 0
        // A sum that is rounded before it is multiplied may be subnormal.
        || !inner.is_empty() && matches!(dtype, DType::F16 | DType::BF16)
    {
        return None;
    }
    inner.sort();
    let small = e.sum(m.var("x"), &inner);
    let axes: Option<Vec<i64>> = (0..from.len() as i64)
        .filter(|i| !inner.contains(i))
        .map(|i| {
            let place = *places.get(i as usize)?;
            Some(place - m.ints("s", "axes").iter().filter(|a| **a < place).count() as i64)
        })
        .collect();
    let scaled = e.mul(small, e.splat_like(count as f64, small));
    Some(e.broadcast(scaled, &m.root_ty().shape, &axes?))
}

fn of_transposed(m: &Match<'_>) -> Option<V> {
    let perm = m.ints("p", "perm");
    let remaining = left(m, "s", perm.len())?;
    let at = |a: &i64| perm.get(*a as usize).copied();
    let mut axes: Vec<i64> = m.ints("s", "axes").iter().filter_map(at).collect();
    axes.sort();
    let kept: Vec<i64> = remaining.iter().filter_map(at).collect();
    let mut order = kept.clone();
    order.sort();
    let places: Option<Vec<i64>> =
        kept.iter().map(|a| order.iter().position(|b| a == b).map(|i| i as i64)).collect();
    Some(m.emit().transpose(m.emit().sum(m.var("x"), &axes), &places?))
}

fn of_reshaped(m: &Match<'_>) -> Option<V> {
    let x = m.ty("x");
    if m.ints("s", "axes").len() != m.dims("r", "shape").len() || x.rank() == 0 {
        return None;
    }
    let all: Vec<i64> = (0..x.rank() as i64).collect();
    Some(m.emit().reshape(m.emit().sum(m.var("x"), &all), &m.root_ty().shape))
}

/// `sum(x op broadcast(y))` where `y` does not vary along the summed axes.
fn common_factor(m: &Match<'_>, op: Op) -> Option<V> {
    let factor = constant_along(m, "y")?;
    let sum = m.emit().sum(m.var("x"), m.ints("s", "axes"));
    Some(m.emit().binary(op, sum, factor))
}

/// A value the broadcast `b` would fit, if that does not vary along the axes the
/// sum `s` goes over; with the shape of the result.
fn constant_along(m: &Match<'_>, name: &str) -> Option<V> {
    let places = m.ints("b", "axes");
    let remaining = left(m, "s", m.shape("x").len())?;
    let axes = m.ints("s", "axes");
    if axes.is_empty() || places.iter().any(|p| axes.contains(p)) || m.splat(name).is_some() {
        return None;
    }
    let moved: Option<Vec<i64>> =
        places.iter().map(|p| remaining.iter().position(|r| r == p).map(|i| i as i64)).collect();
    debug_assert_eq!(m.shape(name).len(), places.len());
    Some(m.emit().broadcast(m.var(name), &m.root_ty().shape, &moved?))
}

fn of_one_hot(m: &Match<'_>) -> Option<V> {
    let rank = m.ty("ids").rank() as i64;
    (m.ints("s", "axes") == [rank] && !m.bool("s", "keep"))
        .then(|| m.emit().splat_like(1.0, m.root))
}

/// Rows (or columns) of a product sum to the product of the summed operand.
fn of_product(m: &Match<'_>, rows: bool) -> Option<V> {
    let e = m.emit();
    let (a, b) = (m.ty("a"), m.ty("b"));
    let axis = if rows { 0 } else { 1 };
    if a.rank() != 2 || m.ints("s", "axes") != [axis] || m.bool("s", "keep") {
        return None;
    }
    let (name, ty, flag) = if rows { ("a", a, "trans_a") } else { ("b", b, "trans_b") };
    let transposed = m.bool("m", flag);
    let along = if transposed { 1 - axis } else { axis };
    if ty.shape[along as usize].as_const().is_none_or(|n| n < 2) {
        return None;
    }
    let mut shape = ty.shape.clone();
    shape[along as usize] = Dim::constant(1);
    let thin = e.reshape(e.sum(m.var(name), &[along]), &shape);
    let product = match rows {
        true => m.again("m", &[thin, m.var("b")])?,
        false => m.again("m", &[m.var("a"), thin])?,
    };
    Some(e.reshape(product, &m.root_ty().shape))
}
