//! What a graph may be placed on.
//!
//! Placements go through every pass and are printed; here they meet the machine.
//! A program runs on the CPU of its process, so that any other placement is an
//! error: it is never ignored. A graph that was cut for a cluster has the tasks of
//! that too: one process that runs it by itself is all of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use tfc_abi::plan::{Device, Task};
use tfc_ir::diag::{Diag, Span};
use tfc_ir::text::device;
use tfc_ir::{Func, Graph};

/// An error for each device that variables, queues or nodes are placed on and that
/// this program does not have.
pub(crate) fn check(graph: &Graph) -> Vec<Diag> {
    let tasks = crate::partition::tasks(graph);
    let mut seen = BTreeSet::new();
    let mut diags = vec![];
    let mut look = |device: &Option<Arc<str>>, span: Span, what: &str| {
        let Some(device) = device else { return };
        if here(device, &tasks) || !seen.insert(device.clone()) {
            return;
        }
        diags.push(
            Diag::error("E0415", format!("this program has no device `{device}`"))
                .at(span, format!("{what} is placed there"))
                .note("a program runs in one process, on `/cpu:0`")
                .help(
                    "leave the placement out, write `on \"/cpu:0\"`, or compile for a cluster \
                     with `--cluster FILE.toml`",
                ),
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

/// Whether a device is the CPU of the process, or of a task that it may stand for.
fn here(name: &str, tasks: &[Arc<str>]) -> bool {
    let cpu = device::local(name).is_none_or(|d| matches!(d, "/cpu" | "/cpu:0"));
    match device::task(name) {
        Some(task) => cpu && tasks.iter().any(|t| **t == *task),
        None => cpu && device::local(name) == Some(name),
    }
}

/// The tasks of the cluster that the graph was cut for, the chief first.
pub(crate) fn tasks(graph: &Graph) -> Vec<Task> {
    let task = |name: Arc<str>| Task { name: name.to_string(), address: String::new() };
    crate::partition::tasks(graph).into_iter().map(task).collect()
}

/// Which of them a device belongs to; the chief if that is not said.
pub(crate) fn task_of(tasks: &[Task], name: Option<&str>) -> u32 {
    let task = name.and_then(device::task);
    let place = tasks.iter().position(|t| Some(t.name.as_str()) == task);
    place.unwrap_or(0) as u32
}
