//! Productions with matrix products, convolutions and windows.

use super::elementwise::whole;
use super::{Gen, Production, Value, list};
use tfc_ir::{DType, Dim};

pub(super) const TABLE: &[(u64, Production)] = &[(4, matmul), (3, conv2d), (2, pool)];

/// A sum of `terms` products.
fn products(g: &Gen, a: usize, b: usize, terms: f64, shape: Vec<Dim>) -> Value {
    let (x, y) = (g.val(a), g.val(b));
    if !x.is_float() {
        return whole(x.dtype, shape);
    }
    let size = x.size() * y.size() * terms;
    let mut value = Value::new(x.dtype, shape, -size, size);
    value.exact = x.exact.zip(y.exact).map(|(a, b)| a + b);
    value
}

/// Products of matrices, in batches, either operand stored transposed.
fn matmul(g: &mut Gen) -> Option<usize> {
    let a = g.pick(|v| v.is_number() && (2..=3).contains(&v.rank()))?;
    let shape = g.val(a).shape.clone();
    let (batch, matrix) = shape.split_at(shape.len() - 2);
    let (trans_a, trans_b) = (g.chance(3), g.chance(3));
    let (m, k) = match trans_a {
        true => (matrix[1].clone(), matrix[0].clone()),
        false => (matrix[0].clone(), matrix[1].clone()),
    };
    let n = g.size();
    let mut other = batch.to_vec();
    other.extend(if trans_b { [n.clone(), k.clone()] } else { [k.clone(), n.clone()] });
    let mut result = batch.to_vec();
    result.extend([m, n]);
    if !g.small(&other)
        || !g.small(&result)
        || g.most(&result) * g.most(std::slice::from_ref(&k)) > 40_000
    {
        return None;
    }
    let b = g.operand(g.val(a).dtype, &other);
    let value = products(g, a, b, g.most(&[k]) as f64, result);
    let text = match (trans_a, trans_b) {
        (false, false) => format!("{{{a}}} @ {{{b}}}"),
        _ => format!("matmul({{{a}}}, {{{b}}}, trans_a: {trans_a}, trans_b: {trans_b})"),
    };
    g.expr(text, value)
}

/// Images: one there is, or a new parameter.
fn images(g: &mut Gen, float: bool) -> Option<usize> {
    let found = g.pick(|v| v.rank() == 4 && v.is_number() && (v.is_float() || !float));
    if found.is_some() && !g.chance(3) {
        return found;
    }
    let batch = g.choose(&[Dim::sym("B"), Dim::constant(2), Dim::constant(1)]);
    let channels = Dim::constant(g.choose(&[1, 2, 3, 4, 6]));
    let side = |g: &mut Gen| match g.below(6) {
        0 => Dim::sym("N"),
        1 => Dim::sym("N") + Dim::constant(3),
        _ => Dim::constant(g.choose(&[1, 2, 4, 5, 6, 8])),
    };
    let shape = vec![batch, channels, side(g), side(g)];
    let dtype = match g.chance(8) && !float {
        true => DType::I32,
        false => g.home,
    };
    g.small(&shape).then(|| g.param(dtype, shape))
}

/// How many windows of `reach` elements an axis has.
fn windows(g: &mut Gen, size: &Dim, around: i64, reach: i64, stride: i64) -> Option<Dim> {
    let room = size.clone() + Dim::constant(around - reach);
    if room.as_const().is_some_and(|r| r < 0) {
        return None;
    }
    g.needs.push(room.clone());
    Some(room.floor_div(stride) + Dim::constant(1))
}

fn conv2d(g: &mut Gen) -> Option<usize> {
    let x = images(g, false)?;
    let shape = g.val(x).shape.clone();
    let channels = shape[1].as_const().filter(|c| (1..=8).contains(c))?;
    let divisors: Vec<i64> = (1..=channels).filter(|d| channels % d == 0).collect();
    let groups = if g.chance(2) { 1 } else { g.choose(&divisors) };
    let out = groups * g.choose(&[1, 2, 3]);
    let kernel = [g.choose(&[1, 1, 2, 3]), g.choose(&[1, 2, 3, 3])];
    let stride = [g.choose(&[1, 1, 2, 3]), g.choose(&[1, 1, 2])];
    let dilation = [g.choose(&[1, 1, 2]), g.choose(&[1, 1, 3])];
    let pad: Vec<i64> = (0..4).map(|_| g.choose(&[0, 0, 1, 2])).collect();
    let mut result = vec![shape[0].clone(), Dim::constant(out)];
    for i in 0..2 {
        let reach = dilation[i] * (kernel[i] - 1) + 1;
        let around = pad[2 * i] + pad[2 * i + 1];
        result.push(windows(g, &shape[2 + i], around, reach, stride[i])?);
    }
    let terms = channels / groups * kernel[0] * kernel[1];
    if !g.small(&result) || g.most(&result) * terms > 40_000 {
        return None;
    }
    let filter: Vec<Dim> =
        [out, channels / groups, kernel[0], kernel[1]].map(Dim::constant).to_vec();
    let w = g.operand(g.val(x).dtype, &filter);
    let value = products(g, x, w, terms as f64, result);
    let text = format!(
        "conv2d({{{x}}}, {{{w}}}, stride: {}, pad: {}, dilation: {}, groups: {groups})",
        list(&stride),
        list(&pad),
        list(&dilation)
    );
    g.expr(text, value)
}

/// Pools: overlapping, with gaps, padded on some sides.
fn pool(g: &mut Gen) -> Option<usize> {
    let average = g.chance(2);
    let x = images(g, average)?;
    let shape = g.val(x).shape.clone();
    let window = [g.choose(&[1, 2, 3]), g.choose(&[1, 2, 2, 3])];
    let stride = [g.choose(&[1, 1, 2, 3]), g.choose(&[1, 2])];
    let mut pad = vec![];
    let mut result = shape[..2].to_vec();
    for i in 0..2 {
        let most = window[i].min(2) as usize;
        let (before, after) = (g.below(most) as i64, g.below(most) as i64);
        pad.extend([before, after]);
        result.push(windows(g, &shape[2 + i], before + after, window[i], stride[i])?);
    }
    let old = g.val(x).clone();
    let mut value = Value::new(old.dtype, result, old.lo, old.hi);
    let name = if average { "avg_pool" } else { "max_pool" };
    if !average {
        value.exact = old.exact;
    }
    if !old.is_float() {
        value = whole(old.dtype, value.shape);
    }
    let text = format!(
        "{name}({{{x}}}, window: {}, stride: {}, pad: {})",
        list(&window),
        list(&stride),
        list(&pad)
    );
    g.expr(text, value)
}
