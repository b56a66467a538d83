//! Random graphs that mean something.
//!
//! A generated entry is a list of statements over values whose type, range and
//! exactness are known, so that every production of the table can ask for operands
//! that suit it: logarithms get positive numbers, indices are in range, nothing
//! overflows, and what jumps (comparisons, `floor`, `argmax`) gets numbers that
//! arithmetic has not rounded.
//!
//! - this file: values, statements, entries, and how they print;
//! - [`elementwise`], [`movement`], [`contraction`], [`control`]: the productions;
//! - [`check`]: a graph in every float mode against the interpreter; [`rounding`]: how
//!   far that lets a result be off;
//! - [`bits`]: elementwise graphs in strict mode, to the last bit;
//! - [`shrink`]: the smallest part of an entry that still fails.
//!
//! Invariant: an entry depends on its seed alone.

mod bits;
pub mod check;
mod contraction;
mod control;
mod elementwise;
mod movement;
mod rounding;
pub mod shrink;

use crate::feeds::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tfc_ir::{DType, Dim, Tensor};

/// Run-time dims are tried at these sizes, in random pairs.
pub const SIZES: [i64; 5] = [0, 1, 2, 7, 33];

/// No value has more elements than this at any of the sizes.
const MOST_ELEMENTS: i64 = 5000;

/// Floats are scaled down by a power of two when they could pass this.
const LARGEST: f64 = 8.0;

/// Assigned sizes of the run-time dims.
pub type Dims = BTreeMap<String, i64>;

/// What is known about a value.
#[derive(Clone, Debug)]
pub struct Value {
    pub dtype: DType,
    pub shape: Vec<Dim>,
    /// Bounds of finite elements.
    pub lo: f64,
    pub hi: f64,
    /// Elements are multiples of two to minus this, and no operation on the way has
    /// rounded: what they compare to is certain.
    pub exact: Option<i32>,
    /// Values a gradient of this one can be taken by.
    pub slopes: BTreeSet<usize>,
}

impl Value {
    fn new(dtype: DType, shape: Vec<Dim>, lo: f64, hi: f64) -> Value {
        Value { dtype, shape, lo, hi, exact: None, slopes: BTreeSet::new() }
    }

    fn size(&self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    fn rank(&self) -> usize {
        self.shape.len()
    }

    fn is_float(&self) -> bool {
        self.dtype.is_float()
    }

    fn is_number(&self) -> bool {
        self.dtype != DType::Bool
    }

    fn ty(&self) -> String {
        format!("{}{}", self.dtype, list(&self.shape))
    }
}

/// Bits of a float type's significand.
fn precision(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    }
}

/// Whether multiples of `2^-frac` up to `size` are numbers of the type.
fn fits(dtype: DType, size: f64, frac: i32) -> bool {
    let bits = size.max(1.0).log2().ceil() as i32 + frac;
    !dtype.is_float() || (bits <= precision(dtype) && frac <= 14)
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A parameter of the entry.
    Param,
    /// The expression; operands are written `{3}`.
    Expr(String),
    /// One of several results of the value with this number, which is an `Expr`.
    Also(usize),
    /// A statement without a value, such as a write.
    Effect(String),
}

/// One line of an entry.
#[derive(Clone, Debug)]
pub struct Stmt {
    pub value: Value,
    pub source: Source,
}

/// A random function of its parameters and the graph's variables.
#[derive(Clone, Debug)]
pub struct Entry {
    pub seed: u64,
    pub stmts: Vec<Stmt>,
    pub results: Vec<usize>,
    /// Sizes that must not be negative.
    pub needs: Vec<Dim>,
    /// Elementwise throughout: every result can be checked to the last bit.
    pub elementwise: bool,
}

/// `[a, b, c]`.
fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(", "))
}

/// The operands named in an expression.
fn operands(text: &str) -> Vec<usize> {
    let mut out = vec![];
    for part in text.split('{').skip(1) {
        let digits = part.split('}').next().unwrap_or("");
        out.extend(digits.parse::<usize>().ok());
    }
    out
}

impl Entry {
    /// The entry with this seed.
    pub fn generate(seed: u64) -> Entry {
        Gen::new(seed).entry()
    }

    pub fn name(&self) -> String {
        format!("e{}", self.seed)
    }

    fn value_name(&self, i: usize) -> String {
        match self.stmts[i].source {
            Source::Param => format!("p{i}"),
            _ => format!("s{i}"),
        }
    }

    fn expression(&self, text: &str) -> String {
        let mut out = text.to_string();
        for i in operands(text) {
            out = out.replace(&format!("{{{i}}}"), &self.value_name(i));
        }
        // What is left of braces are those of blocks.
        out.replace("<<", "{").replace(">>", "}")
    }

    /// Parameters that are fed, with what is known about them.
    pub fn params(&self) -> impl Iterator<Item = (String, &Value)> {
        self.stmts.iter().enumerate().filter_map(|(i, s)| match s.source {
            Source::Param => Some((self.value_name(i), &s.value)),
            _ => None,
        })
    }

    /// The first line of a file with this entry: sizes and what parameters are fed.
    pub fn directive(&self, dims: &Dims) -> String {
        let mut line = "//! run".to_string();
        for (name, size) in dims {
            let _ = write!(line, "; {name} = {size}");
        }
        for (name, value) in self.params() {
            let (kind, more) = if value.is_float() { ("float", 0.0) } else { ("int", 1.0) };
            let _ = write!(line, "; {name} = {kind} {}..{}", value.lo, value.hi + more);
        }
        line
    }

    /// The entry in the graph language.
    pub fn print(&self) -> String {
        let mut text = format!("entry {}(dims: i8[B, N]", self.name());
        for (name, value) in self.params() {
            let _ = write!(text, ", {name}: {}", value.ty());
        }
        let names: Vec<String> = (0..self.results.len()).map(|i| format!("r{i}")).collect();
        let _ = writeln!(text, ") -> ({}) {{", names.join(", "));
        for (i, stmt) in self.stmts.iter().enumerate() {
            let Source::Expr(expr) = &stmt.source else {
                if let Source::Effect(effect) = &stmt.source {
                    let _ = writeln!(text, "  {}", self.expression(effect));
                }
                continue;
            };
            let also: Vec<String> = (0..self.stmts.len())
                .filter(|j| matches!(self.stmts[*j].source, Source::Also(of) if of == i))
                .map(|j| self.value_name(j))
                .collect();
            let (name, expr) = (self.value_name(i), self.expression(expr));
            let _ = match also.is_empty() {
                true => writeln!(text, "  {name} = {expr}"),
                false => writeln!(text, "  ({name}, {}) = {expr}", also.join(", ")),
            };
        }
        let results: Vec<String> = self.results.iter().map(|r| self.value_name(*r)).collect();
        let _ = writeln!(text, "  return {}\n}}", results.join(", "));
        text
    }

    /// Sizes to run the entry with: those it takes, and now and then some it refuses.
    pub fn assignments(&self, count: usize) -> Vec<Dims> {
        let mut rng = Rng::named(&format!("sizes {}", self.seed));
        let mut out: Vec<Dims> = vec![];
        for _ in 0..4 * count {
            let mut pick = || SIZES[rng.below(SIZES.len() as u64) as usize];
            let dims = Dims::from([("B".to_string(), pick()), ("N".to_string(), pick())]);
            let fine = self.needs.iter().all(|n| evaluate(n, &dims).is_some_and(|v| v >= 0));
            if out.len() < count && !out.contains(&dims) && (fine || rng.below(16) == 0) {
                out.push(dims);
            }
        }
        out
    }

    /// What the parameters are fed.
    pub fn feeds(&self, dims: &Dims) -> Option<Vec<(String, Tensor)>> {
        let size = |name: &str| dims.get(name).copied().unwrap_or(0) as usize;
        let witness = Tensor::splat(DType::I8, vec![size("B"), size("N")], 0.0);
        let mut out = vec![("dims".to_string(), witness)];
        for (name, value) in self.params() {
            let shape = value
                .shape
                .iter()
                .map(|d| evaluate(d, dims).and_then(|s| usize::try_from(s).ok()))
                .collect::<Option<Vec<usize>>>()?;
            let mut rng = Rng::named(&format!("{} {name} {dims:?}", self.seed));
            let count: usize = shape.iter().product();
            let span = value.hi - value.lo;
            let tensor = match value.exact {
                _ if !value.is_float() => {
                    let below = span as u64 + 1;
                    let draw = (0..count).map(|_| value.lo as i64 + rng.below(below) as i64);
                    Tensor::from_i64(value.dtype, shape, draw)
                }
                Some(frac) => {
                    let grid = 2f64.powi(frac);
                    let steps = (span * grid) as u64 + 1;
                    let draw = (0..count).map(|_| value.lo + rng.below(steps) as f64 / grid);
                    Tensor::from_f64(value.dtype, shape, draw)
                }
                None => {
                    let draw = (0..count).map(|_| value.lo + span * rng.unit());
                    Tensor::from_f64(value.dtype, shape, draw)
                }
            };
            out.push((name, tensor));
        }
        Some(out)
    }
}

fn evaluate(dim: &Dim, dims: &Dims) -> Option<i64> {
    dim.eval(&|name| dims.get(name).copied())
}

/// Variables every graph has: name, element type, shape, initial values.
pub const VARS: &[(&str, DType, &[i64], &str)] = &[
    ("va", DType::F32, &[4], "0.5, -0.25, 1.0, 0.125"),
    ("vb", DType::F32, &[4, 3], "0.5, -0.5, 1, 0.25, 0, -1, 0.75, 0.125, -0.375, 1, -0.25, 0.5"),
    ("vc", DType::F64, &[3], "0.25, -0.75, 0.5"),
    ("vd", DType::F16, &[4], "1, -0.5, 0.25, 0.75"),
    ("vi", DType::I64, &[4], "3, 0, -2, 1"),
];

/// A graph of these entries, as text.
pub fn print_graph(entries: &[Entry]) -> String {
    let mut text = "graph random\ndim B\ndim N\n".to_string();
    let bodies: Vec<String> = entries.iter().map(Entry::print).collect();
    for (name, dtype, shape, values) in VARS {
        let _ = writeln!(text, "var {name}: {dtype}{0} = {dtype}{0}({values})", list(shape));
    }
    text + &bodies.concat()
}

/// The state of making one entry.
pub(crate) struct Gen {
    rng: Rng,
    stmts: Vec<Stmt>,
    needs: Vec<Dim>,
    /// The float type most values have.
    home: DType,
    elementwise: bool,
    seed: u64,
}

type Production = fn(&mut Gen) -> Option<usize>;

impl Gen {
    fn new(seed: u64) -> Gen {
        let mut rng = Rng::named(&format!("graph {seed}"));
        let home = match rng.below(12) {
            0 | 1 => DType::F64,
            2 => DType::F16,
            3 => DType::BF16,
            _ => DType::F32,
        };
        let elementwise = rng.below(8) == 0;
        Gen { rng, stmts: vec![], needs: vec![], home, elementwise, seed }
    }

    fn entry(mut self) -> Entry {
        let shape = self.shape();
        let home = self.home;
        self.param(home, shape);
        let wanted = 2 + self.below(9);
        let table = self.table();
        let total: u64 = table.iter().map(|(weight, _)| weight).sum();
        let mut made = 0;
        for _ in 0..8 * wanted {
            let mut at = self.rng.below(total);
            let production = table.iter().find(|(weight, _)| {
                let here = at < *weight;
                at = at.wrapping_sub(*weight);
                here
            });
            // What a production added before it gave up stays: it is harmless.
            if let Some((_, production)) = production
                && production(&mut self).is_some()
            {
                made += 1;
            }
            if made == wanted {
                break;
            }
        }
        let mut results = self.results();
        if !self.elementwise && self.below(5) < 2 {
            let gradients = control::gradients(&mut self);
            results.extend(gradients);
        }
        // The sizes that only unused statements would refuse are no matter of the entry.
        shrink::swept(Entry {
            seed: self.seed,
            stmts: self.stmts,
            results,
            needs: self.needs,
            elementwise: self.elementwise,
        })
    }

    fn table(&self) -> Vec<(u64, Production)> {
        let mut table = elementwise::TABLE.to_vec();
        if !self.elementwise {
            for more in [movement::TABLE, contraction::TABLE, control::TABLE] {
                table.extend_from_slice(more);
            }
        }
        table
    }

    /// The last values and some others; all computed ones of an elementwise entry.
    fn results(&mut self) -> Vec<usize> {
        let made: Vec<usize> = (0..self.stmts.len())
            .filter(|i| matches!(self.stmts[*i].source, Source::Expr(_) | Source::Also(_)))
            .collect();
        let mut out = vec![];
        for (back, i) in made.iter().rev().enumerate() {
            if self.elementwise || back == 0 || self.below(4) == 0 {
                out.push(*i);
            }
        }
        if out.is_empty() {
            out.push(0);
        }
        out.reverse();
        out
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn choose<T: Clone>(&mut self, items: &[T]) -> T {
        let at = self.below(items.len());
        items[at].clone()
    }

    fn val(&self, i: usize) -> &Value {
        &self.stmts[i].value
    }

    /// A random value that passes the test; younger ones are likelier.
    fn pick(&mut self, test: impl Fn(&Value) -> bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.stmts.len())
            .filter(|i| !matches!(self.stmts[*i].source, Source::Effect(_)))
            .filter(|i| test(&self.stmts[*i].value))
            .collect();
        if fit.is_empty() {
            return None;
        }
        let at = self.below(fit.len()).max(self.below(fit.len()));
        Some(fit[at])
    }

    fn size(&mut self) -> Dim {
        match self.below(10) {
            0..=2 => Dim::sym("B"),
            3 | 4 => Dim::sym("N"),
            5 => Dim::constant(1),
            _ => Dim::constant(self.choose(&[2, 3, 4, 4, 5, 6, 7, 8, 17])),
        }
    }

    fn shape(&mut self) -> Vec<Dim> {
        loop {
            let rank = self.choose(&[0, 1, 1, 2, 2, 2, 3, 3]);
            let shape: Vec<Dim> = (0..rank).map(|_| self.size()).collect();
            if self.small(&shape) {
                return shape;
            }
        }
    }

    /// The most elements a shape may have.
    fn most(&self, shape: &[Dim]) -> i64 {
        let most = Dims::from([("B".to_string(), 33), ("N".to_string(), 33)]);
        let sizes = shape.iter().map(|d| evaluate(d, &most).unwrap_or(i64::MAX).max(0));
        sizes.fold(1, i64::saturating_mul)
    }

    fn small(&self, shape: &[Dim]) -> bool {
        self.most(shape) <= MOST_ELEMENTS
    }

    /// A new parameter; half of the floats are exact.
    fn param(&mut self, dtype: DType, shape: Vec<Dim>) -> usize {
        let mut value = match dtype {
            DType::Bool => Value::new(dtype, shape, 0.0, 1.0),
            DType::U8 => Value::new(dtype, shape, 0.0, 9.0),
            d if d.is_float() => {
                let (lo, hi) = self.choose(&[(-2.0, 2.0), (-2.0, 2.0), (0.5, 2.0), (-1.0, 0.5)]);
                Value::new(dtype, shape, lo, hi)
            }
            _ => Value::new(dtype, shape, -5.0, 9.0),
        };
        if !dtype.is_float() {
            value.exact = Some(0);
        } else if self.chance(2) {
            value.exact = Some(2);
        }
        self.source(value, Source::Param)
    }

    /// Integers from 0 to below `n`.
    fn ids(&mut self, dtype: DType, shape: Vec<Dim>, n: i64) -> usize {
        let mut value = Value::new(dtype, shape, 0.0, (n - 1) as f64);
        value.exact = Some(0);
        self.source(value, Source::Param)
    }

    fn source(&mut self, mut value: Value, source: Source) -> usize {
        let at = self.stmts.len();
        if value.is_float() && matches!(source, Source::Param) {
            value.slopes = BTreeSet::from([at]);
        }
        self.stmts.push(Stmt { value, source });
        at
    }

    /// A value of this type: one there is, or a new parameter.
    fn operand(&mut self, dtype: DType, shape: &[Dim]) -> usize {
        let same = |v: &Value| v.dtype == dtype && v.shape == shape;
        if !self.chance(4)
            && let Some(found) = self.pick(same)
        {
            return found;
        }
        self.param(dtype, shape.to_vec())
    }

    /// A value whose shape broadcasts to this one.
    fn broadcastable(&mut self, dtype: DType, shape: &[Dim]) -> usize {
        if self.chance(3) {
            let drop = self.below(shape.len() + 1);
            let mut shape = shape[drop..].to_vec();
            for size in &mut shape {
                if self.chance(3) {
                    *size = Dim::constant(1);
                }
            }
            return self.operand(dtype, &shape);
        }
        self.operand(dtype, shape)
    }

    /// Adds a value given by an expression. Floats that could be too large are scaled
    /// down; what rounds loses its exactness; gradients flow from all operands.
    fn expr(&mut self, text: String, mut value: Value) -> Option<usize> {
        if value.rank() > 4 || !self.small(&value.shape) || value.lo > value.hi {
            return None;
        }
        let mut text = text;
        if value.is_float() && value.size() > LARGEST {
            let shift = (value.size() / 4.0).log2().ceil() as i32;
            let factor = 2f64.powi(-shift);
            text = format!("({text}) * {factor:?}");
            (value.lo, value.hi) = (value.lo * factor, value.hi * factor);
            value.exact = value.exact.map(|f| f + shift);
        }
        value.exact = value.exact.filter(|f| fits(value.dtype, value.size(), *f));
        if value.is_float() {
            for i in operands(&text) {
                let slopes = self.val(i).slopes.clone();
                value.slopes.extend(slopes);
            }
        }
        Some(self.source(value, Source::Expr(text)))
    }

    /// As [`Gen::expr`], for what no gradient goes through.
    fn flat(&mut self, text: String, value: Value) -> Option<usize> {
        let at = self.expr(text, value)?;
        self.stmts[at].value.slopes.clear();
        Some(at)
    }
}
