//! From graphs to better graphs, and from graphs to programs.
#![forbid(unsafe_code)]

pub mod egraph;
