//! Productions that reduce, scan and move.

use super::elementwise::whole;
use super::{Gen, Production, Value, list};
use std::collections::BTreeSet;
use tfc_ir::{DType, Dim};

pub(super) const TABLE: &[(u64, Production)] = &[
    (6, reduce),
    (2, normalise),
    (2, scan),
    (1, extreme_index),
    (3, slice),
    (2, pad),
    (2, concat),
    (2, transpose),
    (1, reverse),
    (2, reshape),
    (1, broadcast),
    (2, gather),
    (1, one_hot),
    (1, dynamic),
    (1, scatter),
];

fn like(g: &Gen, x: usize, shape: Vec<Dim>) -> Value {
    let old = g.val(x);
    let mut value = Value::new(old.dtype, shape, old.lo, old.hi);
    value.exact = old.exact;
    value
}

/// A random part of the axes, in order; one at least where there is one.
fn axes(g: &mut Gen, rank: usize) -> Vec<usize> {
    let mut out: Vec<usize> = (0..rank).filter(|_| g.chance(2)).collect();
    if out.is_empty() && rank > 0 {
        out.push(g.below(rank));
    }
    out
}

fn reduce(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 0)?;
    let old = g.val(x).clone();
    let axes = axes(g, old.rank());
    let keep = g.chance(2);
    let mut shape = vec![];
    for (i, size) in old.shape.iter().enumerate() {
        match axes.contains(&i) {
            true if keep => shape.push(Dim::constant(1)),
            true => {}
            false => shape.push(size.clone()),
        }
    }
    let over: Vec<Dim> = axes.iter().map(|a| old.shape[*a].clone()).collect();
    let most = g.most(&over) as f64;
    let how = format!("({{{x}}}, axes: {}, keep: {keep})", list(&axes));
    if old.dtype == DType::Bool {
        let name = g.choose(&["any", "all"]);
        return g.expr(format!("{name}{how}"), whole(DType::Bool, shape));
    }
    let name = g.choose(&["sum", "sum", "mean", "max", "min", "prod"]);
    let mut value = Value::new(old.dtype, shape, old.lo, old.hi);
    match name {
        "sum" => {
            (value.lo, value.hi) = (old.lo.min(0.0) * most, old.hi.max(0.0) * most);
            value.exact = old.exact;
        }
        "mean" if !old.is_float() => return None,
        "prod" if old.is_float() => {
            if old.size() > 1.5 || most > 8.0 {
                return None;
            }
            let size = old.size().max(1.0).powf(most);
            (value.lo, value.hi) = (-size, size);
        }
        "mean" => {}
        _ => value.exact = old.exact,
    }
    if !old.is_float() {
        let full = whole(old.dtype, vec![]);
        let within = full.lo <= value.lo && value.hi <= full.hi;
        if name != "sum" || !within {
            (value.lo, value.hi) = (full.lo, full.hi);
        }
    }
    g.expr(format!("{name}{how}"), value)
}

/// Softmax, its logarithm, and centred and scaled rows.
fn normalise(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_float() && v.rank() > 0)?;
    let axis = g.below(g.val(x).rank());
    let how = format!("axes: [{axis}], keep: true");
    let max = format!("max({{{x}}}, {how})");
    let mean = format!("mean({{{x}}}, {how})");
    let size = g.val(x).size();
    let (text, lo, hi) = match g.below(4) {
        0 => (format!("exp({{{x}}} - {max}) / sum(exp({{{x}}} - {max}), {how})"), 0.0, 1.0),
        1 => (
            format!("{{{x}}} - {max} - log(sum(exp({{{x}}} - {max}), {how}))"),
            -2.0 * size - 10.0,
            0.0,
        ),
        2 => {
            let off = format!("({{{x}}} - {mean})");
            (format!("{off} * rsqrt(mean({off} * {off}, {how}) + 0.25)"), -40.0, 40.0)
        }
        _ => (format!("{{{x}}} - {mean}"), -2.0 * size, 2.0 * size),
    };
    let shape = g.val(x).shape.clone();
    let dtype = g.val(x).dtype;
    g.expr(text, Value::new(dtype, shape, lo, hi))
}

fn scan(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_number() && v.rank() > 0)?;
    let old = g.val(x).clone();
    let axis = g.below(old.rank());
    let most = g.most(&old.shape[axis..=axis]) as f64;
    let (reverse, exclusive) = (g.chance(2), g.chance(3));
    let how = format!("({{{x}}}, axis: {axis}, reverse: {reverse}, exclusive: {exclusive})");
    let mut value = match old.is_float() {
        true => Value::new(old.dtype, old.shape.clone(), -old.size() * most, old.size() * most),
        false => whole(old.dtype, old.shape.clone()),
    };
    value.exact = old.exact;
    if g.chance(4) {
        if old.is_float() && (old.size() > 1.5 || most > 8.0) {
            return None;
        }
        if old.is_float() {
            let size = old.size().max(1.0).powf(most);
            (value.lo, value.hi, value.exact) = (-size, size, None);
        }
        return g.expr(format!("cumprod{how}"), value);
    }
    g.expr(format!("cumsum{how}"), value)
}

fn extreme_index(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_number() && v.exact.is_some() && v.rank() > 0)?;
    let mut shape = g.val(x).shape.clone();
    let axis = g.below(shape.len());
    let size = shape[axis].as_const();
    let keep = g.chance(2);
    match keep {
        true => shape[axis] = Dim::constant(1),
        false => {
            shape.remove(axis);
        }
    }
    // Of an axis without elements there is none.
    if size == Some(0) {
        return None;
    }
    let name = g.choose(&["argmax", "argmin"]);
    let mut value = whole(DType::I32, shape);
    (value.lo, value.hi) = (0.0, size.map_or(4999.0, |s| (s - 1) as f64));
    g.expr(format!("{name}({{{x}}}, axis: {axis}, keep: {keep})"), value)
}

/// Boxes with run-time bounds and strides.
fn slice(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 0)?;
    let old = g.val(x).shape.clone();
    let (mut starts, mut ends, mut strides, mut shape) = (vec![], vec![], vec![], vec![]);
    for size in &old {
        let (start, end, stride) = match size.as_const() {
            _ if g.chance(2) => (Dim::constant(0), size.clone(), 1),
            Some(n) if n > 0 => {
                let start = g.below(n as usize) as i64;
                let end = start + 1 + g.below((n - start) as usize) as i64;
                (Dim::constant(start), Dim::constant(end), g.choose(&[1, 1, 2, 3]))
            }
            Some(_) => (Dim::constant(0), size.clone(), 1),
            None => match g.below(5) {
                0 => (Dim::constant(0), size.clone(), g.choose(&[2, 3])),
                1 => (size.floor_div(2), size.clone(), 1),
                2 => (Dim::constant(0), size.floor_div(2), g.choose(&[1, 2])),
                3 => (Dim::constant(1), size.clone(), g.choose(&[1, 2])),
                _ => (size.clone() - Dim::constant(1), size.clone(), 1),
            },
        };
        let length = end.clone() - start.clone();
        g.needs.push(length.clone());
        g.needs.push(start.clone());
        shape.push(length.ceil_div(stride));
        starts.push(start);
        ends.push(end);
        strides.push(stride);
    }
    let text = format!(
        "slice({{{x}}}, starts: {}, ends: {}, strides: {})",
        list(&starts),
        list(&ends),
        list(&strides)
    );
    let value = like(g, x, shape);
    g.expr(text, value)
}

fn pad(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 0)?;
    let old = g.val(x).clone();
    let (mut low, mut high, mut interior, mut shape) = (vec![], vec![], vec![], vec![]);
    for size in &old.shape {
        let (mut l, mut h, mut i) = (Dim::constant(0), Dim::constant(0), 0);
        if g.chance(2) {
            l = Dim::constant(g.choose(&[0, 1, 2]));
            h = Dim::constant(g.choose(&[0, 1, 3]));
            match size.as_const() {
                Some(n) if n > 1 => {
                    i = g.choose(&[0, 0, 1, 2]);
                    if g.chance(3) {
                        l = Dim::constant(-1);
                    }
                }
                Some(_) => {}
                None => match g.below(5) {
                    0 => l = Dim::sym("N"),
                    1 => (l, h) = (Dim::constant(1), Dim::constant(-1)),
                    2 => h = size.floor_div(2),
                    _ => {}
                },
            }
        }
        let gaps = size.as_const().map_or(0, |n| (n - 1).max(0) * i);
        let new = size.clone() + l.clone() + h.clone() + Dim::constant(gaps);
        g.needs.push(new.clone());
        shape.push(new);
        low.push(l);
        high.push(h);
        interior.push(i);
    }
    let fill = g.choose(&[0, 1]) as f64;
    let text = format!(
        "pad({{{x}}}, low: {}, high: {}, interior: {}, value: {fill:?})",
        list(&low),
        list(&high),
        list(&interior)
    );
    let mut value = like(g, x, shape);
    (value.lo, value.hi) = (value.lo.min(fill), value.hi.max(fill));
    g.expr(text, value)
}

fn concat(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 0)?;
    let old = g.val(x).clone();
    let axis = g.below(old.rank());
    let mut parts = vec![x];
    let mut value = old.clone();
    value.slopes = BTreeSet::new();
    for _ in 0..1 + g.below(3) {
        let mut shape = old.shape.clone();
        if g.chance(2) {
            shape[axis] = g.size();
        }
        let part = g.operand(old.dtype, &shape);
        let part_value = g.val(part).clone();
        value.shape[axis] = value.shape[axis].clone() + shape[axis].clone();
        (value.lo, value.hi) = (value.lo.min(part_value.lo), value.hi.max(part_value.hi));
        value.exact = value.exact.zip(part_value.exact).map(|(a, b)| a.max(b));
        parts.insert(g.below(parts.len() + 1), part);
    }
    let parts: Vec<String> = parts.iter().map(|p| format!("{{{p}}}")).collect();
    g.expr(format!("concat({}, axis: {axis})", parts.join(", ")), value)
}

fn transpose(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 1)?;
    let old = g.val(x).shape.clone();
    let mut perm: Vec<usize> = (0..old.len()).collect();
    for i in (1..perm.len()).rev() {
        let j = g.below(i + 1);
        perm.swap(i, j);
    }
    let shape = perm.iter().map(|p| old[*p].clone()).collect();
    let value = like(g, x, shape);
    g.expr(format!("transpose({{{x}}}, perm: {})", list(&perm)), value)
}

fn reverse(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 0)?;
    let axes = axes(g, g.val(x).rank());
    let value = like(g, x, g.val(x).shape.clone());
    g.expr(format!("reverse({{{x}}}, axes: {})", list(&axes)), value)
}

fn reshape(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|_| true)?;
    let mut shape = g.val(x).shape.clone();
    match g.below(4) {
        // Two axes become one.
        0 if shape.len() > 1 => {
            let at = g.below(shape.len() - 1);
            let next = shape.remove(at + 1);
            shape[at] = shape[at].clone() * next;
        }
        // One axis becomes two.
        1 => {
            let at =
                shape.iter().position(|d| d.as_const().is_some_and(|n| n > 2 && n % 2 == 0))?;
            let half = shape[at].as_const()? / 2;
            shape[at] = Dim::constant(half);
            let first = g.chance(2);
            shape.insert(at + usize::from(!first), Dim::constant(2));
        }
        2 => shape = vec![Dim::product(&shape)],
        _ => {
            let at = g.below(shape.len() + 1);
            shape.insert(at, Dim::constant(1));
        }
    }
    let text = format!("reshape({{{x}}}, shape: {})", list(&shape));
    let value = like(g, x, shape);
    g.expr(text, value)
}

fn broadcast(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() < 4)?;
    let mut shape = g.val(x).shape.clone();
    let at = g.below(shape.len() + 1);
    let axes: Vec<usize> = (0..shape.len()).map(|i| i + usize::from(i >= at)).collect();
    let size = g.size();
    shape.insert(at, size);
    let text = format!("broadcast({{{x}}}, shape: {}, axes: {})", list(&shape), list(&axes));
    let value = like(g, x, shape);
    g.expr(text, value)
}

/// Indices of an axis: fed or computed, in range or brought into it.
fn indices(g: &mut Gen, size: &Dim, shape: Option<Vec<Dim>>) -> (usize, &'static str) {
    let known = size.as_const().unwrap_or(0);
    let fits = |v: &Value| {
        v.dtype.is_int() && shape.as_ref().is_none_or(|s| v.shape == *s) && v.rank() < 3
    };
    if known > 0 {
        if let Some(found) = g.pick(|v| fits(v) && v.lo >= 0.0 && v.hi < known as f64)
            && g.chance(2)
        {
            return (found, "check");
        }
        if g.chance(2) {
            let shape = shape.unwrap_or_else(|| {
                let rank = g.below(3);
                (0..rank).map(|_| g.size()).collect()
            });
            let dtype = g.choose(&[DType::I32, DType::I64, DType::U8]);
            return (g.ids(dtype, shape, known), "check");
        }
    }
    if let Some(found) = g.pick(fits) {
        return (found, "clamp");
    }
    let shape = shape.unwrap_or_else(|| vec![Dim::constant(3)]);
    (g.param(DType::I64, shape), "clamp")
}

fn gather(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 0)?;
    let mut shape = g.val(x).shape.clone();
    let axis = g.below(shape.len());
    let (ids, bounds) = indices(g, &shape[axis].clone(), None);
    let of = g.val(ids).shape.clone();
    shape.splice(axis..=axis, of);
    let mut value = like(g, x, shape);
    (value.lo, value.hi) = (value.lo.min(0.0), value.hi.max(0.0));
    g.expr(format!("gather({{{x}}}, {{{ids}}}, axis: {axis}, bounds: \"{bounds}\")"), value)
}

fn one_hot(g: &mut Gen) -> Option<usize> {
    let depth = g.choose(&[1i64, 3, 4, 8]);
    let (ids, bounds) = indices(g, &Dim::constant(depth), None);
    let bounds = if bounds == "clamp" { "drop" } else { bounds };
    let mut shape = g.val(ids).shape.clone();
    shape.push(Dim::constant(depth));
    let home = g.home;
    let dtype = g.choose(&[home, home, home, DType::I32, DType::Bool]);
    let mut value = Value::new(dtype, shape, 0.0, 1.0);
    value.exact = Some(0);
    let text = format!("one_hot({{{ids}}}, depth: {depth}, dtype: {dtype}, bounds: \"{bounds}\")");
    g.flat(text, value)
}

/// A box at a place that is computed, taken or replaced.
fn dynamic(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.rank() > 0 && v.shape.iter().all(|d| d.as_const() != Some(0)))?;
    let old = g.val(x).shape.clone();
    let mut sizes = vec![];
    let mut starts = vec![];
    for size in &old {
        let part = match size.as_const() {
            Some(n) => Dim::constant(1 + g.below(n as usize) as i64),
            None => size.floor_div(2),
        };
        let (start, _) = indices(g, &Dim::constant(0), Some(vec![]));
        starts.push(format!("{{{start}}}"));
        sizes.push(part);
    }
    let starts = starts.join(", ");
    if g.chance(2) {
        let update = g.operand(g.val(x).dtype, &sizes.clone());
        let text =
            format!("dynamic_update_slice({{{x}}}, {{{update}}}, {starts}, bounds: \"clamp\")");
        let other = g.val(update).clone();
        let mut value = like(g, x, old);
        (value.lo, value.hi) = (value.lo.min(other.lo), value.hi.max(other.hi));
        value.exact = value.exact.zip(other.exact).map(|(a, b)| a.max(b));
        return g.expr(text, value);
    }
    let text =
        format!("dynamic_slice({{{x}}}, {starts}, sizes: {}, bounds: \"clamp\")", list(&sizes));
    let value = like(g, x, sizes);
    g.expr(text, value)
}

fn scatter(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_number() && v.rank() > 0)?;
    let old = g.val(x).clone();
    let rows = g.size();
    let dtype = g.choose(&[DType::I32, DType::I64]);
    let known = old.shape[0].as_const().filter(|n| *n > 0);
    let drop = known.is_none() || g.chance(3);
    let ids = g.ids(dtype, vec![rows.clone()], known.unwrap_or(3) + i64::from(drop));
    let mut shape = old.shape.clone();
    shape[0] = rows.clone();
    if !g.small(&shape) {
        return None;
    }
    let updates = g.operand(old.dtype, &shape);
    let most = g.most(&[rows]) as f64;
    let other = g.val(updates).clone();
    let mut value = match old.is_float() {
        true => like(g, x, old.shape.clone()),
        false => whole(old.dtype, old.shape.clone()),
    };
    if old.is_float() {
        value.lo += other.lo.min(0.0) * most;
        value.hi += other.hi.max(0.0) * most;
        value.exact = old.exact.zip(other.exact).map(|(a, b)| a.max(b));
    }
    let bounds = if drop { ", bounds: \"drop\"" } else { "" };
    g.expr(format!("scatter_add({{{x}}}, {{{ids}}}, {{{updates}}}{bounds})"), value)
}
