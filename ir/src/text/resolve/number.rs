//! Arithmetic between numbers, when the graph is compiled.
//!
//! A number in the text has a value and no type: `1 / 10` is a tenth where a
//! float is wanted, and an error where a whole number is. So whole numbers and
//! their quotients are kept exactly, and become floats only when they meet one
//! (`0.1`, `pi`), are raised to a broken power, or no longer fit in 128 bits.

use super::Resolver;
use super::scope::{Spanned, Val};
use crate::diag::{Diag, Span};
use crate::text::ast::Binary;
use crate::{Dim, Op};
use std::cmp::Ordering;

/// A number that is not whole, in lowest terms: the denominator is at least two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    num: i128,
    den: i128,
}

impl Ratio {
    pub fn to_f64(self) -> f64 {
        // Exact up to 2^53 on either side, and then the quotient is the nearest one.
        self.num as f64 / self.den as f64
    }

    pub fn floor(self) -> i128 {
        self.num.div_euclid(self.den)
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.num, self.den)
    }
}

/// The quotient as a number; none if it does not fit.
fn quotient(num: i128, den: i128) -> Option<Val> {
    let (mut a, mut b) = (num.unsigned_abs(), den.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let common = i128::try_from(a).ok()?;
    if common == 0 || den == 0 {
        return None;
    }
    let (mut num, mut den) = (num.checked_div(common)?, den.checked_div(common)?);
    if den < 0 {
        (num, den) = (num.checked_neg()?, den.checked_neg()?);
    }
    Some(if den == 1 { Val::Int(num) } else { Val::Ratio(Ratio { num, den }) })
}

/// Numerator and denominator of what is known exactly.
fn exact(val: &Val) -> Option<(i128, i128)> {
    match val {
        Val::Int(v) => Some((*v, 1)),
        Val::Ratio(r) => Some((r.num, r.den)),
        _ => None,
    }
}

/// A number as a float.
pub(super) fn to_f64(val: &Val) -> Option<f64> {
    match val {
        Val::Int(v) => Some(*v as f64),
        Val::Ratio(r) => Some(r.to_f64()),
        Val::Float(v) => Some(*v),
        _ => None,
    }
}

/// Exact arithmetic; none where the result is not exact or does not fit.
fn exactly(op: Binary, (n1, d1): (i128, i128), (n2, d2): (i128, i128)) -> Option<Val> {
    let cross = || Some((n1.checked_mul(d2)?, n2.checked_mul(d1)?));
    match op {
        Binary::Add => {
            let (a, b) = cross()?;
            quotient(a.checked_add(b)?, d1.checked_mul(d2)?)
        }
        Binary::Sub => {
            let (a, b) = cross()?;
            quotient(a.checked_sub(b)?, d1.checked_mul(d2)?)
        }
        Binary::Mul => quotient(n1.checked_mul(n2)?, d1.checked_mul(d2)?),
        Binary::Div => {
            let (a, b) = cross()?;
            quotient(a, b)
        }
        Binary::Rem => {
            let (a, b) = cross()?;
            quotient(a.checked_rem(b)?, d1.checked_mul(d2)?)
        }
        Binary::Pow if d2 == 1 => {
            let times = u32::try_from(n2.unsigned_abs()).ok()?;
            let (num, den) = (n1.checked_pow(times)?, d1.checked_pow(times)?);
            if n2 < 0 { quotient(den, num) } else { quotient(num, den) }
        }
        _ => None,
    }
}

fn order(a: &Val, b: &Val) -> Option<Ordering> {
    if let (Some((n1, d1)), Some((n2, d2))) = (exact(a), exact(b))
        && let (Some(x), Some(y)) = (n1.checked_mul(d2), n2.checked_mul(d1))
    {
        return Some(x.cmp(&y));
    }
    to_f64(a)?.partial_cmp(&to_f64(b)?)
}

fn compare(op: Binary, order: Option<Ordering>) -> bool {
    match op {
        Binary::Eq => order == Some(Ordering::Equal),
        Binary::Ne => order != Some(Ordering::Equal),
        Binary::Lt => order == Some(Ordering::Less),
        Binary::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Binary::Gt => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

impl Resolver<'_> {
    /// Arithmetic on numbers and sizes at compile time; `None` if either side
    /// is a tensor.
    pub(super) fn fold(&mut self, op: Binary, a: &Spanned, b: &Spanned, span: Span) -> Option<Val> {
        use Binary::*;
        if matches!(a.val, Val::Dim(_)) || matches!(b.val, Val::Dim(_)) {
            return self.fold_size(op, a, b, span);
        }
        if let (Val::Bool(x), Val::Bool(y)) = (&a.val, &b.val) {
            return Some(Val::Bool(match op {
                And => *x && *y,
                Or => *x || *y,
                Eq => x == y,
                Ne => x != y,
                _ => return None,
            }));
        }
        let (x, y) = (to_f64(&a.val)?, to_f64(&b.val)?);
        match op {
            MatMul | And | Or => return None,
            Eq | Ne | Lt | Le | Gt | Ge => {
                return Some(Val::Bool(compare(op, order(&a.val, &b.val))));
            }
            _ => {}
        }
        if let (Some(x), Some(y)) = (exact(&a.val), exact(&b.val)) {
            let by_zero = y.0 == 0 && matches!(op, Div | Rem) || x.0 == 0 && op == Pow && y.0 < 0;
            if by_zero {
                return Some(self.divided_by_zero(op, b.span, span));
            }
            if let Some(val) = exactly(op, x, y) {
                return Some(val);
            }
            // A whole number stays one: it is not rounded behind one's back.
            if let (Val::Int(_), Val::Int(y)) = (&a.val, &b.val)
                && (matches!(op, Add | Sub | Mul) || op == Pow && *y >= 0)
            {
                return Some(self.error(
                    Diag::error("E0220", "this number is too large").at(span, "computed here"),
                ));
            }
        }
        Some(Val::Float(match op {
            Add => x + y,
            Sub => x - y,
            Mul => x * y,
            Div => x / y,
            Rem => x % y,
            _ => x.powf(y),
        }))
    }

    fn fold_size(&mut self, op: Binary, a: &Spanned, b: &Spanned, span: Span) -> Option<Val> {
        let to_dim = |v: &Val| match v {
            Val::Dim(d) => Some(d.clone()),
            Val::Int(i) => i64::try_from(*i).ok().map(Dim::constant),
            _ => None,
        };
        let (x, y) = (to_dim(&a.val)?, to_dim(&b.val)?);
        let size = match op {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => {
                if x.terms().len() * y.terms().len() > MAX_TERMS {
                    return Some(self.complicated(span));
                }
                x * y
            }
            Binary::Div => match y.as_const() {
                Some(c) if c > 0 => x.floor_div(c),
                _ => match x.div_exact(&y) {
                    Some(d) => d,
                    None => {
                        return Some(
                            self.error(
                                Diag::error(
                                    "E0223",
                                    "a size is divided by a positive constant only",
                                )
                                .at(b.span, format!("this is {y}")),
                            ),
                        );
                    }
                },
            },
            // Whether different formulas give the same number is known at run time.
            Binary::Eq if x == y => return Some(Val::Bool(true)),
            _ => return None,
        };
        let factors = size.terms().iter().map(|(m, _)| m.len()).max().unwrap_or(0);
        if size.terms().len() > MAX_TERMS || factors > MAX_FACTORS {
            return Some(self.complicated(span));
        }
        Some(Val::size(size))
    }

    fn complicated(&mut self, span: Span) -> Val {
        self.error(
            Diag::error("E0226", "this size is too complicated").at(
                span,
                format!("more than {MAX_TERMS} terms, or more than {MAX_FACTORS} factors"),
            ),
        )
    }

    fn divided_by_zero(&mut self, op: Binary, by: Span, span: Span) -> Val {
        let diag = match op {
            Binary::Pow => Diag::error("E0150", "zero has no negative power")
                .at(span, "this would divide by zero"),
            _ => Diag::error("E0150", "a number is divided by zero").at(by, "this is 0"),
        };
        self.error(diag.help("infinity is written `inf`"))
    }

    /// Ops that are worked out on numbers at once, so that their result is a
    /// number, too: `floor(3 / 2)` is 1, a size as well as a value.
    pub(super) fn fold_op(&mut self, op: Op, operands: &[Spanned]) -> Option<Val> {
        match operands {
            [x] => fold_unary(op.name(), &x.val),
            [a, b] => {
                let order = order(&a.val, &b.val)?;
                let first = match op.name() {
                    "maximum" => order != Ordering::Less,
                    "minimum" => order != Ordering::Greater,
                    _ => return None,
                };
                Some(if first { a.val.clone() } else { b.val.clone() })
            }
            _ => None,
        }
    }

    /// The help for a number that should be whole and is not.
    pub(super) fn round_it(&self, diag: Diag, val: &Val, span: Span) -> Diag {
        if !matches!(val, Val::Ratio(_) | Val::Float(_)) {
            return diag;
        }
        let file = self.sources.files.get(span.file as usize);
        match file.and_then(|f| f.text.get(span.lo as usize..span.hi as usize)) {
            Some(text) if !text.is_empty() && !text.contains('\n') => {
                let rounded = match text.parse::<f64>() {
                    Ok(v) if v.fract() == 0.0 && v.abs() < 1e15 => format!("{}", v as i64),
                    _ => format!("floor({text})"),
                };
                diag.fix(format!("a whole number is `{rounded}`"), span, rounded)
            }
            _ => diag.help("round it: `floor(a / b)`"),
        }
    }
}

/// Terms of a size.
pub(super) const MAX_TERMS: usize = 64;
/// Factors of a term.
pub(super) const MAX_FACTORS: usize = 16;

fn fold_unary(name: &str, val: &Val) -> Option<Val> {
    // Sizes are whole and not negative.
    if let (Val::Dim(_), "floor" | "ceil" | "round" | "trunc") = (val, name) {
        return Some(val.clone());
    }
    if let Val::Float(v) = val {
        let v = match name {
            "floor" => v.floor(),
            "ceil" => v.ceil(),
            "round" => v.round_ties_even(),
            "trunc" => v.trunc(),
            "abs" => return Some(Val::Float(v.abs())),
            "sqrt" => return Some(Val::Float(v.sqrt())),
            _ => return None,
        };
        // Beyond this a float is not known to the unit.
        return Some(if v.abs() < 1e15 { Val::Int(v as i128) } else { Val::Float(v) });
    }
    let (num, den) = exact(val)?;
    let ratio = Ratio { num, den };
    Some(match name {
        "floor" => Val::Int(ratio.floor()),
        "ceil" => Val::Int(ratio.floor().checked_add((den != 1) as i128)?),
        "round" => Val::Int(nearest_even(ratio)?),
        "trunc" => Val::Int(num.checked_div(den)?),
        "abs" => quotient(num.checked_abs()?, den)?,
        "sqrt" => Val::Float(ratio.to_f64().sqrt()),
        _ => return None,
    })
}

fn nearest_even(x: Ratio) -> Option<i128> {
    let low = x.floor();
    // Twice the part above `low`, against the denominator.
    let rest = x.num.checked_sub(low.checked_mul(x.den)?)?.checked_mul(2)?;
    let up = match rest.cmp(&x.den) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => low % 2 != 0,
    };
    low.checked_add(up as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(num: i128, den: i128) -> Val {
        quotient(num, den).unwrap_or(Val::Poison)
    }

    fn show(val: Option<Val>) -> String {
        match val {
            Some(Val::Int(v)) => v.to_string(),
            Some(Val::Ratio(r)) => r.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn quotients_are_exact_and_in_lowest_terms() {
        assert_eq!(show(quotient(6, 4)), "3/2");
        assert_eq!(show(quotient(6, -4)), "-3/2");
        assert_eq!(show(quotient(-6, -3)), "2");
        let third = (1, 3);
        assert_eq!(show(exactly(Binary::Mul, third, (3, 1))), "1");
        assert_eq!(show(exactly(Binary::Add, third, (1, 6))), "1/2");
        assert_eq!(show(exactly(Binary::Pow, (2, 1), (-2, 1))), "1/4");
        assert_eq!(show(exactly(Binary::Rem, (7, 2), (1, 1))), "1/2");
    }

    #[test]
    fn what_does_not_fit_is_not_exact() {
        assert_eq!(show(exactly(Binary::Mul, (i128::MAX, 1), (2, 1))), "None");
        assert_eq!(show(quotient(i128::MIN, -1)), "None");
        assert_eq!(show(quotient(1, 0)), "None");
        assert_eq!(show(exactly(Binary::Add, (1, i128::MAX), (1, i128::MAX - 1))), "None");
    }

    #[test]
    fn rounding() {
        let rounded = |name: &str, n, d| show(fold_unary(name, &ratio(n, d)));
        assert_eq!(rounded("floor", 7, 2), "3");
        assert_eq!(rounded("floor", -7, 2), "-4");
        assert_eq!(rounded("trunc", -7, 2), "-3");
        assert_eq!(rounded("trunc", 7, 2), "3");
        assert_eq!(rounded("ceil", 7, 2), "4");
        assert_eq!(rounded("ceil", -7, 2), "-3");
        assert_eq!(rounded("ceil", 4, 2), "2");
        assert_eq!(rounded("round", 7, 2), "4");
        assert_eq!(rounded("round", 5, 2), "2");
        assert_eq!(rounded("round", -7, 3), "-2");
        assert_eq!(show(fold_unary("floor", &Val::Float(2.75))), "2");
        assert_eq!(show(fold_unary("round", &Val::Float(2.5))), "2");
    }

    #[test]
    fn comparisons_do_not_round() {
        let (a, b) = (ratio(1, 3), ratio(333_333_333_333_333_333, 1_000_000_000_000_000_000));
        assert_eq!(order(&a, &b), Some(Ordering::Greater));
        assert_eq!(order(&ratio(1, 2), &Val::Float(0.5)), Some(Ordering::Equal));
        assert!(!compare(Binary::Le, order(&Val::Float(f64::NAN), &Val::Int(1))));
        assert!(compare(Binary::Ne, order(&Val::Float(f64::NAN), &Val::Int(1))));
    }
}
