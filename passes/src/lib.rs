//! From graphs to better graphs, and from graphs to programs.
//!
//! [`pipeline`] lists the passes in order. [`lower`] turns what they leave into
//! kernels, steps and a memory plan.
#![forbid(unsafe_code)]

pub mod canonicalize;
pub mod checks;
pub mod cluster;
pub mod cost_model;
pub mod cse;
pub mod dce;
pub mod devices;
pub mod differentiate;
pub mod egraph;
pub mod expand;
pub mod fold;
mod lower;
pub mod mincut;
pub mod numerics;
pub mod partition;
pub mod pipeline;
pub mod place;
pub mod probe;
pub mod products;
pub mod recompute;
pub mod replicas;
mod restrict;
mod servers;
pub mod sparse;
pub mod split;
mod util;

pub use lower::{fused_text, lower, steps_text};
pub use pipeline::{PassOptions, compile, optimize, run_passes};
pub use restrict::restrict;
