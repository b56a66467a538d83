//! Training with parameter servers.
//!
//! | module | job |
//! |---|---|
//! | [`layout`] | which server has which variables, or which rows of them |
//! | [`server`] | answers what it is asked |
//! | [`updates`] | gradients come, and the graph's own update runs |
//! | [`keep`] | where variables come from, and who may look at all of them |
//! | [`store`] | what a server knows |
//! | [`client`] | the worker's side: gradients out, variables in |
//! | [`carry`] | the chief's side: variables to begin with, and what is saved |
//! | [`rows`] | gradients of which only some rows are not zero |
//! | [`channel`] | questions and answers over one link |
//!
//! The program is divided when it is compiled (`tfc_abi::parts`). Who the servers are
//! and when gradients are applied is said when a job is started.

pub mod carry;
mod channel;
pub mod client;
mod keep;
pub mod layout;
mod rows;
pub mod server;
mod store;
mod updates;
