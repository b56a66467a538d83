//! Data files.

pub mod json;
