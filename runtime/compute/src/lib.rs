//! Where compiled programs spend their time outside of their own kernels.
//!
//! | module | job |
//! |---|---|
//! | [`gemm`], [`conv`] | contractions |
//! | [`combine`] | sums of tensors of several processes |
//! | [`pool`] | threads |
//! | [`mem`], [`half`] | aligned memory, 16-bit floats |
//!
//! A crate of its own so that it is compiled for speed, and the rest of the runtime for
//! size. It knows nothing of plans or entries: only `tfc-abi`.

pub mod combine;
pub mod conv;
pub mod gemm;
#[doc(hidden)]
pub mod guard;
pub mod half;
pub mod mem;
pub mod pool;

pub use pool::Pool;
