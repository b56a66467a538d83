//! What op files share: none of these is an op.

pub mod bounds;
pub(super) mod conv;
pub mod doc;
pub mod philox;
pub(super) mod pull;
pub mod queue;
pub(super) mod sizes;
pub(super) mod sort;
pub(super) mod state;
pub mod util;
pub(crate) mod window;
