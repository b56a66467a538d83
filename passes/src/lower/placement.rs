//! What a graph may be placed on.
//!
//! Placements go through every pass and are printed; here they meet the machine.
//! A process has one CPU, and may have GPUs; which is known when the program is run, so
//! that the plan says what was asked for ([`asked`]) and no more. Any other placement is
//! an error: it is never ignored. A graph that was cut for a cluster has the tasks of
//! that too: one process that runs it by itself is all of them.

use crate::devices::Local;
use std::collections::BTreeSet;
use std::sync::Arc;
use tfc_abi::check::MOST_GPUS;
use tfc_abi::plan::{Device, Task};
use tfc_ir::diag::{Diag, Span};
use tfc_ir::text::device;
use tfc_ir::{Func, Graph};

/// An error for each device that variables, queues or nodes are placed on and that
/// this program does not have.
pub(crate) fn check(graph: &Graph) -> Vec<Diag> {
    let tasks = crate::partition::tasks(graph);
    let mut seen = BTreeSet::new();
    let (mut diags, mut misplaced) = (vec![], vec![]);
    let mut look = |device: &Option<Arc<str>>, span: Span, what: &str| {
        let Some(device) = device else { return };
        if here(device, &tasks) || !seen.insert(device.clone()) {
            return;
        }
        diags.push(
            Diag::error("E0415", format!("this program has no device `{device}`"))
                .at(span, format!("{what} is placed there"))
                .note("a process has `/cpu:0`, and GPUs from `/gpu:0` on")
                .help(
                    "leave the placement out, write `on \"/cpu:0\"`, or compile for a cluster \
                     with `--cluster FILE.toml`",
                ),
        );
    };
    for var in graph.vars.values() {
        look(&var.device, var.span, &format!("`{}`", var.name));
    }
    for var in graph.vars.values().filter(|v| !v.symbol.is_variable()) {
        if Local::of(var.device.as_deref()).is_some_and(|d| d != Local::Cpu) {
            misplaced.push(
                Diag::error("E0415", format!("`{}` cannot be on a GPU", var.name))
                    .at(var.span, "placed there")
                    .note("queues and readers are the CPU's; what is taken from them is copied"),
            );
        }
    }
    let funcs: Vec<&Func> = graph.entries.iter().chain([&graph.init]).collect();
    for func in funcs {
        func.walk(&mut |_, node| {
            look(&node.device, node.span, &format!("this `{}`", node.op.name()));
        });
    }
    if named(graph).iter().filter(|d| **d != Local::Cpu).count() > MOST_GPUS {
        let message = format!("a process uses at most {MOST_GPUS} GPUs");
        diags.push(Diag::error("E0415", message));
    }
    diags.extend(misplaced);
    diags
}

/// The devices of a process that variables and nodes are placed on.
pub(crate) fn named(graph: &Graph) -> BTreeSet<Local> {
    let vars = graph.vars.values().filter_map(|v| Local::of(v.device.as_deref()));
    let mut out: BTreeSet<Local> = vars.collect();
    for func in graph.entries.iter().chain([&graph.init]) {
        func.walk(&mut |_, node| out.extend(Local::of(node.device.as_deref())));
    }
    out
}

/// What the plan is to say of placements: nothing, unless GPUs are named.
pub(crate) fn asked(graph: &Graph) -> Vec<Local> {
    let named = named(graph);
    let gpus = named.iter().any(|d| *d != Local::Cpu);
    named.into_iter().filter(|_| gpus).collect()
}

/// What the plan runs on, until it is known what there is.
pub(crate) fn devices() -> Vec<Device> {
    vec![Device::host()]
}

/// A device of a process, as plans have it.
pub(crate) fn device(local: Local) -> Device {
    match local {
        Local::Cpu => Device::host(),
        Local::Gpu(number) => Device::cuda(number),
    }
}

/// Whether a device is one of the process, or of a task that it may stand for.
fn here(name: &str, tasks: &[Arc<str>]) -> bool {
    let own =
        device::local(name).is_none_or(|d| matches!(d, "/cpu" | "/cpu:0") || d.starts_with("/gpu"));
    match device::task(name) {
        Some(task) => own && tasks.iter().any(|t| **t == *task),
        None => own && device::local(name) == Some(name),
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
