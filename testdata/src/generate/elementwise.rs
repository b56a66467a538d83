//! Productions that work element by element.

use super::{Gen, Production, Value, fits};
use tfc_ir::{DType, Dim};

pub(super) const TABLE: &[(u64, Production)] = &[
    (6, smooth),
    (4, limited),
    (6, arithmetic),
    (2, quotient),
    (2, extremes),
    (2, clamp),
    (1, power),
    (2, steps),
    (2, compare),
    (2, logic),
    (2, choose),
    (3, cast),
    (3, integers),
    (1, constant),
    (1, kinks),
];

/// The shape two shapes broadcast to.
pub(super) fn joined(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| match (i + s.len()).checked_sub(rank) {
        Some(i) => s[i].clone(),
        None => Dim::constant(1),
    };
    (0..rank)
        .map(|i| {
            let (a, b) = (at(a, i), at(b, i));
            match a == b || b.is_one() {
                true => Some(a),
                false => a.is_one().then_some(b),
            }
        })
        .collect()
}

/// Two values of one type that broadcast together; the shape they make.
fn pair(g: &mut Gen, test: impl Fn(&Value) -> bool) -> Option<(usize, usize, Vec<Dim>)> {
    let a = g.pick(test)?;
    let (dtype, shape) = (g.val(a).dtype, g.val(a).shape.clone());
    let b = g.broadcastable(dtype, &shape);
    let (a, b) = if g.chance(2) { (a, b) } else { (b, a) };
    let shape = joined(&g.val(a).shape, &g.val(b).shape)?;
    Some((a, b, shape))
}

fn of(g: &Gen, x: usize, lo: f64, hi: f64) -> Value {
    Value::new(g.val(x).dtype, g.val(x).shape.clone(), lo, hi)
}

/// Functions that are smooth everywhere.
fn smooth(g: &mut Gen) -> Option<usize> {
    let x = g.pick(Value::is_float)?;
    let (lo, hi) = (g.val(x).lo, g.val(x).hi);
    let forms: [(&str, f64, f64); 11] = [
        ("tanh({x})", -1.0, 1.0),
        ("sigmoid({x})", 0.0, 1.0),
        ("erf({x})", -1.0, 1.0),
        ("sin({x})", -1.0, 1.0),
        ("cos({x})", -1.0, 1.0),
        ("exp(minimum({x}, 2.0))", 0.0, 7.4),
        ("exp(-abs({x}))", 0.0, 1.0),
        ("expm1(minimum({x}, 1.5))", -1.0, 3.5),
        ("{x} * sigmoid({x})", -0.3, hi.max(0.0)),
        ("-{x}", -hi, -lo),
        ("stop_gradient({x})", lo, hi),
    ];
    let (text, lo, hi) = g.choose(&forms);
    let mut value = of(g, x, lo, hi);
    if text == "-{x}" || text.starts_with("stop") {
        value.exact = g.val(x).exact;
    }
    let text = text.replace("{x}", &format!("{{{x}}}"));
    if text.starts_with("stop") { g.flat(text, value) } else { g.expr(text, value) }
}

/// Functions with a domain.
fn limited(g: &mut Gen) -> Option<usize> {
    let x = g.pick(Value::is_float)?;
    let (lo, hi) = (g.val(x).lo, g.val(x).hi);
    let (inner, lo, hi) = match lo >= 0.25 {
        true => (format!("{{{x}}}"), lo, hi),
        false => {
            let more = g.choose(&[0.5, 1.0, 1.5]);
            (format!("(abs({{{x}}}) + {more:?})"), more, more + g.val(x).size())
        }
    };
    let (name, lo, hi) = match g.below(6) {
        0 => ("log", lo.ln(), hi.ln()),
        1 => ("log1p", 0.0, hi.ln_1p()),
        2 => ("sqrt", lo.sqrt(), hi.sqrt()),
        3 => ("rsqrt", hi.sqrt().recip(), lo.sqrt().recip()),
        4 => ("1.0 / ", hi.recip(), lo.recip()),
        _ => ("0.5 * sqrt", 0.0, hi.sqrt()),
    };
    let value = of(g, x, lo, hi);
    g.expr(format!("{name}({inner})"), value)
}

/// Sums, differences and products.
fn arithmetic(g: &mut Gen) -> Option<usize> {
    let (a, b, shape) = pair(g, Value::is_float)?;
    let (x, y) = (g.val(a).clone(), g.val(b).clone());
    let most = |fs: Option<(i32, i32)>| fs.map(|(a, b)| a.max(b));
    let fracs = x.exact.zip(y.exact);
    let (text, lo, hi, exact) = match g.below(6) {
        0 | 1 => (format!("{{{a}}} + {{{b}}}"), x.lo + y.lo, x.hi + y.hi, most(fracs)),
        2 => (format!("{{{a}}} - {{{b}}}"), x.lo - y.hi, x.hi - y.lo, most(fracs)),
        3 | 4 => {
            let ends = [x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi];
            let lo = ends.iter().copied().fold(f64::INFINITY, f64::min);
            let hi = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lo = if a == b { lo.max(0.0) } else { lo };
            (format!("{{{a}}} * {{{b}}}"), lo, hi, fracs.map(|(a, b)| a + b))
        }
        _ => {
            let k = g.choose(&[0.5, -1.5, 0.25, 2.0, 3.0]);
            let size = k * x.lo;
            let (lo, hi) = (size.min(k * x.hi), size.max(k * x.hi));
            let exact = fracs.map(|(a, b)| (a + 2).max(b));
            (format!("{k:?} * {{{a}}} + {{{b}}}"), lo + y.lo, hi + y.hi, exact)
        }
    };
    let mut value = Value::new(x.dtype, shape, lo, hi);
    value.exact = exact;
    g.expr(text, value)
}

fn quotient(g: &mut Gen) -> Option<usize> {
    let (a, b, shape) = pair(g, Value::is_float)?;
    let (x, y) = (g.val(a).clone(), g.val(b).clone());
    let (under, least) = match y.lo >= 0.25 {
        true => (format!("{{{b}}}"), y.lo),
        false => (format!("(1.0 + abs({{{b}}}))"), 1.0),
    };
    let size = x.size() / least;
    g.expr(format!("{{{a}}} / {under}"), Value::new(x.dtype, shape, -size, size))
}

fn extremes(g: &mut Gen) -> Option<usize> {
    let (a, b, shape) = pair(g, Value::is_number)?;
    let (x, y) = (g.val(a).clone(), g.val(b).clone());
    let (name, lo, hi) = match g.chance(2) {
        true => ("maximum", x.lo.max(y.lo), x.hi.max(y.hi)),
        false => ("minimum", x.lo.min(y.lo), x.hi.min(y.hi)),
    };
    let mut value = Value::new(x.dtype, shape, lo, hi);
    value.exact = x.exact.zip(y.exact).map(|(a, b)| a.max(b));
    g.expr(format!("{name}({{{a}}}, {{{b}}})"), value)
}

/// Functions with a kink at zero.
fn kinks(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_number() && v.dtype != DType::U8)?;
    let (lo, hi) = (g.val(x).lo, g.val(x).hi);
    let (text, lo, hi) = match g.below(if g.val(x).is_float() { 3 } else { 2 }) {
        0 => (format!("abs({{{x}}})"), 0.0, lo.abs().max(hi.abs())),
        1 => (format!("relu({{{x}}})"), 0.0, hi.max(0.0)),
        _ => {
            let text = format!("select({{{x}}} < 0.0, 0.25 * {{{x}}}, {{{x}}})");
            let mut value = of(g, x, lo.min(0.0), hi.max(0.0));
            value.exact = g.val(x).exact.map(|f| f + 2);
            return g.expr(text, value);
        }
    };
    let mut value = of(g, x, lo, hi);
    value.exact = g.val(x).exact;
    g.expr(text, value)
}

fn clamp(g: &mut Gen) -> Option<usize> {
    let x = g.pick(Value::is_float)?;
    let mut value = of(g, x, -0.75, 1.25);
    value.exact = g.val(x).exact.map(|f| f.max(2));
    g.expr(format!("clamp({{{x}}}, -0.75, 1.25)"), value)
}

fn power(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_float() && v.size() <= 3.0)?;
    let size = g.val(x).size();
    let (text, lo, hi) = match g.below(4) {
        0 => (format!("{{{x}}} ** 2.0"), 0.0, size * size),
        1 => (format!("{{{x}}} ** 3.0"), -size.powi(3), size.powi(3)),
        2 => (format!("pow(abs({{{x}}}) + 0.5, 1.5)"), 0.0, (size + 0.5).powf(1.5)),
        _ => {
            let (dtype, shape) = (g.val(x).dtype, g.val(x).shape.clone());
            let b = g.operand(dtype, &shape);
            let most = (size + 0.5).max(2.0).powf(g.val(b).size().min(2.0));
            (format!("pow(abs({{{x}}}) + 0.5, clamp({{{b}}}, -2.0, 2.0))"), 0.0, most)
        }
    };
    let value = of(g, x, lo, hi);
    g.expr(text, value)
}

/// Functions that jump, of what nothing has rounded.
fn steps(g: &mut Gen) -> Option<usize> {
    let x = g.pick(|v| v.is_float() && v.exact.is_some())?;
    let (lo, hi) = (g.val(x).lo, g.val(x).hi);
    let (text, lo, hi) = match g.below(6) {
        0 => (format!("floor({{{x}}})"), lo.floor(), hi),
        1 => (format!("ceil({{{x}}})"), lo, hi.ceil()),
        2 => (format!("round({{{x}}})"), lo.floor(), hi.ceil()),
        3 => (format!("sign({{{x}}})"), -1.0, 1.0),
        4 => (format!("{{{x}}} % 1.5"), -1.5, 1.5),
        _ => (format!("{{{x}}} - floor({{{x}}})"), 0.0, 1.0),
    };
    let mut value = of(g, x, lo, hi);
    value.exact = g.val(x).exact.map(|f| f.max(1));
    g.flat(text, value)
}

fn certain(v: &Value) -> bool {
    v.exact.is_some() && v.is_number()
}

fn compare(g: &mut Gen) -> Option<usize> {
    let a = g.pick(certain)?;
    let (dtype, shape) = (g.val(a).dtype, g.val(a).shape.clone());
    let name = g.choose(&["==", "!=", "<", "<=", ">", ">="]);
    let other =
        g.pick(|v| v.dtype == dtype && v.exact.is_some() && joined(&v.shape, &shape).is_some());
    let b = other.filter(|b| *b != a);
    let (text, shape) = match b {
        Some(b) => (format!("{{{a}}} {name} {{{b}}}"), joined(&shape, &g.val(b).shape)?),
        None => {
            let k = g.below(3);
            let k = if dtype.is_float() { format!("{k}.25") } else { k.to_string() };
            (format!("{{{a}}} {name} {k}"), shape)
        }
    };
    let mut value = Value::new(DType::Bool, shape, 0.0, 1.0);
    value.exact = Some(0);
    g.expr(text, value)
}

fn logic(g: &mut Gen) -> Option<usize> {
    let (a, b, shape) = pair(g, |v| v.dtype == DType::Bool || v.dtype.is_int())?;
    let dtype = g.val(a).dtype;
    let text = match g.below(4) {
        0 => format!("and({{{a}}}, {{{b}}})"),
        1 => format!("or({{{a}}}, {{{b}}})"),
        2 => format!("xor({{{a}}}, {{{b}}})"),
        _ => format!("not(xor({{{a}}}, {{{b}}}))"),
    };
    g.expr(text, whole(dtype, shape))
}

/// A value of integers that may be anything of their type.
pub(super) fn whole(dtype: DType, shape: Vec<Dim>) -> Value {
    let (lo, hi) = match dtype {
        DType::Bool => (0.0, 1.0),
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        DType::I32 => (i32::MIN as f64, i32::MAX as f64),
        _ => (i64::MIN as f64, i64::MAX as f64),
    };
    let mut value = Value::new(dtype, shape, lo, hi);
    value.exact = Some(0);
    value
}

fn choose(g: &mut Gen) -> Option<usize> {
    let (a, b, shape) = pair(g, |_| true)?;
    let c = g.broadcastable(DType::Bool, &shape);
    let shape = joined(&shape, &g.val(c).shape)?;
    let (x, y) = (g.val(a).clone(), g.val(b).clone());
    let mut value = Value::new(x.dtype, shape, x.lo.min(y.lo), x.hi.max(y.hi));
    value.exact = x.exact.zip(y.exact).map(|(a, b)| a.max(b));
    g.expr(format!("select({{{c}}}, {{{a}}}, {{{b}}})"), value)
}

fn cast(g: &mut Gen) -> Option<usize> {
    let to = g.choose(&DType::ALL);
    let (home, back) = (g.home, g.chance(3));
    let to = if back { home } else { to };
    let x = g.pick(|v| v.dtype != to && (v.exact.is_some() || to.is_float()))?;
    let from = g.val(x).clone();
    if to.is_float() && from.size() > 60000.0 {
        return None;
    }
    let mut value = match to.is_float() {
        true => Value::new(to, from.shape.clone(), from.lo, from.hi),
        false => whole(to, from.shape.clone()),
    };
    if to.is_int() && value.lo <= from.lo && value.hi >= from.hi {
        (value.lo, value.hi) = (from.lo.floor(), from.hi.ceil());
    }
    value.exact = match to.is_float() {
        true => from.exact.filter(|f| fits(to, from.size(), *f)),
        false => Some(0),
    };
    g.expr(format!("cast({{{x}}}, to: {to})"), value)
}

fn integers(g: &mut Gen) -> Option<usize> {
    if g.pick(|v| v.dtype.is_int()).is_none() {
        let (dtype, shape) = (g.choose(&[DType::I32, DType::I64, DType::I8, DType::U8]), g.shape());
        g.param(dtype, shape);
    }
    let (a, b, shape) = pair(g, |v| v.dtype.is_int())?;
    let (x, y) = (g.val(a).clone(), g.val(b).clone());
    let full = whole(x.dtype, shape.clone());
    let size = x.size().max(y.size());
    let (text, bound) = match g.below(8) {
        0 | 1 => (format!("{{{a}}} + {{{b}}}"), 2.0 * size),
        2 => (format!("{{{a}}} - {{{b}}}"), 2.0 * size),
        3 => (format!("{{{a}}} * {{{b}}}"), size * size),
        4 => (format!("{{{a}}} / {{{b}}}"), size + 1.0),
        5 => (format!("{{{a}}} % {{{b}}}"), size + 1.0),
        6 => (format!("pow({{{a}}}, {{{b}}})"), f64::INFINITY),
        _ => (format!("clamp({{{a}}}, 0, 3)"), -3.0),
    };
    let mut value = full;
    if bound < 0.0 {
        (value.lo, value.hi) = (0.0, -bound);
        value.shape = x.shape;
    } else if bound < value.hi && value.lo <= -bound {
        (value.lo, value.hi) = (-bound, bound);
    }
    g.expr(text, value)
}

/// Numbers that depend on nothing.
fn constant(g: &mut Gen) -> Option<usize> {
    let shape = g.shape();
    let dtype = g.home;
    let text_of = super::list(&shape);
    let most = 33.0;
    let (text, lo, hi, frac) = match g.below(4) {
        0 => (format!("full(-0.75, shape: {text_of}, dtype: {dtype})"), -0.75, -0.75, 2),
        1 if !shape.is_empty() => {
            let axis = g.below(shape.len());
            let text = format!("iota(shape: {text_of}, axis: {axis}, dtype: {dtype}) * 0.25");
            (text, 0.0, most / 4.0, 2)
        }
        2 => {
            let stream = g.below(5);
            let text = format!(
                "random_uniform(i64[](7), shape: {text_of}, dtype: {dtype}, stream: {stream})"
            );
            (text, 0.0, 1.0, 60)
        }
        _ => (format!("zeros(shape: {text_of}, dtype: {dtype})"), 0.0, 0.0, 0),
    };
    let mut value = Value::new(dtype, shape, lo, hi);
    value.exact = Some(frac);
    g.expr(text, value)
}
