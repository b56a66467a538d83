//! Every rewrite rule, alone, on random well-typed instances with real tensors.
//!
//! For each rule, random instances of its left-hand side are built (types,
//! attributes, constants), the rule is applied by the optimizer's own matcher,
//! and both sides are evaluated by the ops' reference semantics: on ordinary
//! values; on NaN, infinities and zeros of both signs; and on numbers from all of
//! the type's range, the largest and the subnormal ones above all. A rule that is
//! wrong, or whose declared float class promises too much, fails here. So does
//! one that promises less than what nothing here refutes, one that asks for a
//! proof of magnitudes it does not need, and one that never applies.
//!
//! What rounding may do is not guessed: the left-hand side is evaluated in `f64`,
//! once as it is and several times with every result moved by as much as the
//! element type may round it. The right-hand side may be off by a small multiple
//! of how far that goes, and no further.

use egg::Id;
use ndarray::ArrayD;
use std::collections::BTreeMap;
use tfc_ir::eval::{Array, Data};
use tfc_ir::lower::{Lower, Reduction};
use tfc_ir::magnitude::Magnitude;
use tfc_ir::op::{ElementKind, Eval, EvalCx};
use tfc_ir::rule::{Class, Fact, Pat, PatHead, Pattern, Search};
use tfc_ir::{Attr, Attrs, DType, Dim, Op, Tensor, TensorType};
use tfc_passes::egraph::analysis::{self, Graph, RuleId, TensorAnalysis};
use tfc_passes::egraph::lang::Node;
use tfc_passes::egraph::range::Range;
use tfc_passes::egraph::rules::{self, Body, Compiled, FloatMode};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn unit(&mut self) -> f64 {
        (self.next() % (1 << 24)) as f64 / (1 << 24) as f64
    }
}

/// What an input may be told of its magnitude.
const SIZES: &[Magnitude] = &[
    Magnitude::UNIT,
    Magnitude { lo: i16::MIN, hi: 0 },
    Magnitude { lo: -2, hi: 2 },
    Magnitude { lo: 0, hi: 3 },
    Magnitude { lo: -6, hi: -1 },
    Magnitude { lo: i16::MIN, hi: 4 },
];

const SHAPES: &[&[i64]] =
    &[&[], &[1], &[3], &[2, 3], &[3, 2], &[2, 2], &[1, 3], &[2, 1], &[2, 3, 2], &[2, 2, 2]];

fn shape(rng: &mut Rng) -> Vec<Dim> {
    rng.pick(SHAPES).iter().map(|d| Dim::from(*d)).collect()
}

fn sizes(shape: &[Dim]) -> Vec<usize> {
    shape.iter().map(|d| d.as_const().unwrap() as usize).collect()
}

/// What a label of the pattern stands for: op, attributes, operand types.
type Bound = (Op, Attrs, Vec<TensorType>);

/// One instance of a left-hand side under construction.
struct Instance<'a> {
    rng: &'a mut Rng,
    g: Graph,
    vars: Vec<Option<Id>>,
    heads: Vec<Option<Bound>>,
    inputs: Vec<Input>,
    dtype: DType,
    /// Inputs are told how large they are.
    bounded: bool,
    /// The last constant, which another may be the opposite of.
    constant: f64,
    assumed: Option<(usize, Fact)>,
}

#[derive(Clone)]
struct Input {
    ty: TensorType,
    range: Range,
}

impl Instance<'_> {
    fn ty(&self, id: Id) -> TensorType {
        (*self.g[id].data.ty).clone()
    }

    fn input(&mut self, var: usize, ty: TensorType) -> Id {
        let number = self.inputs.len() as u32;
        let mut range = Range::NOTHING;
        if self.bounded && ty.dtype.is_float() {
            range.size = self.rng.pick(SIZES);
            range.facts = self.rng.pick(&[0, Fact::NonPos.bit(), Fact::NonNeg.bit()]);
        }
        if let Some((at, fact)) = self.assumed
            && at == var
        {
            range.facts = fact.bit();
        }
        self.inputs.push(Input { ty: ty.clone(), range });
        analysis::add_input_within(&mut self.g, number, &ty, range)
    }

    fn splat(&mut self, value: f64, ty: &TensorType) -> Option<Id> {
        let tensor = Tensor::splat(ty.dtype, vec![], value);
        let attrs = Attrs::none().with("value", Attr::Tensor(tensor.into()));
        let scalar = analysis::add(&mut self.g, Op::Const, attrs, &[]).ok()?;
        if ty.shape.is_empty() {
            return Some(scalar);
        }
        let attrs = Attrs::none()
            .with("shape", Attr::Shape(ty.shape.clone()))
            .with("axes", Attr::Ints(vec![]));
        analysis::add(&mut self.g, Op::Broadcast, attrs, &[scalar]).ok()
    }

    fn random_type(&mut self, kind: ElementKind) -> TensorType {
        let dtype = match kind {
            ElementKind::Bool => DType::Bool,
            ElementKind::Float if !self.dtype.is_float() => DType::F32,
            ElementKind::Num if self.dtype == DType::Bool => DType::I32,
            ElementKind::Int | ElementKind::Index => DType::I32,
            ElementKind::Key => DType::I64,
            _ => self.dtype,
        };
        TensorType::new(dtype, shape(self.rng))
    }

    /// A leaf of the pattern, given the type it should have.
    fn leaf(&mut self, pat: &Pat, ty: TensorType) -> Option<Id> {
        match pat {
            Pat::Var(i) => {
                if self.vars[*i].is_none() {
                    let id = self.input(*i, ty);
                    self.vars[*i] = Some(id);
                }
                self.vars[*i]
            }
            Pat::Splat(i) => {
                if self.vars[*i].is_none() {
                    let value = match ty.dtype {
                        DType::Bool => self.rng.below(2) as f64,
                        d if d.is_float() && self.rng.below(4) == 0 => -self.constant,
                        d if d.is_float() && self.rng.below(3) == 0 => extreme(self.rng, d),
                        d if d.is_float() => self.rng.pick(&[
                            0.5, 2.0, 3.0, -2.0, -1.5, 0.25, 1.0, 0.7, -4.0, 0.0, -0.5, -0.25,
                        ]),
                        _ => self.rng.pick(&[0.0, 1.0, 2.0, -3.0, 5.0]),
                    };
                    self.constant = value;
                    self.vars[*i] = self.splat(value, &ty);
                }
                self.vars[*i]
            }
            Pat::Lit(value) if ty.dtype.is_float() || value.fract() == 0.0 => {
                self.splat(*value, &ty)
            }
            _ => None,
        }
    }

    fn build(&mut self, pat: &Pat, hint: Option<TensorType>) -> Option<Id> {
        let Pat::Op { head, label, args } = pat else {
            let ty = hint.unwrap_or_else(|| self.random_type(ElementKind::Any));
            return self.leaf(pat, ty);
        };
        if let PatHead::Vjp(op, wrt) = head {
            return self.build_vjp(*op, *wrt, *label, args);
        }
        let bound = label.and_then(|l| self.heads[l].clone());
        let op = match &bound {
            Some((op, ..)) => *op,
            None => self.rng.pick(&head.ops()),
        };
        let def = op.def();
        let elementwise = matches!(def.lower, Lower::Map(_));
        let keeps_type = elementwise && op != Op::Cast;
        let mut ids: Vec<Option<Id>> = vec![None; args.len()];
        // What is not a leaf first: it decides types.
        for (i, arg) in args.iter().enumerate() {
            ids[i] = match arg {
                Pat::Var(v) | Pat::Splat(v) => self.vars[*v],
                Pat::Lit(_) => None,
                Pat::Op { .. } => {
                    let hint = match &bound {
                        Some((_, _, types)) => types.get(i).cloned(),
                        None => hint.clone().filter(|_| keeps_type),
                    };
                    Some(self.build(arg, hint)?)
                }
            };
        }
        for (i, arg) in args.iter().enumerate() {
            if ids[i].is_some() {
                continue;
            }
            let beside: Vec<TensorType> = ids.iter().flatten().map(|id| self.ty(*id)).collect();
            let kind = def.operands[i.min(def.operands.len() - 1)].kind;
            let like = match &bound {
                Some((_, _, types)) => types.get(i).cloned(),
                None if op == Op::MatMul => self.matrix_beside(beside.first()),
                None if elementwise => {
                    let same = beside.last().cloned().or(hint.clone().filter(|_| keeps_type));
                    same.map(|t| {
                        let wrong =
                            !kind.admits(t.dtype) || op == Op::Select && i > 0 && beside.len() == 1;
                        let dtype = if wrong { self.random_type(kind).dtype } else { t.dtype };
                        TensorType::new(dtype, t.shape)
                    })
                }
                None => None,
            };
            let ty = like.unwrap_or_else(|| self.random_type(kind));
            ids[i] = Some(self.leaf(arg, ty)?);
        }
        let ids: Vec<Id> = ids.into_iter().collect::<Option<_>>()?;
        let types: Vec<TensorType> = ids.iter().map(|id| self.ty(*id)).collect();
        let attrs = match &bound {
            Some((_, attrs, _)) => attrs.clone(),
            None => random_attrs(self.rng, op, &types)?,
        };
        let id = analysis::add(&mut self.g, op, attrs.clone(), &ids).ok()?;
        if let Some(l) = label
            && bound.is_none()
        {
            self.heads[*l] = Some((op, attrs, types));
        }
        Some(id)
    }

    /// A type that can be multiplied with the one on the other side.
    fn matrix_beside(&mut self, other: Option<&TensorType>) -> Option<TensorType> {
        let dims = |rng: &mut Rng| Dim::from(rng.pick(&[1i64, 2, 3]));
        let Some(other) = other else {
            let (r, c) = (dims(self.rng), dims(self.rng));
            return Some(TensorType::new(self.dtype, vec![r, c]));
        };
        let n = other.rank().checked_sub(2)?;
        let mut shape = other.shape[..n].to_vec();
        let free = dims(self.rng);
        let inner = other.shape[n + self.rng.below(2)].clone();
        match self.rng.below(2) {
            0 => shape.extend([inner, free]),
            _ => shape.extend([free, inner]),
        }
        Some(TensorType::new(other.dtype, shape))
    }

    fn build_vjp(&mut self, op: Op, wrt: usize, label: Option<usize>, args: &[Pat]) -> Option<Id> {
        let (operands, rest) = args.split_at(args.len() - 2);
        let mut ids: Vec<Id> = vec![];
        for arg in operands {
            let hint = ids.first().map(|id| self.ty(*id));
            let ty = hint.unwrap_or_else(|| self.random_type(ElementKind::Float));
            ids.push(match arg {
                Pat::Op { .. } => self.build(arg, Some(ty))?,
                _ => self.leaf(arg, ty)?,
            });
        }
        let types: Vec<TensorType> = ids.iter().map(|id| self.ty(*id)).collect();
        let attrs = random_attrs(self.rng, op, &types)?;
        // The result is what the op computes, not just any value.
        let out = analysis::add(&mut self.g, op, attrs.clone(), &ids).ok()?;
        let Pat::Var(i) = &rest[0] else { return None };
        match self.vars[*i] {
            None => self.vars[*i] = Some(out),
            Some(bound) if bound == out => {}
            Some(_) => return None,
        }
        let ty = self.ty(out);
        let ct = match &rest[1] {
            arg @ Pat::Op { .. } => self.build(arg, Some(ty))?,
            arg => self.leaf(arg, ty)?,
        };
        ids.extend([out, ct]);
        let interned = self.g.analysis.attrs.intern(attrs.clone());
        if let Some(l) = label {
            self.heads[l] = Some((op, attrs, types));
        }
        analysis::add_vjp(&mut self.g, op, wrt, interned, &ids)
    }
}

fn random_attrs(rng: &mut Rng, op: Op, types: &[TensorType]) -> Option<Attrs> {
    let x = types.first();
    let rank = x.map_or(0, |t| t.rank());
    Some(match op {
        Op::Broadcast => {
            let mut shape = vec![];
            let mut axes = vec![];
            let mut from = x?.shape.iter();
            loop {
                if rng.below(3) == 0 && shape.len() < 4 {
                    shape.push(Dim::from(rng.pick(&[2i64, 3])));
                } else if let Some(d) = from.next() {
                    axes.push(shape.len() as i64);
                    let grow = d.is_one() && rng.below(2) == 0;
                    shape.push(if grow { Dim::from(3i64) } else { d.clone() });
                } else {
                    break;
                }
            }
            Attrs::none().with("shape", Attr::Shape(shape)).with("axes", Attr::Ints(axes))
        }
        Op::Reshape => {
            let n: i64 = x?.shape.iter().map(|d| d.as_const().unwrap()).product();
            let mut shapes: Vec<Vec<i64>> = vec![vec![n], vec![1, n], vec![n, 1]];
            for k in [2, 3, 4] {
                if n % k == 0 {
                    shapes.push(vec![k, n / k]);
                }
            }
            shapes.push(x?.shape.iter().map(|d| d.as_const().unwrap()).collect());
            let mut with_unit = shapes[shapes.len() - 1].clone();
            with_unit.insert(rng.below(rank + 1), 1);
            shapes.push(with_unit);
            let shape = rng.pick(&shapes).into_iter().map(Dim::from).collect();
            Attrs::none().with("shape", Attr::Shape(shape))
        }
        Op::Transpose => {
            let mut perm: Vec<i64> = (0..rank as i64).collect();
            for i in (1..perm.len()).rev() {
                perm.swap(i, rng.below(i + 1));
            }
            Attrs::none().with("perm", Attr::Ints(perm))
        }
        Op::Slice => {
            let (mut starts, mut ends, mut strides) = (vec![], vec![], vec![]);
            for d in &x?.shape {
                let n = d.as_const().unwrap();
                let all = rng.below(2) == 0;
                let start = if all { 0 } else { rng.below(n as usize) as i64 };
                starts.push(Dim::from(start));
                ends.push(d.clone());
                strides.push(if all { 1 } else { rng.pick(&[1i64, 1, 2]) });
            }
            Attrs::none()
                .with("starts", Attr::Shape(starts))
                .with("ends", Attr::Shape(ends))
                .with("strides", Attr::Ints(strides))
        }
        Op::Reverse => {
            let axes = (0..rank as i64).filter(|_| rng.below(2) == 0).collect();
            Attrs::none().with("axes", Attr::Ints(axes))
        }
        Op::MatMul => Attrs::none()
            .with("trans_a", Attr::Bool(rng.below(2) == 0))
            .with("trans_b", Attr::Bool(rng.below(2) == 0)),
        Op::Cast => {
            let to = rng.pick(&[
                DType::F32,
                DType::F64,
                DType::F16,
                DType::BF16,
                DType::I32,
                DType::I64,
                DType::I8,
                DType::U8,
                DType::Bool,
            ]);
            Attrs::none().with("to", Attr::DType(to))
        }
        Op::OneHot => Attrs::none().with("depth", Attr::Int(3)),
        _ if matches!(op.def().lower, Lower::Reduce(_)) || op == Op::Mean => {
            if matches!(op.def().lower, Lower::Reduce(Reduction::ArgMax | Reduction::ArgMin)) {
                return None;
            }
            let axes = (0..rank as i64).filter(|_| rng.below(2) == 0).collect();
            Attrs::none().with("axes", Attr::Ints(axes)).with("keep", Attr::Bool(rng.below(3) == 0))
        }
        _ if op.def().attrs.iter().any(|a| a.default.is_none()) => return None,
        _ => Attrs::none(),
    })
}

/// Value of a node, from the values of the inputs.
fn value(
    g: &mut Graph,
    id: Id,
    inputs: &[Array],
    memo: &mut BTreeMap<Id, Array>,
) -> Result<Array, String> {
    if let Some(v) = memo.get(&id) {
        return Ok(v.clone());
    }
    let node = g.nodes()[usize::from(id)].clone();
    let out = match &node {
        Node::Input(n) => inputs[*n as usize].clone(),
        Node::Vjp { .. } => {
            let term = rules::expand_vjp(g, &node).ok_or("no expansion")?;
            value(g, term, inputs, memo)?
        }
        Node::Op { op, attrs, args } => {
            let mut operands = vec![];
            for a in args.iter() {
                operands.push(value(g, *a, inputs, memo)?);
            }
            let attrs = g.analysis.attrs.get(*attrs).clone();
            let results = [(*g[id].data.ty).clone()];
            let Eval::Pure(eval) = op.def().eval else { return Err("no eval".into()) };
            let cx =
                EvalCx { operands: &operands, attrs: &attrs, results: &results, dims: &|_| None };
            eval(&cx)?.remove(0)
        }
    };
    memo.insert(id, out.clone());
    Ok(out)
}

/// The same in `f64`, every result moved by as much as its type may round it.
/// `by` is zero for the exact value.
fn wide(
    g: &mut Graph,
    id: Id,
    inputs: &[Array],
    by: f64,
    rng: &mut Rng,
    memo: &mut BTreeMap<Id, Array>,
) -> Result<Array, String> {
    if let Some(v) = memo.get(&id) {
        return Ok(v.clone());
    }
    let node = g.nodes()[usize::from(id)].clone();
    let out = match &node {
        Node::Input(n) => widened(&inputs[*n as usize]),
        Node::Vjp { .. } => {
            let term = rules::expand_vjp(g, &node).ok_or("no expansion")?;
            wide(g, term, inputs, by, rng, memo)?
        }
        Node::Op { op, attrs, args } => {
            let mut operands = vec![];
            for a in args.iter() {
                operands.push(wide(g, *a, inputs, by, rng, memo)?);
            }
            let mut attrs = g.analysis.attrs.get(*attrs).clone();
            for name in ["to", "dtype"] {
                if attrs.dtype(name).is_some_and(|d| d.is_float()) {
                    attrs.set(name, Attr::DType(DType::F64));
                }
            }
            let ty = (*g[id].data.ty).clone();
            let results = [match ty.dtype.is_float() {
                true => TensorType::new(DType::F64, ty.shape.clone()),
                false => ty.clone(),
            }];
            let Eval::Pure(eval) = op.def().eval else { return Err("no eval".into()) };
            let adds = matches!(
                op.def().lower,
                Lower::Reduce(_) | Lower::Contract(_) | Lower::AddRows | Lower::Scan(_)
            );
            if adds || *op == Op::Mean {
                // Sums are rounded on the way, in `f32` at least.
                for x in &mut operands {
                    moved(x, by, unit(ty.dtype).0.min(unit(DType::F32).0), 0.0, rng);
                }
            }
            let cx =
                EvalCx { operands: &operands, attrs: &attrs, results: &results, dims: &|_| None };
            let mut out = widened(&eval(&cx)?.remove(0));
            if !is_exact(*op) {
                let (relative, absolute) = unit(ty.dtype);
                moved(&mut out, by, relative, absolute, rng);
            }
            out
        }
    };
    memo.insert(id, out.clone());
    Ok(out)
}

/// Ops that never round.
fn is_exact(op: Op) -> bool {
    op.def().facts.moves.is_move()
        || matches!(
            op,
            Op::Const
                | Op::Neg
                | Op::Abs
                | Op::Relu
                | Op::Select
                | Op::Maximum
                | Op::Minimum
                | Op::ReduceMax
                | Op::ReduceMin
                | Op::Sign
                | Op::Floor
                | Op::Ceil
                | Op::Round
        )
}

fn widened(a: &Array) -> Array {
    match a.dtype.is_float() {
        true => Array { dtype: DType::F64, data: a.data.clone() },
        false => a.clone(),
    }
}

fn moved(a: &mut Array, by: f64, relative: f64, absolute: f64, rng: &mut Rng) {
    if let (Data::Float(values), true) = (&mut a.data, by != 0.0) {
        for v in values.iter_mut().filter(|v| v.is_finite()) {
            let (up, off) = (rng.unit() * 2.0 - 1.0, rng.unit() * 2.0 - 1.0);
            *v = *v * (1.0 + by * relative * up) + by * absolute * off;
        }
    }
}

/// How far a type rounds: relative to the value, and at least.
fn unit(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
        DType::BF16 => (2f64.powi(-8), 2f64.powi(-134)),
        DType::F32 => (2f64.powi(-24), 2f64.powi(-150)),
        _ => (2f64.powi(-53), 0.0),
    }
}

/// Exponents of the least number above zero and of the largest.
fn exponents(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::F16 => (-24, 15),
        DType::BF16 => (-133, 127),
        DType::F32 => (-149, 127),
        // Sums of a few of them must be finite in whatever order they are taken.
        _ => (-1074, 1018),
    }
}

/// A number from anywhere in the range of the type.
fn extreme(rng: &mut Rng, dtype: DType) -> f64 {
    let (least, most) = exponents(dtype);
    let e = match rng.below(5) {
        _ if rng.below(6) == 0 => 2 + rng.below(8) as i32,
        0 => most - rng.below(3) as i32,
        1 => least + rng.below(12) as i32,
        2 => most / 2 + rng.below(3) as i32,
        3 => least / 2 - rng.below(3) as i32,
        _ => least + rng.below((most - least) as usize + 1) as i32,
    };
    tfc_ir::eval::round_to(dtype, (1.0 + rng.unit() * 0.99) * 2f64.powi(e) * rng.pick(&[1.0, -1.0]))
}

const SPECIAL: &[f64] =
    &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 0.0, -0.0, 3.0];

/// Which values are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Draw {
    Ordinary,
    Special,
    Extreme,
}

fn holds(v: f64, range: Range) -> bool {
    let fact = |f: Fact| range.facts & f.bit() != 0;
    let pow = |e: i16| match e {
        i16::MAX => f64::INFINITY,
        i16::MIN => 0.0,
        e => 2f64.powi(e as i32),
    };
    (!fact(Fact::NonNeg) || v.is_nan() || v.is_sign_positive())
        && (!fact(Fact::Finite) || v.is_finite())
        && (!fact(Fact::NonZero) || v != 0.0 && !v.is_nan())
        && (!fact(Fact::NonPos) || v.is_nan() || v <= 0.0)
        && (v.is_nan() || v == 0.0 || (pow(range.size.lo)..=pow(range.size.hi)).contains(&v.abs()))
}

fn random_array(rng: &mut Rng, ty: &TensorType, draw: Draw, range: Range) -> Array {
    let shape = sizes(&ty.shape);
    let n: usize = shape.iter().product();
    match ty.dtype {
        DType::Bool => {
            let v = (0..n).map(|_| rng.below(2) == 0).collect();
            Array::bool(ArrayD::from_shape_vec(shape, v).unwrap())
        }
        d if d.is_float() => {
            let mut one = || {
                for _ in 0..200 {
                    let v = match draw {
                        Draw::Special if rng.below(3) > 0 => rng.pick(SPECIAL),
                        Draw::Extreme if rng.below(6) > 0 => extreme(rng, d),
                        _ => (rng.unit() * 2.9 + 0.1) * rng.pick(&[1.0, -1.0]),
                    };
                    let v = tfc_ir::eval::round_to(d, v);
                    if holds(v, range) {
                        return v;
                    }
                }
                // Narrow ranges: their lower end, which every type has.
                let sign = if range.facts & Fact::NonPos.bit() != 0 { -1.0 } else { 1.0 };
                sign * 2f64.powi(range.size.hi.min(0).max(range.size.lo) as i32)
            };
            let v = (0..n).map(|_| one()).collect();
            Array::float(d, ArrayD::from_shape_vec(shape, v).unwrap())
        }
        d => {
            let wide = [i64::from(i32::MAX), i64::from(i32::MIN), -1, 0, 1];
            let mut one = || match draw != Draw::Ordinary && rng.below(3) == 0 {
                _ if range.facts != 0 => rng.below(3) as i64,
                true => rng.pick(&wide),
                false => rng.below(7) as i64 - 3,
            };
            let v = (0..n).map(|_| one()).collect();
            Array::int(d, ArrayD::from_shape_vec(shape, v).unwrap())
        }
    }
}

/// How far apart two results are: the strongest class they are consistent with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Seen {
    Exact,
    Round,
    Refine,
    Special,
    Wrong,
}

/// What the left-hand side stands for.
struct Exactly {
    value: Array,
    /// How far the element type may take it from that.
    off: Vec<f64>,
}

/// Times the right-hand side may be off as far as the left may.
const LENIENT: f64 = 24.0;

fn exactly(g: &mut Graph, from: Id, arrays: &[Array], rng: &mut Rng) -> Result<Exactly, String> {
    let value = wide(g, from, arrays, 0.0, rng, &mut BTreeMap::new())?;
    let Data::Float(exact) = &value.data else { return Ok(Exactly { value, off: vec![] }) };
    let mut off = vec![0.0f64; exact.len()];
    for _ in 0..5 {
        let other = wide(g, from, arrays, 4.0, rng, &mut BTreeMap::new())?;
        let Data::Float(other) = &other.data else { continue };
        for ((off, e), o) in off.iter_mut().zip(exact).zip(other) {
            // What a rounding turns into something else altogether may be anything.
            let by = if e.is_nan() && o.is_nan() || e == o { 0.0 } else { (e - o).abs() };
            *off = off.max(if by.is_nan() { f64::INFINITY } else { by });
        }
    }
    Ok(Exactly { value, off })
}

fn compare(a: &Array, b: &Array, exact: &Exactly, draw: Draw) -> Seen {
    if a.dtype != b.dtype || a.shape() != b.shape() {
        return Seen::Wrong;
    }
    let (Data::Float(x), Data::Float(y)) = (&a.data, &b.data) else {
        return if a == b { Seen::Exact } else { Seen::Wrong };
    };
    let Data::Float(exact_values) = &exact.value.data else { return Seen::Wrong };
    let largest = match a.dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    };
    let (relative, absolute) = unit(a.dtype);
    let mut worst = Seen::Exact;
    for (((x, y), e), off) in x.iter().zip(y).zip(exact_values).zip(&exact.off) {
        let allowed = LENIENT * off + 8.0 * (relative * e.abs() + absolute);
        let near = |to: f64| {
            y.is_finite() && (to - y).abs() <= allowed
                || y.is_infinite() && to.signum() == y.signum() && to.abs() + allowed >= largest
        };
        let seen = if x.is_nan() && y.is_nan() || x.to_bits() == y.to_bits() {
            Seen::Exact
        } else if x.is_finite() && (near(*e) || near(*x)) {
            Seen::Round
        } else if !x.is_finite() && e.is_finite() && near(*e) {
            // It overflows on the way, and need not have.
            Seen::Round
        } else if !x.is_finite() {
            Seen::Refine
        } else if draw != Draw::Ordinary {
            Seen::Special
        } else {
            Seen::Wrong
        };
        worst = worst.max(seen);
    }
    worst
}

/// Whether `f64` itself left its range: there is nothing wider to tell what the
/// result should have been.
fn left_range(g: &Graph, memo: &BTreeMap<Id, Array>) -> bool {
    let bad = |v: &f64| !v.is_finite() || v.abs() < 2f64.powi(-1000);
    memo.iter().any(|(id, a)| {
        let computed = !matches!(g.nodes()[usize::from(*id)], Node::Input(_));
        computed && matches!(&a.data, Data::Float(v) if v.iter().any(bad))
    })
}

/// All that can be said then: what is finite stays finite.
fn stays_finite(a: &Array, b: &Array) -> bool {
    let (Data::Float(x), Data::Float(y)) = (&a.data, &b.data) else { return true };
    x.iter().zip(y).all(|(x, y)| !x.is_finite() || y.is_finite())
}

struct Outcome {
    fired: usize,
    seen: Seen,
    example: String,
}

const INSTANCES: usize = 32;

/// The same rule meets the same inputs, whatever other rules and ops there are.
fn seed(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// `mode`: what is admitted is decided as in the optimizer; without one, everything is.
fn try_rule(id: RuleId, compiled: &Compiled, mode: Option<FloatMode>) -> Outcome {
    let mut rng = Rng(seed(&compiled.name) | 1);
    let mut out = Outcome { fired: 0, seen: Seen::Exact, example: String::new() };
    let Body::Rule { rule, lhs, .. } = &compiled.body else { return out };
    let lhs: &Pattern = lhs;
    let assumed = rule
        .assumes
        .and_then(|(name, fact)| Some((lhs.vars.iter().position(|v| v == name)?, fact)));
    const DTYPES: [DType; 7] =
        [DType::F32, DType::F16, DType::F64, DType::I32, DType::BF16, DType::F16, DType::Bool];
    // Most rules are not admitted in strict mode, however often they are tried.
    let strict = mode == Some(FloatMode::Strict);
    for attempt in 0..if strict { 700 } else { 8000 } {
        // Without its proof a rule is tried until it fails.
        let enough = if mode == Some(FloatMode::Fast) { 8 * INSTANCES } else { INSTANCES };
        if out.fired >= enough || mode.is_some() && out.seen >= Seen::Special {
            break;
        }
        let mut instance = Instance {
            rng: &mut rng,
            g: Graph::new(TensorAnalysis::default()),
            vars: vec![None; lhs.vars.len()],
            heads: vec![None; lhs.labels.len()],
            inputs: vec![],
            dtype: DTYPES[attempt % 7],
            constant: 1.0,
            bounded: rule.within.is_some() && mode.is_none() && attempt % 4 != 3,
            assumed,
        };
        let Some(root) = instance.build(&lhs.root, None) else { continue };
        let (mut g, inputs) = (instance.g, instance.inputs);
        g.rebuild();
        let mut found = vec![];
        rules::search(&g, id, g.find(root), 8, &mut found);
        let Some(found) = found.first() else { continue };
        g.analysis.rule = id;
        let Some(to) = rules::instantiate(&mut g, found, mode) else { continue };
        out.fired += 1;
        assert_eq!(g[to].data.ty, g[root].data.ty, "{}: types differ", rule.name);
        let from = g.add_uncanonical(found.node.clone());
        // Integers must be equal; so must whatever has no floats in it.
        let floats =
            inputs.iter().any(|i| i.ty.dtype.is_float()) || g[root].data.ty.dtype.is_float();
        for draw in 0..24 {
            let draw = match draw {
                0..4 => Draw::Ordinary,
                4..12 => Draw::Special,
                _ => Draw::Extreme,
            };
            let arrays: Vec<Array> =
                inputs.iter().map(|i| random_array(&mut rng, &i.ty, draw, i.range)).collect();
            let mut memo = BTreeMap::new();
            let a = value(&mut g, from, &arrays, &mut memo);
            let left = draw == Draw::Extreme
                && g[root].data.ty.dtype == DType::F64
                && left_range(&g, &memo);
            let b = value(&mut g, to, &arrays, &mut memo);
            let (a, b) = match (a, b) {
                (Ok(a), Ok(b)) => (a, b),
                (a, b) => panic!("{}: {a:?} {b:?}", rule.name),
            };
            if a == b || left && stays_finite(&a, &b) {
                continue;
            }
            let exact = exactly(&mut g, from, &arrays, &mut rng)
                .unwrap_or_else(|e| panic!("{}: {e}", rule.name));
            let mut seen = compare(&a, &b, &exact, draw);
            if !floats && seen != Seen::Exact {
                seen = Seen::Wrong;
            }
            if seen > out.seen {
                out.seen = seen;
                out.example = format!(
                    "inputs {arrays:?}\n    gives {a:?}\n    not   {b:?}\n    exactly {:?}\n    splats {:?}",
                    exact.value,
                    g.classes()
                        .filter_map(|c| c.data.splat.as_ref())
                        .map(|t| t.to_f64())
                        .collect::<Vec<_>>()
                );
            }
        }
    }
    out
}

fn declared(class: Class) -> Seen {
    match class {
        Class::Exact => Seen::Exact,
        Class::Round => Seen::Round,
        Class::Refine => Seen::Refine,
        Class::Special => Seen::Special,
    }
}

/// Needs large numbers that cancel in just the right places.
const UNREFUTED: &str = "sum.weights";

/// values 2: rules of the default class keep finite things finite over all of
/// the range of each type.
#[test]
fn every_rule_keeps_its_word() {
    let only = std::env::var("TFC_RULE").ok();
    let mut problems = vec![];
    for (i, compiled) in rules::table().iter().enumerate() {
        let Body::Rule { rule, .. } = &compiled.body else { continue };
        if only.as_ref().is_some_and(|only| only != rule.name) {
            continue;
        }
        let id = RuleId(i as u16);
        let outcome = try_rule(id, compiled, None);
        if outcome.fired < 5 {
            problems.push(format!("{}: applied only {} times", rule.name, outcome.fired));
        }
        let promise = declared(rule.class);
        if outcome.seen > promise {
            problems.push(format!(
                "{}: declared {:?}, but seen {:?}: {}",
                rule.name, rule.class, outcome.seen, outcome.example
            ));
        }
        // Sums may be exact in the reference and not in a kernel: only what
        // nothing at all spoke for is too modest.
        let modest = matches!(rule.class, Class::Refine | Class::Special);
        if modest && rule.within.is_none() && outcome.seen == Seen::Exact {
            problems.push(format!(
                "{}: declared {:?}, but nothing worse than {:?} was seen",
                rule.name, rule.class, outcome.seen
            ));
        }
        let unrefuted = rule.name == UNREFUTED;
        if rule.within.is_some()
            && !unrefuted
            && try_rule(id, compiled, Some(FloatMode::Fast)).seen <= promise
        {
            let bare = try_rule(id, compiled, Some(FloatMode::Fast));
            let what = (bare.fired, bare.seen, bare.example);
            problems.push(format!("{}: needs no proof of magnitudes: {what:?}", rule.name));
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

/// What strict mode admits keeps every bit: rules of the class exact, whether they assume
/// something or not, and the others on integers.
#[test]
fn rules_that_strict_admits_keep_every_bit() {
    let (mut problems, mut fired, mut assuming) = (vec![], 0, 0);
    for (i, compiled) in rules::table().iter().enumerate() {
        let Body::Rule { rule, .. } = &compiled.body else { continue };
        let outcome = try_rule(RuleId(i as u16), compiled, Some(FloatMode::Strict));
        fired += usize::from(outcome.fired > 0);
        assuming += usize::from(outcome.fired > 0 && rule.assumes.is_some());
        if outcome.seen != Seen::Exact {
            problems.push(format!("{}: {:?}: {}", rule.name, outcome.seen, outcome.example));
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(fired >= 60 && assuming >= 3, "only {fired} were admitted, {assuming} that assume");
}

/// review 9: which inputs a rule meets depends on nothing but its name.
#[test]
fn a_rule_is_tried_on_the_same_inputs_wherever_it_stands_in_the_table() {
    assert_eq!(seed("add.zero"), 14_599_309_477_380_389_260);
    let seeds: std::collections::BTreeSet<u64> =
        rules::table().iter().map(|r| seed(&r.name)).collect();
    assert_eq!(seeds.len(), rules::table().len());
}

#[test]
fn there_are_rules_of_every_group() {
    let count = |search| rules::table().iter().filter(|r| r.search == search).count();
    let all: Vec<usize> =
        [Search::Gradients, Search::Whole, Search::Broadcasts, Search::Pieces].map(count).to_vec();
    assert!(all.iter().all(|n| *n > 0), "{all:?}");
    assert!(all.iter().sum::<usize>() >= 120, "{all:?}");
    let written = rules::table().iter().filter(|r| matches!(r.body, Body::Rule { .. })).count();
    assert!(written >= 120, "{written} written rules");
}
