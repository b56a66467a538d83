//! A simulator of the PTX that tfc emits: for tests, on machines without a GPU.
//!
//! It is stricter than any GPU. A launch fails, with the instruction and the
//! thread, when a thread
//! - reads or writes outside an allocation, or after it was freed;
//! - uses an address that is not a multiple of the size of the access;
//! - uses a register, or memory, that nothing has been written to;
//! - touches a byte that another thread of the launch writes, with no barrier
//!   between the two;
//! - waits at a barrier that others of its warp or block do not come to;
//! - divides an integer by zero.
//!
//! Code map
//! - [`parse`]: text to statements;
//! - [`decode`]: statements to a compact form, types checked;
//! - [`alu`]: what the arithmetic instructions compute;
//! - [`memory`]: allocations, their bounds, and who touched what;
//! - [`exec`]: grids, blocks and warps;
//! - [`mma`]: matrix instructions of a warp.
//!
//! Invariants
//! - What PTX leaves open is an error here, not a choice.
//! - The same launch gives the same bytes: blocks and warps run in order.
//! - An instruction that is not known is an error that names it.

#![forbid(unsafe_code)]

mod alu;
mod copies;
mod decode;
mod exec;
mod memory;
mod mma;
mod parse;

pub use decode::{Entry, Module};
pub use exec::{Arg, Launch};
pub use memory::{Ptr, Stats};

use memory::Global;

/// Why a module was not accepted or a launch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line of the PTX text, counted from 1; 0 when there is none.
    pub line: usize,
    pub message: String,
}

impl Error {
    pub(crate) fn new(line: usize, message: impl Into<String>) -> Error {
        Error { line, message: message.into() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for Error {}

/// A simulated device: its memory.
#[derive(Default)]
pub struct Device {
    global: Global,
}

impl Device {
    pub fn new() -> Device {
        Device::default()
    }

    /// `bytes` of memory that nothing has been written to.
    pub fn alloc(&mut self, bytes: usize) -> Ptr {
        self.global.alloc(bytes)
    }

    /// An allocation with this content.
    pub fn upload(&mut self, bytes: &[u8]) -> Ptr {
        let ptr = self.alloc(bytes.len());
        self.global.write(ptr, bytes).unwrap_or_else(|e| unreachable!("just allocated: {e}"));
        ptr
    }

    pub fn write(&mut self, ptr: Ptr, bytes: &[u8]) -> Result<(), Error> {
        self.global.write(ptr, bytes).map_err(|m| Error::new(0, m))
    }

    /// The content; an error where nothing has been written.
    pub fn read(&self, ptr: Ptr, len: usize) -> Result<Vec<u8>, Error> {
        self.global.read(ptr, len).map_err(|m| Error::new(0, m))
    }

    pub fn free(&mut self, ptr: Ptr) -> Result<(), Error> {
        self.global.free(ptr).map_err(|m| Error::new(0, m))
    }

    /// Allocations that were not freed.
    pub fn live(&self) -> usize {
        self.global.live()
    }

    /// Runs an entry to its end.
    pub fn launch(&mut self, module: &Module, launch: &Launch) -> Result<Stats, Error> {
        exec::launch(&mut self.global, module, launch)
    }
}
