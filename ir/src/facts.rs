//! What an op says about its results beyond their types.
//!
//! Rewriting, fusion, the min-cut and the checks of indices ask for these instead of
//! knowing ops. Nothing here has to be said for a result to be right: a fact that is
//! left out costs an optimisation, so an op says what it knows and lets
//! `..Facts::NONE` stand for the rest. A fact that is wrong makes results wrong;
//! `ir/tests/facts.rs` tries them on values.

use crate::magnitude::Magnitude;
use crate::rule::Fact;
use crate::{Attrs, DType, Dim, Func, Op, TensorType, ValueId};

#[derive(Clone, Copy)]
pub struct Facts {
    /// The two operands may change places.
    pub commutes: bool,
    /// Chains of the op may be grouped in another way, up to rounding.
    pub regroups: bool,
    /// Whose elements the result holds.
    pub moves: Moves,
    /// Which axes of the result the axes of the first operand lie along.
    pub axes: AxesFn,
    /// The sign and size of the elements, where they are floats.
    pub range: RangeFn,
    /// The least and the largest element, where they are integers.
    pub integers: IntegersFn,
    /// A form of the node that says the same with less.
    pub simpler: SimplerFn,
}

impl Facts {
    /// Nothing is known.
    pub const NONE: Facts = Facts {
        commutes: false,
        regroups: false,
        moves: Moves::Nothing,
        axes: |_, _, _| None,
        range: |_| Range::NOTHING,
        integers: |_| None,
        simpler: |_| None,
    };

    /// The two operands of a comparison or a logical op may change places.
    pub const COMMUTES: Facts = Facts { commutes: true, ..Facts::NONE };

    /// Results are no larger than one, and finite where the operand is.
    pub const AT_MOST_ONE: Facts = Facts {
        range: |cx| Range {
            facts: cx.facts(0) & FINITE,
            size: Magnitude::at_most(0),
            ..Range::NOTHING
        },
        ..Facts::NONE
    };
}

/// Whose elements a result holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moves {
    /// It computes its own.
    Nothing,
    /// It is the first operand.
    Same,
    /// All of the first operand, in the same order under another shape.
    Reshaped,
    /// The first operand in another element type.
    Converted,
    /// Each element of the first operand, repeated along axes.
    Repeated,
    /// All of the first operand in another order.
    Reordered,
    /// Some of the first operand, at places that the attributes say.
    Part,
    /// Some of the first operand, at places that other operands say, or zeros where it
    /// is empty.
    Picked,
    /// The first operand with a box of it replaced by the second.
    Replaced,
    /// Elements of the second operand or of the third.
    Chosen,
    /// All operands side by side.
    Joined,
    /// Follows from the index of the element and a comparison at most.
    Counted,
}

impl Moves {
    /// The operands whose elements the result consists of, if it holds nothing else.
    pub fn sources(self, operands: usize) -> Option<std::ops::Range<usize>> {
        match self {
            Moves::Same | Moves::Reshaped | Moves::Repeated | Moves::Reordered | Moves::Part => {
                Some(0..1)
            }
            Moves::Chosen => Some(1..3),
            Moves::Joined => Some(0..operands),
            Moves::Nothing
            | Moves::Converted
            | Moves::Picked
            | Moves::Replaced
            | Moves::Counted => None,
        }
    }

    /// Whether the result holds nothing but elements of the first operand.
    pub fn is_move(self) -> bool {
        self.sources(1) == Some(0..1) && self != Moves::Joined
    }

    /// Whether rows or a box are taken out of the first operand.
    pub fn takes_part(self) -> bool {
        matches!(self, Moves::Part | Moves::Picked)
    }

    /// Whether an element takes next to nothing to be found again.
    pub fn is_cheap(self) -> bool {
        matches!(self, Moves::Repeated | Moves::Reordered | Moves::Part | Moves::Counted)
    }
}

/// By axis of the first operand, the axis of the result it lies along; none for an
/// axis that does not appear there. `None` if axes do not stay what they are.
pub type AxesFn =
    fn(attrs: &Attrs, operand: &TensorType, result: &TensorType) -> Option<Vec<Option<usize>>>;

/// Facts and magnitudes of the elements of a float tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Of [`Fact`].
    pub facts: u8,
    pub size: Magnitude,
    /// Axes along each row of which some element is zero (and none is larger),
    /// or one is NaN: `x - max(x)`.
    pub peaks: u32,
}

pub const NONNEG: u8 = Fact::NonNeg.bit();
pub const FINITE: u8 = Fact::Finite.bit();
pub const NONZERO: u8 = Fact::NonZero.bit();
pub const NONPOS: u8 = Fact::NonPos.bit();

impl Range {
    pub const NOTHING: Range = Range { facts: 0, size: Magnitude::ANY, peaks: 0 };

    pub const fn new(facts: u8, size: Magnitude) -> Range {
        Range { facts, size, peaks: 0 }
    }

    /// What is known of a value that has both.
    pub fn and(self, other: Range) -> Range {
        Range {
            facts: self.facts | other.facts,
            size: self.size.and(other.size),
            peaks: if self.peaks == 0 { other.peaks } else { self.peaks },
        }
    }

    /// What is known of a value that is one of the two.
    pub fn or(self, other: Range) -> Range {
        Range { facts: self.facts & other.facts, size: self.size.or(other.size), peaks: 0 }
    }

    /// All elements are this value.
    pub fn of_splat(value: f64) -> Range {
        let mut facts = 0;
        for (fact, holds) in [
            (NONNEG, value.is_sign_positive()),
            (FINITE, value.is_finite()),
            (NONZERO, value != 0.0 && !value.is_nan()),
            (NONPOS, value <= 0.0),
        ] {
            facts |= if holds { fact } else { 0 };
        }
        Range::new(facts, Magnitude::of(value))
    }
}

/// What a node says of its result, from what is known of its operands. Asked for
/// floats only.
pub type RangeFn = fn(&dyn RangeCx) -> Range;

/// What an op may ask for. Implemented by the e-graph.
pub trait RangeCx {
    fn attrs(&self) -> &Attrs;
    fn result(&self) -> &TensorType;
    fn operand(&self, i: usize) -> &TensorType;
    fn range(&self, i: usize) -> Range;
    /// Whether two operands are known to be equal.
    fn same(&self, i: usize, j: usize) -> bool;
    /// The axes along which the second operand is this reduction of the first, repeated
    /// along them: `x - max(x)`.
    fn own_reduction(&self, op: Op) -> Option<u32>;
    /// If operand `i` is this op of something, the [`Range::peaks`] of that.
    fn peaks_under(&self, i: usize, op: Op) -> Vec<u32>;

    fn facts(&self, i: usize) -> u8 {
        self.range(i).facts
    }

    fn has(&self, i: usize, fact: Fact) -> bool {
        self.facts(i) & fact.bit() != 0
    }

    fn size(&self, i: usize) -> Magnitude {
        self.range(i).size
    }
}

/// Elements are at least `start` and below `end`.
#[derive(Clone, Debug)]
pub struct IntRange {
    pub start: i64,
    pub end: Dim,
}

impl IntRange {
    pub fn shifted(self, by: i64) -> Option<IntRange> {
        Some(IntRange { start: self.start.checked_add(by)?, end: self.end + by.into() })
    }

    /// What is known of a value that is in one of the two.
    pub fn or(self, other: IntRange) -> Option<IntRange> {
        let start = self.start.min(other.start);
        let end = if (self.end.clone() - other.end.clone()).is_never_negative() {
            self.end
        } else if (other.end.clone() - self.end).is_never_negative() {
            other.end
        } else {
            return None;
        };
        Some(IntRange { start, end })
    }

    /// The range itself, if an element type can hold it.
    pub fn within(self, dtype: DType) -> Option<IntRange> {
        let (low, high) = match dtype {
            DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
            DType::U8 => (0, i64::from(u8::MAX)),
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::I64 => return Some(self),
            _ => return None,
        };
        let fits = match self.end.as_const() {
            Some(end) => end - 1 <= high,
            // A dim that no i32 holds would take 2^31 elements to give.
            None => dtype == DType::I32,
        };
        (fits && self.start >= low).then_some(self)
    }

    /// Every index of an axis of this size, in an element type.
    pub fn indices_of(size: &Dim, dtype: DType) -> Option<IntRange> {
        IntRange { start: 0, end: size.clone() }.within(dtype)
    }
}

/// Bounds of the elements of a tensor of integers.
pub type IntegersFn = fn(&IntegersCx<'_>) -> Option<IntRange>;

/// What an op may look at.
pub struct IntegersCx<'a> {
    pub attrs: &'a Attrs,
    pub operands: &'a [&'a TensorType],
    pub result: &'a TensorType,
    pub range: &'a dyn Fn(usize) -> Option<IntRange>,
    /// The one value of an operand.
    pub constant: &'a dyn Fn(usize) -> Option<i64>,
}

impl IntegersCx<'_> {
    pub fn range(&self, i: usize) -> Option<IntRange> {
        (self.range)(i)
    }
}

/// A form of the node that says the same with less. Unlike a rule it is used always,
/// before anything else looks at the graph.
pub type SimplerFn = fn(&SimplerCx<'_>) -> Option<Simpler>;

pub enum Simpler {
    /// A value that is there already.
    Value(ValueId),
    Node(Op, Vec<ValueId>, Attrs),
}

/// What an op may look at.
pub struct SimplerCx<'a> {
    pub func: &'a Func,
    pub operands: &'a [ValueId],
    pub attrs: &'a Attrs,
    pub result: &'a TensorType,
}

impl<'a> SimplerCx<'a> {
    pub fn operand(&self, i: usize) -> &'a TensorType {
        self.func.ty(self.operands[i])
    }

    /// The first operand of the node that defines an operand, if it is this op.
    pub fn through(&self, i: usize, op: Op) -> Option<(ValueId, &'a Attrs)> {
        let node = &self.func.nodes[self.func.def(self.operands[i])?];
        (node.op == op).then(|| (node.operands[0], &node.attrs))
    }
}
