//! Productions with branches, loops, variables and gradients.
//!
//! In expressions `<<` and `>>` stand for the braces of blocks.

use super::elementwise::{joined, whole};
use super::{Gen, Production, Source, VARS, Value};
use std::collections::BTreeSet;
use tfc_ir::{DType, Dim};

pub(super) const TABLE: &[(u64, Production)] =
    &[(2, branch), (2, repeat), (1, rows), (1, until), (2, read), (2, write)];

/// Elementwise code between -1 and 1, over a carried name and a value.
fn body(g: &mut Gen, carried: &str, x: usize, depth: usize) -> String {
    if depth == 0 {
        return if g.chance(2) { carried.to_string() } else { format!("{{{x}}}") };
    }
    let inner = body(g, carried, x, depth - 1);
    let form = g.choose(&[
        "tanh(0.5 * {i} + {c})",
        "sin({i}) * {c}",
        "sigmoid({i} - {c})",
        "0.25 * {i} + 0.5 * tanh({c})",
        "cos({i} * {c})",
        "clamp({i}, -0.5, 1.0) - 0.25 * {c}",
        "tanh({i} - mean({c}))",
        "tanh(sum({i} * {c}) - {c})",
    ]);
    form.replace("{i}", &format!("({inner})")).replace("{c}", carried)
}

/// A scalar truth value that rounding does not decide.
fn condition(g: &mut Gen) -> usize {
    let scalar = |v: &Value| v.dtype == DType::Bool && v.rank() == 0;
    if let Some(found) = g.pick(scalar) {
        return found;
    }
    if let Some(x) = g.pick(|v| v.dtype == DType::Bool)
        && let Some(made) = g.expr(format!("any({{{x}}})"), whole(DType::Bool, vec![]))
    {
        return made;
    }
    g.param(DType::Bool, vec![])
}

fn unit(g: &Gen, x: usize) -> Value {
    Value::new(g.val(x).dtype, g.val(x).shape.clone(), -2.0, 2.0)
}

fn branch(g: &mut Gen) -> Option<usize> {
    let c = condition(g);
    let x = g.pick(Value::is_float)?;
    let y = g.operand(g.val(x).dtype, &g.val(x).shape.clone());
    let (name, other) = (format!("{{{x}}}"), format!("{{{y}}}"));
    let then = body(g, &name, y, 1);
    let or = body(g, &other, x, 2);
    let effect = match g.chance(4) {
        true => "va *= 0.5\n    ".to_string(),
        false => String::new(),
    };
    let text = format!(
        "if {{{c}}} <<\n    {effect}yield tanh({then})\n  >> else <<\n    h = {or}\n    yield sin(h)\n  >>"
    );
    let value = unit(g, x);
    g.expr(text, value)
}

/// A loop with a count that is known, fed or a size; two values are carried.
fn repeat(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_float() && v.size() <= 2.0)?;
    let (dtype, shape) = (g.val(x).dtype, g.val(x).shape.clone());
    let y = g.operand(dtype, &shape);
    if g.val(y).size() > 2.0 {
        return None;
    }
    let count = match g.below(4) {
        0 => "3".to_string(),
        1 => "N".to_string(),
        _ => {
            let n = g.ids(DType::I32, vec![], 5);
            format!("{{{n}}}")
        }
    };
    // A loop to a size counts in its type.
    let first = if count == "N" { "i64[](0)" } else { "0" };
    // Long loops must not make small differences large; and both results depend on
    // both values, whatever is drawn.
    let one = match count.as_str() {
        "N" => format!("0.25 * tanh(b) + 0.25 * sin(a) + 0.25 * {{{y}}}"),
        _ => format!("tanh({} - 0.25 * b)", body(g, "a", y, 1)),
    };
    let nested = g.chance(4);
    let two = match nested {
        true => "if i % 2 == 0 << yield b - 0.25 * a >> else << yield sin(b) >>".to_string(),
        false if g.chance(2) => "a".to_string(),
        false => format!("0.5 * (a + b) - 0.25 * {{{x}}}"),
    };
    let effect = match g.chance(5) {
        true => "vi += 1\n    ",
        false => "",
    };
    let text = format!(
        "while (i = {first}, a = {{{x}}}, b = {{{y}}}) i < {count} <<\n    {effect}one = {one}\n    \
         two = {two}\n    yield i + 1, one, two\n  >>"
    );
    // The counter comes first, then the two values.
    let counter = if count == "N" { DType::I64 } else { DType::I32 };
    let mut value = whole(counter, vec![]);
    (value.lo, value.hi) = (0.0, 33.0);
    let at = g.expr(text, value)?;
    let slopes: BTreeSet<usize> = g.val(x).slopes.union(&g.val(y).slopes).copied().collect();
    for _ in 0..2 {
        let mut value = unit(g, x);
        value.slopes = slopes.clone();
        g.source(value, Source::Also(at));
    }
    Some(at)
}

/// A recurrence over the rows of a tensor.
fn rows(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_float() && (1..=3).contains(&v.rank()) && v.size() <= 4.0)?;
    let shape = g.val(x).shape.clone();
    let (length, row) = (shape[0].clone(), shape[1..].to_vec());
    let start = g.operand(g.val(x).dtype, &row);
    if g.val(start).size() > 2.0 {
        return None;
    }
    let step = match row.last() {
        Some(last) if row.len() == 1 && last.as_const().is_some_and(|n| n > 0) && g.chance(2) => {
            let square = [last.clone(), last.clone()];
            let w = g.operand(g.val(x).dtype, &square);
            if g.val(w).size() > 2.0 {
                return None;
            }
            format!("tanh({{{x}}}[t] + 0.125 * (h @ {{{w}}}))")
        }
        _ => format!("tanh({{{x}}}[t] + 0.5 * h)"),
    };
    let (first, limit) = match length.as_const() {
        Some(n) => ("0", n.to_string()),
        None => ("i64[](0)", format!("({length})")),
    };
    let text =
        format!("while (t = {first}, h = {{{start}}}) t < {limit} << yield t + 1, {step} >>");
    let mut value = whole(if first == "0" { DType::I32 } else { DType::I64 }, vec![]);
    (value.lo, value.hi) = (0.0, 5000.0);
    let at = g.expr(text, value)?;
    let slopes: BTreeSet<usize> = g.val(x).slopes.union(&g.val(start).slopes).copied().collect();
    let mut value = Value::new(g.val(x).dtype, row, -2.0, 2.0);
    value.slopes = slopes;
    g.source(value, Source::Also(at));
    Some(at)
}

/// A loop whose condition is computed.
fn until(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.dtype.is_int() && v.rank() <= 2 && v.lo >= -100.0 && v.hi <= 100.0)?;
    let text = format!(
        "while (n = {{{x}}}) <<\n    most = max(n / 2)\n    yield most > 0\n  >> do <<\n    yield n / 2\n  >>"
    );
    let mut value = g.val(x).clone();
    (value.lo, value.hi) = (value.lo.min(-1.0), value.hi.max(1.0));
    g.expr(text, value)
}

fn shape_of(shape: &[i64]) -> Vec<Dim> {
    shape.iter().map(|s| Dim::constant(*s)).collect()
}

/// The value a variable has here.
fn read(g: &mut Gen) -> Option<usize> {
    let (name, dtype, shape, _) = g.choose(VARS);
    let value = match dtype.is_float() {
        true => Value::new(dtype, shape_of(shape), -2.0, 2.0),
        false => whole(dtype, shape_of(shape)),
    };
    let at = g.expr(name.to_string(), value)?;
    if dtype.is_float() {
        g.stmts[at].value.slopes.insert(at);
    }
    Some(at)
}

/// A new value for a variable, of the old one and another.
fn write(g: &mut Gen) -> Option<usize> {
    let (name, dtype, shape, _) = g.choose(VARS);
    let shape = shape_of(shape);
    let x = g
        .pick(|v| v.dtype == dtype && joined(&v.shape, &shape).is_some_and(|s| s == shape))
        .or_else(|| g.chance(2).then(|| g.param(dtype, shape.clone())))?;
    let text = match (dtype.is_float(), g.below(3)) {
        (true, 0) => format!("assign({name}, 0.5 * {name} + 0.5 * tanh({{{x}}}))"),
        (true, 1) => format!("{name} *= cos({{{x}}})"),
        (true, _) => {
            let ids = g.ids(DType::I32, vec![Dim::sym("B")], 3);
            let mut rows = shape;
            rows[0] = Dim::sym("B");
            let updates = g.param(dtype, rows);
            format!("scatter_assign_add({name}, {{{ids}}}, {{{updates}}} * 0.03125)")
        }
        (false, 0) => format!("{name} -= {{{x}}}"),
        (false, _) => format!("{name} += {{{x}}}"),
    };
    let value = Value::new(DType::Bool, vec![], 0.0, 0.0);
    Some(g.source(value, Source::Effect(text)))
}

/// The gradients of a scalar made of some value, by what it depends on.
pub(super) fn gradients(g: &mut Gen) -> Vec<usize> {
    let Some(y) = g.pick(|v| v.is_float() && !v.slopes.is_empty()) else { return vec![] };
    let dtype = g.val(y).dtype;
    let same: Vec<usize> =
        g.val(y).slopes.iter().copied().filter(|s| g.val(*s).dtype == dtype).collect();
    if same.is_empty() {
        return vec![];
    }
    let text = match g.below(3) {
        0 => format!("sum({{{y}}} * {{{y}}})"),
        1 => format!("sum(sin({{{y}}}))"),
        _ => format!("sum({{{y}}}) * 0.5"),
    };
    let scalar = Value::new(dtype, vec![], -1e6, 1e6);
    let loss = g.source(scalar, Source::Expr(text));
    let first = by(g, loss, &same);
    let mut out = vec![loss];
    out.extend(&first);
    // A gradient of a gradient, where the first is by one thing only.
    if same.len() == 1 && g.chance(4) && dtype != DType::F16 && dtype != DType::BF16 {
        let text = format!("sum(tanh({{{}}}) * {{{}}})", first[0], same[0]);
        let scalar = Value::new(dtype, vec![], -1e6, 1e6);
        let loss = g.source(scalar, Source::Expr(text));
        out.extend(by(g, loss, &same));
    }
    out
}

fn by(g: &mut Gen, loss: usize, wrt: &[usize]) -> Vec<usize> {
    let names: Vec<String> = wrt.iter().map(|w| format!("{{{w}}}")).collect();
    let text = format!("grad({{{loss}}}, wrt: [{}])", names.join(", "));
    let mut out = vec![];
    for w in wrt {
        let value = Value::new(g.val(*w).dtype, g.val(*w).shape.clone(), -1e6, 1e6);
        let source = match out.first() {
            None => Source::Expr(text.clone()),
            Some(first) => Source::Also(*first),
        };
        out.push(g.source(value, source));
    }
    out
}
