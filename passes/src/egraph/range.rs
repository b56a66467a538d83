//! What is proved of the elements of a class: facts, and how large they can be.
//!
//! Both are found from the operands alone when a node is added, and again when
//! more becomes known of them. Nothing here is a guess: a rule that regroups
//! products in the default mode relies on it.

use super::analysis::{Graph, nodes_of};
use super::lang::{Kind, Node};
use super::rules::moves_only;
use egg::Id;
use tfc_ir::magnitude::{Magnitude, bits};
use tfc_ir::rule::Fact;
use tfc_ir::{Attrs, DType, Op, TensorType};

fn bit(fact: Fact) -> u8 {
    fact.bit()
}

/// Facts and magnitudes of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub facts: u8,
    pub size: Magnitude,
    /// Axes along each row of which some element is zero (and none is larger),
    /// or one is NaN: `x - max(x)`.
    pub peaks: u32,
}

impl Range {
    pub const NOTHING: Range = Range { facts: 0, size: Magnitude::ANY, peaks: 0 };

    /// What is known of a value that has both.
    pub fn and(self, other: Range) -> Range {
        Range {
            facts: self.facts | other.facts,
            size: self.size.and(other.size),
            peaks: if self.peaks == 0 { other.peaks } else { self.peaks },
        }
    }

    /// All elements are this value.
    pub fn of_splat(value: f64) -> Range {
        let mut facts = 0;
        for (fact, holds) in [
            (Fact::NonNeg, value.is_sign_positive()),
            (Fact::Finite, value.is_finite()),
            (Fact::NonZero, value != 0.0 && !value.is_nan()),
            (Fact::NonPos, value <= 0.0),
        ] {
            facts |= if holds { bit(fact) } else { 0 };
        }
        Range { facts, size: Magnitude::of(value), peaks: 0 }
    }
}

/// What a node says of its class.
pub fn of_node(g: &Graph, op: Op, attrs: &Attrs, args: &[Id], ty: &TensorType) -> Range {
    let node = Asked { g, op, attrs, args, ty };
    let mut out = Range { facts: node.facts(), size: node.size(), peaks: 0 };
    if ty.dtype.is_float() {
        out.size = out.size.rounded(ty.dtype);
        if op == Op::Sub
            && let Some(peaks) = node.minus_own_maximum()
        {
            out.facts |= bit(Fact::NonPos);
            out.peaks = peaks;
        }
    } else {
        out.size = Magnitude::ANY;
    }
    if op == Op::StopGradient {
        out.peaks = node.range(0).peaks;
    }
    out
}

struct Asked<'a> {
    g: &'a Graph,
    op: Op,
    attrs: &'a Attrs,
    args: &'a [Id],
    ty: &'a TensorType,
}

impl Asked<'_> {
    fn range(&self, i: usize) -> Range {
        self.args.get(i).map_or(Range::NOTHING, |a| self.g[*a].data.range)
    }

    fn has(&self, i: usize, fact: Fact) -> bool {
        self.range(i).facts & bit(fact) != 0
    }

    fn operand(&self, i: usize) -> Option<&TensorType> {
        self.args.get(i).map(|a| &*self.g[*a].data.ty)
    }

    fn facts(&self) -> u8 {
        let fact = |i: usize| self.range(i).facts;
        let (nonneg, finite) = (bit(Fact::NonNeg), bit(Fact::Finite));
        let (nonzero, nonpos) = (bit(Fact::NonZero), bit(Fact::NonPos));
        if moves_only(self.op) {
            return fact(0);
        }
        if self.op == Op::Select {
            return fact(1) & fact(2);
        }
        if !self.ty.dtype.is_float() {
            return 0;
        }
        match self.op {
            Op::Exp => nonneg,
            // The sign bit of a product or quotient is the xor of the operands'.
            Op::Mul if self.g.find(self.args[0]) == self.g.find(self.args[1]) => nonneg,
            Op::Mul | Op::Div => fact(0) & fact(1) & nonneg,
            Op::Add => fact(0) & fact(1) & (nonneg | nonpos),
            Op::Sum => fact(0) & (nonneg | nonpos),
            Op::Neg => {
                fact(0) & (finite | nonzero) | if self.has(0, Fact::NonNeg) { nonpos } else { 0 }
            }
            Op::Cast => match self.operand(0).map(|t| t.dtype) {
                Some(DType::Bool | DType::U8) => nonneg | finite,
                Some(DType::I8) => finite,
                Some(DType::I32 | DType::I64) if self.ty.dtype != DType::F16 => finite,
                Some(from) if from.is_float() => fact(0) & (nonneg | nonpos),
                _ => 0,
            },
            Op::Abs => nonneg | (fact(0) & (finite | nonzero)),
            Op::Sigmoid => nonneg,
            Op::OneHot => nonneg | finite,
            Op::DimSize => nonneg,
            Op::Sign | Op::Tanh | Op::Sin | Op::Cos | Op::Erf => fact(0) & finite,
            Op::Sqrt | Op::Mean | Op::Prod | Op::ReduceMin => fact(0) & nonneg,
            Op::Relu => fact(0) & !nonpos,
            Op::Maximum => (fact(0) | fact(1)) & nonneg | fact(0) & fact(1),
            Op::Minimum => fact(0) & fact(1) | (fact(0) | fact(1)) & nonpos,
            _ => 0,
        }
    }

    fn size(&self) -> Magnitude {
        let size = |i: usize| self.range(i).size;
        if moves_only(self.op) {
            return size(0);
        }
        match self.op {
            Op::Abs | Op::Neg | Op::Relu | Op::ReduceMax | Op::ReduceMin | Op::Gather => size(0),
            Op::Maximum | Op::Minimum => size(0).or(size(1)),
            Op::Select => size(1).or(size(2)),
            Op::Concat => (1..self.args.len()).fold(size(0), |m, i| m.or(size(i))),
            Op::Add | Op::Sub => self.sum(),
            Op::Mul => size(0).times(size(1)),
            Op::Div if self.is_share() => Magnitude::at_most(0),
            Op::Div if self.has(1, Fact::NonZero) => size(0).times(size(1).reciprocal()),
            Op::Sqrt => size(0).sqrt(),
            Op::Rsqrt if self.has(0, Fact::NonZero) => size(0).sqrt().reciprocal(),
            Op::Exp if self.has(0, Fact::NonPos) => Magnitude::at_most(0),
            Op::Exp => match size(0).hi {
                // e^x is less than 2^(1.5 x).
                e if e <= 9 => {
                    let most = (1.5 * 2f64.powi(e as i32)).ceil() as i16;
                    Magnitude { lo: -most, hi: most }
                }
                _ => Magnitude::ANY,
            },
            Op::Sigmoid | Op::Tanh | Op::Sin | Op::Cos | Op::Erf => Magnitude::at_most(0),
            Op::Sign | Op::OneHot => Magnitude::UNIT,
            Op::DimSize => Magnitude { lo: 0, hi: 63 },
            Op::Cast => match self.operand(0).map(|t| t.dtype) {
                Some(DType::Bool) => Magnitude::UNIT,
                Some(DType::I8 | DType::U8) => Magnitude { lo: 0, hi: 8 },
                Some(DType::I32) => Magnitude { lo: 0, hi: 31 },
                Some(DType::I64) => Magnitude { lo: 0, hi: 63 },
                Some(from) if from.is_float() => size(0),
                _ => Magnitude::ANY,
            },
            Op::Sum => {
                let sum = size(0).summed(self.count());
                let lo = match self.has(0, Fact::NonNeg) {
                    true if self.holds_ones() => 0,
                    true => size(0).lo,
                    false => i16::MIN,
                };
                Magnitude { lo, ..sum }
            }
            Op::Mean => Magnitude::at_most(size(0).hi),
            Op::MatMul => {
                let inner = self.operand(0).and_then(|t| {
                    let at = if self.attrs.bool("trans_a") { 2 } else { 1 };
                    t.shape.get(t.rank().checked_sub(at)?)?.as_const()
                });
                size(0).times(size(1)).summed(bits(inner))
            }
            _ => Magnitude::ANY,
        }
    }

    /// A sum or difference of two.
    fn sum(&self) -> Magnitude {
        let (a, b) = (self.range(0), self.range(1));
        let hi = a.size.or(b.size).summed(1).hi;
        let both = self.op == Op::Add && self.has(0, Fact::NonNeg) && self.has(1, Fact::NonNeg);
        // What is added to something not negative makes it no smaller.
        let lo = match (self.has(0, Fact::NonZero), self.has(1, Fact::NonZero)) {
            _ if !both => i16::MIN,
            (true, false) => a.size.lo,
            (false, true) => b.size.lo,
            (true, true) => a.size.lo.max(b.size.lo),
            (false, false) => a.size.lo.min(b.size.lo),
        };
        Magnitude { lo, hi }
    }

    /// How many elements a reduction takes together, as a power of two.
    fn count(&self) -> i16 {
        let Some(ty) = self.operand(0) else { return bits(None) };
        let over = self.attrs.ints("axes").iter().map(|a| ty.shape.get(*a as usize)?.as_const());
        over.fold(0, |sum: i16, n| sum.saturating_add(bits(n))).min(bits(None))
    }

    /// Whether each row that is summed has an element that is one: `exp(x -
    /// max(x))`.
    fn holds_ones(&self) -> bool {
        let axes = self.attrs.ints("axes").iter().fold(0u32, |m, a| m | 1 << (*a as u32).min(31));
        let peaked = |n: &Node| match n {
            Node::Op { args, .. } => {
                let peaks = self.g[args[0]].data.range.peaks;
                peaks != 0 && peaks & !axes == 0
            }
            _ => false,
        };
        nodes_of(self.g, self.args[0], Kind::Op(Op::Exp)).any(peaked)
    }

    /// Whether this is `x / sum(x)` of something not negative.
    fn is_share(&self) -> bool {
        self.has(0, Fact::NonNeg) && self.own_reduction(Op::Sum).is_some()
    }

    /// The axes of `x - max(x)`.
    fn minus_own_maximum(&self) -> Option<u32> {
        self.own_reduction(Op::ReduceMax)
    }

    /// The axes along which the second operand is a reduction of the first,
    /// repeated along them.
    fn own_reduction(&self, op: Op) -> Option<u32> {
        let x = self.g.find(*self.args.first()?);
        let mut at = self.g.find(*self.args.get(1)?);
        // The axis of the result each axis of the value goes along; none if it is
        // of size one.
        let mut along: Vec<Option<i64>> = (0..self.ty.rank() as i64).map(Some).collect();
        for _ in 0..4 {
            if let Some(axes) =
                nodes_of(self.g, at, Kind::Op(op)).find_map(|n| self.reduces(n, x, &along))
            {
                return Some(axes);
            }
            let step = self.g[at].nodes.iter().find_map(|n| match n {
                Node::Op { op: Op::StopGradient, args, .. } => Some((args[0], along.clone())),
                Node::Op { op: Op::Broadcast, attrs, args } => {
                    let from = &self.g[args[0]].data.ty.shape;
                    let to = &self.g[at].data.ty.shape;
                    let places = self.g.analysis.attrs.get(*attrs).ints("axes");
                    let moved = places.iter().zip(from).map(|(p, d)| {
                        let p = *p as usize;
                        if to.get(p) == Some(d) { along.get(p).copied().flatten() } else { None }
                    });
                    Some((args[0], moved.collect()))
                }
                _ => None,
            });
            let (next, places) = step?;
            (at, along) = (self.g.find(next), places);
        }
        None
    }

    /// The axes a reduction of `x` goes over, if its result lies along the others.
    fn reduces(&self, node: &Node, x: Id, along: &[Option<i64>]) -> Option<u32> {
        let Node::Op { attrs, args, .. } = node else { return None };
        if self.g.find(args[0]) != x {
            return None;
        }
        let attrs = self.g.analysis.attrs.get(*attrs);
        let (axes, keep) = (attrs.ints("axes"), attrs.bool("keep"));
        let rank = self.ty.rank() as i64;
        let mut at = 0;
        for axis in 0..rank {
            let reduced = axes.contains(&axis);
            if reduced && !keep {
                continue;
            }
            let one = self.ty.shape.get(axis as usize).is_some_and(|d| d.is_one());
            if !reduced && !one && along.get(at).copied().flatten() != Some(axis) {
                return None;
            }
            at += 1;
        }
        let mask = axes.iter().fold(0u32, |m, a| m | 1 << (*a as u32).min(31));
        (!axes.is_empty() && rank < 31).then_some(mask)
    }
}
