//! From graphs to better graphs, and from graphs to programs.
//!
//! [`pipeline`] lists the passes in order. [`lower`] turns what they leave into
//! kernels, steps and a memory plan.
#![forbid(unsafe_code)]

pub mod egraph;
mod lower;
pub mod pipeline;

pub use lower::lower;
pub use pipeline::{Options, compile, run_passes};
