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

#[path = "rules/instances.rs"]
mod instances;

use egg::Id;
use instances::{Instance, sizes};
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
