//! How an op becomes loops, said by the op itself.
//!
//! Pure ops are lowered by *pulling*: asked for one element of its result, an
//! op asks for the elements of its operands it needs. Fusion is then just
//! answering an operand's request with the operand's own lowering instead of a
//! load.

use crate::kernel::{Combine, Elementary, Ix, Reg, Scalar, ScalarOp, ScalarType};
use crate::vjp::ExpandFn;
use crate::{Attrs, Dim, Op, TensorType};
use tfc_abi::plan::QueueAction;
pub use tfc_abi::routine::Func as Routine;

pub enum Lower {
    /// One result element from the operand elements at the same index.
    Map(fn(k: &mut dyn Pull, args: &[Reg]) -> Reg),
    /// One result element from operand elements at other indices.
    Index(fn(k: &mut dyn Pull, at: &[Ix]) -> Reg),
    /// Reduction over the attribute `axes` (and `keep`); `ArgMax` and `ArgMin`
    /// over the one `axis`.
    Reduce(Reduction),
    /// The same bytes under another shape.
    Reshape,
    /// Prefix combination along the attribute `axis`; from the end if `reverse`,
    /// leaving out the element itself if `exclusive`.
    Scan(Combine),
    /// A dense contraction the runtime does.
    Contract(Contraction),
    /// The first operand with rows added to it: where the second says, those of the
    /// third. It is brought to the result's place and changed there.
    AddRows,
    /// A routine of the runtime; its buffers are the result and the operands, its
    /// numbers what the function gives.
    Call(Routine, fn(&CallCx<'_>) -> Vec<Dim>),
    /// Rewritten into other ops before fusion.
    Expand(ExpandFn),
    /// The value is in the attributes.
    Constant,
    /// A step of its own, in the order of effects.
    Step(StepKind),
    /// Gone before lowering.
    Never,
}

/// What an op is told that calls a routine.
pub struct CallCx<'a> {
    pub attrs: &'a Attrs,
    pub operands: &'a [&'a TensorType],
    pub result: &'a TensorType,
}

/// Which step of a plan an op with an effect becomes, and what the interpreter does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// None: the variable is read where it is.
    Read,
    Assign,
    /// As an assignment of what this op makes of the variable and the operand.
    Update(Op),
    /// Rows of a variable replaced, or added to.
    ScatterRows {
        add: bool,
    },
    Save,
    Restore,
    Print,
    Assert,
    CheckFinite,
    CheckIndex,
    /// Each operand combined with its counterparts in other processes.
    Exchange,
    /// A message to another task of a cluster.
    Send,
    /// And from one.
    Recv,
    Push,
    Pop,
    Queue(QueueAction),
    /// Regions `then`, `else`.
    Branch,
    /// Regions `cond`, `body`.
    Loop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    Sum,
    Prod,
    Max,
    Min,
    And,
    Or,
    /// Index of the first largest (smallest) element, as `i32`; NaN counts as
    /// more extreme than any number, and over no elements it is 0.
    ArgMax,
    ArgMin,
}

impl Reduction {
    /// The op that makes one result of two; none where a result does not say enough.
    pub fn combining(self) -> Option<Op> {
        match self {
            Reduction::Sum => Some(Op::Add),
            Reduction::Prod => Some(Op::Mul),
            Reduction::Max => Some(Op::Maximum),
            Reduction::Min => Some(Op::Minimum),
            Reduction::And => Some(Op::And),
            Reduction::Or => Some(Op::Or),
            Reduction::ArgMax | Reduction::ArgMin => None,
        }
    }

    /// Whether each step rounds, so that half precision is summed up in `f32`.
    pub fn rounds(self) -> bool {
        matches!(self, Reduction::Sum | Reduction::Prod)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contraction {
    MatMul,
    Conv2d,
    Conv2dGradInput,
    Conv2dGradFilter,
}

/// What a pulling op may ask for. Implemented by the lowering pass.
pub trait Pull {
    /// Element `at` of operand `i`, widened to its register type.
    fn operand(&mut self, i: usize, at: &[Ix]) -> Reg;
    /// As `operand`, for an element that is dropped if an axis of one of these
    /// sizes turns out to be empty. There may be no such element then, however
    /// the operand is computed: no address is loaded but that of an element 0.
    fn guarded(&mut self, i: usize, at: &[Ix], sizes: &[Dim]) -> Reg;
    fn operand_type(&self, i: usize) -> TensorType;
    fn operand_count(&self) -> usize;
    fn result_type(&self) -> TensorType;
    fn attrs(&self) -> &Attrs;
    /// Whether an axis of this size surely has an element. The lowering pass may
    /// know more, from declared ranges.
    fn never_empty(&self, size: &Dim) -> bool {
        (size.clone() - Dim::constant(1)).is_never_negative()
    }
    /// The result has the operands' type, but: comparisons give bool, `Select`
    /// the type of its second argument. `Convert` and `Bitcast` go through
    /// [`Pull::convert`] and [`Pull::bitcast`].
    fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg;
    /// An elementary function, whose operands and result have one float type.
    fn call(&mut self, function: Elementary, args: &[Reg]) -> Reg {
        self.op(ScalarOp::Elementary(function), args)
    }
    fn convert(&mut self, x: Reg, to: ScalarType) -> Reg;
    fn bitcast(&mut self, x: Reg, to: ScalarType) -> Reg;
    fn constant(&mut self, value: Scalar) -> Reg;
    fn reg_type(&self, x: Reg) -> ScalarType;
    /// An index as an `i64` register, and back.
    fn index(&mut self, ix: &Ix) -> Reg;
    fn dynamic(&mut self, reg: Reg) -> Ix {
        Ix::reg(reg)
    }
    /// Serial loop nest over `extents`, combining what `body` gives.
    fn reduce(
        &mut self,
        combine: Combine,
        extents: &[Dim],
        body: &mut dyn FnMut(&mut dyn Pull, &[Ix]) -> Reg,
    ) -> Reg;
}
