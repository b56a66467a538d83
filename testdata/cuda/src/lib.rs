//! A simulated `libcuda.so.1`: the driver calls that compiled programs make, on top of the
//! PTX simulator. It is for tests alone and is part of nothing that ships.
//!
//! Programs are not changed for it: the environment variable `TFC_CUDA` names it instead of
//! NVIDIA's driver.
//!
//! Stricter than hardware, besides what the PTX simulator is strict about:
//! - Streams are queues that run as late as they may, and of those that could go on one is
//!   drawn each time: a wait that is missing shows as a wrong result. Pinned memory is read
//!   and written when a copy runs, not when it is asked for.
//! - Memory that is freed twice, used after it was freed, or used by another GPU than its
//!   own is an error. What is left when the last context of a process is given back ends
//!   the process.
//! - What is recorded as a graph must be joined to the stream that began it.
//!
//! `TFC_SIM` has words with commas between them: `devices=2`, `memory=BYTES`,
//! `order=SEED`, `limit=INSTRUCTIONS` of a launch, and faults: `no-device`, `old-driver`, `old-gpu`, `bad-ptx`, `lost=N` (the
//! GPU fails at launch N). `TFC_SIM_LOG` names a file that gets a line with counts when the
//! last context is given back.
//!
//! Code map: [`sim`] is the driver's state and what it does; [`api`] the functions.

mod api;
mod sim;

pub use api::*;
