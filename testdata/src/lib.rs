//! The test corpus and what its tests share.
//!
//! A case is a `.graph` file whose first line is a directive:
//!
//! ```text
//! //! run; B = 0,1,7; ids = int 0..5; x = float 0.1..2.0; tol = 1e-5
//! ```
//!
//! The first word says which test the file is for, the rest are options:
//! `NAME = 1,2,3` tries these values of a dim, `NAME = float LO..HI` and
//! `NAME = int LO..HI` (`HI` excluded for integers) bound the values fed to a
//! parameter, `tol = X` sets the relative tolerance.
//!
//! - [`directive`]: the first line, parsed;
//! - [`corpus`]: finding the files;
//! - [`feeds`]: deterministic inputs for an entry;
//! - [`compare`]: are two tensors the same, up to a tolerance?
//! - [`generate`]: random graphs;
//! - [`scatter`]: graphs on several devices, at random;

pub mod compare;
pub mod corpus;
pub mod directive;
pub mod feeds;
pub mod generate;
pub mod scatter;
pub mod ways;
