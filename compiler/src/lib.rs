//! tfc: compiles dataflow graphs into native code.
//!
//! A graph is text ([`parse`], [`load()`]) or is built in Rust ([`GraphBuilder`]).
//! [`compile`] makes it a [`Module`] of machine code in memory, whose entries are
//! called with `ndarray` arrays from any thread. The `tfc` command makes
//! executables and libraries of the same graphs.
//!
//! ```
//! use tfc::ndarray::array;
//!
//! let graph = tfc::parse(
//!     "graph demo\n\
//!      dim B\n\
//!      entry norm(x: f32[B, 2]) -> (y: f32[B]) { return sqrt(sum(x * x, axes: [1])) }",
//! )?;
//! let module = tfc::compile(&graph)?;
//! let out = module.call("norm", (&array![[3.0f32, 4.0], [6.0, 8.0]],))?;
//! assert_eq!(out.array::<f32>("y")?, array![5.0, 10.0].into_dyn());
//!
//! // What does not fit is an error in the caller's words.
//! let err = module.call("norm", (&array![[1.0f32]],)).unwrap_err();
//! assert!(err.to_string().contains("x"), "{err}");
//! # Ok::<(), tfc::Error>(())
//! ```
//!
//! Code map
//!
//! - [`builder`]: graphs made in Rust; [`mod@load`]: graphs from text;
//! - [`driver`]: passes and lowering, timed; [`module`]: compiled code in memory;
//! - [`signature`]: what a module has; [`value`]: arrays in, arrays out;
//! - [`emit`], [`header`], [`dump`]: what can be written out; [`link`]: object +
//!   runtime -> executable or library; [`target`]: for which machine;
//! - [`gradcheck`]: gradients against finite differences; [`mod@estimate`]: what a GPU
//!   would take, by its data sheet;
//! - [`mod@error`]: failures, their codes and exit codes;
//! - [`cli`]: the `tfc` command.
//!
//! Features, all on by default
//!
//! - `cli`: the `tfc` command, [`cli`];
//! - `programs`: executables and libraries, [`emit`] and [`link`]. Without it graphs
//!   are compiled in memory only, and building this crate takes no C compiler.
//!
//! Invariant: no input makes it panic; what is wrong is an [`Error`] with a code.

#![warn(missing_docs)]

#[cfg(feature = "programs")]
mod ar;
pub mod builder;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod driver;
pub mod dump;
#[cfg(feature = "programs")]
pub mod emit;
pub mod error;
pub mod estimate;
pub mod gradcheck;
#[cfg(feature = "programs")]
pub mod header;
#[cfg(feature = "programs")]
pub mod link;
pub mod load;
pub mod module;
mod names;
pub mod queue;
#[cfg(feature = "programs")]
mod runtime_object;
mod saved;
pub mod served;
pub mod signature;
pub mod simulate;
mod source;
#[cfg(feature = "programs")]
pub mod target;
pub mod value;

pub use builder::{
    Arg, EntryBuilder, GraphBuilder, Init, Node, Operand, QueueNode, Shape, Size, Update,
};
pub use driver::{Cluster, Compiled, Device, Math, Options};
pub use error::{Error, Exit, Result};
pub use load::{load, load_inside, load_with, parse, parse_inside};
pub use module::{Entry, Module, Restored, compile, compile_with};
pub(crate) use names::names;
pub use ndarray;
pub use queue::{Queue, Runners};
pub use signature::Signature;
pub use tfc_abi::ErrorCode;
pub(crate) use tfc_abi::names::nearest;
pub use tfc_ir::{DType, Dim, Graph, Tensor, TensorType};
pub use tfc_runtime::checkpoint;
pub use tfc_runtime::net;
pub use tfc_runtime::{CallOptions, CancelToken};
pub use value::{Arrays, Element, Feed, Feeds, Outputs, Part, Results, Room, Value};

/// The guide's examples, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rust.md")]
struct Guide;
