//! Training with parameter servers.
//!
//! | module | job |
//! |---|---|
//! | [`layout`] | which server has which variables, or which rows of them |
//! | [`server`] | keeps variables and runs the graph's own update on them |
//! | [`client`] | the worker's side: gradients out, variables in |
//! | [`rows`] | gradients of which only some rows are not zero |
//! | [`channel`] | questions and answers over one link |
//!
//! The program is divided when it is compiled (`tfc_abi::parts`). Who the servers are
//! and when gradients are applied is said when a job is started.

mod channel;
pub mod client;
pub mod layout;
mod rows;
pub mod server;
