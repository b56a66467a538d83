//! A compiled program before code generation: kernels, and the plan that runs
//! them.

use crate::kernel::Kernel;
use tfc_abi::plan::Plan;

#[derive(Clone, Debug, Default)]
pub struct Program {
    pub plan: Plan,
    /// In the order of `plan.kernels`.
    pub kernels: Vec<Kernel>,
    /// Bytes `plan.consts` points into; each constant is 64-byte aligned.
    pub consts: Vec<u8>,
}
