//! Makes one product of a sum of small ones.
//!
//! A weight that is used many times, as in an unrolled recurrent network, has a sum of
//! products for its gradient, one for each use:
//!
//! ```text
//! dw = x1ᵀ g1 + x2ᵀ g2 + ..          each as large as w
//! ```
//!
//! That writes and reads a matrix of the weight's size for every term. Joined along the axis
//! that is summed over, the operands need one product, and the matrix is written once:
//!
//! ```text
//! dw = concat(x1, x2, ..)ᵀ concat(g1, g2, ..)
//! ```
//!
//! The sum is then rounded in another order, so `--strict` leaves it as it is written. So does
//! `--recompute`: joined operands are all alive at once.

use crate::egraph::FloatMode;
use crate::pipeline::{PassOptions, Passed};
use crate::util::{Stop, each_func, rewrite};
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::Rewriter;
use tfc_ir::diag::Diag;
use tfc_ir::lower::{Contraction, Lower};
use tfc_ir::{Attr, Attrs, Func, Graph, NodeId, Op, ValueId};

/// A product is joined with others if its result has this many times the elements of its
/// operands: joining them copies the operands, and saves writing and reading the result.
const GAIN: i64 = 2;

pub fn products(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    if options.egraph.mode == FloatMode::Strict || options.recompute > 0 {
        return Ok(Passed::new(graph, false));
    }
    each_func(graph, |graph, func| {
        let sums = sums(func);
        if sums.is_empty() {
            return Ok((func.clone(), false));
        }
        let new = rewrite(graph, func, &mut |r, id| match sums.get(&id) {
            Some(terms) => Ok(Some(vec![joined(r, id, terms)?])),
            None => Ok(None),
        })?;
        Ok((new, true))
    })
}

/// A term of a sum.
enum Term {
    Other(ValueId),
    /// Products to be joined.
    Products(Vec<NodeId>),
}

/// What products that are joined must have in common.
type Form = (bool, bool);

/// Where sums are looked for: one region.
struct Sums<'f> {
    func: &'f Func,
    /// How often each value is used in the function.
    uses: &'f BTreeMap<ValueId, usize>,
    /// The nodes of the region.
    here: BTreeSet<NodeId>,
}

/// The sums of a function in which products can be joined, by the last node of each.
fn sums(func: &Func) -> BTreeMap<NodeId, Vec<Term>> {
    let mut uses: BTreeMap<ValueId, usize> = BTreeMap::new();
    let operands = func.nodes.values().flat_map(|n| &n.operands);
    let results = func.regions.values().flat_map(|r| &r.results);
    for value in operands.chain(results) {
        *uses.entry(*value).or_default() += 1;
    }
    let mut out = BTreeMap::new();
    for region in func.regions.values() {
        let sums = Sums { func, uses: &uses, here: region.nodes.iter().copied().collect() };
        // From the end: additions inside a larger sum come before its last one.
        let mut inside = BTreeSet::new();
        for id in region.nodes.iter().rev() {
            if func.nodes[*id].op == Op::Add && !inside.contains(id) {
                let terms = sums.terms(*id, &mut inside);
                if terms.iter().any(|t| matches!(t, Term::Products(_))) {
                    out.insert(*id, terms);
                }
            }
        }
    }
    out
}

impl Sums<'_> {
    /// The terms of the sum that ends in a node, in their order. The additions it is made of
    /// are `inside`.
    fn terms(&self, sum: NodeId, inside: &mut BTreeSet<NodeId>) -> Vec<Term> {
        let mut values = vec![];
        let mut left: Vec<ValueId> = self.func.nodes[sum].operands.iter().rev().copied().collect();
        while let Some(value) = left.pop() {
            match self.only_for_this(value, sum) {
                Some(id) if self.func.nodes[id].op == Op::Add => {
                    inside.insert(id);
                    left.extend(self.func.nodes[id].operands.iter().rev());
                }
                _ => values.push(value),
            }
        }
        let mut groups: BTreeMap<Form, Vec<NodeId>> = BTreeMap::new();
        for value in &values {
            if let Some((form, id)) = self.small_product(*value, sum) {
                groups.entry(form).or_default().push(id);
            }
        }
        groups.retain(|_, products| products.len() > 1);
        let mut terms = vec![];
        for value in values {
            let product =
                self.small_product(value, sum).filter(|(form, _)| groups.contains_key(form));
            match product {
                None => terms.push(Term::Other(value)),
                // All of them stand where the first one stood.
                Some((form, id)) if groups[&form][0] == id => {
                    terms.push(Term::Products(groups[&form].clone()));
                }
                Some(_) => {}
            }
        }
        terms
    }

    /// The node of a value that nothing else uses, beside the sum.
    fn only_for_this(&self, value: ValueId, sum: NodeId) -> Option<NodeId> {
        let id = self.func.def(value).filter(|id| self.here.contains(id))?;
        let same_place = self.func.nodes[id].device == self.func.nodes[sum].device;
        (self.uses.get(&value) == Some(&1) && same_place).then_some(id)
    }

    /// A product that is worth joining with others.
    fn small_product(&self, value: ValueId, sum: NodeId) -> Option<(Form, NodeId)> {
        let id = self.only_for_this(value, sum)?;
        let node = &self.func.nodes[id];
        let Lower::Contract(Contraction::MatMul) = node.op.def().lower else { return None };
        let ty = self.func.ty(value);
        let elements = |v: ValueId| self.func.ty(v).elements().as_const();
        let operands = elements(node.operands[0])?.checked_add(elements(node.operands[1])?)?;
        let gains = elements(value)? >= operands.checked_mul(GAIN)?;
        let form = (node.attrs.bool("trans_a"), node.attrs.bool("trans_b"));
        (ty.dtype.is_float() && ty.rank() == 2 && gains).then_some((form, id))
    }
}

/// The sum of the terms.
fn joined(r: &mut Rewriter<'_>, sum: NodeId, terms: &[Term]) -> Result<ValueId, Stop> {
    let mut total = None;
    for term in terms {
        let value = match term {
            Term::Other(value) => r.get(*value),
            Term::Products(products) => product(r, products)?,
        };
        total = Some(match total {
            None => value,
            Some(before) => {
                let origin = r.old.nodes[sum].origin();
                r.builder(&origin).emit(Op::Add, &[before, value], Attrs::none())?
            }
        });
    }
    // A sum has terms.
    Ok(total.unwrap_or_else(|| r.get(r.old.nodes[sum].operands[0])))
}

/// One product of joined operands.
fn product(r: &mut Rewriter<'_>, products: &[NodeId]) -> Result<ValueId, Stop> {
    let first = &r.old.nodes[products[0]];
    // Where the axis is that is summed over.
    let axes = [i64::from(!first.attrs.bool("trans_a")), i64::from(first.attrs.bool("trans_b"))];
    let mut operands = vec![];
    for (i, axis) in axes.into_iter().enumerate() {
        let parts: Vec<ValueId> =
            products.iter().map(|id| r.get(r.old.nodes[*id].operands[i])).collect();
        let attrs = Attrs::none().with("axis", Attr::Int(axis));
        operands.push(r.builder(&first.origin()).emit(Op::Concat, &parts, attrs)?);
    }
    Ok(r.builder(&first.origin()).emit(first.op, &operands, first.attrs.clone())?)
}
