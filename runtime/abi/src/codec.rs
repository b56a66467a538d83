//! Encoding of a [`crate::plan::Plan`] as bytes.
