//! What a graph may be placed on.
//!
//! Placements go through every pass and are printed; here they meet the machine.
//! A program runs in one process on its CPU, so that any other placement is an
//! error: it is never ignored.

use std::collections::BTreeSet;
use std::sync::Arc;
use tfc_abi::plan::Device;
use tfc_ir::diag::{Diag, Span};
use tfc_ir::{Func, Graph};

/// An error for each device that variables, queues or nodes are placed on and that
/// this program does not have.
pub(crate) fn check(graph: &Graph) -> Vec<Diag> {
    let mut seen = BTreeSet::new();
    let mut diags = vec![];
    let mut look = |device: &Option<Arc<str>>, span: Span, what: &str| {
        let Some(device) = device else { return };
        if here(device) || !seen.insert(device.clone()) {
            return;
        }
        diags.push(
            Diag::error("E0415", format!("this program has no device `{device}`"))
                .at(span, format!("{what} is placed there"))
                .note("a program runs in one process, on `/cpu:0`")
                .help("leave the placement out, or write `on \"/cpu:0\"`"),
        );
    };
    for var in graph.vars.values() {
        look(&var.device, var.span, &format!("`{}`", var.name));
    }
    let funcs: Vec<&Func> = graph.entries.iter().chain([&graph.init]).collect();
    for func in funcs {
        func.walk(&mut |_, node| {
            look(&node.device, node.span, &format!("this `{}`", node.op.name()));
        });
    }
    diags
}

/// What the program runs on: every placement that [`check`] lets through is the
/// first of these.
pub(crate) fn devices() -> Vec<Device> {
    vec![Device::host()]
}

/// Whether a device is the CPU of the only process there is.
fn here(device: &str) -> bool {
    matches!(device, "/cpu" | "/cpu:0")
}
