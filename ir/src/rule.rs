//! Rewrite rules, as data an op lists in its record.
//!
//! A rule says that two expressions are equal for every well-typed instance of
//! its left-hand side. It is written against [`Rewrite`], never against the
//! e-graph that applies it, so one record serves the optimizer, the harness
//! that tests each rule alone on real tensors, and the reference.
//!
//! # Patterns
//!
//! ```text
//! (sub x (neg y))                 variables are bare names
//! (mul x 1)                       a literal matches a tensor whose every element is it
//! (mul x #c)                      `#c` matches any tensor whose elements are all equal
//! (neg (broadcast:b x))           `:b` binds the op's attributes
//! (add (transpose:p x) (transpose:p y))    twice the same label: equal attributes
//! (@unary:f (broadcast:b x))      any elementwise op of one operand, bound as `f`
//! (vjp.log.0 p out ct)            a gradient term: operands, result, cotangent
//! ```
//!
//! A template is a pattern over what the left-hand side bound. A literal in it
//! takes the type of the last operand beside it that is not a literal, or of
//! the root if there is none. Attributes that must be computed need
//! [`Rhs::Fn`].
//!
//! # Float classes
//!
//! The class says what may differ between both sides for *floats*; on integers
//! and bools every rule must be exact. The harness (`passes/tests/rules.rs`)
//! decides whether a declared class is true.

use crate::magnitude::{Magnitude, is_normal};
use crate::vjp::{Emit, V};
use crate::{Attrs, Dim, Op, Tensor, TensorType};

pub struct Rule {
    /// `<op>.<what>`; unique.
    pub name: &'static str,
    pub search: Search,
    pub class: Class,
    /// A property that a variable must have for the class to hold. An analysis proves it;
    /// `--fast-math` takes it for granted if it is finiteness or a valid index.
    pub assumes: Option<(&'static str, Fact)>,
    pub lhs: &'static str,
    pub rhs: Rhs,
    pub guard: Option<fn(&Match<'_>) -> bool>,
    /// What must be proved of the magnitudes for the class to hold: nothing in
    /// between overflows or underflows. `--fast-math` does not ask.
    pub within: Option<fn(&Match<'_>) -> bool>,
    /// Why it holds and what it buys, for the reference.
    pub why: &'static str,
}

/// Which search a rule takes part in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Search {
    /// Expansion of gradient terms, and rewrites between them.
    Gradients,
    /// Directed, and never growing the program, unless an op goes that no rule brings
    /// back: run on whole regions.
    Whole,
    /// Directed association around broadcasts: run on whole regions.
    Broadcasts,
    /// Commutativity and associativity: run on small pieces, with a cap.
    Pieces,
}

/// What may differ for floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Bit for bit equal, but for the payload of a NaN.
    Exact,
    /// Rounds differently, or gives a zero of the other sign. Over the whole range
    /// of the type: what is finite stays finite, and is off by no more than what
    /// was written may be. Where that overflows on the way, the result may be the
    /// finite one it should have been.
    Round,
    /// As `Round` wherever the left-hand side is finite; where that is NaN or
    /// infinite, anything. Used by default only inside gradients, which nobody
    /// wrote down.
    Refine,
    /// May also turn a finite result into a NaN or an infinity.
    Special,
}

/// Properties analyses prove of every element of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fact {
    /// NaN, or sign bit clear (so not -0 either).
    NonNeg,
    /// Neither infinite nor NaN.
    Finite,
    /// Neither zero nor NaN.
    NonZero,
    /// An index the op that reads it has.
    InRange,
    /// NaN, or at most zero.
    NonPos,
}

impl Fact {
    pub const ALL: [Fact; 5] =
        [Fact::NonNeg, Fact::Finite, Fact::NonZero, Fact::InRange, Fact::NonPos];

    pub fn name(self) -> &'static str {
        match self {
            Fact::NonNeg => "nonneg",
            Fact::Finite => "finite",
            Fact::NonZero => "nonzero",
            Fact::InRange => "in range",
            Fact::NonPos => "nonpos",
        }
    }

    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

pub enum Rhs {
    /// A template in the pattern language.
    Text(&'static str),
    /// Computed; `None` where the rule does not apply after all.
    Fn(fn(&Match<'_>) -> Option<V>),
}

impl Rule {
    pub const fn exact(
        name: &'static str,
        lhs: &'static str,
        rhs: &'static str,
        why: &'static str,
    ) -> Rule {
        let rhs = Rhs::Text(rhs);
        Rule {
            name,
            search: Search::Whole,
            class: Class::Exact,
            assumes: None,
            lhs,
            rhs,
            guard: None,
            within: None,
            why,
        }
    }

    /// With a computed right-hand side; of class exact unless said otherwise.
    pub const fn computed(
        name: &'static str,
        lhs: &'static str,
        rhs: fn(&Match<'_>) -> Option<V>,
        why: &'static str,
    ) -> Rule {
        let rhs = Rhs::Fn(rhs);
        Rule {
            name,
            search: Search::Whole,
            class: Class::Exact,
            assumes: None,
            lhs,
            rhs,
            guard: None,
            within: None,
            why,
        }
    }

    pub const fn round(self) -> Rule {
        Rule { class: Class::Round, ..self }
    }

    pub const fn refine(self) -> Rule {
        Rule { class: Class::Refine, ..self }
    }

    pub const fn special(self) -> Rule {
        Rule { class: Class::Special, ..self }
    }

    pub const fn assume(self, var: &'static str, fact: Fact) -> Rule {
        Rule { assumes: Some((var, fact)), ..self }
    }

    pub const fn search(self, search: Search) -> Rule {
        Rule { search, ..self }
    }

    pub const fn when(self, guard: fn(&Match<'_>) -> bool) -> Rule {
        Rule { guard: Some(guard), ..self }
    }

    pub const fn within(self, proof: fn(&Match<'_>) -> bool) -> Rule {
        Rule { within: Some(proof), ..self }
    }
}

/// What a rule may ask of the values it matched, besides emitting new ones.
pub trait Rewrite: Emit {
    /// The value every element has, as a scalar, if known.
    fn splat_of(&self, v: V) -> Option<Tensor>;
    fn has(&self, v: V, fact: Fact) -> bool;
    /// How large and how small its elements can be.
    fn magnitude(&self, v: V) -> Magnitude;
    /// Whether the value is known to be a repeated smaller one.
    fn is_broadcast(&self, v: V) -> bool;
    /// Whether some form of the value is `op` of anything and a constant.
    fn takes_constant(&self, v: V, op: Op) -> bool;
    /// Emits the gradient term of operand `i` of `op`.
    fn vjp(&self, op: Op, i: usize, attrs: Attrs, operands: &[V], out: V, ct: V) -> V;
}

/// One instance of a left-hand side.
pub struct Match<'a> {
    pub e: &'a dyn Rewrite,
    pub root: V,
    pub pattern: &'a Pattern,
    /// By the pattern's variable number.
    pub vars: &'a [V],
    /// By the pattern's label number.
    pub heads: &'a [Head],
}

/// The op a label is bound to.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    pub op: Op,
    pub attrs: Attrs,
}

impl<'a> Match<'a> {
    /// The value bound to a variable of the left-hand side. Names are checked
    /// against the pattern by a test over all rules, so the root stands in for
    /// one that is not there.
    pub fn var(&self, name: &str) -> V {
        let at = self.pattern.vars.iter().position(|v| v == name);
        at.and_then(|i| self.vars.get(i)).copied().unwrap_or(self.root)
    }

    pub fn has_var(&self, name: &str) -> bool {
        self.pattern.vars.iter().any(|v| v == name)
    }

    pub fn ty(&self, name: &str) -> TensorType {
        self.e.ty(self.var(name))
    }

    pub fn shape(&self, name: &str) -> Vec<Dim> {
        self.ty(name).shape
    }

    pub fn root_ty(&self) -> TensorType {
        self.e.ty(self.root)
    }

    pub fn is_float(&self, name: &str) -> bool {
        self.ty(name).dtype.is_float()
    }

    /// The one value of the elements of a `#` variable.
    pub fn splat(&self, name: &str) -> Option<f64> {
        self.e.splat_of(self.var(name))?.to_f64().first().copied()
    }

    /// Whether none of the variables is a repeated smaller value.
    pub fn full_size(&self, names: &[&str]) -> bool {
        names.iter().all(|n| !self.e.is_broadcast(self.var(n)))
    }

    /// Whether the small operands beside `x` may meet: `x` is neither a repeated
    /// smaller value, which would meet them anyway, in every order, nor the root
    /// itself, which would only learn that what they make is one (or zero).
    pub fn joins(&self) -> bool {
        self.var("x") != self.root && self.full_size(&["x"])
    }

    pub fn has(&self, name: &str, fact: Fact) -> bool {
        self.e.has(self.var(name), fact)
    }

    pub fn magnitude(&self, name: &str) -> Magnitude {
        self.e.magnitude(self.var(name))
    }

    /// Whether `x` itself has no constant under `op`: constants meet from the
    /// inside of a chain outward, and each link of it once.
    pub fn innermost(&self, op: Op) -> bool {
        !self.e.takes_constant(self.var("x"), op)
    }

    /// Whether a constant made at compile time is of normal size in the type of
    /// the result: one that overflows or underflows would say nothing any more.
    pub fn makes(&self, value: f64) -> bool {
        let dtype = self.root_ty().dtype;
        !dtype.is_float() || is_normal(value, dtype)
    }

    /// Whether values of these magnitudes neither overflow nor underflow.
    pub fn normal(&self, m: Magnitude) -> bool {
        let dtype = self.root_ty().dtype;
        !dtype.is_float() || m.below(dtype) && m.above(dtype)
    }

    /// Whether values of these magnitudes do not overflow.
    pub fn bounded(&self, m: Magnitude) -> bool {
        let dtype = self.root_ty().dtype;
        !dtype.is_float() || m.below(dtype)
    }

    pub fn head(&self, label: &str) -> Option<&'a Head> {
        self.heads.get(self.pattern.labels.iter().position(|l| l == label)?)
    }

    pub fn ints(&self, label: &str, attr: &str) -> &'a [i64] {
        self.head(label).map_or(&[], |h| h.attrs.ints(attr))
    }

    pub fn int(&self, label: &str, attr: &str) -> i64 {
        self.head(label).map_or(0, |h| h.attrs.int(attr))
    }

    pub fn bool(&self, label: &str, attr: &str) -> bool {
        self.head(label).is_some_and(|h| h.attrs.bool(attr))
    }

    pub fn str(&self, label: &str, attr: &str) -> &'a str {
        self.head(label).map_or("", |h| h.attrs.str(attr))
    }

    pub fn dims(&self, label: &str, attr: &str) -> &'a [Dim] {
        self.head(label).map_or(&[], |h| h.attrs.shape(attr))
    }

    /// The op bound to a label, applied to other operands.
    pub fn again(&self, label: &str, operands: &[V]) -> Option<V> {
        let head = self.head(label)?;
        Some(self.e.emit(head.op, operands, head.attrs.clone()))
    }

    /// For shorthands such as `m.emit().mul(a, b)`.
    pub fn emit(&self) -> &'a (dyn Emit + 'a) {
        self.e
    }
}

/// A parsed pattern or template.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    pub root: Pat,
    pub vars: Vec<String>,
    pub labels: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Pat {
    Var(usize),
    /// A variable that only matches splats.
    Splat(usize),
    Lit(f64),
    Op {
        head: PatHead,
        label: Option<usize>,
        args: Vec<Pat>,
    },
}

impl Pat {
    /// Whether a gradient term is part of it.
    pub fn mentions_vjp(&self) -> bool {
        match self {
            Pat::Op { head: PatHead::Vjp(..), .. } => true,
            Pat::Op { args, .. } => args.iter().any(Pat::mentions_vjp),
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatHead {
    Op(Op),
    /// Any elementwise op with this many operands.
    Elementwise(usize),
    Vjp(Op, usize),
}

impl PatHead {
    /// Ops this head stands for.
    pub fn ops(self) -> Vec<Op> {
        match self {
            PatHead::Op(op) | PatHead::Vjp(op, _) => vec![op],
            PatHead::Elementwise(n) => {
                Op::ALL.iter().copied().filter(|op| is_elementwise(*op, n)).collect()
            }
        }
    }
}

/// Whether the op computes each element from the operand elements at the same
/// place.
pub fn is_elementwise(op: Op, operands: usize) -> bool {
    let def = op.def();
    matches!(def.lower, crate::lower::Lower::Map(_))
        && def.operands.len() == operands
        && def.operands.iter().all(|o| !o.variadic)
}

impl Pattern {
    /// Parses a left-hand side.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let mut p = Parser { rest: text, vars: vec![], labels: vec![], open: true };
        let root = p.pattern()?;
        p.end()?;
        Ok(Pattern { root, vars: p.vars, labels: p.labels })
    }

    /// Parses a template over the names of a left-hand side. It can bring in no
    /// other name: a rewrite never invents a value.
    pub fn parse_template(text: &str, lhs: &Pattern) -> Result<Pattern, String> {
        let (vars, labels) = (lhs.vars.clone(), lhs.labels.clone());
        let mut p = Parser { rest: text, vars, labels, open: false };
        let root = p.pattern()?;
        p.end()?;
        Ok(Pattern { root, vars: p.vars, labels: p.labels })
    }

    /// Ops between the root and the farthest leaf.
    pub fn depth(&self) -> usize {
        fn depth(p: &Pat) -> usize {
            match p {
                Pat::Op { args, .. } => 1 + args.iter().map(depth).max().unwrap_or(0),
                _ => 0,
            }
        }
        depth(&self.root)
    }

    /// Number of ops, but for those that are computed at compile time.
    pub fn size(&self) -> usize {
        fn folds(p: &Pat) -> bool {
            match p {
                Pat::Var(_) => false,
                Pat::Splat(_) | Pat::Lit(_) => true,
                Pat::Op { args, .. } => args.iter().all(folds),
            }
        }
        fn size(p: &Pat) -> usize {
            match p {
                Pat::Op { args, .. } if !folds(p) => 1 + args.iter().map(size).sum::<usize>(),
                _ => 0,
            }
        }
        size(&self.root)
    }
}

struct Parser<'a> {
    rest: &'a str,
    vars: Vec<String>,
    labels: Vec<String>,
    /// Whether new names may appear.
    open: bool,
}

impl Parser<'_> {
    fn token(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        let len = if matches!(first, '(' | ')') {
            1
        } else {
            self.rest
                .find(|c: char| c.is_whitespace() || "()".contains(c))
                .unwrap_or(self.rest.len())
        };
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(token.to_string())
    }

    fn end(&mut self) -> Result<(), String> {
        match self.token() {
            Some(t) => Err(format!("unexpected `{t}`")),
            None => Ok(()),
        }
    }

    fn pattern(&mut self) -> Result<Pat, String> {
        let token = self.token().ok_or("unexpected end")?;
        if token == "(" {
            return self.application();
        }
        if let Ok(value) = token.parse::<f64>() {
            return Ok(Pat::Lit(value));
        }
        let (splat, name) = match token.strip_prefix('#') {
            Some(name) => (true, name),
            None => (false, token.as_str()),
        };
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(format!("`{token}` is not a variable"));
        }
        let var = intern(&mut self.vars, name, self.open)?;
        Ok(if splat { Pat::Splat(var) } else { Pat::Var(var) })
    }

    fn application(&mut self) -> Result<Pat, String> {
        let token = self.token().ok_or("unexpected end")?;
        let (name, label) = match token.split_once(':') {
            Some((name, label)) => (name, Some(intern(&mut self.labels, label, self.open)?)),
            None => (token.as_str(), None),
        };
        let head = match name {
            "@unary" => PatHead::Elementwise(1),
            "@binary" => PatHead::Elementwise(2),
            "@ternary" => PatHead::Elementwise(3),
            _ => match name.strip_prefix("vjp.") {
                Some(vjp) => {
                    let (op, i) = vjp.rsplit_once('.').ok_or("expected `vjp.<op>.<i>`")?;
                    let op = Op::from_name(op).ok_or_else(|| format!("no op `{op}`"))?;
                    PatHead::Vjp(op, i.parse().map_err(|_| format!("bad index in `{name}`"))?)
                }
                None => PatHead::Op(Op::from_name(name).ok_or_else(|| format!("no op `{name}`"))?),
            },
        };
        let mut args = vec![];
        loop {
            if let Some(rest) = self.rest.trim_start().strip_prefix(')') {
                self.rest = rest;
                break;
            }
            args.push(self.pattern()?);
        }
        let def = head.ops().first().map(|op| op.def()).ok_or("no such op")?;
        let extra = if matches!(head, PatHead::Vjp(..)) { 2 } else { 0 };
        let variadic = def.operands.last().is_some_and(|o| o.variadic);
        if !variadic && args.len() != def.operands.len() + extra {
            return Err(format!("`{name}` takes {} operands", def.operands.len() + extra));
        }
        if matches!(head, PatHead::Elementwise(_)) && label.is_none() {
            return Err(format!("`{name}` needs a label"));
        }
        Ok(Pat::Op { head, label, args })
    }
}

fn intern(names: &mut Vec<String>, name: &str, open: bool) -> Result<usize, String> {
    match names.iter().position(|n| n == name) {
        Some(at) => Ok(at),
        None if open => {
            names.push(name.to_string());
            Ok(names.len() - 1)
        }
        None => Err(format!("`{name}` is not on the left-hand side")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_parse() {
        let p = Pattern::parse("(add (mul x #c) (neg:n x))").unwrap();
        assert_eq!(p.vars, ["x", "c"]);
        assert_eq!(p.labels, ["n"]);
        assert_eq!((p.depth(), p.size()), (2, 3));
        assert!(Pattern::parse("(add x)").is_err());
        assert!(Pattern::parse("(nothing x)").is_err());
        assert!(Pattern::parse("(add x y").is_err());
        assert!(Pattern::parse_template("(neg z)", &p).is_err());
        assert!(Pattern::parse_template("(neg x)", &p).is_ok());
    }

    /// Rules that may grow a program, though they are directed. Each takes a power away: roots
    /// have instructions of their own, and a power takes twenty times as long.
    const GROWS: &[&str] = &[
        "pow.three_quarters",
        "pow.minus_three_quarters",
        "pow.quarter",
        "pow.minus_quarter",
        "pow.three_halves",
        "pow.minus_three_halves",
        "pow.minus_seven_quarters",
    ];

    #[test]
    fn every_rule_of_every_op_is_well_formed() {
        let templates = || {
            let rules = Op::ALL.iter().flat_map(|op| op.def().rules);
            rules.filter_map(|r| if let Rhs::Text(text) = r.rhs { Some(text) } else { None })
        };
        // No rule brings these ops back, so what replaces them by more does so once.
        let goes = |op: Op| {
            let made = [format!("({} ", op.def().name), format!("({}[", op.def().name)];
            !templates().any(|t| made.iter().any(|m| t.contains(m)))
        };
        let mut names = std::collections::BTreeSet::new();
        let mut grows = vec![];
        for op in Op::ALL {
            for rule in op.def().rules {
                assert!(names.insert(rule.name), "two rules named {}", rule.name);
                assert!(!rule.why.is_empty(), "{}: no reason", rule.name);
                let lhs = Pattern::parse(rule.lhs).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
                assert!(matches!(lhs.root, Pat::Op { .. }), "{}: matches anything", rule.name);
                if let Some((var, _)) = rule.assumes {
                    assert!(lhs.vars.iter().any(|v| v == var), "{}: no `{var}`", rule.name);
                }
                if let Rhs::Text(text) = rule.rhs {
                    let rhs = Pattern::parse_template(text, &lhs)
                        .unwrap_or_else(|e| panic!("{}: {e}", rule.name));
                    if matches!(rule.search, Search::Whole) && rhs.size() > lhs.size() {
                        assert!(goes(*op), "{}: grows, and another rule brings it back", rule.name);
                        grows.push(rule.name);
                    }
                }
            }
        }
        assert_eq!(grows, GROWS);
    }
}
