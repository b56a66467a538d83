//! Sizes: constants, or polynomials over named run-time dims.
//!
//! A [`Dim`] is kept in a canonical form, so two dims are equal as Rust values
//! exactly when they are equal as polynomials. Nothing is assumed about the
//! value of a named dim except that it is not negative: `B` and `5` are
//! *different*, whatever an example happened to feed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Const(i64),
    /// At least one non-constant term; no zero coefficients.
    Poly(Arc<BTreeMap<Mono, i64>>),
}

/// A product of atoms, sorted; empty for the constant term.
type Mono = Vec<Atom>;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    Sym(Arc<str>),
    /// Floor of the quotient by a positive constant.
    FloorDiv(Dim, i64),
}

impl Dim {
    pub const fn constant(value: i64) -> Dim {
        Dim(Repr::Const(value))
    }

    pub fn sym(name: &str) -> Dim {
        Dim::atom(Atom::Sym(name.into()))
    }

    fn atom(atom: Atom) -> Dim {
        Dim(Repr::Poly(Arc::new(BTreeMap::from([(vec![atom], 1)]))))
    }

    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(c) => Some(c),
            Repr::Poly(_) => None,
        }
    }

    /// The name, if this is exactly one named dim.
    pub fn as_sym(&self) -> Option<&Arc<str>> {
        let Repr::Poly(terms) = &self.0 else { return None };
        match terms.iter().next() {
            Some((mono, 1)) if terms.len() == 1 && mono.len() == 1 => match &mono[0] {
                Atom::Sym(name) => Some(name),
                Atom::FloorDiv(..) => None,
            },
            _ => None,
        }
    }

    pub fn is_one(&self) -> bool {
        self.as_const() == Some(1)
    }

    pub fn is_zero(&self) -> bool {
        self.as_const() == Some(0)
    }

    /// The terms `(atoms, coefficient)`; a constant has at most one, with no
    /// atoms.
    pub fn terms(&self) -> Vec<(Vec<Atom>, i64)> {
        match &self.0 {
            Repr::Const(0) => vec![],
            Repr::Const(c) => vec![(vec![], *c)],
            Repr::Poly(terms) => terms.iter().map(|(m, c)| (m.clone(), *c)).collect(),
        }
    }

    fn from_terms(terms: BTreeMap<Mono, i64>) -> Dim {
        let terms: BTreeMap<Mono, i64> = terms.into_iter().filter(|(_, c)| *c != 0).collect();
        if terms.is_empty() {
            return Dim::constant(0);
        }
        if terms.len() == 1
            && let Some(c) = terms.get(&vec![])
        {
            return Dim::constant(*c);
        }
        Dim(Repr::Poly(Arc::new(terms)))
    }

    /// Floor of the quotient by a positive constant.
    pub fn floor_div(&self, by: i64) -> Dim {
        debug_assert!(by > 0);
        if by == 1 {
            return self.clone();
        }
        if let Some(c) = self.as_const() {
            return Dim::constant(c.div_euclid(by));
        }
        // Terms whose coefficient the divisor divides leave the floor.
        let (mut out, mut rest) = (BTreeMap::new(), BTreeMap::new());
        for (mono, c) in self.terms() {
            if c % by == 0 {
                out.insert(mono, c / by);
            } else {
                rest.insert(mono, c);
            }
        }
        let rest = Dim::from_terms(rest);
        let out = Dim::from_terms(out);
        match rest.as_const() {
            Some(c) => out + Dim::constant(c.div_euclid(by)),
            None => out + Dim::atom(Atom::FloorDiv(rest, by)),
        }
    }

    pub fn ceil_div(&self, by: i64) -> Dim {
        (self.clone() + Dim::constant(by - 1)).floor_div(by)
    }

    /// The exact quotient, when it can be shown to exist.
    pub fn div_exact(&self, by: &Dim) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_const(), by.as_const()) {
            return (b != 0 && a % b == 0).then(|| Dim::constant(a / b));
        }
        if self == by {
            return Some(Dim::constant(1));
        }
        let by_terms = by.terms();
        let [(by_mono, by_coef)] = by_terms.as_slice() else { return None };
        if *by_coef == 0 {
            return None;
        }
        let mut out = BTreeMap::new();
        for (mut mono, c) in self.terms() {
            for atom in by_mono {
                let at = mono.iter().position(|a| a == atom)?;
                mono.remove(at);
            }
            if c % by_coef != 0 {
                return None;
            }
            out.insert(mono, c / by_coef);
        }
        Some(Dim::from_terms(out))
    }

    /// Whether this is at least zero for every value of the named dims.
    pub fn is_never_negative(&self) -> bool {
        // A quotient that is taken away is at most what was divided: what whole rows of a
        // tensor leave over is not negative.
        let mut least = Dim::constant(0);
        for (mono, c) in self.terms() {
            least = least
                + match mono.as_slice() {
                    [Atom::FloorDiv(d, by)] if c < 0 && c % by == 0 => {
                        d.clone() * Dim::constant(c / by)
                    }
                    _ => Dim::from_terms(BTreeMap::from([(mono, c)])),
                };
        }
        least.terms().iter().all(|(mono, c)| {
            *c >= 0
                && mono.iter().all(|atom| match atom {
                    Atom::Sym(_) => true,
                    Atom::FloorDiv(d, _) => d.is_never_negative(),
                })
        })
    }

    /// Whether this is below zero for every value of the named dims.
    pub fn is_always_negative(&self) -> bool {
        (Dim::constant(-1) - self.clone()).is_never_negative()
    }

    /// Value under an assignment of the named dims.
    pub fn eval(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let mut sum = 0i64;
        for (mono, c) in self.terms() {
            let mut term = c;
            for atom in &mono {
                let v = match atom {
                    Atom::Sym(name) => lookup(name)?,
                    Atom::FloorDiv(d, by) => d.eval(lookup)?.checked_div_euclid(*by)?,
                };
                term = term.checked_mul(v)?;
            }
            sum = sum.checked_add(term)?;
        }
        Some(sum)
    }

    /// Replaces named dims; names the function does not know stay.
    pub fn substitute(&self, with: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        if self.as_const().is_some() {
            return self.clone();
        }
        let mut sum = Dim::constant(0);
        for (mono, c) in self.terms() {
            let mut term = Dim::constant(c);
            for atom in mono {
                let factor = match &atom {
                    Atom::Sym(name) => with(name).unwrap_or_else(|| Dim::atom(atom.clone())),
                    Atom::FloorDiv(d, by) => d.substitute(with).floor_div(*by),
                };
                term = term * factor;
            }
            sum = sum + term;
        }
        sum
    }

    /// Names of the dims this depends on.
    pub fn syms(&self) -> BTreeSet<Arc<str>> {
        let mut out = BTreeSet::new();
        self.collect_syms(&mut out);
        out
    }

    fn collect_syms(&self, out: &mut BTreeSet<Arc<str>>) {
        for (mono, _) in self.terms() {
            for atom in mono {
                match atom {
                    Atom::Sym(name) => {
                        out.insert(name);
                    }
                    Atom::FloorDiv(d, _) => d.collect_syms(out),
                }
            }
        }
    }

    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter().fold(Dim::constant(1), |acc, d| acc * d.clone())
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::constant(value)
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Dim {
        Dim::constant(value as i64)
    }
}

impl Add for Dim {
    type Output = Dim;
    fn add(self, rhs: Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), rhs.as_const()) {
            return Dim::constant(a.saturating_add(b));
        }
        let mut terms: BTreeMap<Mono, i64> = self.terms().into_iter().collect();
        for (mono, c) in rhs.terms() {
            let slot = terms.entry(mono).or_insert(0);
            *slot = slot.saturating_add(c);
        }
        Dim::from_terms(terms)
    }
}

impl Sub for Dim {
    type Output = Dim;
    fn sub(self, rhs: Dim) -> Dim {
        self + rhs * Dim::constant(-1)
    }
}

impl Mul for Dim {
    type Output = Dim;
    fn mul(self, rhs: Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), rhs.as_const()) {
            return Dim::constant(a.saturating_mul(b));
        }
        let mut terms: BTreeMap<Mono, i64> = BTreeMap::new();
        for (ma, ca) in self.terms() {
            for (mb, cb) in rhs.terms() {
                let mut mono = [ma.as_slice(), mb.as_slice()].concat();
                mono.sort();
                let slot = terms.entry(mono).or_insert(0);
                *slot = slot.saturating_add(ca.saturating_mul(cb));
            }
        }
        Dim::from_terms(terms)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(c) = self.as_const() {
            return write!(f, "{c}");
        }
        // Constants last, so that `B + 1` does not read `1 + B`.
        let mut terms = self.terms();
        terms.sort_by_key(|(m, _)| m.is_empty());
        for (i, (mono, c)) in terms.iter().enumerate() {
            match (i, *c < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let c = c.unsigned_abs();
            if mono.is_empty() {
                write!(f, "{c}")?;
                continue;
            }
            if c != 1 {
                write!(f, "{c} * ")?;
            }
            for (j, atom) in mono.iter().enumerate() {
                if j > 0 {
                    f.write_str(" * ")?;
                }
                match atom {
                    Atom::Sym(name) => f.write_str(name)?,
                    Atom::FloorDiv(d, by) => write!(f, "(({d}) / {by})")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form_decides_equality() {
        let (b, t) = (Dim::sym("B"), Dim::sym("T"));
        assert_eq!(b.clone() * t.clone(), t.clone() * b.clone());
        assert_eq!(b.clone() + b.clone(), Dim::constant(2) * b.clone());
        assert_eq!(b.clone() - b.clone(), Dim::constant(0));
        assert_ne!(b.clone(), Dim::constant(5));
        assert_eq!(
            (b.clone() * Dim::constant(784)).div_exact(&Dim::constant(784)),
            Some(b.clone())
        );
        assert_eq!((b.clone() * t.clone()).div_exact(&b), Some(t));
        assert_eq!(b.div_exact(&Dim::constant(2)), None);
    }

    #[test]
    fn signs_are_claimed_only_when_certain() {
        let b = Dim::sym("B");
        assert!((b.clone() + Dim::constant(1)).floor_div(2).is_never_negative());
        let unknown = b.clone() - Dim::constant(3);
        assert!(!unknown.is_never_negative() && !unknown.is_always_negative());
        assert!((Dim::constant(-1) - b.clone()).is_always_negative());
        assert!(!(Dim::constant(0) - b).is_always_negative());
        assert!(Dim::constant(-2).is_always_negative());
        let b = Dim::sym("B");
        let rest = |by: i64| b.clone() - b.floor_div(4096) * Dim::constant(by);
        assert!(rest(4096).is_never_negative() && !rest(4097).is_never_negative());
        assert!(!rest(8192).is_never_negative());
    }

    #[test]
    fn floor_division_keeps_exact_parts_out() {
        let b = Dim::sym("B");
        let d = (Dim::constant(4) * b.clone() + Dim::constant(3)).floor_div(2);
        assert_eq!(d, Dim::constant(2) * b.clone() + Dim::constant(1));
        let d = (b.clone() + Dim::constant(1)).floor_div(2);
        assert_eq!(d.to_string(), "((B + 1) / 2)");
        assert_eq!(d.eval(&|_| Some(4)), Some(2));
        assert_eq!(d.substitute(&|_| Some(Dim::constant(5))), Dim::constant(3));
    }
}
