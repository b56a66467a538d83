//! The cost model: what is cheap enough to be computed again, what may share a kernel,
//! and what kernels cost, in nanoseconds. The e-graph, the min-cut and fusion ask here
//! and have no numbers of their own; what one element of an op costs comes from its
//! lowering ([`tfc_ir::element`]).
//!
//! A kernel is a value that has to be in memory together with everything that
//! can be computed on the way to it; it costs a launch, its contraction, the
//! larger of its other arithmetic and its traffic, and some of the smaller,
//! because they overlap only in part. Sizes that are only known when the program runs
//! are taken as [`UNKNOWN_DIM`].
//!
//! The e-graph compares programs that are never lowered, so it has to estimate their
//! kernels: [`within`] is the rule it goes by, and a test compares the count with the
//! kernels that fusion makes of whole training steps.
//!
//! The constants were measured by `examples/bench/calibrate.rs`; see
//! `docs/optimizer.md`.

use tfc_ir::element::{ElementCost, map_cost};
use tfc_ir::lower::{Contraction, Lower, Reduction};
use tfc_ir::{Attrs, Dim, Op, TensorType};

/// Size taken for a dim that is only known when the program runs.
pub const UNKNOWN_DIM: i64 = 64;
/// Nodes in one kernel, at most: keeps compile time linear and recursion flat.
pub const MAX_MEMBERS: usize = 64;
/// A producer that reads memory is computed again in this many kernels, at most.
pub const MAX_COPIES: usize = 8;
/// Different indices one kernel asks a value's elements at, at most: each is a copy
/// of the code, and what the value is computed from is asked for by every copy.
pub const MAX_PULLS: usize = 8;
/// Full reductions up to this many elements may share a kernel with their use.
pub const SMALL_REDUCTION: i64 = 4096;
/// Bytes that must be saved by computing values a second time.
pub const MIN_SAVED: i64 = 4096;

/// Operations on an element that take no longer than storing and loading it.
pub const CHEAP: u32 = 6;
/// The same for a value that would otherwise be kept from the forward to the backward
/// pass, and is long out of cache then: less than any elementary function but a
/// reciprocal root.
const CHEAP_TO_KEEP_NOT: u32 = 10;

/// Whether computing an element again takes no longer than storing and loading it.
pub fn repeats(cost: &ElementCost) -> bool {
    cost.ops <= CHEAP && !cost.loops
}

/// Whether an elementwise op is rather computed again than kept for the backward pass.
pub fn repeats_for_memory(op: Op) -> bool {
    map_cost(op).ops <= CHEAP_TO_KEEP_NOT
}

#[derive(Clone, Copy, Debug)]
pub struct CostModel {
    /// Starting a kernel, ns.
    pub launch: f64,
    /// Bytes moved per ns by kernels that move up to so many bytes, in order.
    pub traffic: [(f64, f64); 2],
    /// Simple elementwise operations per ns.
    pub scalar: f64,
    /// Multiply-adds count as two; per ns.
    pub contraction: f64,
    /// Share of the smaller of arithmetic and traffic that is not hidden behind
    /// the larger.
    pub exposed: f64,
    pub unknown_dim: i64,
}

impl Default for CostModel {
    fn default() -> CostModel {
        CostModel {
            launch: 400.0,
            traffic: [(24e6, 120.0), (f64::INFINITY, 36.0)],
            scalar: 32.0,
            contraction: 104.0,
            exposed: 0.1,
            unknown_dim: UNKNOWN_DIM,
        }
    }
}

/// How an op takes part in fusion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// In memory already.
    Leaf,
    /// Part of the code.
    Literal,
    /// The same bytes under another shape.
    View,
    Map,
    Index,
    /// Reads fused operands, leaves a value in memory.
    Reduce,
    /// Operands and result are in memory; a following map may be its epilogue.
    Contract,
}

pub fn role(op: Op) -> Role {
    match op.def().lower {
        Lower::Map(_) => Role::Map,
        Lower::Index(_) => Role::Index,
        Lower::Reshape => Role::View,
        Lower::Constant => Role::Literal,
        Lower::Contract(_) | Lower::AddRows | Lower::Call(..) => Role::Contract,
        Lower::Reduce(_) | Lower::Scan(_) | Lower::Expand(_) => Role::Reduce,
        Lower::Step(_) | Lower::Never => Role::Leaf,
    }
}

/// Whether the kernel of a reader computes a value on the way. `grows` if the reader has
/// more elements, `copies` if it repeats the value's.
pub fn within(value: Role, reader: Role, copies: bool, grows: bool) -> bool {
    match value {
        Role::Leaf => false,
        Role::Literal => true,
        // A map at the same shape is the epilogue.
        Role::Contract | Role::Reduce => reader == Role::Map && !grows,
        // Recomputing a map for every copy a broadcast makes costs more than storing it.
        Role::Map => reader != Role::Contract && !(copies && grows),
        Role::Index | Role::View => reader != Role::Contract,
    }
}

impl CostModel {
    pub fn elements(&self, ty: &TensorType) -> f64 {
        ty.shape.iter().map(|d| self.size(d) as f64).product()
    }

    pub fn size(&self, dim: &Dim) -> i64 {
        dim.eval(&|_| Some(self.unknown_dim)).unwrap_or(self.unknown_dim).max(0)
    }

    pub fn bytes_of(&self, ty: &TensorType) -> f64 {
        self.elements(ty) * ty.dtype.size() as f64
    }

    /// What kernels cost that together take `launches`, contract and then do
    /// `work` elementwise, each in ns, and move so many bytes.
    pub fn kernel(&self, launches: f64, contraction: f64, work: f64, bytes: f64) -> f64 {
        let rate = self.traffic.iter().find(|(most, _)| bytes <= *most).map_or(1.0, |t| t.1);
        let moving = bytes / rate;
        launches * self.launch + contraction + work.max(moving) + self.exposed * work.min(moving)
    }

    /// Simple operations per element (of the result; of the operand, for
    /// reductions), or all the arithmetic of a contraction.
    pub fn work(&self, op: Op, attrs: &Attrs, args: &[&TensorType], out: &TensorType) -> f64 {
        match op.def().lower {
            Lower::Contract(kind) => self.contraction_work(kind, attrs, args, out),
            Lower::AddRows => 4.0 * args.get(2).map_or(0.0, |updates| self.elements(updates)),
            Lower::Map(_) => f64::from(map_cost(op).ops.max(1)),
            Lower::Index(_) => 0.5,
            Lower::Reduce(Reduction::ArgMax | Reduction::ArgMin) => 2.0,
            Lower::Call(..) => 32.0 * args.first().map_or(0.0, |ty| self.elements(ty)),
            Lower::Reduce(_) | Lower::Scan(_) => 1.0,
            Lower::Expand(_) => 12.0,
            _ => 0.0,
        }
    }

    fn contraction_work(
        &self,
        kind: Contraction,
        attrs: &Attrs,
        args: &[&TensorType],
        out: &TensorType,
    ) -> f64 {
        let dim = |ty: &TensorType, from_end: usize| {
            let at = ty.rank().checked_sub(from_end);
            at.and_then(|i| ty.shape.get(i)).map_or(1.0, |d| self.size(d) as f64)
        };
        match (kind, args) {
            (Contraction::MatMul, [a, ..]) => {
                let inner = dim(a, if attrs.bool("trans_a") { 2 } else { 1 });
                2.0 * self.elements(out) * inner
            }
            // Every element of the output side meets the filters of one channel.
            (Contraction::Conv2d, [_, filter]) => self.convolution(out, filter),
            (Contraction::Conv2dGradInput, [ct, filter]) => self.convolution(ct, filter),
            (Contraction::Conv2dGradFilter, [_, ct]) => self.convolution(ct, out),
            _ => self.elements(out),
        }
    }

    fn convolution(&self, output: &TensorType, filter: &TensorType) -> f64 {
        let channels = filter.shape.first().map_or(1, |d| self.size(d)).max(1);
        2.0 * self.elements(output) * self.elements(filter) / channels as f64
    }
}
