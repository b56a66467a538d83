//! Stages after the graph, as text for people and snapshots.

mod sizes;

pub use sizes::expr;

use std::fmt::Write;
use tfc_ir::program::Program;

/// Every kernel of a program, as loop nests.
pub fn kernels(program: &Program) -> String {
    let mut out = String::new();
    for kernel in &program.kernels {
        let _ = writeln!(out, "{kernel}");
    }
    out
}
