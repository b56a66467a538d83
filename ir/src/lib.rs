//! The graph: its types, its ops, its text, its meaning.
//!
//! Code map
//! - [`ty`], [`attr`], [`tensor`]: what values look like;
//! - [`graph`]: the graph in memory; [`build`]: the only way to add nodes;
//! - [`op`]: the record each op fills in; [`ops`]: one file per op; [`facts`]: what passes
//!   may rely on;
//! - [`text`]: lexer, parser, resolver, printer, formatter;
//! - [`diag`]: spans, codes, rendering;
//! - [`eval`]: arrays of the reference semantics; [`interp`]: the interpreter;
//! - [`cost`]: what nodes cost, over run-time dims;
//! - [`kernel`]: the crate below, which has [`dim`]s and the loop IR kernels are
//!   written in;
//! - [`verify`]: what holds after every pass; [`require`]: what must hold for
//!   run-time dims.
//!
//! Invariants
//! - Nothing here knows about passes, code generation or the runtime.
//! - All maps are ordered: the same input gives the same bytes.
#![forbid(unsafe_code)]

pub mod attr;
pub mod build;
pub mod codes;
pub mod cost;
pub mod diag;
pub mod element;
pub mod eval;
pub mod facts;
pub mod graph;
pub mod interp;
pub mod lower;
pub mod magnitude;
pub mod op;
pub mod ops;
pub mod require;
pub mod rule;
pub mod stacks;
pub mod tensor;
pub mod text;
pub mod ty;
pub mod verify;
pub mod vjp;

pub use attr::{Attr, Attrs};
pub use graph::{Func, Graph, Node, NodeId, Region, RegionId, Symbol, ValueId, VarId};
pub use op::OpDef;
pub use ops::Op;
pub use tensor::Tensor;
pub use tfc_abi::DType;
pub use tfc_kernel::{self as kernel, Dim, dim, program};
pub use ty::TensorType;
