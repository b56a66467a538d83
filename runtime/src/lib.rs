//! What compiled programs link: it loads a plan, binds run-time dims, runs the
//! steps, and talks to files and to the user.
//!
//! | module | job |
//! |---|---|
//! | [`model`] | a loaded program, called from any thread |
//! | [`bind`] | run-time dims from the shapes of feeds, and what to say when they do not fit |
//! | [`exec`], [`geometry`] | going through the steps, after checking their sizes |
//! | [`device`], [`calls`] | carrying them out |
//! | [`cuda`] | doing so on NVIDIA's GPUs |
//! | [`state`] | variables and who may touch them when |
//! | [`queue`], [`reader`] | elements between threads, records from files |
//! | [`tfc_compute`] | contractions, threads, memory |
//! | [`checkpoint`], [`mod@hash`] | saving a run and going on with it |
//! | [`files`] | the one way files are written |
//! | [`library`] | libraries that are loaded when a program runs |
//! | [`net`] | several processes that train as one |
//! | [`io`] | .npy, .npz, .safetensors, literals |
//! | [`profile`], [`peaks`] | what steps take, and what the machine can do |
//! | [`cli`] | the command line of a compiled program |
//! | [`capi`] | the C interface |
//!
//! Invariants
//! - No input (feeds, files, state, command line) can make it panic: every
//!   failure is an [`Error`] with a code.
//! - Results do not depend on the number of threads.
//! - It knows nothing of graphs: only `tfc-abi` and [`tfc_compute`].

pub mod bind;
pub mod budget;
mod call;
pub mod calls;
pub mod capi;
pub mod checkpoint;
pub mod cli;
pub mod cuda;
mod device;
pub mod error;
pub mod exec;
pub mod files;
mod geometry;
pub mod hash;
mod indices;
pub mod io;
pub mod launcher;
mod library;
pub mod model;
pub mod net;
mod numerics;
pub mod parts;
pub mod peaks;
mod place;
pub mod profile;
pub mod queue;
pub mod reader;
pub mod sandbox;
pub mod show;
mod stack;
pub mod state;
pub mod tensor;
mod vars;

pub use call::{CallOptions, CancelToken};
pub use error::{Error, ErrorCode, ErrorKind, Result};
pub use model::{Model, ModelOptions, Prepared, Print};
pub use place::Choice;
pub use sandbox::Sandbox;
pub use tensor::{FeedView, ResultView, TensorBuf};
#[doc(hidden)]
pub use tfc_compute::guard;
pub use tfc_compute::{Pool, conv, gemm, half, mem, pool};
