//! How far rounding may move the values of a graph.
//!
//! Which values were rounded follows from where they come from, not from what they look
//! like: weights that add up to 1 were rounded, and the 1 may be off.

use crate::feeds::Rng;
use std::collections::BTreeSet;
use tfc_ir::graph::{Def, Func};
use tfc_ir::lower::Lower;
use tfc_ir::op::Moves;
use tfc_ir::{DType, Node, NodeId, Tensor, ValueId};

/// Half a unit in the last place of 1.
pub(super) fn unit(dtype: DType) -> f64 {
    2f64.powi(-super::precision(dtype))
}

/// How many units in the last place one op may be off: what functions are allowed, and
/// for each term of a sum a part of a rounding, since those of equal terms all go the
/// same way. Sums of narrow floats are made in wider ones.
pub(super) fn roundings(dtype: DType, longest: usize) -> f64 {
    let most = if matches!(dtype, DType::F16 | DType::BF16) { 16.0 } else { f64::INFINITY };
    (8.0 + longest as f64 / 4.0).min(most)
}

/// Which elements of a value may be moved.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Nudged {
    None,
    /// Those that are no simple numbers.
    Odd,
    All,
}

/// The values that depend on a rounding.
pub(super) struct Rounded<'a> {
    pub(super) func: &'a Func,
    pub(super) values: BTreeSet<ValueId>,
}

impl Rounded<'_> {
    /// Which elements of a value rounding may have moved, now that it is known
    /// whether all of them are simple.
    pub(super) fn of(&mut self, value: ValueId, simple: bool) -> Nudged {
        let Some(id) = self.func.def(value) else { return Nudged::None };
        let node = &self.func.nodes[id];
        let before = node.operands.iter().any(|v| self.has(*v)) || !node.regions.is_empty();
        let rounds = !moves(node);
        if before || (rounds && !simple) {
            self.values.insert(value);
        }
        match (rounds, before) {
            (false, _) => Nudged::None,
            (true, false) => Nudged::Odd,
            (true, true) => Nudged::All,
        }
    }

    /// Nothing has rounded what is fed. But a sum of many terms that cancel is off by a
    /// part of its terms, not of itself: as if each term had been moved a little.
    pub(super) fn feed(
        &mut self,
        param: ValueId,
        tensor: &mut Tensor,
        longest: usize,
        rng: &mut Rng,
    ) {
        let dtype = tensor.dtype();
        self.values.insert(param);
        let unit = unit(dtype) * roundings(dtype, longest) / 2.0;
        let moved = tensor.to_f64().into_iter().map(|v| nudge(v, unit, Nudged::Odd, rng));
        *tensor = Tensor::from_f64(dtype, tensor.shape().to_vec(), moved);
    }

    /// What loops carry and what they left behind may be anything.
    fn has(&self, value: ValueId) -> bool {
        let float = self.func.ty(value).dtype.is_float();
        let carried = match self.func.values[value].def {
            Def::Param(region, _) => region != self.func.body,
            Def::Node(id, _) => self.func.nodes[id].operands.is_empty() && !is_const(self.func, id),
        };
        self.values.contains(&value) || (float && carried)
    }
}

fn is_const(func: &Func, id: NodeId) -> bool {
    matches!(func.nodes[id].op.def().lower, Lower::Constant)
}

/// Whether the elements of the result are elements of an operand.
fn moves(node: &Node) -> bool {
    let def = node.op.def();
    match def.lower {
        Lower::Reduce(kind) => !kind.rounds(),
        _ => !matches!(def.facts.moves, Moves::Nothing | Moves::Converted),
    }
}

/// Whether a number is so simple that no rounding took place, if none did before.
pub(super) fn simple(v: f64) -> bool {
    let grid = v * 256.0;
    grid == grid.round() || !v.is_finite()
}

/// Moves a value by up to a few roundings.
pub(super) fn nudge(v: f64, unit: f64, nudged: Nudged, rng: &mut Rng) -> f64 {
    let moves = match nudged {
        Nudged::None => false,
        Nudged::Odd => !simple(v),
        Nudged::All => v.is_finite(),
    };
    if moves { v * (1.0 + unit * (2.0 * rng.unit() - 1.0)) } else { v }
}
