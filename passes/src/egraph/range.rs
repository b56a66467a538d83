//! What is proved of the elements of a class: facts, and how large they can be. What
//! an op does to them its record says.
//!
//! Both are found from the operands alone when a node is added, and again when
//! more becomes known of them. Nothing here is a guess: a rule that regroups
//! products in the default mode relies on it.

use super::analysis::{Graph, nodes_of};
use super::lang::{Node, NodeKind};
use egg::{Id, Language};
pub use tfc_ir::facts::Range;
use tfc_ir::facts::{Moves, RangeCx};
use tfc_ir::magnitude::Magnitude;
use tfc_ir::{Attrs, Op, TensorType};

/// What a node says of its class.
pub fn of_node(g: &Graph, op: Op, attrs: &Attrs, args: &[Id], ty: &TensorType) -> Range {
    let node = Asked { g, attrs, args, ty };
    let facts = &op.def().facts;
    let is_float = ty.dtype.is_float();
    let mut out = match facts.moves.sources(args.len()) {
        Some(mut sources) => {
            let first = sources.next().map_or(Range::NOTHING, |i| node.range(i));
            Range { peaks: 0, ..sources.fold(first, |all, i| all.or(node.range(i))) }
        }
        None if is_float => (facts.range)(&node),
        None => Range::NOTHING,
    };
    out.size = if is_float { out.size.rounded(ty.dtype) } else { Magnitude::ANY };
    if facts.moves == Moves::Same {
        out.peaks = node.range(0).peaks;
    }
    out
}

struct Asked<'a> {
    g: &'a Graph,
    attrs: &'a Attrs,
    args: &'a [Id],
    ty: &'a TensorType,
}

impl RangeCx for Asked<'_> {
    fn attrs(&self) -> &Attrs {
        self.attrs
    }

    fn result(&self) -> &TensorType {
        self.ty
    }

    fn operand(&self, i: usize) -> &TensorType {
        &self.g[self.args[i]].data.ty
    }

    fn range(&self, i: usize) -> Range {
        self.g[self.args[i]].data.range
    }

    fn same(&self, i: usize, j: usize) -> bool {
        self.g.find(self.args[i]) == self.g.find(self.args[j])
    }

    fn peaks_under(&self, i: usize, op: Op) -> Vec<u32> {
        let peaks = |n: &Node| n.children().first().map(|a| self.g[*a].data.range.peaks);
        nodes_of(self.g, self.args[i], NodeKind::Op(op)).filter_map(peaks).collect()
    }

    fn own_reduction(&self, op: Op) -> Option<u32> {
        let x = self.g.find(*self.args.first()?);
        let mut at = self.g.find(*self.args.get(1)?);
        // The axis of the result each axis of the value goes along; none if it is
        // of size one.
        let mut along: Vec<Option<i64>> = (0..self.ty.rank() as i64).map(Some).collect();
        for _ in 0..4 {
            if let Some(axes) =
                nodes_of(self.g, at, NodeKind::Op(op)).find_map(|n| self.reduces(n, x, &along))
            {
                return Some(axes);
            }
            let step = self.g[at].nodes.iter().find_map(|n| {
                let Node::Op { op, attrs, args } = n else { return None };
                let facts = &op.def().facts;
                match facts.moves {
                    Moves::Same => Some((args[0], along.clone())),
                    Moves::Repeated => {
                        let (from, to) = (&self.g[args[0]].data.ty, &self.g[at].data.ty);
                        let places = (facts.axes)(self.g.analysis.attrs.get(*attrs), from, to)?;
                        let moved = |p: Option<usize>| along.get(p?).copied().flatten();
                        Some((args[0], places.into_iter().map(moved).collect()))
                    }
                    _ => None,
                }
            });
            let (next, places) = step?;
            (at, along) = (self.g.find(next), places);
        }
        None
    }
}

impl Asked<'_> {
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
