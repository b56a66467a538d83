//! Stages after the graph, as text for people and snapshots.

mod sizes;

pub use sizes::expr;

use tfc_ir::program::Program;

/// Every kernel of a program, as loop nests.
pub fn kernels(program: &Program) -> String {
    program.kernels_text()
}
