//! What ops say of their results, tried on values.

use tfc_ir::eval::{Array, Data};
use tfc_ir::facts::{Range, RangeCx};
use tfc_ir::lower::Lower;
use tfc_ir::op::{Eval, EvalCx};
use tfc_ir::rule::Fact;
use tfc_ir::{Attr, Attrs, DType, Op, Tensor, TensorType};

const VALUES: [f64; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    0.999,
    2.0,
    -3.0,
    1e-3,
    -1e-3,
    20.0,
    -20.0,
    300.0,
    -700.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Elements of which nothing is known but their ranges.
struct Scalars<'a> {
    ranges: &'a [Range],
    ty: TensorType,
    attrs: Attrs,
}

impl RangeCx for Scalars<'_> {
    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn result(&self) -> &TensorType {
        &self.ty
    }

    fn operand(&self, _: usize) -> &TensorType {
        &self.ty
    }

    fn range(&self, i: usize) -> Range {
        self.ranges[i]
    }

    fn same(&self, _: usize, _: usize) -> bool {
        false
    }

    fn own_reduction(&self, _: Op) -> Option<u32> {
        None
    }

    fn peaks_under(&self, _: usize, _: Op) -> Vec<u32> {
        vec![]
    }
}

fn attrs_of(op: Op) -> Attrs {
    let mut attrs = Attrs::none();
    for spec in op.def().attrs {
        attrs.set(spec.name, spec.default.map_or(Attr::DType(DType::F64), |default| default()));
    }
    attrs
}

/// The op on scalars, if it is elementwise on floats.
fn apply(op: Op, values: &[f64]) -> Option<f64> {
    let def = op.def();
    let (Lower::Map(_), Eval::Pure(eval)) = (&def.lower, &def.eval) else { return None };
    if def.operands.len() != values.len() || !def.operands.iter().all(|o| o.kind.admits(DType::F64))
    {
        return None;
    }
    let array = |v: &f64| Array::from_tensor(&Tensor::splat(DType::F64, vec![], *v));
    let operands: Vec<Array> = values.iter().map(array).collect();
    let results = [TensorType::scalar(DType::F64)];
    let attrs = attrs_of(op);
    let cx = EvalCx { operands: &operands, attrs: &attrs, results: &results, dims: &|_| None };
    match &eval(&cx).ok()?.pop()?.data {
        Data::Float(v) => v.first().copied(),
        _ => None,
    }
}

/// Every value in the range of two operands, each of which may be one of two values.
#[test]
fn ranges_hold_what_they_are_said_of() {
    let mut tried = 0;
    for &op in Op::ALL {
        let facts = &op.def().facts;
        let count = op.def().operands.len();
        if !(1..=2).contains(&count) || apply(op, &VALUES[..count]).is_none() {
            continue;
        }
        tried += 1;
        let tuples: Vec<Vec<f64>> = match count {
            1 => VALUES.iter().map(|a| vec![*a]).collect(),
            _ => VALUES.iter().flat_map(|a| VALUES.iter().map(move |b| vec![*a, *b])).collect(),
        };
        for values in &tuples {
            for other in VALUES {
                let range = |v: &f64| Range::of_splat(*v).or(Range::of_splat(other));
                let ranges: Vec<Range> = values.iter().map(range).collect();
                let ty = TensorType::scalar(DType::F64);
                let said = match facts.moves.sources(count) {
                    Some(_) => ranges[0],
                    None => (facts.range)(&Scalars { ranges: &ranges, ty, attrs: attrs_of(op) }),
                };
                let said = Range { size: said.size.rounded(DType::F64), ..said };
                let got = apply(op, values).expect("an elementwise op");
                let name = op.name();
                let holds = |fact: Fact| said.facts & fact.bit() != 0;
                let at = format!("{name}{values:?} = {got:e}, where {ranges:?} gave {said:?}");
                assert!(!holds(Fact::NonNeg) || got.is_nan() || got.is_sign_positive(), "{at}");
                assert!(!holds(Fact::NonPos) || got.is_nan() || got <= 0.0, "{at}");
                assert!(!holds(Fact::Finite) || got.is_finite(), "{at}");
                assert!(!holds(Fact::NonZero) || got != 0.0 && !got.is_nan(), "{at}");
                if got != 0.0 && !got.is_nan() {
                    // Give or take a few roundings.
                    let size = got.abs();
                    let (lo, hi) = (f64::from(said.size.lo), f64::from(said.size.hi));
                    let power = |e: f64| 2f64.powf(e.clamp(-1100.0, 1100.0));
                    assert!(said.size.hi == i16::MAX || size <= power(hi) * 1.000001, "{at}");
                    assert!(said.size.lo == i16::MIN || size >= power(lo) * 0.999999, "{at}");
                }
            }
        }
    }
    assert!(tried > 30, "{tried} ops");
}

#[test]
fn operands_of_ops_that_commute_may_change_places() {
    let mut tried = 0;
    for &op in Op::ALL.iter().filter(|op| op.def().facts.commutes) {
        assert_eq!(op.def().operands.len(), 2, "{}", op.name());
        for a in VALUES {
            for b in VALUES {
                let (ab, ba) = (apply(op, &[a, b]), apply(op, &[b, a]));
                let same = match (ab, ba) {
                    (Some(x), Some(y)) => x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(),
                    (None, None) => true,
                    _ => false,
                };
                tried += usize::from(ab.is_some());
                assert!(same, "{}({a}, {b}): {ab:?} and {ba:?}", op.name());
            }
        }
    }
    assert!(tried > 1000, "{tried} pairs");
}
