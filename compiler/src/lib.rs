//! tfc: compiles dataflow graphs into native code.
//!
//! Code map
//! - [`cli`]: the `tfc` command;
//! - [`link`]: object + runtime -> executable or library;
//! - [`error`], [`report`]: failures and how they are written.

pub mod cli;
pub mod error;
pub mod link;
pub mod report;

pub use error::{Error, Exit, Result};
pub use tfc_ir::{DType, Dim, Graph, Tensor, TensorType};
