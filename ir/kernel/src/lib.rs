//! Kernel IR: loops over scalars.
//!
//! A kernel is a nest of loops with a scalar body. Backends see only this:
//! buffers, loops, and the closed set of [`ScalarOp`]s, so a new tensor op never
//! touches code generation.
//!
//! Invariants
//! - Registers are assigned once and used below their definition, in the same
//!   or an inner loop.
//! - Addresses are [`Ix`]: affine in the loop variables with sizes that may be
//!   run-time dims, plus registers. Indices count elements, are `i64`, and are
//!   in bounds for every iteration. One exception: element 0 of an empty buffer
//!   may be loaded (its value is never used), so even an empty buffer has a
//!   readable address.
//! - A loop says what its iterations may know of each other ([`LoopKind`]); how
//!   many of them a machine runs at once is no part of the kernel, and changes no
//!   bit of its results.
//! - `ranged` loops take their bounds from the call (see `tfc_abi::KernelFn`);
//!   they are `Parallel`, and the outermost one or two loops.
//! - Buffers are distinct memory, but for what [`KernelBuf::alias`] says.

#![forbid(unsafe_code)]

pub mod contract;
pub mod dim;
pub mod interp;
pub mod locals;
pub mod math;
pub mod order;
pub mod print;
pub mod program;
pub mod scalar;
pub mod verify;
pub mod work;

use cranelift_entity::{PrimaryMap, entity_impl};
pub use dim::Dim;
pub use math::Elementary;
pub use scalar::{Scalar, ScalarOp, ScalarType};
use std::sync::Arc;
pub use tfc_abi::DType;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u32);
entity_impl!(Reg, "%");

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopVar(u32);
entity_impl!(LoopVar, "i");

#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub name: String,
    /// The memory it is called with.
    pub bufs: Vec<KernelBuf>,
    /// Memory of its own, numbered after `bufs` in loads and stores.
    pub locals: Vec<Local>,
    /// Run-time dims the kernel needs, in argument order.
    pub dims: Vec<Arc<str>>,
    pub regs: PrimaryMap<Reg, ScalarType>,
    pub loops: u32,
    pub body: Vec<Stmt>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KernelBuf {
    /// Element type in memory. A load widens (`f16`, `bf16` to f32; `i8`, `u8`
    /// to i32; `bool` to a truth value), a store narrows with rounding or
    /// wrapping.
    pub dtype: DType,
    pub len: Dim,
    pub written: bool,
    /// Bytes that the buffer's address is known to be a multiple of: at least the
    /// size of an element.
    pub align: u32,
    /// Of a written buffer: read ones that may be the same memory. Every load from
    /// such a buffer is at the address that the iteration stores to, and before
    /// that store. All other buffers are distinct memory, or are only read.
    pub alias: Vec<u32>,
}

impl KernelBuf {
    /// A buffer of which nothing more is known.
    pub fn new(dtype: DType, len: Dim, written: bool) -> KernelBuf {
        KernelBuf { dtype, len, written, align: dtype.size() as u32, alias: vec![] }
    }
}

/// Memory that holds values while one iteration of a loop lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    pub dtype: DType,
    /// Elements, for one iteration of `within`.
    pub len: Dim,
    /// Each iteration of this loop has its own (none: the whole call); at the
    /// start of the iteration it holds nothing.
    pub within: Option<LoopVar>,
    pub home: Home,
}

/// Where a local buffer may be kept: element `i` at `base + i * stride` of a
/// written buffer of the same type. Nothing else is there while the local's
/// element is in use: the buffer's own value is stored after the last load of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Home {
    pub buf: u32,
    pub base: Ix,
    pub stride: Dim,
}

impl Kernel {
    /// Element type of a buffer or a local one.
    pub fn dtype(&self, buf: u32) -> DType {
        match self.local(buf) {
            Some(local) => local.dtype,
            None => self.bufs[buf as usize].dtype,
        }
    }

    /// The local buffer of this number, if it is one.
    pub fn local(&self, buf: u32) -> Option<&Local> {
        self.locals.get((buf as usize).checked_sub(self.bufs.len())?)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    Const {
        dst: Reg,
        value: Scalar,
    },
    Op {
        dst: Reg,
        op: ScalarOp,
        args: Vec<Reg>,
    },
    /// An index as an `i64` register.
    Index {
        dst: Reg,
        ix: Ix,
    },
    Load {
        dst: Reg,
        buf: u32,
        at: Ix,
    },
    Store {
        buf: u32,
        at: Ix,
        value: Reg,
    },
    Loop(Loop),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    pub var: LoopVar,
    /// Iterations are `0..extent`, or the part of it the call asks for.
    pub extent: Dim,
    pub kind: LoopKind,
    pub ranged: bool,
    pub carried: Vec<Carried>,
    pub body: Vec<Stmt>,
}

/// What the iterations of a loop may know of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopKind {
    /// Iterations are independent and nothing is carried.
    Parallel,
    /// Iterations are independent but for reductions. With `partials` each of them
    /// is kept as [`PARTIALS`] partial results, combined in a fixed tree; without,
    /// as one running value, combined in order. A loop with `partials` has no loop
    /// inside.
    Reduce { partials: bool },
    /// A prefix combination: running values are used, iterations in order.
    Scan,
    /// Iterations in order, whatever they carry (argmax pairs).
    Sequential,
}

impl LoopKind {
    /// Whether iterations need not be run in order.
    pub fn is_free(self) -> bool {
        matches!(self, LoopKind::Parallel | LoopKind::Reduce { .. })
    }
}

/// Partial results of a reduction with `partials`, whatever the machine.
///
/// Iteration `i` (counted from the first that the loop runs) is combined with
/// partial result `i % PARTIALS`, up to the last whole [`GROUP`] of iterations.
/// Then partial result `p` is combined with `p + 8`, those eight with `p + 4`,
/// those four with `p + 2`, the two that are left, and the value before the loop
/// with the outcome. The iterations that fill no group follow one by one. So the
/// bits of a sum depend on nothing but the number of its terms: not on what else
/// its loop does, nor on whether a machine runs 4, 8 or 16 iterations at once.
pub const PARTIALS: i64 = 16;
pub const GROUP: i64 = 4;

impl Loop {
    /// Whether no loop is inside.
    pub fn is_leaf(&self) -> bool {
        !self.body.iter().any(|s| matches!(s, Stmt::Loop(_)))
    }
}

/// A value carried from one iteration to the next.
///
/// In a `Reduce` loop `next` must be `combine(acc, something independent of acc)`,
/// and nothing else may look at `acc`; in a `Scan` loop others may.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    /// Value before the first iteration; defined outside the loop.
    pub init: Reg,
    /// The running value, inside the body.
    pub acc: Reg,
    /// Value for the next iteration; defined in the body.
    pub next: Reg,
    /// The final value, usable after the loop.
    pub result: Reg,
    pub combine: Combine,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    Sum,
    Prod,
    Max,
    Min,
    And,
    Or,
    /// Neither a reduction nor a scan (argmax pairs): the loop is `Sequential`.
    Sequential,
}

impl Combine {
    /// What combines two values; of `Sequential` ones the body computes the next.
    pub fn op(self) -> ScalarOp {
        match self {
            Combine::Sum | Combine::Sequential => ScalarOp::Add,
            Combine::Prod => ScalarOp::Mul,
            Combine::Max => ScalarOp::Max,
            Combine::Min => ScalarOp::Min,
            Combine::And => ScalarOp::And,
            Combine::Or => ScalarOp::Or,
        }
    }

    /// The value that changes nothing when combined.
    pub fn identity(self, ty: ScalarType) -> Scalar {
        use ScalarType::*;
        match (self, ty) {
            (Combine::Sum, F32 | F64) => Scalar::of(ty, -0.0),
            (Combine::Max, F32 | F64) => Scalar::of(ty, f64::NEG_INFINITY),
            (Combine::Min, F32 | F64) => Scalar::of(ty, f64::INFINITY),
            (Combine::Max, I32) => Scalar::I32(i32::MIN),
            (Combine::Max, I64) => Scalar::I64(i64::MIN),
            (Combine::Min, I32) => Scalar::I32(i32::MAX),
            (Combine::Min, I64) => Scalar::I64(i64::MAX),
            (Combine::And, I32) => Scalar::I32(-1),
            (Combine::And, I64) => Scalar::I64(-1),
            (Combine::And | Combine::Min, Bool) => Scalar::Bool(true),
            (Combine::Prod, _) => Scalar::of(ty, 1.0),
            _ => Scalar::of(ty, 0.0),
        }
    }
}

/// `offset + sum of var * stride + sum of reg * stride`, in elements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ix {
    pub offset: Dim,
    /// Sorted by loop variable; no zero strides.
    pub terms: Vec<(LoopVar, Dim)>,
    pub regs: Vec<(Reg, Dim)>,
}

impl Ix {
    pub fn constant(offset: i64) -> Ix {
        Ix { offset: Dim::constant(offset), terms: vec![], regs: vec![] }
    }

    pub fn var(var: LoopVar) -> Ix {
        Ix { offset: Dim::constant(0), terms: vec![(var, Dim::constant(1))], regs: vec![] }
    }

    pub fn reg(reg: Reg) -> Ix {
        Ix { offset: Dim::constant(0), terms: vec![], regs: vec![(reg, Dim::constant(1))] }
    }

    pub fn scale(&self, by: &Dim) -> Ix {
        if by.is_zero() {
            return Ix::constant(0);
        }
        Ix {
            offset: self.offset.clone() * by.clone(),
            terms: self.terms.iter().map(|(v, s)| (*v, s.clone() * by.clone())).collect(),
            regs: self.regs.iter().map(|(r, s)| (*r, s.clone() * by.clone())).collect(),
        }
    }

    pub fn plus(&self, other: &Ix) -> Ix {
        let mut terms: std::collections::BTreeMap<LoopVar, Dim> =
            self.terms.iter().cloned().collect();
        for (v, s) in &other.terms {
            let sum = terms.remove(v).unwrap_or(Dim::constant(0)) + s.clone();
            if !sum.is_zero() {
                terms.insert(*v, sum);
            }
        }
        Ix {
            offset: self.offset.clone() + other.offset.clone(),
            terms: terms.into_iter().collect(),
            regs: [self.regs.as_slice(), other.regs.as_slice()].concat(),
        }
    }

    /// Elements between consecutive iterations of `var`.
    pub fn stride(&self, var: LoopVar) -> Dim {
        self.terms.iter().find(|(v, _)| *v == var).map_or(Dim::constant(0), |(_, s)| s.clone())
    }

    pub fn as_const(&self) -> Option<i64> {
        if self.terms.is_empty() && self.regs.is_empty() { self.offset.as_const() } else { None }
    }
}
