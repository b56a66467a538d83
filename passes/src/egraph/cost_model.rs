//! What a program costs: the time of its kernels after fusion, in nanoseconds.
//!
//! A kernel is a value that has to be in memory together with everything that
//! can be computed on the way to it; it costs a launch, its contraction, the
//! larger of its other arithmetic and its traffic, and some of the smaller,
//! because they overlap only in part. This follows the fuser closely enough to compare two programs, not to
//! predict a run. Sizes that are only known when the program runs are taken as
//! [`CostModel::unknown_dim`].
//!
//! The constants were measured by `examples/bench/calibrate.rs`; see
//! `docs/optimizer.md`.

use tfc_ir::element::map_cost;
use tfc_ir::lower::{Contraction, Lower, Reduction};
use tfc_ir::{Attrs, Dim, Op, TensorType};

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
            unknown_dim: 64,
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
        Lower::Contract(_) | Lower::Call(..) => Role::Contract,
        Lower::Reduce(_) | Lower::Scan(_) | Lower::Expand(_) => Role::Reduce,
        Lower::Step(_) | Lower::Never => Role::Leaf,
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
            (Contraction::ScatterAdd, [_, _, updates, ..]) => 4.0 * self.elements(updates),
            // Every element of the output side meets the filters of one channel.
            (Contraction::Conv2d, [_, filter]) => self.convolution(out, filter),
            (Contraction::Conv2dGradInput, [ct, filter]) => self.convolution(ct, filter),
            (Contraction::Conv2dGradFilter, [_, ct]) => self.convolution(ct, out),
            _ => self.elements(out),
        }
    }
}

impl CostModel {
    fn convolution(&self, output: &TensorType, filter: &TensorType) -> f64 {
        let channels = filter.shape.first().map_or(1, |d| self.size(d)).max(1);
        2.0 * self.elements(output) * self.elements(filter) / channels as f64
    }
}
